"""A connection out of the pool for one unit of work: through the driver itself, or through SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from sqlalchemy import Connection, Engine, text
from sqlalchemy.pool import PoolProxiedConnection

from advisorchain.memory.repositories._file_place import FilePlace
from advisorchain.memory.repositories._sql.words import Statement

# The drivers that are spoken to directly, with the statement that begins a transaction that will write. SQLAlchemy's own
# work on a statement costs as much as all that the driver and we do.
_DIRECT: Final = {
    ("postgresql", "psycopg"): "BEGIN",
    ("mysql", "pymysql"): "BEGIN",
    ("mariadb", "pymysql"): "BEGIN",
    ("sqlite", "pysqlite"): "BEGIN IMMEDIATE",
}
_USED: Final = "advisorchain"  # a mark in what the pool keeps beside a connection


class Link(Protocol):
    """What a unit of work has of the database. Outside of `begin`, each statement stands for itself."""

    now: int | None  # what a clock other than the server's tells, in microseconds
    is_fresh: bool  # it was not used before
    is_lost: bool
    is_ending: bool  # what was done is being made durable
    driver: Any  # the driver's own connection
    place: FilePlace | None  # SQLite: the file that was opened

    def begin(self) -> None:
        """Begin a transaction that will write."""

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What a statement finds."""

    def run(self, statement: Statement, parameters: Mapping[str, Any]) -> int:
        """How many rows a statement changed."""

    def many(self, statement: Statement, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of these."""

    def plain(self, statement: str) -> Any:
        """Run a text as it is; the first value that it gives, or None."""

    def end(self) -> None:
        """Make what was done durable."""

    def undo(self) -> None:
        """Undo what was done since `begin`."""

    def lose(self) -> None:
        """Throw the connection away."""

    def rest(self) -> None:
        """Be kept for the next unit of work."""

    def close(self) -> None:
        """Give the connection back to the pool."""


def is_direct(kind: str, driver: str) -> bool:
    """Whether this driver is spoken to directly."""
    return (kind, driver) in _DIRECT


class DirectLink:
    """Speaks to the driver; SQLAlchemy has made the texts, and knows how to connect.

    Args:
        engine: one whose driver is spoken to directly.
        is_ours: nobody else uses its connections, and they are set up as this class has them.
    """

    __slots__ = (
        "_begun",
        "_cursor",
        "_given",
        "_opening",
        "_pooled",
        "driver",
        "is_ending",
        "is_fresh",
        "is_lost",
        "now",
        "place",
    )

    def __init__(self, engine: Engine, *, is_ours: bool) -> None:
        self.now: int | None = None
        self._begun = self.is_ending = self.is_lost = False
        self._opening = _DIRECT[engine.dialect.name, engine.dialect.driver]
        self._pooled: PoolProxiedConnection = engine.raw_connection()
        self.driver = cast(Any, self._pooled.dbapi_connection)
        self.is_fresh = is_ours or _USED not in self._pooled.info
        self._pooled.info[_USED] = True
        self._given = not is_ours and self._autonomous()
        self._cursor = self.driver.cursor()
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        self.place: FilePlace | None = FilePlace.of(file) if file else None

    def _autonomous(self) -> bool:
        """Have each statement stand for itself; whether the connection was set up in another way."""
        if self._opening != "BEGIN":  # SQLite: as it is, while nobody begins a transaction
            return False
        if callable(self.driver.autocommit):  # pymysql: asking for it would be a trip to the server
            return not self.driver.get_autocommit()
        if not self.driver.autocommit:
            self.driver.autocommit = True
            return True
        return False

    def _values(self, statement: Statement, parameters: Mapping[str, Any]) -> Any:
        if self.now is not None:
            parameters = {**parameters, "now": self.now}
        return statement.given(parameters)

    def begin(self) -> None:
        """Begin a transaction that will write."""
        self._cursor.execute(self._opening)
        self._begun = True

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What a statement finds."""
        self._cursor.execute(statement.text, self._values(statement, parameters))
        found: Sequence[Sequence[Any]] = self._cursor.fetchall()
        return found

    def run(self, statement: Statement, parameters: Mapping[str, Any]) -> int:
        """How many rows a statement changed."""
        self._cursor.execute(statement.text, self._values(statement, parameters))
        return int(self._cursor.rowcount)

    def many(self, statement: Statement, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of these."""
        if len(parameters) == 1:
            self.run(statement, parameters[0])
        elif parameters:
            self._cursor.executemany(statement.text, [self._values(statement, each) for each in parameters])

    def plain(self, statement: str) -> Any:
        """Run a text as it is; the first value that it gives, or None."""
        self._cursor.execute(statement)
        row = self._cursor.fetchone() if self._cursor.description else None
        return row[0] if row else None

    def end(self) -> None:
        """Make what was done durable."""
        if self._begun or (self._given and self._opening == "BEGIN"):
            self.is_ending = True
            self.driver.commit()
            self._begun = self.is_ending = False

    def undo(self) -> None:
        """Undo what was done since `begin`."""
        if self._begun or self._given:
            self._begun = False
            self.driver.rollback()

    def lose(self) -> None:
        """Throw the connection away."""
        self._begun, self.is_lost = False, True
        self._pooled.invalidate()

    def rest(self) -> None:
        """Be kept for the next unit of work, without what was read."""
        self._cursor.close()
        self._cursor = self.driver.cursor()
        self.is_fresh = False

    def close(self) -> None:
        """Give the connection back to the pool, as it was."""
        if not self.is_lost:
            self._cursor.close()
            if self._given and not callable(self.driver.autocommit):
                self.driver.autocommit = False
        self._pooled.close()


class CoreLink:
    """Speaks through SQLAlchemy, which knows every driver's ways with types and transactions."""

    def __init__(self, engine: Engine) -> None:
        self.now: int | None = None
        self.is_ending = self.is_lost = False
        self.place: FilePlace | None = None
        self._connection: Connection = engine.connect()
        self.driver: Any = self._connection.connection.dbapi_connection
        self.is_fresh = _USED not in self._connection.info
        self._connection.info[_USED] = True

    def _values(self, statement: Statement, parameters: Mapping[str, Any]) -> dict[str, Any]:
        given = {"now": self.now} | dict(parameters)
        return {name: given[name] for name in statement.known if name in given}

    def begin(self) -> None:
        """Begin a transaction that will write: the first statement does."""

    def rows(self, statement: Statement, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What a statement finds."""
        return [tuple(row) for row in self._connection.execute(statement.element, self._values(statement, parameters))]

    def run(self, statement: Statement, parameters: Mapping[str, Any]) -> int:
        """How many rows a statement changed."""
        return self._connection.execute(statement.element, self._values(statement, parameters)).rowcount

    def many(self, statement: Statement, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of these."""
        if parameters:
            self._connection.execute(statement.element, [self._values(statement, each) for each in parameters])

    def plain(self, statement: str) -> Any:
        """Run a text as it is; the first value that it gives, or None."""
        result = self._connection.execute(text(statement))
        return result.scalar() if result.returns_rows else None

    def end(self) -> None:
        """Make what was done durable."""
        self.is_ending = True
        self._connection.commit()
        self.is_ending = False

    def undo(self) -> None:
        """Undo what was done."""
        self._connection.rollback()

    def lose(self) -> None:
        """Throw the connection away."""
        self.is_lost = True
        self._connection.invalidate()

    def rest(self) -> None:
        """Be kept for the next unit of work."""
        self.is_fresh = False

    def close(self) -> None:
        """Give the connection back to the pool."""
        self._connection.close()
