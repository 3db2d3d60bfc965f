"""Worker threads for tools that are plain functions.

40 may be waited for at the same time in one event loop, as many as anyio gives everything else; they are apart from
anyio's. A thread whose task has left it to itself counts no more, so that tools which hang keep no other tool waiting. 200
of those, in the whole process, are the most: then no plain function is begun until some of them have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import Lock
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from advisorchain.errors import ToolError

__all__ = ["run_in_thread"]

_R = TypeVar("_R")
_WAITED_FOR: Final = 40
_LEFT: Final = 200
_limiters: Final[RunVar[tuple[CapacityLimiter, CapacityLimiter]]] = RunVar("advisorchain.tools")


class _Threads:
    """Those that run a tool now."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = 0

    @property
    def left(self) -> int:
        """How many run of which nobody waits for the end."""
        return self._left

    def leave(self, run: _Run) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            if run.begun and not run.ended:
                run.left = True
                self._left += 1
            run.wanted = False

    def begin(self, run: _Run) -> bool:
        """Whether it is still wanted."""
        with self._lock:
            run.begun = run.wanted
            return run.wanted

    def end(self, run: _Run) -> None:
        """It has ended."""
        with self._lock:
            run.ended = True
            self._left -= run.left


class _Run:
    """One run of a tool in a thread."""

    __slots__ = ("begun", "ended", "left", "wanted")

    def __init__(self) -> None:
        self.wanted = True
        self.begun = self.ended = self.left = False


_threads: Final = _Threads()


async def run_in_thread(function: Callable[[], _R], *, abandon: bool) -> _R:
    """What a function gives back that runs in a worker thread, with a copy of the context variables.

    Args:
        function: what runs.
        abandon: whether its thread is left to itself on a cancellation, which otherwise waits for its end.

    Raises:
        ToolError: too many threads were left to themselves and have not ended.
        Exception: what the function raises.
    """
    waited_for, unlimited = _limiters_here()
    run = _Run()

    def in_thread() -> _R | GeneratorExit | None:
        if not _threads.begin(run):
            return None  # nobody would see the result
        try:
            return function()
        except GeneratorExit as error:  # asyncio would close the waiting task with it
            return error
        finally:
            _threads.end(run)

    async with waited_for:
        if _threads.left >= _LEFT:
            raise ToolError(
                f"{_LEFT} runs of tools whose time ran out still go on, each in a thread; wait until some of them have ended"
            )
        try:
            result = await to_thread.run_sync(in_thread, abandon_on_cancel=abandon, limiter=unlimited)
        finally:
            _threads.leave(run)
    if isinstance(result, GeneratorExit):
        raise result
    return result  # type: ignore[return-value]  # None: only when nobody waits


def _limiters_here() -> tuple[CapacityLimiter, CapacityLimiter]:
    try:
        return _limiters.get()
    except LookupError:
        limiters = CapacityLimiter(_WAITED_FOR), CapacityLimiter(inf)
        _limiters.set(limiters)
        return limiters
