"""Toolsets: tools that are asked for anew for each request.

    @toolset
    def for_user(request: ChatRequest) -> list[Tool]:
        return [search, order] if request.context["user"].may_order else [search]

    chain = AdvisorChain(model, [ToolsetAdvisor(for_user), ToolCallingAdvisor()])

`ToolsetAdvisor` gives the tools to the loop for that turn. `prefixed` and `filtered` make other sets of one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from advisorchain.errors import AdvisorContractError, ConfigurationError, dropped, kind_of
from advisorchain.exchange import ChatRequest
from advisorchain.tools.base import Tool
from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult
from advisorchain.tools.tool import checked_tools

__all__ = ["FunctionToolset", "OpensToolsets", "ToolsOf", "Toolset", "toolset"]

ToolsOf: TypeAlias = Callable[[ChatRequest], Iterable[Any] | Awaitable[Iterable[Any]]]
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


class Toolset(ABC):
    """Tools for a request. One object serves all requests, also at the same time.

    What it has to open, such as a connection, it opens in `__aenter__`; the chain that it is in does that. One that is given
    for single calls is its giver's to open, around these calls.
    """

    @abstractmethod
    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        """The tools that may be run in the turn that answers this request, each name once."""

    def prefixed(self, prefix: str) -> Toolset:
        """The same tools with a prefix before their names, so that two sets with equal names can stand side by side.

        Args:
            prefix: 1 to 32 letters A-Z and a-z, digits, `_` and `-`, such as "files_". With it no name may be longer than
                64 characters, or the request fails with a ConfigurationError.
        """
        return _Prefixed(self, prefix)

    def filtered(self, keep: Callable[[Tool, ChatRequest], bool]) -> Toolset:
        """Those of the tools for which `keep` returns True. A tool that is left out cannot be run either."""
        return _Filtered(self, keep)

    async def __aenter__(self) -> Self:
        """Open what it needs."""
        return self

    async def __aexit__(  # noqa: B027
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""


class FunctionToolset(Toolset):
    """A toolset made of a function, by `@toolset`.

    Attributes:
        function: what is asked.
    """

    def __init__(self, function: ToolsOf) -> None:
        if not callable(function) or isinstance(function, type | Tool):
            raise ConfigurationError(f"a toolset is made of a function of the request, not of {kind_of(function)}")
        self.function: Final = function

    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        """What the function returns for this request; functions among it as tools."""
        found = self.function(request)
        if isawaitable(found):
            found = await found
        if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
            name = getattr(self.function, "__name__", type(self.function).__name__)
            raise AdvisorContractError(f"toolset `{name}` returned {dropped(found)}; return a list of functions and tools")
        return checked_tools(found)


def toolset(function: ToolsOf) -> FunctionToolset:
    """Make a toolset of a function of the request, async or not, that returns functions and tools.

    Raises:
        ConfigurationError: no function.
    """
    return FunctionToolset(function)


class OpensToolsets:
    """What opens and closes toolsets together. It keeps nothing of that: it may be open several times, in any tasks.

    Attributes:
        toolsets: those.
    """

    toolsets: tuple[Toolset, ...]

    async def __aenter__(self) -> Self:
        """Open the toolsets."""
        async with AsyncExitStack() as stack:
            for each in self.toolsets:
                await stack.enter_async_context(each)
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close them."""
        stack = AsyncExitStack()
        for each in self.toolsets:
            stack.push_async_exit(each)
        await stack.__aexit__(kind, error, traceback)


class _Wrapping(OpensToolsets, Toolset):
    """A toolset that shows another one."""

    def __init__(self, inner: Toolset) -> None:
        self.toolsets = (inner,)
        self._inner = inner


class _Prefixed(_Wrapping):
    def __init__(self, inner: Toolset, prefix: object) -> None:
        super().__init__(inner)
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise ConfigurationError("`prefix` is to be a text of 1 to 32 of A-Z a-z 0-9 _ -")
        self._prefix = prefix

    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        return [_Renamed(tool, self._prefix + tool.name) for tool in await self._inner.tools_for(request)]


class _Filtered(_Wrapping):
    def __init__(self, inner: Toolset, keep: Callable[[Tool, ChatRequest], bool]) -> None:
        super().__init__(inner)
        if not callable(keep):
            raise ConfigurationError(f"`keep` is {kind_of(keep)}; give a function of the tool and the request")
        self._keep = keep

    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        return [tool for tool in await self._inner.tools_for(request) if self._kept(tool, request)]

    def _kept(self, tool: Tool, request: ChatRequest) -> bool:
        kept = self._keep(tool, request)
        if not isinstance(kept, bool):  # a coroutine would be true, whatever it was to say
            raise AdvisorContractError(f"`keep` returned {dropped(kept)} for tool `{tool.name}`; return a bool")
        return kept


class _Renamed(Tool):
    """A tool by another name."""

    def __init__(self, tool: Tool, name: str) -> None:
        super().__init__(
            replace(tool.definition, name=name),
            sequential=tool.sequential,
            timeout=tool.timeout,
            return_direct=tool.return_direct,
            needs_approval=tool.needs_approval,
        )
        self._tool = tool

    def values(self, arguments: str) -> Mapping[str, Any]:
        return self._tool.values(arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        return await self._tool.run(arguments, context)
