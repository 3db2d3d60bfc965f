"""The stores of `tests.faults`, and broken ones by which it shows that it finds what it looks for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from advisorchain.memory.repository import ChatMemoryRepository, all_entries
from advisorchain.messages import Message

from . import _rows
from ._rows import Rows
from ._servers import MariadbServer, PostgresServer, PrivateServer, RedisServer, ValkeyServer


@dataclass(frozen=True)
class Store:
    """A repository class, how to look beneath it, and the server that it needs; None: it needs none."""

    name: str
    module: str
    kind: str
    rows: Callable[[str], Rows]
    server: type[PrivateServer] | None = None
    drivers: tuple[str, ...] = ()

    def open(self, url: str) -> ChatMemoryRepository:
        """A repository of its own. Tables are made again where a server has lost even these."""
        options = {"create": True} if self.module == "sql" else {}
        made: ChatMemoryRepository = getattr(self.load(), self.kind)(url, **options)
        return made

    def load(self) -> Any:
        """The module, which needs an extra; loaded with all that a writer needs before writers are forked."""
        for name in ("anyio._backends._asyncio", "anyio._backends._trio", *self.drivers):
            importlib.import_module(name)
        return importlib.import_module(f"advisorchain.memory.repositories.{self.module}")


_SQL = ("sql", "SqlChatMemoryRepository", _rows.of_sql)
_REDIS = ("redis", "RedisChatMemoryRepository", _rows.of_redis)
STORES = {
    store.name: store
    for store in (
        Store("sqlite", "sqlite", "SqliteChatMemoryRepository", _rows.of_sqlite),
        Store("sql-sqlite", *_SQL),
        Store("postgresql", *_SQL, PostgresServer, ("psycopg", "sqlalchemy.dialects.postgresql.psycopg")),
        Store("mariadb", *_SQL, MariadbServer, ("pymysql", "sqlalchemy.dialects.mysql.pymysql")),
        Store("redis", *_REDIS, RedisServer),
        Store("valkey", *_REDIS, ValkeyServer),
    )
}


class _Broken:
    """Hands everything on to a sound repository but `append`."""

    def __init__(self, inner: ChatMemoryRepository) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Piecemeal(_Broken):
    """Appends message by message, each in a transaction of its own, and knows a turn again by its first."""

    async def append(self, conversation_id: str, messages: Iterable[Message], *, turn_id: str, **options: Any) -> int:
        async for entry in all_entries(self._inner, conversation_id):
            if entry.turn_id == turn_id:
                return (await self._inner.recall(conversation_id, 0)).revision
        revision = 0
        for part, message in enumerate(messages):
            own = f"{turn_id}#{part}" if part else turn_id
            revision = await self._inner.append(conversation_id, [message], turn_id=own)
        return revision


class _Early(_Broken):
    """Acknowledges at once and writes when there is something to write together."""

    def __init__(self, inner: ChatMemoryRepository) -> None:
        super().__init__(inner)
        self._waiting: list[tuple[str, Iterable[Message], str]] = []

    async def append(self, conversation_id: str, messages: Iterable[Message], *, turn_id: str, **options: Any) -> int:
        self._waiting.append((conversation_id, messages, turn_id))
        if len(self._waiting) == 8:
            await self._write()
        return 1

    async def aclose(self) -> None:
        await self._write()
        await self._inner.aclose()

    async def _write(self) -> None:
        while self._waiting:
            conversation_id, messages, turn_id = self._waiting[0]
            await self._inner.append(conversation_id, messages, turn_id=turn_id)
            del self._waiting[0]


class _Swapping(_Early):
    """As `_Early`, and the newest is written first."""

    async def _write(self) -> None:
        self._waiting.reverse()
        await super()._write()


class _Forgetful(_Broken):
    """Does not know a turn again."""

    async def append(self, conversation_id: str, messages: Iterable[Message], *, turn_id: str, **options: Any) -> int:
        return await self._inner.append(conversation_id, messages, turn_id=uuid4().hex, **options)


class _Rewriting(_Broken):
    """Reads the conversation, adds the turn and writes all of it, as one session a conversation would."""

    async def append(self, conversation_id: str, messages: Iterable[Message], *, turn_id: str, **options: Any) -> int:
        stored = [entry async for entry in all_entries(self._inner, conversation_id)]
        if any(entry.turn_id == turn_id for entry in stored):
            return (await self._inner.recall(conversation_id, 0)).revision
        return await self._inner.replace(conversation_id, [*stored, *messages])


BROKEN: dict[str, Callable[[ChatMemoryRepository], Any]] = {
    "piecemeal": _Piecemeal,
    "early": _Early,
    "swapping": _Swapping,
    "forgetful": _Forgetful,
    "rewriting": _Rewriting,
}
VOLATILE = "volatile"  # the server's, not the repository's
