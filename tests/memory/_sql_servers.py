"""SQL databases for tests: PostgreSQL and MariaDB as found, else started, in a database of our own; and SQLite.

A server is found by ADVISORCHAIN_POSTGRESQL_URL or ADVISORCHAIN_MARIADB_URL, or on the standard local port. Else one is
started from the system's packages, with its data in a temporary folder and on a free port. Where there is none either, the
test is skipped or, with ADVISORCHAIN_REQUIRE_SERVERS=1, fails.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn
from uuid import uuid4

import psycopg
import pymysql
import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from advisorchain.memory.repositories.sql import SqlChatMemoryRepository

SERVERS: Final = ("postgresql", "mariadb")
ON_SERVERS: Final = [pytest.param(kind, marks=pytest.mark.slow) for kind in SERVERS]  # for a parameter
TABLES: Final = ("schema", "conversations", "entries", "turns", "leases")
_STANDARD: Final = {
    "postgresql": "postgresql+psycopg://postgres@127.0.0.1:5432/postgres",
    "mariadb": "mysql+pymysql://root@127.0.0.1:3306/",
}
_numbers = count(1)


@cache
def database(kind: str) -> URL:
    """A new database on the server, the only one of this test process; dropped at its end."""
    place = _found(kind)
    name = f"advisorchain_test_{uuid4().hex[:12]}"
    with admin(place) as server:
        more = " ENCODING 'UTF8' TEMPLATE template0" if kind == "postgresql" else ""
        server.exec_driver_sql(f"CREATE DATABASE {name}{more}")
    atexit.register(_drop, place, name, kind)
    return place.set(database=name)


def _drop(place: URL, name: str, kind: str) -> None:
    with suppress(DBAPIError), admin(place) as server:  # a server of ours may have ended before
        server.exec_driver_sql(f"DROP DATABASE {name}{' WITH (FORCE)' if kind == 'postgresql' else ''}")


@contextmanager
def admin(url: URL) -> Iterator[Any]:
    """A connection beside the repository's, on which each statement stands for itself."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection


def _found(kind: str) -> URL:
    given = os.environ.get(f"ADVISORCHAIN_{kind.upper()}_URL")
    if given is not None:
        return make_url(given)
    standard = make_url(_STANDARD[kind])
    return standard if _answers(standard) else _started(kind)


def _answers(url: URL) -> bool:
    place: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username, "connect_timeout": 5}
    try:
        if url.get_backend_name() == "postgresql":
            psycopg.connect(**place, dbname="postgres").close()
        else:
            pymysql.connect(**place).close()
    except (psycopg.Error, pymysql.Error):
        return False
    return True


def _started(kind: str) -> URL:
    sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks come this way too, without a package
    from tests.faults._servers import MariadbServer, NoServerError, PostgresServer

    folder = tempfile.TemporaryDirectory(prefix=f"advisorchain-{kind}-", ignore_cleanup_errors=True)
    os.chmod(folder.name, 0o755)
    try:
        server = (PostgresServer if kind == "postgresql" else MariadbServer)(Path(folder.name))
    except NoServerError as error:
        missing(str(error))
    server.start()
    atexit.register(folder.cleanup)
    atexit.register(server.close)
    return make_url(server.url).set(drivername=make_url(_STANDARD[kind]).drivername)


def missing(reason: str) -> NoReturn:
    if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


class Place:
    """Where one test keeps its conversations: tables that no other test uses meanwhile, in the test process's database.

    Args:
        kind: of SERVERS, or `sqlite-memory` or `sqlite-file`.
        folder: for a file.
        fresh: there are no tables yet, and none shall be left for another test.
    """

    _left: ClassVar[dict[str, list[str]]] = {kind: [] for kind in SERVERS}  # prefixes of tables that are there, and empty

    def __init__(self, kind: str, folder: Path, *, fresh: bool = False) -> None:
        self.kind = kind
        left = [] if fresh else self._left.get(kind, [])
        self.prefix = left.pop() if left else f"t{next(_numbers)}_"
        self._fresh = fresh
        if kind in SERVERS:
            self.url = database(kind)
        else:
            self.url = make_url("sqlite://" if kind == "sqlite-memory" else f"sqlite:///{folder}/{self.prefix}.db")

    def repository(self, **options: Any) -> SqlChatMemoryRepository:
        """A repository on these tables, which it makes."""
        return SqlChatMemoryRepository(self.url, **{"create": True, "table_prefix": self.prefix, **options})

    def on(self, engine: Engine, **options: Any) -> SqlChatMemoryRepository:
        """A repository on these tables by an engine of the test."""
        return SqlChatMemoryRepository(engine, **{"create": True, "table_prefix": self.prefix, **options})

    def run(self, statement: str, **values: Any) -> list[Any]:
        """What a statement gives on a connection beside the repository's; `{}` in it stands for the tables' prefix."""
        with admin(self.url) as connection:
            result = connection.execute(text(statement.replace("{}", self.prefix)), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def rows(self) -> dict[str, int]:
        """How many rows each table has."""
        return {name: self.run(f"SELECT count(*) FROM {{}}{name}")[0][0] for name in TABLES}

    def close(self) -> None:
        """Empty the tables, for making them takes longer than most tests; or drop them."""
        if self.kind not in SERVERS:
            return
        with admin(self.url) as connection:
            names = [name for name in inspect(connection).get_table_names() if name.startswith(self.prefix)]
            ours = {f"{self.prefix}{name}" for name in TABLES}
            if self._fresh or set(names) != ours:
                for name in names:
                    connection.exec_driver_sql(f"DROP TABLE {name}")
                return
            for name in ours - {f"{self.prefix}schema"}:
                connection.exec_driver_sql(f"DELETE FROM {name}")
        self._left[self.kind].append(self.prefix)

    def age(self, seconds: float) -> None:
        """Have conversations and leases end so much earlier, as if time had gone by on the server."""
        for table, column in (("conversations", "ends"), ("leases", "expires")):
            self.run(f"UPDATE {{}}{table} SET {column} = {column} - {round(seconds * 1_000_000)}")

    def cut(self) -> int:
        """End all connections of the test process to its database but the one that asks; how many."""
        if self.kind == "postgresql":
            others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            return len(self.run(f"SELECT pg_terminate_backend(pid) {others}"))
        asked = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
        with admin(self.url) as connection:
            ids = [row[0] for row in connection.exec_driver_sql(asked)]
            for each in ids:
                with suppress(DBAPIError):  # it has ended by itself
                    connection.exec_driver_sql(f"KILL {each}")
        return len(ids)
