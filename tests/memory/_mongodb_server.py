"""A server that speaks MongoDB's protocol, for tests: a real one where there is one, else the stand-in nx-27017.

nx-27017 is no MongoDB: it answers the official driver from a SQLite file. It is what can be had in a wheel. The address of
a real server is taken from ADVISORCHAIN_MONGODB_URL, or one that listens on the standard local port is used.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

DATABASE: Final = "advisorchain_tests"
_PATIENCE: Final = 30.0  # seconds for the server to come up
_STANDARD_PORT: Final = 27017


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(url: str) -> bool:
    client: MongoClient[dict[str, object]] = MongoClient(url, serverSelectionTimeoutMS=1000)
    try:
        client.admin.command("ping")
    except PyMongoError:
        return False
    finally:
        client.close()
    return True


def started(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """The stand-in, on its data in this folder."""
    program = Path(sys.executable).with_name("nx-27017")
    if not program.exists():
        missing("nx-27017 is not installed: pip install nx-27017")
    files = ["--db", str(folder / "mongo.db"), "--pid-file", str(folder / "pid"), "--log-file", str(folder / "log")]
    server = subprocess.Popen(
        [str(program), "--port", str(port), *files],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + _PATIENCE
    while not _listens(port):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            server.wait()
            missing("nx-27017 did not start")
        time.sleep(0.02)
    return server


def stopped(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@contextmanager
def mongodb_url() -> Iterator[str]:
    """The URL of a server; skips the test when there is none."""
    given = os.environ.get("ADVISORCHAIN_MONGODB_URL")
    if given:
        yield given
        return
    if _listens(_STANDARD_PORT) and answers(f"mongodb://127.0.0.1:{_STANDARD_PORT}"):
        yield f"mongodb://127.0.0.1:{_STANDARD_PORT}"
        return
    with tempfile.TemporaryDirectory(prefix="advisorchain-mongodb-") as folder:
        port = free_port()
        server = started(Path(folder), port)
        try:
            yield f"mongodb://127.0.0.1:{port}"
        finally:
            stopped(server)


def missing(reason: str) -> None:
    """Skip, or fail where servers are required."""
    if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _listens(port: int) -> bool:
    with socket.socket() as found:
        found.settimeout(1)
        return found.connect_ex(("127.0.0.1", port)) == 0
