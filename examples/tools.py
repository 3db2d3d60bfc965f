"""Tools: functions that the model may ask to have run, in a stream, with what happens shown as it happens."""

from collections.abc import AsyncGenerator
from typing import Literal

import anyio

from advisorchain import AdvisorChain, ChatChunk, ChatRequest, ToolCallChunk, ToolMessage
from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.memory import ChatMemory
from advisorchain.tools import ToolContext, tool


@tool
async def temperature(city: str, context: ToolContext, unit: Literal["C", "F"] = "C") -> dict[str, str | int]:
    """Tell how warm it is.

    Args:
        city: where.
        unit: of the temperature.
    """
    stations = context.context["stations"]  # the application's own; the model does not see it
    return {"city": city, unit: stations[city]}


async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
    """In place of a real one: asks for a tool, then answers with what it found."""
    assert request.options.tools == (temperature.definition,)
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        yield ChatChunk(f"It is {last.structured['C']} degrees in {last.structured['city']}.")
        return
    yield ChatChunk("Let me look. ")
    call = ToolCallChunk(0, "call_1", "temperature", '{"city": "Porto"}')
    yield ChatChunk(tool_calls=(call,), finish_reason="tool_calls")


async def main() -> None:
    memory = ChatMemory()
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), ToolCallingAdvisor([temperature])])
    context = {"stations": {"Porto": 21}}
    async with chain.stream("How warm is it in Porto?", conversation_id="ada", context=context) as stream:
        async for chunk in stream:
            for call in chunk.tool_calls:
                print(f"[{call.name} {call.arguments}]")
            if chunk.tool_result is not None:
                print(f"[{chunk.tool_result.name}: {chunk.tool_result.text}]")
            if chunk.text:
                print(chunk.text)
    print("stored:", [message.text for message in await memory.get("ada")])
    print("said in all:", [type(message).__name__ for message in stream.response.turn])


anyio.run(main)
