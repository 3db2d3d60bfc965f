"""MCP: the tools of a server, started and ended with the chain. Run with the extra `mcp`.

Here the server is this very file; it may as well be McpToolset("uvx mcp-server-time") or McpToolset("https://…/mcp").
"""

import sys
from collections.abc import AsyncGenerator

import anyio
from mcp.server import MCPServer

from advisorchain import AdvisorChain, ChatChunk, ChatRequest, ToolCallChunk, ToolMessage
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.tools.mcp import McpToolset


def serve() -> None:
    server = MCPServer("harbour", log_level="WARNING")

    @server.tool()
    def tide(place: str) -> dict[str, float | str]:
        """Tell how high the water stands, in metres."""
        return {"place": place, "metres": 1.4}

    server.run()


async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
    """In place of a real one: asks for the server's tool, then answers with what it gave."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        yield ChatChunk(f"The water stands at {last.structured['metres']} metres in {last.structured['place']}.")
        return
    (tool,) = request.options.tools
    call = ToolCallChunk(0, "call_1", tool.name, '{"place": "Porto"}')
    yield ChatChunk(tool_calls=(call,), finish_reason="tool_calls")


async def main() -> None:
    harbour = McpToolset([sys.executable, __file__, "--serve"], name="harbour")
    toolsets = ToolsetAdvisor(harbour.prefixed("harbour_"))
    async with AdvisorChain(model, [toolsets, ToolCallingAdvisor()]) as chain:
        response = await chain.call("How high is the water in Porto?")
    for message in response.turn:
        print(f"{message.role}: {message.text}")


if "--serve" in sys.argv:
    serve()
else:
    anyio.run(main)
