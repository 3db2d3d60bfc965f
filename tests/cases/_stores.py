"""Every repository that can be had here: STORES need nothing, SERVERS a server or a driver and are for the slow tests.

A further store is one more entry of either.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from advisorchain.memory import ChatMemoryRepository, InMemoryChatMemoryRepository, SqliteChatMemoryRepository


class Clock:
    """The stores' clock; `wait` moves it, nobody waits."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Store:
    """A repository under test.

    Attributes:
        rows: how many rows of a conversation the store holds, by the test's own means.
        clean: takes away what lies outside the test's folder.
    """

    repository: ChatMemoryRepository
    clock: Clock
    rows: Callable[[str], Awaitable[int]]
    clean: Callable[[], object] = lambda: None

    async def aclose(self) -> None:
        await self.repository.aclose()
        self.clean()


def in_memory(folder: Path) -> Store:
    clock = Clock()
    repository = InMemoryChatMemoryRepository(clock=clock)

    async def rows(conversation_id: str) -> int:
        log = repository._logs.get(conversation_id)
        return 0 if log is None else len(log.entries)

    return Store(repository, clock, rows)


def sqlite_in_memory(folder: Path) -> Store:
    clock = Clock()
    repository = SqliteChatMemoryRepository(":memory:", clock=clock)

    async def rows(conversation_id: str) -> int:
        return await repository._file.run("BEGIN", lambda db: _rows(db, conversation_id))

    return Store(repository, clock, rows)


def sqlite_file(folder: Path) -> Store:
    clock, path = Clock(), folder / "conversations.db"
    repository = SqliteChatMemoryRepository(path, clock=clock)

    async def rows(conversation_id: str) -> int:
        with closing(sqlite3.connect(path)) as db:
            return _rows(db, conversation_id)

    return Store(repository, clock, rows)


def _rows(db: sqlite3.Connection, conversation_id: str) -> int:
    """Its entries, and what lies in any table without belonging to a conversation."""
    queries: list[tuple[str, tuple[Any, ...]]] = [
        ("SELECT count(*) FROM entries, conversations WHERE conversation = key AND id = ?", (conversation_id,)),
        ("SELECT count(*) FROM entries WHERE conversation NOT IN (SELECT key FROM conversations)", ()),
        ("SELECT count(*) FROM turns WHERE conversation NOT IN (SELECT key FROM conversations)", ()),
    ]
    return sum(db.execute(query, given).fetchone()[0] for query, given in queries)


STORES: dict[str, Callable[[Path], Store]] = {
    "memory": in_memory,
    "sqlite": sqlite_file,
    "sqlite-memory": sqlite_in_memory,
}


def _on_server(maker: str, *kind: str) -> Callable[[Path], Store]:
    def opened(folder: Path) -> Store:
        made: Store = getattr(import_module("._server_stores", __package__), maker)(*kind, folder)
        return made

    return opened


SERVERS: dict[str, Callable[[Path], Store]] = {
    "sql-sqlite": _on_server("sql", "sqlite-file"),
    "postgresql": _on_server("sql", "postgresql"),
    "mariadb": _on_server("sql", "mariadb"),
    "redis": _on_server("redis", "redis"),
    "valkey": _on_server("redis", "valkey"),
    "mongodb": _on_server("mongodb"),
}


# Each server with one of the event loops: the laws and the stores' own tests run on both, and so does what is here on the
# stores that need nothing.
_LOOPS = {"sql-sqlite": "asyncio", "postgresql": "trio", "mariadb": "asyncio", "redis": "asyncio", "valkey": "trio",
          "mongodb": "trio"}  # fmt: skip


def _slow(*servers: str) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.only_on(_LOOPS[name])]) for name in servers]


EVERYWHERE = [*STORES, *_slow(*SERVERS)]
EACH_KIND = ["memory", "sqlite", *_slow("postgresql", "mariadb", "redis", "mongodb")]  # for what stands over a store
TWO_KINDS = ["memory", "sqlite", *_slow("postgresql", "redis")]  # for what hardly asks a store


def opened(store: str, folder: Path) -> Store:
    """A store by its name, empty."""
    return (STORES | SERVERS)[store](folder)
