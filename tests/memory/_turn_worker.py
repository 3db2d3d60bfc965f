"""Turns of conversation `c` in a process of its own: `hold URL RULE`, `tools URL RULE TURNS NAME`."""

from __future__ import annotations

import os
import sys

import anyio

from advisorchain.errors import ConversationConflictError
from advisorchain.memory import Append, ChatMemory, ConcurrencyRule, Fork, Reject, Serialize, Unbounded, open_repository
from advisorchain.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage

RULES: dict[str, ConcurrencyRule] = {
    "append": Append(),
    "serialize": Serialize(),
    "short": Serialize(lease=1.0),
    "reject": Reject(),
    "fork": Fork(),
}


async def hold(url: str, rule: str) -> None:
    """Begins a turn, says so, and never ends it."""
    async with open_repository(url) as repository:
        await ChatMemory(repository=repository, concurrency=RULES[rule]).begin("c", [UserMessage("held")])
        os.write(1, b"held\n")
        await anyio.sleep_forever()


async def tools(url: str, rule: str, turns: str, name: str) -> None:
    """Takes turns with a tool round; each answer tells how many messages were there when its turn began.

    Tells where each turn went, or "conflict".
    """
    async with open_repository(url) as repository:
        memory = ChatMemory(Unbounded(), repository, concurrency=RULES[rule])
        os.write(1, b"ready\n")
        sys.stdin.readline()
        for number in range(int(turns)):
            try:
                turn = await memory.begin("c", [UserMessage(f"{name}.{number}")])
            except ConversationConflictError:
                print("conflict", flush=True)
                continue
            call = AssistantMessage(tool_calls=(ToolCall("k", "look"),))
            seen = str(len(turn.history))
            await turn.commit([call, ToolMessage("seen", tool_call_id="k"), AssistantMessage(seen)])
            print(turn.conversation_id, flush=True)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "hold":
        anyio.run(hold, *arguments)
    else:
        anyio.run(tools, *arguments)
