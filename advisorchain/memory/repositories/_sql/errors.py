"""What went wrong in a database, from its codes alone: its words may hold what people wrote, or a password."""

from __future__ import annotations

import re
import sqlite3
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import quote, quote_plus

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from advisorchain.errors import ConfigurationError, StorageError


class Trouble(Enum):
    """What can be done about an error."""

    LOST = auto()  # the connection is gone
    AGAIN = auto()  # another writer was in the way
    RACE = auto()  # another writer has just made what we wanted to make
    FAILED = auto()


_AGAIN: Final[dict[str, frozenset[object]]] = {
    "postgresql": frozenset({"40001", "40P01"}),
    "mysql": frozenset({1213, 1020}),
    "sqlite": frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}),
    "mssql": frozenset({"40001", 1205, 3960}),
    "oracle": frozenset({60, 8177}),
}
_DUPLICATE: Final[dict[str, tuple[object, ...]]] = {
    "postgresql": ("23505",),
    "mysql": (1062,),
    "sqlite": (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE),
}
_SLOW: Final = "took longer than `timeout`: it is slow, or another program holds a lock. Give a longer `timeout`"
_TABLES: Final = "lacks a table or a column of ours: call `await repository.create_tables()` once"
_RIGHTS: Final = "refuses this user; grant it SELECT, INSERT, UPDATE and DELETE on the tables"
_LARGE: Final = "raise the server's `max_allowed_packet`, or keep large content elsewhere and store its address"
_FULL: Final = "has no room left; make some and try again"
_READ_ONLY: Final = "takes no writes: it is a replica, or read-only. Give the URL of the primary"
_ADVICE: Final[dict[str, dict[object, str]]] = {
    "postgresql": {
        **dict.fromkeys(("57014", "55P03"), _SLOW),
        **dict.fromkeys(("42P01", "42703"), _TABLES),
        **dict.fromkeys(("53100", "53200"), _FULL),
        "42501": _RIGHTS,
        "25006": _READ_ONLY,
        "54000": "cannot take a message of this size",
    },
    "mysql": {
        **dict.fromkeys((1205, 1969, 3024, 1317), _SLOW),
        **dict.fromkeys((1146, 1054), _TABLES),
        **dict.fromkeys((1142, 1143, 1044), _RIGHTS),
        **dict.fromkeys((1021, 1114), _FULL),
        **dict.fromkeys((1290, 1792, 1836), _READ_ONLY),
        1153: f"cannot take a message of this size; {_LARGE}",
    },
    "sqlite": {
        **dict.fromkeys(
            _AGAIN["sqlite"], "stayed locked by another program; end its transaction, or give a longer `timeout`"
        ),
        sqlite3.SQLITE_FULL: _FULL,
        sqlite3.SQLITE_READONLY: "cannot be written to; make the file and its folder writable for this user",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened; give a file in a folder that is there and writable for this user",
        sqlite3.SQLITE_NOTADB: "is no SQLite database; give another path, or move that file away",
        sqlite3.SQLITE_CORRUPT: "is damaged; put a backup in its place",
        sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reported an error. Check the disk and its free space",
    },
}
# Of a server that was reached and lets nobody in; PostgreSQL's driver has no code for it, only the server's words.
_REFUSED: Final[tuple[tuple[str | int, str], ...]] = (
    ("password authentication failed", "refused the login; check the user and the password in the URL"),
    ("no password supplied", "wants a password, and the URL has none"),
    ("no pg_hba.conf entry", "lets this user into this database from here in no way; see its pg_hba.conf"),
    ("role .* does not exist", "has no such user; check the user in the URL"),
    ("database .* does not exist", "has no such database; make it, or check the name in the URL"),
    ("^too many ", "has no connection left; give a smaller `pool_size`, or raise the server's limit"),
    ("starting up", "is starting up; try again in a moment"),
    ("shutting down", "is shutting down"),
    (1045, "refused the login; check the user and the password in the URL"),
    (1698, "refused the login; check the user and the password in the URL"),
    (1049, "has no such database; make it, or check the name in the URL"),
    (1044, "lets this user not into this database; grant it the rights, or check the name in the URL"),
    (1040, "has no connection left; give a smaller `pool_size`, or raise the server's limit"),
)
# A connection that is of no more use. MariaDB: shutting down, killed. PostgreSQL: what was prepared does not fit any more,
# after a change of the tables or behind a pooler.
_GONE: Final = frozenset({1053, 1927, "0A000", "26000", "42P05"})


def driver_error(error: BaseException) -> BaseException:
    """The driver's own error, which SQLAlchemy may have wrapped."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def is_of_database(engine: Engine, error: BaseException) -> bool:
    """Whether the error came from the driver or from SQLAlchemy, not from us."""
    return isinstance(error, SQLAlchemyError | engine.dialect.loaded_dbapi.Error)


def trouble(engine: Engine, error: BaseException, connection: Any) -> Trouble:
    """What can be done about an error of the database."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return Trouble.LOST
    own: Any = driver_error(error)
    if isinstance(own, engine.dialect.loaded_dbapi.Error):
        if engine.dialect.is_disconnect(own, connection, None) or code(own) in _GONE:
            return Trouble.LOST
        if code(own) in _AGAIN[_family(engine)]:
            return Trouble.AGAIN
        if is_duplicate(engine, own):
            return Trouble.RACE
    return Trouble.FAILED


def is_duplicate(engine: Engine, error: BaseException) -> bool:
    """Whether a row was there already."""
    own: Any = driver_error(error)
    if not isinstance(own, engine.dialect.loaded_dbapi.IntegrityError):
        return False
    known = _DUPLICATE.get(_family(engine))
    return known is None or getattr(own, "sqlite_errorcode", code(own)) in known


def _family(engine: Engine) -> str:
    return "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name


def code(error: Any) -> object:
    """The database's code for an error: a text or a number; None: it has none."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF
    first = error.args[0] if error.args else None
    number = getattr(first, "code", first)
    return number if isinstance(number, int) else getattr(error, "sqlstate", None)


def explained(engine: Engine, store: str, error: BaseException) -> StorageError:
    """A StorageError that names the store and says what to do, without a word of the database."""
    own: Any = driver_error(error)
    found = code(own)
    advice = _ADVICE.get(_family(engine), {}).get(found, "failed; nothing was stored")
    return StorageError(f"`{store}` {advice} ({named(own, found)})")


def unreached(engine: Engine, store: str, error: BaseException) -> StorageError:
    """A StorageError for a connection that was not had. Before one is, the driver has seen no content."""
    if isinstance(error, PoolTimeoutError):
        return StorageError(
            f"all connections to `{store}` were in use for longer than `timeout`; give a larger `pool_size`, or look for"
            " what makes the database slow"
        )
    own = driver_error(error)
    said = hidden(engine, " ".join(str(own).split()))
    refused = "; behind this pooler give `timeout=None`, and set the server's" if "startup parameter" in said else ""
    known = _refusal(own, said) or _ADVICE.get(_family(engine), {}).get(code(own))
    advice = known or f"cannot be reached; check the URL and whether the server runs{refused}"
    return StorageError(f"`{store}` {advice} ({type(own).__name__}: {said})")


def not_taken(engine: Engine, store: str, error: BaseException) -> ConfigurationError:
    """An error of the driver's arguments, which are those of the URL. Their values are not shown."""
    what = "an option that its driver does not take, or one that names a file which cannot be read"
    for name in engine.url.query:
        if f"'{name}'" in str(error):
            what = f"the option `{name}`, which its driver does not take"
    return ConfigurationError(f"the URL of `{store}` has {what} ({type(error).__name__})")


def _refusal(error: BaseException, said: str) -> str | None:
    """What a server that was reached means by not letting us in; None: it was not reached, or who knows."""
    words, found = said.rpartition("FATAL:")[2].strip(), code(error)
    for sign, advice in _REFUSED:
        if sign == found or (isinstance(sign, str) and re.search(sign, words)):
            return advice
    return None


def check_size(text: str, most: int | None) -> None:
    """Refuse a text that MariaDB or MySQL would not take: far above its limit it hangs up, without a word of why.

    Raises:
        StorageError: it has more than `most` bytes in a statement, where quotes are escaped.
    """
    if most is None or len(text) * 8 <= most:
        return
    size = len(text.encode()) + sum(map(text.count, "\"'\\"))
    if size > most:
        raise StorageError(
            f"a message has {size} bytes in a statement, and this server takes {most} at most; nothing was stored: {_LARGE}"
        )


def lost(store: str, error: BaseException) -> StorageError:
    """A StorageError for a connection that broke while its work was being made durable."""
    own: Any = driver_error(error)
    return StorageError(
        f"the connection to `{store}` broke at the end of a write ({named(own, code(own))}): it is not known whether it was"
        " stored. Read the conversation again"
    )


def named(error: Any, found: object) -> str:
    """An error's class and code."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return f"{name} {found}" if found else str(name)


def hidden(engine: Engine, said: str) -> str:
    """A text without the password of the engine's URL, in any of the forms that it may have there."""
    password = engine.url.password
    given = [str(value) for name, value in engine.url.query.items() if "pass" in name.lower()]
    for secret in [str(password)] if password else []:
        given += [secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]]
    for secret in sorted(filter(None, given), key=len, reverse=True):
        said = said.replace(secret, "***")
    return said
