"""What a write does to the rows of a conversation. Whoever writes holds the lock on the conversation's row."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from advisorchain.memory.repositories import _log_rules, _times
from advisorchain.memory.repositories._arguments import MOST
from advisorchain.memory.repositories._log_rules import LANES, SPOKEN, SUMMARY, Laned
from advisorchain.memory.repositories._sql import errors
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.reading import EntryReader
from advisorchain.memory.repositories._sql.statements import Statements
from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import dump_message

_EPOCH: Final = 1_577_836_800  # 2020; 32 bits of seconds from there reach to 2156


class Found(NamedTuple):
    """A conversation's row; an incarnation of 0 is one that is not there."""

    incarnation: int = 0
    revision: int = 0
    size: int = 0
    spoken: int = 0
    next_sequence: int = 1
    systems: int = 0  # the first of the system messages in force; sequences, 0: none
    question: int = 0  # the newest user message
    summary: int = 0
    ttl: int | None = None
    is_over: int = 0

    @property
    def is_there(self) -> bool:
        """Whether there is one, and its time has not run out."""
        return bool(self.incarnation) and not self.is_over


class Log:
    """One conversation in one unit of work."""

    def __init__(self, link: Link, statements: Statements, known: EntryReader, conversation_id: str) -> None:
        self.id = conversation_id
        self.link = link
        self._statements = statements
        self._known = known
        self.found = Found()

    def find(self) -> Found:
        """The row as it is, without a lock."""
        return self._take(self._statements.found)

    def lock(self) -> Found:
        """The row as it is, which stays so until the transaction ends."""
        return self._take(self._statements.locked)

    def _take(self, statement: Any) -> Found:
        rows = self.link.rows(statement, {"id": self.id})
        self.found = Found._make(rows[0]) if rows else Found()
        return self.found

    def create(self, created: datetime, *, revision: int = 0, ttl: int | None = None) -> Found:
        """A new conversation without entries, in place of one whose time has run out."""
        self.remove()
        moment, incarnation = _times.microseconds(created), new_incarnation()
        row = {"incarnation": incarnation, "id": self.id, "revision": revision, "count": 0, "next_sequence": 1, "systems": 0}
        row |= {"question": 0, "summary": 0, "created": moment, "updated": moment, "spoken": 0}
        self.link.run(self._statements.create, {**row, "ttl": ttl})
        self.found = Found(incarnation, revision, ttl=ttl)
        return self.found

    def put_turn(self, turn_id: str) -> None:
        """Note a turn id; the database's IntegrityError when it is there."""
        self.link.run(self._statements.put_turn, {"conversation": self.found.incarnation, "turn_id": turn_id})

    def put_turns(self, turn_ids: Iterable[str]) -> None:
        """Note those of the turn ids that are not there."""
        mine = {"conversation": self.found.incarnation}
        there = {row[0] for row in self.link.rows(self._statements.turns, mine)}
        fresh = [{**mine, "turn_id": turn_id} for turn_id in dict.fromkeys(turn_ids) if turn_id not in there]
        self.link.many(self._statements.put_turn, fresh)

    def systems(self) -> tuple[Entry, ...]:
        """The system messages in force."""
        if not self.found.systems:
            return ()
        given = {"conversation": self.found.incarnation, "lowest": self.found.systems}
        return tuple(
            self._known.entry(self.found.incarnation, row) for row in self.link.rows(self._statements.in_force, given)
        )

    def add(self, rows: Sequence[Laned], systems: int, updated: datetime, retention: Retention | None) -> int:
        """Write a batch behind what is there, and remove what is too much then; returns the new revision.

        `systems` is the first sequence of the system messages in force then; 0: none.
        """
        log = self.found
        moved = _log_rules.moved(rows, log.question, log.summary)
        records = [self._record(*row, question) for row, question in zip(rows, moved.questions, strict=True)]
        self.link.many(self._statements.put, records)
        self.found = log._replace(
            revision=log.revision + 1,
            size=log.size + len(rows),
            spoken=log.spoken + moved.spoken,
            next_sequence=rows[-1].entry.sequence + 1,
            systems=systems,
            question=moved.question,
            summary=moved.summary,
            ttl=_log_rules.kept_ttl(retention, log.ttl),
        )
        self._move(_times.microseconds(updated))
        self._trim(_log_rules.excess_of(self.found.spoken, retention))
        return self.found.revision

    def _record(self, entry: Entry, lane: int, question: int) -> dict[str, Any]:
        text = dump_message(entry.message)
        errors.check_size(text, self._statements.most_bytes)
        return {
            "conversation": self.found.incarnation,
            "lane": lane,
            "sequence": entry.sequence,
            "turn_id": entry.turn_id,
            "created": _times.microseconds(entry.created),
            "covers": entry.covers,
            "question": question,
            "message": text,
        }

    def _move(self, updated: int) -> None:
        log = self.found
        changed = {"revision": log.revision, "count": log.size, "next_sequence": log.next_sequence, "systems": log.systems}
        changed |= {"question": log.question, "summary": log.summary, "updated": updated, "spoken": log.spoken}
        given = {f"new_{name}": value for name, value in changed.items()}
        self.link.run(self._statements.moved, {**given, "new_ttl": log.ttl, "conversation": log.incarnation})

    def _trim(self, excess: int) -> None:
        """Remove the oldest turns that together have so many spoken entries, or just more."""
        if not excess or not self.found.question:
            return
        mine = {"conversation": self.found.incarnation}
        at = self.link.rows(self._statements.spoken_at, {**mine, "offset": excess})
        asked = self.link.rows(self._statements.question_from, {**mine, "lowest": at[0][0]}) if at else ()
        cut = asked[0][0] if asked else self.found.question
        ends = _log_rules.trim_ends(cut, self.found.systems, self.found.summary)
        removed = [
            self.link.run(self._statements.clear_lane, {**mine, "lane": lane, "highest": end})
            for lane, end in zip(LANES, ends, strict=True)
        ]
        given = {**mine, "removed": sum(removed), "removed_spoken": removed[SPOKEN]}
        self.link.run(self._statements.trimmed, given)

    def clear(self) -> None:
        """Remove all entries; the turn ids stay known."""
        self.link.run(self._statements.clear, {"conversation": self.found.incarnation})
        self._known.forget(self.found.incarnation)
        self.found = self.found._replace(size=0, spoken=0, systems=0, question=0, summary=0)

    def remove(self) -> None:
        """Remove the conversation with all its rows, also one whose time has run out."""
        if self.found.incarnation:
            mine = {"conversation": self.found.incarnation}
            for statement in (self._statements.clear, self._statements.clear_turns, self._statements.remove):
                self.link.run(statement, mine)
            self._known.forget(self.found.incarnation)
            self.found = Found()

    def remove_old(self, incarnation: int, before: int) -> bool:
        """Remove a conversation if it is still old; whether it was."""
        mine = {"conversation": incarnation}
        if not self.link.run(self._statements.remove_old, {**mine, "before": before}):
            return False
        for statement in (self._statements.clear, self._statements.clear_turns):
            self.link.run(statement, mine)
        self._known.forget(incarnation)
        return True

    def rename(self, new_id: str) -> None:
        """Give it another id."""
        self.link.run(self._statements.rename, {"conversation": self.found.incarnation, "new_id": new_id})

    def copy_to(self, target: Log, at: int, created: datetime) -> bool:
        """Make `target` a conversation with the entries up to `at`; False when there are none."""
        mine = {"conversation": self.found.incarnation, "at": at}
        lanes = {row[0]: row[1:] for row in self.link.rows(self._statements.copied, mine)}
        if not lanes:
            return False
        _log_rules.check_target(target.find().is_there)
        copy = target.create(created, ttl=self.found.ttl)
        for statement in (self._statements.copy, self._statements.copy_turns):
            self.link.run(statement, {**mine, "target": copy.incarnation})
        systems = self._cut_systems(at + 1, copy.incarnation)
        none = (0, 0, 0)
        target.found = copy._replace(
            revision=1,
            size=sum(count for count, _, _ in lanes.values()),
            spoken=lanes.get(SPOKEN, none)[0],
            next_sequence=max(last for _, last, _ in lanes.values()) + 1,
            systems=first_of(systems),
            question=lanes.get(SPOKEN, none)[2],
            summary=lanes.get(SUMMARY, none)[1],
        )
        target._move(_times.microseconds(created))
        return True

    def _cut_systems(self, end: int, target: int) -> Sequence[Entry]:
        """The system messages in force before `end`, where the entries were copied to as well."""
        in_force = self.systems()
        if not in_force or in_force[-1].sequence < end:
            return in_force
        incarnation = self.found.incarnation
        older = self.link.rows(self._statements.deciding, {"conversation": incarnation, "before": end, "most": MOST})
        cut = _log_rules.systems_cut(self._known.entry(incarnation, row) for row in older)
        for entry in cut.repeated:
            self.link.run(self._statements.repeated, {"target": target, "place": entry.sequence})
        return cut.in_force


def new_incarnation() -> int:
    """A number below 2**53 that no other life has: the second, so that what is new lies together, and a random part."""
    return ((int(time.time()) - _EPOCH) % 2**32 << 21 | secrets.randbits(21)) or 1


def first_of(systems: Sequence[Entry]) -> int:
    """The first sequence of system messages; 0: there are none."""
    return systems[0].sequence if systems else 0
