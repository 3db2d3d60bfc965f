"""The engine of a SQL store: made of a URL with bounded waits, or one that the application has made."""

from __future__ import annotations

import math
import random
import sqlite3
import time
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain.errors import ConfigurationError, MissingExtraError, kind_of
from advisorchain.memory.repositories._sql.link import is_direct
from advisorchain.memory.repositories._sql.tables import KINDS
from advisorchain.memory.repositories._url import check_url

# The driver that each extra brings, for a URL that names none.
_DRIVERS: Final = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite+pysqlite",
    "mssql": "mssql+mssqlpython",
    "oracle": "oracle+oracledb",
}
_EXTRAS: Final = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "mssql": "mssql", "oracle": "oracle"}
_OURS: Final = ("options", "prepare_threshold")  # made of what the URL says
_ASYNC: Final = "is an asyncio driver; the repository calls a synchronous one in threads, also on asyncio"
_PREPARED: Final = 2  # uses of a statement before it is prepared; there are few different ones
_NAMED: Final = ("mysql", "mariadb")  # where a connection may be in no database at all
_CHARSET: Final = "utf8mb4"  # of MySQL's character sets the one that has all characters
NO_DATABASE: Final = "names no database; give one that is there, as in `mysql://USER:PASSWORD@HOST/DATABASE`"
_LONG: Final = 30.0  # seconds, where no bound is given for what must have one
_LEEWAY: Final = 5.0  # seconds that a driver waits for longer than the server, whose error says more
UNPOOLED: Final = 10  # connections at once where the engine has no pool that bounds them


class Limits(NamedTuple):
    """How many connections, and for how long they may wait; seconds, `timeout` None: as the server says."""

    pool_size: int
    timeout: float | None
    connect_timeout: float


def checked_limits(pool_size: object, timeout: object, connect_timeout: object) -> Limits:
    """The arguments of a repository; ConfigurationError when one of them cannot work."""
    bound = None if timeout is None else checked_seconds("timeout", timeout)
    return Limits(checked_whole("pool_size", pool_size), bound, checked_seconds("connect_timeout", connect_timeout))


def checked_engine(engine: Engine) -> tuple[Engine, int]:
    """An engine of the application, and how many connections its pool has; ConfigurationError for one that cannot work."""
    _check_dialect(engine)
    if isinstance(engine.pool, QueuePool):
        return engine, engine.pool.size() or UNPOOLED
    if isinstance(engine.pool, NullPool):
        return engine, UNPOOLED
    raise ConfigurationError(
        f"the engine has a `{type(engine.pool).__name__}`, whose connections are not for one thread at a time;"
        " make it with `poolclass=QueuePool` (for a SQLite database in memory also with `pool_size=1, max_overflow=0`)"
    )


def made_engine(url: str | URL, limits: Limits) -> tuple[Engine, int]:
    """An engine of our own, and how many connections it has.

    Raises:
        ConfigurationError: what cannot be told from the URL without connecting. The URL is not shown.
        MissingExtraError: the driver is not installed.
    """
    parsed = _parsed(url)
    kind = parsed.get_backend_name()
    if kind in _NAMED and not parsed.database:
        raise ConfigurationError(f"`url` {NO_DATABASE}")
    _check_charset(parsed)
    in_memory = kind == "sqlite" and parsed.database in (None, "", ":memory:")
    direct = is_direct(kind, parsed.get_driver_name())
    arguments = _arguments(parsed, kind, limits) if direct else {}
    try:
        engine = create_engine(
            parsed.difference_update_query(arguments),
            connect_args=arguments,
            hide_parameters=True,  # they are what people wrote
            **_pool(limits, direct=direct, in_memory=in_memory),
        )
    except ImportError as error:
        raise _missing(parsed, kind, error) from error
    except (ArgumentError, TypeError, ValueError):
        raise ConfigurationError(f"`url` of `{parsed.drivername}` has a part that cannot be used") from None
    _check_dialect(engine)
    if kind == "sqlite":
        event.listen(engine, "connect", lambda link, _: _write_ahead(link, limits.timeout or _LONG))
    elif kind == "postgresql" and direct and "prepare_threshold" not in parsed.query:
        event.listen(engine, "connect", _prepare)
    return engine, 1 if in_memory else limits.pool_size


def _pool(limits: Limits, *, direct: bool, in_memory: bool) -> dict[str, Any]:
    """How the engine pools: not, where `Links` keeps the connections; each of them ends its own transactions."""
    if direct:
        return {"poolclass": StaticPool if in_memory else NullPool, "pool_reset_on_return": None}
    bounded = {"pool_size": limits.pool_size, "max_overflow": 0, "pool_timeout": limits.timeout or _LONG}
    return {"poolclass": QueuePool, "pool_use_lifo": True, **bounded}


def _parsed(url: str | URL) -> URL:
    if isinstance(url, str):
        check_url(url)
    try:
        parsed = make_url(url)
        drivername = _DRIVERS.get(parsed.drivername, parsed.drivername)
        parsed = parsed.set(drivername=drivername)
        is_async = parsed.get_dialect().is_async
    except NoSuchModuleError:
        raise ConfigurationError(
            f"`url` has the unknown scheme `{parsed.drivername}`; known are {', '.join(_DRIVERS)}"
        ) from None
    except (ArgumentError, ValueError, TypeError):
        raise ConfigurationError(
            "`url` is no database URL; give one like `postgresql://user:password@host/database`"
        ) from None
    if is_async:
        raise ConfigurationError(f"`{parsed.drivername}` {_ASYNC}; leave the driver out of the URL")
    return parsed


def _arguments(url: URL, kind: str, limits: Limits) -> dict[str, Any]:
    """What the driver is given to connect; a part of the URL's query of the same name counts instead."""
    if kind == "postgresql":
        arguments = _postgresql(url, limits)
    elif kind == "sqlite":
        arguments = {"timeout": limits.timeout or _LONG, "check_same_thread": False, "isolation_level": None}
    else:
        arguments = _mysql(limits)
    return {name: value for name, value in arguments.items() if name not in url.query or name in _OURS}


def _postgresql(url: URL, limits: Limits) -> dict[str, Any]:
    prepare = url.query.get("prepare_threshold")
    arguments: dict[str, Any] = {
        "autocommit": True,
        "connect_timeout": max(2, math.ceil(limits.connect_timeout)),  # libpq takes 1 for 2
        "prepare_threshold": None if prepare is None else _count(prepare, "prepare_threshold"),
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    if limits.timeout is not None:  # waiting for a lock counts as well
        own = url.query.get("options", "")
        arguments["options"] = f"-c statement_timeout={math.ceil(limits.timeout * 1000)} {own}".strip()
        arguments["tcp_user_timeout"] = math.ceil((limits.timeout + _LEEWAY) * 1000)
    return arguments


def _mysql(limits: Limits) -> dict[str, Any]:
    arguments: dict[str, Any] = {"autocommit": True, "connect_timeout": math.ceil(limits.connect_timeout)}
    arguments["charset"] = _CHARSET
    if limits.timeout is not None:
        wait = math.ceil(limits.timeout)
        arguments |= {"read_timeout": wait + _LEEWAY, "write_timeout": wait + _LEEWAY}
        arguments["init_command"] = f"SET SESSION innodb_lock_wait_timeout = {wait}"
    return arguments


def _count(value: object, name: str) -> int:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    raise ConfigurationError(f"`{name}` in the URL must be a whole number")


def _missing(url: URL, kind: str, error: ImportError) -> ConfigurationError:
    extra = _EXTRAS.get(kind)
    how = f': pip install "advisorchain[{extra}]"' if extra else ""
    return MissingExtraError(f"`{url.drivername}` needs `{error.name}`{how}")


def _check_charset(url: URL) -> None:
    """Another one cannot store all that people write, and fails with it in its error."""
    charset = url.query.get("charset", _CHARSET)
    if url.get_backend_name() in _NAMED and str(charset).lower() != _CHARSET:
        raise ConfigurationError(f"`url` names a `charset` that lacks characters; leave it out, or give `{_CHARSET}`")


def _check_dialect(engine: Engine) -> None:
    if not isinstance(engine, Engine):
        raise ConfigurationError(f"`url` is {kind_of(engine)}; give a database URL or a synchronous SQLAlchemy engine")
    check_url(f"url://login@{(engine.url.host or '').replace(':', '.')}")  # whoever took it apart, it is shown
    if engine.dialect.is_async:
        raise ConfigurationError(f"`{engine.dialect.name}+{engine.dialect.driver}` {_ASYNC}; give one of `create_engine`")
    if engine.dialect.name not in KINDS:
        raise ConfigurationError(f"`url` is of the database `{engine.dialect.name}`; known are {', '.join(KINDS)}")
    _check_charset(engine.url)


def _prepare(connection: Any, record: object) -> None:
    """PostgreSQL: have statements prepared on the server where we speak to it directly, which saves most of their cost.

    A pooler that hands each transaction to another connection would run another program's statement of the same name. It
    tells its clients a number of its own for the server's process, by which they could cancel.
    """
    asked = connection.execute("SELECT pg_backend_pid()").fetchone()
    connection.prepare_threshold = _PREPARED if asked[0] == connection.info.backend_pid else None


def _write_ahead(connection: Any, seconds: float) -> None:
    """SQLite: readers and a writer do not stop each other. As in `SqliteChatMemoryRepository`, at its default durability.

    SQLite does not wait where several turn a file to this at once: it refuses all but one of them at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.001, 0.02))
    connection.execute("PRAGMA synchronous = NORMAL")
