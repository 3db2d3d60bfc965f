"""One connection to an MCP server, kept by a task of its own."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Final, Protocol

from anyio import CancelScope, Event, create_task_group, move_on_after
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp_types import CONNECTION_CLOSED, ToolListChangedNotification
from mcp_types import Tool as ServerTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from advisorchain.errors import ToolError

__all__ = ["Connecting", "Connection", "reason_of"]

_CLOSING_SECONDS: Final = 8.0  # the SDK's own steps for a process that does not want to end take 6.5
# how the SDK tells of HTTP's status 404, and of others from 400 on, which servers give for a session that they do not know
_REFUSALS: Final = ("Session terminated", "Server returned an error response")
_PYDANTIC: Final = "errors.pydantic.dev"  # stands in what its validation errors say
_MOST_PAGES: Final = 100  # so that a list that never ends does not keep a turn waiting


class Connecting(Protocol):
    """Makes a client, not yet entered. What it needs open it opens on the stack."""

    def __call__(self, stack: AsyncExitStack, on_message: MessageHandlerFnT) -> Awaitable[Client]: ...


class Connection:
    """One connection.

    The SDK's client opens task groups, and only the task that has opened one may leave it. So one task opens the client,
    waits, and closes it; calls come from any task.

    Args:
        server: what errors call it.
        connecting: makes the client.
    """

    def __init__(self, server: str, connecting: Connecting) -> None:
        self._server: Final = server
        self._connecting: Final = connecting
        self._client: Client | None = None
        self._failure: Exception | None = None
        self._changed = True
        self._is_told = False
        self._settled: Final = Event()
        self._closing: Final = Event()
        self._ended: Final = Event()
        self._scope: Final = CancelScope()

    @property
    def changed(self) -> bool:
        """Whether the server's tools may differ from what was read last."""
        return self._changed or not self._is_told

    @property
    def is_open(self) -> bool:
        """Whether calls can be made, as far as is known."""
        return self._client is not None

    async def serve(self) -> None:
        """What the task of the connection does. Never raises an error."""
        try:
            with self._scope:
                async with AsyncExitStack() as stack:
                    self._client = await stack.enter_async_context(await self._connecting(stack, self._on_message))
                    self._settled.set()
                    async with create_task_group() as group:
                        group.start_soon(self._watch, self._client)
                        await self._closing.wait()
                        self._client = None
                        group.cancel_scope.cancel()
        except Exception as error:  # also a group of them: what opening raises, or what broke off
            self._failure = error
        finally:
            self._client = None
            self._settled.set()
            self._ended.set()

    async def opened(self, seconds: float) -> None:
        """Wait until it is open.

        Raises:
            ToolError: it failed, or took longer.
        """
        try:
            with move_on_after(seconds):
                await self._settled.wait()
        finally:
            if self._client is None:
                self._scope.cancel()
        if self._client is None:
            why = reason_of(self._failure) if self._failure else f"no answer within {seconds:g} seconds"
            raise ToolError(f"MCP server `{self._server}` cannot be reached: {why}") from self._failure

    def lose(self) -> None:
        """Give it up; its task closes what is left."""
        self._client = None
        self._closing.set()

    async def aclose(self) -> None:
        """Close it, and wait until that is done."""
        self.lose()
        with move_on_after(_CLOSING_SECONDS):
            await self._ended.wait()
        self._scope.cancel()

    def client(self) -> Client:
        """What calls are made with."""
        if self._client is None:
            raise ToolError(f"MCP server `{self._server}` has gone")
        return self._client

    def lost_by(self, error: Exception) -> str | None:
        """Why no other call will succeed here after this error of one; None: others may."""
        if isinstance(error, MCPError) and str(error) in _REFUSALS:
            return "has refused the call, maybe since it was started anew; the next call begins a new session"
        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            return None
        if isinstance(error, RuntimeError | ValueError):  # of the SDK, about what the server has sent
            return None
        return f"has gone while it ran; nobody knows whether it has done its work: {reason_of(error)}"

    async def listed(self) -> list[ServerTool]:
        """The server's tools, all pages."""
        client, tools, cursor = self.client(), list[ServerTool](), None
        self._changed = False  # before asking: what changes meanwhile counts
        try:
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="refresh")
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
        except BaseException:
            self._changed = True
            raise
        return tools

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed = True

    async def _watch(self, client: Client) -> None:
        """Learn of changes of the list. Servers since 2026 tell only whom they were asked by."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._is_told = True
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._is_told = bool(changes.honored.tools_list_changed)
                async for _ in changes:
                    self._changed = True
        except Exception:  # it cannot, or it has ended: then the list is read for each turn
            pass
        finally:
            self._is_told = False


def reason_of(error: BaseException) -> str:
    """What an error says, of a group its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):  # whose own text has what was sent, and much more
        return f"it sent what is no {error.title}"
    said = str(error)
    if _PYDANTIC in said:  # the SDK has made another error of one
        return "it sent what is no message of the protocol"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
