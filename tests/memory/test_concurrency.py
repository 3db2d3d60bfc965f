"""Turns of one conversation at one time, under each concurrency rule, on every store."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.errors import (
    ConfigurationError,
    ConversationBusyError,
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
    MessageWindow,
    Recall,
    Reject,
    Retention,
    Serialize,
    Turn,
    Unbounded,
)
from advisorchain.memory._waiting import _LINES
from advisorchain.messages import AssistantMessage, Message, SystemMessage, UserMessage

from .._asking import given, stored, texts
from ..cases._stores import EACH_KIND, Store, opened

U, A, S = UserMessage, AssistantMessage, SystemMessage
LEASED: list[ConcurrencyRule] = [Serialize(), Reject(), Fork()]
leased = pytest.mark.parametrize("rule", LEASED, ids=lambda rule: type(rule).__name__)


@pytest.fixture(params=EACH_KIND)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


def memory_on(store: Store, rule: ConcurrencyRule, **more: Any) -> ChatMemory:
    return ChatMemory(repository=store.repository, concurrency=rule, **more)


async def said(memory: ChatMemory, conversation_id: str = "c") -> list[str]:
    return texts(await stored(memory, conversation_id))


async def ids(memory: ChatMemory) -> list[str]:
    return [found.conversation_id for found in (await memory.conversations()).items]


async def is_free(store: Store, conversation_id: str = "c") -> bool:
    token = await store.repository.acquire(conversation_id, "a probe", 60)
    if token is not None:
        await store.repository.release(conversation_id, token)
    return token is not None


class Over:
    """A repository over another one; a method that is set on it stands before that one's."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Serialize(lease=0), "lease"),
        (lambda: Serialize(lease=float("inf")), "lease"),
        (lambda: Reject(lease=True), "lease"),
        (lambda: Fork(lease="1"), "lease"),
        (lambda: Serialize(wait=-1), "wait"),
        (lambda: Serialize(wait=float("nan")), "wait"),
        (lambda: Serialize(late="branch"), "late"),
        (lambda: Reject(late="no"), "late"),
        (lambda: Fork(name="x"), "name"),
        (lambda: ChatMemory(concurrency="serialize"), "concurrency"),
        (lambda: ChatMemory(concurrency=Serialize), "concurrency"),
        (lambda: ChatMemory(retention=30), "retention"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{name}`"):
        make()


def test_a_rule_is_a_value_and_shows_itself() -> None:
    assert Serialize(30) == Serialize(lease=30.0)
    assert len({Append(), Append(), Serialize(), Reject(), Fork()}) == 4
    assert Serialize().wait > Serialize().lease  # who waits outlives the lease of a holder that died
    memory = ChatMemory(concurrency=Serialize(wait=5), retention=Retention(max_messages=9))
    assert "concurrency=Serialize(lease=120.0, wait=5, late='refuse'), retention=Retention(" in repr(memory)
    assert memory.describe()["policy"] == "MessageWindow(max_messages=20)"
    assert list(memory.describe()) == ["policy", "repository", "concurrency", "retention"]
    assert list(ChatMemory().describe()) == ["policy", "repository"]
    assert ChatMemory().concurrency == Append()


# --- every rule with a lease ------------------------------------------------------------------------------------------


@leased
async def test_a_turn_alone_is_stored_and_gives_its_lease_back(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    for number in (1, 2):
        turn = await memory.begin("c", [U(f"u{number}")])
        assert not await is_free(store)
        await turn.commit([A(f"a{number}")])
        await turn.commit([A(f"a{number}")])
        assert await is_free(store)
        assert turn.conversation_id == "c"
    assert await said(memory) == ["u1", "a1", "u2", "a2"]
    assert turn.history == (U("u1"), A("a1"))


@leased
async def test_a_turn_that_is_given_up_or_paused_or_empty_gives_its_lease_back(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    ends: list[Callable[[Turn], Awaitable[None]]] = [Turn.abandon, Turn.pause, lambda turn: turn.commit()]
    for end in ends:
        turn = await memory.begin("c", [])
        assert not await is_free(store)
        await end(turn)
        await end(turn)
        assert await is_free(store)
    assert await ids(memory) == []


@leased
async def test_conversations_do_not_wait_for_each_other(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    one, other = await memory.begin("c", [U("u1")]), await memory.begin("d", [U("u1")])
    await other.commit([A("a1")])
    await one.commit([A("a1")])
    assert await ids(memory) == ["c", "d"]


@leased
async def test_a_lease_that_ran_out_does_no_harm_while_nobody_else_asks(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    turn = await memory.begin("c", [U("u1")])
    store.clock.now += 10_000
    await turn.commit([A("a1")])
    assert await ids(memory) == ["c"]
    assert await is_free(store)


@leased
async def test_an_invalid_id_takes_no_lease(store: Store, rule: ConcurrencyRule) -> None:
    with pytest.raises(ConversationIdError):
        await memory_on(store, rule).begin(" ", [U("u1")])


class Failing(MessageWindow):
    def view(self, recall: Recall) -> tuple[Message, ...]:
        raise ValueError("broken")


@leased
async def test_a_turn_that_cannot_begin_gives_its_lease_back(store: Store, rule: ConcurrencyRule) -> None:
    with pytest.raises(ValueError, match="broken"):
        await ChatMemory(Failing(), store.repository, concurrency=rule).begin("c", [U("u1")])
    assert await is_free(store)


@leased
@pytest.mark.parametrize("at", ["acquire", "recall"])
@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_beginning_that_is_interrupted_leaves_no_lease(
    store: Store, rule: ConcurrencyRule, at: str, how: str
) -> None:
    over, scope = Over(store.repository), anyio.CancelScope()

    async def interrupted(*args: Any, **kwargs: Any) -> object:
        delattr(over, at)  # once
        await getattr(store.repository, at)(*args, **kwargs)  # it had its whole effect
        if how == "failed":
            raise StorageError("the connection broke")
        scope.cancel()
        await checkpoint()
        return None

    setattr(over, at, interrupted)
    memory = ChatMemory(repository=over, concurrency=rule)
    with scope, suppress(StorageError):
        await memory.begin("c", [U("u1")])
    assert not hasattr(vars(over), at)
    assert await is_free(store)


@leased
async def test_a_store_that_gives_no_lease_is_an_error(store: Store, rule: ConcurrencyRule) -> None:
    asked: list[float] = []

    async def broken(conversation_id: str, owner: str, seconds: float) -> None:
        asked.append(seconds)
        raise StorageError("down")

    over = Over(store.repository)
    over.acquire = broken
    with pytest.raises(StorageError, match="down"):
        await ChatMemory(repository=over, concurrency=rule).begin("c", [U("u1")])
    assert asked == [120.0, 1.0]  # the second time to give it back, should it be ours


@leased
async def test_a_lease_is_given_back_in_a_task_that_is_being_cancelled(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    turn = await memory.begin("c", [U("u1")])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await turn.abandon()
    assert await is_free(store)


@leased
async def test_a_store_that_cannot_take_a_lease_back_costs_no_answer(
    store: Store, rule: ConcurrencyRule, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object) -> None:
        raise StorageError("secret")

    over = Over(store.repository)
    over.release = broken
    memory = ChatMemory(repository=over, concurrency=rule)
    with caplog.at_level(logging.WARNING, "advisorchain"):
        await (await memory.begin("c", [U("u1")])).commit([A("a1")])
    assert await said(memory) == ["u1", "a1"]
    assert [record.message for record in caplog.records] == ["advisorchain.memory.release_failed"]
    assert "secret" not in str(vars(caplog.records[0]))
    over.release = anyio.sleep_forever
    monkeypatch.setattr("advisorchain.memory._hold._GIVE_BACK_SECONDS", 0)
    store.clock.now += 10_000
    over.release = lambda *_: anyio.sleep_forever()
    await (await memory.begin("c", [U("u2")])).commit([A("a2")])
    assert await said(memory) == ["u1", "a1", "u2", "a2"]


@leased
async def test_a_commit_that_failed_can_be_tried_again(store: Store, rule: ConcurrencyRule) -> None:
    over = Over(store.repository)

    async def in_doubt(*args: Any, **kwargs: Any) -> int:
        await store.repository.append(*args, **kwargs)
        raise StorageError("the connection broke")

    memory = ChatMemory(repository=over, concurrency=rule)
    turn = await memory.begin("c", [U("u1")])
    over.append = in_doubt
    with pytest.raises(StorageError):
        await turn.commit([A("a1")])
    del over.append
    await turn.commit([A("a1")])
    assert await said(memory) == ["u1", "a1"]
    assert await is_free(store)


# --- serialize --------------------------------------------------------------------------------------------------------


async def wait_until_in_line(repository: object, turns: int) -> None:
    while len(_LINES.get({}).get((id(repository), "c"), ())) < turns:
        await checkpoint()


async def test_turns_come_one_after_the_other_in_the_order_in_which_they_asked(store: Store) -> None:
    memory, seen = memory_on(store, Serialize()), []

    async def ask(number: int) -> None:
        turn = await memory.begin("c", [U(f"u{number}")])
        seen.append(texts(turn.history))
        await checkpoint()
        await turn.commit([A(f"a{number}")])

    first = await memory.begin("c", [U("u0")])
    async with anyio.create_task_group() as group:
        for number in (1, 2, 3, 4):
            group.start_soon(ask, number)
            await wait_until_in_line(store.repository, number)
        assert seen == []
        await first.commit([A("a0")])
    whole = [text for number in range(5) for text in (f"u{number}", f"a{number}")]
    assert await said(memory) == whole
    assert seen == [whole[: 2 * number] for number in (1, 2, 3, 4)]
    assert not _LINES.get({})


async def test_who_waits_too_long_is_told_that_another_turn_is_under_way(store: Store) -> None:
    memory, patient = memory_on(store, Serialize(wait=0)), memory_on(store, Serialize())
    turn = await memory.begin("c", [U("u1")])
    with pytest.raises(ConversationBusyError, match="another turn of this `conversation_id` is under way") as raised:
        await memory.begin("c", [U("secret")])
    assert (raised.value.expected, raised.value.found) == (None, None)
    assert "secret" not in str(raised.value)
    async with anyio.create_task_group() as group:
        group.start_soon(patient.begin, "c", [U("u2")])
        await wait_until_in_line(store.repository, 1)
        with pytest.raises(ConversationBusyError):  # behind another that waits
            await memory.begin("c", [U("u3")])
        group.cancel_scope.cancel()
    assert not _LINES.get({})
    await turn.commit([A("a1")])
    assert await said(memory) == ["u1", "a1"]


async def test_who_gives_up_lets_the_next_one_through(store: Store) -> None:
    memory = memory_on(store, Serialize())
    first = await memory.begin("c", [U("u0")])
    began: list[str] = []
    async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:

        async def ask(name: str) -> None:
            turn = await memory.begin("c", [U(name)])
            began.append(name)
            await turn.abandon()

        inner.start_soon(ask, "impatient")
        await wait_until_in_line(store.repository, 1)
        outer.start_soon(ask, "patient")
        await wait_until_in_line(store.repository, 2)
        inner.cancel_scope.cancel()
        await first.abandon()
    assert began == ["patient"]
    assert await is_free(store)


async def test_a_line_that_never_ends_starves_nobody_elsewhere(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisorchain.memory._waiting._LONG_RUN", (0, 4))
    monkeypatch.setattr("advisorchain.memory._waiting._STOP", 0.1)
    monkeypatch.setattr("advisorchain.memory._waiting._LONGEST_PAUSE", 0.05)
    line, over = memory_on(store, Serialize()), Over(store.repository)  # two repositories: two lines
    elsewhere = ChatMemory(repository=over, concurrency=Serialize(wait=60))
    turns = 0

    async def ask_again_and_again() -> None:
        nonlocal turns
        while True:
            turn = await line.begin("c", [U("u")])
            await wait_until_in_line(store.repository, 1)  # so its end wakes another one
            turns += 1
            await turn.abandon()

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask_again_and_again)
        await wait_until_in_line(store.repository, 2)
        begun = turns
        await (await elsewhere.begin("c", [U("mine")])).commit([A("a")])
        group.cancel_scope.cancel()
    assert turns - begun <= 40
    assert await said(line) == ["mine", "a"]


async def test_two_memories_over_one_store_wait_for_each_other(store: Store) -> None:
    one, other = memory_on(store, Serialize()), ChatMemory(MessageWindow(3), store.repository, concurrency=Reject())
    turn = await one.begin("c", [U("u1")])
    with pytest.raises(ConversationBusyError):
        await other.begin("c", [U("u2")])
    await turn.commit([A("a1")])
    await (await other.begin("c", [U("u2")])).commit([A("a2")])
    assert await said(one) == ["u1", "a1", "u2", "a2"]


async def test_threads_with_event_loops_of_their_own_wait_for_each_other(store: Store) -> None:
    memory = ChatMemory(Unbounded(), store.repository, concurrency=Serialize())

    async def count() -> None:
        for _ in range(3):
            turn = await memory.begin("c", [U("more")])
            await turn.commit([A(str(len(turn.history)))])

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(anyio.to_thread.run_sync, anyio.run, count)
    answers = (await said(memory))[1::2]
    assert answers == [str(2 * number) for number in range(9)]  # each knew all that was said before


@pytest.mark.parametrize("rule", [Serialize(), Reject()], ids=lambda rule: type(rule).__name__)
async def test_a_turn_that_was_overtaken_is_refused(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    slow = await memory.begin("c", [U("u1")])
    store.clock.now += 121
    fast = await memory.begin("c", [U("u2")])
    told = rf"longer than its `lease` of 120 seconds .* Give `{type(rule).__name__}\(lease=…\)` a longer one, or `late="
    for match in (told, "no lease any more"):  # however often it tries
        with pytest.raises(LeaseLostError, match=match):
            await slow.commit([A("a1")])
    await slow.abandon()
    assert not await is_free(store)  # what is given up is not the other's lease
    await fast.commit([A("a2")])
    assert await said(memory) == ["u2", "a2"]


@pytest.mark.parametrize("rule", [Serialize(), Reject()], ids=lambda rule: type(rule).__name__)
async def test_a_turn_that_gave_its_lease_back_stores_nothing_beside_another(store: Store, rule: ConcurrencyRule) -> None:
    memory = memory_on(store, rule)
    empty = await memory.begin("c", [])
    await empty.commit()
    other = await memory.begin("c", [U("u1")])
    with pytest.raises(LeaseLostError, match="Begin another one"):
        await empty.commit([A("late")])
    await other.commit([A("a1")])
    assert await said(memory) == ["u1", "a1"]


@pytest.mark.parametrize("rule", [Serialize(late="append"), Reject(late="append")], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("first", ["slow", "fast"])
async def test_a_turn_that_was_overtaken_is_appended_if_the_rule_says_so(
    store: Store, rule: ConcurrencyRule, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = memory_on(store, rule)
    slow = await memory.begin("c", [U("u1")])
    store.clock.now += 121
    fast = await memory.begin("c", [U("u2")])
    with caplog.at_level(logging.WARNING, "advisorchain"):
        for turn in (slow, fast) if first == "slow" else (fast, slow):
            await turn.commit([A("a1" if turn is slow else "a2")])
    whole = [["u1", "a1"], ["u2", "a2"]]
    assert await said(memory) == [*whole[first == "fast"], *whole[first == "slow"]]
    assert [record.message for record in caplog.records] == ["advisorchain.memory.late_turn"]
    assert await is_free(store)


async def test_a_conversation_deleted_while_others_wait_is_begun_anew(store: Store) -> None:
    memory = memory_on(store, Serialize())
    await memory.add("c", [U("u0"), A("a0")])
    turn = await memory.begin("c", [U("u1")])
    await memory.clear("c")
    with pytest.raises(ConversationDeletedError):
        await turn.commit([A("a1")])
    await turn.abandon()
    await (await memory.begin("c", [U("u2")])).commit([A("a2")])
    assert await said(memory) == ["u2", "a2"]


# --- B109 -------------------------------------------------------------------------------------------------------------


@leased
async def test_B109_a_lock_stops_no_other_conversation_and_is_freed_on_cancel(store: Store, rule: ConcurrencyRule) -> None:
    memory, begun = memory_on(store, rule), anyio.Event()

    async def slow() -> None:
        turn = await memory.begin("A", [U("u")])
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            await turn.abandon()

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await begun.wait()
        await (await memory.begin("B", [U("u")])).commit([A("a")])
        group.cancel_scope.cancel()
    turn = await memory.begin("A", [U("u")])
    assert turn.conversation_id == "A"
    await turn.commit([A("a")])


@leased
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as many again on trio would say the same
async def test_B109_no_lock_is_kept_for_ids_that_are_not_in_use(rule: ConcurrencyRule) -> None:
    memory = ChatMemory(concurrency=rule)
    for number in range(10_000):
        await (await memory.begin(f"c{number}", [])).abandon()
    assert not _LINES.get({})
    assert not memory.repository._leases


# --- B156 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Append(), Serialize(), Fork()], ids=lambda rule: type(rule).__name__)
async def test_B156_turns_of_many_tasks_are_all_there(store: Store, rule: ConcurrencyRule) -> None:
    data = given("B156")
    memory = memory_on(store, rule)

    async def ask(number: int) -> None:
        turn = await memory.begin("c", [U(f"u{number}")])
        await checkpoint()
        await turn.commit([A(f"a{number}")])

    async with anyio.create_task_group() as group:
        for number in range(data["tasks"]):
            group.start_soon(ask, number)
    kept = [text for name in await ids(memory) for text in await said(memory, name)]
    if isinstance(rule, Fork):
        assert set(kept) == {f"{who}{number}" for who in "ua" for number in range(data["tasks"])}
    else:
        assert len(kept) == data["expect"]
        assert [text.replace("u", "a") for text in kept[::2]] == kept[1::2]
    assert await is_free(store)


# --- ids and prefixes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crafted", [*given("B104")["ids"], "a%", "a_", "a*", "a.", "[a]", "^", "$", "a\\", "A", "a:", "é"])
async def test_a_crafted_id_or_prefix_reaches_no_other_conversation(store: Store, crafted: str) -> None:
    memory = memory_on(store, Reject())
    others = ["a", "a1", "ab:1", "b", "x", "\U0001f600"]
    for name in others:
        await memory.add(name, U("a stranger's"))
    turn = await memory.begin(crafted, [U("u1")])
    assert turn.history == ()
    await turn.commit([A("a1")])
    assert await said(memory, crafted) == ["u1", "a1"]
    assert [row.conversation_id for row in (await memory.conversations(prefix=crafted)).items] == [crafted]
    assert await memory.prune(timedelta(days=1), prefix=crafted) == 0
    assert await memory.clear_all(crafted) == 1
    assert not await memory.clear(crafted)
    assert await ids(memory) == others
