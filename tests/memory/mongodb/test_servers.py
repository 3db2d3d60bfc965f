"""MongoDB: what a turn costs; servers, clients, arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import ConfigurationError as UnknownNameError
from pymongo.monitoring import CommandListener

from advisorchain.errors import (
    ConfigurationError,
    StorageError,
)
from advisorchain.memory.repositories.mongodb import MongoChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import UserMessage

from .._kit import pair
from .._mongodb_server import DATABASE, free_port, started, stopped
from ._kit import check_no_remains, closing, prefix_of

pytestmark = pytest.mark.slow  # asks a server

# -- what a turn costs


class Counter(CommandListener):
    def __init__(self) -> None:
        self.names: list[str] = []
        self.documents = 0

    def started(self, event: Any) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: Any) -> None:
        self.documents += len(event.reply.get("cursor", {}).get("firstBatch", ()))

    def failed(self, event: Any) -> None:
        pass


async def test_B055_a_turn_costs_the_same_commands_and_documents_at_any_length(url: str, clock: list[float]) -> None:
    counter, found = Counter(), []
    with MongoClient[dict[str, Any]](url, event_listeners=[counter]) as client:
        prefix = f"t{uuid4().hex[:12]}_"
        repository = MongoChatMemoryRepository(client, database=DATABASE, prefix=prefix, clock=lambda: clock[0])
        for turns in (10, 1000):
            await repository.replace("c", [message for number in range(turns) for message in pair(number)])
            await repository.append("c", pair(-1), turn_id=f"before {turns}")
            for _ in range(2):
                counter.names.clear()
                counter.documents = 0
                await repository.append("c", pair(-2), turn_id=uuid4().hex)
                found.append((tuple(counter.names), counter.documents))
                counter.names.clear()
                counter.documents = 0
                assert len((await repository.recall("c", 21)).tail) == 21
                found.append((tuple(counter.names), counter.documents))
        await repository.append("c", pair(0), turn_id="limited", retention=Retention(max_messages=2000))
        counter.documents = 0
        await repository.append("c", pair(0), turn_id="limited again", retention=Retention(max_messages=2000))
        assert counter.documents < 20  # what is removed, and a few more
        for name in client[DATABASE].list_collection_names():
            if name.startswith(prefix):
                client[DATABASE].drop_collection(name)
        await repository.aclose()
        assert client[DATABASE].command("ping")["ok"]  # a client that was given stays open
    assert set(found) == {(("find", "find", "insert", "update"), 1), (("find", "find", "find"), 21)}


async def test_a_turn_beyond_what_a_document_may_hold_is_an_error_before_anything_is_written(fresh: Any) -> None:
    large = UserMessage("secret" * 1_500_000)
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        for write in (
            lambda: repository.append("c", [large, large], turn_id="t1"),
            lambda: repository.append("new", [large, large], turn_id="t1"),
            lambda: repository.replace("c", [UserMessage("secret" * 3_000_000)]),
        ):
            with pytest.raises(StorageError, match=r"bytes; MongoDB keeps at most 16,\d+,\d+ in one document") as caught:
                await write()
            assert "secret" not in str(caught.value)
        assert [row.count for row in (await repository.conversations()).items] == [2]
        assert not list(repository._hop.store.garbage.find({}))
        await repository.append("c", [large], turn_id="t1")
        await repository.replace("c", [large, large])  # one document each
        assert [entry.message for entry in (await repository.page("c")).items] == [large, large]


# -- servers, clients, arguments


@pytest.mark.parametrize("call", ["append", "recall", "conversations", "acquire"])
async def test_a_server_that_is_not_there_is_an_error_without_the_password(call: str) -> None:
    repository = MongoChatMemoryRepository(f"mongodb://me:s3cr3t@127.0.0.1:{free_port()}/", timeout=0.2)
    calls: dict[str, Any] = {
        "append": lambda: repository.append("c", pair(0), turn_id="t"),
        "recall": lambda: repository.recall("c", 1),
        "conversations": repository.conversations,
        "acquire": lambda: repository.acquire("c", "one", 5),
    }
    async with closing(repository):
        with pytest.raises(
            StorageError, match=r"MongoDB \(database `advisorchain`\) was not reached within 0.2 s"
        ) as caught:
            await calls[call]()
        text = "".join(traceback.format_exception(caught.value))
        assert "s3cr3t" not in text + repr(repository)
        assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        "http://127.0.0.1",
        "mongodb://",
        "mongodb://me:s3cr3t@s3cr3t@host",
        "mongodb://me:s3cr3t/x@host:port",
        "mongodb://h/?w=0",
    ],
)
def test_a_url_that_cannot_work_is_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"`url_or_client`|`url`|`w=0`") as caught:
        MongoChatMemoryRepository(given)
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"database": ""}, "`database`"),
        ({"database": "a b"}, "`database`"),
        ({"database": 7}, "`database`"),
        ({"prefix": "a-b"}, "`prefix`"),
        ({"prefix": None}, "`prefix`"),
        ({"max_connections": 0}, "`max_connections`"),
        ({"timeout": 0}, "`timeout`"),
        ({"timeout": "1"}, "`timeout`"),
    ],
)
def test_arguments_that_cannot_work_are_refused(options: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        MongoChatMemoryRepository("mongodb://127.0.0.1", **options)


def test_the_database_is_the_given_one_or_that_of_the_url() -> None:
    for url, database, name in (
        ("mongodb://127.0.0.1", None, "advisorchain"),
        ("mongodb://127.0.0.1/mine", None, "mine"),
        ("mongodb://127.0.0.1/mine", "other", "other"),
    ):
        assert f"`{name}`" in repr(MongoChatMemoryRepository(url, database=database))


def test_the_clients_own_write_concern_counts_and_else_the_majority_does() -> None:
    for url, concern in (
        ("mongodb://h", {"w": "majority"}),
        ("mongodb://h/?w=1", {"w": 1}),
        ("mongodb://h/?w=3&journal=true", {"w": 3, "j": True}),
    ):
        assert MongoChatMemoryRepository(url)._hop.store.entries.write_concern.document == concern


async def test_the_asynchronous_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not the asynchronous one"):
        MongoChatMemoryRepository(AsyncMongoClient("mongodb://127.0.0.1", connect=False))


def test_a_missing_driver_is_an_error_that_spells_the_command() -> None:
    code = """
import sys
sys.modules["pymongo"] = sys.modules["bson"] = None
from advisorchain.errors import MissingExtraError
try:
    import advisorchain.memory.repositories.mongodb
except MissingExtraError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "advisorchain[mongodb]"' in ran.stdout


async def test_indexes_are_made_on_first_use_or_on_request(fresh: Any) -> None:
    async with closing(fresh(create=False)) as repository:
        with pytest.raises(StorageError, match="`create_indexes`"):
            await repository.recall("c", 1)
        await repository.create_indexes()
        await repository.append("c", pair(0), turn_id="t")
        async with closing(fresh(prefix_of(repository), create=False)) as other:
            assert (await other.recall("c", 1)).count == 2
        async with closing(fresh(prefix_of(repository))) as other:
            assert (await other.recall("c", 1)).count == 2


async def test_what_a_newer_version_wrote_is_left_alone(fresh: Any) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t")
        repository._hop.store.meta.update_one({"_id": "schema"}, {"$set": {"version": 99}})
        async with closing(fresh(prefix_of(repository))) as other:
            with pytest.raises(StorageError, match=r"newer advisorchain \(schema 99"):
                await other.append("c", pair(1), turn_id="t1")


async def test_a_collection_with_a_collation_is_refused(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(database: Any, **_: Any) -> Any:
        return [{"name": name, "options": {"collation": {"locale": "en"}}} for name in database.list_collection_names()]

    monkeypatch.setattr(Database, "list_collections", listed)
    async with closing(fresh()) as repository:
        with pytest.raises(StorageError, match="has a collation"):
            await repository.append("c", pair(0), turn_id="t")


async def test_a_message_that_cannot_be_read_is_an_error_that_names_the_entry(fresh: Any) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", [UserMessage("secret")], turn_id="t0")
        await repository.append("c", pair(1), turn_id="t1")
        repository._hop.store.entries.update_one(
            {"sequence": 1}, {"$set": {"message": '{"role":"user","content":7,"x":"secret"}'}}
        )
        with pytest.raises(StorageError, match="entry 1 cannot be read") as caught:
            await repository.recall("c", 5)
        assert "secret" not in str(caught.value)


async def test_entries_that_are_gone_for_good_are_an_error_and_no_endless_search(fresh: Any) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")  # makes the indexes, which may take longer than 0.3 seconds
        await repository.append("c", pair(1), turn_id="t1")
        repository._hop.store.entries.delete_many({"lane": 0})
        async with closing(fresh(prefix_of(repository), timeout=0.3)) as other:
            with pytest.raises(StorageError, match="`timeout`"):
                await other.recall("c", None)


async def test_the_servers_clock_is_asked_once_a_minute(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    with MongoClient[dict[str, Any]](url, event_listeners=[counter]) as client:
        prefix = f"t{uuid4().hex[:12]}_"
        repository = MongoChatMemoryRepository(client, database=DATABASE, prefix=prefix)
        for number in range(20):
            await repository.append("c", pair(number), turn_id=f"t{number}", retention=Retention(timedelta(hours=1)))
        assert counter.names.count("hello") == 1
        seconds = repository._hop.store.seconds()
        assert abs(seconds - time.time()) < 5
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + 61)
        await repository.acquire("c", "one", 5)
        assert counter.names.count("hello") == 2
        assert abs(repository._hop.store.seconds() - time.time()) < 5
        for name in client[DATABASE].list_collection_names():
            if name.startswith(prefix):
                client[DATABASE].drop_collection(name)


async def test_conversations_that_ended_long_ago_go_as_new_ones_come(fresh: Any, clock: list[float]) -> None:
    async with closing(fresh(clock=lambda: clock[0])) as repository:
        for number in range(6):
            await repository.append(f"old{number}", pair(number), turn_id="t", retention=Retention(timedelta(seconds=5)))
        clock[0] += 3000
        await repository.append("new0", pair(0), turn_id="t")
        assert len(list(repository._hop.store.conversations.find({}))) == 7
        clock[0] += 3000
        await repository.append("new1", pair(0), turn_id="t")
        await repository.append("new2", pair(0), turn_id="t")
        assert len(list(repository._hop.store.conversations.find({}))) == 3
        check_no_remains(repository)


async def test_a_process_that_was_forked_is_told_to_make_its_own(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(StorageError, match="forked"):
                await repository.recall("c", 1)


@pytest.mark.slow
async def test_what_was_acknowledged_outlives_the_server(tmp_path: Path) -> None:
    port = free_port()
    server = started(tmp_path, port)
    repository = MongoChatMemoryRepository(f"mongodb://127.0.0.1:{port}", timeout=20)
    try:
        acknowledged = []
        for number in range(60):
            if number % 20 == 10:
                server.kill()
                server.wait()
                server = started(tmp_path, port)
            for _ in range(3):  # whether it was stored is not known when the connection broke; the turn id tells
                try:
                    await repository.append("c", pair(number), turn_id=f"t{number}")
                    acknowledged.append(f"t{number}")
                    break
                except StorageError:
                    continue
        found = [entry.turn_id for entry in (await repository.page("c", limit=1000)).items]
        assert found[::2] == acknowledged == [f"t{number}" for number in range(60)]
    finally:
        await repository.aclose()
        stopped(server)


async def test_prune_removes_the_leases_of_holders_that_died_an_hour_ago(
    fresh: Callable[..., Any], clock: list[float]
) -> None:
    async with closing(fresh(clock=lambda: clock[0])) as repository:
        for name in ("one", "two"):
            assert await repository.acquire(name, "me", 10)
            clock[0] += 1800
        clock[0] += 1809
        assert await repository.prune() == 0
        assert [found["_id"] for found in repository._hop.store.leases.find({})] == ["two"]


async def test_a_name_that_dns_does_not_know_is_told_as_that(fresh: Callable[..., Any]) -> None:
    def work(store: Any) -> None:
        raise UnknownNameError("no-such-host.invalid")  # as the driver says it on first use

    async with closing(fresh()) as repository:
        with pytest.raises(StorageError, match=r"was not found by the `mongodb\+srv://` name in the URL") as raised:
            await repository._hop.run(work)
    assert "invalid" not in str(raised.value)
