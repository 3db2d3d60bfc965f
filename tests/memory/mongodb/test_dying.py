"""Processes that die at any moment, and readers beside writers, on MongoDB."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from advisorchain.errors import (
    ChatMemoryError,
)
from advisorchain.memory.repository import Retention
from advisorchain.messages import Message, SystemMessage

from .._kit import pair
from ._kit import check_no_remains, closing

pytestmark = pytest.mark.slow  # asks a server


class DiedError(Exception):
    pass


class Breaking:
    """A collection whose process dies before one of its commands."""

    COMMANDS = (
        "find",
        "find_one",
        "insert_one",
        "insert_many",
        "update_one",
        "delete_one",
        "delete_many",
        "find_one_and_update",
    )

    def __init__(self, inner: Any, left: list[int]) -> None:
        self.inner, self.left = inner, left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in self.COMMANDS:
            return found

        def call(*args: Any, **named: Any) -> Any:
            if not self.left[0]:
                raise DiedError
            self.left[0] -= 1
            return found(*args, **named)

        return call


async def _filled(repository: Any) -> None:
    for number in range(3):
        systems: list[Message] = [SystemMessage(f"s{number}")]
        await repository.append("c", [*systems, *pair(number)], turn_id=f"t{number}")
    await repository.append("old", pair(8), turn_id="t8", retention=Retention(timedelta(seconds=5)))
    await repository.append("old", pair(9), turn_id="t9")


async def _append_held(repository: Any) -> Any:
    token = await repository.acquire("new", "one", 50)
    return await repository.append("new", pair(5), turn_id="t5", token=token)


WRITES: dict[str, Callable[[Any], Any]] = {
    "append": lambda repository: repository.append("c", pair(5), turn_id="t5"),
    "append to none": lambda repository: repository.append("new", pair(5), turn_id="t5"),
    "append to an ended one": lambda repository: repository.append("old", pair(5), turn_id="t5"),
    "append under a lease": _append_held,
    "append and trim": lambda repository: repository.append("c", pair(5), turn_id="t5", retention=Retention(max_messages=3)),
    "replace": lambda repository: repository.replace("c", [*pair(5), *pair(6)]),
    "replace none": lambda repository: repository.replace("new", pair(5)),
    "replace an ended one": lambda repository: repository.replace("old", pair(5)),
    "delete": lambda repository: repository.delete("c"),
    "rename": lambda repository: repository.rename("c", "new"),
    "rename to an ended one": lambda repository: repository.rename("c", "old"),
    "fork": lambda repository: repository.fork("c", "new"),
    "fork to an ended one": lambda repository: repository.fork("c", "old", at=5),
    "prune": lambda repository: repository.prune(),
}


@pytest.mark.only_on("asyncio")  # it is the process that dies
@pytest.mark.parametrize("write", WRITES)
async def test_a_process_that_dies_leaves_all_or_nothing_and_no_remains(
    fresh: Callable[..., Any], clock: list[float], write: str
) -> None:
    seen: list[Any] = []
    for commands in range(100):
        clock[0] = 1000.0
        async with closing(fresh(clock=lambda: clock[0])) as repository:
            await _filled(repository)
            clock[0] += 10
            before = await _told(repository)
            store = repository._hop.store
            whole = {name: getattr(store, name) for name in ("conversations", "entries", "leases", "garbage", "meta")}
            left = [commands]
            for name, collection in whole.items():
                setattr(store, name, Breaking(collection, left))
            done = True
            try:
                await WRITES[write](repository)
            except DiedError:
                done = False
            for name, collection in whole.items():
                setattr(store, name, collection)
            seen.append((before, await _told(repository)))
            if write.startswith("append") and not done:
                clock[0] += 100  # the lease of the dead has run out
                await WRITES[write](repository)
                assert "u5" in str(await _told(repository))
                assert str(await _told(repository)).count("u5") == 1
            clock[0] += 7200
            while await repository.prune():
                pass
            await repository.prune()
            check_no_remains(repository)
        if done:
            break
    else:
        pytest.fail("it never ended")
    after = seen[-1][1]
    assert all(found in (before, after) for before, found in seen)
    assert after != seen[-1][0] or write == "prune"


async def _told(repository: Any) -> Any:
    told = {}
    for name in ("c", "new", "old"):
        recall = await repository.recall(name, None)
        entries = (await repository.page(name)).items
        told[name] = (recall.revision, recall.count, [entry.message.text for entry in entries])
        assert recall.count == len(entries)
        assert [entry for entry in entries if entry.role != "system"] == list(recall.tail)
    return told


# -- writers in many threads


@pytest.mark.parametrize("trims", [False, True])
async def test_readers_see_whole_turns_while_others_trim_and_replace(fresh: Callable[..., Any], trims: bool) -> None:
    retention = Retention(max_messages=6) if trims else None
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        stop = anyio.Event()

        async def write(name: str) -> None:
            for number in range(20):
                await repository.append("c", pair(number), turn_id=f"{name}{number}", retention=retention)

        async def shorten() -> None:
            while not stop.is_set():
                stored = (await repository.page("c")).items
                turns = len(stored) // 2
                try:
                    await repository.replace(
                        "c", stored[2 * (turns // 2) :], expected=(await repository.recall("c", 0)).revision
                    )
                except ChatMemoryError:
                    pass

        async def read() -> None:
            while not stop.is_set():
                recall = await repository.recall("c", 7)
                texts = [entry.message.text for entry in recall.tail]
                whole = texts[1:] if len(texts) % 2 else texts
                assert all(u[1:] == a[1:] and u[0] + a[0] == "ua" for u, a in zip(whole[::2], whole[1::2], strict=True))
                assert (recall.question is not None) == bool(len(texts) % 2 and texts[0][0] == "a")
                entries = (await repository.page("c")).items
                assert len(entries) % 2 == 0

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(shorten)
            async with anyio.create_task_group() as writers:
                for name in ("one", "two", "three"):
                    writers.start_soon(write, name)
            stop.set()
        recall = await repository.recall("c", None)
        assert recall.count == len(recall.tail)
        assert not trims or recall.count <= 6
