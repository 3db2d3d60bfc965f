"""What the tests made from reports share: a tool loop written by hand, one way to ask in both modes, their data."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, TypeAlias

from advisorchain.advisor import TOOL_CALLING_ORDER, AroundAdvisor, Next, StreamItem
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ToolArgumentsError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage

Mode: TypeAlias = Literal["call", "stream"]
MODES: tuple[Mode, ...] = ("call", "stream")

_REPORTS = json.loads((Path(__file__).parent / "cases" / "reports.json").read_text(encoding="utf-8"))


def given(case_id: str) -> Any:
    """The `input` of a report."""
    return next(case["input"] for case in _REPORTS if case["id"] == case_id)


class HandLoop(AroundAdvisor):
    """As small a tool loop as there can be: rounds until no tool is asked for, tools one after the other."""

    name = "loop"
    order = TOOL_CALLING_ORDER

    def __init__(self, **tools: Callable[..., str]) -> None:
        self.tools = tools
        self.ran: list[ToolCall] = []

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        earlier: tuple[AssistantMessage | ToolMessage, ...] = ()
        usage: Usage | None = None
        request = request.replace(round=1)
        while True:
            async with aclosing(next(request)) as items:
                async for item in items:
                    if isinstance(item, ChatResponse):
                        response = item
                    else:
                        yield item
            usage = usage + response.usage if usage and response.usage else usage or response.usage
            if not response.message.tool_calls:
                yield response.replace(earlier=earlier, usage=usage)
                return
            results = [self._run(call) for call in response.message.tool_calls]
            for result in results:
                yield ChatChunk(tool_result=result)
            yield ChatChunk(boundary="round")
            earlier = (*earlier, response.message, *results)
            request = request.replace(
                messages=(*request.messages, response.message, *results),
                made=len(earlier),
                round=request.round + 1,
                context=response.context,
            )

    def _run(self, call: ToolCall) -> ToolMessage:
        self.ran.append(call)
        try:
            return ToolMessage(self.tools[call.name](**call.parsed()), tool_call_id=call.id, name=call.name)
        except ToolArgumentsError as error:
            return ToolMessage(str(error), tool_call_id=call.id, name=call.name, is_error=True)


async def ask(mode: Mode, chain: AdvisorChain, prompt: Any, *seen: list[ChatChunk], **more: Any) -> ChatResponse:
    """The response, in either mode; a stream's chunks go to `seen`."""
    if mode == "call":
        return await chain.call(prompt, **more)
    async with chain.stream(prompt, **more) as stream:
        async for chunk in stream:
            for chunks in seen:
                chunks.append(chunk)
    return stream.response


def asking(*calls: tuple[str, str, str], text: str = "") -> list[Any]:
    """An answer that asks for tools (id, name, arguments), as a list of pieces."""
    pieces = tuple(ToolCallChunk(place, *call) for place, call in enumerate(calls))
    return [*([text] if text else []), ChatChunk(tool_calls=pieces), ChatChunk(finish_reason="tool_calls")]


def chunks_given(data: Sequence[Any]) -> list[Any]:
    """The chunks of a report."""
    from .cases._reading import chunks_of

    return chunks_of(data)


async def stored(memory: ChatMemory, conversation_id: str = "c") -> list[Message]:
    """The whole log."""
    page = await memory.history(conversation_id, limit=1000)
    assert page.next is None
    return [entry.message for entry in page.items]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]
