"""A turn as the stores' benchmarks measure it: a recall of the window of 20, and an append of a question with its answer."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.messages import AssistantMessage, Message, UserMessage

WINDOW = 20
LONG = 20_000  # messages
ROUNDS = 13
TURNS = 40  # in each round
_TEXT = "a sentence of about the length that people write to an assistant, and not much more than that. "

Step = Callable[[int], Awaitable[object]]


@dataclass(frozen=True)
class Cost:
    """Microseconds of one turn: of the client's CPU, and with the server."""

    cpu: float
    wall: float


def turn(number: int) -> list[Message]:
    return [UserMessage(f"{number} {_TEXT}"), AssistantMessage(f"{number} {_TEXT * 3}")]


def turns(count: int) -> list[Message]:
    return [message for number in range(count) for message in turn(number)]


def ours(repository: ChatMemoryRepository, conversation_id: str) -> Step:
    async def step(number: int) -> None:
        found = await repository.recall(conversation_id, WINDOW)
        assert len(found.tail) == WINDOW
        await repository.append(conversation_id, turn(number), turn_id=uuid4().hex)

    return step


async def cost(step: Step, count: int = TURNS) -> Cost:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        await step(number)
    return Cost((time.process_time() - cpu) / count * 1e6, (time.perf_counter() - wall) / count * 1e6)


async def by_length(repository: ChatMemoryRepository, rounds: int = ROUNDS, long: int = LONG) -> tuple[Cost, Cost]:
    """A turn in a conversation of 20 messages, and in one of 20,000."""
    await repository.replace("long", turns(long // 2))

    async def renew() -> None:
        await repository.replace("short", turns(WINDOW // 2))

    await renew()
    found = await in_turn([ours(repository, "short"), ours(repository, "long")], rounds, renew)
    return found[0], found[1]


async def in_turn(steps: list[Step], rounds: int, renew: Callable[[], Awaitable[None]] | None = None) -> list[Cost]:
    """What each of these costs, measured in turn within each round."""
    for step in steps:
        await cost(step, 10)  # for caches
    found: list[list[Cost]] = [[] for _ in steps]
    for number in range(rounds):
        if renew is not None:
            await renew()
        for place in range(len(steps)) if number % 2 else reversed(range(len(steps))):
            found[place].append(await cost(steps[place]))
    # whole times are the best: disks and other programs only add to them
    return [Cost(median(each.cpu for each in costs), min(each.wall for each in costs)) for costs in found]
