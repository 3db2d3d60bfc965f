"""Redis says of any history what the store in memory says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.errors import ChatMemoryError
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

from ._redis_servers import Clock, cluster_url, repository, server

pytestmark = pytest.mark.slow  # asks a server
IDS = ("c", "d", "e")
LIFE = timedelta(seconds=100)

_message = st.one_of(
    st.sampled_from(["A", "B", "C"]).map(SystemMessage),
    st.sampled_from("xy").map(UserMessage),
    st.sampled_from("xy").map(AssistantMessage),
    st.just(ToolMessage("r", tool_call_id="k")),
)
_batch = st.lists(_message, max_size=4)
_retention = st.one_of(
    st.none(),
    st.builds(
        Retention,
        ttl=st.sampled_from([None, LIFE, LIFE * 2, timedelta.max]),
        max_messages=st.sampled_from([None, 1, 2, 3, 5]),
    ),
)
_id = st.sampled_from(IDS)


@dataclass(frozen=True)
class Step:
    kind: str
    conversation_id: str
    batch: list[Message]
    retention: Retention | None
    other: str
    number: int
    keep: list[bool]
    late: bool


_kinds = ["append"] * 6 + ["again", "replace", "edit", "edit", "delete", "fork", "fork", "rename", "wait", "prune", "lease"]
_step = st.builds(
    Step,
    st.sampled_from(_kinds),
    _id,
    _batch,
    _retention,
    _id,
    st.integers(0, 12),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.booleans(),
)


class Player:
    """Does the same steps on a store, and remembers what a caller would."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.lives: dict[str, int] = {}
        self.tokens: dict[str, int | None] = {}

    async def play(self, step: Step, place: int) -> Any:
        try:
            return await self._done(step, place)
        except ChatMemoryError as error:
            return type(error).__name__

    async def _done(self, step: Step, place: int) -> Any:
        store, name = self.store, step.conversation_id
        if step.kind in ("append", "again"):
            turn_id = f"t{step.number if step.kind == 'again' else 100 + place}"
            given: dict[str, Any] = {"incarnation": self.lives.get(name)} if step.late else {}
            if step.number == 3:
                given["expected"] = 2
            if step.number == 4 and self.tokens.get(name):
                given["token"] = self.tokens[name]
            return await store.append(name, step.batch, turn_id=turn_id, retention=step.retention, **given)
        if step.kind == "replace":
            return await store.replace(name, step.batch, retention=step.retention)
        if step.kind == "edit":
            kept = [entry for entry, keep in zip(await entries(store, name), step.keep, strict=False) if keep]
            summary = Entry(99, "s", AssistantMessage("so far"), datetime(2026, 1, 1, tzinfo=UTC), "summary", covers=4)
            items = [*kept, *([summary] if step.number % 3 == 0 else []), *step.batch]
            given = {"incarnation": self.lives.get(name)} if step.late else {}
            return await store.replace(name, items, retention=step.retention, **given)
        if step.kind == "fork":
            return await store.fork(name, step.other, at=step.number if step.late else None)
        if step.kind == "rename":
            return await store.rename(name, step.other)
        if step.kind == "delete":
            return await store.delete(name)
        if step.kind == "wait":
            self.clock.seconds += 60
            return None
        if step.kind == "prune":
            return await store.prune(prefix=name if step.late else "")
        self.tokens[name] = await store.acquire(name, "one", 30)
        if step.late:
            await store.release(name, self.tokens[name] or 0)
        return self.tokens[name] is not None

    async def seen(self, *, deep: bool) -> Any:
        listed = (await self.store.conversations()).items
        found: list[Any] = [[(row.conversation_id, row.count, row.expires and row.expires - row.updated) for row in listed]]
        for name in IDS:
            everything = await entries(self.store, name)
            found.append([plain(entry) for entry in everything])
            backwards = await self.store.page(name, limit=3, newest_first=True)
            found.append(([plain(entry) for entry in backwards.items], backwards.next is None))
            ends = [None, *sorted({entry.sequence + more for entry in everything for more in (0, 1)})] if deep else [None]
            for before in ends:
                for last in (None, 0, 1, 2, 5) if deep else (3,):
                    recall = await self.store.recall(name, last, before=before)
                    found.append((name, last, before, self._plain_recall(recall)))
            self.lives[name] = (await self.store.recall(name, 0)).incarnation or self.lives.get(name, 0)
        return found

    def _plain_recall(self, recall: Any) -> Any:
        return (
            recall.revision, bool(recall.incarnation), recall.count, [plain(e) for e in recall.tail],
            [plain(e) for e in recall.systems], recall.question and plain(recall.question),
            recall.summary and plain(recall.summary),
        )  # fmt: skip


def plain(entry: Entry) -> Any:
    turn_id = entry.turn_id if len(entry.turn_id) < 10 else "new"
    return entry.sequence, turn_id, entry.message, entry.kind, entry.covers


async def entries(store: Any, name: str) -> list[Entry]:
    return list((await store.page(name, limit=1000)).items)


def check(examples: int, url: str) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(steps=st.lists(_step, max_size=10))
    def same(steps: list[Step]) -> None:
        anyio.run(compare, url, steps)

    same()


async def compare(url: str, steps: list[Step]) -> None:
    clock = Clock()
    redis = repository(url, clock=clock)
    players = [Player(InMemoryChatMemoryRepository(clock=clock), clock), Player(redis, clock)]
    try:
        for place, step in enumerate(steps):
            start = clock.seconds
            results = []
            for player in players:
                clock.seconds = start
                results.append(await player.play(step, place))
            assert results[0] == results[1], step
            deep = place == len(steps) - 1
            assert await players[0].seen(deep=deep) == await players[1].seen(deep=deep), step
    finally:
        await redis.aclose()


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_both_stores_give_the_same() -> None:
    check(25, server("redis").url)


@pytest.mark.long
@pytest.mark.slow
def test_both_stores_give_the_same_for_long() -> None:
    check(100, server("valkey").url)


@pytest.mark.long
@pytest.mark.slow
def test_a_cluster_gives_the_same() -> None:
    check(40, cluster_url())
