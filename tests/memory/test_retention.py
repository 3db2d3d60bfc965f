"""How long the in-memory and the SQLite repository keep a conversation, and how much of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from advisorchain.errors import (
    ConversationConflictError,
    ConversationDeletedError,
    LeaseLostError,
)
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import Entry, Recall, Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

from ._kit import Clock, everything, fill, lasting, names, pair, texts


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


async def test_prune_removes_the_leases_of_holders_that_died_an_hour_ago(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as repository:
        first = await repository.acquire("one", "me", 10)
        endless = await repository.acquire("endless", "me", 1e308)
        clock.seconds += 3610
        assert await repository.prune() == 0
        assert await repository.append("one", pair(1), turn_id="t1", token=first) == 1  # not that long ago yet
        clock.seconds += 1
        assert await repository.prune() == 0
        with pytest.raises(LeaseLostError):
            await repository.append("one", pair(2), turn_id="t2", token=first)
        assert await repository.acquire("one", "you", 10) > first
        assert await repository.acquire("endless", "me", 10) == endless


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
