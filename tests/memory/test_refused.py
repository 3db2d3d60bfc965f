"""A server that was reached and lets nobody in says why, in other words than one that was not."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
from psycopg import OperationalError
from sqlalchemy import create_engine

from advisorchain.errors import ConfigurationError, StorageError
from advisorchain.memory.repositories._sql import errors as _sql_errors
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository

from ._redis_servers import repository, server
from ._sql_servers import database


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
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


async def test_an_engine_that_is_in_no_database_is_refused() -> None:
    engine = create_engine(database("mariadb")._replace(database=None))
    repository = SqlChatMemoryRepository(engine, create=True)
    with pytest.raises(ConfigurationError, match="the engine names no database"):
        await repository.recall("c", 1)
    await repository.aclose()
    engine.dispose()


async def test_a_redis_database_that_is_not_there_is_told_by_its_number() -> None:
    url = f"{server('redis').url.rpartition('/')[0]}/9999"
    store = repository(url)
    with pytest.raises(StorageError, match=r"/9999` has no database of the number that its address ends with"):
        await store.recall("c", 1)
    await store.aclose()
