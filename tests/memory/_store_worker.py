"""Uses a SQLite repository in a process of its own: `dump PATH`, `create` (paths on stdin), `fork PATH`, `turns PATH`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anyio

from advisorchain.errors import StorageError
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage, dump_message


async def dump(path: str) -> None:
    repository = SqliteChatMemoryRepository(path)
    for entry in (await repository.page("c", limit=1000)).items:
        print(dump_message(entry.message))
    await repository.aclose()


async def create(path: str) -> None:
    repository = SqliteChatMemoryRepository(path)
    revision = await repository.append(f"process {os.getpid()}", [UserMessage("hi")], turn_id="t")
    await repository.aclose()
    print(revision, flush=True)


def fork(path: str) -> None:
    repository = SqliteChatMemoryRepository(path)
    if os.fork() == 0:
        try:
            anyio.run(repository.recall, "c", 5)
        except StorageError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()


def turn(name: str) -> list[Any]:
    call = ToolCall("k", "look", "{}")
    return [
        UserMessage(f"{name}.0", metadata={"filler": "x" * 300}),
        AssistantMessage(f"{name}.1", tool_calls=(call,)),
        ToolMessage(f"{name}.2", tool_call_id="k"),
        AssistantMessage(f"{name}.3"),
    ]


async def append_turns(path: str, life: str) -> None:
    """Appends until killed; a turn is acknowledged by a line, written at once."""
    repository = SqliteChatMemoryRepository(path)
    number = 0
    while True:
        name = f"{life}.{number}"
        await repository.append("c", turn(name), turn_id=name)
        os.write(1, f"{name}\n".encode())
        number += 1


def turns(path: str) -> None:
    """Forks a process for each line `LIFE` on stdin, which is faster than starting one, and tells its id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        life = line.strip()
        child = os.fork()
        if child == 0:
            anyio.run(append_turns, path, life)
        os.write(1, f"pid {life} {child}\n".encode())


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "dump":
        anyio.run(dump, *arguments)
    elif command == "create":
        for line in sys.stdin:
            anyio.run(create, line.strip())
    elif command == "fork":
        fork(*arguments)
    else:
        turns(*arguments)
