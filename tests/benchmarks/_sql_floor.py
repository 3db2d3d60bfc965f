"""What a turn on SQL databases costs: beside the bare driver doing two trips, in a long conversation beside a short one, and
for the event loop beside a slow database. `stores.py` holds it to its bounds.

The bare driver is psycopg as it comes, each statement on its own, in the same kind of threads: it loads the same columns of
the same rows, and inserts two.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any
from uuid import uuid4

import anyio
import psycopg
from anyio import to_thread
from sqlalchemy import create_engine

sys.path.insert(0, str(Path(__file__).parent.parent / "memory"))

from _sql_servers import Place
from _turns import LONG, ROUNDS, WINDOW, Cost, Step, by_length, in_turn, ours, turn, turns

from advisorchain.messages import dump_message

HELD = 0.03  # seconds that a lock is held
BEATS = 0.001  # seconds between two of the heart


@contextmanager
def placed(kind: str) -> Iterator[Place]:
    """Tables of our own on a server, or a file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(kind, Path(folder), fresh=True)
        try:
            yield place
        finally:
            place.close()


async def beside_the_driver(place: Place, rounds: int = ROUNDS) -> tuple[Cost, Cost]:
    """A turn with the bare driver, and with the repository: the median of rounds, both measured in turn within each."""
    async with aclosing(place.repository()) as repository:
        await repository.replace("c", turns(WINDOW // 2))
        with psycopg.connect(place.url.set(drivername="postgresql").render_as_string(), autocommit=True) as connection:
            bare = _bare(connection, f"{place.prefix}bare")
            found = await in_turn([bare, ours(repository, "c")], rounds)
    return found[0], found[1]


def _bare(connection: psycopg.Connection[Any], table: str) -> Step:
    columns = "lane, sequence, turn_id, created, covers, message"
    connection.execute(
        f"CREATE TABLE {table} (log BIGINT, lane SMALLINT, sequence BIGINT, turn_id VARCHAR(255), created BIGINT,"
        " covers BIGINT, message TEXT, PRIMARY KEY (log, lane, sequence))"
    )
    insert = f"INSERT INTO {table} VALUES (1, 0, %s, %s, %s, NULL, %s), (1, 0, %s, %s, %s, NULL, %s)"
    newest = f"SELECT {columns} FROM {table} WHERE log = %s AND lane = 0 ORDER BY sequence DESC LIMIT {WINDOW}"
    last = 0

    def load() -> list[Any]:
        with connection.cursor() as cursor:
            return cursor.execute(newest, (1,)).fetchall()

    def store(messages: list[str]) -> None:
        nonlocal last
        turn_id, last = uuid4().hex, last + 2
        with connection.cursor() as cursor:
            cursor.execute(insert, (last - 1, turn_id, 1, messages[0], last, turn_id, 1, messages[1]))

    async def step(number: int) -> None:
        found = await to_thread.run_sync(load)
        assert len(found) == WINDOW
        await to_thread.run_sync(store, [dump_message(message) for message in turn(number)])

    for number in range(WINDOW // 2):
        store([dump_message(message) for message in turn(number)])
    return step


async def heartbeat(place: Place, rounds: int = 5) -> tuple[float, float]:
    """The longest gap between two beats of the event loop, in seconds: over bare thread hops that sleep, and over a store
    that waits for a lock; the median of rounds, both in turn within each.
    """
    async with aclosing(place.repository()) as repository:
        await repository.replace("c", turns(LONG // 2))
        lock = _Lock(place)

        async def hops() -> None:
            for _ in range(10):
                await to_thread.run_sync(time.sleep, HELD)

        async def stores() -> None:
            for number in range(10):
                await to_thread.run_sync(lock.take)
                await repository.append("c", turn(number), turn_id=uuid4().hex)
                await repository.recall("c", WINDOW)

        bare, slow = [], []
        for _ in range(rounds):
            bare.append(await _longest_gap(hops))
            slow.append(await _longest_gap(stores))
        lock.close()
    return median(bare), median(slow)


class _Lock:
    """Another program that takes the conversation's lock and keeps it for a while, again and again, on one connection."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._taken: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def take(self) -> None:
        """Comes back when the lock is held."""
        self._orders.put(True)
        self._taken.get(timeout=30)

    def close(self) -> None:
        self._orders.put(False)
        self._thread.join()

    def _serve(self) -> None:
        statement = f"SELECT revision FROM {self._place.prefix}conversations FOR UPDATE"
        engine = create_engine(self._place.url)
        with engine.connect() as connection:
            while self._orders.get():
                connection.exec_driver_sql("BEGIN IMMEDIATE" if self._place.kind == "sqlite-file" else statement)
                self._taken.put(True)
                time.sleep(HELD)
                connection.rollback()
        engine.dispose()


async def _longest_gap(work: Callable[[], Awaitable[None]]) -> float:
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await anyio.sleep(BEATS)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    gc.collect()
    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        await work()
        group.cancel_scope.cancel()
    return longest


async def _by_length(place: Place) -> tuple[Cost, Cost]:
    async with aclosing(place.repository()) as repository:
        return await by_length(repository)


def bounds(kind: str, backend: str = "asyncio") -> Iterator[tuple[str, float, float]]:
    """What is held to a bound: its name, the bound, what was found."""
    with placed(kind) as place:
        if kind == "postgresql":
            bare, own = anyio.run(beside_the_driver, place, backend=backend)
            told = f"{own.cpu:.0f} us CPU and {own.wall:.0f} us in all, beside {bare.cpu:.0f} and {bare.wall:.0f}"
            yield f"{kind}, {backend}: a turn / the bare driver's, CPU ({told})", 1.6, own.cpu / bare.cpu
    with placed(kind) as place:
        short, long = anyio.run(_by_length, place, backend=backend)
        yield f"{kind}, {backend}: a turn at {LONG} messages / at 20, CPU ({long.cpu:.0f} us)", 1.3, long.cpu / short.cpu
        told = f"{long.wall:.0f} us"
        yield f"{kind}, {backend}: a turn at {LONG} messages / at 20, with the server ({told})", 1.3, long.wall / short.wall
    with placed(kind) as place:
        hop, slow = anyio.run(heartbeat, place, backend=backend)
        told = f"{slow * 1e3:.1f} ms"
        yield f"{kind}, {backend}: longest gap of the loop beside a slow store / beside hops ({told})", 3.0, slow / hop
