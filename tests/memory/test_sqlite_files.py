"""SQLite files that others work on while they are open: gone, replaced, a backup put back, a process that is forked."""

from __future__ import annotations

import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from advisorchain.errors import StorageError
from advisorchain.memory import open_repository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.messages import UserMessage


def copied(source: Path, target: Path) -> None:
    """As `.backup` and `.restore` of SQLite's shell do it: what was in the target's file is written over."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def texts(repository: Any) -> list[str]:
    recalled = [entry.message.text for entry in (await repository.recall("c", None)).tail]
    assert recalled == [entry.message.text for entry in (await repository.page("c")).items]
    return recalled


EITHER_CLASS = pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])


@EITHER_CLASS
@pytest.mark.parametrize("way", ["deleted", "moved", "replaced"])
async def test_a_file_that_is_gone_takes_no_turn_that_nobody_would_find(tmp_path: Path, way: str, scheme: str) -> None:
    path, other = tmp_path / "c.db", tmp_path / "other.db"
    async with open_repository(f"{scheme}:///{other}") as repository:
        await repository.append("c", [UserMessage("other")], turn_id="o")
    async with open_repository(f"{scheme}:///{path}") as repository:
        await repository.append("c", [UserMessage("lost")], turn_id="1")
        if way == "replaced":
            other.replace(path)
        else:
            path.unlink() if way == "deleted" else path.rename(tmp_path / "away.db")
        with pytest.raises(StorageError, match="was moved, deleted or replaced"):
            await repository.append("c", [UserMessage("2")], turn_id="2")
        assert await repository.append("d", [UserMessage("3")], turn_id="3") == 1
    async with open_repository(f"{scheme}:///{path}") as repository:
        assert (await repository.recall("c", None)).count == (1 if way == "replaced" else 0)
        assert (await repository.recall("d", None)).count == 1


@EITHER_CLASS
async def test_another_working_directory_is_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_repository(f"{scheme}:///c.db") as repository:
        await repository.append("c", [UserMessage("1")], turn_id="1")
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        await repository.append("c", [UserMessage("2")], turn_id="2")
        assert (await repository.recall("c", None)).count == 2


async def test_a_backup_that_is_written_into_the_open_file_is_what_is_read(tmp_path: Path) -> None:
    path, backup = tmp_path / "c.db", tmp_path / "backup.db"
    repository = SqliteChatMemoryRepository(path)
    await repository.append("c", [UserMessage("1")], turn_id="1")
    copied(path, backup)
    await repository.append("c", [UserMessage("2")], turn_id="2")
    assert await texts(repository) == ["1", "2"]
    copied(backup, path)
    assert await texts(repository) == ["1"]
    await repository.append("c", [UserMessage("other")], turn_id="3")
    assert await texts(repository) == ["1", "other"]
    await repository.aclose()


async def test_entries_of_one_turn_in_another_order_are_not_taken_for_each_other(tmp_path: Path) -> None:
    path, backup = tmp_path / "c.db", tmp_path / "backup.db"
    repository = SqliteChatMemoryRepository(path)
    await repository.append("c", [UserMessage("1"), UserMessage("2")], turn_id="1")
    copied(path, backup)
    one, two = (await repository.page("c")).items
    await repository.replace("c", [one])  # it keeps turn and time, and gets the next number
    assert await texts(repository) == ["1"]
    copied(backup, path)
    other = SqliteChatMemoryRepository(path)  # the first is not told
    await other.replace("c", [two])
    await other.aclose()
    assert await texts(repository) == ["2"]
    await repository.aclose()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("used", [True, False])
def test_closing_in_a_forked_process_is_silent_and_leaves_the_file_to_the_parent(tmp_path: Path, used: bool) -> None:
    repository = SqliteChatMemoryRepository(tmp_path / "c.db")
    if used:
        anyio.run(call, repository, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: other tests have left threads
        child = os.fork()
    if child == 0:
        os._exit(status(repository))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    anyio.run(call, repository, "2")
    assert len(anyio.run(texts, repository)) == 1 + used
    anyio.run(repository.aclose)


async def call(repository: SqliteChatMemoryRepository, turn_id: str) -> None:
    await repository.append("c", [UserMessage(turn_id)], turn_id=turn_id)


def status(repository: SqliteChatMemoryRepository) -> int:
    """What a forked process ends with: 0, or how far it came."""
    try:
        anyio.run(call, repository, "child")
        return 1
    except StorageError as error:
        if "forked" not in str(error):
            return 2
    connection = repository._file._connection
    try:
        anyio.run(repository.aclose)
        anyio.run(repository.aclose)
        if connection is not None:
            connection.execute("SELECT 1")  # open as it was
    except Exception:
        return 3
    try:
        anyio.run(call, repository, "child")
        return 4
    except StorageError as error:
        return 0 if "closed" in str(error) else 5
