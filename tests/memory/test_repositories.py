"""What the in-memory and the SQLite repository do alike, beyond the public laws."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import pytest
from anyio import to_thread

from advisorchain.errors import (
    ConversationConflictError,
    ConversationIdError,
    InvalidInputError,
    LeaseLostError,
    MessageError,
    StorageError,
)
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Entry
from advisorchain.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

from ._kit import MOMENTS, cancelled_after, everything, pair


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
        monkeypatch.setattr("advisorchain.memory.repositories._times.now", lambda: earlier)
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
    """Cancels later and later, until the call ends before it is cancelled."""
    async with opened() as repository:
        ended = 0
        for number, moment in enumerate(MOMENTS):
            name = f"c{number}"
            await repository.append(name, pair(1), turn_id="t1")
            done = await cancelled_after(moment, lambda name=name: _CALLS[call](repository, name))
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


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_a_conflict_can_be_told_to_another_process(copied: Callable[[Exception], Exception]) -> None:
    error = copied(ConversationConflictError("the text", expected=1, found=2))
    assert isinstance(error, ConversationConflictError)
    assert (str(error), error.expected, error.found) == ("the text", 1, 2)
