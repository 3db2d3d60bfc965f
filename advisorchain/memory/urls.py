"""A repository by its URL, as a command line or a configuration file names it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

from advisorchain.errors import ConfigurationError, MissingExtraError
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import ChatMemoryRepository

__all__ = ["SCHEMES", "open_repository"]


class _Store(NamedTuple):
    """A class of repositories that needs an extra.

    Attributes:
        package: what it imports.
        creates: whether it can make tables or indexes.
        extras: which one is needed for each scheme, that without its driver.
    """

    module: str
    name: str
    package: str
    creates: bool
    extras: dict[str, str]


_STORES: Final = (
    _Store(
        "advisorchain.memory.repositories.sql",
        "SqlChatMemoryRepository",
        "sqlalchemy",
        True,
        {
            "postgresql": "postgresql",
            "postgres": "postgresql",
            "mysql": "mysql",
            "mariadb": "mysql",
            "mssql": "mssql",
            "oracle": "oracle",
            "sqlite": "sql",
        },
    ),
    _Store(
        "advisorchain.memory.repositories.redis",
        "RedisChatMemoryRepository",
        "coredis",
        False,
        dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "unix"), "redis"),
    ),
    _Store(
        "advisorchain.memory.repositories.mongodb",
        "MongoChatMemoryRepository",
        "pymongo",
        True,
        {"mongodb": "mongodb"},
    ),
)
_BY_SCHEME: Final = {scheme: (store, extra) for store in _STORES for scheme, extra in store.extras.items()}
SCHEMES: Final = frozenset({"memory", *_BY_SCHEME})
"""What URLs begin with, without drivers and modes."""
_KNOWN: Final = (
    "`memory://`, `sqlite:///relative/path.db`, `sqlite:////absolute/path.db`, `sqlite://` or `sqlite:///:memory:`"
    " for a database in memory, `postgresql://`, `mysql://`, `mariadb://`, `mssql://`, `oracle://`, `redis://`, `rediss://`,"
    " `valkey://`, `mongodb://`, `mongodb+srv://`"
)


@asynccontextmanager
async def open_repository(url: str, *, create: bool = True) -> AsyncIterator[ChatMemoryRepository]:
    """The repository that `url` names, closed on leaving.

    - `memory://`: in this process's memory, for as long as it is open.
    - `sqlite:///` and a path, which is relative unless it begins with a further slash, and is taken as it is, without
      percent escapes; `sqlite://` and `sqlite:///:memory:` for a database in memory. Nothing to install.
    - `postgresql://`, `mysql://`, `mariadb://`, `mssql://`, `oracle://`, also with a driver as SQLAlchemy has it
      (`postgresql+psycopg://`, `sqlite+pysqlite:///`): `SqlChatMemoryRepository`, extra of that name (`mysql` for MariaDB).
      A file of `sqlite:///` is another form of database than one of `sqlite+pysqlite:///`: do not mix the two on one file.
    - `redis://`, `rediss://`, `valkey://`, `redis+sentinel://`, `redis+cluster://`: `RedisChatMemoryRepository`, extra
      `redis`.
    - `mongodb://`, `mongodb+srv://`: `MongoChatMemoryRepository`, extra `mongodb`.

    For what a URL cannot say, make the repository itself. Special characters in user and password are percent-encoded
    (`%40` for `@`). A password is shown in no error.

    Args:
        url: where conversations are kept.
        create: make on first use what a database needs, such as tables and indexes, if it is not there. A SQLite file is
            always made.

    Raises:
        ConfigurationError: another scheme, or a URL that cannot be used. What is wrong with a file or a server shows on
            first use, as StorageError.
        MissingExtraError: what this kind of store needs is not installed.
    """
    repository = _made(url, create)
    try:
        yield repository
    finally:
        await repository.aclose()


def _made(url: object, create: bool) -> ChatMemoryRepository:
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    kind = scheme.lower()
    if not separator:
        raise ConfigurationError(f"`url` is no URL; known are {_KNOWN}")
    if kind == "memory" and not rest:
        return InMemoryChatMemoryRepository()
    if kind == "sqlite" and not rest:
        return SqliteChatMemoryRepository(":memory:")
    if kind == "sqlite" and rest.startswith("/") and rest[1:].strip():
        return SqliteChatMemoryRepository(rest[1:])
    if kind in ("memory", "sqlite"):  # what stands behind the scheme may be private and is not shown
        raise ConfigurationError(f"`url` with the scheme `{kind}` has no path that can be used; known are {_KNOWN}")
    if found := _BY_SCHEME.get(kind.partition("+")[0]):
        store, extra = found
        settings = {"create": create} if store.creates else {}
        repository: ChatMemoryRepository = _class_of(store, extra, kind)(f"{kind}://{rest}", **settings)
        return repository
    shown = f" `{scheme}`" if re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""  # else anything, also a password
    raise ConfigurationError(f"`url` has the unknown scheme{shown}; known are {_KNOWN}")


def _class_of(store: _Store, extra: str, scheme: str) -> Any:
    try:
        return getattr(import_module(store.module), store.name)
    except ImportError as error:
        missing = (error.__cause__ if isinstance(error, MissingExtraError) else error) or error
        name = (getattr(missing, "name", None) or store.package).partition(".")[0]
        if name != store.package:
            raise
        raise MissingExtraError(f'`{scheme}://` needs `{name}`: pip install "advisorchain[{extra}]"') from error
