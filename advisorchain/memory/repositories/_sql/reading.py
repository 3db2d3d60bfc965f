"""What is read from a SQL store: rows become entries, and entries that were read before are known again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, Literal

from advisorchain.errors import MessageError, StorageError
from advisorchain.memory.repositories import _arguments, _log_rules, _times
from advisorchain.memory.repositories._known import Known
from advisorchain.memory.repositories._log_rules import SUMMARY
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.statements import Statements
from advisorchain.memory.repository import Conversation, Entry, Page, Recall
from advisorchain.messages import load_message

_FIRST_SYSTEMS: Final = 64  # deciding entries that are read to find the newest two batches

_SEQUENCE: Final = itemgetter(5)  # of an entry's columns behind the three of the conversation and the part


class EntryReader:
    """Makes entries of rows, and knows those that it has read last.

    A sequence of one incarnation never changes its entry. Where a backup of the server was put back, it may: then turn id
    and time differ, which are read each time.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._known: Known[tuple[int, str, int], Entry] = Known()  # by sequence, turn id and time
        self.forget = self._known.forget

    def entry(self, incarnation: int, row: Sequence[Any]) -> Entry:
        """The entry in a row of lane, sequence, turn id, time, what it covers, and message."""
        lane, sequence, turn_id, created, covers, text = row
        known = self._known.of(incarnation).get((sequence, turn_id, created))
        return known or self._read(incarnation, lane, sequence, turn_id, created, covers, text)

    def parts(self, incarnation: int, rows: Sequence[Sequence[Any]]) -> tuple[list[Entry], ...]:
        """The entries of a recall by their part, each oldest first; without a call for each that is known."""
        parts: tuple[list[Entry], ...] = ([], [], [], [])
        known = self._known.of(incarnation)
        for _, _, _, part, lane, sequence, turn_id, created, covers, text in sorted(rows, key=_SEQUENCE):
            entry = known.get((sequence, turn_id, created))
            parts[part].append(entry or self._read(incarnation, lane, sequence, turn_id, created, covers, text))
        return parts

    def _read(
        self, incarnation: int, lane: int, sequence: int, turn_id: str, created: int, covers: int | None, text: str
    ) -> Entry:
        try:
            message = load_message(text)
        except MessageError as error:
            raise StorageError(f"entry {sequence} in `{self._store}` cannot be read: {error}") from None
        kind: Literal["message", "summary"] = "summary" if lane == SUMMARY else "message"
        entry = Entry(sequence, turn_id, message, _times.moment(created), kind, covers)
        self._known.keep(incarnation, (sequence, turn_id, created), entry, len(text))
        return entry


def recall(link: Link, statements: Statements, known: EntryReader, conversation_id: str, last: int, before: int) -> Recall:
    """What a policy needs, from one statement, so from one moment."""
    while True:
        given = {"id": conversation_id, "last": last, "before": before}
        rows = link.rows(statements.recall, given)
        if not rows:
            return Recall()
        revision, incarnation, count = rows[0][:3]
        found = rows if rows[0][3] is not None else ()  # a conversation without entries is one row all the same
        tail, question, systems, summary = known.parts(incarnation, found)
        in_force: Sequence[Entry] | None = systems
        if systems and systems[-1].sequence >= before:
            in_force = _older_systems(link, statements, known, conversation_id, revision, incarnation, before)
        if in_force is not None:
            first = question[0] if question else None
            newest = summary[0] if summary else None
            return Recall(revision, incarnation, count, tuple(tail), tuple(in_force), first, newest)


def _older_systems(
    link: Link,
    statements: Statements,
    known: EntryReader,
    conversation_id: str,
    revision: int,
    incarnation: int,
    before: int,
) -> Sequence[Entry] | None:
    """The systems in force before a cut through the newest batches; None: the log was written to in between."""
    most = _FIRST_SYSTEMS
    while True:
        rows = link.rows(statements.deciding, {"conversation": incarnation, "before": before, "most": most})
        entries = [known.entry(incarnation, row) for row in rows]
        if len(rows) < most or len({entry.turn_id for entry in entries}) > 2:  # it is known where the second batch ends
            break
        most *= 8
    now = link.rows(statements.found, {"id": conversation_id})
    return _log_rules.systems_at(entries) if now and tuple(now[0][:2]) == (incarnation, revision) else None


def page(
    link: Link, statements: Statements, known: EntryReader, conversation_id: str, place: int, most: int, newest_first: bool
) -> tuple[int, list[Entry]]:
    """The conversation's incarnation, and entries of all lanes from a place on."""
    statement = statements.page_back if newest_first else statements.page
    rows = link.rows(statement, {"id": conversation_id, "place": place, "most": most})
    if not rows:
        return 0, []
    incarnation = rows[0][1]
    found = [known.entry(incarnation, row[4:]) for row in rows if row[3] is not None]
    return incarnation, sorted(found, key=lambda entry: entry.sequence, reverse=newest_first)


def listed(link: Link, statements: Statements, prefix: str, after: str | None, limit: int) -> Page[Conversation]:
    """The conversations whose ids begin with `prefix`, behind `after`."""
    end = _arguments.behind(prefix)
    is_behind = after is not None and after >= prefix
    given = {"lowest": after if is_behind else prefix, "highest": end, "most": limit + 1}
    rows = link.rows(statements.listed(bounded=end is not None, behind=is_behind), given)
    found, more = _arguments.page_of(rows, limit)
    items = tuple(
        Conversation(name, count, _times.moment(made), _times.moment(new), _log_rules.expires_of(_times.moment(new), ttl))
        for name, count, made, new, ttl in found
    )
    return Page(items, items[-1].conversation_id if more else None)


def old(link: Link, statements: Statements, prefix: str, before: int, limit: int) -> list[int]:
    """The incarnations of conversations whose time has run out, or that were not written to since `before`."""
    end = _arguments.behind(prefix)
    given = {"lowest": prefix, "highest": end, "before": before, "most": limit}
    return [row[0] for row in link.rows(statements.old(bounded=end is not None), given)]


def life_of(after: object) -> int:
    """The incarnation that a cursor speaks of; InvalidInputError when it is no cursor."""
    _arguments.position(after, -1)
    return int(str(after).partition(".")[0])
