"""One store's run of `tests.faults`: its server and its writers, who dies when, and what came of it."""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Final

import anyio

from advisorchain.memory.repository import ChatMemoryRepository

from . import _writer as writing
from ._check import FAILED, LEFT, SEEN_HALF, SEEN_STALE, Findings, check
from ._plan import Plan
from ._servers import STOPS, PrivateServer
from ._stores import BROKEN, VOLATILE, Store

_FORK = multiprocessing.get_context("fork")  # a writer is there at once, with all modules loaded
_STEP: Final = 0.004  # seconds between two looks at the writers' records


@dataclass
class Figures:
    """What was done in a run, for the table, and what was found."""

    done: dict[str, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


class Run:
    """A store, to be called once.

    Args:
        options: of the command line.
        store: which one.
        folder: for the server's data and the writers' records.
    """

    def __init__(self, options: argparse.Namespace, store: Store, folder: Path) -> None:
        self._options = options
        self._store = store
        self._folder = folder
        self._plan = Plan(options.writers, options.turns, options.conversations, options.seed)
        self._chance = random.Random(options.seed)
        self._writers: dict[int, ForkProcess] = {}
        self._lives: Counter[int] = Counter()
        self._kills: Counter[str] = Counter()
        self._restarts: Counter[str] = Counter()
        self._failed: list[int] = []
        self._down = 0.0  # seconds of the longest time without the server
        self._shown = ""
        self._server = self._new_server()
        file = folder / "chat.db"
        self._url = self._server.url if self._server else f"sqlite:///{file}" if store.module == "sql" else str(file)

    def __call__(self) -> Figures:
        self._store.load()
        try:
            if self._server:
                self._server.start()
            apart(self._prepare)
            started = time.monotonic()
            self._write()
            seconds = time.monotonic() - started
            return self._figures(apart(self._check), seconds)
        finally:
            for process in self._writers.values():
                process.kill()
            if self._server:
                self._server.close()

    def _new_server(self) -> PrivateServer | None:
        if self._store.server is None:
            return None
        data = self._folder / "server"
        data.mkdir()
        return self._store.server(data, volatile=self._options.broken == VOLATILE)

    def _repository(self) -> ChatMemoryRepository:
        made = self._store.open(self._url)
        broken = BROKEN.get(self._options.broken)
        return made if broken is None else broken(made)

    async def _prepare(self) -> None:
        async with aclosing(self._store.open(self._url)) as repository:
            await repository.conversations()  # makes what is not there yet, before writers race for it

    async def _check(self) -> Findings:
        told = [writing.acknowledged(self._folder, writer) for writer in range(self._plan.writers)]
        async with aclosing(self._store.open(self._url)) as repository:
            findings = await check(self._plan, told, repository)
        rows, read = self._store.rows(self._url), (findings.conversations, findings.entries, findings.turns)
        if rows != read:
            findings.add(LEFT, f"there are {rows}, of which the repository shows {read}")
        return findings

    def _write(self) -> None:
        """Until every writer has ended by itself, with the kills and restarts at their moments."""
        events, records = self._events(), Records(self._folder, self._plan.writers)
        for writer in range(self._plan.writers):
            self._begin(writer)
        while self._writers:
            acknowledged = records.count()
            while events and events[0][0] <= acknowledged:
                events.pop(0)[1]()
            self._show(acknowledged)
            self._reap()
            time.sleep(_STEP)

    def _events(self) -> list[tuple[float, Callable[[], None]]]:
        """At how many acknowledged turns a writer is killed or the server restarted: all over the run."""
        total = self._plan.total
        events: list[tuple[float, Callable[[], None]]] = []
        for _ in range(self._options.kills):
            events.append((self._chance.uniform(0.01, 0.97) * total, self._kill))
        count = self._options.restarts if self._server else 0
        hows = ("hard",) if self._options.broken == VOLATILE else STOPS
        for number in range(count):
            moment = (number + 1 + self._chance.uniform(-0.2, 0.2)) / (count + 1) * total
            events.append((moment, partial(self._restart, hows[number % len(hows)])))
        return sorted(events, key=lambda event: event[0])

    def _begin(self, writer: int) -> None:
        given = (self._plan, writer, self._lives[writer], self._folder, self._repository, self._options.patience)
        self._lives[writer] += 1
        self._writers[writer] = _FORK.Process(target=writing.run, args=given, daemon=True)
        self._writers[writer].start()

    def _reap(self) -> None:
        for writer, process in list(self._writers.items()):
            if not process.is_alive():
                del self._writers[writer]
                if process.exitcode:
                    self._failed.append(writer)

    def _kill(self, when: str = "at work") -> None:
        """Some writer, at some moment from now on: not just after an acknowledgement."""
        time.sleep(self._chance.random() * 2 * _STEP)
        living = [writer for writer, process in self._writers.items() if process.is_alive()]
        if not living:
            return
        writer = self._chance.choice(living)
        self._writers[writer].kill()
        self._writers[writer].join()
        if self._writers[writer].exitcode == -signal.SIGKILL:
            self._kills[when] += 1
            self._begin(writer)

    def _restart(self, how: str) -> None:
        assert self._server is not None
        time.sleep(self._chance.random() * 2 * _STEP)
        stopped = time.monotonic()
        self._server.stop(how)
        self._kill("while the server was down")
        time.sleep(self._chance.uniform(0, 0.2))
        self._server.start()
        self._down = max(self._down, time.monotonic() - stopped)
        self._restarts[how] += 1

    def _show(self, acknowledged: int) -> None:
        full = int(30 * acknowledged / self._plan.total)
        done = f"{acknowledged:,} of {self._plan.total:,} turns, {self._kills.total()} kills"
        done += f", {self._restarts.total()} restarts" if self._server else ""
        line = f"\r\033[K{self._store.name:12}[{'#' * full}{'.' * (30 - full)}] {done}"
        if line != self._shown and sys.stderr.isatty():
            sys.stderr.write(line)
            sys.stderr.flush()
            self._shown = line

    def _figures(self, findings: Findings, seconds: float) -> Figures:
        lines = [line for writer in range(self._plan.writers) for line in writing.acknowledged(self._folder, writer)]
        for fault in writing.seen_faults(self._folder, self._plan.writers):
            findings.add(SEEN_HALF if fault.startswith("half") else SEEN_STALE, fault)
        for writer in self._failed:
            findings.add(FAILED, f"writer {writer} gave up; the last lines of all writers' errors follow")
        errors = self._folder / "writers.log"
        if self._failed and errors.exists():
            findings.examples += errors.read_text(errors="replace").splitlines()[-30:]
        done = {
            "turns acknowledged": f"{len(lines):,}",
            "turns stored": f"{findings.turns:,}",
            "entries stored": f"{findings.entries:,}",
            "turns tried again after a failure": f"{sum(line.failures > 0 for line in lines):,}",
            "tries that failed": f"{sum(line.failures for line in lines):,}",
            "turns stored without being acknowledged": f"{sum(line.unheard for line in lines):,}",
            "conflicts and lost leases": f"{sum(line.conflicts for line in lines):,}",
            "turns with a fencing token": f"{sum(line.token > 0 for line in lines):,}",
            "turns appended twice on purpose": f"{sum(line.repeats for line in lines):,}",
            "writers killed": f"{self._kills.total():,}",
            "of these while the server was down": f"{self._kills['while the server was down']:,}",
            "server restarts": " + ".join(f"{count} {how}" for how, count in self._restarts.items()) or "-",
            "longest time without the server, s": f"{self._down:.2f}",
            "longest wait of a turn that failed, s": f"{max((line.waited for line in lines), default=0) / 1e6:.2f}",
            "seconds": f"{seconds:.1f}",
            "turns/s": f"{len(lines) / seconds:,.0f}",
        }
        return Figures(done, findings.counts, findings.examples)


class Records:
    """Counts the lines of the writers' records while they grow."""

    def __init__(self, folder: Path, writers: int) -> None:
        for writer in range(writers):
            writing.told(folder, writer).touch()
        self._files = [writing.told(folder, writer).open("rb") for writer in range(writers)]
        self._counts = [0] * writers

    def count(self) -> int:
        """How many turns are acknowledged by now."""
        for writer, file in enumerate(self._files):
            self._counts[writer] += file.read().count(b"\n")
        return sum(self._counts)


def apart(work: Callable[[], Any]) -> Any:
    """What an async function returns, run in a process of its own: a process that forks writers has no threads."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send, args=(work, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError("preparing or checking the store failed; its error stands above") from None
    finally:
        process.join()


def _send(work: Callable[[], Any], pipe: Connection) -> None:
    pipe.send(anyio.run(work))
