"""The stores that need nothing, for tests of what they do alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository


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
