"""What the tests of the tool loop share: answers that ask for tools, tools that write down their runs, the handed cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatResponse
from advisorchain.messages import AssistantMessage, ToolCall, ToolMessage, Usage
from advisorchain.testing import ScriptedModel
from advisorchain.tools import Tool, tool

_CASES = json.loads((Path(__file__).parent.parent / "cases" / "tool_loop.json").read_text(encoding="utf-8"))
CASES: dict[str, Any] = {case["id"]: case for case in _CASES}


def asks(*calls: tuple[str, ...] | str, text: str = "", usage: Usage | None = None) -> ChatResponse:
    """An answer that asks for tools: (id, name, arguments), or a name alone."""
    made = [
        ToolCall(f"k{place}", call) if isinstance(call, str) else ToolCall(*call)
        for place, call in enumerate(calls, start=1)
    ]
    return ChatResponse(AssistantMessage(text, tool_calls=tuple(made)), "tool_calls", usage)


def scripted(data: Sequence[Any]) -> list[ChatResponse]:
    """The `model_script` of a case."""
    script = []
    for item in data:
        message = item.get("msg", item)
        calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in message.get("tool_calls", ()))
        usage = Usage(*item["usage"]) if "usage" in item else None
        answer = AssistantMessage(message["text"], tool_calls=calls)
        script.append(ChatResponse(answer, "tool_calls" if calls else "stop", usage))
    return script


class Runs:
    """Tools that write down that they ran.

    Attributes:
        names: of the tools that ran, in the order in which they began.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def giving(self, name: str, result: Any = "ok", **settings: Any) -> Tool:
        """A tool without arguments that gives this, raises this, or does this."""

        async def run() -> Any:
            self.names.append(name)
            if isinstance(result, Exception):
                raise result
            return await result() if callable(result) else result

        run.__annotations__ = {}
        made: Tool = tool(run, name=name, description=f"Gives {name}.", **settings)
        return made

    def several(self, *names: str, **settings: Any) -> list[Tool]:
        return [self.giving(name, **settings) for name in names]


def looping(tools: Sequence[Any], *script: Any, advisors: Sequence[Any] = (), **settings: Any) -> tuple[Any, ScriptedModel]:
    """A chain with a loop, and its model."""
    model = ScriptedModel(*script)
    return AdvisorChain(model, [ToolCallingAdvisor(tools, **settings), *advisors]), model


def results_of(response: ChatResponse) -> list[ToolMessage]:
    """What the tools of a turn gave back."""
    return [message for message in response.earlier if isinstance(message, ToolMessage)]


def endless(name: str) -> Callable[[Any], ChatResponse]:
    """A model's reply that always asks for a tool, each time by another id."""
    return lambda request: asks((f"k{request.round}", name, "{}"))
