"""A server that was reached and lets nobody in says why, in other words than one that was not."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from psycopg import OperationalError
from sqlalchemy import create_engine

from advisorchain.errors import ConfigurationError, StorageError
from advisorchain.memory.repositories._redis.errors import explained
from advisorchain.memory.repositories._sql import errors as _sql_errors
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository
from advisorchain.memory.repository import Recall
from advisorchain.messages import AssistantMessage, UserMessage

from ._redis_servers import repository, server
from ._sql_servers import ON_SERVERS, database


@pytest.mark.parametrize("kind", ON_SERVERS)
async def test_an_unknown_database_and_an_unknown_user_are_told_apart(kind: str) -> None:
    place = database(kind)
    for change, told in (
        ({"database": "advisorchain_no_such"}, "has no such database; make it"),
        ({"username": "no_such", "password": "hunter2"}, "(has no such user|refused the login); check the user"),
    ):
        repository = SqlChatMemoryRepository(place.set(**change))
        with pytest.raises(StorageError, match=told) as raised:
            await repository.recall("c", 1)
        await repository.aclose()
        assert "cannot be reached" not in str(raised.value)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("scheme", "error", "told"),
    [
        ("postgresql+psycopg", 'FATAL:  password authentication failed for user "me"', "refused the login; check the user"),
        ("postgresql+psycopg", 'FATAL:  database "role" does not exist', "has no such database"),
        ("postgresql+psycopg", 'FATAL:  role "database x" does not exist', "has no such user"),
        ("postgresql+psycopg", "FATAL:  too many connections for role", "has no connection left"),
        ("postgresql+psycopg", "FATAL:  the database system is starting up", "is starting up"),
        ("postgresql+psycopg", "fe_sendauth: no password supplied", "wants a password"),
        ("postgresql+psycopg", "Connection refused", "cannot be reached; check the URL and whether the server runs"),
        ("mysql+pymysql", 1040, "has no connection left"),
        ("mysql+pymysql", 1045, "refused the login"),
        ("mysql+pymysql", 2003, "cannot be reached"),
    ],
)
def test_what_a_refusal_means(scheme: str, error: Any, told: str) -> None:
    own = OperationalError(error) if isinstance(error, str) else pymysql.err.OperationalError(error, "words")
    assert told in str(_sql_errors.unreached(create_engine(f"{scheme}://h/x"), "store", own))


@pytest.mark.slow
@pytest.mark.parametrize("options", ["charset=utf8", "charset=latin1", "charset=utf8mb4&charset=latin1", "charset=none"])
def test_a_character_set_that_lacks_characters_is_refused(options: str) -> None:
    url = f"mysql://me:hunter2@127.0.0.1:1/x?{options}"
    for given in (url, create_engine(url.replace("mysql:", "mariadb+pymysql:"))):
        with pytest.raises(ConfigurationError, match="`url` names a `charset` that lacks characters; leave it out"):
            SqlChatMemoryRepository(given)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("charset=utf8mb4&bogus=hunter2", "the option `bogus`, which its driver does not take"),
        ("ssl_ca=/hunter2", "an option that its driver does not take, or one that names a file which cannot be read"),
    ],
)
async def test_an_option_that_the_driver_does_not_take_is_told_without_its_value(options: str, told: str) -> None:
    repository = SqlChatMemoryRepository(f"mariadb://me:hunter2@127.0.0.1:1/x?{options}")
    with pytest.raises(ConfigurationError, match=told) as raised:
        await repository.recall("c", 1)
    assert "hunter2" not in f"{raised.value!r} {raised.value.__context__!r} {raised.value.__cause__!r}"
    await repository.aclose()


async def test_a_folder_that_is_not_there_is_told_as_what_it_is() -> None:
    repository = SqlChatMemoryRepository("sqlite+pysqlite:////no/folder/chat.db", create=True)
    with pytest.raises(StorageError, match="cannot be opened; give a file in a folder that is there"):
        await repository.recall("c", 1)
    await repository.aclose()


@pytest.mark.slow
async def test_a_message_that_mariadb_does_not_take_is_refused_before_it_is_sent() -> None:
    repository = SqlChatMemoryRepository(database("mariadb"), create=True)
    most = (await repository._database.run(lambda link, _: link.plain("SELECT @@max_allowed_packet"), harmless=True)) or 0
    for text in ("x" * most, '"' * (most // 4)):
        with pytest.raises(StorageError, match=rf"bytes in a statement, and this server takes {most} at most; nothing was"):
            await repository.append("large", [UserMessage("q"), AssistantMessage(text)], turn_id="t")
    assert await repository.recall("large", 1) == Recall()
    await repository.aclose()


def test_only_what_could_have_written_says_that_a_turn_may_be_stored() -> None:
    for error in (TimeoutError(), ConnectionRefusedError()):
        assert "a turn may be stored or not" in str(explained("redis://h", error, 1, reads=False))
        assert "a turn may be stored" not in str(explained("redis://h", error, 1, reads=True))


@pytest.mark.slow
async def test_a_server_that_is_no_sentinel_is_told_so() -> None:
    store = repository(f"redis+sentinel://127.0.0.1:{server('redis').port}/main")
    with pytest.raises(StorageError, match="is no sentinel, or is too old"):
        await store.recall("c", 1)
    await store.aclose()


async def test_an_engine_that_is_in_no_database_is_refused() -> None:
    engine = create_engine(database("mariadb")._replace(database=None))
    repository = SqlChatMemoryRepository(engine, create=True)
    with pytest.raises(ConfigurationError, match="the engine names no database"):
        await repository.recall("c", 1)
    await repository.aclose()
    engine.dispose()


@pytest.mark.slow
async def test_a_redis_database_that_is_not_there_is_told_by_its_number() -> None:
    url = f"{server('redis').url.rpartition('/')[0]}/9999"
    store = repository(url)
    with pytest.raises(StorageError, match=r"/9999` has no database of the number that its address ends with"):
        await store.recall("c", 1)
    await store.aclose()
