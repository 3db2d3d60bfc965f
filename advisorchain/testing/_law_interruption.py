"""Drives a call by hand, so that a law can interrupt it at each place where it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeAlias

from anyio import CancelScope, Event, create_task_group
from anyio.lowlevel import checkpoint

__all__ = ["cancel_at_each_wait", "with_something_at"]

Work: TypeAlias = Coroutine[Any, Any, object]

_MOST: Final = 60  # waits of one call that are tried


async def cancel_at_each_wait(begin: Callable[[int], Awaitable[Work]], look: Callable[[int], Awaitable[None]]) -> int:
    """Have a call cancelled before it begins, at its first wait, its second, and so on; returns how many calls there were.

    `begin` prepares what the call needs and gives it, not yet begun; `look` is called after it was cancelled. The last one
    is the call that could not be cancelled any more, since it had ended before.
    """
    for number in range(_MOST):
        was_cancelled = await _cancelled_at(number - 1, await begin(number))
        await look(number)
        if not was_cancelled:
            return number + 1
    return _MOST


async def _cancelled_at(place: int, work: Work) -> bool:
    """Whether the call has come to the wait `place`, where it was cancelled; -1: before it began."""
    with CancelScope() as scope:
        if place < 0:
            scope.cancel()

        def at_wait(waits: int) -> None:
            if waits == place:
                scope.cancel()

        await _Driven(work, at_wait)
    return scope.cancel_called


async def with_something_at(place: int, work: Work, disturb: Callable[[], Work]) -> object:
    """What the call returns, or the error that it raises, when `disturb` is called at its wait `place`, or after it."""
    reached = Event()

    async def watch() -> None:
        await reached.wait()
        await disturb()

    outcome: object = None
    async with create_task_group() as group:
        group.start_soon(watch)
        await checkpoint()  # the watcher is ready
        try:
            outcome = await _Driven(work, lambda waits: reached.set() if waits == place else None)
        except Exception as error:
            outcome = error
        reached.set()
    return outcome


class _Driven:
    """A call that tells how often it has waited, each time that it is about to wait."""

    def __init__(self, work: Work, at_wait: Callable[[int], None]) -> None:
        self._work = work
        self._at_wait = at_wait

    def __await__(self) -> Generator[Any, Any, object]:
        waits = 0
        given: Any = None
        resume: Callable[[Any], Any] = self._work.send
        while True:
            try:
                trap = resume(given)
            except StopIteration as end:
                return end.value
            self._at_wait(waits)
            waits += 1
            try:
                given = yield trap
                resume = self._work.send
            except BaseException as error:
                given, resume = error, self._work.throw
