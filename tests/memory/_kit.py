"""What tests of the stores write to a log and read of it, and their clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest import mock

import anyio
import anyio.lowlevel

from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import AssistantMessage, Message, UserMessage


def pair(number: int) -> list[Message]:
    return [UserMessage(f"u{number}"), AssistantMessage(f"a{number}")]


async def everything(repository: Any, conversation_id: str = "c") -> tuple[Entry, ...]:
    return (await repository.page(conversation_id, limit=1_000_000)).items


async def fill(repository: Any, name: str = "c", turns: int = 2, **options: Any) -> None:
    for number in range(1, turns + 1):
        await repository.append(name, pair(number), turn_id=f"t{number}", **options)


async def texts(repository: Any, name: str = "c") -> list[str]:
    return [entry.message.text for entry in await everything(repository, name)]


async def names(repository: Any) -> list[str]:
    return [row.conversation_id for row in (await repository.conversations()).items]


def lasting(seconds: float) -> Retention:
    return Retention(ttl=timedelta(seconds=seconds))


MOMENTS: Final = (*((turns, 0.0) for turns in range(60)), *((60, 0.0001 * 2**power) for power in range(15)))
"""When to cancel: after so many turns of the event loop, and so many seconds more in which a thread works."""


async def cancelled_after(moment: tuple[int, float], call: Callable[[], Any]) -> bool:
    """Cancel a call at one of `MOMENTS`; whether it had ended before."""
    turns, seconds = moment
    done = False
    async with anyio.create_task_group() as group:

        async def work() -> None:
            nonlocal done
            await call()
            done = True

        group.start_soon(work)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        if seconds:
            await anyio.sleep(seconds)
        group.cancel_scope.cancel()
    return done


class Clock:
    """Seconds that tests move, for leases and ends and for the times of entries."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds

    async def wait(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


@contextmanager
def both_by(clock: Clock) -> Iterator[None]:
    log, memory = ("advisorchain.memory.repositories." + name for name in ("_times.now", "in_memory.now"))
    with mock.patch(log, clock.now), mock.patch(memory, clock.now):
        yield
