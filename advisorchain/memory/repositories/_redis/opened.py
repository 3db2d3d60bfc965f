"""A client of Redis that a task of its own holds open for one event loop."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Final, TypeVar

from anyio import Event, fail_after
from anyio.lowlevel import EventLoopToken, current_token
from coredis.exceptions import ConnectionError as LostConnectionError
from coredis.exceptions import RedisError

from advisorchain._event_loops import poster
from advisorchain.errors import StorageError
from advisorchain.memory.repositories._redis.address import AnyClient, Make

__all__ = ["Opened", "in_background"]

_T = TypeVar("_T")


class Opened:
    """A client that is open for one event loop.

    Attributes:
        client: None: not yet, or not any more.
        ready, ended: when it was opened, or could not be; when it was closed.
        over: it shall not be used any more.
    """

    __slots__ = ("_close", "_error", "_make", "_timeout", "client", "ended", "over", "ready")

    def __init__(self, make: Make | None, timeout: float) -> None:
        self._make, self._timeout = make, timeout
        self._close, self.ready, self.ended = Event(), Event(), Event()
        self._error: Exception | None = None
        self.client: AnyClient | None = None
        self.over = False

    @classmethod
    def given(cls, client: AnyClient) -> Opened:
        """One that somebody else opens and closes."""
        opened = cls(None, 0)
        opened.client = client
        opened.ready.set()
        opened.ended.set()
        return opened

    async def use(self, work: Callable[[AnyClient], Awaitable[_T]]) -> _T:
        """What `work` returns; LostConnectionError when the client could not be opened, or is closed already."""
        if self.client is None:
            raise self._error if isinstance(self._error, RedisError | OSError) else LostConnectionError() from self._error
        try:
            _ = self.client.connection_pool.task_group
        except RuntimeError:
            if self._make is not None:
                raise LostConnectionError() from None
            raise StorageError("the client is not open; use the repository inside its `async with`") from None
        try:
            return await work(self.client)
        except RuntimeError as error:
            if not self.over:
                raise
            raise LostConnectionError() from error  # its pool ended meanwhile

    def end(self) -> None:
        """Close it soon. To be called in its event loop."""
        self.over = True
        self._close.set()

    def end_from(self, loop: EventLoopToken) -> None:
        """Close it soon, from any thread."""
        self.over = True
        try:
            poster(loop)(self._close.set)
        except RuntimeError:  # it has ended, and the client with it
            pass

    async def serve(self) -> None:
        """Hold the client open."""
        assert self._make is not None
        try:
            with fail_after(self._timeout) as patience:
                async with self._make() as self.client:
                    patience.deadline = inf
                    self.ready.set()
                    await self._close.wait()
        except Exception as error:
            self._error = error
        except BaseExceptionGroup as group:  # the end of the event loop, beside an error
            _, rest = group.split(Exception)
            if rest is not None:
                raise rest from None
        finally:
            self.over, self.client = True, None
            self.ready.set()
            self.ended.set()


def in_background(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a task of the event loop itself, which ends it when it ends."""
    native: Any = current_token().native_token
    if hasattr(native, "run_sync_soon"):
        sys.modules["trio"].lowlevel.spawn_system_task(work)
        return
    task = native.create_task(work())
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


_TASKS: Final[set[Any]] = set()  # an event loop alone would not keep them
