"""Chat memory in SQL databases: the laws on SQLite, PostgreSQL and MariaDB, the handed cases, and what is in the tables."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from advisorchain.errors import ConversationIdError, StorageError
from advisorchain.memory import open_repository
from advisorchain.memory.repositories import _times
from advisorchain.memory.repositories._sql import rows as _sql_rows
from advisorchain.memory.repositories._sql import work as _sql_work
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

from ._kit import Clock, everything, pair, texts
from ._sql_servers import ON_SERVERS, Place, database


@pytest.fixture(params=["sqlite-memory", "sqlite-file", *ON_SERVERS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture(params=ON_SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture
def opened(place: Place) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened_(**options: Any) -> AsyncIterator[SqlChatMemoryRepository]:
        async with aclosing(place.repository(**options)) as repository:
            yield repository

    return opened_


# --- the handed cases


async def test_B013_a_batch_of_fifty_keeps_its_order_and_its_times(opened: Any) -> None:
    async with opened() as repository:
        await repository.append("c", [UserMessage(f"Message {n}") for n in range(50)], turn_id="t")
        first = await everything(repository)
        await repository.append("c", pair(1), turn_id="t2")
        for _ in range(10):
            assert (await everything(repository))[:50] == first
        assert [entry.message.text for entry in first] == [f"Message {n}" for n in range(50)]


async def test_B014_twenty_messages_within_a_second_keep_their_order(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    monkeypatch.setattr(_times, "now", lambda: moment)  # all of them at one time, to the second and to the microsecond
    async with opened() as repository:
        for number in range(20):
            await repository.append("c", [UserMessage(f"m{number}")], turn_id=f"t{number}")
        entries = await everything(repository)
        assert [entry.message.text for entry in entries] == [f"m{number}" for number in range(20)]
        assert {entry.created for entry in entries} == {moment}


async def test_B042_long_messages_are_stored_whole(opened: Any) -> None:
    batch = [UserMessage("ü" * length) for length in (4001, 65_536, 1_000_000)]
    result = ToolMessage("r" * 200_000, tool_call_id="k", structured={"rows": ["x" * 1000] * 200})
    async with opened() as repository:
        await repository.append("c", [*batch, result], turn_id="t")
        assert [entry.message for entry in await everything(repository)] == [*batch, result]


async def test_B043_long_and_special_ids_do_not_collide(opened: Any) -> None:
    ids = ["x" * 36 + "1", "x" * 36 + "2", "x" * 64, "ж" * 255, "𝔁" * 255, "a:b/c%d_e", "ключ", "用户-1"]
    ids += [
        "A",
        "a",
        "a ",
        " a",
        "á",
        "a\u0301",
        "ß",
        "ss",
        "\ufffe",
        "\U0010ffff",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "a\\'--",
        "\n"[0] + "x",
    ]
    async with opened() as repository:
        for name in ids:
            await repository.append(name, [UserMessage(name)], turn_id=name)
        for name in ids:
            assert [entry.message.text for entry in await everything(repository, name)] == [name]
        listed = [row.conversation_id for row in (await repository.conversations(limit=1000)).items]
        assert listed == sorted(ids)
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


@pytest.mark.parametrize("turns", [1, 1000])
async def test_B055_a_turn_writes_a_small_fixed_number_of_rows(server: Place, turns: int) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.replace("c", [message for number in range(turns) for message in pair(number)])
        told = Statements(repository)
        before = server.rows()
        await repository.append("c", pair(-1), turn_id="new")
        assert len(told.texts) == {"postgresql": 1, "mariadb": 6}[server.kind], told.texts
        after = server.rows()
        assert {name: after[name] - before[name] for name in after} == {
            "schema": 0, "conversations": 0, "entries": 2, "turns": 1, "leases": 0,
        }  # fmt: skip
        told.texts.clear()
        await repository.recall("c", 20)
        assert len(told.texts) == 1


class Statements:
    """Hears what a repository says to its driver."""

    def __init__(self, repository: SqlChatMemoryRepository) -> None:
        self.texts: list[str] = []
        link = repository._database._links._idle[-1]
        inner, told = link._cursor, self.texts

        class Cursor:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def execute(self, text: str, *values: Any) -> Any:
                told.append(text)
                return inner.execute(text, *values)

            def executemany(self, text: str, values: Any) -> Any:
                told.append(text)
                return inner.executemany(text, values)

            def close(self) -> None:
                pass

        class Driver:
            def __getattr__(self, name: str) -> Any:
                return getattr(driver, name)

            def cursor(self) -> Cursor:
                return Cursor()

            def commit(self) -> None:
                told.append("COMMIT")
                driver.commit()

        driver = link.driver
        link._cursor, link.driver = Cursor(), Driver()


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "REPEATABLE READ", "READ COMMITTED"])
async def test_B113_parallel_first_saves_do_not_deadlock(server: Place, level: str | None) -> None:
    """Eight threads, each with a new id, at the same moment, fifty rounds; each store has connections of its own."""
    threads, rounds = 8, 50
    barrier = threading.Barrier(threads)
    engine = create_engine(server.url, isolation_level=level, pool_size=threads) if level else None
    shared = server.on(engine) if engine else server.repository(pool_size=threads)
    await shared.create_tables()

    async def save(thread: int) -> None:
        for number in range(rounds):
            await to_thread.run_sync(barrier.wait, 60)
            await shared.append(f"{number}-{thread}", pair(thread), turn_id="t")

    def loop(thread: int) -> None:
        anyio.run(save, thread, backend="trio" if thread % 2 else "asyncio")

    async with aclosing(shared), anyio.create_task_group() as group:
        for thread in range(threads):
            group.start_soon(to_thread.run_sync, loop, thread)
    async with aclosing(server.repository()) as repository:
        rows = (await repository.conversations(limit=1000)).items
        assert {row.conversation_id: row.count for row in rows} == {
            f"{number}-{thread}": 2 for number in range(rounds) for thread in range(threads)
        }
        assert await texts(repository, "49-3") == ["u3", "a3"]
    if engine is not None:
        engine.dispose()


async def test_B114_replace_that_fails_on_the_third_row_changes_nothing(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as repository:
        for number in (1, 2):
            await repository.append("c", pair(number), turn_id=f"t{number}")
        before = await everything(repository)
        record, made = _sql_rows.Log._record, 0

        def third_has_no_message(self: Any, *given: Any) -> dict[str, Any]:
            nonlocal made
            made += 1
            return {**record(self, *given), **({"message": None} if made == 3 else {})}

        monkeypatch.setattr(_sql_rows.Log, "_record", third_has_no_message)
        with pytest.raises(StorageError, match="nothing was stored"):
            await repository.replace("c", [UserMessage(f"m{number}") for number in range(5)])
        monkeypatch.undo()
        assert await everything(repository) == before


async def test_B130_time_zones_and_a_clock_set_back_do_not_matter(server: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = "-c timezone=America/New_York" if server.kind == "postgresql" else None
    url = server.url.update_query_dict({"options": zone}) if zone else server.url
    async with aclosing(SqlChatMemoryRepository(url, create=True, table_prefix=server.prefix)) as repository:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        start = datetime.now(UTC)
        revision = await repository.append("c", pair(1), turn_id="t1", retention=Retention(ttl=timedelta(hours=1)))
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        earlier = start - timedelta(hours=1)
        monkeypatch.setattr(_times, "now", lambda: earlier)
        await repository.append("c", pair(2), turn_id="t2", expected=revision)
        monkeypatch.undo()
        time.tzset()
        entries = await everything(repository)
        assert [entry.message.text for entry in entries] == ["u1", "a1", "u2", "a2"]
        assert entries[2].created == earlier
        assert timedelta(0) <= entries[0].created - start < timedelta(minutes=1)
        assert all(entry.created.tzinfo is UTC for entry in entries)
        assert await repository.acquire("c", "me", 3600)
        ends = server.run("SELECT ends FROM {}conversations")[0][0]
        expires = server.run("SELECT expires FROM {}leases")[0][0]
        for end in (ends, expires):  # by the server's clock, in UTC
            assert abs(_times.moment(end) - timedelta(hours=1) - start) < timedelta(minutes=1)


async def test_B133_two_engines_on_one_database_write_whole_turns(server: Place) -> None:
    turn: list[Message] = [
        UserMessage("q"),
        AssistantMessage(tool_calls=(ToolCall("k", "f", "{}"),)),
        ToolMessage("r", tool_call_id="k"),
        AssistantMessage("a"),
    ]
    async with aclosing(server.repository()) as one, aclosing(server.repository()) as other:

        async def write(repository: Any, name: str) -> None:
            for number in range(15):
                await repository.append("c", turn, turn_id=f"{name}{number}")

        async with anyio.create_task_group() as group:
            group.start_soon(write, one, "one")
            group.start_soon(write, other, "other")
        entries = await everything(one)
        assert [entry.message for entry in entries] == turn * 30
        assert [entry.sequence for entry in entries] == list(range(1, 121))
        assert all(len({entry.turn_id for entry in entries[start : start + 4]}) == 1 for start in range(0, 120, 4))


async def test_B156_twenty_tasks_add_forty_messages(opened: Any) -> None:
    async with opened() as repository:

        async def add(number: int) -> None:
            await repository.append("c", pair(number), turn_id=f"t{number}")

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(add, number)
        assert len(await texts(repository)) == 40


async def test_B158_threads_and_tasks_write_while_others_read(opened: Any) -> None:
    async def add(repository: Any, name: str, adds: int) -> None:
        for number in range(adds):
            await repository.append(name, pair(number), turn_id=f"t{number}")
            assert (await repository.recall(name, 20)).count == 2 * number + 2

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
    return lambda: anyio.run(add, repository, name, 12 + 1, backend=backend)


async def test_B159_two_stores_on_one_database_lose_no_write(server: Place) -> None:
    def loop(number: int) -> None:
        async def write() -> None:
            async with aclosing(server.repository()) as repository:
                for turn in range(50):
                    await repository.append("c", pair(turn), turn_id=f"{number}.{turn}")

        anyio.run(write, backend="trio" if number else "asyncio")

    async with anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(to_thread.run_sync, loop, number)
    async with aclosing(server.repository()) as repository:
        entries = await everything(repository)
        assert sorted(entry.sequence for entry in entries) == list(range(1, 201))


@pytest.mark.parametrize("kind", ["sqlite-file", *ON_SERVERS])
async def test_B160_many_at_once_make_the_tables_once(kind: str, tmp_path: Path) -> None:
    place = Place(kind, tmp_path, fresh=True)

    def loop(number: int) -> None:
        async def write() -> None:
            async with aclosing(place.repository()) as repository:
                await repository.append("c", pair(number), turn_id=f"{number}")

        anyio.run(write)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(to_thread.run_sync, loop, number)
    async with aclosing(place.repository(create=False)) as repository:
        assert (await repository.recall("c", 1)).count == 16
    assert place.rows()["schema"] == 1
    place.close()


async def test_B162_a_tool_result_added_by_hand_keeps_its_content(opened: Any) -> None:
    result = ToolMessage("bye", tool_call_id="id1", name="exit")
    async with opened() as repository:
        await repository.append("c", [result], turn_id="t")
        assert [entry.message for entry in await everything(repository)] == [result]


HOSTILE = [
    "x' || id != 'x",
    'x" OR "1"=="1',
    "*",
    "a') or ('1'='1",
    "x' OR 1=1 --",
    '{"$ne": null}',
    "%s",
    "%(id)s",
    ":id",
    "?",
    "\\",
]


async def test_hostile_ids_and_prefixes_are_plain_values(opened: Any) -> None:
    async with opened() as repository:
        await repository.append("tenant-a", pair(1), turn_id="t")
        await repository.append("tenant-b", pair(2), turn_id="t")
        for name in HOSTILE:
            assert (await repository.recall(name, 20)).count == 0
            assert not await repository.delete(name)
            assert (await repository.conversations(prefix=name)).items == ()
            await repository.append(name, [UserMessage(name)], turn_id=name)
            assert await texts(repository, name) == [name]
            assert await repository.append(name, [UserMessage(name)], turn_id=name) == 1
            token = await repository.acquire(name, name, 60)
            assert token is not None
            await repository.release(name, token)
        assert await texts(repository, "tenant-a") == ["u1", "a1"]
        assert await texts(repository, "tenant-b") == ["u2", "a2"]


# --- what is in the tables


async def test_delete_leaves_no_row(opened: Any, place: Place) -> None:
    async with opened() as repository:
        await repository.append("c", [SystemMessage("s"), *pair(1)], turn_id="t")
        await repository.delete("c")
        await repository.append("c", pair(2), turn_id="t", retention=Retention(ttl=timedelta(microseconds=1)))
        await repository.acquire("c", "me", 60)
        token = await repository.acquire("c", "me", 60)
        assert token is not None
        await repository.release("c", token)
        await repository.append("c", pair(3), turn_id="t3")  # a new life in place of one that ended
        await repository.delete("c")
        assert (await repository.conversations()).items == ()
        if place.kind != "sqlite-memory":
            assert place.rows() == {"schema": 1, "conversations": 0, "entries": 0, "turns": 0, "leases": 0}


async def test_prune_removes_the_leases_of_holders_that_died_an_hour_ago(server: Place) -> None:
    clock = Clock()
    async with aclosing(server.repository(clock=clock)) as repository:
        for name in ("one", "two"):
            assert await repository.acquire(name, "me", 10)
            clock.seconds += 1800
        clock.seconds += 1809
        assert await repository.prune() == 0
        assert server.run("SELECT conversation_id FROM {}leases") == [("two",)]


@pytest.mark.parametrize(
    "remove",
    [
        lambda repository: repository.delete("c"),
        lambda repository: repository.replace("c", [UserMessage("other")]),
        lambda repository: repository.prune(before=datetime(2200, 1, 1, tzinfo=UTC)),
    ],
    ids=["delete", "replace", "prune"],
)
async def test_what_was_deleted_is_not_kept_in_this_process(server: Place, remove: Callable[..., Any]) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        life = (await repository.recall("c", 5)).incarnation
        assert len(repository._known._known.of(life)) == 2
        await remove(repository)
        assert not repository._known._known.of(life)


async def test_a_restored_backup_is_not_confused_with_what_was_read(server: Place) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        for table in ("conversations", "entries", "turns"):
            server.run(f"CREATE TABLE {{}}saved_{table} AS SELECT * FROM {{}}{table}")
        await repository.append("c", pair(2), turn_id="t2")
        assert [entry.message.text for entry in (await repository.recall("c", 20)).tail] == ["u1", "a1", "u2", "a2"]
        for table in ("conversations", "entries", "turns"):
            server.run(f"DELETE FROM {{}}{table}")
            server.run(f"INSERT INTO {{}}{table} SELECT * FROM {{}}saved_{table}")
        assert [entry.message.text for entry in (await repository.recall("c", 20)).tail] == ["u1", "a1"]
        await repository.append("c", pair(3), turn_id="t3")  # the same incarnation, the same sequences
        assert [entry.message.text for entry in (await repository.recall("c", 20)).tail] == ["u1", "a1", "u3", "a3"]


async def test_an_entry_that_is_no_message_is_told_by_its_place(server: Place) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        server.run("UPDATE {}entries SET message = 'secret words' WHERE sequence = 2")
        with pytest.raises(StorageError, match=r"entry 2 in .* cannot be read") as raised:
            await repository.recall("c", 20)
        assert "secret" not in str(raised.value)


async def test_known_entries_are_not_parsed_again(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as repository:
        await repository.append("c", pair(1), turn_id="t1")
        first = (await repository.recall("c", 20)).tail
        monkeypatch.setattr("advisorchain.memory.repositories._sql.reading.load_message", None)
        again = (await repository.recall("c", 20)).tail
        assert [one is other for one, other in zip(first, again, strict=True)] == [True, True]
        assert (await everything(repository))[0] is first[0]


@pytest.mark.slow
async def test_a_write_of_any_size_goes_through(opened: Any) -> None:
    batch = [UserMessage(f"{number}") for number in range(20_000)]
    async with opened() as repository:
        await repository.append("c", batch, turn_id="t")
        assert (await repository.recall("c", 3)).count == 20_000
        assert await repository.fork("c", "d", at=19_999)
        assert await repository.append("d", pair(1), turn_id="n", retention=Retention(max_messages=2)) == 2
        assert await texts(repository, "d") == ["u1", "a1"]
        assert await repository.replace("c", batch[:5]) == 2
        assert len(await everything(repository)) == 5


# --- engines of the application


async def test_an_engine_that_was_given_stays_as_it_was(server: Place) -> None:
    engine = create_engine(server.url, pool_size=1, max_overflow=0)
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        state = _state_of(raw)
    async with aclosing(server.on(engine)) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        assert (await repository.recall("c", 20)).count == 2
        token = await repository.acquire("c", "me", 60)
        assert token is not None
        await repository.release("c", token)
    with engine.connect() as connection:
        assert connection.connection.dbapi_connection is raw
        assert _state_of(raw) == state
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()
    assert server.rows()["leases"] == 0  # released for all to see


def _state_of(raw: Any) -> Any:
    return raw.get_autocommit() if callable(raw.autocommit) else (raw.autocommit, raw.info.transaction_status)


async def test_a_reader_on_an_engine_that_never_resets_sees_what_others_wrote(server: Place) -> None:
    engine = create_engine(server.url, pool_reset_on_return=None, pool_size=1)
    async with aclosing(server.on(engine)) as reader, aclosing(server.repository()) as writer:
        for number in range(3):
            await writer.append("c", pair(number), turn_id=f"{number}")
            assert (await reader.recall("c", 20)).count == 2 * number + 2
    engine.dispose()


@pytest.mark.parametrize("place", ["sqlite-file", *ON_SERVERS], indirect=True)
async def test_an_engine_without_a_pool_works(place: Place) -> None:
    engine = create_engine(place.url, poolclass=NullPool)
    async with aclosing(place.on(engine)) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        assert (await repository.recall("c", 20)).count == 2


# --- the database's own ways


async def test_the_window_is_read_along_the_key(server: Place) -> None:
    """Reading costs what the window costs: no row beyond it is looked at, however long the log is."""
    async with aclosing(server.repository()) as repository:
        await repository.replace("c", [message for number in range(3000) for message in pair(number)])
        server.run("ANALYZE {}entries" if server.kind == "postgresql" else "ANALYZE TABLE {}entries")
        statement = repository._database.statements.recall
        cursor = repository._database._links._idle[-1].driver.cursor()
        given = statement.given({"id": "c", "last": 21, "before": 2**62})
        read = _planned if server.kind == "postgresql" else _handled
        assert 21 <= read(cursor, statement.text, given) < 200


def _planned(cursor: Any, statement: str, given: Any) -> int:
    """Rows that PostgreSQL says that it has looked at."""
    plan = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", given).fetchone()[0][0]["Plan"]

    def looked_at(node: Any) -> int:
        own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) if "Relation Name" in node else 0
        return int(own * node["Actual Loops"]) + sum(looked_at(inner) for inner in node.get("Plans", ()))

    return looked_at(plan)


def _handled(cursor: Any, statement: str, given: Any) -> int:
    """Rows that MariaDB has asked its tables for, those of its own included."""

    def counted() -> int:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(row[1]) for row in cursor.fetchall())

    before = counted()
    cursor.execute(statement, given)
    cursor.fetchall()
    return counted() - before


def test_one_database_is_made_for_all(server: Place) -> None:
    assert database(server.kind) is server.url
    assert _sql_work.Database.__doc__


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
async def test_a_file_that_is_written_when_it_is_turned_to_write_ahead_is_waited_for(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}:///{tmp_path}/t.db"

    async def ask() -> None:
        async with open_repository(url) as repository:
            assert (await repository.recall("c", 20)).count == 2

    async with open_repository(url) as repository:
        await repository.append("c", pair(1), turn_id="t1")
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
            await anyio.sleep(0.05)  # so that they are refused at once by SQLite, and try again
            other.execute("COMMIT")
    with closing(sqlite3.connect(tmp_path / "t.db")) as another:
        assert another.execute("PRAGMA journal_mode").fetchone() == ("wal",)
