"""A writer of `tests.faults`: a process that appends turns, records each acknowledged one, and may die at any moment."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from advisorchain.errors import ConversationConflictError, LeaseLostError, StorageError
from advisorchain.memory.repository import ChatMemoryRepository, Recall

from ._plan import WINDOW, Plan, PlannedTurn, half_turns

_LEASE: Final = 2.0  # seconds; for so long a killed holder keeps the others waiting


class Acknowledged(NamedTuple):
    """A line of a writer's file.

    Attributes:
        revision: what `append` returned.
        fresh: 1 when it was the first try of a turn that no earlier life of this writer can have begun.
        failures, conflicts: tries that ended with StorageError, or with a conflict or a lost lease.
        repeats: appended again on purpose.
        unheard: 1 when an earlier try had stored the turn, whose acknowledgement never came.
        token: the fencing token that it was written with, or 0.
        waited: microseconds from the first failure to the acknowledgement.
    """

    number: int
    revision: int
    fresh: int
    failures: int
    conflicts: int
    repeats: int
    unheard: int
    token: int
    waited: int


def acknowledged(folder: Path, writer: int) -> list[Acknowledged]:
    """What a writer was told, in order."""
    path = told(folder, writer)
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [Acknowledged(*map(int, line.split())) for line in lines]


def seen_faults(folder: Path, writers: int) -> list[str]:
    """What the writers saw when they read, and should not have."""
    paths = [_seen(folder, writer) for writer in range(writers)]
    return [line for path in paths if path.exists() for line in path.read_text().splitlines()]


def told(folder: Path, writer: int) -> Path:
    """The file of what a writer was told."""
    return folder / f"writer{writer}.told"


def _seen(folder: Path, writer: int) -> Path:
    return folder / f"writer{writer}.seen"


def run(
    plan: Plan, writer: int, life: int, folder: Path, repository: Callable[[], ChatMemoryRepository], patience: float
) -> None:
    """A writer's process; every other writer on trio. Ends with status 0 when all its turns are acknowledged."""
    errors = os.open(folder / "writers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 2)
    backend = "trio" if writer % 2 else "asyncio"
    anyio.run(_write, plan, writer, life, folder, repository, patience, backend=backend)


async def _write(
    plan: Plan, writer: int, life: int, folder: Path, repository: Callable[[], ChatMemoryRepository], patience: float
) -> None:
    store = repository()
    await Writer(plan, writer, life, folder, store, patience).run()
    await store.aclose()


class Writer:
    """One life of a writer; it goes on where the file of an earlier life ends.

    Args:
        patience: seconds for which a turn is tried again.
    """

    def __init__(
        self, plan: Plan, writer: int, life: int, folder: Path, store: ChatMemoryRepository, patience: float
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._life = life
        self._store = store
        self._patience = patience
        self._seen = _seen(folder, writer)
        known = acknowledged(folder, writer)
        self._first = len(known)
        self._known: dict[str, int] = {}  # the newest revision that was acknowledged, of each conversation
        for line in known:
            self._known[plan.turn(writer, line.number).conversation_id] = line.revision
        self._told = os.open(told(folder, writer), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def run(self) -> None:
        for number in range(self._first, self._plan.turns):
            turn = self._plan.turn(self._writer, number)
            line = await self._acknowledge(turn, begun=self._life > 0 and number == self._first)
            os.write(self._told, (" ".join(map(str, line)) + "\n").encode())
            self._known[turn.conversation_id] = max(line.revision, self._known.get(turn.conversation_id, 0))

    async def _acknowledge(self, turn: PlannedTurn, *, begun: bool) -> Acknowledged:
        """Try, always with the same turn id, until the store says that it has the turn."""
        failures = conflicts = 0
        started = time.monotonic()
        failed = None
        while True:
            try:
                revision, token, unheard = await self._try(turn)
                repeats = await self._repeat(turn, revision)
                break
            except (ConversationConflictError, LeaseLostError):
                conflicts += 1
            except StorageError:
                if time.monotonic() - started > self._patience:
                    raise
                failures += 1
                failed = failed or time.monotonic()
                await anyio.sleep(random.uniform(0.01, 0.1))
        waited = int((time.monotonic() - failed) * 1e6) if failed else 0
        fresh = not (begun or failures)
        return Acknowledged(turn.number, revision, int(fresh), failures, conflicts, repeats, int(unheard), token, waited)

    async def _try(self, turn: PlannedTurn) -> tuple[int, int, bool]:
        """Read as a prompt would, append; the revision, the fencing token, and whether the turn was there before."""
        token = await self._lease(turn) if turn.manner == "lease" else None
        recall = await self._store.recall(turn.conversation_id, WINDOW)
        self._look(turn, recall)
        revision = await self._store.append(
            turn.conversation_id,
            turn.messages,
            turn_id=turn.turn_id,
            incarnation=recall.incarnation,
            expected=recall.revision if turn.manner == "expected" else None,
            token=token,
        )
        if token is not None:
            with suppress(StorageError):  # it runs out by itself
                await self._store.release(turn.conversation_id, token)
        return revision, token or 0, any(entry.turn_id == turn.turn_id for entry in recall.tail)

    async def _repeat(self, turn: PlannedTurn, revision: int) -> int:
        if not turn.repeated:
            return 0
        again = await self._store.append(turn.conversation_id, turn.messages, turn_id=turn.turn_id)
        if again < revision:
            self._tell(f"stale: {turn.turn_id}, appended again, is at revision {again} after {revision}")
        return 1

    async def _lease(self, turn: PlannedTurn) -> int:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            token = await self._store.acquire(turn.conversation_id, turn.turn_id, _LEASE)
            if token is not None:
                return token
            await anyio.sleep(random.uniform(0.005, 0.02))
        raise TimeoutError(f"no lease for {turn.turn_id} in {self._patience} seconds")

    def _look(self, turn: PlannedTurn, recall: Recall) -> None:
        """What a reader must never see: half a turn, or a log without what this writer was told is there."""
        known = self._known.get(turn.conversation_id, 0)
        if recall.revision < known:
            self._tell(f"stale: {turn.conversation_id} is at revision {recall.revision} after {known}")
        for turn_id in half_turns(self._plan, recall.tail):
            self._tell(f"half: {turn_id} in the tail of {turn.conversation_id} at revision {recall.revision}")

    def _tell(self, fault: str) -> None:
        with self._seen.open("a") as file:
            file.write(fault + "\n")
