"""The public laws hold for our repositories, and each notices a repository that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.memory.urls import open_repository
from advisorchain.testing import repository_laws
from advisorchain.testing._law_checks import LacksMethodsError
from advisorchain.testing.pytest_plugin import LawTest
from advisorchain.testing.repository_laws import REPOSITORY_LAWS, Means, check_repository

from . import _broken_company, _broken_lives, _broken_logs
from ._sound import Broken, Clock, Sound, means_for

pytest_plugins = ["advisorchain.testing.pytest_plugin"]

LAWS = {law.name: law for law in REPOSITORY_LAWS}
assert _broken_company, (_broken_lives, _broken_logs)


# In memory a log has one repository, and ends with it: nothing to reopen. None here has a connection that could be lost.


def test_in_memory_keeps_the_law(repository_law: LawTest) -> None:
    clock = Clock()
    repository_law(lambda: InMemoryChatMemoryRepository(clock=clock), wait=clock.wait)


def test_sqlite_in_memory_keeps_the_law(repository_law: LawTest) -> None:
    clock = Clock()
    repository_law(lambda: SqliteChatMemoryRepository(":memory:", clock=clock), wait=clock.wait)


def test_a_sqlite_file_keeps_the_law(repository_law: LawTest, tmp_path: Path) -> None:
    clock = Clock()

    def made(_: Any = None) -> SqliteChatMemoryRepository:
        return SqliteChatMemoryRepository(tmp_path / "chat.db", clock=clock)

    repository_law(made, wait=clock.wait, reopen=made)


async def test_a_sound_repository_keeps_all_laws() -> None:
    means = means_for(Sound)
    unchecked = await check_repository(means.make, wait=means.wait, reopen=means.reopen, disconnect=means.disconnect)
    assert unchecked == {}


async def test_what_was_not_checked_is_told() -> None:
    clock = Clock()
    unchecked = await check_repository(lambda: InMemoryChatMemoryRepository(clock=clock), wait=clock.wait)
    needed = {law.name: tuple(name for name in law.needs if name != "wait") for law in REPOSITORY_LAWS}
    assert unchecked == {name: needs for name, needs in needed.items() if needs}
    assert len(unchecked) == 8


def test_each_law_has_a_store_that_breaks_it() -> None:
    assert len(LAWS) == len(REPOSITORY_LAWS)
    assert set(Broken.laws) == set(LAWS)
    assert all(set(broken.also) < set(LAWS) for broken in Broken.laws.values())


@pytest.mark.parametrize("name", LAWS)
async def test_the_law_notices_a_store_that_breaks_it(name: str) -> None:
    broken = Broken.laws[name]
    for law in (name, *broken.also):
        assert await is_broken(law, broken.make), law


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_no_other_law_notices_a_store_that_breaks_one(name: str) -> None:
    async def others() -> list[str]:
        sound = [law for law in LAWS if law not in (name, *Broken.laws[name].also)]
        return [law for law in sound if await is_broken(law, Broken.laws[name].make)]

    assert anyio.run(others) == []


async def is_broken(name: str, make: type[Sound]) -> bool:
    try:
        await LAWS[name].run(means_for(make))
    except AssertionError as error:
        told = str(error)
    else:
        return False
    assert told.startswith(f"law `{name}`: ")
    return True


async def test_what_a_store_lacks_is_told_at_once_and_the_laws_that_need_it_are_not_checked() -> None:
    class Half(ChatMemoryRepository):  # inherits bodies that do nothing
        def __init__(self) -> None:
            self.store = InMemoryChatMemoryRepository()

        async def append(self, *given: Any, **named: Any) -> int:
            return await self.store.append(*given, **named)

        async def recall(self, *given: Any, **named: Any) -> Any:
            return await self.store.recall(*given, **named)

    with pytest.raises(AssertionError, match=r"^law `every method is there`: `Half` has no `page`, `replace`, .*`aclose`$"):
        await check_repository(Half)
    with pytest.raises(LacksMethodsError, match=r"^law `delete leaves nothing`: not checked, since the store has no `page`"):
        await LAWS["delete leaves nothing"].run(Means(Half))
    await LAWS["recall gives the newest"].run(Means(Half))  # which needs no more than it has


async def test_a_store_may_be_given_by_a_context_manager() -> None:
    await LAWS["delete leaves nothing"].run(Means(lambda: open_repository("memory://")))


async def test_a_law_that_does_not_end_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waits(Sound):
        async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
            await anyio.sleep_forever()

    monkeypatch.setattr(repository_laws, "_PATIENCE", 0.01)
    with pytest.raises(AssertionError, match=r"^law `delete leaves nothing`: it did not end within 0.01 seconds$"):
        await LAWS["delete leaves nothing"].run(means_for(Waits))


async def test_an_error_inside_a_repository_names_the_law() -> None:
    class Fails(InMemoryChatMemoryRepository):
        async def recall(self, conversation_id: Any, last: Any, **keywords: Any) -> Any:
            raise KeyError("boom")

    with pytest.raises(AssertionError, match=r"law `.*raised KeyError"):
        await check_repository(Fails)
