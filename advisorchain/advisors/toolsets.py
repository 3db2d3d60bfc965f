"""Tools that change from request to request, or come from a server, for the tool loop."""

from __future__ import annotations

from typing import Final

from advisorchain.advisor import BaseAdvisor
from advisorchain.advisors._orders import TOOLSETS_ORDER
from advisorchain.advisors._tool_loop.offer import offered
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import ChatRequest
from advisorchain.tools.base import Tool
from advisorchain.tools.search import SearchTool
from advisorchain.tools.toolset import OpensToolsets, Toolset

__all__ = ["ToolsetAdvisor"]


class ToolsetAdvisor(OpensToolsets, BaseAdvisor):
    """Asks toolsets for their tools at the beginning of each turn, and gives these to the tool loop for that turn.

    `async with chain` opens the toolsets, and leaving closes them. One that was open already stays so. One that is given for
    a single call (`advisors=` or `tools=` of a call) is opened by nobody: put `async with toolset` around such calls.

    Args:
        toolsets: what `@toolset` made of functions, `McpToolset`, `ToolSearch`, or others.
        loop: the name of the ToolCallingAdvisor, which has to stand further in.
        name: unique in the chain.
        order: inside memory, and outside the cache by default, which so tells answers of other tools apart.

    Raises:
        ConfigurationError: something that is no toolset. When a request comes: two tools of one name.
    """

    def __init__(self, *toolsets: Toolset, loop: str = "tools", name: str = "toolsets", order: int = TOOLSETS_ORDER) -> None:
        for each in toolsets:
            if not isinstance(each, Toolset):
                raise ConfigurationError(
                    f"`toolsets` has {kind_of(each)}; give toolsets, such as `@toolset` makes of functions"
                )
        self.toolsets = toolsets
        self.name = name
        self.order = order
        self._loop = loop
        self.offers_tools: Final = loop  # it must stand further in, and so must a cache: else its key lacks these tools

    async def before(self, request: ChatRequest) -> ChatRequest:
        """Offer the tools that there are for this request."""
        tools: list[Tool] = []
        for each in self.toolsets:
            tools += await each.tools_for(request)
        narrowing = [tool.narrowed for tool in tools if isinstance(tool, SearchTool)]
        return offered(request, tools, loop=self._loop, narrowing=narrowing)
