"""The example with two servers behind one balancer, over a real PostgreSQL."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

pytestmark = pytest.mark.slow  # starts two servers

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "two_servers.py"


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of an empty PostgreSQL database, on the server that ADVISORCHAIN_POSTGRESQL_URL names or on the local one."""
    psycopg = pytest.importorskip("psycopg")
    base = os.environ.get("ADVISORCHAIN_POSTGRESQL_URL", "postgresql://postgres@127.0.0.1:5432/postgres")
    name = f"advisorchain_{uuid4().hex[:12]}"
    try:
        server = psycopg.connect(base, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError:
        if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip("no PostgreSQL answers; start one, or set ADVISORCHAIN_POSTGRESQL_URL")
    with server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{base.rpartition('/')[0]}/{name}"
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "ADVISORCHAIN_MEMORY"}
    command = [sys.executable, "-W", "error", str(EXAMPLE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**kept, **settings})


def test_the_second_server_knows_what_the_first_was_told(database: str) -> None:
    for ran in (run(database), run(ADVISORCHAIN_MEMORY=database)):
        assert (ran.returncode, ran.stderr) == (0, "")
        first, second = re.findall(r"^process (\d+) knows: (.*)$", ran.stdout, re.MULTILINE)
        assert (first[1], second[1]) == ("My name is Ada.", "My name is Ada. What is my name?")
        assert first[0] != second[0]


def test_without_a_database_it_says_what_to_give() -> None:
    ran = run()
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "give the URL of a database that both servers reach: postgresql://USER:PASSWORD@HOST/DATABASE\n"
    ran = run("postgresql://me:hunter2@127.0.0.1:1/x")
    assert (ran.returncode, ran.stdout) == (1, "")
    why = next(line for line in ran.stderr.splitlines() if line.startswith("advisorchain: "))
    assert "`postgresql+psycopg://me:***@127.0.0.1:1/x` cannot be reached" in why
    assert "a server gave no answer, or did not start" in ran.stderr.splitlines()
    assert "hunter2" not in ran.stderr


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("memory://", "that both servers reach"),
        ("nosuch://x", "unknown scheme"),
        ("postgresql://me:hu@nter2@x/y", "an `@` too"),
    ],
)
def test_a_url_that_cannot_serve_two_is_told(url: str, told: str) -> None:
    ran = run(url)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "nter2" not in ran.stderr


def test_ctrl_c_while_the_servers_start_ends_them() -> None:
    command = [sys.executable, str(EXAMPLE), "redis://127.0.0.1:1/0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as started:
        deadline = time.monotonic() + 60
        while len(found := children(started.pid)) < 2:
            if time.monotonic() > deadline:
                os.killpg(started.pid, signal.SIGKILL)
                pytest.fail("the servers were not started")
            time.sleep(0.01)
        os.killpg(started.pid, signal.SIGINT)
        _, told = started.communicate(timeout=60)
    assert (started.returncode, told) == (0, "")
    assert not any(Path(f"/proc/{child}").exists() for child in found)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]
