"""The in-memory and the SQLite repository say the same of any history."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.errors import (
    ChatMemoryError,
)
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Entry, Recall, Retention, in_force
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

from ._kit import Clock, both_by, everything, pair

_systems = st.sampled_from(["A", "B", "C"]).map(SystemMessage)
_message = st.one_of(
    _systems, st.sampled_from("xy").map(UserMessage), st.sampled_from("xy").map(AssistantMessage),
    st.just(ToolMessage("r", tool_call_id="k")),
)  # fmt: skip
_batch = st.lists(_message, max_size=4)
_IDS = ("c", "d", "ee")
_retention = st.one_of(
    st.none(),
    st.builds(
        Retention,
        ttl=st.sampled_from([None, timedelta(seconds=5), timedelta(seconds=20), timedelta.max]),
        max_messages=st.sampled_from([None, 1, 2, 3, 5]),
    ),
)
_KINDS = (
    *["append"] * 6, "turn", "turn", "again", "replace", "edit", "edit", "delete", "rename", "fork", "fork", "fork", "prune",
    "wait", "wait", "begin", "lease",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What to do; a method takes of it what it needs."""

    kind: str
    name: str
    other: str
    batch: list[Message]
    retention: Retention | None
    number: int


_steps = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(_KINDS),
        name=st.sampled_from([*_IDS[:1] * 4, *_IDS]),
        other=st.sampled_from(_IDS),
        batch=_batch,
        retention=_retention,
        number=st.integers(0, 12),
    ),
    max_size=12,
)


class Player:
    """Applies steps to one store, and knows what a program would: turns it began, leases it has."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.begun: dict[str, Recall] = {}
        self.tokens: dict[str, int | None] = {}

    async def play(self, step: Step, place: int) -> Any:
        """What the step gave, or the kind of error."""
        try:
            return await getattr(self, step.kind, self.append)(step, place)
        except ChatMemoryError as error:
            return type(error).__name__

    async def append(self, step: Step, place: int) -> Any:
        return await self.store.append(step.name, step.batch, turn_id=f"t{place}", retention=step.retention)

    async def turn(self, step: Step, place: int) -> Any:
        """One that was begun before, and may come too late."""
        begun = self.begun.get(step.name, Recall())
        expected = begun.revision if step.number % 2 else None
        token = self.tokens.get(step.name) if step.number % 3 else None
        rules = {"incarnation": begun.incarnation, "expected": expected, "token": token}
        return await self.store.append(step.name, step.batch, turn_id=f"t{place}", retention=step.retention, **rules)

    async def again(self, step: Step, place: int) -> Any:
        turn_id = f"t{step.number % (place + 1)}"
        return await self.store.append(step.name, step.batch, turn_id=turn_id, retention=step.retention)

    async def replace(self, step: Step, place: int) -> Any:
        begun = self.begun.get(step.name, Recall()) if step.number % 2 else Recall()
        return await self.store.replace(
            step.name, step.batch, incarnation=begun.incarnation or None, retention=step.retention
        )

    async def edit(self, step: Step, place: int) -> Any:
        chance = random.Random(step.number + place)
        kept = [entry for entry in (await self.store.page(step.name, limit=1000)).items if chance.random() < 0.7]
        summary = Entry(10_000, "s", AssistantMessage("so far"), datetime(2026, 1, 1, tzinfo=UTC), "summary", covers=4)
        summaries = [summary] if step.number % 3 == 0 else []
        return await self.store.replace(step.name, [*kept, *summaries, *step.batch], retention=step.retention)

    async def delete(self, step: Step, place: int) -> Any:
        return await self.store.delete(step.name)

    async def rename(self, step: Step, place: int) -> Any:
        return await self.store.rename(step.name, step.other)

    async def fork(self, step: Step, place: int) -> Any:
        return await self.store.fork(step.name, step.other, at=step.number if step.number < 10 else None)

    async def prune(self, step: Step, place: int) -> Any:
        before = self.clock.now() - timedelta(seconds=step.number * 2) if step.number < 8 else None
        prefix, total = ("", "c", "e")[step.number % 3], 0
        while gone := await self.store.prune(before=before, prefix=prefix, limit=1 + step.number):
            total += gone
        return total

    async def begin(self, step: Step, place: int) -> Any:
        self.begun[step.name] = await self.store.recall(step.name, 1)

    async def lease(self, step: Step, place: int) -> Any:
        token = self.tokens.get(step.name)
        if token and step.number % 2:
            return await self.store.release(step.name, token)
        self.tokens[step.name] = await self.store.acquire(step.name, step.other, 1 + step.number)
        return bool(self.tokens[step.name])

    async def wait(self, step: Step, place: int) -> None:
        """The test moves the clock, once for all stores."""


def _plain(value: Recall) -> Any:
    """Without what is random."""
    entry = lambda e: e and (e.sequence, e.message, e.kind, e.covers, e.created)  # noqa: E731
    return (
        value.revision, bool(value.incarnation), value.count,
        [entry(e) for e in value.tail], [entry(e) for e in value.systems], entry(value.question), entry(value.summary),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(steps=_steps)
def test_both_stores_give_the_same(steps: list[Step]) -> None:
    anyio.run(_compare, steps)


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(steps=_steps)
def test_both_stores_give_the_same_for_long(steps: list[Step]) -> None:
    anyio.run(_compare, steps)


async def _compare(steps: list[Step]) -> None:
    clock = Clock()
    memory = InMemoryChatMemoryRepository(clock=clock)
    sqlite = SqliteChatMemoryRepository(":memory:", clock=clock)
    players = [Player(memory, clock), Player(sqlite, clock)]
    try:
        with both_by(clock):
            for place, step in enumerate(steps):
                results = [await player.play(step, place) for player in players]
                assert results[0] == results[1]
                clock.seconds += step.number if step.kind == "wait" else 0.001
                await _check_alike(memory, sqlite)
    finally:
        await sqlite.aclose()


async def _check_alike(memory: Any, sqlite: Any) -> None:
    rows = [(await store.conversations()).items for store in (memory, sqlite)]
    assert rows[0] == rows[1]
    for row in rows[0]:
        name = row.conversation_id
        for newest_first in (False, True):
            shown = [await _pages(store, name, newest_first) for store in (memory, sqlite)]
            assert shown[0] == shown[1]
            assert sum(map(len, shown[0])) == row.count
        last = max(entry[0] for part in shown[0] for entry in part)
        for most in (None, 0, 1, 2, 5):
            for before in (None, *range(last + 2)):
                ours = [_plain(await store.recall(name, most, before=before)) for store in (memory, sqlite)]
                assert ours[0] == ours[1], (most, before)
    await _check_counts(sqlite)


async def _pages(store: Any, name: str, newest_first: bool) -> list[list[Any]]:
    parts, page = [], await store.page(name, limit=3, newest_first=newest_first)
    while True:
        parts.append([(e.sequence, e.message, e.kind, e.covers, e.created) for e in page.items])
        if page.next is None:
            return parts
        page = await store.page(name, limit=3, newest_first=newest_first, after=page.next)


async def _check_counts(sqlite: Any) -> None:
    """What a row tells of its entries is so, and no entry or turn is without a row."""
    wrong = """
        SELECT key FROM conversations WHERE
        size <> (SELECT count(*) FROM entries WHERE conversation = key)
        OR spoken <> (SELECT count(*) FROM entries WHERE conversation = key AND lane = 0)
        OR question <> (SELECT coalesce(max(question), 0) FROM entries WHERE conversation = key AND lane = 0)
        OR summary <> (SELECT coalesce(max(sequence), 0) FROM entries WHERE conversation = key AND lane = 3)
        UNION SELECT conversation FROM entries WHERE conversation NOT IN (SELECT key FROM conversations)
        UNION SELECT conversation FROM turns WHERE conversation NOT IN (SELECT key FROM conversations)
    """
    assert await sqlite._file.run("BEGIN", lambda db: db.execute(wrong).fetchall()) == []


# Often "A", then "A" again and "B": a cut between the two takes away what made the first one decide.
_ruling = st.lists(st.sampled_from([SystemMessage("A"), SystemMessage("B"), *pair(1)]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(writes=st.lists(st.tuples(_ruling, _retention), min_size=2, max_size=6), later=_ruling)
def test_a_fork_says_what_the_log_had_said_there(
    writes: list[tuple[list[Message], Retention | None]], later: list[Message]
) -> None:
    async def check(store: Any) -> list[Any]:
        for number, (batch, retention) in enumerate(writes):
            await store.append("c", batch, turn_id=f"t{number}", retention=retention)
        seen: list[Any] = []
        for entry in await everything(store):
            at, name = entry.sequence, f"at {entry.sequence}"
            assert await store.fork("c", name, at=at)
            for last in (None, 0, 1, 3):
                there, copy = await store.recall("c", last, before=at + 1), await store.recall(name, last)
                assert _read(there) == _read(copy), (at, last)
            await store.append(name, later, turn_id="later", retention=Retention(max_messages=2))
            await store.append(name, [SystemMessage("A"), *pair(1)], turn_id="last")
            for end in (None, at + 1, at + len(later) + 1):
                found = await store.recall(name, None, before=end)
                seen.append(
                    [found.count, *([(e.sequence, e.message) for e in part] for part in (found.tail, found.systems))]
                )
        return seen

    async def both() -> None:
        sqlite = SqliteChatMemoryRepository(":memory:")
        try:
            assert await check(InMemoryChatMemoryRepository()) == await check(sqlite)
            await _check_counts(sqlite)
        finally:
            await sqlite.aclose()

    anyio.run(both)


def _read(recall: Recall) -> Any:
    return recall.tail, recall.systems, recall.question, recall.summary


@settings(max_examples=100)
@given(batches=st.lists(_batch, max_size=6))
def test_systems_in_force_is_the_fold_of_in_force(batches: list[list[Message]]) -> None:
    async def check() -> None:
        repository = InMemoryChatMemoryRepository()
        current: tuple[SystemMessage, ...] = ()
        for number, batch in enumerate(batches):
            await repository.append("c", batch, turn_id=f"t{number}")
            found = in_force(current, batch)
            current = current if found is None else found
            assert tuple(e.message for e in (await repository.recall("c", 1)).systems) == current

    anyio.run(check)
