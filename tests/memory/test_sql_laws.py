"""The laws of a repository hold on SQLite, PostgreSQL and MariaDB, by each way and each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from sqlalchemy import Engine, create_engine

from advisorchain.memory.repositories._sql.link import CoreLink
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository
from advisorchain.messages import UserMessage
from advisorchain.testing import check_repository
from advisorchain.testing.pytest_plugin import LawTest

from ._kit import Clock
from ._sql_servers import ON_SERVERS, SERVERS, Place

pytest_plugins = ["advisorchain.testing.pytest_plugin"]

ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["trio"])  # the laws were tried on both by then


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture(params=ON_SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.param, tmp_path)
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite-file", *ON_SERVERS], indirect=True)
def test_sql_keeps_the_law(place: Place, repository_law: LawTest) -> None:
    clock = Clock()

    def made(_: Any = None) -> SqlChatMemoryRepository:
        return place.repository(clock=clock)

    cut = {"disconnect": lambda _: to_thread.run_sync(place.cut)} if place.kind in SERVERS else {}
    repository_law(made, wait=clock.wait, reopen=made, **cut)


@pytest.mark.long
@pytest.mark.slow
@ONE_LOOP
@pytest.mark.parametrize("place", ["postgresql"], indirect=True)  # each database's own words for the time: test_sql_schema
async def test_sql_keeps_the_laws_by_the_clock_of_the_server(place: Place) -> None:
    made = Emptied(place)
    await check_repository(made, wait=partial(to_thread.run_sync, place.age), reopen=made.reopen)


@pytest.mark.long
@pytest.mark.slow
@ONE_LOOP
@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
async def test_sql_keeps_the_laws_through_sqlalchemy_alone(server: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it goes with drivers that are not spoken to directly, on SQL Server and Oracle first of all."""
    monkeypatch.setattr("advisorchain.memory.repositories._sql.pool.is_direct", lambda kind, driver: False)
    monkeypatch.setattr("advisorchain.memory.repositories._sql.engine.is_direct", lambda kind, driver: False)
    monkeypatch.setattr("advisorchain.memory.repositories._sql.statements.WHOLE_TURNS", ())
    clock = Clock()
    made = Emptied(server, clock=clock)
    async with made() as repository:
        await repository.append("c", [UserMessage("u")], turn_id="t")
        with repository._database._links.reserved():
            link = repository._database._links.new()
            assert type(link) is CoreLink
            link.close()
    cut = partial(to_thread.run_sync, server.cut)
    await check_repository(made, wait=clock.wait, reopen=made.reopen, disconnect=lambda _: cut())


@pytest.mark.long
@pytest.mark.slow
@ONE_LOOP
async def test_sql_keeps_the_laws_on_an_engine_of_the_application(server: Place) -> None:
    clock = Clock()
    level = "SERIALIZABLE" if server.kind == "postgresql" else "AUTOCOMMIT"
    engine = create_engine(server.url, isolation_level=level, pool_size=4, max_overflow=2)
    made = Emptied(server, engine, clock=clock)
    cut = partial(to_thread.run_sync, server.cut)
    try:
        await check_repository(made, wait=clock.wait, reopen=made.reopen, disconnect=lambda _: cut())
    finally:
        engine.dispose()


class Emptied:
    """Gives repositories on the tables of one place, which are emptied before each."""

    def __init__(self, place: Place, engine: Engine | None = None, **options: Any) -> None:
        self._place, self._engine, self._options = place, engine, options

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[SqlChatMemoryRepository]:
        async with aclosing(self.reopen(None)) as repository:
            await repository.create_tables()
            if self._place.kind != "sqlite-memory":  # which is new each time
                for name in ("conversations", "entries", "turns", "leases"):
                    self._place.run(f"DELETE FROM {{}}{name}")
            yield repository

    def reopen(self, _: object) -> SqlChatMemoryRepository:
        if self._engine is None:
            return self._place.repository(**self._options)
        return self._place.on(self._engine, **self._options)
