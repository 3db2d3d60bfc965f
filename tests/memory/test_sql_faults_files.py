"""A SQL store on a SQLite file that is deleted, moved or replaced while it is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisorchain.errors import StorageError
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository
from advisorchain.messages import UserMessage


def opened(path: Path) -> SqlChatMemoryRepository:
    return SqlChatMemoryRepository(f"sqlite+pysqlite:///{path}", create=True)


@pytest.mark.parametrize("way", ["deleted", "moved", "replaced"])
async def test_a_file_that_is_gone_takes_no_turn_that_nobody_would_find(tmp_path: Path, way: str) -> None:
    path, other = tmp_path / "c.db", tmp_path / "other.db"
    repository = opened(other)
    await repository.append("c", [UserMessage("other")], turn_id="o")
    await repository.aclose()
    repository = opened(path)
    await repository.append("c", [UserMessage("lost")], turn_id="1")
    if way == "replaced":
        other.replace(path)
    else:
        path.unlink() if way == "deleted" else path.rename(tmp_path / "away.db")
    with pytest.raises(StorageError, match="was moved, deleted or replaced"):
        await repository.append("c", [UserMessage("2")], turn_id="2")
    assert await repository.append("d", [UserMessage("3")], turn_id="3") == 1
    await repository.aclose()
    repository = opened(path)
    assert (await repository.recall("c", None)).count == (1 if way == "replaced" else 0)
    assert (await repository.recall("d", None)).count == 1
    await repository.aclose()


async def test_another_working_directory_is_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    repository = opened(Path("c.db"))
    await repository.append("c", [UserMessage("1")], turn_id="1")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    await repository.append("c", [UserMessage("2")], turn_id="2")
    assert (await repository.recall("c", None)).count == 2
    await repository.aclose()
