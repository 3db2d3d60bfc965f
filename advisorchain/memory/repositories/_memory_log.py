"""One conversation in memory: its entries, the same ones by lane, and what is known about it as a whole."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime

from advisorchain.memory.repositories._log_rules import (
    DECIDING,
    LANES,
    REPEATED,
    SPOKEN,
    SUMMARY,
    Laned,
    SystemsCut,
    end_of,
    excess_of,
    expires_of,
    kept_ttl,
    systems_cut,
    trim_ends,
)
from advisorchain.memory.repository import Conversation, Entry, Recall, Retention

__all__ = ["Lease", "MemoryLog"]


class Lease:
    """Who may write to a conversation, and until when by the repository's clock."""

    __slots__ = ("expires", "owner", "token")

    def __init__(self, owner: str, token: int, expires: float) -> None:
        self.owner, self.token, self.expires = owner, token, expires


class MemoryLog:
    """One conversation. An incarnation of 0 is one that is not kept yet.

    Args:
        ended: the incarnation of one whose time has run out, in whose place this one may come.
    """

    __slots__ = (
        "created", "ended", "ends", "entries", "incarnation", "lanes", "next_sequence", "revision", "systems", "ttl",
        "turns", "updated", "users",
    )  # fmt: skip

    def __init__(self, ended: int = 0) -> None:
        self.ended = ended
        self.incarnation = self.revision = 0
        self.next_sequence = 1
        self.turns: set[str] = set()
        self.created: datetime | None = None
        self.updated: datetime | None = None
        self.ttl: int | None = None
        self.ends: int | None = None
        self.clear()

    def clear(self) -> None:
        """Be without entries; turn ids stay known."""
        self.entries: list[Entry] = []
        self.lanes: tuple[list[Entry], ...] = tuple([] for _ in LANES)
        self.users: list[Entry] = []
        self.systems: tuple[Entry, ...] = ()

    def add(self, rows: Sequence[Laned], systems: tuple[Entry, ...], moment: datetime) -> None:
        """Put a batch behind what is there."""
        for entry, lane in rows:
            self.entries.append(entry)
            self.lanes[lane].append(entry)
            self.turns.add(entry.turn_id)
            if lane == SPOKEN and entry.role == "user":
                self.users.append(entry)
        self.systems = systems
        self.revision += 1
        self.next_sequence += len(rows)
        self.updated = moment
        self.created = self.created or moment

    def retain(self, retention: Retention | None, clock: int) -> None:
        """After a write: begin the time to live anew, and remove the turns that are too many."""
        self.ttl = kept_ttl(retention, self.ttl)
        self.ends = end_of(self.ttl, clock)
        excess = excess_of(len(self.lanes[SPOKEN]), retention)
        if excess and self.users:
            self._trim(self.users[min(self._users_before(excess), len(self.users) - 1)].sequence)

    def _users_before(self, spoken: int) -> int:
        """How many of the first `spoken` entries of that lane are questions."""
        lane = self.lanes[SPOKEN]
        return len(self.users) if spoken >= len(lane) else _end(self.users, lane[spoken].sequence)

    def _trim(self, cut: int) -> None:
        summary = self.lanes[SUMMARY][-1].sequence if self.lanes[SUMMARY] else 0
        ends = trim_ends(cut, self.systems[0].sequence if self.systems else 0, summary)
        for lane, end in zip(self.lanes, ends, strict=True):
            del lane[: _end(lane, end)]
        del self.users[: _end(self.users, cut)]
        staying = [entry for lane in self.lanes for entry in lane[: _end(lane, cut)]]  # systems in force, newest summary
        self.entries[: _end(self.entries, cut)] = sorted(staying, key=lambda entry: entry.sequence)

    def fork(self, at: int | None, moment: datetime, clock: int) -> MemoryLog | None:
        """A log with the same entries up to and with `at`; None when there is no such entry."""
        end = self.next_sequence if at is None else at + 1
        copy = MemoryLog()
        copy.entries = list(_cut(self.entries, end, None))
        if not copy.entries:
            return None
        systems, repeated = self._systems_before(end)
        copy.lanes = tuple(list(_cut(lane, end, None)) for lane in self.lanes)
        if repeated:
            del copy.lanes[DECIDING][-len(repeated) :]
            copy.lanes[REPEATED].extend(repeated)
            copy.lanes[REPEATED].sort(key=lambda entry: entry.sequence)
        copy.users, copy.systems = list(_cut(self.users, end, None)), systems
        copy.turns = {entry.turn_id for entry in copy.entries}
        copy.revision, copy.next_sequence = 1, copy.entries[-1].sequence + 1
        copy.created = copy.updated = moment
        copy.ttl, copy.ends = self.ttl, end_of(self.ttl, clock)
        return copy

    def _systems_before(self, end: int) -> SystemsCut:
        if not self.systems or self.systems[-1].sequence < end:
            return SystemsCut(self.systems)
        deciding = self.lanes[DECIDING]
        return systems_cut(reversed(deciding[: _end(deciding, end)]))

    def recall(self, last: int | None, before: int | None) -> Recall:
        """What a policy needs."""
        tail = _cut(self.lanes[SPOKEN], before, last)
        systems = self.systems if before is None else self._systems_before(before).in_force
        question: tuple[Entry, ...] = ()
        if tail and tail[0].role != "user":
            question = _cut(self.users, tail[0].sequence, 1)
        summary = _cut(self.lanes[SUMMARY], before, 1)
        return Recall(
            self.revision,
            self.incarnation,
            len(self.entries),
            tail,
            systems,
            question[0] if question else None,
            summary[0] if summary else None,
        )

    def part(self, after: int | None, most: int, newest_first: bool) -> Sequence[Entry]:
        """At most so many entries, from a place on."""
        if newest_first:
            return _cut(self.entries, after, most)[::-1]
        start = 0 if after is None else _end(self.entries, after + 1)
        return self.entries[start : start + most]

    def described(self, conversation_id: str) -> Conversation:
        """The log in a list."""
        assert self.created is not None
        assert self.updated is not None
        expires = expires_of(self.updated, self.ttl)
        return Conversation(conversation_id, len(self.entries), self.created, self.updated, expires)


def _end(entries: Sequence[Entry], before: int) -> int:
    return bisect_left(entries, before, key=lambda entry: entry.sequence)


def _cut(entries: Sequence[Entry], before: int | None, last: int | None) -> tuple[Entry, ...]:
    end = len(entries) if before is None else _end(entries, before)
    return tuple(entries[0 if last is None else max(0, end - last) : end])
