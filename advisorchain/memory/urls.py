"""A repository by its URL, as a command line or a configuration file names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from advisorchain.errors import ConfigurationError
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import ChatMemoryRepository

__all__ = ["open_repository"]

_KNOWN = (
    "`memory://`, `sqlite:///relative/path.db`, `sqlite:////absolute/path.db`, `sqlite://` or `sqlite:///:memory:`"
    " for a database in memory"
)


@asynccontextmanager
async def open_repository(url: str) -> AsyncIterator[ChatMemoryRepository]:
    """The repository that `url` names, closed on leaving. A path is taken as it is, without percent escapes.

    Known are `memory://`; `sqlite:///` and a path, which is relative unless it begins with a further slash; `sqlite://`
    and `sqlite:///:memory:` for a database in memory.

    Raises:
        ConfigurationError: another scheme, or no path. What is wrong with a file shows on first use, as StorageError.
    """
    repository = _made(url)
    try:
        yield repository
    finally:
        await repository.aclose()


def _made(url: object) -> ChatMemoryRepository:
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
    raise ConfigurationError(f"`url` has the unknown scheme `{scheme}`; known are {_KNOWN}")
