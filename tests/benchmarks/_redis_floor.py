"""What a turn on Redis costs beside the bare client doing two trips that load the same rows, by the client's CPU time.

    python tests/benchmarks/_redis_floor.py [redis://127.0.0.1:6379/0]

A turn is a recall of the window of 20 and an append of a question with its answer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

import anyio
from coredis import Redis
from coredis.retry import NoRetryPolicy

from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
from advisorchain.messages import AssistantMessage, Message, UserMessage, dump_message

WINDOW = 20
LONG = 20_000  # messages
ROUNDS = 25
TURNS = 100  # in each round
_TEXT = "a sentence of about the length that people write to an assistant, and not much more than that. "


@dataclass(frozen=True)
class RedisCosts:
    """Microseconds of CPU for one turn: the bare client's, and the repository's at both lengths."""

    floor: float
    short: float
    long: float

    @property
    def over_floor(self) -> float:
        """How many times the floor a turn at 20 messages costs."""
        return self.short / self.floor

    @property
    def growth(self) -> float:
        """How many times a turn at 20 messages one at 20,000 costs."""
        return self.long / self.short


def turn(number: int) -> list[Message]:
    return [UserMessage(f"{number} {_TEXT}"), AssistantMessage(f"{number} {_TEXT * 3}")]


async def measure(url: str, *, rounds: int = ROUNDS, turns: int = TURNS) -> RedisCosts:
    """The least of the rounds, since what else the machine does only adds; in each, all three are measured in turn."""
    prefix = f"floor-{uuid4().hex}"
    repository = RedisChatMemoryRepository(url, prefix=prefix)
    async with Redis.from_url(url, retry_policy=NoRetryPolicy()) as client:
        try:
            rows = [dump_message(message) for number in range(WINDOW // 2) for message in turn(number)]
            await client.rpush(f"{prefix}:rows", rows)
            await repository.append("short", [m for number in range(WINDOW // 2) for m in turn(number)], turn_id="t")
            for part in range(LONG // 1000):
                await repository.append("long", [m for number in range(500) for m in turn(number)], turn_id=f"t{part}")

            async def bare(number: int) -> None:
                await client.lrange(f"{prefix}:rows", -WINDOW, -1)
                await client.rpush(f"{prefix}:rows", [dump_message(message) for message in turn(number)])

            def ours(conversation_id: str) -> Callable[[int], Awaitable[None]]:
                async def step(number: int) -> None:
                    found = await repository.recall(conversation_id, WINDOW)
                    assert len(found.tail) == WINDOW
                    await repository.append(conversation_id, turn(number), turn_id=uuid4().hex)

                return step

            steps = [bare, ours("short"), ours("long")]
            found = [[await _cpu(step, turns) for step in steps] for _ in range(rounds)]
            return RedisCosts(*(min(column) for column in zip(*found, strict=True)))
        finally:
            await repository.aclose()
            async for key in client.scan_iter(match=f"{prefix}*", count=1000):
                await client.unlink([key])


async def _cpu(step: Callable[[int], Awaitable[None]], turns: int) -> float:
    start = time.process_time()
    for number in range(turns):
        await step(number)
    return (time.process_time() - start) / turns * 1e6


def report(url: str) -> None:
    for backend in ("asyncio", "trio"):
        costs = anyio.run(measure, url, backend=backend)
        print(
            f"{backend}: bare coredis {costs.floor:.0f} us, a turn at 20 messages {costs.short:.0f} us"
            f" ({costs.over_floor:.2f} times), at {LONG} {costs.long:.0f} us ({costs.growth:.2f} times that)"
        )


if __name__ == "__main__":
    report(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379/0")
