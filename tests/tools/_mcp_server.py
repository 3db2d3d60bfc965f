"""An MCP server for the tests: in this process, over stdio (`python _mcp_server.py`), or over HTTP (`… PORT`)."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError


def make_server() -> MCPServer:
    server = MCPServer("house", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def sizes() -> dict[str, int]:
        """Tell sizes."""
        return {"b": 2}

    @server.tool(name="files.read/all")
    def read() -> str:
        """Read."""
        return "read"

    @server.tool(name="files_read.all")
    def read_too() -> str:
        """Read otherwise."""
        return "read otherwise"

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("the shelf is empty")

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        """Show."""
        return ["a picture:", Image(data=b"\x89PNG", format="png")]

    @server.tool()
    async def hang() -> str:
        """Never end."""
        await anyio.sleep_forever()

    @server.tool()
    def die() -> str:
        """End the server as `kill -9` does."""
        os.kill(os.getpid(), signal.SIGKILL)
        return "still there"

    @server.tool()
    async def grow(context: Context) -> str:
        """Get one more tool."""

        def extra() -> str:
            """One more."""
            return "extra"

        server.add_tool(extra)
        await context.notify_tools_changed()
        return "grown"

    return server


if __name__ == "__main__":
    if len(sys.argv) > 1:
        make_server().run("streamable-http", port=int(sys.argv[1]))
    else:
        make_server().run()
