"""Laws of a repository that many use at once."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import anyio
from anyio import to_thread

from advisorchain.errors import LeaseLostError
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, stored, texts, turn

Wait: TypeAlias = Callable[[float], Awaitable[None]]


async def leases_exclude_others(repository: ChatMemoryRepository) -> None:
    """One owner at a time, and tokens that grow."""
    first = await repository.acquire("c", "one", 60)
    assert first is not None, "nobody had the lease, and yet it was refused"
    assert first > 0, f"the first lease has the token {first}"
    check_same(await repository.acquire("c", "one", 60), first, "token of a renewed lease")
    check_same(await repository.acquire("c", "two", 60), None, "a lease that another owner has")
    assert await repository.acquire("d", "two", 60), "a lease stops another conversation"
    await repository.append("c", turn(1), turn_id="t1", token=first)
    await repository.release("c", first + 1_000_000)
    check_same(await repository.acquire("c", "two", 60), None, "a lease released by another token")
    await repository.delete("c")
    await repository.release("c", first)
    second = await repository.acquire("c", "two", 60)
    assert second is not None, "a lease that was released could not be taken"
    assert second > first, f"tokens must grow, also across delete: {first}, then {second}"
    stale = partial(repository.append, "c", turn(2), turn_id="t2", token=first)
    await check_refused(LeaseLostError, "a stale token", stale)
    check_same((await repository.recall("c", 1)).count, 0, "count after a stale token")
    await repository.release("c", first)
    check_same(await repository.acquire("c", "three", 60), None, "a lease released by a stale token")
    check_same(await repository.append("c", turn(2), turn_id="t2", token=second), 1, "revision with the newest token")


async def leases_run_out(repository: ChatMemoryRepository, wait: Wait) -> None:
    """And go to another owner then."""
    first = await repository.acquire("c", "one", 0.2)
    assert first is not None, "nobody had the lease, and yet it was refused"
    await wait(0.5)
    second = await repository.acquire("c", "two", 60)
    assert second is not None, "a lease that ran out could not be taken"
    assert second > first, f"tokens must grow: {first}, then {second}"
    stale = partial(repository.append, "c", turn(1), turn_id="t1", token=first)
    await check_refused(LeaseLostError, "the token of a lease that another took over", stale)


async def tasks_lose_nothing(repository: ChatMemoryRepository) -> None:
    """Batches stay whole and in one piece."""
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(_append_whole, repository, f"task{number}", 2)
    _check_whole(await stored(repository, "c"), 40)
    assert (await repository.recall("c", 1)).count == 120, "count is not what the log has"


async def threads_lose_nothing(repository: ChatMemoryRepository) -> None:
    """Each with an event loop of its own."""
    barrier = threading.Barrier(4)

    def loop(number: int) -> None:
        barrier.wait()
        anyio.run(_append_whole, repository, f"thread{number}", 5)

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(to_thread.run_sync, loop, number)
    _check_whole(await stored(repository, "c"), 20)


async def _append_whole(repository: ChatMemoryRepository, name: str, turns: int) -> None:
    for number in range(turns):
        turn_id = f"{name}.{number}"
        batch = [UserMessage(f"{turn_id}.{part}") for part in range(3)]
        await repository.append("c", batch, turn_id=turn_id)


def _check_whole(entries: Sequence[Entry], turns: int) -> None:
    check_same(len({entry.sequence for entry in entries}), len(entries), "number of different sequences")
    check_same(len(entries), 3 * turns, "number of entries that concurrent writers stored")
    for start in range(0, len(entries), 3):
        batch = entries[start : start + 3]
        expected = [f"{batch[0].turn_id}.{part}" for part in range(3)]
        check_same(texts(batch), expected, "a batch among those of concurrent writers")
