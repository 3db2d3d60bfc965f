"""What a turn on MongoDB costs beside the bare driver doing two trips that load the same rows, and how that grows.

    python tests/benchmarks/_mongodb_floor.py [mongodb://127.0.0.1:27017]

A turn is a recall of the window of 20 and an append of a question with its answer. Without a URL the stand-in nx-27017 is
started: it answers from SQLite, so what a turn takes there is mostly the stand-in's own time. The client's CPU time, the
commands and the documents read do not depend on the server.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import anyio
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from advisorchain.memory.repositories.mongodb import MongoChatMemoryRepository
from advisorchain.messages import AssistantMessage, Message, UserMessage, dump_message

WINDOW = 20
LONG = 20_000  # messages
ROUNDS = 7
TURNS = 100  # in each round
_TEXT = "a sentence of about the length that people write to an assistant, and not much more than that. "


@dataclass(frozen=True)
class MongoTurn:
    """One turn: microseconds of the client's CPU, microseconds with the server's, commands sent, documents read."""

    cpu: float
    wall: float
    commands: float
    documents: float


@dataclass(frozen=True)
class MongoCosts:
    """A turn with the bare driver, and with the repository at both lengths."""

    floor: MongoTurn
    short: MongoTurn
    long: MongoTurn

    @property
    def over_floor(self) -> float:
        """How many times the floor's CPU time a turn at 20 messages takes."""
        return self.short.cpu / self.floor.cpu

    @property
    def growth(self) -> float:
        """How many times the CPU time at 20 messages it takes at 20,000."""
        return self.long.cpu / self.short.cpu

    @property
    def growth_with_server(self) -> float:
        """The same of the whole time, most of which is the server's."""
        return self.long.wall / self.short.wall


class _Counter(CommandListener):
    """Counts commands, and documents in their answers."""

    def __init__(self) -> None:
        self.commands = self.documents = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.commands += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        cursor = event.reply.get("cursor", {})
        self.documents += len(cursor.get("firstBatch", cursor.get("nextBatch", ())))

    def failed(self, event: CommandFailedEvent) -> None:
        pass


def turn(number: int) -> list[Message]:
    return [UserMessage(f"{number} {_TEXT}"), AssistantMessage(f"{number} {_TEXT * 3}")]


async def measure(url: str, *, rounds: int = ROUNDS, turns: int = TURNS) -> MongoCosts:
    """The median of the rounds; in each, all three are measured one after the other."""
    prefix, counter = f"floor_{uuid4().hex}_", _Counter()
    client: MongoClient[dict[str, Any]] = MongoClient(url, event_listeners=[counter])
    database = client["advisorchain_tests"]
    repository = MongoChatMemoryRepository(client, database=database.name, prefix=prefix)
    try:
        rows = database[f"{prefix}rows"]
        rows.create_index([("log", 1), ("sequence", 1)], unique=True)
        rows.insert_many(_rows(0, WINDOW // 2))
        await repository.replace("short", [m for number in range(WINDOW // 2) for m in turn(number)])
        await repository.replace("long", [m for number in range(LONG // 2) for m in turn(number)])

        async def bare(number: int) -> None:
            found = list(rows.find({"log": {"$eq": 1}}).sort("sequence", -1).limit(WINDOW))
            assert len(found) == WINDOW
            rows.insert_many(_rows(found[0]["sequence"] // 2 + 1, 1))

        def ours(conversation_id: str) -> Callable[[int], Awaitable[None]]:
            async def step(number: int) -> None:
                found = await repository.recall(conversation_id, WINDOW)
                assert len(found.tail) == WINDOW
                await repository.append(conversation_id, turn(number), turn_id=uuid4().hex)

            return step

        steps = [bare, ours("short"), ours("long")]
        found = [[await _measured(step, turns, counter) for step in steps] for _ in range(rounds)]
        return MongoCosts(*(_median(column) for column in zip(*found[1:], strict=True)))
    finally:
        await repository.aclose()
        for name in database.list_collection_names():
            if name.startswith(prefix):
                database.drop_collection(name)
        client.close()


def _rows(first: int, turns: int) -> list[dict[str, Any]]:
    said = [message for number in range(first, first + turns) for message in turn(number)]
    return [{"log": 1, "sequence": 2 * first + place, "message": dump_message(m)} for place, m in enumerate(said)]


async def _measured(step: Callable[[int], Awaitable[None]], turns: int, counter: _Counter) -> MongoTurn:
    counter.commands = counter.documents = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(turns):
        await step(number)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return MongoTurn(cpu / turns * 1e6, wall / turns * 1e6, counter.commands / turns, counter.documents / turns)


def _median(turns: tuple[MongoTurn, ...]) -> MongoTurn:
    return MongoTurn(*(median(getattr(each, name) for each in turns) for name in ("cpu", "wall", "commands", "documents")))


def report(url: str) -> None:
    for backend in ("asyncio", "trio"):
        costs = anyio.run(measure, url, backend=backend)
        for name, each in (("bare pymongo", costs.floor), ("20 messages", costs.short), (f"{LONG} messages", costs.long)):
            print(
                f"{backend}: {name}: {each.cpu:.0f} us CPU, {each.wall:.0f} us with the server,"
                f" {each.commands:.1f} commands, {each.documents:.1f} documents read"
            )
        print(
            f"{backend}: over the floor {costs.over_floor:.2f} times; from 20 to {LONG} messages {costs.growth:.2f} times,"
            f" with the server {costs.growth_with_server:.2f} times"
        )


@contextmanager
def _server() -> Any:
    sys.path.insert(0, str(Path(__file__).parent.parent / "memory"))
    from _mongodb_server import mongodb_url

    with mongodb_url() as url:
        print(f"server: {'a given one' if len(sys.argv) > 1 else 'nx-27017, or a server on the standard local port'}")
        yield url


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report(sys.argv[1])
    else:
        with _server() as found_url:
            report(found_url)
