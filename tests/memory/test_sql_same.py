"""SQL databases say of any history what the store in memory says."""

from __future__ import annotations

import tempfile
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository

from ._redis_servers import Clock
from ._sql_servers import ON_SERVERS, SERVERS, Place
from .test_redis_same import Player, Step, _step

KINDS = pytest.mark.parametrize("kind", ["sqlite-memory", *ON_SERVERS])


def check(kind: str, examples: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(kind, Path(folder))

        @settings(max_examples=examples, deadline=None)
        @given(steps=st.lists(_step, max_size=10))
        def same(steps: list[Step]) -> None:
            anyio.run(compare, place, steps)

        try:
            same()
        finally:
            place.close()


async def compare(place: Place, steps: list[Step]) -> None:
    clock = Clock()
    async with aclosing(place.repository(clock=clock)) as repository:
        await repository.prune(limit=1)  # makes the tables
        if place.kind in SERVERS:  # those of the last example are still there
            for name in ("conversations", "entries", "turns", "leases"):
                place.run(f"DELETE FROM {{}}{name}")
        players = [Player(InMemoryChatMemoryRepository(clock=clock), clock), Player(repository, clock)]
        for number, step in enumerate(steps):
            start = clock.seconds
            results = []
            for player in players:
                clock.seconds = start
                results.append(await player.play(step, number))
            assert results[0] == results[1], step
            deep = number == len(steps) - 1
            assert await players[0].seen(deep=deep) == await players[1].seen(deep=deep), step


@KINDS
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_both_stores_give_the_same(kind: str) -> None:
    check(kind, 25)


@pytest.mark.long
@pytest.mark.slow
@KINDS
def test_both_stores_give_the_same_for_long(kind: str) -> None:
    check(kind, 100)
