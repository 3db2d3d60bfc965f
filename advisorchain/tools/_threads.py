"""Worker threads for tools that are plain functions.

40 may be waited for at the same time in one event loop, as many as anyio gives everything else; they are apart from
anyio's. A thread whose task has left it to itself counts no more, so that tools which hang keep no other tool waiting. 200
of those, in the whole process, are the most: then no plain function is begun until some of them have ended. None of them
keeps the process from ending.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from math import inf
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

from anyio import CancelScope, CapacityLimiter, Event, to_thread
from anyio.from_thread import threadlocals  # type: ignore[attr-defined]  # has no public name
from anyio.lowlevel import RunVar, current_token

from advisorchain._event_loops import poster
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

    def leave(self, run: _Run[Any]) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            if run.begun and not run.ended:
                run.left = True
                self._left += 1
            run.wanted = False

    def begin(self, run: _Run[Any]) -> bool:
        """Whether it is still wanted."""
        with self._lock:
            run.begun = run.wanted
            return run.wanted

    def end(self, run: _Run[Any]) -> None:
        """It has ended."""
        with self._lock:
            run.ended = True
            self._left -= run.left


class _Run(Generic[_R]):
    """One run of a tool in a thread."""

    __slots__ = ("_error", "_function", "_result", "begun", "ended", "left", "wanted")

    def __init__(self, function: Callable[[], _R]) -> None:
        self.wanted = True
        self.begun = self.ended = self.left = False
        self._function = function
        self._result: _R | None = None
        self._error: BaseException | None = None

    def __call__(self) -> None:
        """What its thread does."""
        if not _threads.begin(self):
            return
        try:
            self._result = self._function()
        except BaseException as error:  # also a GeneratorExit, with which asyncio would close the task that waits
            self._error = error
        finally:
            _threads.end(self)

    def outcome(self) -> _R:
        """What the function has given back, or raised."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # else it and its traceback hold each other
        return self._result  # type: ignore[return-value]  # None: only when nobody waits


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
    run = _Run(function)
    async with waited_for:
        if _threads.left >= _LEFT:
            raise ToolError(
                f"{_LEFT} runs of tools whose time ran out still go on, each in a thread; wait until some of them have ended"
            )
        try:
            if abandon and isinstance(current_token().native_token, AbstractEventLoop):
                await _in_daemon(run, unlimited)
            else:
                await to_thread.run_sync(run, abandon_on_cancel=abandon, limiter=unlimited)
        finally:
            _threads.leave(run)
    return run.outcome()


async def _in_daemon(run: Callable[[], None], limiter: CapacityLimiter) -> None:
    """As `to_thread.run_sync`, on asyncio, in a thread that may be left for good.

    A process waits at its end for anyio's threads there, and so for a tool that hangs. (Trio's threads are daemons.)
    """
    post, ended = poster(current_token()), Event()

    def begin() -> None:
        """In a thread of anyio's: it knows what `anyio.from_thread` needs to work in the other one, too."""
        here, context = vars(threadlocals).copy(), copy_context()

        def work() -> None:
            vars(threadlocals).update(here)
            context.run(run)
            with suppress(RuntimeError):  # the loop has ended
                post(ended.set)

        Thread(target=work, name="advisorchain tool", daemon=True).start()

    with CancelScope():  # the one that `anyio.from_thread.check_cancelled` asks
        await to_thread.run_sync(begin, limiter=limiter)
        await ended.wait()


def _limiters_here() -> tuple[CapacityLimiter, CapacityLimiter]:
    try:
        return _limiters.get()
    except LookupError:
        limiters = CapacityLimiter(_WAITED_FOR), CapacityLimiter(inf)
        _limiters.set(limiters)
        return limiters
