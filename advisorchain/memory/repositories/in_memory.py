"""Conversations in this process's memory, for tests and for programs that may forget when they end."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from threading import Lock

from advisorchain.errors import StorageError
from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.repositories._log import (
    DECIDING,
    LANES,
    SPOKEN,
    SUMMARY,
    Laned,
    check_incarnation,
    check_writer,
    checked_items,
    checked_number,
    checked_prefix,
    checked_seconds,
    checked_text,
    cursor,
    laned,
    now,
    numbered,
    page_of,
    position,
    replacement,
    systems_at,
)
from advisorchain.memory.repository import Conversation, Entry, Page, Recall, checked_batch
from advisorchain.messages import Message

__all__ = ["InMemoryChatMemoryRepository"]


class InMemoryChatMemoryRepository:
    """Keeps conversations in memory and shares their messages, which cannot change, instead of copying them.

    May be used from any thread and event loop; a lock is held for microseconds, by `replace` for as long as it takes to
    compare. Nothing in it waits, so a call has its whole effect even when its task is being cancelled.

    Args:
        clock: tells seconds; leases run out by it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._logs: dict[str, _Log] = {}
        self._ids: list[str] = []  # sorted
        self._leases: dict[str, _Lease] = {}
        self._last_token = 0
        self._closed = False

    async def append(
        self,
        conversation_id: str,
        messages: Iterable[Message],
        *,
        turn_id: str,
        expected: int | None = None,
        incarnation: int | None = None,
        token: int | None = None,
    ) -> int:
        """Add messages at the end, all or none; see `ChatMemoryRepository.append`."""
        checked_conversation_id(conversation_id)
        batch = checked_batch(messages)
        checked_text(turn_id, "turn_id")
        with self._lock:
            log = self._found(conversation_id)
            if not batch:
                return log.revision
            check_incarnation(incarnation, log.incarnation)
            if turn_id in log.turns:
                return log.revision
            lease = self._leases.get(conversation_id)
            check_writer(expected=expected, revision=log.revision, lease=lease.token if lease else None, token=token)
            rows, systems = numbered(batch, log.next_sequence, turn_id, now(), log.systems)
            log.add(rows, systems)
            self._keep(conversation_id, log)
            return log.revision

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read what a policy needs; see `ChatMemoryRepository.recall`. Costs what the tail costs."""
        checked_conversation_id(conversation_id)
        most = last if last is None else checked_number(last, "last", least=0)
        end = before if before is None else checked_number(before, "before", least=0)
        with self._lock:
            return self._found(conversation_id).recall(most, end)

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence; see `ChatMemoryRepository.page`."""
        checked_conversation_id(conversation_id)
        most = checked_number(limit, "limit", least=1)
        with self._lock:
            log = self._found(conversation_id)
            place = None if after is None else position(after, log.incarnation)
            if after is not None and place is None:
                return Page(())
            items, more = page_of(log.part(place, most + 1, newest_first), most)
        return Page(items, cursor(log.incarnation, items[-1].sequence) if more else None)

    async def replace(
        self, conversation_id: str, messages: Iterable[Message | Entry], *, expected: int | None = None
    ) -> int:
        """Put these messages in place of all that are there; see `ChatMemoryRepository.replace`."""
        checked_conversation_id(conversation_id)
        items = checked_items(messages)
        with self._lock:
            log = self._found(conversation_id)
            check_writer(expected=expected, revision=log.revision, lease=None, token=None)
            if not items:
                self._forget(conversation_id)
                return 0
            moment = now()
            rows, systems = laned(replacement(log.entries, items, log.next_sequence, moment))
            log.clear()
            log.add(rows, systems, moment)
            self._keep(conversation_id, log)
            return log.revision

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation; False when there was none."""
        checked_conversation_id(conversation_id)
        with self._lock:
            self._check_open()
            return self._forget(conversation_id)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; see `ChatMemoryRepository.conversations`."""
        checked_prefix(prefix, "prefix")
        most = checked_number(limit, "limit", least=1)
        with self._lock:
            self._check_open()
            start = bisect_left(self._ids, prefix)
            if after is not None:
                start = max(start, bisect_right(self._ids, checked_prefix(after, "after")))
            found = [name for name in self._ids[start : start + most + 1] if name.startswith(prefix)]
            ids, more = page_of(found, most)
            rows = tuple(self._logs[name].described(name) for name in ids)
        return Page(rows, ids[-1] if more else None)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`."""
        checked_conversation_id(conversation_id)
        checked_text(owner, "owner")
        length = checked_seconds(seconds)
        with self._lock:
            self._check_open()
            time_now = self._clock()
            lease = self._leases.get(conversation_id)
            if lease is not None and lease.expires > time_now:
                if lease.owner != owner:
                    return None
                lease.expires = time_now + length
                return lease.token
            self._last_token += 1
            self._leases[conversation_id] = _Lease(owner, self._last_token, time_now + length)
            return self._last_token

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        checked_conversation_id(conversation_id)
        with self._lock:
            self._check_open()
            lease = self._leases.get(conversation_id)
            if lease is not None and lease.token == token:
                del self._leases[conversation_id]

    async def aclose(self) -> None:
        """Forget everything. The repository cannot be used after that; closing twice is fine."""
        with self._lock:
            self._closed = True
            self._logs, self._ids, self._leases = {}, [], {}

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the in-memory repository is closed; make a new `InMemoryChatMemoryRepository`")

    def _found(self, conversation_id: str) -> _Log:
        self._check_open()
        return self._logs.get(conversation_id) or _Log()

    def _keep(self, conversation_id: str, log: _Log) -> None:
        if not log.incarnation:
            log.incarnation = secrets.randbelow(2**53 - 1) + 1
            self._logs[conversation_id] = log
            insort(self._ids, conversation_id)

    def _forget(self, conversation_id: str) -> bool:
        if self._logs.pop(conversation_id, None) is None:
            return False
        del self._ids[bisect_left(self._ids, conversation_id)]
        return True


class _Lease:
    __slots__ = ("expires", "owner", "token")

    def __init__(self, owner: str, token: int, expires: float) -> None:
        self.owner, self.token, self.expires = owner, token, expires


class _Log:
    """One conversation. An incarnation of 0 is one that is not kept yet."""

    __slots__ = (
        "created", "entries", "incarnation", "lanes", "next_sequence", "revision", "systems", "turns", "updated", "users",
    )  # fmt: skip

    def __init__(self) -> None:
        self.incarnation = self.revision = 0
        self.next_sequence = 1
        self.turns: set[str] = set()
        self.created: datetime | None = None
        self.clear()

    def clear(self) -> None:
        self.entries: list[Entry] = []
        self.lanes: tuple[list[Entry], ...] = tuple([] for _ in LANES)
        self.users: list[Entry] = []
        self.systems: tuple[Entry, ...] = ()

    def add(self, rows: Sequence[Laned], systems: tuple[Entry, ...], moment: datetime | None = None) -> None:
        for entry, lane in rows:
            self.entries.append(entry)
            self.lanes[lane].append(entry)
            self.turns.add(entry.turn_id)
            if lane == SPOKEN and entry.role == "user":
                self.users.append(entry)
        self.systems = systems
        self.revision += 1
        self.next_sequence += len(rows)
        self.updated = moment or rows[-1].entry.created
        self.created = self.created or self.updated

    def recall(self, last: int | None, before: int | None) -> Recall:
        tail = _cut(self.lanes[SPOKEN], before, last)
        systems = self.systems
        if before is not None and systems and systems[-1].sequence >= before:
            deciding = self.lanes[DECIDING]
            systems = systems_at(reversed(deciding[: _end(deciding, before)]))
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
        if newest_first:
            return _cut(self.entries, after, most)[::-1]
        start = 0 if after is None else _end(self.entries, after + 1)
        return self.entries[start : start + most]

    def described(self, conversation_id: str) -> Conversation:
        assert self.created is not None
        return Conversation(conversation_id, len(self.entries), self.created, self.updated)


def _end(entries: Sequence[Entry], before: int) -> int:
    return bisect_left(entries, before, key=lambda entry: entry.sequence)


def _cut(entries: Sequence[Entry], before: int | None, last: int | None) -> tuple[Entry, ...]:
    end = len(entries) if before is None else _end(entries, before)
    return tuple(entries[0 if last is None else max(0, end - last) : end])
