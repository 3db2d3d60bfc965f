"""Where a cache keeps answers: this process's memory, or a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from math import inf
from threading import Lock
from time import time
from types import TracebackType
from typing import Final, Protocol, Self

from advisorchain._checked import checked_whole
from advisorchain.memory.repositories._sqlite.file import Form, SqliteFile

__all__ = ["CacheStore", "InMemoryCache", "SqliteCache"]


class CacheStore(Protocol):
    """Texts by key, from any thread and event loop. One that was put may be gone at any time."""

    async def get(self, key: str) -> str | None:
        """What was put there last, unless its time is over."""
        ...

    async def put(self, key: str, value: str, seconds: float | None) -> None:
        """Keep `value` for that many seconds; None: for as long as there is room."""
        ...


class InMemoryCache:
    """Keeps answers in this process; when there are too many, what was not used for longest goes.

    Args:
        max_entries: how many at most. A thousand answers of some pages take a few megabytes.

    Raises:
        ConfigurationError: `max_entries` is no whole number above 0.
    """

    def __init__(self, *, max_entries: int = 1000) -> None:
        self._max = checked_whole("max_entries", max_entries)
        self._entries: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._lock = Lock()  # it may serve several event loops

    async def get(self, key: str) -> str | None:
        """See `CacheStore.get`."""
        with self._lock:
            value, until = self._entries.get(key, (None, 0.0))
            if until <= time():
                self._entries.pop(key, None)
                return None
            self._entries.move_to_end(key)
            return value

    async def put(self, key: str, value: str, seconds: float | None) -> None:
        """See `CacheStore.put`."""
        with self._lock:
            self._entries[key] = value, inf if seconds is None else time() + seconds
            self._entries.move_to_end(key)
            while len(self._entries) > self._max:
                self._entries.popitem(last=False)


# `place` grows: what was put longest ago has the lowest
_ANSWERS: Final = """
CREATE TABLE answers (place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value TEXT NOT NULL, until REAL NOT NULL);
CREATE INDEX by_end ON answers (until)
"""
_FORM: Final = Form("the cache", "the cache", 0x61646361, 1, _ANSWERS)  # "adca"
_FOR_EVER: Final = 9e99


class SqliteCache:
    """Keeps answers in a SQLite file, opened on first use, that several processes may share and that outlives them.

    The file has what was answered, as plain text. When there are too many answers, what was put longest ago goes.

    Args:
        path: a file in a folder that is there, of its own: not that of chat memory.
        max_entries: how many at most.
        timeout: seconds to wait for another process's lock before StorageError.

    Raises:
        ConfigurationError: an argument that cannot work. What is wrong with the file shows on first use.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_entries: int = 100_000, timeout: float = 5.0) -> None:
        self._max = checked_whole("max_entries", max_entries)
        self._file = SqliteFile(path, "NORMAL", timeout, _FORM)

    async def get(self, key: str) -> str | None:
        """See `CacheStore.get`."""
        query = "SELECT value FROM answers WHERE key = ? AND until > ?"
        row = await self._file.run("BEGIN", lambda db: db.execute(query, (key, time())).fetchone())
        return None if row is None else str(row[0])

    async def put(self, key: str, value: str, seconds: float | None) -> None:
        """See `CacheStore.put`."""
        now = time()
        until = _FOR_EVER if seconds is None else now + seconds

        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO answers (key, value, until) VALUES (?, ?, ?)", (key, value, until))
            db.execute("DELETE FROM answers WHERE until <= ?", (now,))
            db.execute("DELETE FROM answers WHERE place <= (SELECT max(place) FROM answers) - ?", (self._max,))

        await self._file.run("BEGIN IMMEDIATE", work)

    async def aclose(self) -> None:
        """Close the file."""
        await self._file.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
