"""The stores that need nothing, for tests of what they do alike; and what asks a server is slow."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository

_SERVERS = re.compile(r"postgresql|mariadb|redis|valkey|mongodb|server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `-m slow` what asks a server, by the folder, the file or the parameter that names one."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and _SERVERS.search(item.nodeid.removeprefix("tests/memory/")):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["memory", "sqlite-memory", "sqlite-file"])
def opened(request: pytest.FixtureRequest, tmp_path: Any) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened_(**options: Any) -> AsyncIterator[Any]:
        makers: dict[str, Callable[[], Any]] = {
            "memory": lambda: InMemoryChatMemoryRepository(**options),
            "sqlite-memory": lambda: SqliteChatMemoryRepository(":memory:", **options),
            "sqlite-file": lambda: SqliteChatMemoryRepository(tmp_path / "chat.db", **options),
        }
        repository = makers[request.param]()
        try:
            yield repository
        finally:
            await repository.aclose()

    return opened_
