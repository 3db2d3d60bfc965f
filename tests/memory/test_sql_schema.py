"""The tables of the SQL store: made on request, brought on from older forms, printed for those who make them by hand."""

from __future__ import annotations

import re
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import inspect
from sqlalchemy.dialects.mssql import mssqlpython
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.dialects.oracle import oracledb
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite

from advisorchain.errors import ConfigurationError, StorageError
from advisorchain.memory.repositories._sql import tables as schema
from advisorchain.memory.repositories._sql.statements import Statements
from advisorchain.memory.repositories._sql.tables import KINDS as DIALECTS
from advisorchain.memory.repositories._sql.turn import Form
from advisorchain.memory.repositories._sql.words import Compiled, Statement
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository, ddl
from advisorchain.memory.repository import Retention
from advisorchain.messages import SystemMessage

from ._kit import pair
from ._sql_servers import ON_SERVERS, SERVERS, TABLES, Place, admin

FILES_AND_SERVERS = pytest.mark.parametrize("kind", ["sqlite-file", *ON_SERVERS])


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Any:
    found = Place(kind, tmp_path, fresh=True)
    yield found
    found.close()


def dialect_of(place: Place) -> str:
    return "sqlite" if place.kind.startswith("sqlite") else place.kind


def run_script(place: Place, script: str) -> None:
    with admin(place.url) as connection:
        for statement in script.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def shape(place: Place) -> Any:
    """What the database says of our tables: columns with types and defaults, keys."""
    with admin(place.url) as connection:
        found = inspect(connection)
        return {
            name: (
                sorted((c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(f"{place.prefix}{name}")),
                found.get_pk_constraint(f"{place.prefix}{name}")["constrained_columns"],
                [each["column_names"] for each in found.get_unique_constraints(f"{place.prefix}{name}")],
            )
            for name in TABLES
        }


# --- made on request


@FILES_AND_SERVERS
async def test_without_tables_every_method_says_what_to_do(place: Place) -> None:
    async with aclosing(place.repository(create=False)) as repository:
        for call in (
            lambda: repository.append("c", pair(1), turn_id="t"),
            lambda: repository.recall("c", 20),
            lambda: repository.acquire("c", "me", 60),
            lambda: repository.conversations(),
        ):
            with pytest.raises(StorageError, match=r"has no tables .*await repository.create_tables\(\)"):
                await call()
        await repository.create_tables()
        assert await repository.append("c", pair(1), turn_id="t") == 1
        await repository.create_tables()
        assert (await repository.recall("c", 20)).count == 2


LOST = {
    "sqlite": "nothing was stored",  # it has one code for all that is wrong with a statement
    **dict.fromkeys(SERVERS, r"lacks a table or a column of ours: call `await repository.create_tables\(\)`"),
}


@FILES_AND_SERVERS
async def test_tables_that_went_away_are_told(place: Place) -> None:
    async with aclosing(place.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t")
        place.run("DROP TABLE {}turns")
        with pytest.raises(StorageError, match=LOST[dialect_of(place)]):
            await repository.append("c", pair(2), turn_id="t2")
        assert (await repository.recall("c", 20)).count == 2
        place.run("DROP TABLE {}schema")
        async with aclosing(place.repository(create=False)) as other:
            with pytest.raises(StorageError, match="has no tables"):
                await other.recall("c", 20)
        await repository.create_tables()  # makes what is missing, keeps what is there
        assert await repository.append("c", pair(2), turn_id="t2") == 2


@FILES_AND_SERVERS
def test_the_script_makes_the_same_tables(place: Place, tmp_path: Path) -> None:
    run_script(place, ddl(dialect_of(place), table_prefix=place.prefix))
    by_hand = shape(place)
    other = Place(place.kind, tmp_path, fresh=True)

    async def make() -> None:
        async with aclosing(other.repository()) as repository:
            await repository.create_tables()

    anyio.run(make)
    assert by_hand == shape(other)
    other.close()
    assert place.run("SELECT version FROM {}schema") == [(schema.VERSION,)]


@FILES_AND_SERVERS
async def test_the_script_serves_a_repository_that_makes_nothing(place: Place) -> None:
    run_script(place, ddl(dialect_of(place), table_prefix=place.prefix))
    async with aclosing(place.repository(create=False)) as repository:
        assert await repository.append("c", pair(1), turn_id="t") == 1


# --- other versions


def older(place: Place) -> None:
    """The tables of version 1, with a conversation in them."""
    kind = dialect_of(place)
    gone = ("spoken", "ttl", "ends")
    script = ddl(kind, table_prefix=place.prefix).replace(f"SELECT {schema.VERSION}", "SELECT 1")
    lines = [line for line in script.split("\n") if not line.strip().startswith(gone)]
    run_script(place, "\n".join(lines))
    rows = {
        "conversations": "(incarnation, id, revision, count, next_sequence, systems, question, summary, created, updated)"
        " VALUES (7, 'c', 2, 3, 4, 1, 2, 0, 1000000, 2000000)",
        "turns": "VALUES (7, 't1')",
    }
    for name, values in rows.items():
        place.run(f"INSERT INTO {{}}{name} {values}")
    messages = (SystemMessage("s"), *pair(1))
    for sequence, (message, lane) in enumerate(zip(messages, (1, 0, 0), strict=True), start=1):
        text = f'{{"role":"{message.role}","content":"{message.text}"}}'
        place.run(
            f"INSERT INTO {{}}entries VALUES (7, {lane}, {sequence}, 't1', 1000000, NULL, {2 if lane == 0 else 0}, :text)",
            text=text,
        )


@FILES_AND_SERVERS
async def test_tables_of_version_1_are_refused_until_they_are_brought_on(place: Place) -> None:
    older(place)
    async with aclosing(place.repository(create=False)) as repository:
        with pytest.raises(StorageError, match=r"older advisorchain \(version 1.*create_tables"):
            await repository.recall("c", 20)
        await repository.create_tables()
        await check_brought_on(repository)
    await check_same_shape(place)


@FILES_AND_SERVERS
async def test_tables_of_version_1_are_brought_on_by_the_printed_steps(place: Place) -> None:
    older(place)
    run_script(place, ddl(dialect_of(place), since=1, table_prefix=place.prefix))
    async with aclosing(place.repository(create=False)) as repository:
        await check_brought_on(repository)
    await check_same_shape(place)


async def check_brought_on(repository: SqlChatMemoryRepository) -> None:
    recall = await repository.recall("c", 20)
    assert [entry.message.text for entry in recall.tail] == ["u1", "a1"]
    assert [entry.message.text for entry in recall.systems] == ["s"]
    assert await repository.append("c", pair(1), turn_id="t1") == 2
    kept = Retention(ttl=timedelta(days=1), max_messages=2)
    assert await repository.append("c", pair(2), turn_id="t2", retention=kept) == 3
    recall = await repository.recall("c", 20)
    assert [entry.message.text for entry in recall.tail] == ["u2", "a2"]  # `spoken` was counted
    assert (await repository.conversations()).items[0].expires is not None


async def check_same_shape(place: Place) -> None:
    fresh = Place(place.kind, Path(place.url.database or "").parent, fresh=True)
    async with aclosing(fresh.repository()) as repository:
        await repository.create_tables()
    assert shape(place) == shape(fresh)
    fresh.close()


@FILES_AND_SERVERS
async def test_many_at_once_bring_the_tables_on(place: Place) -> None:
    older(place)

    async def bring() -> None:
        async with aclosing(place.repository()) as repository:
            assert (await repository.recall("c", 20)).count == 3

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(bring)
    assert place.run("SELECT version FROM {}schema") == [(schema.VERSION,)]


@FILES_AND_SERVERS
async def test_a_step_that_a_crash_left_half_done_is_ended(place: Place) -> None:
    """As on MariaDB and MySQL, where each change of a table stands for itself."""
    older(place)
    change = schema.steps(dialect_of(place), 1, place.prefix)[0][1][0]
    assert isinstance(change, schema.Added)
    place.run(change.text())
    async with aclosing(place.repository()) as repository:
        await check_brought_on(repository)


@FILES_AND_SERVERS
async def test_a_step_that_fails_leaves_the_version(place: Place, monkeypatch: Any) -> None:
    older(place)
    broken = [*schema.STEPS[2](dialect_of(place), place.prefix), "UPDATE no_such_table SET x = 1"]
    monkeypatch.setitem(schema.STEPS, 2, lambda kind, prefix: broken)
    monkeypatch.setattr("advisorchain.memory.repositories._sql.work._RACES", 1)
    async with aclosing(place.repository()) as repository:
        with pytest.raises(StorageError, match=r"nothing was stored|lacks a table"):
            await repository.recall("c", 20)
    assert place.run("SELECT version FROM {}schema") == [(1,)]
    monkeypatch.undo()
    async with aclosing(place.repository()) as repository:
        await check_brought_on(repository)


@FILES_AND_SERVERS
async def test_tables_of_a_newer_version_are_refused(place: Place) -> None:
    async with aclosing(place.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t")
    place.run(f"UPDATE {{}}schema SET version = {schema.VERSION + 1}")
    for create in (False, True):
        async with aclosing(place.repository(create=create)) as repository:
            with pytest.raises(StorageError, match=rf"newer advisorchain \(version {schema.VERSION + 1}.*update it"):
                await repository.recall("c", 20)
    assert place.rows()["conversations"] == 1


# --- the words of each database


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_script_of_each_database(dialect: str) -> None:
    script = ddl(dialect)
    made = re.findall(r"CREATE TABLE (\w+)", script)
    assert made == [f"advisorchain_{name}" for name in TABLES]
    assert script.endswith(";\n")
    assert "INSERT INTO advisorchain_schema (version) SELECT 2" in script
    columns = re.findall(r"^\t(\w+) ", script, re.MULTILINE)
    assert columns.count("turn_id") == 2
    name, text = TYPES[dialect]
    assert len(re.findall(rf"\tid {re.escape(name)} NOT NULL", script)) == 1
    assert len(re.findall(rf"\tturn_id {re.escape(name)} NOT NULL", script)) == 2
    assert f"message {text} NOT NULL" in script
    assert ("ENGINE=InnoDB" in script) is (dialect in ("mysql", "mariadb"))
    assert ("WITHOUT ROWID" in script) is (dialect == "sqlite")
    assert ("PRIMARY KEY NONCLUSTERED (conversation, turn_id)" in script) is (dialect == "mssql")
    assert TOKENS[dialect] in script


TYPES = {
    "postgresql": ('VARCHAR(255) COLLATE "C"', "TEXT"),
    "mysql": (
        "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin",
        "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ),
    "mariadb": (
        "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
        "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ),
    "sqlite": ("VARCHAR(255)", "TEXT"),
    "mssql": ("VARBINARY(1020)", "NVARCHAR(max)"),
    "oracle": ("VARCHAR2(255 CHAR)", "CLOB"),
}
TOKENS = {
    "postgresql": "token BIGINT GENERATED BY DEFAULT AS IDENTITY",
    "mysql": "token BIGINT NOT NULL AUTO_INCREMENT",
    "mariadb": "token BIGINT NOT NULL AUTO_INCREMENT",
    "sqlite": "token INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    "mssql": "token BIGINT NOT NULL IDENTITY",
    "oracle": "token NUMBER(19) GENERATED BY DEFAULT AS IDENTITY (ORDER)",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_steps_of_each_database(dialect: str) -> None:
    script = ddl(dialect, since=1, table_prefix="chat_")
    assert "ALTER TABLE chat_conversations ADD" in script
    assert script.endswith("UPDATE chat_schema SET version = 2;\n")
    assert ddl(dialect, since=2) == ""


def test_what_cannot_be_printed_is_refused() -> None:
    for given, named in (
        ({"dialect": "access"}, "dialect"),
        ({"dialect": "sqlite", "since": 0}, "since"),
        ({"dialect": "sqlite", "since": 3}, "since"),
        ({"dialect": "sqlite", "since": "1"}, "since"),
        ({"dialect": "sqlite", "table_prefix": "a; DROP"}, "table_prefix"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            ddl(**given)


DRIVERS = {
    "postgresql": psycopg.dialect,
    "mysql": pymysql.dialect,
    "mariadb": pymysql.dialect,
    "sqlite": pysqlite.dialect,
    "mssql": mssqlpython.dialect,
    "oracle": oracledb.dialect,
}


def statements_of(kind: str, *, clocked: bool = False) -> dict[str, Statement]:
    dialect = DRIVERS[kind](paramstyle="pyformat") if kind == "postgresql" else DRIVERS[kind]()
    made = Statements(dialect, kind, schema.tables(kind), clocked=clocked)
    found = {
        name: getattr(made, name)
        for base in Statements.__mro__
        for name, value in vars(base).items()
        if isinstance(value, Compiled)
    }
    for bounded in (False, True):
        found[f"old{bounded:d}"] = made.old(bounded=bounded)
        for behind in (False, True):
            found[f"listed{bounded:d}{behind:d}"] = made.listed(bounded=bounded, behind=behind)
    if made.takes_whole_turns:
        found["turn"] = made.turn(Form(2, True, True, True, True, True))
    return found


@pytest.mark.parametrize("clocked", [False, True])
@pytest.mark.parametrize("kind", DIALECTS)
def test_every_statement_of_each_database_is_whole(kind: str, clocked: bool) -> None:
    found = statements_of(kind, clocked=clocked)
    assert len(found) >= 30
    given = dict.fromkeys(GIVEN, 1)
    for name, statement in found.items():
        assert set(statement.known) - {n for n in statement.known if n.startswith("param_")} <= set(given), name
        values = statement.given(given)
        assert None not in values, name
        assert ("now" in statement.known) is (clocked and bool(SEES_TIME.match(name))), name


GIVEN = set(
    """at before conversation count created held highest id incarnation last lane length lowest most new_id next_sequence now
    offset owner place question removed removed_spoken revision sequence spoken summary systems target token ttl turn_id
    covers message updated new_revision new_count new_next_sequence new_systems new_question new_summary new_updated
    new_spoken new_ttl asked expected begun asked0 asked1 message0 message1""".split()  # noqa: SIM905
)
SEES_TIME = re.compile("recall|page|locked|found|create|moved|remove_old|old|listed|lease|dead_leases|take|renew|turn$")
CLOCKS = {
    "postgresql": "clock_timestamp()",
    "mysql": "UTC_TIMESTAMP(6)",
    "mariadb": "UTC_TIMESTAMP(6)",
    "sqlite": "julianday('now')",
    "mssql": "SYSUTCDATETIME()",
    "oracle": "SYSTIMESTAMP",
}
LOCKS = {
    "postgresql": "FOR UPDATE",
    "mysql": "FOR UPDATE",
    "mariadb": "FOR UPDATE",
    "sqlite": "WHERE",  # BEGIN IMMEDIATE has locked all
    "mssql": "WITH (UPDLOCK, ROWLOCK)",
    "oracle": "FOR UPDATE",
}


@pytest.mark.parametrize("kind", DIALECTS)
def test_each_database_locks_and_tells_time_in_its_own_way(kind: str) -> None:
    found = statements_of(kind)
    for name in ("locked", "locked_lease"):
        assert LOCKS[kind] in found[name].text
    assert "FOR UPDATE" not in found["found"].text
    for name in ("recall", "page", "take", "moved"):
        assert CLOCKS[kind] in found[name].text
    assert found["recall"].text.count("UNION ALL") == 3
    assert ("WITH (REPEATABLEREAD)" in found["recall"].text) is (kind == "mssql")


def test_ids_of_sql_server_are_bytes_and_come_back() -> None:
    dialect = mssqlpython.dialect()
    kept = schema.Utf8Bytes(1020)
    for text in ("a ", "ж", "𝔁" * 255):
        stored = kept.process_bind_param(text, dialect)
        assert stored == text.encode()
        assert kept.process_result_value(bytearray(stored), dialect) == text
    assert kept.process_bind_param(None, dialect) is None
    assert kept.process_result_value(None, dialect) is None
