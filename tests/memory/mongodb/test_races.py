"""Leases, turns and moves that meet at the worst moment, on MongoDB; connections that break."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from bson.errors import InvalidDocument
from pymongo.errors import AutoReconnect, BulkWriteError, DocumentTooLarge, NetworkTimeout, OperationFailure

from advisorchain.errors import (
    ConversationDeletedError,
    LeaseLostError,
    StorageError,
)
from advisorchain.memory.repositories._mongodb import leases, writes
from advisorchain.memory.repository import Retention

from .._kit import pair
from ._kit import closing, prefix_of

pytestmark = pytest.mark.slow  # asks a server


def _meanwhile(store: Any, name: str, command: str, other: Callable[[], Any]) -> None:
    """Let something else happen right before the next such command of a collection."""
    collection = getattr(store, name)

    class Interrupted:
        def __getattr__(self, attribute: str) -> Any:
            found = getattr(collection, attribute)
            if attribute != command:
                return found

            def call(*args: Any, **named: Any) -> Any:
                setattr(store, name, collection)
                other()
                return found(*args, **named)

            return call

    setattr(store, name, Interrupted())


@pytest.mark.parametrize("there", [False, True])
async def test_a_lease_taken_while_a_turn_of_the_one_before_is_stored_refuses_it(
    fresh: Any, clock: list[float], there: bool
) -> None:
    async with (
        closing(fresh(clock=lambda: clock[0])) as repository,
        closing(fresh(prefix_of(repository), clock=lambda: clock[0])) as other,
    ):
        if there:
            await repository.append("c", pair(0), turn_id="t0")
        await other.recall("c", 1)
        token = await repository.acquire("c", "one", 5)
        clock[0] += 6
        taken: list[Any] = []
        _meanwhile(
            repository._hop.store,
            "conversations",
            "update_one",
            lambda: taken.append(leases.acquire(other._hop.store, "c", "two", 5)),
        )
        with pytest.raises(LeaseLostError):
            await repository.append("c", pair(1), turn_id="t1", token=token)
        assert taken[0] > token
        assert (await other.recall("c", 1)).count == 2 * there
        assert await other.append("c", pair(2), turn_id="t2", token=taken[0])


async def test_a_turn_under_way_does_not_follow_a_rename(fresh: Any, clock: list[float]) -> None:
    async with (
        closing(fresh(clock=lambda: clock[0])) as repository,
        closing(fresh(prefix_of(repository), clock=lambda: clock[0])) as other,
    ):
        await repository.append("c", pair(0), turn_id="t0")
        await other.recall("c", 1)
        life = (await repository.recall("c", 1)).incarnation
        _meanwhile(repository._hop.store, "conversations", "update_one", lambda: writes.rename(other._hop.store, "c", "d"))
        with pytest.raises(ConversationDeletedError):
            await repository.append("c", pair(1), turn_id="t1", incarnation=life)
        assert (await other.recall("d", 1)).count == 2
        assert [row.conversation_id for row in (await other.conversations()).items] == ["d"]


async def test_a_slow_writer_leaves_nothing_of_a_conversation_that_was_deleted(fresh: Any, clock: list[float]) -> None:
    async with (
        closing(fresh(clock=lambda: clock[0])) as repository,
        closing(fresh(prefix_of(repository), clock=lambda: clock[0])) as other,
    ):
        await repository.append("c", pair(0), turn_id="t0")
        await other.recall("c", 1)
        life = (await repository.recall("c", 1)).incarnation
        _meanwhile(repository._hop.store, "entries", "insert_many", lambda: writes.delete(other._hop.store, "c"))
        with pytest.raises(ConversationDeletedError):
            await repository.append("c", pair(1), turn_id="t1", incarnation=life)
        clock[0] += 7200
        await repository.prune()
        assert not list(repository._hop.store.entries.find({}))
        assert not list(repository._hop.store.garbage.find({}))


@pytest.mark.parametrize("change", ["replace", "trim", "delete"])
@pytest.mark.parametrize("read", ["recall", "recall before", "page"])
async def test_what_is_removed_while_it_is_read_is_read_anew(fresh: Any, clock: list[float], change: str, read: str) -> None:
    async with (
        closing(fresh(clock=lambda: clock[0])) as repository,
        closing(fresh(prefix_of(repository), clock=lambda: clock[0])) as other,
    ):
        for number in range(4):
            await repository.append("c", pair(number), turn_id=f"t{number}")
        await other.recall("c", 1)
        limited = writes.Turn("c", tuple(pair(9)), "t9", None, None, None, Retention(max_messages=3))
        changes: dict[str, Any] = {
            "replace": lambda: writes.replace(other._hop.store, "c", pair(8), None, None, None),
            "trim": lambda: writes.append(other._hop.store, limited),
            "delete": lambda: writes.delete(other._hop.store, "c"),
        }
        reads: dict[str, Any] = {
            "recall": lambda: repository.recall("c", 5),
            "recall before": lambda: repository.recall("c", 5, before=8),
            "page": lambda: repository.page("c"),
        }
        _meanwhile(repository._hop.store, "entries", "find", changes[change])
        found = await reads[read]()
        assert found == await reads[read]()
        assert (await repository.recall("c", None)).count == {"replace": 2, "trim": 2, "delete": 0}[change]


async def test_a_fork_of_what_is_replaced_meanwhile_is_whole(fresh: Any, clock: list[float]) -> None:
    async with (
        closing(fresh(clock=lambda: clock[0])) as repository,
        closing(fresh(prefix_of(repository), clock=lambda: clock[0])) as other,
    ):
        for number in range(4):
            await repository.append("c", pair(number), turn_id=f"t{number}")
        await other.recall("c", 1)
        _meanwhile(
            repository._hop.store,
            "garbage",
            "update_one",
            lambda: writes.replace(other._hop.store, "c", pair(8), None, None, None),
        )
        assert await repository.fork("c", "d")
        assert [entry.message for entry in (await repository.page("d")).items] == pair(8)
        assert (await repository.recall("d", None)).count == 2


async def test_a_lease_counts_for_the_conversation_that_was_renamed_to_its_id(fresh: Any) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        token = await repository.acquire("d", "one", 60)
        assert await repository.acquire("c", "two", 60) > token
        assert await repository.rename("c", "d")
        assert await repository.append("d", pair(1), turn_id="t1", token=token) == 2


async def test_only_what_is_needless_is_noted_as_that(fresh: Any) -> None:
    async with closing(fresh()) as repository:
        store = repository._hop.store
        await repository.append("c", pair(0), turn_id="t0")
        await repository.replace("c", pair(1))
        await repository.fork("c", "d")
        needed = {found["log"] for found in store.conversations.find({})}
        assert not needed & {note["_id"] for note in store.garbage.find({})}
        assert {found["log"] for found in store.entries.find({})} == needed


class Failing:
    """A collection of which one command fails as often as there are errors."""

    def __init__(self, inner: Any, command: str, errors: list[Exception]) -> None:
        self.inner, self.command, self.errors = inner, command, errors

    def __getattr__(self, name: str) -> Any:
        if name == self.command and self.errors:
            raise self.errors.pop()
        return getattr(self.inner, name)


async def test_a_connection_that_breaks_is_tried_again_once_where_that_does_no_harm(fresh: Any) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        store = repository._hop.store
        whole = store.conversations
        store.conversations = Failing(whole, "update_one", [AutoReconnect("s3cr3t")])
        assert await repository.append("c", pair(1), turn_id="t1") == 2
        for errors, call in (
            ([AutoReconnect("s3cr3t")] * 2, lambda: repository.append("c", pair(2), turn_id="t2")),
            ([NetworkTimeout("s3cr3t")], lambda: repository.rename("c", "d")),
        ):
            store.conversations = Failing(whole, "update_one", errors)
            with pytest.raises(StorageError, match=r"connection .* broke.*is not known") as caught:
                await call()
            assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
            assert not errors
        assert (await repository.recall("c", 1)).revision == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OperationFailure("s3cr3t", 18), "refused the user or the password"),
        (OperationFailure("s3cr3t", 13), "refused the user or the password"),
        (OperationFailure("s3cr3t", 121), "refused a command .*code 121"),
        (DocumentTooLarge("s3cr3t"), "refused a command"),
        (BulkWriteError({"writeErrors": [{"code": 121, "errmsg": "s3cr3t"}]}), "refused a command"),
        (BulkWriteError({"writeConcernErrors": [{"code": 64, "errmsg": "s3cr3t"}]}), "refused a command"),
        (InvalidDocument("s3cr3t"), "refused a command"),
    ],
)
async def test_what_the_driver_says_is_not_passed_on(fresh: Any, error: Exception, told: str) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        repository._hop.store.entries = Failing(repository._hop.store.entries, "insert_many", [error])
        with pytest.raises(StorageError, match=told) as caught:
            await repository.append("c", pair(1), turn_id="t1")
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
        assert (await repository.recall("c", 1)).count == 2
