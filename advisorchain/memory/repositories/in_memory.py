"""Conversations in this process's memory, for tests and for programs that may forget when they end."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from threading import Lock
from typing import Final

from advisorchain.errors import StorageError
from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.repositories._arguments import (
    checked_items,
    checked_lease,
    checked_number,
    checked_place,
    checked_prefix,
    checked_retention,
    checked_text,
    checked_time,
    cursor,
    page_of,
    position,
)
from advisorchain.memory.repositories._log_rules import (
    GRACE,
    check_incarnation,
    check_target,
    check_writer,
    is_over,
    laned,
    numbered,
    replacement,
)
from advisorchain.memory.repositories._memory_log import Lease, MemoryLog
from advisorchain.memory.repositories._times import microseconds, now, ticks
from advisorchain.memory.repository import Conversation, Entry, Page, Recall, Retention, checked_batch
from advisorchain.messages import Message

__all__ = ["InMemoryChatMemoryRepository"]

_SWEPT: Final = 4  # conversations that a new one looks at, so that no more than a share of them has ended


class InMemoryChatMemoryRepository:
    """Keeps conversations in memory and shares their messages, which cannot change, instead of copying them.

    May be used from any thread and event loop; a lock is held for microseconds, by `replace`, `fork` and `prune` for as
    long as it takes to compare, copy or look through. Nothing in it waits, so a call has its whole effect even when its
    task is being cancelled. Conversations that ended an hour ago or more are removed as new ones come.

    Args:
        clock: tells seconds; leases and conversations run out by it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._logs: dict[str, MemoryLog] = {}
        self._ids: list[str] = []  # sorted
        self._next_swept = 0
        self._leases: dict[str, Lease] = {}
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
        retention: Retention | None = None,
    ) -> int:
        """Add messages at the end, all or none; see `ChatMemoryRepository.append`."""
        checked_conversation_id(conversation_id)
        batch = checked_batch(messages)
        checked_text(turn_id, "turn_id")
        kept = checked_retention(retention)
        with self._lock:
            log = self._found(conversation_id)
            if not batch:
                return log.revision
            check_incarnation(incarnation, log.incarnation, log.ended)
            if turn_id in log.turns:
                return log.revision
            lease = self._leases.get(conversation_id)
            check_writer(expected=expected, revision=log.revision, lease=lease.token if lease else None, token=token)
            moment = now()
            log.add(*numbered(batch, log.next_sequence, turn_id, moment, log.systems), moment)
            log.retain(kept, ticks(self._clock()))
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
        self,
        conversation_id: str,
        messages: Iterable[Message | Entry],
        *,
        expected: int | None = None,
        incarnation: int | None = None,
        retention: Retention | None = None,
    ) -> int:
        """Put these messages in place of all that are there; see `ChatMemoryRepository.replace`."""
        checked_conversation_id(conversation_id)
        items = checked_items(messages)
        kept = checked_retention(retention)
        with self._lock:
            log = self._found(conversation_id)
            check_incarnation(incarnation, log.incarnation)
            check_writer(expected=expected, revision=log.revision, lease=None, token=None)
            if not items:
                self._forget(conversation_id)
                return 0
            moment = now()
            rows, systems = laned(replacement(log.entries, items, log.next_sequence, moment))
            log.clear()
            log.add(rows, systems, moment)
            log.retain(kept, ticks(self._clock()))
            self._keep(conversation_id, log)
            return log.revision

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation; False when there was none."""
        checked_conversation_id(conversation_id)
        with self._lock:
            was_there = bool(self._found(conversation_id).incarnation)
            self._forget(conversation_id)
            return was_there

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; see `ChatMemoryRepository.rename`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)
        with self._lock:
            log = self._found(conversation_id)
            if not log.incarnation:
                return False
            check_target(bool(self._found(new_id).incarnation))
            self._forget(conversation_id)
            self._put(new_id, log)
            return True

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries; see `ChatMemoryRepository.fork`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)
        place = checked_place(at, "at")
        with self._lock:
            log = self._found(conversation_id)
            copy = log.fork(place, now(), ticks(self._clock()))
            if copy is None:
                return False
            check_target(bool(self._found(new_id).incarnation))
            self._keep(new_id, copy)
            return True

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations that ended, or were not written to; see `ChatMemoryRepository.prune`."""
        moment = checked_time(before, "before")
        checked_prefix(prefix, "prefix")
        most = checked_number(limit, "limit", least=1)
        with self._lock:
            self._check_open()
            clock = ticks(self._clock())
            dead = self._clock() - GRACE / 1_000_000
            self._leases = {name: lease for name, lease in self._leases.items() if lease.expires >= dead}
            old = (name for name in self._from(prefix) if self._is_old(self._logs[name], clock, moment))
            gone = set(islice(old, most))
            for name in gone:
                del self._logs[name]
            if gone:
                self._ids = [name for name in self._ids if name not in gone]
            return len(gone)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; see `ChatMemoryRepository.conversations`."""
        checked_prefix(prefix, "prefix")
        most = checked_number(limit, "limit", least=1)
        with self._lock:
            self._check_open()
            clock = ticks(self._clock())
            found = self._from(prefix, None if after is None else checked_prefix(after, "after"))
            there = (name for name in found if not is_over(self._logs[name].ends, clock))
            ids, more = page_of(list(islice(there, most + 1)), most)
            rows = tuple(self._logs[name].described(name) for name in ids)
        return Page(rows, ids[-1] if more else None)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`."""
        checked_conversation_id(conversation_id)
        checked_text(owner, "owner")
        length = checked_lease(seconds)
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
            self._leases[conversation_id] = Lease(owner, self._last_token, time_now + length)
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

    def _found(self, conversation_id: str) -> MemoryLog:
        """The conversation, or an empty one that may come in its place."""
        self._check_open()
        log = self._logs.get(conversation_id)
        if log is None:
            return MemoryLog()
        return MemoryLog(log.incarnation) if self._has_ended(log) else log

    def _has_ended(self, log: MemoryLog) -> bool:
        return log.ends is not None and is_over(log.ends, ticks(self._clock()))

    def _keep(self, conversation_id: str, log: MemoryLog) -> None:
        if not log.incarnation:
            log.incarnation, log.ended = secrets.randbelow(2**53 - 1) + 1, 0
            self._sweep()
            self._put(conversation_id, log)

    def _put(self, conversation_id: str, log: MemoryLog) -> None:
        if conversation_id not in self._logs:
            insort(self._ids, conversation_id)
        self._logs[conversation_id] = log

    def _forget(self, conversation_id: str) -> None:
        if self._logs.pop(conversation_id, None) is not None:
            del self._ids[bisect_left(self._ids, conversation_id)]

    def _from(self, prefix: str, after: str | None = None) -> Iterator[str]:
        """The ids that begin with `prefix`, behind `after`; of all conversations, also those that ended."""
        start = bisect_left(self._ids, prefix)
        if after is not None:
            start = max(start, bisect_right(self._ids, after))
        for place in range(start, len(self._ids)):
            if not self._ids[place].startswith(prefix):
                return
            yield self._ids[place]

    def _is_old(self, log: MemoryLog, clock: int, before: int | None) -> bool:
        assert log.updated is not None
        return is_over(log.ends, clock) or (before is not None and microseconds(log.updated) < before)

    def _sweep(self) -> None:
        """Look at a few conversations, in turn at all, and remove those that ended long ago."""
        start = self._next_swept if self._next_swept < len(self._ids) else 0
        seen = self._ids[start : start + _SWEPT]
        over = ticks(self._clock()) - GRACE
        gone = [name for name in seen if is_over(self._logs[name].ends, over)]
        for name in gone:
            self._forget(name)
        self._next_swept = start + len(seen) - len(gone)
