"""MongoDB: the laws, and any history. Run against nx-27017, which speaks its protocol; no real mongod was at hand.

Where the stand-in is known to differ: it compares texts that look like times as times, so that the ids "2026-01-02" and
"2026-01-02T00:00:00" are one to it; to MongoDB they are two.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisorchain.errors import (
    ChatMemoryError,
)
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import AssistantMessage, SystemMessage, UserMessage
from advisorchain.testing.repository_laws import REPOSITORY_LAWS, Means, RepositoryLaw

from ._kit import check_no_remains, closing

pytestmark = pytest.mark.slow  # asks a server


@pytest.mark.parametrize("law", REPOSITORY_LAWS, ids=lambda law: law.name)
async def test_law(law: RepositoryLaw, means: Means) -> None:
    await law.run(means)


# -- the same as the in-memory repository, whatever comes in whatever order

IDS = st.sampled_from(["a", "b"])
TEXTS = st.sampled_from(["x", "y", "z"])
ONE = st.one_of(
    TEXTS.map(UserMessage),
    TEXTS.map(UserMessage),
    TEXTS.map(AssistantMessage),
    TEXTS.map(SystemMessage),
)
BATCH = st.lists(ONE, min_size=1, max_size=5)
RETENTION = st.sampled_from(
    [
        None,
        None,
        Retention(timedelta(seconds=50)),
        Retention(timedelta.max),
        Retention(max_messages=1),
        Retention(max_messages=3),
        Retention(timedelta(seconds=90), max_messages=4),
    ]
)
STEP = st.one_of(
    st.tuples(st.just("append"), IDS, BATCH, st.integers(1, 12), RETENTION),
    st.tuples(st.just("append"), IDS, BATCH, st.integers(1, 1000), RETENTION),
    st.tuples(st.just("append_late"), IDS, BATCH, st.integers(1, 1000)),
    st.tuples(st.just("replace"), IDS, BATCH, RETENTION),
    st.tuples(st.just("cut"), IDS, st.lists(st.booleans(), max_size=30), RETENTION),
    st.tuples(st.just("summarise"), IDS, st.integers(0, 5), RETENTION),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("rename"), IDS, IDS),
    st.tuples(st.just("fork"), IDS, IDS, st.one_of(st.none(), st.integers(0, 12))),
    st.tuples(st.just("prune")),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("acquire"), IDS, st.sampled_from(["one", "two"]), st.integers(1, 40)),
)


class Told:
    """A repository, and what was told of it before; random names are numbered as they come."""

    def __init__(self, repository: Any) -> None:
        self.repository = repository
        self.lives: dict[str, int] = {}
        self.names: dict[Any, int] = {}

    def number(self, name: Any) -> int:
        return self.names.setdefault(name, len(self.names))

    async def step(self, what: str, *given: Any) -> Any:
        try:
            return await getattr(self, what)(*given)
        except ChatMemoryError as error:
            return type(error)

    async def append(self, name: str, batch: Any, turn: int, retention: Any) -> Any:
        return await self.repository.append(name, batch, turn_id=f"t{turn}", retention=retention)

    async def append_late(self, name: str, batch: Any, turn: int) -> Any:
        return await self.repository.append(name, batch, turn_id=f"t{turn}", incarnation=self.lives.get(name))

    async def replace(self, name: str, batch: Any, retention: Any) -> Any:
        return await self.repository.replace(name, batch, retention=retention)

    async def cut(self, name: str, kept: list[bool], retention: Any) -> Any:
        stored = (await self.repository.page(name, limit=1000)).items
        return await self.repository.replace(
            name, [entry for entry, stays in zip(stored, kept, strict=False) if stays], retention=retention
        )

    async def summarise(self, name: str, place: int, retention: Any) -> Any:
        stored = list((await self.repository.page(name, limit=1000)).items)
        created = datetime(2026, 1, 1, tzinfo=UTC)
        summary = Entry(10**6, "s", AssistantMessage("so far"), created, "summary", covers=place)
        return await self.repository.replace(name, [*stored[:place], summary, *stored[place:]], retention=retention)

    async def delete(self, name: str) -> Any:
        return await self.repository.delete(name)

    async def rename(self, name: str, other: str) -> Any:
        return await self.repository.rename(name, other)

    async def fork(self, name: str, other: str, at: Any) -> Any:
        return await self.repository.fork(name, other, at=at)

    async def prune(self) -> Any:
        return await self.repository.prune()

    async def acquire(self, name: str, owner: str, seconds: int) -> Any:
        return (await self.repository.acquire(name, owner, seconds)) is None

    async def seen(self) -> list[Any]:
        found: list[Any] = []
        for name in ("a", "b"):
            page = await self.repository.page(name, limit=3)
            entries = list(page.items)
            while page.next:
                page = await self.repository.page(name, limit=3, after=page.next)
                entries += page.items
            found.append([self.shown(entry) for entry in entries])
            back = await self.repository.page(name, newest_first=True)
            assert list(back.items) == entries[::-1]
            for last, before in ((0, None), (1, None), (4, None), (None, None), (2, 4), (3, 9), (None, 6)):
                recall = await self.repository.recall(name, last, before=before)
                self.lives[name] = recall.incarnation or self.lives.get(name, 0)
                found.append((recall.revision, self.number(("life", recall.incarnation)), recall.count))
                found += [[self.shown(entry) for entry in part] for part in (recall.tail, recall.systems)]
                found += [entry and self.shown(entry) for entry in (recall.question, recall.summary)]
        rows = (await self.repository.conversations()).items
        return [*found, *((row.conversation_id, row.count, row.expires and row.expires - row.updated) for row in rows)]

    def shown(self, entry: Entry) -> Any:
        return entry.sequence, self.number(entry.turn_id), entry.message, entry.kind, entry.covers


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=14))
def test_it_does_what_the_in_memory_repository_does(fresh: Any, steps: list[Any]) -> None:
    anyio.run(_same_as_in_memory, fresh, steps)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@example([  # a cut before which nothing was spoken: what was repeated there goes all the same
    ("append_late", "a", [SystemMessage("x"), SystemMessage("x"), UserMessage("x"), AssistantMessage("x")], 1),
    ("summarise", "a", 0, Retention(max_messages=1)),
])  # fmt: skip
@given(steps=st.lists(STEP, max_size=30))
def test_it_does_what_the_in_memory_repository_does_at_length(fresh: Any, steps: list[Any]) -> None:
    anyio.run(_same_as_in_memory, fresh, steps)


async def _same_as_in_memory(fresh: Any, steps: list[Any]) -> None:
    now = [1000.0]
    async with closing(fresh(clock=lambda: now[0])) as mongo:
        expected, found = Told(InMemoryChatMemoryRepository(clock=lambda: now[0])), Told(mongo)
        for step in steps:
            if step[0] == "wait":
                now[0] += step[1]
            else:
                assert await found.step(*step) == await expected.step(*step), step
            assert await found.seen() == await expected.seen(), step
        now[0] += 7200
        while await mongo.prune():
            pass
        check_no_remains(mongo)
