"""An MCP server while a task has it open."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

from anyio import Lock, create_task_group
from anyio.abc import TaskGroup

from advisorchain.tools._mcp_connection import Connecting, Connection
from advisorchain.tools.base import Tool

__all__ = ["Opening", "opened_around"]

_around: Final[ContextVar[tuple[Opening, ...]]] = ContextVar("advisorchain.tools.mcp", default=())


def opened_around() -> tuple[Opening, ...]:
    """What was opened by the task that runs, or by those that began it; the outermost first. Some may be closed again."""
    return _around.get()


class Opening:
    """One task's `async with`: the task group of the connection stands and falls with it. Calls come from any task.

    Args:
        server: what errors call it.
        connecting: makes the client of a connection.
        seconds: to start or reach the server.

    Attributes:
        depth: how often the task has it open.
        tools: of the server, as read last; None where nobody has needed them here.
    """

    def __init__(self, server: str, connecting: Connecting, seconds: float) -> None:
        self.depth = 0
        self.tools: tuple[Tool, ...] | None = None
        self._connection: Connection | None = None
        self._server: Final = server
        self._connecting: Final = connecting
        self._seconds: Final = seconds
        self._lock: Final = Lock()
        self._group: Final[TaskGroup] = create_task_group()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        _around.set((*_around.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _around.set(tuple(each for each in _around.get() if each is not self))
        try:
            if self._connection is not None:
                await self._connection.aclose()
        finally:
            self._group.cancel_scope.cancel()  # what is left of connections that were lost
            # without the error: a group would put it into an ExceptionGroup
            await self._group.__aexit__(None, None, None)

    @property
    def changed(self) -> bool:
        """Whether the tools may differ from what was read last, and can be read."""
        return self._connection is not None and self._connection.is_open and self._connection.changed

    async def connected(self) -> Connection:
        """The connection; a new one where there is none, or the last was lost.

        Raises:
            ToolError: the server cannot be started or reached.
        """
        async with self._lock:  # calls of one answer run at the same time
            if self._connection is None or not self._connection.is_open:
                self._connection = Connection(self._server, self._connecting)
                self._group.start_soon(self._connection.serve)
                await self._connection.opened(self._seconds)
            return self._connection
