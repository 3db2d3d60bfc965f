"""Tools: functions that a model may ask to have run.

- `@tool` makes one of a function; `ToolContext` is what it may ask of the call that it runs in
- `ToolResult` is what it gave back; `Tool` is what all of them are
- `@toolset`, `Toolset`: tools that change from request to request; `ToolSearch`: many, of which the model finds some
- `McpToolset`: the tools of an MCP server (needs the extra `mcp`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisorchain._lazy import lazy
from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult
from advisorchain.tools.search import ToolSearch
from advisorchain.tools.tool import FunctionTool, Tool, as_tool, checked_tools, tool
from advisorchain.tools.toolset import Toolset, toolset

if TYPE_CHECKING:
    from advisorchain.tools.mcp import McpToolset

__all__ = [
    "FunctionTool",
    "McpToolset",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSearch",
    "Toolset",
    "as_tool",
    "checked_tools",
    "tool",
    "toolset",
]

if not TYPE_CHECKING:  # a type checker shall find a misspelt name
    __getattr__, __dir__ = lazy(__name__, {"McpToolset": "mcp"})
