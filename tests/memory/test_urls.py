"""Which repository a URL names, and what is told of it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy

from advisorchain import memory
from advisorchain.errors import ConfigurationError, StorageError, StoreMissingError
from advisorchain.memory import (
    MongoChatMemoryRepository,
    RedisChatMemoryRepository,
    SqlChatMemoryRepository,
    open_repository,
)
from advisorchain.memory.repositories._url import check_url

from ._kit import pair

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


UNCLEAR = (
    "{}://me:hun@ter2@127.0.0.1:1/x",
    "{}://me:hun/ter2@127.0.0.1:1/x",
    "{}://me:hun?ter2@127.0.0.1:1/x",
    "{}://me:hun#ter2@127.0.0.1:1/x",
    "{}://me:12/ter2@127.0.0.1/x",
    "{}://me:12?ter2=@127.0.0.1/x",
    "{}://me:12#ter2@127.0.0.1/x",
    "{}://me:ter2",
    "{}://me:h@ter2 @127.0.0.1",
    "{}://me@ter2:hun:ter2/x",
    "{}://me:12@127.0.0.1:1/x@ter2",
)


@pytest.mark.parametrize(
    "scheme",
    ["postgresql", "mysql", "mariadb", "mssql", "oracle", "redis", "rediss", "redis+cluster", "mongodb", "mongodb+srv"],
)
@pytest.mark.parametrize("form", UNCLEAR)
async def test_a_url_whose_password_may_end_in_two_places_is_refused_and_not_shown(scheme: str, form: str) -> None:
    url = form.format(scheme)
    makers: dict[str, Any] = {"redis": RedisChatMemoryRepository, "mongodb": MongoChatMemoryRepository}
    for make in (opened, makers.get(scheme.partition("+")[0].replace("rediss", "redis"), SqlChatMemoryRepository)):
        with pytest.raises(ConfigurationError, match="percent-encode") as raised:
            await make(url)
        assert not {"ter2", "hun", "127"} & set(re.split(r"\W", str(raised.value)))


async def opened(url: str) -> None:
    async with open_repository(url):
        pytest.fail("it was opened")


def test_what_somebody_else_took_apart_is_refused_too() -> None:
    url = sqlalchemy.make_url("postgresql+psycopg://me:hun@ter2@127.0.0.1:1/x")
    for given in (url, sqlalchemy.create_engine(url)):
        with pytest.raises(ConfigurationError, match="percent-encode") as raised:
            SqlChatMemoryRepository(given)
        assert "ter2" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://one:1,two:2/x?user=a@b",
        "postgresql:///x?host=/run/postgresql&user=a@b",
        "postgresql://me:p%40s%2F@[::1]:5432/x",
        "redis://[fe80::1%25eth0]:6379/0",
        "unix://u:p@/run/redis%20.sock?db=1",
        "unix:///run/a@b.sock",
        "mongodb://%2Ftmp%2Fmongodb.sock",
        "mongodb://me:p%40@a:1,b:2/?replicaSet=x&tls=true",
        "mssql+pyodbc://sa:x@host\\instance:99/db?driver=ODBC+Driver+18",
        "mssql+pyodbc:///?odbc_connect=a@b",
        "sqlite+pysqlite:///a@b.db",
    ],
)
def test_urls_that_are_clear_are_left_alone(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("url", ["mysql://root@127.0.0.1/", "mariadb+pymysql://root:hunter2@127.0.0.1", "mysql://h"])
async def test_a_mysql_url_names_a_database(url: str) -> None:
    with pytest.raises(ConfigurationError, match="`url` names no database") as raised:
        await opened(url)
    assert "hunter2" not in str(raised.value)


def test_every_store_is_found_beside_the_memory() -> None:
    for name in memory.__all__:
        assert getattr(getattr(memory, name), "__name__", name) == name
    assert set(memory.__all__) <= set(dir(memory))
    with pytest.raises(AttributeError, match="has no `SqlRepository`"):
        _ = memory.SqlRepository


def test_a_store_whose_package_is_missing_is_told_when_it_is_imported() -> None:
    code = """
import sys
import advisorchain.memory
assert not {"sqlalchemy", "coredis", "pymongo", "cryptography"} & set(sys.modules)
for package, name in (("sqlalchemy", "Sql"), ("coredis", "Redis"), ("pymongo", "Mongo"), ("cryptography", "Encrypted")):
    sys.modules[package] = None
    try:
        getattr(advisorchain.memory, name + "ChatMemoryRepository")
    except advisorchain.errors.MissingExtraError as error:
        print('pip install "advisorchain[' in str(error))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n" * 4


async def test_tables_that_shall_not_be_made_are_missed() -> None:
    async with open_repository("sqlite+pysqlite://", create=False) as repository:
        with pytest.raises(StoreMissingError, match="create_tables"):
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


WITHOUT = [
    ("postgresql://h/x", "sqlalchemy", "postgresql"),
    ("mariadb+pymysql://h/x", "sqlalchemy", "mysql"),
    ("sqlite+pysqlite://", "sqlalchemy", "sql"),
    ("rediss://h", "coredis", "redis"),
    ("mongodb+srv://h", "pymongo", "mongodb"),
    ("postgresql://h/x", "psycopg", "postgresql"),
    ("mysql://h/x", "pymysql", "mysql"),
]


def test_what_is_not_installed_is_told_with_the_command_that_installs_it() -> None:
    code = f"""
import sys, anyio
from advisorchain.errors import MissingExtraError
from advisorchain.memory import open_repository
async def opened(url):
    async with open_repository(url):
        return "it was opened"
for url, package, _ in {WITHOUT!r}:
    sys.modules[package] = None  # as if it were not there
    try:
        print(anyio.run(opened, url))
    except MissingExtraError as error:
        print(error)
    del sys.modules[package]
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    for line, (_, package, extra) in zip(told, WITHOUT, strict=True):
        assert f"`{package}`" in line
        assert f'pip install "advisorchain[{extra}]"' in line


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


@pytest.mark.parametrize(
    "url", ["memory://", "sqlite://", "sqlite:///:memory:", "sqlite:///rel%20ative.db", "SQLite:///b.db"]
)
async def test_a_repository_by_its_url(url: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_repository(url) as repository:
        assert await repository.append("c", pair(1), turn_id="t") == 1
    with pytest.raises(StorageError, match="closed"):
        await repository.recall("c", 5)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == ({url.partition(":///")[2]} if url.endswith(".db") else set())


async def test_an_absolute_path_by_url(tmp_path: Any) -> None:
    path = tmp_path / "chat.db"
    async with open_repository(f"sqlite:///{path}") as repository:
        await repository.append("c", pair(1), turn_id="t")
    assert path.exists()
    async with open_repository(f"sqlite:///{path}") as repository:
        assert (await repository.recall("c", 5)).count == 2


@pytest.mark.parametrize(
    "url", ["", "chat.db", "sqlite:///", "sqlite://chat.db", "memory://x", "http://user:secret@host", "://", None, 7]
)
async def test_a_url_that_is_not_known_lists_what_is(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"`memory://`, `sqlite:///relative") as caught:
        async with open_repository(url):
            pytest.fail("it was opened")
    assert "secret" not in str(caught.value)


async def test_an_error_inside_the_block_closes_the_repository() -> None:
    opened = []

    async def fail() -> None:
        async with open_repository("sqlite://") as repository:
            await repository.append("c", pair(1), turn_id="t")
            opened.append(repository)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()
    with pytest.raises(StorageError, match="closed"):
        await opened[0].recall("c", 5)
