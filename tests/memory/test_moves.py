"""Copies, new names and removal in the in-memory and the SQLite repository."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from advisorchain.errors import (
    ConversationConflictError,
    ConversationDeletedError,
    ConversationIdError,
    InvalidInputError,
    LeaseLostError,
)
from advisorchain.messages import SystemMessage

from ._kit import Clock, both_by, everything, fill, lasting, names, pair, texts


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
