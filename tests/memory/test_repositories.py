"""What the in-memory and the SQLite repository do alike, beyond the public laws."""

from __future__ import annotations

import copy
import pickle
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest import mock

import anyio
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.errors import (
    ChatMemoryError,
    ConfigurationError,
    ConversationConflictError,
    ConversationDeletedError,
    ConversationIdError,
    InvalidInputError,
    LeaseLostError,
    MessageError,
    StorageError,
)
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Entry, Recall, Retention, in_force
from advisorchain.memory.urls import open_repository
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage


@pytest.fixture(params=["memory", "sqlite-memory", "sqlite-file"])
def opened(request: pytest.FixtureRequest, tmp_path: Any) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened_(**options: Any) -> AsyncIterator[Any]:
        makers: dict[str, Callable[[], Any]] = {
            "memory": lambda: InMemoryChatMemoryRepository(**options),
            "sqlite-memory": lambda: SqliteChatMemoryRepository(":memory:", **options),
            "sqlite-file": lambda: SqliteChatMemoryRepository(tmp_path / "chat.db", **options),
        }
        repository = makers[request.param]()
        try:
            yield repository
        finally:
            await repository.aclose()

    return opened_


def pair(number: int) -> list[Message]:
    return [UserMessage(f"u{number}"), AssistantMessage(f"a{number}")]


async def everything(repository: Any, conversation_id: str = "c") -> tuple[Entry, ...]:
    return (await repository.page(conversation_id, limit=1_000_000)).items


async def test_B013_a_batch_of_fifty_keeps_its_order_and_its_times(opened: Any) -> None:
    async with opened() as repository:
        await repository.append("c", [UserMessage(f"Message {n}") for n in range(50)], turn_id="t")
        first = await everything(repository)
        await repository.append("c", pair(1), turn_id="t2")
        for _ in range(10):
            again = await everything(repository)
            assert again[:50] == first
        assert [entry.message.text for entry in first] == [f"Message {n}" for n in range(50)]
        assert len({entry.created for entry in first}) == 1


async def test_B042_long_messages_are_stored_whole(opened: Any) -> None:
    batch = [UserMessage("ü" * length) for length in (4001, 65_536, 1_000_000)]
    result = ToolMessage("r" * 200_000, tool_call_id="k", structured={"rows": ["x" * 1000] * 200})
    async with opened() as repository:
        await repository.append("c", [*batch, result], turn_id="t")
        assert [entry.message for entry in await everything(repository)] == [*batch, result]


async def test_B043_long_and_special_ids_do_not_collide(opened: Any) -> None:
    ids = ["x" * 36 + "1", "x" * 36 + "2", "x" * 64, "ж" * 255, "a:b/c%d_e", "ключ", "用户-1"]
    async with opened() as repository:
        for name in ids:
            await repository.append(name, [UserMessage(name)], turn_id="t")
        for name in ids:
            assert [entry.message.text for entry in await everything(repository, name)] == [name]
        with pytest.raises(ConversationIdError, match="255"):
            await repository.append("x" * 256, [UserMessage("x")], turn_id="t")


async def test_B045_nul_is_kept_and_the_conversation_goes_on(opened: Any) -> None:
    turn: list[Message] = [
        UserMessage("run it", metadata={"nul": "a\0b", "\0": 1}),
        AssistantMessage(tool_calls=(ToolCall("k", "run", '{"s":"\\u0000"}'),)),
        ToolMessage("ab\0cd", tool_call_id="k", structured={"stdout": "ab\0cd"}),
        AssistantMessage("done\0"),
    ]
    async with opened() as repository:
        await repository.append("c", turn, turn_id="t0")
        for number in range(1, 4):
            recall = await repository.recall("c", 20)
            await repository.append("c", pair(number), turn_id=f"t{number}", expected=recall.revision)
        assert [entry.message for entry in await everything(repository)][:4] == turn
        assert (await repository.recall("c", 20)).count == 10


async def test_B130_time_zones_and_a_clock_set_back_do_not_matter(opened: Any, monkeypatch: Any) -> None:
    def zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    async with opened() as repository:
        zone("Asia/Tokyo")
        start = datetime.now(UTC)
        revision = await repository.append("c", pair(1), turn_id="t1")
        zone("America/New_York")
        earlier = start - timedelta(hours=1)
        monkeypatch.setattr("advisorchain.memory.repositories._log.now", lambda: earlier)
        monkeypatch.setattr("advisorchain.memory.repositories.in_memory.now", lambda: earlier)
        await repository.append("c", pair(2), turn_id="t2", expected=revision)
        entries = await everything(repository)
        monkeypatch.undo()
        time.tzset()
        assert [entry.message.text for entry in entries] == ["u1", "a1", "u2", "a2"]
        assert entries[2].created == earlier
        assert timedelta(0) <= entries[0].created - start < timedelta(minutes=1)
        assert all(entry.created.tzinfo is UTC for entry in entries)


async def test_B156_twenty_tasks_add_forty_messages(opened: Any) -> None:
    async with opened() as repository:
        async with anyio.create_task_group() as group:
            for number in range(20):

                async def add(number: int = number) -> None:
                    await repository.append("c", pair(number), turn_id=f"t{number}")

                group.start_soon(add)
        texts = [entry.message.text for entry in await everything(repository, "c")]
        assert len(texts) == 40
        assert all(texts[place][1:] == texts[place + 1][1:] for place in range(0, 40, 2))


async def test_B162_a_tool_result_added_by_hand_keeps_its_content(opened: Any) -> None:
    result = ToolMessage("bye", tool_call_id="id1", name="exit")
    async with opened() as repository:
        await repository.append("c", [result], turn_id="t")
        assert [entry.message for entry in await everything(repository)] == [result]
    with pytest.raises(MessageError, match="tool_call_id"):
        ToolMessage("bye", tool_call_id="", name="exit")


async def test_B158_threads_and_tasks_write_while_others_read(opened: Any) -> None:
    async def add(repository: Any, name: str, adds: int) -> None:
        for number in range(adds):
            await repository.append(name, pair(number), turn_id=f"t{number}")
            found = await repository.recall(name, 20)
            assert found.count == 2 * number + 2

    async with opened() as repository:
        async with anyio.create_task_group() as group:
            for number in range(8):
                backend = "trio" if number % 2 else "asyncio"  # every thread has an event loop of its own
                run = _in_thread(add, repository, f"thread{number}", backend)
                group.start_soon(to_thread.run_sync, run)
                group.start_soon(add, repository, f"task{number}", 13)
        rows = (await repository.conversations()).items
        assert len(rows) == 16
        assert {row.count for row in rows} == {26}


def _in_thread(add: Any, repository: Any, name: str, backend: str) -> Callable[[], None]:
    return lambda: anyio.run(add, repository, name, 13, backend=backend)


@pytest.mark.parametrize(
    "call", ["append", "recall", "replace", "delete", "rename", "fork", "prune", "conversations", "acquire", "page"]
)
async def test_cancellation_at_every_checkpoint_is_whole_or_nothing(opened: Any, call: str) -> None:
    """Cancels after 0, 1, 2, … turns of the event loop, until the call ends before it is cancelled."""
    async with opened() as repository:
        ended = 0
        for turns in (*range(60), *(2**power for power in range(6, 20))):  # a thread may be slow to answer
            name = f"c{turns}"
            await repository.append(name, pair(1), turn_id="t1")
            done = await _cancelled_after(turns, lambda name=name: _CALLS[call](repository, name))
            found = [[entry.message.text for entry in await everything(repository, of)] for of in (name, f"{name} new")]
            assert found in _OUTCOMES.get(call, [_BEFORE])
            if done:
                assert found == _OUTCOMES.get(call, [_BEFORE])[-1]
            assert await repository.append(name, pair(3), turn_id="t3")  # it goes on
            ended += done
            if ended > 3:
                return
        pytest.fail("the call never ended")


_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda repository, name: repository.append(name, pair(2), turn_id="t2"),
    "recall": lambda repository, name: repository.recall(name, 20),
    "replace": lambda repository, name: repository.replace(name, pair(2)),
    "delete": lambda repository, name: repository.delete(name),
    "rename": lambda repository, name: repository.rename(name, f"{name} new"),
    "fork": lambda repository, name: repository.fork(name, f"{name} new"),
    "prune": lambda repository, name: repository.prune(prefix=name, before=datetime(9999, 1, 1, tzinfo=UTC)),
    "conversations": lambda repository, name: repository.conversations(prefix=name),
    "acquire": lambda repository, name: repository.acquire(name, "one", 5),
    "page": lambda repository, name: repository.page(name),
}
_BEFORE: list[list[str]] = [["u1", "a1"], []]
_OUTCOMES: dict[str, list[list[list[str]]]] = {
    "append": [_BEFORE, [["u1", "a1", "u2", "a2"], []]],
    "replace": [_BEFORE, [["u2", "a2"], []]],
    "delete": [_BEFORE, [[], []]],
    "rename": [_BEFORE, [[], ["u1", "a1"]]],
    "fork": [_BEFORE, [["u1", "a1"], ["u1", "a1"]]],
    "prune": [_BEFORE, [[], []]],
}


async def _cancelled_after(turns: int, call: Callable[[], Any]) -> bool:
    done = False
    async with anyio.create_task_group() as group:

        async def work() -> None:
            nonlocal done
            await call()
            done = True

        group.start_soon(work)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    return done


async def test_a_call_in_a_cancelled_scope_of_sqlite_does_nothing() -> None:
    repository = SqliteChatMemoryRepository(":memory:")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await repository.append("c", pair(1), turn_id="t1")
    assert scope.cancelled_caught
    assert (await repository.recall("c", 5)).count == 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        await repository.aclose()  # closes all the same
    assert repository._file._connection is None
    with pytest.raises(StorageError, match="closed"):
        await repository.recall("c", 5)


async def test_use_after_close_is_a_clear_error(opened: Any) -> None:
    async with opened() as repository:
        await repository.append("c", pair(1), turn_id="t1")
        await repository.aclose()
        await repository.aclose()
        for call in _CALLS.values():
            with pytest.raises(StorageError, match=r"closed.*make a new"):
                await call(repository, "c")


async def test_a_lease_that_nobody_took_over_still_counts(opened: Any) -> None:
    now = [100.0]
    async with opened(clock=lambda: now[0]) as repository:
        token = await repository.acquire("c", "one", 5)
        now[0] += 60
        assert await repository.append("c", pair(1), turn_id="t1", token=token) == 1
        newer = await repository.acquire("c", "one", 5)
        assert newer > token  # the lease had run out: the owner's earlier turn must not pass for this one
        with pytest.raises(LeaseLostError, match="`token`"):
            await repository.append("c", pair(2), turn_id="t2", token=token)
        await repository.release("c", newer)
        with pytest.raises(LeaseLostError):
            await repository.append("c", pair(2), turn_id="t2", token=newer)


async def test_B109_released_leases_leave_nothing_behind() -> None:
    repository = InMemoryChatMemoryRepository()
    for number in range(10_000):
        token = await repository.acquire(f"c{number}", "one", 5)
        assert token == number + 1
        await repository.release(f"c{number}", token)
    assert not repository._leases
    assert not repository._logs


async def test_a_stale_expected_never_hides_a_repeated_turn(opened: Any) -> None:
    async with opened() as repository:
        await repository.append("c", pair(1), turn_id="t1", expected=0)
        assert await repository.append("c", pair(1), turn_id="t1", expected=0) == 1
        with pytest.raises(ConversationConflictError) as caught:
            await repository.append("c", pair(2), turn_id="t2", expected=0)
        assert "u2" not in str(caught.value)


async def test_replace_takes_entries_with_their_time_kind_and_what_they_cover(opened: Any) -> None:
    async with opened() as repository:
        for number in range(3):
            await repository.append("c", pair(number), turn_id=f"t{number}")
        old = await everything(repository)
        zone = timezone(timedelta(hours=9))
        moved = replace(old[3], created=old[3].created.astimezone(zone))
        summary = Entry(90, "s", AssistantMessage("so far"), old[0].created, "summary", covers=3)
        await repository.replace("c", [*old[:3], moved, summary, *old[4:]])
        new = await everything(repository)
        assert [entry.created for entry in new] == [entry.created for entry in (*old[:4], old[0], *old[4:])]
        assert all(entry.created.tzinfo is UTC for entry in new)
        assert (new[4].kind, new[4].covers) == ("summary", new[2].sequence)
        recall = await repository.recall("c", 20)
        assert recall.summary == new[4]
        assert recall.tail == (*new[:4], *new[5:])
        assert (await repository.recall("c", 20, before=new[4].sequence)).summary is None


async def test_entries_and_cursors_that_cannot_be_are_refused(opened: Any) -> None:
    entry = Entry(1, "t", UserMessage("u"), datetime(2026, 1, 1, tzinfo=UTC))
    wrong: dict[str, Any] = {"kind": "note", "sequence": -1, "covers": "1", "turn_id": " ", "message": "u"}
    times = [
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    ]
    async with opened() as repository:
        for name, value in [*wrong.items(), *(("created", time) for time in times)]:
            with pytest.raises(InvalidInputError, match=r"`messages\[0\]"):
                await repository.replace("c", [replace(entry, **{name: value})])
        for cursor in (7, "1", "1.x", ".", "1." + "9" * 50, "¹.²"):
            with pytest.raises(InvalidInputError, match="`after` is no cursor"):
                await repository.page("c", after=cursor)
        assert (await repository.page("c", after="1." + "9" * 30)).items == ()
        assert await repository.replace("c", [entry]) == 1


async def test_messages_are_shared_not_copied() -> None:
    repository = InMemoryChatMemoryRepository()
    message = UserMessage("hi", metadata={"deep": [1]})
    await repository.append("c", [message], turn_id="t")
    assert (await repository.recall("c", 1)).tail[0].message is message


# --- time to live


async def fill(repository: Any, name: str = "c", turns: int = 2, **options: Any) -> None:
    for number in range(1, turns + 1):
        await repository.append(name, pair(number), turn_id=f"t{number}", **options)


async def texts(repository: Any, name: str = "c") -> list[str]:
    return [entry.message.text for entry in await everything(repository, name)]


async def names(repository: Any) -> list[str]:
    return [row.conversation_id for row in (await repository.conversations()).items]


def lasting(seconds: float) -> Retention:
    return Retention(ttl=timedelta(seconds=seconds))


async def test_a_conversation_that_ended_is_not_there_to_any_method(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as repository:
        await fill(repository, "c", retention=lasting(10))
        await fill(repository, "d")
        page = await repository.page("c", limit=1)
        clock.seconds += 9.999999
        assert await texts(repository) == ["u1", "a1", "u2", "a2"]
        clock.seconds += 0.000001
        assert await repository.recall("c", 5) == Recall()
        assert (await repository.page("c")).items == (await repository.page("c", after=page.next)).items == ()
        assert await names(repository) == ["d"]
        assert not await repository.rename("c", "e")
        assert not await repository.fork("c", "e")
        with pytest.raises(ConversationConflictError, match="revision 0"):
            await repository.replace("c", pair(3), expected=2)
        assert await repository.rename("d", "c")
        assert not await repository.delete("d")
        assert await texts(repository) == ["u1", "a1", "u2", "a2"]
        assert await repository.prune() == 0  # the renamed one has come in its place


async def test_delete_removes_what_ended_though_nobody_sees_it(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as repository:
        await fill(repository, retention=lasting(10))
        clock.seconds += 10
        assert not await repository.delete("c")
        clock.seconds -= 10
        assert await names(repository) == []


async def test_a_write_goes_on_in_a_new_life_without_the_time_to_live_of_before(opened: Any) -> None:
    for way in ("append", "replace", "fork"):
        clock = Clock()
        async with opened(clock=clock) as repository:
            await repository.delete("c")  # a file that the way before has left
            await repository.delete("d")
            await fill(repository, retention=lasting(10))
            await fill(repository, "d", 1)
            old = await repository.recall("c", 1)
            clock.seconds += 10
            if way == "append":
                assert await repository.append("c", pair(1), turn_id="t1", expected=0) == 1
            elif way == "replace":
                assert await repository.replace("c", pair(1), expected=0) == 1
            else:
                assert await repository.fork("d", "c")
            new = await repository.recall("c", 5)
            assert new.incarnation not in (0, old.incarnation)
            assert [entry.sequence for entry in new.tail] == [1, 2]
            clock.seconds += 1000
            assert await texts(repository) == ["u1", "a1"]
            assert (await repository.conversations()).items[0].expires is None


async def test_a_turn_that_was_begun_before_the_end_begins_the_next_life(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as repository:
        await fill(repository, retention=lasting(10))
        begun = (await repository.recall("c", 1)).incarnation
        clock.seconds += 10
        with pytest.raises(ConversationDeletedError):
            await repository.replace("c", pair(3), incarnation=begun)
        with pytest.raises(ConversationDeletedError):
            await repository.append("c", pair(3), turn_id="t3", incarnation=begun + 1)
        assert await repository.append("c", pair(3), turn_id="t3", incarnation=begun, retention=lasting(10)) == 1
        assert await texts(repository) == ["u3", "a3"]
        with pytest.raises(ConversationDeletedError, match="`incarnation`"):  # another life is there
            await repository.append("c", pair(4), turn_id="t4", incarnation=begun)
        begun = (await repository.recall("c", 1)).incarnation
        clock.seconds += 10
        assert await repository.prune() == 1
        with pytest.raises(ConversationDeletedError):  # nothing is there any more
            await repository.append("c", pair(4), turn_id="t4", incarnation=begun)


async def test_each_write_begins_the_time_anew_and_keeps_it_unless_it_names_another(opened: Any) -> None:
    clock = Clock()

    async def expires() -> timedelta | None:
        (row,) = (await repository.conversations()).items
        return row.expires and row.expires - row.updated

    async with opened(clock=clock) as repository:
        await fill(repository, turns=1, retention=lasting(10))
        clock.seconds += 9
        await repository.append("c", pair(2), turn_id="t2")
        clock.seconds += 9
        assert await expires() == timedelta(seconds=10)
        await repository.append("c", pair(2), turn_id="t2")  # a turn that is there, and an empty one, write nothing
        await repository.append("c", [], turn_id="t3", retention=Retention(ttl=timedelta.max))
        clock.seconds += 1
        assert await names(repository) == []
        await fill(repository, turns=1, retention=lasting(10))
        await repository.replace("c", pair(2), retention=Retention(max_messages=9))
        assert await expires() == timedelta(seconds=10)
        await repository.replace("c", pair(2), retention=lasting(20.5))
        assert await expires() == timedelta(seconds=20.5)
        clock.seconds += 20
        await repository.append("c", pair(3), turn_id="t3", retention=Retention(ttl=timedelta.max))
        assert await expires() is None
        clock.seconds += 1e9
        assert await texts(repository) == ["u2", "a2", "u3", "a3"]


@pytest.mark.parametrize("ttl", [timedelta(days=400_000), timedelta(days=36_525), timedelta.max - timedelta(1)])
async def test_a_time_to_live_of_a_century_is_no_end(opened: Any, ttl: timedelta) -> None:
    async with opened() as repository:
        await fill(repository, retention=Retention(ttl=ttl))
        assert (await repository.conversations()).items[0].expires is None
        await fill(repository, "d", retention=Retention(ttl=timedelta(days=36_524)))
        row = (await repository.conversations(prefix="d")).items[0]
        assert row.expires == row.updated + timedelta(days=36_524)


async def test_what_ended_long_ago_goes_as_new_ones_come_but_not_what_ended_just_now(opened: Any) -> None:
    clock = Clock()

    async def kept() -> int:
        if isinstance(repository, InMemoryChatMemoryRepository):
            return len(repository._logs)
        count = "SELECT (SELECT count(*) FROM conversations), (SELECT count(DISTINCT conversation) FROM entries)"
        rows = await repository._file.run("BEGIN", lambda db: db.execute(count).fetchone())
        assert rows[0] == rows[1]
        return int(rows[0])

    async with opened(clock=clock) as repository:
        for number in range(40):
            await fill(repository, f"old{number}", 1, retention=lasting(10))
        clock.seconds += 10 + 3599
        for number in range(40):
            await fill(repository, f"new{number}", 1)
        assert await kept() == 80  # a turn may still be under way
        clock.seconds += 1
        most = 80
        for number in range(40):
            await fill(repository, f"newer{number}", 1)
            most = max(most, await kept())
        assert await kept() == 80
        assert most <= 81
        assert await repository.prune() == 0


# --- as many messages as shall be kept


async def test_the_oldest_turns_go_and_never_the_newest(opened: Any) -> None:
    most = Retention(max_messages=4)
    call = AssistantMessage(tool_calls=(ToolCall("k", "look", "{}"),))
    long: list[Message] = [UserMessage("u9"), call, ToolMessage("r", tool_call_id="k"), *[AssistantMessage("a9")] * 3]
    async with opened() as repository:
        await repository.append("c", [AssistantMessage("hello")], turn_id="t0", retention=most)
        for number in range(1, 5):
            await repository.append("c", pair(number), turn_id=f"t{number}", retention=most)
            assert (await repository.recall("c", 0)).count == [3, 4, 4, 4][number - 1]
        before = await repository.recall("c", None)
        assert await texts(repository) == ["u3", "a3", "u4", "a4"]
        assert [entry.sequence for entry in before.tail] == [6, 7, 8, 9]
        assert before.revision == 5
        for number in range(5):  # also those that were removed
            assert await repository.append("c", pair(number), turn_id=f"t{number}", retention=Retention(max_messages=1)) == 5
        assert await repository.recall("c", None) == before
        assert await repository.append("c", long, turn_id="t9", retention=most) == 6
        assert await texts(repository) == ["u9", "", "r", "a9", "a9", "a9"]
        await repository.append("c", [AssistantMessage("more")], turn_id="t10", retention=most)
        assert (await repository.recall("c", None)).count == 7
        await repository.append("c", pair(11), turn_id="t11", retention=most)
        assert await texts(repository) == ["u11", "a11"]


async def test_a_log_without_a_question_loses_nothing(opened: Any) -> None:
    async with opened() as repository:
        for number in range(5):
            said = [AssistantMessage(f"{number}")]
            await repository.append("c", said, turn_id=f"t{number}", retention=Retention(max_messages=1))
        assert await texts(repository) == ["0", "1", "2", "3", "4"]


async def test_what_is_in_force_and_the_newest_summary_outlive_their_turns(opened: Any) -> None:
    rules, other = SystemMessage("rules"), SystemMessage("other")
    written = datetime(2026, 1, 1, tzinfo=UTC)
    summaries = [Entry(1, f"s{n}", AssistantMessage(f"so far {n}"), written, "summary", covers=2) for n in range(2)]
    async with opened() as repository:
        await repository.replace("c", [other, *pair(0), *summaries])
        await repository.append("c", [rules, *pair(1)], turn_id="t1")
        await repository.append("c", [rules, *pair(2)], turn_id="t2")
        whole = await everything(repository)
        revision = await repository.append("c", [rules, *pair(3)], turn_id="t3", retention=Retention(max_messages=2))
        assert await texts(repository) == ["so far 1", "rules", "u3", "a3"]
        kept = await everything(repository)
        assert kept[:2] == (whole[4], whole[5])
        recall = await repository.recall("c", 1)
        assert (recall.revision, recall.count) == (revision, 4)
        assert (recall.systems, recall.summary, recall.question) == ((kept[1],), kept[0], kept[2])
        page = await repository.page("c", limit=2, newest_first=True)
        assert [entry.message.text for entry in page.items] == ["a3", "u3"]
        assert (await repository.page("c", after=page.next, newest_first=True)).items == kept[1::-1]


async def test_replace_keeps_no_more_than_it_shall(opened: Any) -> None:
    async with opened() as repository:
        await fill(repository, turns=2)
        batch = [message for number in range(1, 6) for message in pair(number)]
        assert await repository.replace("c", batch, expected=2, retention=Retention(max_messages=5)) == 3
        entries = await everything(repository)
        assert [entry.message.text for entry in entries] == ["u4", "a4", "u5", "a5"]
        assert [entry.sequence for entry in entries] == [11, 12, 13, 14]


# --- copies, new names, removal


async def test_a_fork_stands_on_its_own(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as repository:
        await repository.append("c", [SystemMessage("A"), *pair(1)], turn_id="t1", retention=lasting(100))
        await repository.append("c", [SystemMessage("A"), SystemMessage("B"), *pair(2)], turn_id="t2")
        await fill(repository, "e", 1)
        original = await everything(repository)
        old = await repository.recall("c", None)
        clock.seconds += 60
        assert await repository.fork("c", "d", at=4)  # the A that t2 repeated: B, that made it new, is not in the copy
        copy = await repository.recall("d", None)
        assert (copy.revision, copy.count) == (1, 4)
        assert copy.incarnation not in (0, old.incarnation)
        assert await everything(repository, "d") == original[:4]
        assert copy.systems == (original[0],)
        rows = {row.conversation_id: row for row in (await repository.conversations()).items}
        assert rows["d"].expires == rows["d"].updated + timedelta(seconds=100)
        assert await repository.append("d", pair(3), turn_id="t1") == 1  # it has that turn, and not the one behind
        assert await repository.append("d", pair(2), turn_id="t3", expected=1, incarnation=copy.incarnation) == 2
        assert [entry.sequence for entry in await everything(repository, "d")] == [1, 2, 3, 4, 5, 6]
        assert (await repository.recall("c", None)) == old
        clock.seconds += 40
        assert await names(repository) == ["d", "e"]
        assert await repository.fork("d", "c")  # what ended is not in the way
        assert await texts(repository) == ["A", "u1", "a1", "A", "u2", "a2"]
        for new_id in ("c", "d", "e"):
            with pytest.raises(ConversationConflictError, match="`new_id`"):
                await repository.fork("d", new_id)
        assert not await repository.fork("d", "f", at=0)
        assert not await repository.fork("none", "none")
        assert not await repository.fork("none", "e")
        assert not await repository.fork("d", "e", at=0)


async def test_a_turn_is_known_in_a_fork_as_far_as_it_was_copied(opened: Any) -> None:
    async with opened() as repository:
        await fill(repository, turns=2)
        assert await repository.fork("c", "d", at=3)
        assert await texts(repository, "d") == ["u1", "a1", "u2"]
        assert await repository.append("d", pair(2), turn_id="t2") == 1  # a part of it is there
        assert await repository.fork("c", "e", at=2)
        assert await repository.append("e", pair(2), turn_id="t2") == 2
        question = (await repository.recall("d", 1)).tail[0]
        assert question.message.text == "u2"
        assert (await repository.recall("e", 1)).question.sequence == 3


async def test_a_new_name_takes_everything_along_but_the_lease(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as repository:
        await fill(repository, retention=lasting(10))
        await fill(repository, "e", 1)
        token = await repository.acquire("c", "one", 60)
        old, entries = await repository.recall("c", None), await everything(repository)
        page = await repository.page("c", limit=1)
        (row, _) = (await repository.conversations()).items
        clock.seconds += 9
        assert await repository.rename("c", "d")
        assert await repository.recall("d", None) == old
        assert (await repository.page("d", after=page.next)).items == entries[1:]
        assert (await repository.conversations()).items[0] == replace(row, conversation_id="d")
        with pytest.raises(ConversationDeletedError):
            await repository.append("c", pair(3), turn_id="t3", incarnation=old.incarnation)
        assert await repository.append("d", pair(1), turn_id="t1") == 2
        with pytest.raises(LeaseLostError):
            await repository.append("d", pair(3), turn_id="t3", token=token)
        assert await repository.acquire("c", "two", 60) is None
        assert await repository.acquire("d", "two", 60)
        for new_id in ("d", "e"):
            with pytest.raises(ConversationConflictError, match="`new_id`"):
                await repository.rename("d", new_id)
        assert not await repository.rename("c", "e")
        clock.seconds += 1  # ten since it was written to
        assert await names(repository) == ["e"]
        assert await repository.rename("e", "d")
        assert await names(repository) == ["d"]


async def test_prune_removes_what_ended_and_what_was_left_alone(opened: Any) -> None:
    clock = Clock()
    with both_by(clock):
        async with opened(clock=clock) as repository:
            for number in range(5):
                await fill(repository, f"a{number}", 1, retention=lasting(10))
                await fill(repository, f"b{number}", 1)
            clock.seconds += 10
            moment = clock.now()
            await fill(repository, "b4", 3)
            await fill(repository, "c%", 1)
            assert await repository.prune(prefix="a", limit=2) == 2
            assert await repository.prune(prefix="a%") == 0
            assert await repository.prune() == 3
            assert await names(repository) == ["b0", "b1", "b2", "b3", "b4", "c%"]
            zone = timezone(timedelta(hours=9))
            assert await repository.prune(before=moment - timedelta(seconds=10)) == 0
            assert await repository.prune(before=moment.astimezone(zone), limit=3) == 3
            assert await repository.prune(before=moment) == 1
            assert await repository.prune(before=moment) == 0
            assert await names(repository) == ["b4", "c%"]
            assert await repository.prune(before=datetime.max.replace(tzinfo=UTC), prefix="c") == 1
            assert await repository.prune(before=datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))) == 0
            await fill(repository, "d", 1, retention=lasting(5))
            clock.seconds += 5
            assert await repository.prune(before=clock.now(), limit=1) == 1
            assert await repository.prune(before=clock.now(), limit=1) == 1
            assert await names(repository) == []


async def test_arguments_of_the_new_methods_that_cannot_be_are_refused(opened: Any) -> None:
    async with opened() as repository:
        await fill(repository)
        for name, call in {
            "retention": lambda: repository.append("c", pair(3), turn_id="t3", retention=timedelta(1)),
            "`retention` is an int": lambda: repository.replace("c", pair(3), retention=7),
            "incarnation": lambda: repository.append("c", pair(3), turn_id="t3", incarnation="1"),
            "`incarnation` must": lambda: repository.replace("c", pair(3), incarnation=-1),
            "at": lambda: repository.fork("c", "d", at=-1),
            "`at` must": lambda: repository.fork("c", "d", at="1"),
            "before": lambda: repository.prune(before=datetime(2026, 1, 1)),
            "`before` is no time": lambda: repository.prune(before=5),
            "limit": lambda: repository.prune(limit=0),
            "prefix": lambda: repository.prune(prefix=None),
        }.items():
            with pytest.raises(InvalidInputError, match=name):
                await call()
        for bad in ("", "x" * 256, None):
            for call in (repository.rename, repository.fork):
                with pytest.raises(ConversationIdError):
                    await call("c", bad)
                with pytest.raises(ConversationIdError):
                    await call(bad, "d")
        assert await names(repository) == ["c"]
        assert (await repository.recall("c", 0)).revision == 2


# --- both stores say the same of any history

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


class Clock:
    """Seconds that tests move, for leases and ends and for the times of entries."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


@contextmanager
def both_by(clock: Clock) -> Iterator[None]:
    log, memory = ("advisorchain.memory.repositories." + name for name in ("_log.now", "in_memory.now"))
    with mock.patch(log, clock.now), mock.patch(memory, clock.now):
        yield


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


@settings(max_examples=100, deadline=None)
@given(steps=_steps)
def test_both_stores_give_the_same(steps: list[Step]) -> None:
    anyio.run(_compare, steps)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


async def test_many_threads_on_one_in_memory_store_lose_nothing() -> None:
    repository = InMemoryChatMemoryRepository()

    def work(number: int) -> None:
        async def add() -> None:
            for turn in range(50):
                await repository.append("c", pair(turn), turn_id=f"{number}.{turn}")

        anyio.run(add)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await to_thread.run_sync(thread.join)
    entries = await everything(repository)
    assert len({entry.sequence for entry in entries}) == 400
    assert all(a.turn_id == b.turn_id for a, b in zip(entries[::2], entries[1::2], strict=True))


# --- by URL


@pytest.mark.parametrize(
    "url", ["memory://", "sqlite://", "sqlite:///:memory:", "sqlite:///rel%20ative.db", "SQLite:///b.db"]
)
async def test_a_repository_by_its_url(url: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_repository(url) as repository:
        assert await repository.append("c", pair(1), turn_id="t") == 1
    with pytest.raises(StorageError, match="closed"):
        await repository.recall("c", 5)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == ({url.partition(":///")[2]} if url.endswith(".db") else set())


async def test_an_absolute_path_by_url(tmp_path: Any) -> None:
    path = tmp_path / "chat.db"
    async with open_repository(f"sqlite:///{path}") as repository:
        await repository.append("c", pair(1), turn_id="t")
    assert path.exists()
    async with open_repository(f"sqlite:///{path}") as repository:
        assert (await repository.recall("c", 5)).count == 2


@pytest.mark.parametrize(
    "url", ["", "chat.db", "sqlite:///", "sqlite://chat.db", "memory://x", "http://user:secret@host", "://", None, 7]
)
async def test_a_url_that_is_not_known_lists_what_is(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"`memory://`, `sqlite:///relative") as caught:
        async with open_repository(url):
            pytest.fail("it was opened")
    assert "secret" not in str(caught.value)


async def test_an_error_inside_the_block_closes_the_repository() -> None:
    opened = []

    async def fail() -> None:
        async with open_repository("sqlite://") as repository:
            await repository.append("c", pair(1), turn_id="t")
            opened.append(repository)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()
    with pytest.raises(StorageError, match="closed"):
        await opened[0].recall("c", 5)


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_a_conflict_can_be_told_to_another_process(copied: Callable[[Exception], Exception]) -> None:
    error = copied(ConversationConflictError("the text", expected=1, found=2))
    assert isinstance(error, ConversationConflictError)
    assert (str(error), error.expected, error.found) == ("the text", 1, 2)
