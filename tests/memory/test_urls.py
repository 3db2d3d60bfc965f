"""Which repository a URL names, and what is told of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from advisorchain.errors import ConfigurationError, MissingExtraError, StorageError
from advisorchain.memory import open_repository

CLASSES = {
    "memory://": "InMemoryChatMemoryRepository",
    "sqlite://": "SqliteChatMemoryRepository",
    "sqlite+pysqlite://": "SqlChatMemoryRepository",
    "postgresql://me:hunter2@127.0.0.1:1/x": "SqlChatMemoryRepository",
    "postgresql+psycopg://me:hunter2@127.0.0.1:1/x": "SqlChatMemoryRepository",
    "PostgreSQL://me:hunter2@127.0.0.1:1/x": "SqlChatMemoryRepository",
    "mysql://me:hunter2@127.0.0.1:1/x": "SqlChatMemoryRepository",
    "mysql+pymysql://me:hunter2@127.0.0.1:1/x": "SqlChatMemoryRepository",
    "mariadb://me:hunter2@127.0.0.1:1/x": "SqlChatMemoryRepository",
    "redis://me:hunter2@127.0.0.1:1/0": "RedisChatMemoryRepository",
    "rediss://me:hunter2@127.0.0.1:1/0": "RedisChatMemoryRepository",
    "valkey://me:hunter2@127.0.0.1:1/0": "RedisChatMemoryRepository",
    "redis+sentinel://me:hunter2@127.0.0.1:1/name": "RedisChatMemoryRepository",
    "mongodb://me:hunter2@127.0.0.1:1/x?serverSelectionTimeoutMS=1": "MongoChatMemoryRepository",
}


@pytest.mark.parametrize("url", CLASSES)
async def test_a_url_names_a_class_and_nothing_shows_its_password(url: str) -> None:
    async with open_repository(url) as repository:
        assert type(repository).__name__ == CLASSES[url]
        assert "hunter2" not in repr(repository)
        if "hunter2" not in url:
            assert (await repository.recall("c", 1)).count == 0  # what it needs is made
            return
        if CLASSES[url].startswith("Redis"):  # a connection that fails leaves streams of coredis unclosed: see its own tests
            return
        with pytest.raises(StorageError) as raised:
            await repository.recall("c", 1)
    error: BaseException | None = raised.value
    while error is not None:
        assert "hunter2" not in f"{error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__


async def test_tables_that_shall_not_be_made_are_missed() -> None:
    async with open_repository("sqlite+pysqlite://", create=False) as repository:
        with pytest.raises(StorageError, match="create_tables"):
            await repository.recall("c", 1)


@pytest.mark.parametrize(
    "url", ["http://me:hunter2@x", "postgresql+nosuch://me:hunter2@x/y", "redis://me:hunter2@x/y/z", "mongodb://me:hunter2@"]
)
async def test_what_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        async with open_repository(url):
            pytest.fail("it was opened")
    error: BaseException | None = raised.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("postgresql://h/x", "sqlalchemy", "postgresql"),
        ("mariadb+pymysql://h/x", "sqlalchemy", "mysql"),
        ("sqlite+pysqlite://", "sqlalchemy", "sql"),
        ("postgresql://h/x", "psycopg", "postgresql"),
        ("mysql://h/x", "pymysql", "mysql"),
        ("rediss://h", "coredis", "redis"),
        ("mongodb+srv://h", "pymongo", "mongodb"),
    ],
)
async def test_what_is_not_installed_is_told_with_the_command_that_installs_it(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not there
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith("advisorchain.memory.repositories.")]:
        if not name.rpartition(".")[2].startswith(("_log", "_thread", "_sqlite", "sqlite", "_memory", "in_memory")):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=rf'pip install "advisorchain\[{extra}\]"') as raised:
        async with open_repository(url):
            pytest.fail("it was opened")
    assert f"`{package}`" in str(raised.value)


def test_a_store_is_imported_only_when_it_is_asked_for() -> None:
    code = """
import sys, anyio
from advisorchain.memory import open_repository
async def main():
    async with open_repository("sqlite://") as repository:
        await repository.recall("c", 1)
anyio.run(main)
print([name for name in ("sqlalchemy", "psycopg", "pymysql", "coredis", "pymongo") if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


async def test_a_class_that_cannot_be_imported_for_another_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise ImportError("the driver is broken", name="mine")

    monkeypatch.setattr("advisorchain.memory.urls.import_module", broken)
    with pytest.raises(ImportError, match="is broken"):
        async with open_repository("redis://h"):
            pytest.fail("it was opened")
