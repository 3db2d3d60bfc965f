"""A server, and repositories on it that leave nothing behind."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from advisorchain.memory.repositories.mongodb import MongoChatMemoryRepository
from advisorchain.testing.repository_laws import Means

from .._mongodb_server import DATABASE, mongodb_url
from ._kit import prefix_of


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with mongodb_url() as found:
        yield found


@pytest.fixture
def clock() -> list[float]:
    """Seconds; far from the real time, so that nothing by chance goes by that."""
    return [1_000.0]


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[..., Any]]:
    """Makes repositories on collections of their own, which go when the test ends."""
    prefixes: list[str] = []

    def made(prefix: str | None = None, **options: Any) -> MongoChatMemoryRepository:
        if prefix is None:
            prefix = f"t{uuid4().hex[:12]}_"
            prefixes.append(prefix)
        return MongoChatMemoryRepository(url, database=DATABASE, prefix=prefix, **options)

    yield made
    with MongoClient[dict[str, Any]](url) as client:
        database = client[DATABASE]
        for name in database.list_collection_names():
            if name.startswith(tuple(prefixes)):
                database.drop_collection(name)


@pytest.fixture
def means(fresh: Callable[..., Any], clock: list[float]) -> Means:
    async def wait(seconds: float) -> None:
        clock[0] += seconds

    async def disconnect(repository: Any) -> None:
        for server in repository._hop._client._topology._servers.values():
            for connection in [*server.pool.conns, *server.pool.active_contexts]:
                if hasattr(connection, "conn"):
                    connection.conn.get_conn.shutdown(socket.SHUT_RDWR)

    def reopen(repository: Any) -> Any:
        return fresh(prefix_of(repository), clock=lambda: clock[0])

    return Means(lambda: fresh(clock=lambda: clock[0]), wait, reopen, disconnect)
