"""Phoenix, MLflow and Prometheus for tests: the real programs, on free ports of this machine, with temporary folders.

They are looked for in the virtual environment that ADVISORCHAIN_VIEWERS names, then on the PATH. A test of one that is
not there is skipped or, with ADVISORCHAIN_REQUIRE_VIEWERS=1, fails. `pip install arize-phoenix mlflow` takes 900 MB, so an
environment of its own is best:

    python3 -m venv .viewers && .viewers/bin/pip install arize-phoenix mlflow && apt-get install prometheus
    ADVISORCHAIN_VIEWERS=.viewers pytest -m slow tests/viewers
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest

_SECONDS_TO_START: Final = 180.0  # they take 8 to 25 s on two idle cores
_SECONDS_TO_END: Final = 10.0
_ALONE: Final = {  # nothing is told to, or asked from, anybody outside
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
}


def command(name: str) -> Path:
    """Where a program is."""
    venv = os.environ.get("ADVISORCHAIN_VIEWERS")
    places = [] if venv is None else [str(Path(venv).absolute() / ("Scripts" if sys.platform == "win32" else "bin"))]
    found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", os.defpath)]))
    if found is not None:
        return Path(found)
    missing = f"`{name}` is not installed: see tests/viewers/_servers.py"
    if os.environ.get("ADVISORCHAIN_REQUIRE_VIEWERS") == "1":
        pytest.fail(missing)
    pytest.skip(missing)


def read(name: str, *arguments: str) -> Any:
    """What a viewer's own client reads, in the viewer's own Python."""
    reader = Path(__file__).with_name(f"_read_{name}.py")
    done = subprocess.run(
        [command(name).with_name("python"), reader, *arguments],
        env={**os.environ, **_ALONE},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """Its URL."""
    port, grpc = free_port(), free_port()
    own = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(folder),
    }
    with _running([command("phoenix"), "serve"], folder, f"http://127.0.0.1:{port}", "/healthz", own) as url:
        yield url


@contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    """Its URL."""
    port = free_port()
    store = f"sqlite:///{folder / 'mlflow.db'}"
    place = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    stores = ["--backend-store-uri", store, "--artifacts-destination", str(folder / "artifacts")]
    arguments = [command("mlflow"), "server", *place, *stores]
    own = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with _running(arguments, folder, f"http://127.0.0.1:{port}", "/health", own) as url:
        yield url


@contextmanager
def prometheus(folder: Path, scraped: str) -> Iterator[str]:
    """Its URL; it asks `scraped`, a host and port, every second."""
    port = free_port()
    config = folder / "prometheus.yml"
    jobs = f"[{{job_name: chains, static_configs: [{{targets: ['{scraped}']}}]}}]"
    config.write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: {jobs}\n", encoding="utf-8")
    place = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    arguments = [command("prometheus"), *place, f"--web.listen-address=127.0.0.1:{port}"]
    with _running(arguments, folder, f"http://127.0.0.1:{port}", "/-/ready", {}) as url:
        yield url


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def _running(arguments: Sequence[object], folder: Path, url: str, health: str, own: Mapping[str, str]) -> Iterator[str]:
    log = folder / "server.log"
    with log.open("wb") as told:
        server = subprocess.Popen(
            [str(argument) for argument in arguments],
            cwd=folder,
            env={**os.environ, **_ALONE, **own},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # they have workers, which end with them
        )
    try:
        _wait_for(url + health, server, log)
        yield url
    finally:
        _end(server)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.25)
    said = log.read_text(encoding="utf-8", errors="replace")[-3000:]
    raise AssertionError(f"no answer at {url}; exit status {server.poll()}:\n{said}")


def _end(server: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, sent)
        except ProcessLookupError:
            break
        try:
            server.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            continue
    server.wait()
