"""The tools of an MCP server as a toolset (extra `mcp`).

    clock = McpToolset("uvx mcp-server-time")
    chain = AdvisorChain(model, [ToolsetAdvisor(clock.prefixed("clock_")), ToolCallingAdvisor()])
    async with chain:
        await chain.call("What time is it in Porto?")

A server is started, or reached, when the chain is opened, and its tools are asked for anew in each turn.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import PurePath
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from anyio import fail_after, get_current_task

from advisorchain._checked import checked_seconds
from advisorchain.errors import ConfigurationError, MissingExtraError, ToolError, kind_of
from advisorchain.exchange import ChatRequest
from advisorchain.options import ToolDefinition
from advisorchain.tools.base import Approval, Tool, arguments_in
from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult
from advisorchain.tools.toolset import Toolset

try:
    from httpx2 import AsyncClient, Timeout
    from mcp import Client, StdioServerParameters
    from mcp.client.session import MessageHandlerFnT
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import Tool as ServerTool
except ImportError as error:
    raise MissingExtraError('MCP servers need the package mcp: pip install "advisorchain[mcp]"') from error

from advisorchain.tools._mcp_connection import reason_of
from advisorchain.tools._mcp_content import definition_of, names_of, result_from
from advisorchain.tools._mcp_opening import Opening, opened_around

__all__ = ["McpTool", "McpToolset"]

_HTTP_TIMEOUT: Final = Timeout(30.0, read=300.0)  # the SDK's own: a server may keep an answer open for long


class McpToolset(Toolset):
    """The tools of one MCP server.

    The chain that it is in opens and closes it, so `async with chain`; or open it yourself, around the chain: `async with
    toolset`. A process is started when it is opened, and ended when it is closed. Several tasks may have it open at the same
    time, such as one for each request: each has a process or connection of its own then, unless it runs inside an `async
    with` of another, whose one it shares. While it is open its tools are read again whenever the server says that they have
    changed, and for each turn where the server does not say so.

    A server that dies costs no turn: the model is told what has happened, by the result of the call. The next call starts or
    reaches the server anew; a call that was under way is not made again, since nobody knows what it has done. What fails is
    a `ToolError` where the loop does not tell the model, but raises.

    Results keep images, sound and files as parts; links are told as text; what a tool gives for programs is `structured`.
    Characters in names that providers refuse become `_`. The server checks the arguments.

    Args:
        server: a command, as one text ("uvx mcp-server-time") or as words; the URL of a server with streamable HTTP; or
            what `mcp.Client` takes, such as an `MCPServer` of this process.
        name: what errors call it; by default the command's file or the URL's host.
        env: of the process, beside the few variables that the SDK hands on (PATH, HOME, …).
        cwd: the process's folder.
        headers: sent with each HTTP request, such as an authorization.
        timeout: seconds that a call may take; None: what the tool loop allows.
        start_timeout: seconds to start or reach the server and read its tools. A first `uvx` or `npx` may download.
        needs_approval: as of `@tool`, for each of its tools; a function knows the tool by `context.tool_name`.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PurePath | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        start_timeout: float = 30.0,
        needs_approval: Approval = False,
    ) -> None:
        found, self._server = _server_of(server, env, cwd)
        if headers is not None and not isinstance(self._server, str):
            raise ConfigurationError("`headers` are for servers that are given by a URL")
        self.name: Final = name or found
        self._headers = dict(headers or {})
        self._settings: Final[dict[str, Any]] = {"timeout": timeout, "needs_approval": needs_approval}
        McpTool(self, "any", ToolDefinition("any"), **self._settings)  # so that bad ones are refused here
        self._start_timeout = checked_seconds("start_timeout", start_timeout)
        self._openings: Final[dict[int, Opening]] = {}  # by the task that leaves them again

    # -- opening and closing

    async def __aenter__(self) -> Self:
        """Start or reach the server, unless it is open around this task already.

        Raises:
            ToolError: it cannot be started or reached.
        """
        task = get_current_task().id
        if (mine := self._openings.get(task)) is None:
            around = self._around()
            async with AsyncExitStack() as stack:
                mine = await stack.enter_async_context(Opening(self.name, self._client, self._start_timeout))
                if around is None:
                    await self._read(mine)
                stack.pop_all()
            self._openings[task] = mine
        mine.depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End or leave the server, where it was started or reached for this task.

        Raises:
            ConfigurationError: another task has opened it.
        """
        task = get_current_task().id
        if (mine := self._openings.get(task)) is None:
            raise ConfigurationError(f"MCP server `{self.name}` is to be left by the task that has opened it: `async with`")
        mine.depth -= 1
        if mine.depth == 0:
            del self._openings[task]
            await mine.__aexit__(kind, error, traceback)

    def _around(self) -> Opening | None:
        """The outermost opening around the task that runs, which so keeps its connection as long as the task needs it."""
        return next((each for each in opened_around() if each in self._openings.values()), None)

    def _opening(self) -> Opening:
        """Where a request's tools come from; without an opening around it, such as of a server's own chain, the oldest."""
        opening = self._around() or next(iter(self._openings.values()), None)
        if opening is None:
            raise ConfigurationError(
                f"MCP server `{self.name}` is not open; use the chain that it is in by `async with chain`, or, where it is "
                "given for single calls, put `async with toolset` around these"
            )
        return opening

    async def _client(self, stack: AsyncExitStack, on_message: MessageHandlerFnT) -> Client:
        server = self._server
        if isinstance(server, str):
            http = await stack.enter_async_context(AsyncClient(headers=self._headers, timeout=_HTTP_TIMEOUT))
            server = streamable_http_client(server, http_client=http)
        return Client(server, message_handler=on_message)

    # -- its tools

    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        """The server's tools. Of one that does not answer those that were there last: calls tell what is the matter."""
        opening = self._opening()
        if opening.tools is None:
            return await self._read(opening)
        if opening.changed:
            with suppress(ToolError):
                return await self._read(opening)
        return opening.tools

    async def _read(self, opening: Opening) -> tuple[Tool, ...]:
        connection = await opening.connected()
        try:
            with fail_after(self._start_timeout):
                named = names_of(await connection.listed())
        except Exception as error:
            if connection.lost_by(error):
                connection.lose()
            hangs = isinstance(error, TimeoutError)
            why = f"no answer within {self._start_timeout:g} seconds" if hangs else reason_of(error)
            raise ToolError(f"the tools of MCP server `{self.name}` cannot be read: {why}") from error
        known = {tool.name: tool for tool in opening.tools or ()}
        opening.tools = tuple(self._made(name, tool, known.get(name)) for name, tool in named.items())
        return opening.tools

    def _made(self, name: str, tool: ServerTool, known: Tool | None) -> Tool:
        definition = definition_of(name, tool)
        if isinstance(known, McpTool) and known.definition == definition and known.name_there == tool.name:
            return known
        return McpTool(self, tool.name, definition, **self._settings)

    async def call(self, name: str, name_there: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool there, for `McpTool`.

        Raises:
            ToolError: it failed, or the server did.
        """
        connection = await self._opening().connected()
        try:
            result = await connection.client().call_tool(name_there, dict(arguments))
        except ToolError:
            raise
        except Exception as error:
            why = connection.lost_by(error)
            if why is None:
                raise ToolError(reason_of(error).removeprefix("MCPError: ")) from error
            connection.lose()
            raise ToolError(f"MCP server `{self.name}` {why}") from error
        return result_from(name, result)

    def __repr__(self) -> str:
        return f"<McpToolset {self.name}>"


class McpTool(Tool):
    """A tool of an MCP server.

    Attributes:
        name_there: what the server calls it.
    """

    def __init__(self, toolset: McpToolset, name_there: str, definition: ToolDefinition, **settings: Any) -> None:
        super().__init__(definition, **settings)
        self.name_there: Final = name_there
        self._toolset = toolset

    def values(self, arguments: str) -> Mapping[str, Any]:
        """The arguments as they are; the server checks them."""
        return arguments_in(arguments, self.name)

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """Have the server run it."""
        return await self._toolset.call(self.name, self.name_there, self.values(arguments))


def _server_of(server: Any, env: Mapping[str, str] | None, cwd: str | PurePath | None) -> tuple[str, Any]:
    """What a server is called, and what the SDK is given."""
    words = server
    if isinstance(server, str):
        url = urlsplit(server)
        if url.scheme in ("http", "https") and url.hostname:
            _no_process(env, cwd)
            return url.hostname, server
        words = shlex.split(server)
    if isinstance(words, list | tuple):
        if not words or not all(isinstance(word, str) and word for word in words):
            raise ConfigurationError('`server` is no command; give words such as ["uvx", "mcp-server-time"]')
        folder = None if cwd is None else str(cwd)
        process = StdioServerParameters(command=words[0], args=list(words[1:]), env=dict(env or {}), cwd=folder)
        return PurePath(words[0]).name, process
    if server is None or isinstance(server, bytes | int | float | Mapping):
        raise ConfigurationError(f"`server` is {kind_of(server)}; give a command, a URL, or what `mcp.Client` takes")
    _no_process(env, cwd)
    return str(getattr(server, "name", None) or type(server).__name__), server


def _no_process(env: object, cwd: object) -> None:
    if env is not None or cwd is not None:
        raise ConfigurationError("`env` and `cwd` are for servers that are given by a command")
