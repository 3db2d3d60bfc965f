"""The repositories on a server, or on a driver, for the cases: each store in a place of its own."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from anyio import to_thread
from coredis import Redis
from pymongo import MongoClient

from advisorchain.memory.repositories.mongodb import MongoChatMemoryRepository
from advisorchain.memory.repositories.redis import RedisChatMemoryRepository

from ..memory import _mongodb_server, _redis_servers, _sql_servers
from ._stores import Clock, Store


def sql(kind: str, folder: Path) -> Store:
    """On SQLite, PostgreSQL or MariaDB, by SQLAlchemy."""
    clock, place = Clock(), _sql_servers.Place(kind, folder)

    def counted(conversation_id: str) -> int:
        tables = "{}entries, {}conversations WHERE conversation = {}conversations.incarnation"
        own = f"SELECT count(*) FROM {tables} AND {{}}conversations.id = :name"
        strays = [f"SELECT count(*) FROM {{}}{table} WHERE conversation NOT IN (SELECT incarnation FROM {{}}conversations)"
                  for table in ("entries", "turns")]  # fmt: skip
        return int(place.run(own, name=conversation_id)[0][0]) + sum(int(place.run(stray)[0][0]) for stray in strays)

    async def rows(conversation_id: str) -> int:
        return await to_thread.run_sync(counted, conversation_id)

    return Store(place.repository(clock=clock), clock, rows, place.close)


def redis(kind: str, _folder: Path) -> Store:
    """On Redis or Valkey."""
    clock, url = Clock(), _redis_servers.server(kind).url
    repository: RedisChatMemoryRepository = _redis_servers.repository(url, clock=clock)

    async def rows(conversation_id: str) -> int:
        async with Redis.from_url(url) as client:
            return int(await client.zcard(repository._server.keys(conversation_id).log))

    return Store(repository, clock, rows)


@cache
def _mongodb() -> str:
    """One server a test process, which ends with it."""
    import atexit

    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_mongodb_server.mongodb_url())


_places: list[str] = []


def mongodb(_folder: Path) -> Store:
    """On what speaks MongoDB's protocol."""
    clock, url = Clock(), _mongodb()
    _places.append(f"s{len(_places)}_")
    prefix = _places[-1]
    repository = MongoChatMemoryRepository(url, database=_mongodb_server.DATABASE, prefix=prefix, clock=clock)

    def counted(conversation_id: str) -> int:
        client: MongoClient[dict[str, Any]] = MongoClient(url)
        try:
            database = client[_mongodb_server.DATABASE]
            heads = list(database[f"{prefix}conversations"].find({}))
            own = [head for head in heads if head["conversation"] == conversation_id]
            waiting = sum(len(head["pending"]) for head in own)
            logs = [head["log"] for head in own]
            others = [head["log"] for head in heads if head not in own]
            entries = [one for one in database[f"{prefix}entries"].find({}) if one["log"] not in others and one["lane"] < 4]
            # what was flushed from a head stands in both places until its next write
            flushed = {one["sequence"] for one in entries if one["log"] in logs}
            twice = sum(one["sequence"] in flushed for head in own for one in head["pending"])
            return waiting + len(entries) - twice
        finally:
            client.close()

    async def rows(conversation_id: str) -> int:
        return await to_thread.run_sync(counted, conversation_id)

    return Store(repository, clock, rows)
