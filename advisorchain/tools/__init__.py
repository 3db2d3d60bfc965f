"""Tools: functions that a model may ask to have run.

- `@tool` makes one of a function; `ToolContext` is what it may ask of the call that it runs in
- `ToolResult` is what it gave back; `Tool` is what all of them are
"""

from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult
from advisorchain.tools.tool import FunctionTool, Tool, as_tool, checked_tools, tool

__all__ = ["FunctionTool", "Tool", "ToolContext", "ToolResult", "as_tool", "checked_tools", "tool"]
