"""From where a Redis repository may be used, and by which clients."""

from __future__ import annotations

import datetime
import ipaddress
import os
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from coredis import Redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from advisorchain.errors import ConfigurationError, StorageError
from advisorchain.memory.repositories.redis import RedisChatMemoryRepository

from ._kit import pair
from ._redis_servers import PrivateRedis, free_port, private, repository, server, wait_until

pytestmark = pytest.mark.slow  # asks a server


async def works(store: Any) -> None:
    """Stores a turn, finds it, and leaves nothing behind."""
    assert await store.append("c", pair(1), turn_id="t1") == 1
    assert [entry.message for entry in (await store.recall("c", 20)).tail] == pair(1)
    assert [row.conversation_id for row in (await store.conversations()).items] == ["c"]
    assert await store.delete("c")


# --- event loops, threads, processes


async def add(store: Any, name: str, adds: int) -> None:
    for number in range(adds):
        await store.append(name, pair(number), turn_id=f"t{number}")
        assert (await store.recall(name, 20)).count == 2 * number + 2


async def test_threads_and_tasks_write_while_others_read() -> None:
    store = repository(server("redis").url)
    async with anyio.create_task_group() as group:
        for number in range(6):
            backend = "trio" if number % 2 else "asyncio"  # every thread has an event loop of its own
            group.start_soon(to_thread.run_sync, _in_thread(store, f"thread{number}", backend))
            group.start_soon(add, store, f"task{number}", 10)
    rows = (await store.conversations()).items
    assert len(rows) == 12
    assert {row.count for row in rows} == {20}
    for row in rows:
        await store.delete(row.conversation_id)
    await store.aclose()


def _in_thread(store: Any, name: str, backend: str) -> Callable[[], None]:
    return lambda: anyio.run(add, store, name, 10, backend=backend)


def test_one_event_loop_after_the_other_leaves_no_connection() -> None:
    with private() as found:
        store = repository(found.url)
        for number in range(12):
            anyio.run(add, store, f"c{number}", 1, backend="trio" if number % 2 else "asyncio")
            clients = [line for line in found.says(b"CLIENT LIST\r\n").splitlines() if b"cmd=" in line]
            assert len(clients) == 1, clients  # the one that asks
        assert len(store._server.clients._open) == 1  # those that ended are forgotten when a new one comes
        anyio.run(store.aclose)


async def test_closing_closes_the_clients_of_other_event_loops(anyio_backend_name: str) -> None:
    with private() as found:
        store = repository(found.url)
        await store.append("c", pair(1), turn_id="t1")
        go, ready = threading.Event(), threading.Event()
        told: list[str] = []

        async def other() -> None:
            await store.append("c", pair(2), turn_id="t2")
            ready.set()
            await to_thread.run_sync(go.wait)
            try:
                await store.recall("c", 5)
            except StorageError as error:
                told.append(str(error))

        thread = threading.Thread(target=anyio.run, args=(other,))
        thread.start()
        await to_thread.run_sync(ready.wait)
        await store.aclose()
        await to_thread.run_sync(
            wait_until, lambda: len([one for one in found.says(b"CLIENT LIST\r\n").splitlines() if b"cmd=" in one]) == 1
        )
        go.set()
        await to_thread.run_sync(thread.join)
        assert "closed; make a new" in told[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_a_client_of_its_own() -> None:
    url = server("redis").url
    store = repository(url)

    async def both() -> None:
        await store.append("c", pair(1), turn_id="t1")

    anyio.run(both)
    child = os.fork()
    if child == 0:
        try:
            anyio.run(add_one, store)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

    async def check() -> None:
        assert (await store.recall("c", 20)).count == 4
        await store.delete("c")
        await store.aclose()

    anyio.run(check)


async def add_one(store: Any) -> None:
    await store.append("c", pair(2), turn_id="t2")
    await store.aclose()


async def test_a_failing_client_is_replaced(monkeypatch: Any) -> None:
    store = repository(server("redis").url)
    await works(store)
    (opened,) = store._server.clients._open.values()
    opened.end()  # as after an error
    await works(store)
    assert store._server.clients._open.popitem()[1] is not opened
    await store.aclose()


async def test_where_the_client_makes_spans_it_is_asked(monkeypatch: Any) -> None:
    monkeypatch.setenv("COREDIS_OTEL_ENABLED", "true")
    store = repository(server("redis").url)
    await works(store)
    await store.aclose()


# --- clients that are given


async def test_a_client_that_is_given_is_used_and_stays_open() -> None:
    async with Redis.from_url(server("redis").url) as client:
        store: Any = repository(client)
        await works(store)
        with pytest.raises(StorageError, match="belongs to another event loop"):
            await to_thread.run_sync(lambda: anyio.run(store.recall, "c", 5))
        await store.aclose()
        assert await client.ping()
        with pytest.raises(StorageError, match="closed"):
            await store.recall("c", 5)


async def test_a_client_that_is_not_open_is_told() -> None:
    store: Any = repository(Redis.from_url(server("redis").url))
    with pytest.raises(StorageError, match="the client is not open"):
        await store.recall("c", 5)


async def test_a_function_makes_clients(anyio_backend_name: str) -> None:
    made = []

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        async with Redis.from_url(server("redis").url) as client:
            made.append("opened")
            yield client
        made.append("closed")

    store: Any = repository(make)
    await works(store)
    await to_thread.run_sync(lambda: anyio.run(add, store, "d", 1, backend=anyio_backend_name))
    await store.delete("d")
    await store.aclose()
    assert made[:2] == ["opened", "opened"]
    assert made[-1] == "closed"
    assert "make" in repr(store)


async def test_a_function_that_fails_is_a_storage_error() -> None:
    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        raise ValueError("no such secret")
        yield

    store: Any = repository(make)
    with pytest.raises(StorageError, match="cannot be reached") as caught:
        await store.recall("c", 5)
    assert "secret" not in str(caught.value)
    await store.aclose()


def test_a_source_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="decode_responses=False"):
        RedisChatMemoryRepository(Redis(decode_responses=True))
    wrong: Any
    for wrong in (None, 7, b"redis://"):
        with pytest.raises(ConfigurationError, match="`source` is"):
            RedisChatMemoryRepository(wrong)
    for wrong in (0, -1, float("nan"), float("inf"), "5", True):
        with pytest.raises(ConfigurationError, match="`timeout`"):
            RedisChatMemoryRepository("redis://localhost", timeout=wrong)


# --- URLs


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost:6379"),
        ("redis://u:hush@localhost:6380/3", "redis://localhost:6380/3"),
        ("valkey://:hush@[::1]:6380?db=2", "valkey://[::1]:6380"),
        ("rediss://u:hush@localhost", "rediss://localhost:6379"),
        ("unix://u:hush@/run/redis%20.sock?db=1", "unix:///run/redis .sock"),
        ("redis+cluster://u:hush@one:7000,two:7001", "redis+cluster://one:7000,two:7001"),
        ("redis+sentinel://u:hush@one,two:26380/main/2", "redis+sentinel://one:26379,two:26380/main/2"),
    ],
)
def test_what_a_url_shows(url: str, shown: str) -> None:
    store = RedisChatMemoryRepository(url)
    assert repr(store) == f"<RedisChatMemoryRepository {shown} prefix='advisorchain'>"


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost", "redis://", "http://u:hush@localhost", "redis://u:hush@localhost:x", "redis://u:hush@localhost/one",
        "redis://u:hush@localhost/1/2", "redis://u:hush@localhost?hush=hush2", "redis+hush://localhost",
        "redis+cluster://u:hush@one:7000/1", "redis+sentinel://u:hush@one:26379", "redis+sentinel://u:hush@one/main/x",
        "redis://u:hush@localhost?ssl_ca_certs=/nowhere", "valkey+sentinel://u:hush@one/main?ssl_cert_reqs=none",
        "unix://u:hush@/socket?ssl_keyfile=key", "redis://u:hush@localhost:99999", "rediss://u:hush@localhost?ssl_ca_certs=/nowhere",
        "unix://u:hush@",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="`url`") as caught:
        RedisChatMemoryRepository(url)
    assert "hush@" not in "".join(traceback.format_exception_only(caught.value))


async def test_a_database_of_its_own() -> None:
    found = server("redis")
    one, two = (repository(f"redis://127.0.0.1:{found.port}/{number}", prefix="db") for number in (1, 2))
    await one.append("c", pair(1), turn_id="t1")
    assert (await two.conversations()).items == ()
    await works(two)
    await one.delete("c")
    await one.aclose()
    await two.aclose()


async def test_by_a_socket_with_a_password(tmp_path: Path) -> None:
    with private(unixsocket="redis.sock", requirepass="p@ss/word") as found:
        store = repository(f"unix://:p%40ss%2Fword@{found.folder / 'redis.sock'}")
        await works(store)
        await store.aclose()


async def test_by_tls(tmp_path: Path) -> None:
    certificate(tmp_path)
    port = free_port()
    settings = {"tls_port": port, "tls_auth_clients": "no"}
    files = {"tls_cert_file": tmp_path / "cert", "tls_key_file": tmp_path / "key", "tls_ca_cert_file": tmp_path / "cert"}
    with private(**settings, **files):
        store = repository(f"rediss://127.0.0.1:{port}?ssl_ca_certs={tmp_path / 'cert'}")
        await works(store)
        await store.aclose()
        store = repository(f"rediss://127.0.0.1:{port}?ssl_cert_reqs=none")
        await works(store)
        await store.aclose()
        store = repository(f"rediss://127.0.0.1:{port}")
        with pytest.raises(StorageError, match="cannot be reached"):  # who it is cannot be told
            await store.recall("c", 5)
        await store.aclose()


def certificate(folder: Path) -> None:
    """A key, and a certificate that it signed itself for this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "advisorchain tests")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.TraditionalOpenSSL
    (folder / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


@pytest.mark.slow
async def test_sentinels_find_the_primary_after_a_failover() -> None:
    with private(repl_diskless_sync_delay=0) as primary, private(replicaof=f"127.0.0.1 {primary.port}") as replica:
        await to_thread.run_sync(wait_until, lambda: b"master_link_status:up" in replica.says(b"INFO replication\r\n"))
        with sentinel(primary) as watching:
            store = repository(f"redis+sentinel://127.0.0.1:{watching.port}/main/0", timeout=2)
            await store.append("c", pair(1), turn_id="t1")
            await to_thread.run_sync(wait_until, lambda: b"slaves=1" in watching.says(b"INFO sentinel\r\n"))
            await to_thread.run_sync(wait_until, lambda: b"u1" in replica.says(b"ZRANGE " + _log_of(store) + b" 0 -1\r\n"))
            primary.stop(hard=True)
            tries = 0
            while True:
                try:
                    await store.append("c", pair(2), turn_id="t2")
                except StorageError:
                    tries += 1
                    await anyio.sleep(0.2)
                    continue
                break
            assert tries < 200
            assert [entry.message.text for entry in (await store.recall("c", 20)).tail] == ["u1", "a1", "u2", "a2"]
            store_of_nobody = repository(f"redis+sentinel://127.0.0.1:{watching.port}/nobody")
            with pytest.raises(StorageError, match="no primary of that name"):
                await store_of_nobody.recall("c", 5)
            await store_of_nobody.aclose()
            await store.aclose()


def _log_of(store: Any) -> bytes:
    return bytes(store._server.keys("c").log.encode())


@contextmanager
def sentinel(primary: PrivateRedis) -> Iterator[PrivateRedis]:
    """A sentinel that watches a primary as `main`."""
    own = PrivateRedis("redis")
    path = own.folder / "sentinel.conf"
    path.write_text(
        f"port {own.port}\nbind 127.0.0.1\ndir {own.folder}\nsentinel monitor main 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    )
    try:
        yield own.start(str(path), "--sentinel")
    finally:
        own.close()
