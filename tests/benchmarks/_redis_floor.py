"""What a turn on Redis costs: the client's CPU time beside the bare client's doing two trips that load the same rows, and
how that and the server's own time grow with the conversation.

    python tests/benchmarks/_redis_floor.py [redis://127.0.0.1:6379/0]
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from uuid import uuid4

import anyio
from _turns import LONG, ROUNDS, WINDOW, Step, ours, turn
from _turns import turns as conversation
from coredis import Redis
from coredis.retry import NoRetryPolicy

from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
from advisorchain.messages import dump_message

TURNS = 100  # in each round


@dataclass(frozen=True)
class RedisCosts:
    """Microseconds for one turn: the bare client's CPU time, and at both lengths ours and that of the server's scripts."""

    floor: float
    short: float
    long: float
    served_short: float
    served_long: float

    @property
    def over_floor(self) -> float:
        """How many times the floor a turn at 20 messages costs."""
        return self.short / self.floor

    @property
    def growth(self) -> float:
        """How many times a turn at 20 messages one at 20,000 costs."""
        return self.long / self.short

    @property
    def growth_in_server(self) -> float:
        """The same of the time that the server takes for its scripts."""
        return self.served_long / self.served_short


async def measure(url: str, *, rounds: int = ROUNDS, turns: int = TURNS) -> RedisCosts:
    """The least of the rounds, since what else the machine does only adds; in each, all three are measured in turn."""
    return await measured(url, RedisChatMemoryRepository(url, prefix=f"floor-{uuid4().hex}"), rounds, turns)


async def measured(url: str, repository: RedisChatMemoryRepository, rounds: int, turns: int) -> RedisCosts:
    prefix = repository._server.prefix
    async with Redis.from_url(url, retry_policy=NoRetryPolicy()) as client:
        try:
            rows = [dump_message(message) for message in conversation(WINDOW // 2)]
            await client.rpush(f"{prefix}:rows", rows)
            for part in range(LONG // 1000):
                await repository.append("long", conversation(500), turn_id=f"t{part}")

            async def bare(number: int) -> None:
                await client.lrange(f"{prefix}:rows", -WINDOW, -1)
                await client.rpush(f"{prefix}:rows", [dump_message(message) for message in turn(number)])

            steps = [bare, ours(repository, "short"), ours(repository, "long")]
            found = []
            for _ in range(rounds):
                await repository.replace("short", conversation(WINDOW // 2))
                found.append([await _cost(step, turns, client) for step in steps])
            (floor, _), (short, served_short), (long, served_long) = (
                (min(cpu for cpu, _ in column), min(served for _, served in column)) for column in zip(*found, strict=True)
            )
            return RedisCosts(floor, short, long, served_short, served_long)
        finally:
            await repository.aclose()
            async for key in client.scan_iter(match=f"{prefix}*", count=1000):
                await client.unlink([key])


async def _cost(step: Step, turns: int, client: Redis[bytes]) -> tuple[float, float]:
    """Microseconds of one turn: of CPU here, and of scripts in the server."""
    before, start = await _scripts(client), time.process_time()
    for number in range(turns):
        await step(number)
    cpu, after = time.process_time() - start, await _scripts(client)
    return cpu / turns * 1e6, (after - before) / turns


async def _scripts(client: Redis[bytes]) -> float:
    """Microseconds that the server has spent in scripts."""
    told = await client.info("commandstats")
    return sum(told.get(f"cmdstat_{name}", {}).get("usec", 0) for name in ("evalsha", "evalsha_ro"))


def report(url: str) -> None:
    for backend in ("asyncio", "trio"):
        costs = anyio.run(measure, url, backend=backend)
        print(
            f"{backend}: bare coredis {costs.floor:.0f} us, a turn at 20 messages {costs.short:.0f} us"
            f" ({costs.over_floor:.2f} times), at {LONG} {costs.long:.0f} us ({costs.growth:.2f} times that);"
            f" in the server {costs.served_short:.0f} and {costs.served_long:.0f} us ({costs.growth_in_server:.2f} times)"
        )


if __name__ == "__main__":
    report(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379/0")
