"""SQL databases that fail: connections that break, locks, time that runs out, pools that are used up, passwords."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from advisorchain.errors import ConfigurationError, ConversationConflictError, MissingExtraError, StorageError
from advisorchain.memory.repositories._sql import appending as _sql_appending
from advisorchain.memory.repositories._sql import engine as _sql_engine
from advisorchain.memory.repositories._sql import link as _sql_link
from advisorchain.memory.repositories._sql import rows as _sql_rows
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository
from advisorchain.messages import UserMessage

from ._kit import pair
from ._sql_servers import ON_SERVERS, Place, admin

PASSWORD = "p@ss/w:rd%' x"


@pytest.fixture(params=ON_SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture(params=[pytest.param("postgresql", marks=pytest.mark.slow)])
def postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.param, tmp_path)
    yield found
    found.close()


async def texts(repository: Any, conversation_id: str = "c") -> list[str]:
    return [entry.message.text for entry in (await repository.recall(conversation_id, None)).tail]


# --- connections that break


async def test_idle_connections_that_the_server_ended_are_not_noticed(server: Place) -> None:
    calls: list[Callable[[Any, int], Any]] = [
        lambda repository, n: repository.recall("c", 20),
        lambda repository, n: repository.append("c", pair(n), turn_id=f"n{n}"),
        lambda repository, n: repository.page("c"),
        lambda repository, n: repository.conversations(),
        lambda repository, n: repository.replace("c", pair(n)),
        lambda repository, n: repository.fork("c", f"fork{n}"),
        lambda repository, n: repository.rename(f"fork{n - 1}", f"renamed{n}"),
        lambda repository, n: repository.acquire("c", "me", 60),
        lambda repository, n: repository.release("c", 1),
        lambda repository, n: repository.delete(f"renamed{n - 3}"),
        lambda repository, n: repository.prune(),
    ]
    async with aclosing(server.repository(pool_size=3)) as repository:
        await repository.append("c", pair(0), turn_id="0")
        for number, call in enumerate(calls):
            async with anyio.create_task_group() as group:  # all three are open
                for _ in range(3):
                    group.start_soon(repository.recall, "c", 20)
            assert await to_thread.run_sync(server.cut) >= 1
            await call(repository, number)


@pytest.mark.parametrize("given", [False, True])
async def test_a_connection_that_breaks_before_the_end_is_made_anew(server: Place, given: bool, monkeypatch: Any) -> None:
    """Whatever was under way was undone by the server, so it is done again as a whole."""
    engine = create_engine(server.url, pool_size=2) if given else None
    async with aclosing(server.on(engine) if engine else server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        add, cut = _sql_rows.Log.add, 0

        def breaking(self: Any, *values: Any) -> int:
            nonlocal cut
            cut += 1
            if cut == 1:
                server.cut()
            return add(self, *values)

        monkeypatch.setattr(_sql_rows.Log, "add", breaking)
        assert await repository.replace("c", [*pair(1), *pair(2)]) == 2
        assert cut == 2
        assert await texts(repository) == ["u1", "a1", "u2", "a2"]
    if engine:
        engine.dispose()


@pytest.mark.parametrize("stored", [True, False])
async def test_an_append_whose_answer_is_lost_is_stored_once(server: Place, stored: bool, monkeypatch: Any) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        _break_at_the_end(monkeypatch, server, stored)
        assert await repository.append("c", pair(2), turn_id="t2") == 2
        assert await texts(repository) == ["u1", "a1", "u2", "a2"]


def _break_at_the_end(monkeypatch: Any, server: Place, stored: bool) -> None:
    """The connection breaks as a transaction is made durable, once: just before or just after."""
    broken = threading.Event()
    if server.kind == "postgresql":  # where the whole turn is one statement

        def rows(self: Any, statement: Any, parameters: Any) -> Any:
            first = "INSERT" in statement.text and not broken.is_set()
            if first:
                broken.set()
                if not stored:
                    server.cut()
            found = asked(self, statement, parameters)
            if first:
                server.cut()
                self._cursor.execute("SELECT 1")
            return found

        asked = _sql_link.DirectLink.rows
        monkeypatch.setattr(_sql_link.DirectLink, "rows", rows)

    def end(self: Any) -> None:
        if self._begun and not broken.is_set():
            broken.set()
            self.is_ending = True
            if stored:
                self.driver.commit()
            server.cut()
            self._cursor.execute("SELECT 1")
        ended(self)

    ended = _sql_link.DirectLink.end
    monkeypatch.setattr(_sql_link.DirectLink, "end", end)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_replacement_whose_answer_is_lost_is_told(server: Place, stored: bool, monkeypatch: Any) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        with monkeypatch.context() as patched:
            _break_at_the_end(patched, server, stored)
            with pytest.raises(StorageError, match="not known whether it was stored"):
                await repository.replace("c", pair(2))
        assert await texts(repository) == (["u2", "a2"] if stored else ["u1", "a1"])


async def test_a_server_that_is_away_is_told_in_bounded_time(server: Place) -> None:
    url = server.url.set(port=1)
    async with aclosing(SqlChatMemoryRepository(url, connect_timeout=2)) as repository:
        with pytest.raises(StorageError, match="cannot be reached; check the URL"):
            await repository.recall("c", 20)


async def test_connections_that_break_again_and_again_end_in_an_error(server: Place, monkeypatch: Any) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")

        def rows(self: Any, statement: Any, parameters: Any) -> Any:
            server.cut()
            return asked(self, statement, parameters)

        asked = _sql_link.DirectLink.rows
        monkeypatch.setattr(_sql_link.DirectLink, "rows", rows)
        with pytest.raises(StorageError, match="failed; nothing was stored"):
            await repository.recall("c", 20)
        monkeypatch.undo()
        assert await texts(repository) == ["u1", "a1"]


# --- locks and time


async def test_a_lock_of_another_program_is_waited_for_no_longer_than_the_timeout(server: Place) -> None:
    async with aclosing(server.repository()) as patient:  # the time of making tables is none of the lock's
        await patient.append("c", pair(1), turn_id="t1")
    async with aclosing(server.repository(timeout=1)) as repository:
        engine = create_engine(server.url)
        with engine.connect() as other:
            other.exec_driver_sql(f"SELECT * FROM {server.prefix}conversations FOR UPDATE")
            with pytest.raises(StorageError, match="longer than `timeout`"):
                await repository.append("c", pair(2), turn_id="t2")
            assert (await repository.recall("c", 20)).count == 2  # readers do not wait
        engine.dispose()
        assert await repository.append("c", pair(2), turn_id="t2") == 2


async def test_deadlocks_are_tried_again(server: Place) -> None:
    """Another program takes the rows in the other order, again and again."""
    async with aclosing(server.repository(pool_size=2)) as repository:
        for name in ("a", "b"):
            await repository.append(name, pair(0), turn_id="t")
        stop = threading.Event()
        other = threading.Thread(target=_crossing, args=(server, stop))
        other.start()
        try:
            for number in range(30):
                if await repository.rename("b", "c"):
                    await repository.rename("c", "b")
                await repository.append("a", pair(number), turn_id=f"a{number}")
        finally:
            stop.set()
            await to_thread.run_sync(other.join)
        assert (await repository.recall("a", 1)).count == 62


def _crossing(server: Place, stop: threading.Event) -> None:
    engine = create_engine(server.url)
    with engine.connect() as connection:
        while not stop.is_set():
            with suppress(DBAPIError):
                for name in ("b", "a"):
                    update = f"UPDATE {server.prefix}conversations SET updated = updated WHERE id = '{name}'"
                    connection.exec_driver_sql(update)
                connection.exec_driver_sql(f"UPDATE {server.prefix}entries SET covers = NULL WHERE lane = 0")
            connection.rollback()
    engine.dispose()


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_transaction_that_cannot_be_serialized_is_tried_again(
    postgresql: Place, code: str, monkeypatch: Any
) -> None:
    async with aclosing(postgresql.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        raised = 0

        def lock(self: Any) -> Any:
            nonlocal raised
            raised += 1
            if raised < 4:
                self.link.plain(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$")
            return locked(self)

        locked = _sql_rows.Log.lock
        monkeypatch.setattr(_sql_rows.Log, "lock", lock)
        assert await repository.replace("c", pair(2)) == 2
        assert raised == 4


async def test_a_pool_that_is_used_up_is_told(server: Place) -> None:
    async with aclosing(server.repository()) as patient:  # the time of making tables is none of the pool's
        await patient.append("c", pair(1), turn_id="t1")
    async with aclosing(server.repository(pool_size=1, timeout=1)) as repository:
        assert (await repository.recall("c", 20)).count == 2
        with repository._database._links.reserved():
            with pytest.raises(StorageError, match="`pool_size`"):
                await repository.recall("c", 20)
        assert (await repository.recall("c", 20)).count == 2


async def test_an_engine_whose_pool_is_used_up_is_told(server: Place) -> None:
    engine = create_engine(server.url, pool_size=1, max_overflow=0, pool_timeout=0.2)
    async with aclosing(server.on(engine)) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        with engine.connect():
            with pytest.raises(StorageError, match="`pool_size`"):
                await repository.recall("c", 20)
        assert (await repository.recall("c", 20)).count == 2
    engine.dispose()


async def test_no_more_connections_are_open_than_shall_be(server: Place) -> None:
    async with aclosing(server.repository(pool_size=2)) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(repository.recall, "c", number)
        assert len(repository._database._links._idle) == 2
        links = list(repository._database._links._idle)
    assert all(link.driver.closed if server.kind == "postgresql" else not link.driver.open for link in links)


# --- cancellation


async def test_a_cancelled_write_that_waits_for_a_lock_ends_as_a_whole(server: Place) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        engine = create_engine(server.url)
        with engine.connect() as other:
            other.exec_driver_sql(f"SELECT * FROM {server.prefix}conversations FOR UPDATE")

            async def free() -> None:
                await to_thread.run_sync(_until, lambda: _waiting(server))
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.lowlevel.checkpoint()
                    other.rollback()

            with anyio.CancelScope():
                async with anyio.create_task_group() as group:
                    group.start_soon(free)
                    await repository.append("c", pair(2), turn_id="t2")
        engine.dispose()
        assert await texts(repository) == ["u1", "a1", "u2", "a2"]
        assert await repository.append("c", pair(3), turn_id="t3") == 3


def _waiting(server: Place) -> bool:
    if server.kind == "postgresql":
        return bool(
            server.run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
        )
    return bool(server.run("SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"))


def _until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- poolers


async def test_statements_are_prepared_where_the_server_is_spoken_to_directly(postgresql: Place, monkeypatch: Any) -> None:
    async def prepared(**options: Any) -> int:
        async with aclosing(SqlChatMemoryRepository(table_prefix=postgresql.prefix, create=True, **options)) as repository:
            for number in range(8):
                await repository.append("c", pair(number), turn_id=f"{time.time_ns()}")
                await repository.recall("c", 21)
            cursor = repository._database._links._idle[-1].driver.cursor()
            return int(cursor.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0])

    assert await prepared(url_or_engine=postgresql.url) >= 2
    asked = postgresql.url.update_query_dict({"prepare_threshold": "0"})
    assert await prepared(url_or_engine=asked) >= 2
    monkeypatch.setattr("psycopg.ConnectionInfo.backend_pid", property(lambda self: 1))  # as a pooler tells its clients
    assert await prepared(url_or_engine=postgresql.url) == 0
    assert await prepared(url_or_engine=asked) >= 2


async def test_no_start_up_option_is_given_without_a_timeout(postgresql: Place) -> None:
    async with aclosing(postgresql.repository(timeout=None)) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        cursor = repository._database._links._idle[-1].driver.cursor()
        assert cursor.execute("SHOW statement_timeout").fetchone() == ("0",)
    async with aclosing(postgresql.repository(timeout=7.5)) as repository:
        await repository.append("c", pair(2), turn_id="t2")
        cursor = repository._database._links._idle[-1].driver.cursor()
        assert cursor.execute("SHOW statement_timeout").fetchone() == ("7500ms",)


async def test_a_changed_table_does_not_stop_prepared_statements(postgresql: Place) -> None:
    async with aclosing(postgresql.repository()) as repository:
        for number in range(8):
            await repository.append("c", pair(number), turn_id=f"t{number}")
            await repository.recall("c", 2)
        postgresql.run("ALTER TABLE {}entries ALTER COLUMN covers TYPE numeric")
        assert (await repository.recall("c", 2)).count == 16
        postgresql.run("ALTER TABLE {}entries ALTER COLUMN covers TYPE bigint")
        assert (await repository.recall("c", 2)).count == 16


# --- what is told, and what is not


@pytest.mark.parametrize("port", [1, None])
async def test_a_password_is_in_no_text(server: Place, port: int | None) -> None:
    url = server.url.set(username="nobody", password=PASSWORD, **({"port": port} if port else {}))
    repository = SqlChatMemoryRepository(url.render_as_string(hide_password=False), connect_timeout=2)
    shown = [repr(repository), str(repository), repr(repository._database.engine)]
    if server.kind == "mariadb" or port:  # this PostgreSQL asks nobody for one
        with pytest.raises(StorageError) as raised:
            await repository.recall("c", 20)
        shown += _whole(raised.value)
    await repository.aclose()
    for text in shown:
        for secret in (PASSWORD, "ss/w", "w:rd", "p%40ss"):
            assert secret not in text


def _whole(error: BaseException | None) -> list[str]:
    """Every text of an error and of what it came from."""
    found = []
    while error is not None:
        found += [str(error), repr(error), *getattr(error, "__notes__", ())]
        error = error.__cause__ or error.__context__
    return found


async def test_a_password_that_a_driver_repeats_is_hidden(monkeypatch: Any) -> None:
    def connect(**arguments: Any) -> Any:
        raise psycopg_error(f"could not connect with {arguments['password']} or {PASSWORD!r} to p%40ss%2Fw%3Ard%25%27%20x")

    import psycopg

    psycopg_error = psycopg.OperationalError
    url = make_url("postgresql://nobody@127.0.0.1/db").set(password=PASSWORD)
    repository = SqlChatMemoryRepository(url)
    monkeypatch.setattr("psycopg.connect", connect)
    with pytest.raises(StorageError, match=r"cannot be reached.*\*\*\*") as raised:
        await repository.recall("c", 20)
    assert not any("w:rd" in text or "ss%2F" in text for text in _whole(raised.value))
    await repository.aclose()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("://", "no database URL"),
        ("nonsense", "no database URL"),
        (f"post gres://u:{PASSWORD}@h/d", "percent-encode"),
        ("postgresql://u:secret-word@h:port/d", "a port that cannot be one"),
        ("access://u:secret-word@h/d", "unknown scheme `access`"),
        ("postgresql+asyncpg://u:secret-word@h/d", "asyncio driver"),
        ("postgresql://u:secret-word@h/d?prepare_threshold=often", "prepare_threshold"),
        (None, "no database URL"),
        (3, "no database URL"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_being_shown(url: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        SqlChatMemoryRepository(url)
    assert not any("secret-word" in text or "w:rd" in text for text in _whole(raised.value))


def test_a_driver_that_is_not_installed_is_told_with_the_way_to_get_it(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r'pip install "advisorchain\[postgresql\]"'):
        SqlChatMemoryRepository("postgresql://h/d")


@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": 0}, {"pool_size": True}, {"pool_size": 2.0}, {"timeout": 0}, {"timeout": "1"},
        {"timeout": float("inf")},
        {"connect_timeout": None}, {"connect_timeout": -1}, {"table_prefix": "a-b"}, {"table_prefix": ""},
        {"table_prefix": "x" * 32}, {"table_prefix": "A"}, {"table_prefix": "1a"},
    ],
)  # fmt: skip
def test_arguments_that_cannot_work_are_refused(options: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        SqlChatMemoryRepository("sqlite://", **options)


def test_engines_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="StaticPool"):
        SqlChatMemoryRepository(create_engine("sqlite://", poolclass=StaticPool))


async def test_what_people_wrote_is_in_no_error(server: Place, monkeypatch: Any) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        record = _sql_rows.Log._record
        broken = {"turn_id": "private words " * 30}  # longer than the column
        monkeypatch.setattr(_sql_rows.Log, "_record", lambda self, *given: {**record(self, *given), **broken})
        with pytest.raises(StorageError, match="nothing was stored") as raised:
            await repository.replace("c", [UserMessage("private words")])
        assert not any("private" in text for text in _whole(raised.value))
        assert await texts(repository) == ["u1", "a1"]


async def test_what_the_library_refuses_is_not_taken_for_a_fault(server: Place) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")
        with pytest.raises(ConversationConflictError) as raised:
            await repository.append("c", pair(2), turn_id="t2", expected=5)
        assert (raised.value.expected, raised.value.found) == (5, 1)
        assert await repository.append("c", pair(2), turn_id="t2", expected=1) == 2  # the turn id was not used up


async def test_an_error_that_is_not_of_the_database_passes_and_undoes(server: Place, monkeypatch: Any) -> None:
    async with aclosing(server.repository()) as repository:
        await repository.append("c", pair(1), turn_id="t1")

        def failing(self: Any, *given: Any) -> int:
            add(self, *given)
            raise KeyError("ours")

        add = _sql_rows.Log.add
        monkeypatch.setattr(_sql_rows.Log, "add", failing)
        with pytest.raises(KeyError, match="ours"):
            await repository.replace("c", pair(2))
        monkeypatch.undo()
        assert await texts(repository) == ["u1", "a1"]


# --- closing, forking


async def test_closing_waits_for_what_is_under_way(server: Place, monkeypatch: Any) -> None:
    repository = server.repository()
    await repository.append("c", pair(1), turn_id="t1")
    began, go = threading.Event(), threading.Event()
    run = _sql_appending.Append.run

    def slow(self: Any, *given: Any) -> int:
        began.set()
        go.wait(20)
        return run(self, *given)

    monkeypatch.setattr(_sql_appending.Append, "run", slow)
    closed = False

    async def close() -> None:
        nonlocal closed
        await to_thread.run_sync(began.wait, 20)
        async with anyio.create_task_group() as inner:
            inner.start_soon(repository.aclose)
            await anyio.wait_all_tasks_blocked()
            assert not closed
            go.set()
        closed = True

    async def append() -> None:
        await repository.append("c", pair(2), turn_id="t2")

    async with anyio.create_task_group() as group:
        group.start_soon(append)
        group.start_soon(close)
    with pytest.raises(StorageError, match="is closed"):
        await repository.recall("c", 20)
    await repository.aclose()
    async with aclosing(server.repository()) as other:
        assert await texts(other) == ["u1", "a1", "u2", "a2"]


FORKED = """
import os, sys, anyio
from advisorchain.errors import StorageError
from advisorchain.memory.repositories.sql import SqlChatMemoryRepository
from advisorchain.messages import UserMessage

repository = SqlChatMemoryRepository(sys.argv[1], create=True)
anyio.run(repository.recall, "c", 1)
child = os.fork()
if child == 0:
    try:
        anyio.run(repository.recall, "c", 1)
    except StorageError as error:
        print(error)
        anyio.run(repository.aclose)
        os._exit(7)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
anyio.run(repository.recall, "c", 1)
anyio.run(repository.aclose)
"""


def test_a_forked_process_is_refused_its_parents_connections(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, f"sqlite:///{tmp_path}/c.db"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert "made before this process was forked" in ran.stdout


async def test_many_event_loops_one_after_the_other_leave_nothing_behind(tmp_path: Path) -> None:
    repository = SqlChatMemoryRepository(f"sqlite:///{tmp_path}/c.db", create=True)

    def loops() -> None:
        for number in range(20):
            anyio.run(repository.recall, "c", number, backend="trio" if number % 2 else "asyncio")

    await to_thread.run_sync(loops)
    import gc

    gc.collect()
    assert len(repository._database._limiters) <= 1
    await repository.aclose()


def test_limits_are_given_to_the_drivers() -> None:
    limits = _sql_engine.checked_limits(3, 4, 2)
    engine, size = _sql_engine.made_engine("mysql://root@h/d?read_timeout=9", limits)
    arguments = engine.dialect.create_connect_args(engine.url)[1]
    assert size == 3
    assert arguments["read_timeout"] == 9
    assert admin is not None
