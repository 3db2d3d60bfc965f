"""A statement in SQLAlchemy's words and in the driver's, and what the SQL store's statements are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, overload

from sqlalchemy import BigInteger, ColumnElement, Executable, bindparam, literal_column, or_
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import ClauseElement

from advisorchain.memory.repositories._sql.tables import Tables

# Microseconds since 1970 by the server's clock, whatever the session's time zone is.
_SINCE: Final = "(SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00')"
_NOW: Final = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "mariadb": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "mssql": "DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME())",
    "oracle": f"ROUND(((EXTRACT(DAY FROM {_SINCE}) * 24 + EXTRACT(HOUR FROM {_SINCE})) * 60"
    f" + EXTRACT(MINUTE FROM {_SINCE})) * 60000000 + EXTRACT(SECOND FROM {_SINCE}) * 1000000)",
}
COLUMNS: Final = ("lane", "sequence", "turn_id", "created", "covers", "message")  # of an entry, where it is read


class Statement:
    """A statement in SQLAlchemy's words, and the text and the order of its values for the driver."""

    __slots__ = ("_fixed", "element", "known", "names", "text")

    def __init__(self, element: Executable, dialect: Dialect) -> None:
        assert isinstance(element, ClauseElement)
        self.element = element
        compiled = element.compile(dialect=dialect)
        self.text = str(compiled)
        places = getattr(compiled, "positiontup", None)
        self.names: tuple[str, ...] | None = tuple(places) if places is not None else None
        self.known = tuple(compiled.params)
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def given(self, parameters: Mapping[str, Any]) -> Any:
        """The values in the form that the driver takes."""
        if self._fixed:  # SQLite: an offset of 0 behind every limit
            parameters = self._fixed | dict(parameters)
        return parameters if self.names is None else [parameters[name] for name in self.names]


class Compiled:
    """A method that makes a statement, as an attribute that is compiled on first use."""

    def __init__(self, make: Callable[[Any], Executable]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Compiled: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Statement: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        made = instance.__dict__[self._name] = Statement(self._make(instance), instance.dialect)
        return made


def number(name: str) -> ColumnElement[int]:
    """A value that is given with the statement."""
    return bindparam(name, type_=BigInteger)


def fixed(value: int) -> ColumnElement[int]:
    """A value that stands in the text: what is given with a statement is then only what we give."""
    return literal_column(str(value), BigInteger)


ALWAYS: Final[ColumnElement[bool]] = fixed(1) == fixed(1)


class Words:
    """The tables of one kind of database, and what is said of them again and again.

    With `clocked`, the time is a value `now` of each statement instead of the server's own.
    """

    def __init__(self, dialect: Dialect, kind: str, tables: Tables, *, clocked: bool) -> None:
        self.dialect = dialect
        self._tables = tables
        self._logs = tables.conversations
        self._log = tables.conversations.c
        self._entry = tables.entries.c
        self._now = number("now") if clocked else literal_column(_NOW[kind], BigInteger)
        self._made: dict[tuple[Any, ...], Statement] = {}

    def _once(self, key: tuple[Any, ...], make: Callable[[], Executable]) -> Statement:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Statement(make(), self.dialect)
        return found

    def _is_old(self) -> ColumnElement[bool]:
        return or_(self._log.ends <= self._now, self._log.updated < number("before"))

    def _is_there(self) -> ColumnElement[bool]:
        return or_(self._log.ends.is_(None), self._log.ends > self._now)
