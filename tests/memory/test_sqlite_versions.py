"""Files of an earlier version of advisorchain become files of this one: in place, whole or not at all."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from advisorchain.errors import StorageError
from advisorchain.memory.repositories._sqlite.file import CONVERSATIONS
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, UserMessage, dump_message

from ._kit import texts

WORKER = Path(__file__).with_name("_store_worker.py")
CREATED = 1_600_000_000_000_000  # microseconds

# What version 1 executed on a new file.
VERSION_1 = """
CREATE TABLE conversations (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, incarnation INTEGER NOT NULL, revision INTEGER NOT NULL,
    count INTEGER NOT NULL, next_sequence INTEGER NOT NULL, systems INTEGER NOT NULL, question INTEGER NOT NULL,
    summary INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL
);
CREATE TABLE entries (
    conversation INTEGER NOT NULL, lane INTEGER NOT NULL, sequence INTEGER NOT NULL, turn_id TEXT NOT NULL,
    message TEXT NOT NULL, created INTEGER NOT NULL, kind TEXT NOT NULL, covers INTEGER, question INTEGER NOT NULL,
    PRIMARY KEY (conversation, lane, sequence)
) WITHOUT ROWID;
CREATE TABLE turns (
    conversation INTEGER NOT NULL, turn_id TEXT NOT NULL, PRIMARY KEY (conversation, turn_id)
) WITHOUT ROWID;
CREATE TABLE leases (
    token INTEGER PRIMARY KEY AUTOINCREMENT, conversation_id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, expires REAL NOT NULL
);
PRAGMA application_id = 1633973859;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""


def made_by_version_1(path: Path, names: tuple[str, ...] = ("c", "d"), turns: int = 3) -> None:
    """A file with conversations of a system message, some turns and a summary, and a lease, written as version 1 did."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(VERSION_1)
        for key, name in enumerate(names, 1):
            rows = list(written(turns))
            last = len(rows)
            database.execute(
                "INSERT INTO conversations VALUES (NULL, ?, ?, 0, 0, 1, 0, 0, 0, ?, ?)", (name, 1000 + key, CREATED, CREATED)
            )
            database.executemany("INSERT INTO turns VALUES (?, ?) ON CONFLICT DO NOTHING", [(key, row[2]) for row in rows])
            database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [(key, *row) for row in rows])
            database.execute(
                "UPDATE conversations SET revision = ?, count = ?, next_sequence = ?, systems = ?, question = ?,"
                " summary = ?, updated = ? WHERE key = ?", (turns, last, last + 1, 1, last - 2, last, CREATED + 5, key),
            )  # fmt: skip
        lease = ("c", "one", 2.0**40)
        database.execute("INSERT INTO leases (conversation_id, owner, expires) VALUES (?, ?, ?)", lease)
        database.commit()


def written(turns: int) -> Any:
    """Rows of entries: lane, sequence, turn id, text, time, kind, what it covers, question."""
    yield 1, 1, "t0", dump_message(SystemMessage("rules")), CREATED, "message", None, 0
    for number in range(turns):
        question = 2 + 2 * number
        yield 0, question, f"t{number}", dump_message(UserMessage(f"u{number}")), CREATED, "message", None, question
        yield 0, question + 1, f"t{number}", dump_message(AssistantMessage(f"a{number}")), CREATED, "message", None, question
    last = 2 * turns + 1
    yield 3, last + 1, "s", dump_message(AssistantMessage("so far")), CREATED, "summary", 3, last - 1


@asynccontextmanager
async def opened(path: Any, **options: Any) -> AsyncIterator[SqliteChatMemoryRepository]:
    repository = SqliteChatMemoryRepository(path, **options)
    try:
        yield repository
    finally:
        await repository.aclose()


def schema(path: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """The version, and the columns and indexes that a statement sees."""
    with closing(sqlite3.connect(path)) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        columns = [
            (table, *row[1:])
            for table in ("conversations", "entries", "turns", "leases")
            for row in database.execute(f"PRAGMA table_info({table})")
        ]
        indexes = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL ORDER BY name")
        return version, [*columns, *indexes]


ALL = ["rules", "u0", "a0", "u1", "a1", "u2", "a2", "so far"]


async def check_whole(path: Path) -> None:
    """All that version 1 had written is there, and can be worked with."""
    pair: list[Message] = [UserMessage("u3"), AssistantMessage("a3")]
    async with opened(path) as repository:
        for name, incarnation in (("c", 1001), ("d", 1002)):
            recall = await repository.recall(name, 3)
            assert (recall.revision, recall.incarnation, recall.count) == (3, incarnation, 8)
            assert [entry.message.text for entry in recall.tail] == ["a1", "u2", "a2"]
            assert [entry.message.text for entry in recall.systems] == ["rules"]
            assert recall.question is not None
            assert recall.question.message.text == "u1"
            assert recall.summary is not None
            assert await texts(repository, name) == ALL
        row = (await repository.conversations()).items[0]
        assert (row.count, row.expires) == (8, None)
        assert row.updated - row.created == timedelta(microseconds=5)
        assert await repository.append("c", pair, turn_id="t2", incarnation=1001) == 3  # known
        kept = Retention(ttl=timedelta(days=1), max_messages=4)
        assert await repository.append("c", pair, turn_id="t3", incarnation=1001, expected=3, retention=kept) == 4
        assert await texts(repository, "c") == ["rules", "u2", "a2", "so far", "u3", "a3"]
        assert await repository.acquire("c", "two", 5) is None
        assert await repository.fork("d", "e", at=5)
        assert await texts(repository, "e") == ["rules", "u0", "a0", "u1", "a1"]
        assert await repository.prune(before=datetime(2021, 1, 1, tzinfo=UTC)) == 1  # d, last written to in 2020


async def test_a_file_of_version_1_goes_on(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    made_by_version_1(old)
    await check_whole(old)
    async with opened(new) as repository:
        await repository.conversations()
    assert schema(old) == schema(new)
    assert schema(old)[0] == CONVERSATIONS.version == 2


async def test_an_empty_file_of_version_1_goes_on(tmp_path: Path) -> None:
    made_by_version_1(tmp_path / "old.db", names=())
    async with opened(tmp_path / "old.db") as repository:
        assert (await repository.conversations()).items == ()
        assert await repository.append("c", [UserMessage("u")], turn_id="t") == 1


KILLED = """
import os, signal, sqlite3, sys, anyio
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository

path, last = sys.argv[1], int(sys.argv[2])
connect, seen = sqlite3.connect, 0

def step(statement):
    global seen
    seen += 1
    if seen == last:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(*given, **options):
    connection = connect(*given, **options)
    connection.set_trace_callback(step)
    return connection

sqlite3.connect = traced
anyio.run(SqliteChatMemoryRepository(path).recall, "c", 1)
os.write(1, b"done")
"""


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_statement_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    versions = []
    for statement in range(1, 100):
        path = tmp_path / f"{statement}.db"
        made_by_version_1(path)
        ran = subprocess.run([sys.executable, "-c", KILLED, path, str(statement)], capture_output=True, check=False)
        versions.append(schema(path)[0])
        anyio.run(check_whole, path)
        if ran.stdout == b"done":
            break
        assert ran.returncode == -signal.SIGKILL, ran.stderr
    print(f"killed at {len(versions) - 1} statements, versions found {versions}")
    assert len(versions) > 15
    assert versions == sorted(versions)
    assert {1, 2} == set(versions)


async def test_many_open_one_file_of_version_1_at_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(6)

    def work(path: Path, number: int) -> None:
        async def add() -> None:
            async with opened(path) as repository:
                await repository.append(f"n{number}", [UserMessage("u")], turn_id="t")

        barrier.wait()
        anyio.run(add)

    for turn in range(4):
        path = tmp_path / f"{turn}.db"
        made_by_version_1(path)
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(to_thread.run_sync, work, path, number)
        async with opened(path) as repository:
            assert [row.count for row in (await repository.conversations()).items] == [8, 8, 1, 1, 1, 1, 1, 1]


async def test_a_process_of_version_1_fails_instead_of_writing_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    made_by_version_1(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        find = "SELECT key, revision, count FROM conversations WHERE id = ?"
        assert old.execute(find, ("c",)).fetchone() == (1, 3, 8)
        async with opened(path) as repository:
            await repository.recall("c", 1)
        for statement, given in (
            (find, ("c",)),
            ("INSERT INTO conversations VALUES (NULL, ?, 1, 0, 0, 1, 0, 0, 0, 1, 1)", ("new",)),
            ("UPDATE conversations SET revision = 4, count = 9 WHERE key = ?", (1,)),
        ):
            with pytest.raises(sqlite3.OperationalError, match=r"no such column: count|has 14 columns"):
                old.execute(statement, given)


async def test_a_file_of_version_1_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    made_by_version_1(path)
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x03")  # "for reading only": also holds for root
    async with opened(path) as repository:
        with pytest.raises(StorageError, match=r"old\.db` cannot be written to; make .* writable"):
            await repository.recall("c", 1)
