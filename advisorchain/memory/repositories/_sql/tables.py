"""The tables of the SQL store, in the words of each database, and the steps from one form of them to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateColumn, CreateTable
from sqlalchemy.types import TypeDecorator, TypeEngine

from advisorchain.errors import ConfigurationError
from advisorchain.exchange import MAX_ID_LENGTH

VERSION: Final = 2  # 1 had no columns for what ends and how much is kept
PREFIX: Final = "advisorchain_"

_DIALECTS: Final[dict[str, Any]] = {
    "postgresql": postgresql.dialect,
    "mysql": mysql.dialect,
    "mariadb": mysql.dialect,
    "sqlite": sqlite.dialect,
    "mssql": mssql.dialect,
    "oracle": oracle.dialect,
}
KINDS: Final = tuple(_DIALECTS)
_INNODB: Final[dict[str, Any]] = {
    f"{kind}_{name}": value
    for kind in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("default_charset", "utf8mb4"))
}


class Tables(NamedTuple):
    """The five tables of one prefix, for one kind of database."""

    version: Table
    conversations: Table
    entries: Table
    turns: Table
    leases: Table


class Utf8Bytes(TypeDecorator[str]):
    """A text as its UTF-8 bytes, for SQL Server, whose comparisons of text ignore spaces at the end in every collation."""

    impl = mssql.VARBINARY
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """The bytes."""
        return None if value is None else value.encode()

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """The text."""
        return None if value is None else bytes(value).decode()


def name_type(kind: str) -> TypeEngine[str]:
    """An id: 255 code points, compared one by one, without folding case and without padding."""
    if kind == "postgresql":
        return String(MAX_ID_LENGTH, collation="C")
    if kind == "mysql":  # 8.0 brought the first collation of MySQL that does not pad
        return mysql.VARCHAR(MAX_ID_LENGTH, charset="utf8mb4", collation="utf8mb4_0900_bin")
    if kind == "mariadb":
        return mysql.VARCHAR(MAX_ID_LENGTH, charset="utf8mb4", collation="utf8mb4_nopad_bin")
    if kind == "mssql":
        return Utf8Bytes(4 * MAX_ID_LENGTH)
    return String(MAX_ID_LENGTH)  # SQLite and Oracle compare bytes, and Oracle counts characters here


def text_type(kind: str) -> TypeEngine[str]:
    """A message as JSON, of any size."""
    if kind in ("mysql", "mariadb"):  # TEXT would end at 64 kB
        return mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return mssql.NVARCHAR(None) if kind == "mssql" else Text()


@cache
def tables(kind: str, prefix: str = PREFIX) -> Tables:
    """The tables as this kind of database makes them."""
    metadata, name = MetaData(), name_type(kind)

    def number(label: str, **options: Any) -> Column[int]:
        return Column(label, BigInteger, nullable=options.pop("nullable", False), autoincrement=False, **options)

    def table(label: str, *parts: Any, **options: Any) -> Table:
        made: Table = Table(f"{prefix}{label}", metadata, *parts, **(_INNODB | options))
        return made

    version = table("schema", Column("version", Integer, primary_key=True, autoincrement=False))
    conversations = table(
        "conversations",
        number("incarnation", primary_key=True),  # begins with the time, so what is new lies together
        Column("id", name, nullable=False),
        number("revision"),
        number("count"),
        number("next_sequence"),
        number("systems"),  # the first of the system messages in force; sequences, 0: none
        number("question"),  # the newest user message
        number("summary"),
        number("created"),
        number("updated"),
        number("spoken", server_default=text("0")),  # entries in the lane that a tail is made of
        number("ttl", nullable=True),
        number("ends", nullable=True),
        UniqueConstraint("id", name=f"{prefix}conversations_id"),
    )
    entries = table(
        "entries",
        number("conversation"),
        Column("lane", SmallInteger, nullable=False, autoincrement=False),
        number("sequence"),
        Column("turn_id", name, nullable=False),
        number("created"),
        number("covers", nullable=True),
        number("question"),  # the newest user message up to here, in the lane that a tail is made of
        Column("message", text_type(kind), nullable=False),
        PrimaryKeyConstraint("conversation", "lane", "sequence", name=f"{prefix}entries_pk"),
        sqlite_with_rowid=False,
    )
    # A clustered key of SQL Server has at most 900 bytes, another one 1,700.
    turns = table(
        "turns",
        number("conversation"),
        Column("turn_id", name, nullable=False),
        PrimaryKeyConstraint("conversation", "turn_id", name=f"{prefix}turns_pk", mssql_clustered=False),
        sqlite_with_rowid=False,
    )
    leases = table("leases", *_lease_columns(kind, prefix, name), sqlite_autoincrement=True)
    return Tables(version, conversations, entries, turns, leases)


def _lease_columns(kind: str, prefix: str, name: TypeEngine[str]) -> Sequence[Any]:
    token: TypeEngine[int] = Integer() if kind == "sqlite" else BigInteger()
    order = {"oracle_order": True} if kind == "oracle" else {}  # else the members of a cluster draw from parts of their own
    identity = [Identity(**order)] if kind in ("postgresql", "mssql", "oracle") else []
    return (
        Column("token", token, *identity, primary_key=True, autoincrement=True),
        Column("conversation_id", name, nullable=False),
        Column("owner", name, nullable=False),
        Column("expires", BigInteger, nullable=False),
        UniqueConstraint("conversation_id", name=f"{prefix}leases_id"),
    )


def creation(kind: str, prefix: str = PREFIX, *, again: bool = False) -> list[str]:
    """The statements that make the tables; `again`: and leave alone those that are there, where the database knows how."""
    quiet = again and kind not in ("mssql", "oracle")
    dialect = dialect_of(kind)
    made = [str(CreateTable(table, if_not_exists=quiet).compile(dialect=dialect)).strip() for table in tables(kind, prefix)]
    return [*made, recorded(kind, prefix)]


def recorded(kind: str, prefix: str = PREFIX) -> str:
    """The statement that writes down the version, unless one is written down."""
    name = tables(kind, prefix).version.name
    source = " FROM DUAL" if kind in ("oracle", "mysql", "mariadb") else ""
    return f"INSERT INTO {name} (version) SELECT {VERSION}{source} WHERE NOT EXISTS (SELECT 1 FROM {name})"


def _moved_to(kind: str, prefix: str, version: int) -> str:
    return f"UPDATE {tables(kind, prefix).version.name} SET version = {version}"


class Added(NamedTuple):
    """A change that adds columns to a table. A database that ends transactions on DDL may have made it before a crash."""

    kind: str
    table: Table
    columns: tuple[str, ...]

    def text(self) -> str:
        """The statement: all columns or none, but on SQLite, which takes one at a time (inside a transaction)."""
        dialect = dialect_of(self.kind)
        each = [str(CreateColumn(self.table.c[column]).compile(dialect=dialect)).strip() for column in self.columns]
        if self.kind == "oracle":
            return f"ALTER TABLE {self.table.name} ADD ({', '.join(each)})"
        joint = ", " if self.kind == "mssql" else ", ADD "
        return f"ALTER TABLE {self.table.name} ADD {joint.join(each)}"


def steps(kind: str, since: int, prefix: str = PREFIX) -> list[tuple[int, list[str | Added]]]:
    """What leads from the form `since` to the one of today: for each version the changes that make it."""
    return [
        (version, [*STEPS[version](kind, prefix), _moved_to(kind, prefix, version)]) for version in STEPS if version > since
    ]


def _retention(kind: str, prefix: str) -> list[str | Added]:
    made = tables(kind, prefix)
    log, entries = made.conversations, made.entries.name
    spoken = f"SELECT COUNT(*) FROM {entries} WHERE {entries}.conversation = {log.name}.incarnation AND {entries}.lane = 0"
    columns = ("spoken", "ttl", "ends")
    adding = [(column,) for column in columns] if kind == "sqlite" else [columns]
    return [*(Added(kind, log, each) for each in adding), f"UPDATE {log.name} SET spoken = ({spoken})"]


STEPS: Final[dict[int, Callable[[str, str], list[str | Added]]]] = {2: _retention}


def dialect_of(kind: str) -> Dialect:
    """SQLAlchemy's words for a kind of database; ConfigurationError for one that we have no tables for."""
    if kind not in _DIALECTS:
        raise ConfigurationError(f"`dialect` is {kind!r}; known are {', '.join(KINDS)}")
    dialect: Dialect = _DIALECTS[kind]()
    return dialect
