"""The public laws hold for our repositories, and notice repositories that are broken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Page
from advisorchain.testing.repository_laws import check_repository


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def wait(self, seconds: float) -> None:
        self.now += seconds


def opener(make: Callable[[], Any]) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        repository = make()
        try:
            yield repository
        finally:
            await repository.aclose()

    return opened


async def test_in_memory_keeps_the_laws() -> None:
    clock = Clock()
    await check_repository(opener(lambda: InMemoryChatMemoryRepository(clock=clock)), wait=clock.wait)


async def test_sqlite_in_memory_keeps_the_laws() -> None:
    clock = Clock()
    await check_repository(opener(lambda: SqliteChatMemoryRepository(":memory:", clock=clock)), wait=clock.wait)


async def test_sqlite_file_keeps_the_laws(tmp_path: Any) -> None:
    clock, made = Clock(), []

    def make() -> SqliteChatMemoryRepository:
        made.append(1)
        return SqliteChatMemoryRepository(tmp_path / f"{len(made)}.db", clock=clock)

    await check_repository(opener(make), wait=clock.wait)
    assert len(made) > 15


class Forgetful(InMemoryChatMemoryRepository):
    async def append(self, conversation_id: str, messages: Any, **keywords: Any) -> int:
        kept = list(messages)[:10] if isinstance(messages, list) else messages
        return await super().append(conversation_id, kept, **keywords)


class NotIdempotent(InMemoryChatMemoryRepository):
    async def append(self, conversation_id: str, messages: Any, *, turn_id: Any, **keywords: Any) -> int:
        self.n = getattr(self, "n", 0) + 1
        return await super().append(conversation_id, messages, turn_id=f"{turn_id}.{self.n}", **keywords)


class LastWriterWins(InMemoryChatMemoryRepository):
    async def append(self, conversation_id: str, messages: Any, *, expected: Any = None, **keywords: Any) -> int:
        return await super().append(conversation_id, messages, **keywords)


class ForgetsDeletion(InMemoryChatMemoryRepository):
    async def append(self, conversation_id: str, messages: Any, *, incarnation: Any = None, **keywords: Any) -> int:
        return await super().append(conversation_id, messages, **keywords)


class IgnoresLeases(InMemoryChatMemoryRepository):
    async def append(self, conversation_id: str, messages: Any, *, token: Any = None, **keywords: Any) -> int:
        return await super().append(conversation_id, messages, **keywords)


class FoldsCase(InMemoryChatMemoryRepository):
    async def append(self, conversation_id: Any, messages: Any, **keywords: Any) -> int:
        name = conversation_id.lower() if isinstance(conversation_id, str) else conversation_id
        return await super().append(name, messages, **keywords)

    async def recall(self, conversation_id: Any, last: Any, **keywords: Any) -> Any:
        name = conversation_id.lower() if isinstance(conversation_id, str) else conversation_id
        return await super().recall(name, last, **keywords)


class PagesByOffset(InMemoryChatMemoryRepository):
    async def page(self, conversation_id: Any, *, after: Any = None, limit: int = 100, newest_first: bool = False) -> Any:
        whole = (await super().page(conversation_id, limit=100_000, newest_first=newest_first)).items
        start = int(after or 0)
        return Page(whole[start : start + limit], str(start + limit) if start + limit < len(whole) else None)


class SystemsInTheTail(InMemoryChatMemoryRepository):
    async def recall(self, conversation_id: Any, last: Any, **keywords: Any) -> Any:
        from dataclasses import replace

        found = await super().recall(conversation_id, last, **keywords)
        return replace(found, tail=(*found.systems, *found.tail))


class TokensStartAgain(InMemoryChatMemoryRepository):
    async def release(self, conversation_id: Any, token: Any) -> None:
        await super().release(conversation_id, token)
        if not self._leases.get(conversation_id):
            self._last_token = 0


class KeepsAfterDelete(InMemoryChatMemoryRepository):
    async def delete(self, conversation_id: Any) -> bool:
        return (await super().recall(conversation_id, 1)).count > 0


class ReadsThenWrites(InMemoryChatMemoryRepository):
    """Adds by reading the whole list and replacing it."""

    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **keywords: Any) -> int:
        from anyio.lowlevel import checkpoint

        if conversation_id != "c" or not str(turn_id).startswith(("task", "thread")):
            return await super().append(conversation_id, messages, turn_id=turn_id, **keywords)
        there = (await super().page(conversation_id, limit=100_000)).items
        await checkpoint()
        return await super().replace(conversation_id, [*there, *messages])


class ByPattern(InMemoryChatMemoryRepository):
    async def conversations(self, *, prefix: Any = "", after: Any = None, limit: int = 100) -> Any:
        from fnmatch import fnmatchcase

        whole = (await super().conversations(after=after, limit=limit)).items
        return Page(tuple(row for row in whole if fnmatchcase(row.conversation_id, prefix + "*")))


BROKEN = {
    Forgetful: "a batch of fifty",
    NotIdempotent: "batches are appended in order",
    LastWriterWins: "another revision",
    ForgetsDeletion: "deleted life",
    IgnoresLeases: "leases exclude others",
    FoldsCase: "ids are exact",
    PagesByOffset: "pages are stable",
    SystemsInTheTail: "recall",
    TokensStartAgain: "leases exclude others",
    KeepsAfterDelete: "deleted life",
    ReadsThenWrites: "tasks lose nothing",
    ByPattern: "conversations are found by prefix",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
async def test_broken_repositories_are_noticed(broken: Any) -> None:
    clock = Clock()
    with pytest.raises(AssertionError, match=f"law `.*{BROKEN[broken]}"):
        await check_repository(opener(lambda: broken(clock=clock)), wait=clock.wait)


async def test_an_error_inside_a_repository_names_the_law() -> None:
    class Fails(InMemoryChatMemoryRepository):
        async def recall(self, conversation_id: Any, last: Any, **keywords: Any) -> Any:
            raise KeyError("boom")

    with pytest.raises(AssertionError, match=r"law `.*raised KeyError"):
        await check_repository(opener(Fails))
