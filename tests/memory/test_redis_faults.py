"""What goes wrong with a Redis server, and what a caller is told."""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio import to_thread
from coredis import Redis

from advisorchain.errors import StorageError
from advisorchain.memory.repositories._redis.rows import keys_of as names_of
from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import UserMessage

from ._kit import MOMENTS, cancelled_after, pair, texts
from ._redis_servers import KINDS, PrivateRedis, free_port, private, repository, server, wait_until

pytestmark = pytest.mark.slow  # asks a server


# --- the server goes away and comes back


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hard", [False, True], ids=["stop", "kill -9"])
async def test_an_acknowledged_turn_survives_a_restart(kind: str, hard: bool) -> None:
    with private(kind, appendonly="yes", appendfsync="always") as found:
        store = repository(found.url)
        await store.append("c", pair(1), turn_id="t1", retention=Retention(ttl=timedelta(days=1)))
        found.stop(hard=hard)
        with pytest.raises(StorageError, match=r"cannot be reached.*turn id is harmless"):
            await store.append("c", pair(2), turn_id="t2")
        found.start()
        assert await store.append("c", pair(2), turn_id="t2") == 2  # a new connection, and a server that knows no script
        assert await texts(store) == ["u1", "a1", "u2", "a2"]
        assert (await store.recall("c", 1)).revision == 2
        await store.aclose()


async def test_a_restart_between_two_calls_is_not_noticed() -> None:
    with private(appendonly="yes") as found:
        store = repository(found.url)
        for number in range(3):
            await store.append("c", pair(number), turn_id=f"t{number}")
            await to_thread.run_sync(found.stop)
            await to_thread.run_sync(found.start)
        assert (await store.recall("c", 1)).count == 6
        await store.aclose()


async def test_a_script_flush_is_not_noticed() -> None:
    url = server("redis").url
    store = repository(url)
    async with Redis.from_url(url) as client:
        for number in range(3):
            await client.script_flush()
            await store.append("c", pair(number), turn_id=f"t{number}")
            await client.script_flush()
            assert (await store.recall("c", 20)).count == 2 * number + 2
    await store.delete("c")
    await store.aclose()


class LosingProxy:
    """Hands bytes on to a server, and closes a connection instead of handing an answer back when it is told to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.loses = 0  # answers to come
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", self._target))
            for one, other, answers in ((ours, theirs, False), (theirs, ours, True)):
                thread = threading.Thread(target=self._hand_on, args=(one, other, answers), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _hand_on(self, one: socket.socket, other: socket.socket, answers: bool) -> None:
        try:
            while data := one.recv(65_536):
                if answers and self.loses and not data.startswith(b"-NOSCRIPT"):
                    self.loses -= 1
                    break
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if answers:
            one.close()
            other.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def losing() -> Iterator[LosingProxy]:
    proxy = LosingProxy(server("redis").port)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.mark.parametrize("call", ["append", "replace", "rename", "fork", "delete", "acquire", "recall", "page", "list"])
async def test_an_answer_that_was_lost_is_asked_for_once_more(call: str) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "append": lambda store: store.append("c", pair(2), turn_id="t2", expected=1),
        "replace": lambda store: store.replace("c", pair(2), expected=1),
        "rename": lambda store: store.rename("c", "d"),
        "fork": lambda store: store.fork("c", "d", at=1),
        "delete": lambda store: store.delete("c"),
        "acquire": lambda store: store.acquire("c", "one", 5),
        "recall": lambda store: store.recall("c", 20),
        "page": lambda store: store.page("c"),
        "list": lambda store: store.conversations(),
    }
    with losing() as proxy:
        store = repository(f"redis://127.0.0.1:{proxy.port}")
        for lost in range(4):  # a replacement takes several trips
            for name in ("c", "d"):
                await store.delete(name)
            await store.append("c", pair(1), turn_id="t1")
            token = await store.acquire("c", "one", 5)
            proxy.loses = 1
            answer = await calls[call](store)
            proxy.loses = 0
            if call in ("append", "replace"):
                assert answer == 2
                assert await texts(store) == (["u1", "a1"] if call == "append" else []) + ["u2", "a2"]
            elif call == "acquire":
                assert answer == token
            elif call in ("rename", "fork", "delete"):
                assert answer is True, lost
                assert await texts(store, "d") == {"rename": ["u1", "a1"], "fork": ["u1"], "delete": []}[call]
        proxy.loses = 9
        with pytest.raises(StorageError, match="connection was lost"):
            await calls[call](store)
        proxy.loses = 0
        await store.delete("c")
        await store.delete("d")
        await store.aclose()


async def test_many_calls_at_once_survive_a_lost_connection() -> None:
    with losing() as proxy:
        store = repository(f"redis://127.0.0.1:{proxy.port}")
        await store.append("c", pair(0), turn_id="t0")
        proxy.loses = 1
        async with anyio.create_task_group() as group:
            for number in range(1, 41):

                async def add(number: int = number) -> None:
                    await store.append("c", pair(number), turn_id=f"t{number}")

                group.start_soon(add)
        found = await texts(store)
        assert len(found) == 82
        assert len(set(found)) == 82
        await store.delete("c")
        await store.aclose()


async def in_the_end(call: Callable[[], Any]) -> Any:
    """What a call gives that a slow machine may not answer in time at first."""
    with anyio.fail_after(60):
        while True:
            with suppress(StorageError):
                return await call()


async def test_a_server_that_hangs_is_an_error_in_time_and_is_used_again() -> None:
    with private() as found:
        store = repository(found.url, timeout=0.2)
        assert await in_the_end(lambda: store.append("c", pair(1), turn_id="t1")) == 1
        found.pause(signal.SIGSTOP)
        try:
            for _ in range(3):
                with pytest.raises(StorageError, match=r"did not answer within 0\.2 seconds|cannot be reached"):
                    await store.append("c", pair(2), turn_id="t2")
        finally:
            found.pause(signal.SIGCONT)
        store_again = repository(found.url, prefix=store._server.prefix)
        assert await store_again.append("c", pair(2), turn_id="t2") == 2
        await to_thread.run_sync(wait_until, lambda: found.says(b"PING\r\n") == b"+PONG\r\n")
        assert await in_the_end(lambda: store.append("c", pair(3), turn_id="t3")) == 3
        assert await texts(store) == ["u1", "a1", "u2", "a2", "u3", "a3"]
        await store.aclose()
        await store_again.aclose()


# --- the server refuses


async def test_no_server_is_a_clear_error() -> None:
    store = RedisChatMemoryRepository(f"redis://me:secret@127.0.0.1:{free_port()}/3")
    for call in (lambda: store.recall("c", 5), lambda: store.append("c", pair(1), turn_id="t"), store.conversations):
        with pytest.raises(StorageError, match=r"Redis at `redis://127\.0\.0\.1:\d+/3` cannot be reached") as caught:
            await call()
        assert "secret" not in "".join(traceback.format_exception(caught.value))
    await store.aclose()


async def test_a_wrong_password_is_told_and_not_shown(caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    with private(requirepass="right%hush") as found:
        for login in ("", ":wrong%25hush@", "somebody:wrong%25hush@"):
            store = RedisChatMemoryRepository(f"redis://{login}127.0.0.1:{found.port}")
            with pytest.raises(StorageError, match="refused the login; check the user and the password") as caught:
                await store.append("c", pair(1), turn_id="t")
            told = "".join(traceback.format_exception(caught.value)) + repr(store) + caplog.text
            assert "hush" not in told
            await store.aclose()
        store = RedisChatMemoryRepository(f"redis://default:right%25hush@127.0.0.1:{found.port}")
        assert await store.append("c", pair(1), turn_id="t") == 1
        assert "hush" not in repr(store) + repr(vars(store)) + caplog.text
        await store.aclose()


async def test_a_user_who_may_not_is_told() -> None:
    with private() as found:
        found.says(b"ACL SETUSER reader on nopass ~none:* +@all\r\n")
        store = RedisChatMemoryRepository(f"redis://reader:any@127.0.0.1:{found.port}")
        with pytest.raises(StorageError, match=r"does not let this user .* use its keys.*grant"):
            await store.append("c", pair(1), turn_id="t")
        await store.aclose()
        found.says(b"ACL SETUSER writer on nopass ~advisorchain:* +@all -@admin -@dangerous\r\n")
        store = RedisChatMemoryRepository(f"redis://writer:any@127.0.0.1:{found.port}")
        assert await store.append("c", pair(1), turn_id="t") == 1
        assert len((await store.conversations()).items) == 1
        assert await store.prune() == 0
        await store.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_server_refuses_and_can_be_emptied(kind: str) -> None:
    with private(kind, maxmemory="8mb", maxmemory_policy="noeviction") as found:
        store = repository(found.url)
        turns = 0
        with pytest.raises(StorageError, match=r"has no memory left \(`maxmemory`\); nothing was stored.*OOM"):
            while True:
                await store.append(f"c{turns}", [UserMessage("x" * 500_000)], turn_id="t")
                turns += 1
        assert (await store.recall(f"c{turns}", 5)).count == 0
        assert (await store.recall("c0", 5)).count == 1
        assert len((await store.conversations()).items) == turns
        for number in range(turns):
            assert await store.delete(f"c{number}")
        assert await store.append("c", pair(1), turn_id="t") == 1
        await store.aclose()


async def test_a_replica_refuses_writes_and_is_read() -> None:
    with private(repl_diskless_sync_delay=0) as primary, private(replicaof=f"127.0.0.1 {primary.port}") as replica:
        await to_thread.run_sync(wait_until, lambda: b"master_link_status:up" in replica.says(b"INFO replication\r\n"))
        store, reading = repository(primary.url, prefix="p"), repository(replica.url, prefix="p")
        await store.append("c", pair(1), turn_id="t1")
        while not await texts(reading):
            pass
        assert await texts(reading) == ["u1", "a1"]
        with pytest.raises(StorageError, match="is a replica, which takes no writes"):
            await reading.append("c", pair(2), turn_id="t2")
        await store.aclose()
        await reading.aclose()


async def test_a_server_that_cannot_save_is_told() -> None:
    with private(save="3600 1") as found:
        store = repository(found.url)
        await store.append("c", pair(1), turn_id="t1")
        shutil.rmtree(found.folder)
        found.says(b"BGSAVE\r\n")
        await to_thread.run_sync(wait_until, lambda: b"rdb_last_bgsave_status:err" in found.says(b"INFO persistence\r\n"))
        with pytest.raises(StorageError, match=r"cannot write its snapshots to disk.*nothing was stored.*MISCONF"):
            await store.append("c", pair(2), turn_id="t2")
        assert await texts(store) == ["u1", "a1"]
        await store.aclose()
        found.folder.mkdir()


async def test_keys_of_another_program_are_told_and_left_alone() -> None:
    url = server("redis").url
    store = repository(url)
    keys = names_of(store._server.prefix, "c")
    async with Redis.from_url(url) as client:
        await client.set(keys.head, "mine")
        with pytest.raises(StorageError, match="keys of another program under this `prefix`"):
            await store.append("c", pair(1), turn_id="t1")
        assert await client.get(keys.head) == b"mine"
        await client.delete([keys.head])
    await store.aclose()


async def test_a_server_without_our_commands_is_told() -> None:
    with private(rename_command="EVALSHA nothing") as found:
        store = repository(found.url)
        with pytest.raises(StorageError, match="needs Redis 7") as caught:
            await store.append("c", pair(41), turn_id="t1")
        assert "u41" not in "".join(traceback.format_exception(caught.value))
        await store.aclose()


# --- cancellation and the end


@pytest.mark.parametrize("call", ["append", "replace", "delete", "rename"])
async def test_cancellation_at_every_checkpoint_is_whole_or_nothing(call: str) -> None:
    outcomes = {
        "append": [["u1", "a1"], ["u1", "a1", "u2", "a2"]],
        "replace": [["u1", "a1"], ["u2", "a2"]],
        "delete": [["u1", "a1"], []],
        "rename": [["u1", "a1"], []],
    }
    store = repository(server("redis").url)
    ended = 0
    for number, moment in enumerate(MOMENTS):
        name = f"c{number}"
        await store.append(name, pair(1), turn_id="t1")
        calls: dict[str, Callable[[], Any]] = {
            "append": lambda name=name: store.append(name, pair(2), turn_id="t2"),
            "replace": lambda name=name: store.replace(name, pair(2)),
            "delete": lambda name=name: store.delete(name),
            "rename": lambda name=name: store.rename(name, f"{name} new"),
        }
        ended += await cancelled_after(moment, calls[call])
        assert await texts(store, name) in outcomes[call]
        assert await store.append(name, pair(3), turn_id="t3")
        for one in (name, f"{name} new"):
            await store.delete(one)
        if ended > 2:
            break
    assert ended
    await store.aclose()


async def test_a_call_in_a_cancelled_scope_does_nothing() -> None:
    store = repository(server("redis").url)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.append("c", pair(1), turn_id="t1")
    assert scope.cancelled_caught
    assert (await store.recall("c", 5)).count == 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.aclose()  # closes all the same
    assert not store._server.clients._open


async def test_use_after_close_is_a_clear_error() -> None:
    store = repository(server("redis").url)
    await store.append("c", pair(1), turn_id="t1")
    await store.delete("c")
    await store.aclose()
    await store.aclose()
    for call in (lambda: store.recall("c", 5), store.conversations, lambda: store.append("c", pair(1), turn_id="t")):
        with pytest.raises(StorageError, match=r"closed; make a new `RedisChatMemoryRepository`"):
            await call()


def test_a_private_server_is_found() -> None:
    assert isinstance(server("redis"), PrivateRedis)
