"""SQLite files that others work on while they are open: a backup that is put back, a process that is forked."""

from __future__ import annotations

import os
import sqlite3
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from advisorchain.errors import StorageError
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


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
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
