"""Connections of coredis that leave nothing open when a server cannot be reached."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from coredis.connection import (
    BaseConnection,
    ClusterConnection,
    SentinelManagedConnection,
    TCPConnection,
    UnixDomainSocketConnection,
)
from coredis.pool import ClusterConnectionPool, SentinelConnectionPool

__all__ = ["TidyClusterConnection", "TidyClusterPool", "TidySentinelPool", "TidyTCPConnection", "TidyUnixConnection"]


class _Tidy(BaseConnection):
    """Closes its streams also when it could not connect; else each such try would end in six ResourceWarnings."""

    async def run(self, *, task_status: TaskStatus[Any] = TASK_STATUS_IGNORED) -> None:
        """Connect, and serve until the connection is closed or lost."""
        try:
            await super().run(task_status=task_status)
        finally:
            _close_streams(vars(self).values())


def _close_streams(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, MemoryObjectSendStream | MemoryObjectReceiveStream):
            value.close()


class TidyTCPConnection(_Tidy, TCPConnection):
    """To a server by its host."""


class TidyUnixConnection(_Tidy, UnixDomainSocketConnection):
    """To a server by its socket."""


class TidyClusterConnection(_Tidy, ClusterConnection):
    """To a node of a cluster."""


class TidyClusterPool(ClusterConnectionPool):
    """Connections to the nodes of a cluster; closes the streams by which it hears of their errors, too."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, traceback)
        finally:
            for value in vars(self.cluster_layout).values():
                _close_streams(value if isinstance(value, tuple) else ())


class _TidyManagedConnection(_Tidy, SentinelManagedConnection):
    """To the primary that sentinels name."""


class TidySentinelPool(SentinelConnectionPool):
    """Connections to the primary that sentinels name when one is made."""

    async def _construct_connection(self) -> SentinelManagedConnection:
        location = await self.get_primary_location()
        return _TidyManagedConnection(location, self.service_name, self.is_primary, **self.connection_kwargs)
