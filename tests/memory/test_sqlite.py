"""What is SQLite's own: files, locks, other processes, a full disk, what a statement costs."""

from __future__ import annotations

import gc
import json
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from advisorchain.errors import ConfigurationError, StorageError
from advisorchain.memory.repositories._sqlite import file as _sqlite_file
from advisorchain.memory.repositories._sqlite.thread import OwnThread
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    load_message,
)

from ._kit import pair

WORKER = Path(__file__).with_name("_store_worker.py")


@asynccontextmanager
async def opened(path: Any, **options: Any) -> AsyncIterator[SqliteChatMemoryRepository]:
    repository = SqliteChatMemoryRepository(path, **options)
    try:
        yield repository
    finally:
        await repository.aclose()


def connection(repository: SqliteChatMemoryRepository) -> sqlite3.Connection:
    found = repository._file._connection
    assert found is not None
    return found


async def test_what_a_turn_survives_is_what_the_docs_say(tmp_path: Path) -> None:
    for options, level in (({}, 1), ({"synchronous": "FULL"}, 2), ({"synchronous": "OFF"}, 0)):
        async with opened(tmp_path / "memory.db", **options) as repository:
            await repository.append("c", pair(1), turn_id=f"{level}")
            found = connection(repository)
            assert found.execute("PRAGMA synchronous").fetchone() == (level,)
            assert found.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_lock_that_outlasts_many_tries_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite_file, "_SLICE", 0.0)
    async with opened(tmp_path / "memory.db") as repository:
        await repository.append("c", pair(1), turn_id="1")
        once, failed, many = repository._file._once, 0, threading.Event()

        def counted(*given: Any) -> Any:
            nonlocal failed
            try:
                return once(*given)
            except sqlite3.OperationalError:
                failed += 1
                if failed == 5:
                    many.set()
                raise

        monkeypatch.setattr(repository._file, "_once", counted)
        with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as group:
                group.start_soon(partial(repository.append, "c", pair(2), turn_id="2"))
                await to_thread.run_sync(many.wait, 30)
                other.execute("ROLLBACK")
        assert failed >= 5
        assert (await repository.recall("c", None)).count == 4


def rows(path: Path, table: str) -> int:
    database = sqlite3.connect(path)
    try:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        database.close()


async def texts(repository: SqliteChatMemoryRepository, conversation_id: str = "c") -> list[str]:
    return [entry.message.text for entry in (await repository.recall(conversation_id, None)).tail]


# --- what is written


@pytest.mark.parametrize("turns", [1, 1000])
async def test_B055_a_turn_writes_a_small_fixed_number_of_statements(tmp_path: Path, turns: int) -> None:
    async with opened(tmp_path / "c.db") as repository:
        await repository.replace("c", [message for number in range(turns) for message in pair(number)])
        statements: list[str] = []
        connection(repository).set_trace_callback(statements.append)
        before = connection(repository).total_changes
        await repository.append("c", pair(-1), turn_id="new")
        assert len(statements) == 7  # begin, the row, the turn, two entries, the row again, commit
        assert connection(repository).total_changes - before == 4
        statements.clear()
        await repository.recall("c", 20)
        assert len(statements) == 4


async def test_reading_uses_the_keys_only(tmp_path: Path) -> None:
    from advisorchain.memory.repositories._sqlite import rows as _sqlite_rows

    async with opened(tmp_path / "c.db") as repository:
        await repository.append("c", [SystemMessage("s"), *pair(1)], turn_id="t")
        bounds, _ = _sqlite_rows._among("prefix")
        for statement in (
            _sqlite_rows._FOUND, _sqlite_rows._NEWEST, _sqlite_rows._SINCE, _sqlite_rows._ONE, _sqlite_rows._FIRST,
            _sqlite_rows._QUESTION, _sqlite_rows._TRIM, _sqlite_rows._COPY, _sqlite_rows._LAST, _sqlite_rows._ENDED,
            _sqlite_rows._UNTOUCHED, _sqlite_rows._ENDED + bounds, _sqlite_rows._UNTOUCHED + bounds,
        ):  # fmt: skip
            plan = connection(repository).execute(f"EXPLAIN QUERY PLAN {statement}", [1] * statement.count("?")).fetchall()
            text = " ".join(row[3] for row in plan)
            assert "SEARCH" in text
            assert "SCAN entries" not in text
            assert "SCAN conversations" not in text
            assert "TEMP B-TREE" not in text


@pytest.mark.parametrize("turns", [10, 10_000])
async def test_what_goes_costs_what_it_is_and_not_what_the_log_is(tmp_path: Path, turns: int) -> None:
    """Counted in steps of SQLite's machine, which time and disk do not change."""
    async with opened(tmp_path / "c.db") as repository:
        batch = [message for number in range(turns) for message in pair(number)]
        await repository.replace("c", [SystemMessage("s"), *batch])
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        connection(repository).set_progress_handler(count, 1)
        before = connection(repository).total_changes
        keep = Retention(ttl=timedelta(days=1), max_messages=2 * turns)
        await repository.append("c", pair(-1), turn_id="one", retention=keep)
        assert connection(repository).total_changes - before == 6  # four as ever, and two entries that go
        print(f"{steps} steps for a turn on {2 * turns} messages")
        assert 300 < steps < 700
        assert (await texts(repository))[:2] == ["u1", "a1"]
        steps = 0
        for number in range(5):  # a newest turn that is longer than it may be is not counted again and again
            keep = Retention(max_messages=1)
            await repository.append("c", [AssistantMessage("more")], turn_id=f"more{number}", retention=keep)
            steps, last = 0, steps
        assert 100 < last < 700


async def test_a_fork_is_made_by_the_database(tmp_path: Path) -> None:
    counts = []
    async with opened(tmp_path / "c.db") as repository:
        for turns in (2, 500):
            await repository.replace(f"c{turns}", [message for number in range(turns) for message in pair(number)])
            statements: list[str] = []
            connection(repository).set_trace_callback(statements.append)
            assert await repository.fork(f"c{turns}", f"d{turns}")
            connection(repository).set_trace_callback(None)
            counts.append(len(statements))
            assert await texts(repository, f"d{turns}") == await texts(repository, f"c{turns}")
    assert counts[0] == counts[1] < 20


async def test_delete_and_replace_leave_no_row_behind(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as repository:
        await repository.append("c", [SystemMessage("s"), *pair(1)], turn_id="t")
        await repository.replace("c", [UserMessage("x")])
        assert rows(path, "entries") == 1
        await repository.fork("c", "d")
        await repository.rename("d", "e")
        await repository.delete("c")
        assert await repository.prune(before=datetime.max.replace(tzinfo=UTC)) == 1
        assert [rows(path, table) for table in ("conversations", "entries", "turns", "leases")] == [0, 0, 0, 0]


async def test_messages_are_plain_json_text(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as repository:
        await repository.append("c", [UserMessage("grüß dich")], turn_id="t")
    database = sqlite3.connect(path)
    kind, text = database.execute("SELECT typeof(message), message FROM entries").fetchone()
    database.close()
    assert kind == "text"
    assert json.loads(text)["content"] == "grüß dich"


async def test_B118_fields_of_a_later_version_are_ignored_and_an_unreadable_entry_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as repository:
        await repository.append("c", [UserMessage("hi"), UserMessage("private")], turn_id="t")
    database = sqlite3.connect(path)
    database.execute("UPDATE entries SET message = json_set(message, '$.mood', 'glad') WHERE sequence = 1")
    database.commit()
    async with opened(path) as repository:
        assert await texts(repository) == ["hi", "private"]
    database.execute("UPDATE entries SET message = json_set(message, '$.role', 'oracle') WHERE sequence = 2")
    database.commit()
    database.close()
    async with opened(path) as repository:
        with pytest.raises(StorageError, match=r"entry 2 in `.*c\.db` cannot be read") as caught:
            await repository.recall("c", 20)
        assert "private" not in str(caught.value)
        assert await repository.append("c", pair(1), turn_id="t2") == 2


_KINDS: list[Message] = [
    SystemMessage(
        "s", name="boss", metadata={"deep": [{"one": 1, "float": 1.0, "text": "1", "at": "2026-01-01T00:00:00Z"}]}
    ),
    UserMessage((TextPart("look"), ImagePart(data=b"\x00\xff", media_type="image/png"))),
    AssistantMessage("t", reasoning="r", tool_calls=(ToolCall("k", "f", "{}"),), metadata={"extras": {"sig": "x"}}),
    ToolMessage("x", tool_call_id="k", structured={"code": 0, "took": 2.0}, is_error=True),
]


async def test_B118_messages_read_in_a_new_process_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as repository:
        await repository.append("c", _KINDS, turn_id="t")
    printed = (await anyio.run_process([sys.executable, str(WORKER), "dump", str(path)])).stdout
    again = [load_message(line) for line in printed.splitlines()]
    assert again == _KINDS
    deep = again[0].metadata["deep"][0]
    assert (type(deep["one"]), type(deep["float"]), type(deep["text"])) == (int, float, str)


# --- what goes wrong


async def test_B114_replace_that_fails_half_way_leaves_the_old_state(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as repository:
        await repository.append("c", [*pair(1), *pair(2)], turn_id="t")
        old = await repository.recall("c", None)
        connection(repository).executescript(
            "CREATE TRIGGER third BEFORE INSERT ON entries WHEN NEW.sequence = 7 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        with pytest.raises(StorageError, match="nothing was stored") as caught:
            await repository.replace("c", [UserMessage(f"n{n}") for n in range(5)])
        assert "n2" not in str(caught.value)
        assert await repository.recall("c", None) == old
        connection(repository).execute("DROP TRIGGER third")
        assert await repository.replace("c", [UserMessage("n")], expected=old.revision) == 2


async def test_a_full_database_stores_nothing_and_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as repository:
        await repository.append("c", pair(1), turn_id="t1")
        pages = connection(repository).execute("PRAGMA page_count").fetchone()[0]
        connection(repository).execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StorageError, match=r"c\.db` cannot grow.*Make room"):
            await repository.append("c", [UserMessage("small"), UserMessage("x" * 100_000)], turn_id="t2")
        assert await texts(repository) == ["u1", "a1"]
        connection(repository).execute("PRAGMA max_page_count = 1000000")
        assert await repository.append("c", [UserMessage("x" * 100_000)], turn_id="t2") == 2


async def test_a_disk_error_stores_nothing_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        written = await anyio.Path(f"{path}-wal").stat()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (written.st_size, hard))  # the system refuses to write
        try:
            with pytest.raises(StorageError, match=r"c\.db` cannot (be read or written|grow).*(Check the disk|Make room)"):
                await repository.append("c", [UserMessage("x" * 100_000)], turn_id="t2")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await texts(repository) == ["u1", "a1"]
        assert await repository.append("c", [UserMessage("x" * 100_000)], turn_id="t2") == 2


async def test_a_file_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path) as repository:
        await repository.append("c", pair(1), turn_id="t1")
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x03")  # "for reading only": also holds for root, for whom no permission is missing
    async with opened(path) as repository:
        with pytest.raises(StorageError, match=r"c\.db` cannot be written to; make .* writable"):
            await repository.append("c", pair(2), turn_id="t2")
        assert await texts(repository) == ["u1", "a1"]


async def test_what_is_no_place_for_a_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is a letter, not a database. " * 100)
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "text.db", "is no SQLite database"),
        (tmp_path / "none" / "c.db", r"there is no folder `.*none`; make it first"),
        (Path("/proc/c.db"), "cannot be opened; make the file and its folder"),
    ):
        async with opened(path) as repository:
            for _ in range(2):
                with pytest.raises(StorageError, match=words) as caught:
                    await repository.append("c", pair(1), turn_id="t")
                assert f"`{path}`" in str(caught.value)
    assert (tmp_path / "text.db").read_text().startswith("this is a letter")
    assert not (tmp_path / "none").exists()


async def test_a_folder_that_is_made_later_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path / "late" / "c.db") as repository:
        with pytest.raises(StorageError, match="no folder"):
            await repository.recall("c", 5)
        (tmp_path / "late").mkdir()
        assert await repository.append("c", pair(1), turn_id="t") == 1


async def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    newer, other = tmp_path / "newer.db", tmp_path / "other.db"
    async with opened(newer) as repository:
        await repository.append("c", pair(1), turn_id="t")
    for path, script in (
        (newer, "PRAGMA user_version = 3"),
        (other, "CREATE TABLE mine (x); INSERT INTO mine VALUES (1)"),
    ):
        database = sqlite3.connect(path)
        database.executescript(script)
        database.close()
    async with opened(newer) as repository:
        with pytest.raises(StorageError, match=r"newer advisorchain \(schema 3, this one knows 2\); update it"):
            await repository.recall("c", 5)
    content = other.read_bytes()
    async with opened(other) as repository:
        with pytest.raises(StorageError, match=r"other\.db` is the database of another program"):
            await repository.append("c", pair(1), turn_id="t")
    assert other.read_bytes() == content


@pytest.mark.parametrize(
    ("path", "options"),
    [("", {}), (" ", {}), (None, {}), (b"c.db", {}), ("a\0b", {}), ("c.db", {"synchronous": "normal"}),
     ("c.db", {"timeout": -1}), ("c.db", {"timeout": "5"})],
)  # fmt: skip
def test_arguments_that_cannot_work_are_refused(path: Any, options: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"`path`|`synchronous`|`timeout`"):
        SqliteChatMemoryRepository(path, **options)


@pytest.mark.parametrize(("setting", "number"), [("OFF", 0), ("NORMAL", 1), ("FULL", 2)])
async def test_the_setting_reaches_the_database(tmp_path: Path, setting: str, number: int) -> None:
    async with opened(tmp_path / "c.db", synchronous=setting) as repository:
        await repository.append("c", pair(1), turn_id="t")
        assert connection(repository).execute("PRAGMA synchronous").fetchone()[0] == number
        assert connection(repository).execute("PRAGMA journal_mode").fetchone()[0] == "wal"


# --- locks and other processes


async def test_a_lock_that_stays_is_told_and_one_that_goes_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with opened(path, timeout=0) as impatient, opened(path) as patient:
        await patient.append("c", pair(1), turn_id="t1")
        await impatient.recall("c", 5)
        blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"stayed locked by another program.*`timeout`"):
            await impatient.append("c", pair(2), turn_id="t2")
        assert await texts(impatient) == ["u1", "a1"]  # readers do not wait
        start = anyio.current_time()
        with anyio.move_on_after(0.05) as scope:
            await patient.append("c", pair(3), turn_id="t3")
        assert scope.cancelled_caught
        assert anyio.current_time() - start < 30  # its `timeout`: a cancelled task does not wait for the lock
        async with anyio.create_task_group() as group:

            async def add() -> None:
                await patient.append("c", pair(4), turn_id="t4")

            group.start_soon(add)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()  # the append is on its way
            blocker.execute("COMMIT")
        blocker.close()
        assert await texts(impatient) == ["u1", "a1", "u4", "a4"]


async def test_B159_two_stores_on_one_file_lose_nothing(tmp_path: Path) -> None:
    def work(name: str) -> None:
        async def add() -> None:
            async with opened(tmp_path / "c.db") as repository:
                for number in range(100):
                    await repository.append("c", [UserMessage(f"{name}{number}")], turn_id=f"{name}{number}")

        anyio.run(add)

    async with anyio.create_task_group() as group:
        group.start_soon(to_thread.run_sync, work, "x")
        group.start_soon(to_thread.run_sync, work, "y")
    async with opened(tmp_path / "c.db") as repository:
        entries = (await repository.page("c", limit=1000)).items
    assert [entry.sequence for entry in entries] == list(range(1, 201))
    for name in "xy":
        mine = [entry.message.text for entry in entries if entry.message.text.startswith(name)]
        assert mine == [f"{name}{number}" for number in range(100)]


@pytest.mark.slow
def test_B160_eight_processes_open_one_new_file(tmp_path: Path) -> None:
    # The processes wait for a line on stdin, so that each round begins in all of them at once.
    workers = [subprocess.Popen([sys.executable, WORKER, "create"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for _ in range(8)]  # fmt: skip
    try:
        for number in range(20):
            path = tmp_path / f"{number}.db"
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(f"{path}\n")
                worker.stdin.flush()
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "1\n"
            assert rows(path, "conversations") == 8
            assert rows(path, "entries") == 8
    finally:
        for worker in workers:
            worker.communicate()


async def test_B160_eight_threads_open_one_new_file(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def work(path: Path, number: int) -> None:
        async def add() -> None:
            async with opened(path) as repository:
                await repository.append(f"c{number}", pair(number), turn_id="t")

        barrier.wait()
        anyio.run(add)

    for turn in range(5):
        path = tmp_path / f"{turn}.db"
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(to_thread.run_sync, work, path, number)
        assert rows(path, "entries") == 16


async def test_one_repository_for_several_event_loops_one_after_the_other(tmp_path: Path) -> None:
    repository = SqliteChatMemoryRepository(tmp_path / "c.db")

    def work(backend: str, number: int) -> None:
        async def add() -> None:
            await repository.append("c", pair(number), turn_id=f"t{number}")

        anyio.run(add, backend=backend)

    for number, backend in enumerate(["asyncio", "trio", "asyncio", "trio"]):
        await to_thread.run_sync(work, backend, number)
    assert (await repository.recall("c", 20)).count == 8
    await repository.aclose()


async def test_what_one_store_knows_never_hides_what_another_wrote(tmp_path: Path) -> None:
    async with opened(tmp_path / "c.db") as one, opened(tmp_path / "c.db") as two:
        await one.append("c", pair(1), turn_id="t1")
        assert await texts(two) == ["u1", "a1"]
        await one.replace("c", [UserMessage("new")])
        assert await texts(two) == ["new"]
        await one.delete("c")
        assert await texts(two) == []
        await two.append("c", pair(2), turn_id="t1")
        assert await texts(one) == ["u2", "a2"]


def test_a_forked_process_is_told_to_make_its_own(tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, WORKER, "fork", tmp_path / "c.db"], capture_output=True, text=True, check=True)
    assert "before this process was forked; make one in each process" in printed.stdout


async def test_no_thread_is_left_after_closing(tmp_path: Path) -> None:
    repository = SqliteChatMemoryRepository(tmp_path / "c.db")
    await repository.append("c", pair(1), turn_id="t")
    thread = repository._file._thread._thread
    assert thread is not None
    await repository.aclose()
    thread.join()
    assert not await anyio.Path(f"{tmp_path}/c.db-wal").exists()


async def test_a_repository_that_was_forgotten_ends_its_thread(tmp_path: Path) -> None:
    repository = SqliteChatMemoryRepository(tmp_path / "c.db")
    await repository.append("c", pair(1), turn_id="t")
    thread = repository._file._thread._thread
    assert thread is not None
    connection(repository).close()
    del repository
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


async def test_a_backup_that_is_put_in_place_is_what_is_read(tmp_path: Path) -> None:
    path, backup = tmp_path / "c.db", tmp_path / "backup.db"
    async with opened(path) as repository:
        await repository.append("c", [UserMessage("1")], turn_id="1")
        with sqlite3.connect(path) as source, sqlite3.connect(backup) as target:
            source.backup(target)
        source.close()
        target.close()
        await repository.append("c", [UserMessage("2")], turn_id="2")
        assert (await repository.recall("c", 1)).tail[0].message.text == "2"
        backup.replace(path)
        for beside in ("-wal", "-shm"):  # as the error tells: they belong to the file that was there
            path.with_name(path.name + beside).unlink()
        with pytest.raises(StorageError, match=r"replaced .* remove `.*c\.db-wal`"):
            await repository.recall("c", 1)
        await repository.append("c", [UserMessage("other")], turn_id="3")
        assert [entry.message.text for entry in (await repository.recall("c", None)).tail] == ["1", "other"]


async def test_a_job_that_comes_after_the_end_of_its_thread_is_refused() -> None:
    """As one of another thread may, that looked before the repository was closed; nobody would take it."""
    thread = OwnThread("the thread")
    assert await thread.run(lambda job: 1) == 1
    thread.stop()
    with pytest.raises(StorageError, match="closed"):
        await thread.run(lambda job: 1)


def test_a_call_that_is_thrown_away_unfinished(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "c.db") as repository:
            call = repository.append("c", [UserMessage("1")], turn_id="1")
            call.send(None)
            call.close()  # no "coroutine ignored GeneratorExit"
            assert (await repository.recall("c", None)).count in (0, 1)

    anyio.run(main)
