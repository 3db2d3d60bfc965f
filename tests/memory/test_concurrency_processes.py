"""Turns of one conversation in several processes over one store, of which some are killed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

import anyio
import pytest

from advisorchain.errors import ConversationConflictError
from advisorchain.memory import (
    ChatMemory,
    ConcurrencyRule,
    Entry,
    Reject,
    Serialize,
    SqliteChatMemoryRepository,
    open_repository,
)
from advisorchain.messages import AssistantMessage, UserMessage

WORKER = Path(__file__).with_name("_turn_worker.py")

# How a store that several processes share is named for one test. A further store is one more entry.
SHARED: dict[str, Callable[[Path], str]] = {"sqlite": lambda folder: f"sqlite:///{folder}/chat.db"}


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return SHARED[request.param](tmp_path)


@contextmanager
def worker(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun; killed at the end."""
    command = [sys.executable, str(WORKER), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() in ("held\n", "ready\n")
            yield process
        finally:
            process.kill()


def take_turns(url: str, rule: str, processes: int, turns: int) -> list[str]:
    """What each turn of all processes came to; they go on at the same time."""
    with ExitStack() as stack:
        started = [stack.enter_context(worker("tools", url, rule, str(turns), f"p{n}")) for n in range(processes)]
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [outcome for process in started for line in process.stdout or () for outcome in line.split()]


async def log(url: str, conversation_id: str = "c") -> list[Entry]:
    async with open_repository(url) as repository:
        return list((await ChatMemory(repository=repository).history(conversation_id, limit=10_000)).items)


def check_whole(entries: list[Entry], turns: int) -> None:
    runs = [list(run) for _, run in groupby(entries, key=lambda entry: entry.turn_id)]
    assert len(runs) == turns
    for run in runs:
        assert [entry.role for entry in run] == ["user", "assistant", "tool", "assistant"]


async def begins(url: str, rule: ConcurrencyRule) -> bool:
    async with open_repository(url) as repository:
        try:
            turn = await ChatMemory(repository=repository, concurrency=rule).begin("c", [UserMessage("hi")])
        except ConversationConflictError:
            return False
        await turn.abandon()
        return True


def test_a_lease_of_a_process_that_was_killed_holds_until_its_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with worker("hold", f"sqlite:///{path}", "serialize") as process:
        assert not anyio.run(begins, f"sqlite:///{path}", Reject())
        process.kill()
        process.wait()
    assert not anyio.run(begins, f"sqlite:///{path}", Serialize(wait=0))

    async def later(seconds: float) -> list[str]:
        repository = SqliteChatMemoryRepository(path, clock=lambda: time.time() + seconds)
        memory = ChatMemory(repository=repository, concurrency=Reject())
        try:
            await (await memory.begin("c", [UserMessage("hi")])).commit([AssistantMessage("hello")])
            return [message.text for message in await memory.get("c")]
        finally:
            await repository.aclose()

    with pytest.raises(ConversationConflictError):
        anyio.run(later, 30)
    assert anyio.run(later, 121) == ["hi", "hello"]


@pytest.mark.slow
def test_who_waits_goes_on_when_the_holder_was_killed(url: str) -> None:
    with worker("hold", url, "short") as process:
        process.kill()
        process.wait()
        assert anyio.run(begins, url, Serialize(wait=60))
    assert anyio.run(log, url) == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["append", "serialize"])
def test_B133_tool_turns_of_several_processes_are_whole_and_one_after_the_other(url: str, rule: str) -> None:
    outcomes = take_turns(url, rule, processes=3, turns=20)
    assert outcomes == ["c"] * 60
    entries = anyio.run(log, url)
    check_whole(entries, 60)
    if rule == "serialize":  # each knew all turns before it
        assert [int(entry.message.text) for entry in entries[3::4]] == list(range(0, 240, 4))


@pytest.mark.slow
def test_B133_one_process_is_told_of_the_conflict_and_writes_nothing(url: str) -> None:
    with worker("hold", url, "reject"):
        assert take_turns(url, "reject", processes=1, turns=2) == ["conflict"] * 2
    assert anyio.run(log, url) == []
    with worker("hold", url, "fork"):
        pass  # killed: its lease stays
    outcomes = take_turns(url, "fork", processes=2, turns=5)
    assert len(set(outcomes)) == 10
    assert all(name.startswith("c~") for name in outcomes)
    for name in outcomes:
        check_whole(anyio.run(log, url, name), 1)


@pytest.mark.slow
def test_B133_under_reject_and_fork_nothing_is_lost(url: str) -> None:
    outcomes = take_turns(url, "reject", processes=3, turns=20)
    assert set(outcomes) <= {"c", "conflict"}
    check_whole(anyio.run(log, url), outcomes.count("c"))
    outcomes = take_turns(url, "fork", processes=3, turns=20)
    assert len(outcomes) == 60
    branches = [name for name in outcomes if name != "c"]
    assert len(set(branches)) == len(branches)
    for name in branches:
        entries = anyio.run(log, url, name)
        check_whole(entries, len(entries) // 4)
        assert int(entries[-1].message.text) == len(entries) - 4  # it lies behind all that it had read


def test_B159_two_stores_on_one_place_lose_nothing(url: str) -> None:
    async def add(name: str) -> None:
        async with open_repository(url) as repository:
            memory = ChatMemory(repository=repository)
            for number in range(100):
                await memory.add("c", UserMessage(f"{name}.{number}"))

    threads = [threading.Thread(target=anyio.run, args=(add, name)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = anyio.run(log, url)
    assert len({entry.sequence for entry in entries}) == 200
    for name in "ab":
        own = [entry.message.text for entry in entries if entry.message.text.startswith(name)]
        assert own == [f"{name}.{number}" for number in range(100)]
