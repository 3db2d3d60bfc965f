"""The concurrency rule `Fork`: a turn that finds another one under way, or was overtaken, goes to a branch; and turns that
take the place of the last one, under every rule."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.errors import (
    ConversationConflictError,
    ConversationDeletedError,
    ConversationIdError,
    LeaseLostError,
    StorageError,
)
from advisorchain.memory import (
    Append,
    ChatMemory,
    ConcurrencyRule,
    Fork,
    InMemoryChatMemoryRepository,
    Reject,
    Retention,
    Serialize,
    Turn,
    Unbounded,
)
from advisorchain.messages import AssistantMessage, SystemMessage, UserMessage

from .._asking import stored, texts
from ..cases._stores import TWO_KINDS, Clock, Store, opened
from .test_concurrency import Over, ids, is_free, said

U, A, S = UserMessage, AssistantMessage, SystemMessage


@pytest.fixture(params=TWO_KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


def memory_on(repository: Any, rule: ConcurrencyRule | None = None, **more: Any) -> ChatMemory:
    return ChatMemory(Unbounded(), repository, concurrency=Fork() if rule is None else rule, **more)


async def test_the_later_turn_goes_to_a_branch_of_what_it_had_read(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [S("brief"), U("u0"), A("a0")])
    first = await memory.begin("c", [U("u1")])
    with caplog.at_level(logging.INFO, "advisorchain"):
        second = await memory.begin("c", [U("u2")])
    assert first.conversation_id == "c"
    assert second.conversation_id.startswith("c~")
    assert len(second.conversation_id) == 10
    assert texts(second.history) == ["brief", "u0", "a0"]
    assert await ids(memory) == ["c"]
    await first.commit([A("a1")])
    await second.commit([A("a2")])
    await second.commit([A("a2")])
    assert await said(memory) == ["brief", "u0", "a0", "u1", "a1"]
    assert await said(memory, second.conversation_id) == ["brief", "u0", "a0", "u2", "a2"]
    assert await ids(memory) == ["c", second.conversation_id]
    assert await is_free(store)
    [record] = caplog.records
    assert (record.message, record.levelname) == ("advisorchain.memory.branched", "INFO")
    told = vars(record)
    assert (told["conversation_id"], told["branch"], told["reason"]) == ("c", second.conversation_id, "busy")
    third = await memory.begin(second.conversation_id, [U("u3")])  # a branch is a conversation like any other
    assert texts(third.history) == ["brief", "u0", "a0", "u2", "a2"]
    await third.commit([A("a3")])
    assert (await said(memory, second.conversation_id))[5:] == ["u3", "a3"]


async def test_a_branch_of_nothing_is_the_turn_alone(store: Store) -> None:
    memory = memory_on(store.repository)
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    await second.commit([A("a2")])
    await first.abandon()
    assert await ids(memory) == [second.conversation_id]
    assert await said(memory, second.conversation_id) == ["u2", "a2"]


async def test_a_branch_that_is_given_up_leaves_nothing(store: Store) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [U("u0"), A("a0")])
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    await second.abandon()
    assert not await is_free(store)
    await first.commit([A("a1")])
    assert await ids(memory) == ["c"]


async def test_a_branch_that_is_paused_is_there_to_go_on_from(store: Store) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [U("u0"), A("a0")])
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    await second.pause()
    await first.commit([A("a1")])
    again = await memory.begin(second.conversation_id, [U("u2")])
    assert texts(again.history) == ["u0", "a0"]
    await again.commit([A("a2")])
    assert await said(memory, second.conversation_id) == ["u0", "a0", "u2", "a2"]


@pytest.mark.parametrize("anew", [False, True])
async def test_what_was_deleted_does_not_live_on_in_a_branch(store: Store, anew: bool) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [U("u0"), A("a0")])
    first = await memory.begin("c", [U("u1")])
    second, paused = await memory.begin("c", [U("u2")]), await memory.begin("c", [U("u3")])
    await memory.clear("c")
    if anew:
        await memory.add("c", [U("other"), A("one")])
    for turn in (first, second):
        with pytest.raises(ConversationDeletedError):
            await turn.commit([A("a")])
        await turn.abandon()
    await paused.pause()
    assert await ids(memory) == (["c"] if anew else [])
    assert await is_free(store)


async def test_what_was_written_anew_meanwhile_is_kept_on_the_branch_as_it_was_read(store: Store) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [U("u0"), A("a0")])
    last = await memory.last_turn("c")
    first = await memory.begin("c", [U("u0")], replacing=last)
    second = await memory.begin("c", [U("u2")])
    await first.commit([A("better")])
    await second.commit([A("a2")])
    assert await said(memory) == ["u0", "better"]
    assert await said(memory, second.conversation_id) == ["u0", "a0", "u2", "a2"]


async def test_a_turn_that_was_overtaken_goes_to_a_branch(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [U("u0"), A("a0")])
    slow = await memory.begin("c", [U("u1")])
    store.clock.now += 121
    fast = await memory.begin("c", [U("u2")])
    assert fast.conversation_id == "c"
    await fast.commit([A("a2")])
    assert slow.conversation_id == "c"
    with caplog.at_level(logging.INFO, "advisorchain"):
        await slow.commit([A("a1")])
    assert await said(memory) == ["u0", "a0", "u2", "a2"]
    assert await said(memory, slow.conversation_id) == ["u0", "a0", "u1", "a1"]
    assert await ids(memory) == ["c", slow.conversation_id]
    assert [(record.levelname, vars(record)["reason"]) for record in caplog.records] == [("WARNING", "late")]


async def test_a_turn_on_a_branch_of_what_expired_meanwhile_is_not_stored(store: Store) -> None:
    memory = memory_on(store.repository, retention=Retention(ttl=timedelta(seconds=60)))
    await memory.add("c", [U("u0"), A("a0")])
    first = await memory.begin("c", [U("u1")])
    second = await memory.begin("c", [U("u2")])
    assert second.conversation_id != "c"
    store.clock.now += 61
    with pytest.raises(ConversationDeletedError, match="nothing was stored on a branch either"):
        await second.commit([A("a2")])
    await second.abandon()
    await first.abandon()
    assert await ids(memory) == []


async def test_a_turn_that_was_overtaken_goes_to_a_branch_also_when_the_first_try_fails(store: Store) -> None:
    over = Over(store.repository)
    memory = memory_on(over)
    slow = await memory.begin("c", [U("u1")])
    store.clock.now += 121
    fast = await memory.begin("c", [U("u2")])

    async def broken(*args: Any, **kwargs: Any) -> None:
        raise StorageError("the connection broke")

    over.recall = broken
    with pytest.raises(StorageError):
        await slow.commit([A("a1")])
    del over.recall
    await slow.commit([A("a1")])
    await fast.commit([A("a2")])
    assert await said(memory) == ["u2", "a2"]
    assert await said(memory, slow.conversation_id) == ["u1", "a1"]


async def test_a_branchs_name_is_the_applications_choice_and_never_another_conversation(store: Store) -> None:
    memory = memory_on(store.repository, Fork(name=lambda name: f"{name}/side"))
    await memory.add("c", U("u0"))
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    third = await memory.begin("c", [U("u3")])  # the name is free while the second is not stored
    assert (second.conversation_id, third.conversation_id) == ("c/side", "c/side")
    await second.commit([A("a2")])
    await third.commit([A("a3")])
    fourth = await memory.begin("c", [U("u4")])
    for turn in (third, fourth):
        assert turn.conversation_id.startswith("c/side~")
    await fourth.commit([A("a4")])
    await first.commit([A("a1")])
    assert await said(memory, "c/side") == ["u0", "u2", "a2"]
    assert await said(memory, third.conversation_id) == ["u0", "u3", "a3"]
    assert await said(memory, fourth.conversation_id) == ["u0", "u4", "a4"]


async def test_a_name_that_is_taken_by_a_branch_of_nothing_is_another_conversation_too(store: Store) -> None:
    memory = memory_on(store.repository, Fork(name=lambda name: "side"))
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    await memory.add("side", U("a stranger's"))
    await second.commit([A("a2")])
    await first.abandon()
    assert await said(memory, "side") == ["a stranger's"]
    assert await said(memory, second.conversation_id) == ["u2", "a2"]


async def test_a_name_that_is_none_is_refused_before_anything_happens(store: Store) -> None:
    memory = memory_on(store.repository, Fork(name=lambda name: ""))
    first = await memory.begin("c", [U("u1")])
    with pytest.raises(ConversationIdError):
        await memory.begin("c", [U("u2")])
    await first.commit([A("a1")])
    assert await ids(memory) == ["c"]


@given(st.text(min_size=1, max_size=255).filter(lambda text: not text.isspace() and "\0" not in text))
@settings(max_examples=50, deadline=None)
def test_every_id_has_branches(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return

    async def branch() -> str:
        memory = memory_on(InMemoryChatMemoryRepository())
        await memory.begin(name, [])
        return (await memory.begin(name, [])).conversation_id

    found = anyio.run(branch)
    assert found != name
    assert found[:-9] == name[:246]
    assert len(found) <= 255


@pytest.mark.parametrize("broken", ["fork", "append"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_branch_whose_store_failed_half_way_is_finished_by_the_next_try(
    store: Store, broken: str, after: bool
) -> None:
    over = Over(store.repository)
    memory = memory_on(over)
    await memory.add("c", [U("u0"), A("a0")])
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])

    async def breaking(*args: Any, **kwargs: Any) -> None:
        if after:
            await getattr(store.repository, broken)(*args, **kwargs)
        raise StorageError("the connection broke")

    setattr(over, broken, breaking)
    with pytest.raises(StorageError):
        await second.commit([A("a2")])
    delattr(over, broken)
    await second.commit([A("a2")])
    await first.commit([A("a1")])
    assert await said(memory, second.conversation_id) == ["u0", "a0", "u2", "a2"]
    assert await ids(memory) == ["c", second.conversation_id]


async def test_retention_goes_with_every_write_also_to_a_branch(store: Store) -> None:
    memory = memory_on(store.repository, retention=Retention(ttl=timedelta(hours=1), max_messages=4))
    await memory.add("c", [U("u0"), A("a0")])
    await memory.restore("d", await memory.snapshot("c"))
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    await second.commit([A("a2")])
    third = await memory.begin(second.conversation_id, [U("u3")])
    await third.commit([A("a3")])
    assert await said(memory, second.conversation_id) == ["u2", "a2", "u3", "a3"]
    found = (await memory.conversations()).items
    assert [row.expires is not None and row.expires - row.updated for row in found] == [timedelta(hours=1)] * 3
    store.clock.now += 1800
    last = await memory.last_turn("c")
    await first.abandon()
    again = await memory.begin("c", [U("u0")], replacing=last)
    await again.commit([A("again")])
    store.clock.now += 1801
    assert await ids(memory) == ["c"]  # each write begins the time anew
    store.clock.now += 3600
    assert await ids(memory) == []


# --- turns that take the place of the last one ------------------------------------------------------------------------

RULES: list[ConcurrencyRule] = [Append(), Serialize(), Reject(), Fork(), Serialize(late="append")]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}-{getattr(rule, 'late', '')}")


@every_rule
async def test_a_turn_is_replaced_and_the_lease_given_back(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store.repository, rule)
    await memory.add("c", [U("u0"), A("a0")])
    await memory.add("c", [U("u1"), A("a1")])
    turn = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))
    await turn.commit()
    assert await is_free(store)
    assert await said(memory) == ["u0", "a0", "u1", "a1"]  # without an answer the old one stays
    turn = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))
    await turn.commit([A("better")])
    await turn.commit([A("better")])
    assert await said(memory) == ["u0", "a0", "u1", "better"]
    assert await is_free(store)


@every_rule
async def test_a_turn_is_replaced_once_when_nothing_was_heard_of_the_first_try(store: Store, rule: ConcurrencyRule) -> None:
    over = Over(store.repository)
    memory = memory_on(over, rule)
    await memory.add("c", [U("u1"), A("a1")])
    turn = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))

    async def in_doubt(*args: Any, **kwargs: Any) -> None:
        await store.repository.replace(*args, **kwargs)
        raise StorageError("the connection broke")

    over.replace = in_doubt
    with pytest.raises(StorageError):
        await turn.commit([A("better")])
    del over.replace
    await turn.commit([A("better")])
    assert await said(memory) == ["u1", "better"]
    assert await ids(memory) == ["c"]
    assert await is_free(store)


@every_rule
async def test_a_turn_that_others_went_on_from_is_not_replaced(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store.repository, rule)
    await memory.add("c", [U("u1"), A("a1")])
    last = await memory.last_turn("c")
    turn = await memory.begin("c", [U("u1")], replacing=last)
    await memory.add("c", [U("u2"), A("a2")])
    with pytest.raises(ConversationConflictError):
        await memory_on(store.repository, Append()).begin("c", [U("u1")], replacing=last)
    if isinstance(rule, Fork):
        await turn.commit([A("better")])
        assert await said(memory, turn.conversation_id) == ["u1", "better"]
    else:
        with pytest.raises(ConversationConflictError):
            await turn.commit([A("better")])
        await turn.abandon()
    assert await said(memory) == ["u1", "a1", "u2", "a2"]
    assert await is_free(store)


async def test_a_turn_is_replaced_on_a_branch_while_another_one_is_under_way(store: Store) -> None:
    memory = memory_on(store.repository)
    await memory.add("c", [S("brief"), U("u0"), A("a0")])
    await memory.add("c", [U("u1"), A("a1")])
    first = await memory.begin("c", [U("u2")])
    second = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))
    await second.commit([A("better")])
    await first.commit([A("a2")])
    assert await said(memory) == ["brief", "u0", "a0", "u1", "a1", "u2", "a2"]
    assert await said(memory, second.conversation_id) == ["brief", "u0", "a0", "u1", "better"]


@pytest.mark.parametrize("late", ["refuse", "append", "branch"])
@pytest.mark.parametrize("written", [False, True])
async def test_a_replacing_turn_that_was_overtaken(store: Store, late: Any, written: bool) -> None:
    memory = memory_on(store.repository, Fork() if late == "branch" else Serialize(late=late))
    await memory.add("c", [U("u1"), A("a1")])
    turn = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))
    store.clock.now += 121
    other = await memory.begin("c", [U("u2")])
    if written:
        await other.commit([A("a2")])
    refused: dict[str, Any] = {"refuse": ConversationConflictError if written else LeaseLostError}
    if late == "append" and written:
        refused["append"] = ConversationConflictError
    if late in refused:
        with pytest.raises(refused[late]):
            await turn.commit([A("better")])
        await turn.abandon()
    else:
        await turn.commit([A("better")])
    here = ["u1", "better" if late == "append" and not written else "a1"]
    assert await said(memory) == [*here, *(["u2", "a2"] if written else [])]
    if late == "branch":
        assert await said(memory, turn.conversation_id) == ["u1", "better"]


class Unheard(Over):
    """Its first `replace` is done, but of that nothing is heard."""

    async def replace(self, *args: Any, **kwargs: Any) -> int:
        revision: int = await self.inner.replace(*args, **kwargs)
        self.replace = self.inner.replace
        raise StorageError(f"the connection broke at revision {revision}")


@pytest.mark.parametrize("rule", [Append(), Serialize(), Reject(), Fork()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("then", ["nothing", "a turn", "a turn under way"])
async def test_a_replacing_turn_is_stored_once_however_often_it_tries(
    store: Store, rule: ConcurrencyRule, then: str
) -> None:
    memory = memory_on(Unheard(store.repository), rule)
    await memory.add("c", [U("u1"), A("a1")])
    turn = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))
    with pytest.raises(StorageError):
        await turn.commit([A("better")])
    store.clock.now += 121
    if then != "nothing":
        other = await memory.begin("c", [U("u2")])
        if then == "a turn":
            await other.commit([A("a2")])
    await turn.commit([A("better")])
    await turn.commit([A("better")])
    assert await said(memory) == ["u1", "better", *(["u2", "a2"] if then == "a turn" else [])]
    assert await ids(memory) == ["c"]


async def test_a_conversation_begun_anew_while_it_is_read_for_replacing_is_left_alone(store: Store) -> None:
    """Its new life may be at the revision that the old one had."""
    over = Over(store.repository)
    memory = memory_on(over, Append())
    await memory.add("c", [U("u1"), A("a1")])
    turn = await memory.begin("c", [U("u1")], replacing=await memory.last_turn("c"))

    async def page(*args: Any, **kwargs: Any) -> Any:
        found = await store.repository.page(*args, **kwargs)
        await store.repository.delete("c")
        await store.repository.append("c", [U("new"), A("life")], turn_id="new")
        return found

    over.page = page
    with pytest.raises(ConversationDeletedError):
        await turn.commit([A("better")])
    assert await said(memory_on(store.repository)) == ["new", "life"]


# --- any sequence of turns --------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "commit", "commit", "abandon", "pause", "wait", "delete"]), st.integers(0, 3)),
    max_size=25,
)


@given(STEPS, st.sampled_from([Append(), Serialize(wait=0), Serialize(wait=0, late="append"), Reject(), Fork()]))
@settings(max_examples=300, deadline=None)
def test_a_turn_that_was_stored_is_whole_and_in_one_place_and_no_lease_is_left(
    steps: list[tuple[str, int]], rule: ConcurrencyRule
) -> None:
    anyio.run(run_steps, steps, rule)


async def run_steps(steps: list[tuple[str, int]], rule: ConcurrencyRule) -> None:
    clock = Clock()
    repository = InMemoryChatMemoryRepository(clock=clock)
    memory = memory_on(repository, rule)
    under_way: list[Turn] = []
    kept: dict[str, Turn] = {}
    for number, (step, which) in enumerate(steps):
        turn = under_way[which % len(under_way)] if under_way else None
        if step == "begin":
            try:
                under_way.append(await memory.begin("c", [U(f"u{number}")]))
            except ConversationConflictError:
                assert not isinstance(rule, Append | Fork)
        elif step == "wait":
            clock.now += 121
        elif step == "delete":
            await memory.clear("c")
            kept = {name: turn for name, turn in kept.items() if turn.conversation_id != "c"}
        elif turn is not None:
            under_way.remove(turn)
            if step != "commit":
                await (turn.abandon() if step == "abandon" else turn.pause())
                continue
            late = LeaseLostError if getattr(rule, "late", "") == "refuse" else ConversationDeletedError
            try:
                await turn.commit([A(f"a{number}")])
                kept[turn.turn_id] = turn
            except (late, ConversationDeletedError):
                await turn.abandon()
    for turn in under_way:
        await turn.abandon()
    await check_kept(memory, kept)
    assert not repository._leases or all(lease.expires <= clock.now for lease in repository._leases.values())


async def check_kept(memory: ChatMemory, kept: dict[str, Turn]) -> None:
    found: dict[str, list[tuple[str, int]]] = {}
    for name in await ids(memory):
        entries = (await memory.history(name, limit=1000)).items
        for place, entry in enumerate(entries):
            found.setdefault(entry.turn_id, []).append((name, place))
    for turn_id, turn in kept.items():
        (name, first), *rest = [where for where in found[turn_id] if where[0] == turn.conversation_id]
        assert rest == [(name, first + 1)]
        if turn.conversation_id != "c":
            messages = await stored(memory, turn.conversation_id)
            assert texts(messages[:first]) == texts(turn.history)
