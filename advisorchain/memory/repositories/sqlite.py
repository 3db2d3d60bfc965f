"""Conversations in one SQLite file, with nothing to install: the standard library's sqlite3."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.repositories import _arguments, _log_rules, _times
from advisorchain.memory.repositories._arguments import (
    checked_items,
    checked_lease,
    checked_number,
    checked_place,
    checked_prefix,
    checked_retention,
    checked_text,
    checked_time,
)
from advisorchain.memory.repositories._sqlite import rows
from advisorchain.memory.repositories._sqlite.file import SqliteFile
from advisorchain.memory.repository import Conversation, Entry, Page, Recall, Retention, checked_batch
from advisorchain.messages import Message

__all__ = ["SqliteChatMemoryRepository"]


class SqliteChatMemoryRepository:
    """Keeps conversations in a SQLite file, opened on first use, that any number of processes on this machine may share.

    May be used from any thread and event loop, on asyncio and trio; each call is one transaction in one hop to a worker
    thread. The file is in WAL mode (`path`-wal and `path`-shm lie beside it while it is open), which network folders
    cannot keep.

    What was acknowledged survives the end of the process, also by `kill -9`, with every setting of `synchronous`. When
    the machine crashes or loses power, "FULL" keeps every acknowledged turn, at the price of waiting for the disk on
    each; "NORMAL" may lose the newest turns, whole, and never damages the file; "OFF" may damage it.

    A file of an earlier version of advisorchain is brought to this one's schema when it is opened, whole or not at all;
    processes of that version cannot use it from then on. Conversations that ended an hour ago or more are removed as new
    ones come.

    Args:
        path: a file in a folder that is there, or ":memory:" for a database that ends with the repository.
        synchronous: "OFF", "NORMAL" or "FULL".
        timeout: seconds to wait for another process's lock before StorageError.
        clock: tells seconds; leases and conversations run out by it. All processes on one file must have the same.

    Raises:
        ConfigurationError: an argument that cannot work. What is wrong with the file shows on first use.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "NORMAL",
        timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = SqliteFile(path, synchronous, timeout)
        self._clock = clock
        self._entries = rows.EntryReader(self._file.path)
        self._file.on_open = self._entries.clear

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

        def work(db: sqlite3.Connection) -> int:
            log = rows.find(db, conversation_id, self._now(), turn_id)
            if not batch:
                return log.revision
            _log_rules.check_incarnation(incarnation, log.incarnation, log.ended)
            if log.has_turn:
                return log.revision
            lease = None if token is None else rows.lease_token(db, conversation_id)
            _log_rules.check_writer(expected=expected, revision=log.revision, lease=lease, token=token)
            created = _times.now()
            systems = self._entries.systems(db, log).in_force
            new = _log_rules.numbered(batch, log.next_sequence, turn_id, created, systems)
            log = log if log.key else self._create(db, conversation_id, log, created)
            return self._write(db, log, new, created, kept)

        return await self._file.run("BEGIN IMMEDIATE" if batch else "BEGIN", work)

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read what a policy needs; see `ChatMemoryRepository.recall`. Costs what the tail costs."""
        checked_conversation_id(conversation_id)
        most = -1 if last is None else checked_number(last, "last", least=0)
        end = rows.END if before is None else checked_number(before, "before", least=0, most=rows.END)

        def work(db: sqlite3.Connection) -> Recall:
            log = rows.find(db, conversation_id, self._now())
            if not log.key:
                return Recall()
            tail, question = self._entries.tail(db, log, end, most)
            systems, summary = self._entries.systems(db, log, end).in_force, self._entries.summary(db, log, end)
            return Recall(log.revision, log.incarnation, log.size, tuple(tail), systems, question, summary)

        return await self._file.run("BEGIN", work)

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence; see `ChatMemoryRepository.page`."""
        checked_conversation_id(conversation_id)
        most = checked_number(limit, "limit", least=1)

        def work(db: sqlite3.Connection) -> Page[Entry]:
            log = rows.find(db, conversation_id, self._now())
            place = (rows.END if newest_first else 0) if after is None else _arguments.position(after, log.incarnation)
            if place is None:
                return Page(())
            items, more = _arguments.page_of(self._entries.part(db, log, place, most + 1, newest_first), most)
            return Page(items, _arguments.cursor(log.incarnation, items[-1].sequence) if more else None)

        return await self._file.run("BEGIN", work)

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

        def work(db: sqlite3.Connection) -> int:
            log = rows.find(db, conversation_id, self._now())
            _log_rules.check_incarnation(incarnation, log.incarnation)
            _log_rules.check_writer(expected=expected, revision=log.revision, lease=None, token=None)
            if not items:
                self._entries.forget(log.incarnation or log.ended)
                rows.delete(db, log.key or log.ended_key)
                return 0
            created = _times.now()
            stored = self._entries.part(db, log, 0, log.size)
            self._entries.forget(log.incarnation)
            new = _log_rules.laned(_log_rules.replacement(stored, items, log.next_sequence, created))
            log = rows.clear(db, log) if log.key else self._create(db, conversation_id, log, created)
            return self._write(db, log, new, created, kept)

        return await self._file.run("BEGIN IMMEDIATE", work)

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation with all its rows; False when there was none."""
        checked_conversation_id(conversation_id)

        def work(db: sqlite3.Connection) -> bool:
            log = rows.find(db, conversation_id, self._now())
            self._entries.forget(log.incarnation or log.ended)
            rows.delete(db, log.ended_key)
            return rows.delete(db, log.key)

        return await self._file.run("BEGIN IMMEDIATE", work)

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; see `ChatMemoryRepository.rename`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)

        def work(db: sqlite3.Connection) -> bool:
            log = rows.find(db, conversation_id, self._now())
            if not log.key:
                return False
            target = rows.find(db, new_id, self._now())
            _log_rules.check_target(bool(target.key))
            rows.delete(db, target.ended_key)
            db.execute("UPDATE conversations SET id = ? WHERE key = ?", (new_id, log.key))
            return True

        return await self._file.run("BEGIN IMMEDIATE", work)

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries, copied in the file; see `ChatMemoryRepository.fork`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)
        place = checked_place(at, "at")
        end = rows.END if place is None else place + 1

        def work(db: sqlite3.Connection) -> bool:
            log = rows.find(db, conversation_id, self._now())
            lasts = rows.last_sequences(db, log, end)
            if not any(lasts):
                return False
            target = rows.find(db, new_id, self._now())
            _log_rules.check_target(bool(target.key))
            systems, created = self._entries.systems(db, log, end), _times.now()
            copy = rows.copy(db, log, self._create(db, new_id, target, created), lasts, systems)
            rows.save(db, copy._replace(ttl=log.ttl, ends=_log_rules.end_of(log.ttl, self._now())), created)
            return True

        return await self._file.run("BEGIN IMMEDIATE", work)

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations that ended, or were not written to, in one transaction; see `ChatMemoryRepository.prune`."""
        moment = checked_time(before, "before")
        low = checked_prefix(prefix, "prefix")
        most = checked_number(limit, "limit", least=1)

        def work(db: sqlite3.Connection) -> int:
            rows.remove_dead_leases(db, self._now())
            gone = rows.prune(db, low, self._now(), moment, most)
            for incarnation in gone:
                self._entries.forget(incarnation)
            return len(gone)

        return await self._file.run("BEGIN IMMEDIATE", work)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; see `ChatMemoryRepository.conversations`."""
        low = checked_prefix(prefix, "prefix")
        last = "" if after is None else checked_prefix(after, "after")
        most = checked_number(limit, "limit", least=1)
        found = await self._file.run("BEGIN", lambda db: rows.listed(db, low, last, self._now(), most + 1))
        items, more = _arguments.page_of(found, most)
        return Page(items, items[-1].conversation_id if more else None)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`."""
        checked_conversation_id(conversation_id)
        checked_text(owner, "owner")
        length = checked_lease(seconds)

        def work(db: sqlite3.Connection) -> int | None:
            now = self._clock()
            row = db.execute(
                "SELECT token, owner FROM leases WHERE conversation_id = ? AND expires > ?", (conversation_id, now)
            ).fetchone()
            if row is None:
                db.execute("DELETE FROM leases WHERE conversation_id = ?", (conversation_id,))
                new = (conversation_id, owner, now + length)
                return db.execute("INSERT INTO leases (conversation_id, owner, expires) VALUES (?, ?, ?)", new).lastrowid
            if row[1] != owner:
                return None
            db.execute("UPDATE leases SET expires = ? WHERE token = ?", (now + length, row[0]))
            return int(row[0])

        return await self._file.run("BEGIN IMMEDIATE", work)

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        checked_conversation_id(conversation_id)
        statement = "DELETE FROM leases WHERE conversation_id = ? AND token = ?"
        given = (conversation_id, checked_number(token, "token", least=0))
        await self._file.run("BEGIN IMMEDIATE", lambda db: db.execute(statement, given))

    async def aclose(self) -> None:
        """Close the file. The repository cannot be used after that; closing twice is fine."""
        await self._file.aclose()

    def _now(self) -> int:
        return _times.ticks(self._clock())

    def _create(self, db: sqlite3.Connection, conversation_id: str, ended: rows.Found, created: datetime) -> rows.Found:
        return rows.create(db, conversation_id, created, self._now(), ended.ended_key)

    def _write(
        self,
        db: sqlite3.Connection,
        log: rows.Found,
        new: tuple[Sequence[_log_rules.Laned], Sequence[Entry]],
        created: datetime,
        retention: Retention | None,
    ) -> int:
        """Add a batch, remove what is too much, begin the time to live anew; returns the revision."""
        log = rows.add(db, log, *new)
        log = rows.trim(db, log, _log_rules.excess_of(log.spoken, retention))
        ttl = _log_rules.kept_ttl(retention, log.ttl)
        return rows.save(db, log._replace(ttl=ttl, ends=_log_rules.end_of(ttl, self._now())), created)
