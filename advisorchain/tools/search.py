"""Tool search: of many tools the model is told only of those that it has searched for.

    many = ToolSearch([McpToolset("npx server-of-200-tools"), *others])
    chain = AdvisorChain(model, [ToolsetAdvisor(many), ToolCallingAdvisor([now])])

At first the model sees `now` and the search tool. What a search finds it sees from the next round on. The search tool's
results in the prompt tell what was found, so a turn that was paused goes on in another process as if nothing had been, and
a memory with `remember="turn"` keeps found tools at hand from turn to turn.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from advisorchain.errors import ConfigurationError, ToolArgumentsError
from advisorchain.exchange import ChatRequest
from advisorchain.messages import Message, ToolMessage
from advisorchain.options import ToolDefinition
from advisorchain.tools._tool_index import ToolIndex
from advisorchain.tools.base import Tool, arguments_in, check_name
from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult, result_of
from advisorchain.tools.tool import checked_tools
from advisorchain.tools.toolset import FunctionToolset, OpensToolsets, Toolset

__all__ = ["SearchTool", "ToolSearch"]

_INDEXES: Final = 8  # kept, for sets that change from request to request and back
_TOLD: Final = (
    "Search for tools. There are {count} more than you see now. The result names those that fit best, and from then on you "
    "can call them. When nothing fits, search again with other words."
)
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "words that say what the tool shall do, or words of its name"}
    },
    "required": ["query"],
    "additionalProperties": False,
}


class ToolSearch(OpensToolsets, Toolset):
    """A search tool before many tools. All of them can be run; the model is told of those that it has found.

    The words of names, descriptions and arguments are searched, ranked by BM25. The index is made anew when the set has
    changed, not for each request. Tools that the model shall always see are given to the loop, not here.

    Args:
        tools: functions, tools and toolsets; the toolsets are opened and closed with this one.
        limit: how many tools one search finds.
        accumulate: whether everything that was found stays in sight; False: only what the searches of the last answer that
            searched have found, which keeps prompts short.
        name: what the model calls the search tool.

    Raises:
        ConfigurationError: an argument that cannot work, or two tools of one name.
    """

    def __init__(self, tools: Iterable[Any], *, limit: int = 5, accumulate: bool = True, name: str = "search_tools") -> None:
        given = list(tools)
        self.toolsets = tuple(each for each in given if isinstance(each, Toolset))
        self.tools: Final = checked_tools([each for each in given if not isinstance(each, Toolset)])
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ConfigurationError("`limit` is to be a number of tools, 1 or more")
        self.name: Final = check_name(name)
        self._limit = limit
        self._accumulate = accumulate
        self._indexes: deque[tuple[tuple[ToolDefinition, ...], ToolIndex]] = deque(maxlen=_INDEXES)

    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        """The search tool, and all others."""
        found = list(self.tools)
        for each in self.toolsets:
            found += await each.tools_for(request)
        tools = checked_tools(found)
        if not tools:
            return ()
        index = self._index(tuple(tool.definition for tool in tools))
        return (SearchTool(self.name, index, self._limit, self._accumulate), *tools)

    def _index(self, definitions: tuple[ToolDefinition, ...]) -> ToolIndex:
        for known, index in tuple(self._indexes):
            if known == definitions:  # quick: most often the very same objects
                return index
        index = ToolIndex(definitions)
        self._indexes.append((definitions, index))
        return index

    def prefixed(self, prefix: str) -> NoReturn:
        """Not to be had: the search tool has to stay what it is."""
        raise ConfigurationError("a ToolSearch takes no prefix; give prefixes to the toolsets in it, and it a `name`")

    def filtered(self, keep: Callable[[Tool, ChatRequest], bool]) -> ToolSearch:
        """A search of those of the tools for which `keep` returns True; it is not asked about the search tool itself."""
        sets = [each.filtered(keep) for each in (FunctionToolset(lambda request: self.tools), *self.toolsets)]
        return ToolSearch(sets, limit=self._limit, accumulate=self._accumulate, name=self.name)


class SearchTool(Tool):
    """What the model searches with, in one turn. Made by `ToolSearch`."""

    def __init__(self, name: str, index: ToolIndex, limit: int, accumulate: bool) -> None:
        super().__init__(ToolDefinition(name, _TOLD.format(count=len(index.names)), _SCHEMA))
        self._index = index
        self._limit = limit
        self._accumulate = accumulate

    def values(self, arguments: str) -> Mapping[str, Any]:
        """The query."""
        values = arguments_in(arguments, self.name)
        if not isinstance(values.get("query"), str):
            raise ToolArgumentsError(f"`{self.name}` needs a text as `query`")
        return values

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """Search."""
        return result_of(self.name, self._index.find(self.values(arguments)["query"], self._limit))

    def narrowed(self, request: ChatRequest) -> ChatRequest:
        """The request that tells of no searchable tool but those that were found."""
        options = request.options
        shown = self._found(request.messages) | {options.tool_choice}
        hidden = frozenset(self._index.names) - shown
        tools = tuple(tool for tool in options.tools if tool.name not in hidden)
        return request.replace(options=replace(options, tools=tools))

    def _found(self, messages: Sequence[Message]) -> set[str | None]:
        rounds: list[set[str | None]] = [set()]
        before: Message | None = None
        for message in messages:
            if isinstance(message, ToolMessage) and message.name == self.name and not message.is_error:
                if not (self._accumulate or isinstance(before, ToolMessage)):
                    rounds.append(set())
                rounds[-1].update(_names_in(message.text))
            before = message
        return rounds[-1]


def _names_in(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except ValueError:  # somebody has changed it
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
