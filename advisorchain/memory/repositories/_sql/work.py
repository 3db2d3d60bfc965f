"""Units of work on a SQL database: each in one hop to a worker thread, with its whole transaction."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import current_token
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from advisorchain.errors import StorageError
from advisorchain.memory.repositories._file_place import gone_error
from advisorchain.memory.repositories._sql import errors
from advisorchain.memory.repositories._sql.engine import Limits, checked_engine, made_engine
from advisorchain.memory.repositories._sql.errors import Trouble
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.pool import Links
from advisorchain.memory.repositories._sql.schema import check_version, kind_of_database, make_tables, version_of
from advisorchain.memory.repositories._sql.statements import Statements
from advisorchain.memory.repositories._sql.tables import tables
from advisorchain.memory.repositories._times import ticks

_T = TypeVar("_T")

_RACES: Final = 20  # how often others may be faster at making the same thing
_LONG: Final = 30.0  # seconds to try again, where `timeout` does not say it


class Undo(Exception):  # noqa: N818 — it is no error
    """Ends a unit of work with its result, and with nothing changed."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Database:
    """Runs units of work on an engine, from any thread and event loop.

    A unit of work that began also ends when its task is cancelled: as a whole, since its transaction is in it.
    """

    def __init__(
        self, url: str | URL | Engine, limits: Limits, prefix: str, clock: Callable[[], float] | None, *, create: bool
    ) -> None:
        self._is_ours = not isinstance(url, Engine)
        self.engine, size = checked_engine(url) if isinstance(url, Engine) else made_engine(url, limits)
        self.name = _shown(self.engine.url)
        self._limits = limits
        self._prefix = prefix
        self._clock = clock
        self._create = create
        self._links = Links(self.engine, size, self.name, is_ours=self._is_ours, timeout=limits.timeout)
        self._size = size
        self._limiters: WeakKeyDictionary[Any, CapacityLimiter] = WeakKeyDictionary()
        self._limiters_lock = Lock()  # taken in event loops, so never for long
        self._lock = Lock()  # for a look at the tables
        self._is_ready = False
        self.statements: Statements
        self._process = os.getpid()
        self._closed = False

    async def run(self, work: Callable[[Link, Statements], _T], *, harmless: bool) -> _T:
        """What `work` returns, called in a thread with a connection; it may be called again.

        Args:
            work: one unit of work; it leaves nothing behind but what it returns.
            harmless: doing it twice is as good as doing it once.

        Raises:
            StorageError: the database cannot be reached, read or written; nothing of the work was stored, or it says so.
        """
        return await to_thread.run_sync(self._perform, work, harmless, limiter=self._limiter())

    async def create_tables(self) -> None:
        """Make the tables, or bring older ones to today's form."""
        await to_thread.run_sync(self._make_sure, True, limiter=self._limiter())

    async def aclose(self) -> None:
        """Close the connections, after the work that is under way; those of an engine not ours stay its own."""
        if not self._closed:
            self._closed = True
            with CancelScope(shield=True):
                await to_thread.run_sync(self._end)

    def _end(self) -> None:
        if self._process == os.getpid():
            self._links.close()
            if self._is_ours:
                self.engine.dispose()

    def _limiter(self) -> CapacityLimiter:
        """As many threads as the pool has connections: who waits for one waits in the event loop."""
        loop = current_token().native_token
        found = self._limiters.get(loop)
        if found is None:
            with self._limiters_lock:
                found = self._limiters.setdefault(loop, CapacityLimiter(self._size))
        return found

    def _perform(self, work: Callable[[Link, Statements], _T], harmless: bool) -> _T:
        if not self._is_ready:
            self._make_sure()
        return self._tried(work, harmless)

    # --- tables

    def _make_sure(self, create: bool = False) -> None:
        """Look at the tables once, and make them where that was asked for."""
        with self._lock:
            if self._is_ready and not create:
                return
            self._links.give(self._taken())  # says it better when there is no connection to be had
            with self._links.reserved():
                self._look(create or self._create)
            kind = kind_of_database(self.engine)
            made = tables(kind, self._prefix)
            self.statements = Statements(self.engine.dialect, kind, made, clocked=self._clock is not None)
            if kind in ("mysql", "mariadb"):
                self.statements.most_bytes = self._tried(_most_bytes, harmless=True)
            self._is_ready = True

    def _look(self, create: bool) -> None:
        for left in reversed(range(_RACES)):
            failed = self._looked(create)
            if failed is None:
                return
            if not left:
                raise failed
            time.sleep(random.uniform(0.01, 0.1))  # another process may be making them

    def _looked(self, create: bool) -> StorageError | None:
        """An error of the database, to be raised where nothing of the driver's is in its context."""
        try:
            if create:
                make_tables(self.engine, self.name, self._prefix, self._links.new)
            else:
                check_version(self.name, version_of(self.engine, self._prefix), self._prefix)
        except Exception as error:
            if not errors.is_of_database(self.engine, error):
                raise
            return errors.explained(self.engine, self.name, error)
        return None

    # --- connections

    def _taken(self) -> Link:
        if self._process != os.getpid():  # its connections are the parent's
            raise StorageError(f"the repository on `{self.name}` was made before this process was forked; make one in each")
        link = self._links.take(self._opened)
        if self._is_ours and link.place is not None and link.place.is_gone:
            self._is_ready = False  # the next call looks at what is there then
            link.lose()
            self._links.give(link)
            self._links.drop()
            raise gone_error(link.place.path)
        if self._clock is not None:
            link.now = ticks(self._clock())
        return link

    def _opened(self) -> Link:
        try:
            return self._links.new()
        except Exception as error:
            failed = self._unopened(error)
            if failed is None:
                raise
        raise failed  # where nothing of the driver's is in its context

    def _unopened(self, error: Exception) -> Exception | None:
        if errors.is_of_database(self.engine, error):
            return errors.unreached(self.engine, self.name, error)
        if self._is_ours and isinstance(error, TypeError | ValueError | AttributeError | OSError):
            return errors.not_taken(self.engine, self.name, error)
        return None

    def _tried(self, work: Callable[[Link, Statements], _T], harmless: bool) -> _T:
        result = self._once(work, harmless)
        deadline = time.monotonic() + (self._limits.timeout or _LONG)
        races = lost = tries = 0
        while isinstance(result, _Failure):
            tries += 1
            races += result.trouble is Trouble.RACE
            lost += result.trouble is Trouble.LOST and result.was_fresh  # others lay in the pool when the server went away
            if result.trouble is Trouble.FAILED or races > _RACES or lost > 1 or time.monotonic() >= deadline:
                raise result.error
            if result.trouble is Trouble.AGAIN:
                time.sleep(random.uniform(0, min(0.001 * 2**tries, 0.1)))
            result = self._once(work, harmless)
        return result

    def _once(self, work: Callable[[Link, Statements], _T], harmless: bool) -> _T | _Failure:
        link = self._taken()
        try:
            result = work(link, self.statements)
            link.end()
            return result
        except Undo as undone:
            self._undo(link)
            return undone.result  # type: ignore[no-any-return]
        except Exception as error:
            if not errors.is_of_database(self.engine, error):
                self._undo(link)
                raise
            return self._failed(link, error, harmless)
        except BaseException:
            self._undo(link)
            raise
        finally:
            self._links.give(link)

    def _failed(self, link: Link, error: Exception, harmless: bool) -> _Failure:
        """What can be done about an error; to be raised where nothing of the driver's is in its context."""
        trouble = errors.trouble(self.engine, error, link.driver)
        if trouble is not Trouble.LOST:
            self._undo(link)
            return _Failure(trouble, errors.explained(self.engine, self.name, error), link.is_fresh)
        link.lose()
        if link.is_ending and not harmless:
            return _Failure(Trouble.FAILED, errors.lost(self.name, error), link.is_fresh)
        return _Failure(trouble, errors.explained(self.engine, self.name, error), link.is_fresh)

    def _undo(self, link: Link) -> None:
        try:
            link.undo()
        except Exception as error:
            if not errors.is_of_database(self.engine, error):
                raise
            link.lose()  # a connection in doubt


def _most_bytes(link: Link, statements: Statements) -> int:
    """How long a statement MySQL or MariaDB takes."""
    return int(link.plain("SELECT @@max_allowed_packet"))


class _Failure(NamedTuple):
    trouble: Trouble
    error: StorageError
    was_fresh: bool


def _shown(url: URL) -> str:
    """A URL without what is secret in it, or may be."""
    return url.set(query={}).render_as_string(hide_password=True)
