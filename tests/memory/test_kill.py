"""Processes that append turns to one SQLite file and are killed with SIGKILL at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import IO

import anyio
import pytest

from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Entry

WORKER = Path(__file__).with_name("_store_worker.py")
WORKERS = 4


@pytest.mark.parametrize("kills", [pytest.param(12, id="short"), pytest.param(200, id="long", marks=pytest.mark.slow)])
def test_B133_no_acknowledged_turn_is_lost_and_none_is_half(kills: int, tmp_path: Path) -> None:
    path, chance = tmp_path / "chat.db", random.Random(kills)
    acknowledged = _killed_again_and_again(path, kills, chance)
    entries = anyio.run(_stored, path)
    turns = {turn_id: list(run) for turn_id, run in groupby(entries, key=lambda entry: entry.turn_id)}
    print(f"{kills} kills, {len(acknowledged)} turns acknowledged, {len(turns)} stored, {len(entries)} entries")
    assert len(acknowledged) > kills
    assert sum(len(run) for run in turns.values()) == len(entries)  # no turn is in two pieces
    for turn_id, run in turns.items():
        assert [entry.message.text for entry in run] == [f"{turn_id}.{part}" for part in range(4)]
    assert set(acknowledged) <= set(turns)
    lives: dict[str, list[int]] = {}
    for turn_id in turns:
        life, number = turn_id.rsplit(".", 1)
        lives.setdefault(life, []).append(int(number))
    for life, numbers in lives.items():
        assert numbers == list(range(len(numbers)))  # in order, without a gap
        told = sum(name.startswith(f"{life}.") for name in acknowledged)
        assert len(numbers) - told in (0, 1)  # at most the one that was under way


async def _stored(path: Path) -> tuple[Entry, ...]:
    repository = SqliteChatMemoryRepository(path)
    entries = (await repository.page("c", limit=10_000_000)).items
    recall = await repository.recall("c", 1)
    check = await repository._file.run("BEGIN", lambda db: db.execute("PRAGMA integrity_check").fetchone()[0])
    await repository.aclose()
    assert check == "ok"
    assert recall.count == len(entries)
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    return entries


def _killed_again_and_again(path: Path, kills: int, chance: random.Random) -> list[str]:
    """The turns that were acknowledged; `kills` processes were killed and replaced while the others went on."""
    acknowledged: list[str] = []
    pids: dict[str, int] = {}
    with subprocess.Popen([sys.executable, WORKER, "turns", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            for number in range(WORKERS):
                _start(parent.stdin, f"life{number}")
            for number in range(WORKERS, WORKERS + kills):
                _read(parent.stdout, acknowledged, pids, chance.randrange(2, 30))
                time.sleep(chance.random() / 500)  # any moment will do, not just the one after an acknowledgement
                _kill(pids, chance.choice(list(pids)))
                _start(parent.stdin, f"life{number}")
        finally:
            parent.stdin.close()
            parent.wait()  # it has told all ids
            for line in _rest(parent.stdout, pids):
                acknowledged.append(line)
    return acknowledged


def _start(stdin: IO[bytes], life: str) -> None:
    stdin.write(f"{life}\n".encode())
    stdin.flush()


def _kill(pids: dict[str, int], life: str) -> None:
    os.kill(pids.pop(life), signal.SIGKILL)


def _read(stdout: IO[bytes], acknowledged: list[str], pids: dict[str, int], most: int) -> None:
    while most > 0 or not pids:
        line = stdout.readline().decode().strip()
        if line.startswith("pid "):
            _, life, pid = line.split()
            pids[life] = int(pid)
        else:
            acknowledged.append(line)
            most -= 1


def _rest(stdout: IO[bytes], pids: dict[str, int]) -> list[str]:
    """Kill who is left, then read until the last writer has gone."""
    lines: list[str] = []
    while True:
        for life in list(pids):
            _kill(pids, life)
        line = stdout.readline().decode().strip()
        if not line:
            return lines
        if line.startswith("pid "):
            _, life, pid = line.split()
            pids[life] = int(pid)
        else:
            lines.append(line)
