"""MongoDB: the laws, and what is its own. Run against nx-27017, which speaks its protocol; no real mongod was at hand.

Where the stand-in is known to differ: it compares texts that look like times as times, so that the ids "2026-01-02" and
"2026-01-02T00:00:00" are one to it; to MongoDB they are two.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from bson.errors import InvalidDocument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect, BulkWriteError, DocumentTooLarge, NetworkTimeout, OperationFailure
from pymongo.monitoring import CommandListener

from advisorchain.errors import (
    ChatMemoryError,
    ConfigurationError,
    ConversationDeletedError,
    LeaseLostError,
    StorageError,
)
from advisorchain.memory.repositories import _mongodb_leases as leases
from advisorchain.memory.repositories import _mongodb_writes as writes
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.mongodb import MongoChatMemoryRepository
from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, UserMessage
from advisorchain.testing.repository_laws import REPOSITORY_LAWS, Means, RepositoryLaw

from ._mongodb_server import DATABASE, free_port, mongodb_url, started, stopped


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with mongodb_url() as found:
        yield found


@pytest.fixture
def clock() -> list[float]:
    """Seconds; far from the real time, so that nothing by chance goes by that."""
    return [1_000.0]


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[..., Any]]:
    """Makes repositories on collections of their own, which go when the test ends."""
    prefixes: list[str] = []

    def made(prefix: str | None = None, **options: Any) -> MongoChatMemoryRepository:
        if prefix is None:
            prefix = f"t{uuid4().hex[:12]}_"
            prefixes.append(prefix)
        return MongoChatMemoryRepository(url, database=DATABASE, prefix=prefix, **options)

    yield made
    with MongoClient[dict[str, Any]](url) as client:
        database = client[DATABASE]
        for name in database.list_collection_names():
            if name.startswith(tuple(prefixes)):
                database.drop_collection(name)


@asynccontextmanager
async def closing(repository: Any) -> AsyncIterator[Any]:
    try:
        yield repository
    finally:
        await repository.aclose()


def pair(number: int) -> list[Message]:
    return [UserMessage(f"u{number}"), AssistantMessage(f"a{number}")]


@pytest.fixture
def means(fresh: Callable[..., Any], clock: list[float]) -> Means:
    async def wait(seconds: float) -> None:
        clock[0] += seconds

    async def disconnect(repository: Any) -> None:
        for server in repository._hop._client._topology._servers.values():
            for connection in [*server.pool.conns, *server.pool.active_contexts]:
                if hasattr(connection, "conn"):
                    connection.conn.get_conn.shutdown(socket.SHUT_RDWR)

    def reopen(repository: Any) -> Any:
        return fresh(prefix_of(repository), clock=lambda: clock[0])

    return Means(lambda: fresh(clock=lambda: clock[0]), wait, reopen, disconnect)


def prefix_of(repository: Any) -> str:
    return str(repository._hop.store.meta.name.removesuffix("meta"))


LONG_LAWS = {
    "a lost connection is mended",
    "a connection lost under way leaves whole turns",
    "a batch of thousands is whole",
}


@pytest.mark.parametrize(
    "law",
    [pytest.param(law, marks=[pytest.mark.slow] * (law.name in LONG_LAWS), id=law.name) for law in REPOSITORY_LAWS],
)
async def test_law(law: RepositoryLaw, means: Means) -> None:
    await law.run(means)


# -- the same as the in-memory repository, whatever comes in whatever order

IDS = st.sampled_from(["a", "b"])
TEXTS = st.sampled_from(["x", "y", "z"])
ONE = st.one_of(
    TEXTS.map(UserMessage),
    TEXTS.map(UserMessage),
    TEXTS.map(AssistantMessage),
    TEXTS.map(SystemMessage),
)
BATCH = st.lists(ONE, min_size=1, max_size=5)
RETENTION = st.sampled_from(
    [
        None,
        None,
        Retention(timedelta(seconds=50)),
        Retention(timedelta.max),
        Retention(max_messages=1),
        Retention(max_messages=3),
        Retention(timedelta(seconds=90), max_messages=4),
    ]
)
STEP = st.one_of(
    st.tuples(st.just("append"), IDS, BATCH, st.integers(1, 12), RETENTION),
    st.tuples(st.just("append"), IDS, BATCH, st.integers(1, 1000), RETENTION),
    st.tuples(st.just("append_late"), IDS, BATCH, st.integers(1, 1000)),
    st.tuples(st.just("replace"), IDS, BATCH, RETENTION),
    st.tuples(st.just("cut"), IDS, st.lists(st.booleans(), max_size=30), RETENTION),
    st.tuples(st.just("summarise"), IDS, st.integers(0, 5), RETENTION),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("rename"), IDS, IDS),
    st.tuples(st.just("fork"), IDS, IDS, st.one_of(st.none(), st.integers(0, 12))),
    st.tuples(st.just("prune")),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("acquire"), IDS, st.sampled_from(["one", "two"]), st.integers(1, 40)),
)


class Told:
    """A repository, and what was told of it before; random names are numbered as they come."""

    def __init__(self, repository: Any) -> None:
        self.repository = repository
        self.lives: dict[str, int] = {}
        self.names: dict[Any, int] = {}

    def number(self, name: Any) -> int:
        return self.names.setdefault(name, len(self.names))

    async def step(self, what: str, *given: Any) -> Any:
        try:
            return await getattr(self, what)(*given)
        except ChatMemoryError as error:
            return type(error)

    async def append(self, name: str, batch: Any, turn: int, retention: Any) -> Any:
        return await self.repository.append(name, batch, turn_id=f"t{turn}", retention=retention)

    async def append_late(self, name: str, batch: Any, turn: int) -> Any:
        return await self.repository.append(name, batch, turn_id=f"t{turn}", incarnation=self.lives.get(name))

    async def replace(self, name: str, batch: Any, retention: Any) -> Any:
        return await self.repository.replace(name, batch, retention=retention)

    async def cut(self, name: str, kept: list[bool], retention: Any) -> Any:
        stored = (await self.repository.page(name, limit=1000)).items
        return await self.repository.replace(
            name, [entry for entry, stays in zip(stored, kept, strict=False) if stays], retention=retention
        )

    async def summarise(self, name: str, place: int, retention: Any) -> Any:
        stored = list((await self.repository.page(name, limit=1000)).items)
        created = datetime(2026, 1, 1, tzinfo=UTC)
        summary = Entry(10**6, "s", AssistantMessage("so far"), created, "summary", covers=place)
        return await self.repository.replace(name, [*stored[:place], summary, *stored[place:]], retention=retention)

    async def delete(self, name: str) -> Any:
        return await self.repository.delete(name)

    async def rename(self, name: str, other: str) -> Any:
        return await self.repository.rename(name, other)

    async def fork(self, name: str, other: str, at: Any) -> Any:
        return await self.repository.fork(name, other, at=at)

    async def prune(self) -> Any:
        return await self.repository.prune()

    async def acquire(self, name: str, owner: str, seconds: int) -> Any:
        return (await self.repository.acquire(name, owner, seconds)) is None

    async def seen(self) -> list[Any]:
        found: list[Any] = []
        for name in ("a", "b"):
            page = await self.repository.page(name, limit=3)
            entries = list(page.items)
            while page.next:
                page = await self.repository.page(name, limit=3, after=page.next)
                entries += page.items
            found.append([self.shown(entry) for entry in entries])
            back = await self.repository.page(name, newest_first=True)
            assert list(back.items) == entries[::-1]
            for last, before in ((0, None), (1, None), (4, None), (None, None), (2, 4), (3, 9), (None, 6)):
                recall = await self.repository.recall(name, last, before=before)
                self.lives[name] = recall.incarnation or self.lives.get(name, 0)
                found.append((recall.revision, self.number(("life", recall.incarnation)), recall.count))
                found += [[self.shown(entry) for entry in part] for part in (recall.tail, recall.systems)]
                found += [entry and self.shown(entry) for entry in (recall.question, recall.summary)]
        rows = (await self.repository.conversations()).items
        return [*found, *((row.conversation_id, row.count, row.expires and row.expires - row.updated) for row in rows)]

    def shown(self, entry: Entry) -> Any:
        return entry.sequence, self.number(entry.turn_id), entry.message, entry.kind, entry.covers


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=14))
def test_it_does_what_the_in_memory_repository_does(fresh: Any, steps: list[Any]) -> None:
    anyio.run(_same_as_in_memory, fresh, steps)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=30))
def test_it_does_what_the_in_memory_repository_does_at_length(fresh: Any, steps: list[Any]) -> None:
    anyio.run(_same_as_in_memory, fresh, steps)


async def _same_as_in_memory(fresh: Any, steps: list[Any]) -> None:
    now = [1000.0]
    async with closing(fresh(clock=lambda: now[0])) as mongo:
        expected, found = Told(InMemoryChatMemoryRepository(clock=lambda: now[0])), Told(mongo)
        for step in steps:
            if step[0] == "wait":
                now[0] += step[1]
            else:
                assert await found.step(*step) == await expected.step(*step), step
            assert await found.seen() == await expected.seen(), step
        now[0] += 7200
        while await mongo.prune():
            pass
        _check_no_remains(mongo)


def _check_no_remains(repository: Any) -> None:
    """What is no conversation's any more is gone."""
    store = repository._hop.store
    logs = {found["log"] for found in store.conversations.find({})}
    assert {found["log"] for found in store.entries.find({})} <= logs
    assert not list(store.garbage.find({"at": {"$lt": store.ticks() - 3_600_000_000}}))


# -- a process that dies at any moment


class DiedError(Exception):
    pass


class Breaking:
    """A collection whose process dies before one of its commands."""

    COMMANDS = (
        "find",
        "find_one",
        "insert_one",
        "insert_many",
        "update_one",
        "delete_one",
        "delete_many",
        "find_one_and_update",
    )

    def __init__(self, inner: Any, left: list[int]) -> None:
        self.inner, self.left = inner, left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in self.COMMANDS:
            return found

        def call(*args: Any, **named: Any) -> Any:
            if not self.left[0]:
                raise DiedError
            self.left[0] -= 1
            return found(*args, **named)

        return call


async def _filled(repository: Any) -> None:
    for number in range(3):
        systems: list[Message] = [SystemMessage(f"s{number}")]
        await repository.append("c", [*systems, *pair(number)], turn_id=f"t{number}")
    await repository.append("old", pair(8), turn_id="t8", retention=Retention(timedelta(seconds=5)))
    await repository.append("old", pair(9), turn_id="t9")


async def _append_held(repository: Any) -> Any:
    token = await repository.acquire("new", "one", 50)
    return await repository.append("new", pair(5), turn_id="t5", token=token)


WRITES: dict[str, Callable[[Any], Any]] = {
    "append": lambda repository: repository.append("c", pair(5), turn_id="t5"),
    "append to none": lambda repository: repository.append("new", pair(5), turn_id="t5"),
    "append to an ended one": lambda repository: repository.append("old", pair(5), turn_id="t5"),
    "append under a lease": _append_held,
    "append and trim": lambda repository: repository.append("c", pair(5), turn_id="t5", retention=Retention(max_messages=3)),
    "replace": lambda repository: repository.replace("c", [*pair(5), *pair(6)]),
    "replace none": lambda repository: repository.replace("new", pair(5)),
    "replace an ended one": lambda repository: repository.replace("old", pair(5)),
    "delete": lambda repository: repository.delete("c"),
    "rename": lambda repository: repository.rename("c", "new"),
    "rename to an ended one": lambda repository: repository.rename("c", "old"),
    "fork": lambda repository: repository.fork("c", "new"),
    "fork to an ended one": lambda repository: repository.fork("c", "old", at=5),
    "prune": lambda repository: repository.prune(),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_process_that_dies_leaves_all_or_nothing_and_no_remains(
    fresh: Callable[..., Any], clock: list[float], write: str
) -> None:
    seen: list[Any] = []
    for commands in range(100):
        clock[0] = 1000.0
        async with closing(fresh(clock=lambda: clock[0])) as repository:
            await _filled(repository)
            clock[0] += 10
            before = await _told(repository)
            store = repository._hop.store
            whole = {name: getattr(store, name) for name in ("conversations", "entries", "leases", "garbage", "meta")}
            left = [commands]
            for name, collection in whole.items():
                setattr(store, name, Breaking(collection, left))
            done = True
            try:
                await WRITES[write](repository)
            except DiedError:
                done = False
            for name, collection in whole.items():
                setattr(store, name, collection)
            seen.append((before, await _told(repository)))
            if write.startswith("append") and not done:
                clock[0] += 100  # the lease of the dead has run out
                await WRITES[write](repository)
                assert "u5" in str(await _told(repository))
                assert str(await _told(repository)).count("u5") == 1
            clock[0] += 7200
            while await repository.prune():
                pass
            await repository.prune()
            _check_no_remains(repository)
        if done:
            break
    else:
        pytest.fail("it never ended")
    after = seen[-1][1]
    assert all(found in (before, after) for before, found in seen)
    assert after != seen[-1][0] or write == "prune"


async def _told(repository: Any) -> Any:
    told = {}
    for name in ("c", "new", "old"):
        recall = await repository.recall(name, None)
        entries = (await repository.page(name)).items
        told[name] = (recall.revision, recall.count, [entry.message.text for entry in entries])
        assert recall.count == len(entries)
        assert [entry for entry in entries if entry.role != "system"] == list(recall.tail)
    return told


# -- writers in many threads


@pytest.mark.parametrize("trims", [False, True])
async def test_readers_see_whole_turns_while_others_trim_and_replace(fresh: Callable[..., Any], trims: bool) -> None:
    retention = Retention(max_messages=6) if trims else None
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        stop = anyio.Event()

        async def write(name: str) -> None:
            for number in range(20):
                await repository.append("c", pair(number), turn_id=f"{name}{number}", retention=retention)

        async def shorten() -> None:
            while not stop.is_set():
                stored = (await repository.page("c")).items
                turns = len(stored) // 2
                try:
                    await repository.replace(
                        "c", stored[2 * (turns // 2) :], expected=(await repository.recall("c", 0)).revision
                    )
                except ChatMemoryError:
                    pass

        async def read() -> None:
            while not stop.is_set():
                recall = await repository.recall("c", 7)
                texts = [entry.message.text for entry in recall.tail]
                whole = texts[1:] if len(texts) % 2 else texts
                assert all(u[1:] == a[1:] and u[0] + a[0] == "ua" for u, a in zip(whole[::2], whole[1::2], strict=True))
                assert (recall.question is not None) == bool(len(texts) % 2 and texts[0][0] == "a")
                entries = (await repository.page("c")).items
                assert len(entries) % 2 == 0

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(shorten)
            async with anyio.create_task_group() as writers:
                for name in ("one", "two", "three"):
                    writers.start_soon(write, name)
            stop.set()
        recall = await repository.recall("c", None)
        assert recall.count == len(recall.tail)
        assert not trims or recall.count <= 6


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
    with pytest.raises(ConfigurationError, match=r"`url_or_client`|`w=0`") as caught:
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
        MongoChatMemoryRepository(AsyncMongoClient("mongodb://127.0.0.1", connect=False))  # type: ignore[arg-type]


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
    async with closing(fresh(timeout=0.3)) as repository:
        await repository.append("c", pair(0), turn_id="t0")
        await repository.append("c", pair(1), turn_id="t1")
        repository._hop.store.entries.delete_many({"lane": 0})
        with pytest.raises(StorageError, match="`timeout`"):
            await repository.recall("c", None)


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
        monkeypatch.setattr("advisorchain.memory.repositories._mongodb_client.time.monotonic", lambda: real() + 61)
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
        _check_no_remains(repository)


async def test_a_process_that_was_forked_is_told_to_make_its_own(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with closing(fresh()) as repository:
        await repository.append("c", pair(0), turn_id="t")
        with monkeypatch.context() as patch:
            patch.setattr("advisorchain.memory.repositories._mongodb_client.os.getpid", lambda: -1)
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


# -- leases and turns that meet at the worst moment


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
