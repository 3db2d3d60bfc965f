"""Conversations in a SQL database that any number of machines share, by SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from advisorchain.errors import ConfigurationError, MissingExtraError
from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.repositories import _arguments, _log_rules, _times
from advisorchain.memory.repositories._arguments import (
    LAST,
    MOST,
    checked_items,
    checked_lease,
    checked_number,
    checked_place,
    checked_prefix,
    checked_retention,
    checked_text,
    checked_time,
)
from advisorchain.memory.repository import Conversation, Entry, Page, Recall, Retention, checked_batch
from advisorchain.messages import Message

try:
    from sqlalchemy import URL, Engine
except ImportError as error:
    raise MissingExtraError(
        'conversations in a SQL database need SQLAlchemy and a driver: pip install "advisorchain[postgresql]",'
        " or [mysql], [mssql], [oracle]; [sql] for SQLite alone"
    ) from error

from advisorchain.memory.repositories._sql import reading
from advisorchain.memory.repositories._sql import tables as schema
from advisorchain.memory.repositories._sql.appending import Append
from advisorchain.memory.repositories._sql.engine import checked_limits
from advisorchain.memory.repositories._sql.leases import acquire, release, remove_dead
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.rows import Log, first_of
from advisorchain.memory.repositories._sql.statements import Statements
from advisorchain.memory.repositories._sql.work import Database

__all__ = ["SqlChatMemoryRepository", "ddl"]

_CHUNK: Final = 20  # conversations that are removed in one transaction


class SqlChatMemoryRepository:
    """Keeps conversations in a SQL database, which any number of processes and machines may share.

    May be used from any thread and event loop, on asyncio and trio; each call is one unit of work with its whole
    transaction, in one hop to a worker thread. A call whose task is cancelled still ends as a whole, so at the latest
    after `timeout`.

    Tested here on PostgreSQL 15, MariaDB 10.11 and SQLite. MySQL (8.0 on) was not to be had and shares MariaDB's statements;
    of Microsoft SQL Server and Oracle only the text of tables and statements was checked, no server was run.

    Conversations that ended are not seen any more and stay in the tables until `prune`, or the next write to their id.

    Tables are made on request: by `create_tables`, by `create=True`, or by hand with what `ddl` gives. In SQLite,
    `SqliteChatMemoryRepository` does the same faster.

    Statements are prepared on PostgreSQL where it is spoken to directly, and not behind a pooler (PgBouncer 1.18 in
    transaction mode was tried), since another connection would not know them, or know others by their names;
    `?prepare_threshold=` in the URL decides otherwise. A pooler that refuses start-up options needs `timeout=None`. An
    engine of your own decides on all of this itself.

    Args:
        url_or_engine: a database URL (`postgresql://`, `mysql://`, `mariadb://`, `sqlite:///`, `mssql://`, `oracle://`), by
            default with the driver of the extra of that name; or a synchronous engine, which stays open on `aclose`.
        create: make the tables on first use, or bring older ones to today's form.
        table_prefix: what the tables' names begin with.
        pool_size: most connections at once, and most threads of one event loop; an engine's pool has its own.
        timeout: seconds that a statement, with its wait for locks, may take before StorageError; None: as the server says.
            PostgreSQL stops the statement itself, MariaDB and MySQL its wait for locks, else the connection is dropped.
        connect_timeout: seconds to wait for a connection. Of MariaDB and MySQL: for the server to take it; for its greeting
            as long as for a statement.
        clock: tells seconds; leases and conversations run out by it. None: by the database server's own clock, the
            same for all machines.

    Raises:
        ConfigurationError: an argument that cannot work. What is wrong with the database shows on first use.
        MissingExtraError: the driver is not installed.
    """

    def __init__(
        self,
        url_or_engine: str | URL | Engine,
        *,
        create: bool = False,
        table_prefix: str = schema.PREFIX,
        pool_size: int = 5,
        timeout: float | None = 30.0,
        connect_timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        limits = checked_limits(pool_size, timeout, connect_timeout)
        self._database = Database(url_or_engine, limits, _checked_prefix(table_prefix), clock, create=create)
        self._known = reading.EntryReader(self._database.name)

    @property
    def remote(self) -> bool:
        """Whether the database is asked over a network, as the spans of a memory say."""
        return not self._database.name.startswith("sqlite")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.name!r})"

    async def create_tables(self) -> None:
        """Make the tables, or bring older ones to today's form with what is in them; nothing where they are as they should.

        Any number of processes may do so at once.

        Raises:
            StorageError: the database cannot be reached, refuses, or has the tables of a newer version.
        """
        await self._database.create_tables()

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
        if not batch:
            return (await self.recall(conversation_id, 0)).revision
        given = Append(conversation_id, batch, turn_id, expected, incarnation, token, kept)

        def work(link: Link, statements: Statements) -> int:
            return given.run(link, statements, self._known, self._database.engine)

        return await self._database.run(work, harmless=True)

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read what a policy needs; see `ChatMemoryRepository.recall`. Costs what the tail costs."""
        checked_conversation_id(conversation_id)
        most = MOST if last is None else checked_number(last, "last", least=0)
        end = LAST if before is None else checked_number(before, "before", least=0, most=LAST)

        def work(link: Link, statements: Statements) -> Recall:
            return reading.recall(link, statements, self._known, conversation_id, most, end)

        return await self._database.run(work, harmless=True)

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence; see `ChatMemoryRepository.page`."""
        checked_conversation_id(conversation_id)
        most = checked_number(limit, "limit", least=1)
        life = None if after is None else reading.life_of(after)
        place = (LAST if newest_first else 0) if after is None or life is None else _arguments.position(after, life)

        def work(link: Link, statements: Statements) -> Page[Entry]:
            wanted = self._known, conversation_id, place or 0, most + 1, newest_first
            incarnation, found = reading.page(link, statements, *wanted)
            if life not in (None, incarnation):
                return Page(())
            items, more = _arguments.page_of(found, most)
            return Page(items, _arguments.cursor(incarnation, items[-1].sequence) if more else None)

        return await self._database.run(work, harmless=True)

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

        def work(link: Link, statements: Statements) -> int:
            log = self._begun(link, statements, conversation_id)
            is_there = log.found.is_there
            _log_rules.check_incarnation(incarnation, log.found.incarnation if is_there else 0)
            _log_rules.check_writer(
                expected=expected, revision=log.found.revision if is_there else 0, lease=None, token=None
            )
            if not items:
                log.remove()
                return 0
            moment, stored = _times.now(), list[Entry]()
            if is_there:
                _, stored = reading.page(link, statements, self._known, conversation_id, 0, MOST, False)
                log.clear()
            else:
                log.create(moment)
            rows, systems = _log_rules.laned(_log_rules.replacement(stored, items, log.found.next_sequence, moment))
            log.put_turns(row.entry.turn_id for row in rows)
            return log.add(rows, first_of(systems), moment, kept)

        return await self._database.run(work, harmless=False)

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation with all its rows; False when there was none."""
        checked_conversation_id(conversation_id)

        def work(link: Link, statements: Statements) -> bool:
            log = self._begun(link, statements, conversation_id)
            was_there = log.found.is_there
            log.remove()
            return was_there

        return await self._database.run(work, harmless=False)

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; see `ChatMemoryRepository.rename`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)

        def work(link: Link, statements: Statements) -> bool:
            log = self._begun(link, statements, conversation_id)
            if not log.found.is_there:
                return False
            target = Log(link, statements, self._known, new_id)
            _log_rules.check_target(target.find().is_there)
            target.remove()
            log.rename(new_id)
            return True

        return await self._database.run(work, harmless=False)

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries; see `ChatMemoryRepository.fork`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)
        place = checked_place(at, "at")

        def work(link: Link, statements: Statements) -> bool:
            log = self._begun(link, statements, conversation_id)
            target = Log(link, statements, self._known, new_id)
            return log.found.is_there and log.copy_to(target, LAST if place is None else place, _times.now())

        return await self._database.run(work, harmless=False)

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations that ended, or were not written to; see `ChatMemoryRepository.prune`.

        Looks through all of the prefix; removes 20 in a transaction.
        """
        moment = checked_time(before, "before")
        start = checked_prefix(prefix, "prefix")
        most = checked_number(limit, "limit", least=1)
        since = -LAST if moment is None else moment

        def candidates(link: Link, statements: Statements) -> list[int]:
            return reading.old(link, statements, start, since, most)

        def leases(link: Link, statements: Statements) -> None:
            remove_dead(link, statements, most)

        await self._database.run(leases, harmless=True)
        while True:  # until none is left, or one was removed that nobody had written to in between
            found = await self._database.run(candidates, harmless=True)
            removed = 0
            for place in range(0, len(found), _CHUNK):
                removed += await self._remove_old(found[place : place + _CHUNK], since)
            if removed or not found:
                return removed

    async def _remove_old(self, incarnations: list[int], before: int) -> int:
        def work(link: Link, statements: Statements) -> int:
            link.begin()
            log = Log(link, statements, self._known, "")
            return sum(log.remove_old(incarnation, before) for incarnation in incarnations)

        return await self._database.run(work, harmless=False)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; see `ChatMemoryRepository.conversations`."""
        start = checked_prefix(prefix, "prefix")
        last = None if after is None else checked_prefix(after, "after")
        most = checked_number(limit, "limit", least=1)

        def work(link: Link, statements: Statements) -> Page[Conversation]:
            return reading.listed(link, statements, start, last, most)

        return await self._database.run(work, harmless=True)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`."""
        checked_conversation_id(conversation_id)
        checked_text(owner, "owner")
        length = checked_lease(seconds)

        def work(link: Link, statements: Statements) -> int | None:
            return acquire(link, statements, conversation_id, owner, length)

        return await self._database.run(work, harmless=True)

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        checked_conversation_id(conversation_id)
        held = checked_number(token, "token", least=0)

        def work(link: Link, statements: Statements) -> None:
            release(link, statements, conversation_id, held)

        await self._database.run(work, harmless=True)

    async def aclose(self) -> None:
        """Close the connections, after the calls that are under way. An engine that was given stays open."""
        await self._database.aclose()

    def _begun(self, link: Link, statements: Statements, conversation_id: str) -> Log:
        """A transaction that holds the lock on the conversation's row, if there is one."""
        log = Log(link, statements, self._known, conversation_id)
        link.begin()
        if not log.lock().incarnation and statements.locks_gaps:
            link.undo()
            link.begin()
        return log


def ddl(dialect: str, *, since: int | None = None, table_prefix: str = schema.PREFIX) -> str:
    """The script that makes the tables, for whoever does this by hand; what `create_tables` would run.

    Args:
        dialect: "postgresql", "mysql", "mariadb", "sqlite", "mssql" or "oracle".
        since: the version of tables that are there (in the table `…schema`): the steps from these to today's.
        table_prefix: what the tables' names begin with.

    Raises:
        ConfigurationError: a dialect, version or prefix that cannot be.
    """
    schema.dialect_of(dialect)
    prefix = _checked_prefix(table_prefix)
    if since is None:
        statements = schema.creation(dialect, prefix)
    elif isinstance(since, int) and 1 <= since <= schema.VERSION:
        changes = [change for _, each in schema.steps(dialect, since, prefix) for change in each]
        statements = [change if isinstance(change, str) else change.text() for change in changes]
    else:
        raise ConfigurationError(f"`since` is {since!r}; give a version from 1 to {schema.VERSION}, or None")
    return "".join(f"{statement};\n" for statement in statements)


def _checked_prefix(prefix: object) -> str:
    if isinstance(prefix, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,30}", prefix):
        return prefix
    raise ConfigurationError(
        f"`table_prefix` is {prefix!r}; give 1 to 31 of the characters a-z, 0-9 and _, beginning with a letter"
    )
