"""Making the tables of the SQL store and bringing older ones to today's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine, inspect, select

from advisorchain.errors import ConfigurationError, StorageError, StoreMissingError
from advisorchain.memory.repositories._sql.engine import NO_DATABASE
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.tables import VERSION, Added, creation, steps, tables

_PATIENCE: Final = 60  # seconds to wait for another process that makes the tables


def kind_of_database(engine: Engine) -> str:
    """Whose words the tables are written in. To be asked after a connection: MariaDB is found behind `mysql://` too."""
    return "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name


def version_of(engine: Engine, prefix: str) -> int | None:
    """The version of the tables that are there; None: there are none."""
    with engine.connect() as connection:
        if engine.dialect.name in ("mysql", "mariadb") and not engine.dialect.default_schema_name:
            raise ConfigurationError(f"the engine {NO_DATABASE}")
        table = tables(kind_of_database(engine), prefix).version
        if not inspect(connection).has_table(table.name):
            return None
        return connection.execute(select(table.c.version)).scalar()


def check_version(store: str, version: int | None, prefix: str) -> None:
    """StorageError when the tables are not those of today."""
    if version is None:
        raise StoreMissingError(
            f"`{store}` has no tables `{prefix}…`; call `await repository.create_tables()` once, or give `create=True`"
        )
    if version < VERSION:
        raise StorageError(
            f"the tables `{prefix}…` of `{store}` are of an older advisorchain (version {version}, this one needs"
            f" {VERSION}); call `await repository.create_tables()` once, which keeps what is in them"
        )
    if version > VERSION:
        raise StorageError(
            f"the tables `{prefix}…` of `{store}` are of a newer advisorchain (version {version}, this one knows {VERSION});"
            " update it"
        )


def make_tables(engine: Engine, store: str, prefix: str, opened: Callable[[], Link]) -> None:
    """Make what is missing, in one transaction where the database has such for tables."""
    version = version_of(engine, prefix)
    if version is not None and version >= VERSION:
        return check_version(store, version, prefix)
    kind = kind_of_database(engine)
    present = _columns(engine, kind, prefix)
    link = opened()
    try:
        _lock(link, kind, prefix)
        for statement in _changes(link, kind, prefix, version, present):
            link.plain(statement)
        link.end()
        _unlock(link, kind, prefix)
    except BaseException:
        link.lose()  # and its lock
        raise
    finally:
        link.close()
    return check_version(store, version_of(engine, prefix), prefix)


def _columns(engine: Engine, kind: str, prefix: str) -> dict[str, set[str]]:
    """The tables of ours that are there, with their columns."""
    found = inspect(engine)
    names = [table.name for table in tables(kind, prefix)]
    return {name: {each["name"] for each in found.get_columns(name)} for name in names if found.has_table(name)}


def _changes(link: Link, kind: str, prefix: str, version: int | None, present: dict[str, set[str]]) -> list[str]:
    """The statements that are left to run, asked for under the lock: another process may have been faster."""
    if version is None:  # also after a crash on the way, on a database that ends transactions on DDL
        there = [f"CREATE TABLE {name} " for name in present]
        return [each for each in creation(kind, prefix, again=True) if not each.startswith(tuple(there))]
    now = link.plain(f"SELECT version FROM {tables(kind, prefix).version.name}")
    changes = [change for _, each in steps(kind, int(now), prefix) for change in each]
    left = (change if isinstance(change, str) else _left(change, present) for change in changes)
    return [statement for statement in left if statement]


def _left(change: Added, present: dict[str, set[str]]) -> str:
    columns = tuple(column for column in change.columns if column not in present[change.table.name])
    return change._replace(columns=columns).text() if columns else ""


def _lock(link: Link, kind: str, prefix: str) -> None:
    """Have other processes that make the tables wait; on Oracle and SQL Server one of them fails and can try again."""
    if kind in ("mysql", "mariadb"):  # a transaction would not hold: each change of a table ends it
        link.plain(f"SELECT GET_LOCK('{prefix}schema', {_PATIENCE})")
        return
    link.begin()
    if kind == "postgresql":
        link.plain(f"SELECT pg_advisory_xact_lock(hashtext('{prefix}schema'))")


def _unlock(link: Link, kind: str, prefix: str) -> None:
    if kind in ("mysql", "mariadb"):
        link.plain(f"SELECT RELEASE_LOCK('{prefix}schema')")
