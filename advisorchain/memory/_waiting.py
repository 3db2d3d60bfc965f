"""Lines of turns that wait for a conversation's lease, one in each event loop: who asked first is served first.

Only the first in a line looks at the store. Who gives a lease back wakes the next one in its own event loop, since it can
reach no other; so that these have a chance, too, the line does not look for a moment when it has had the lease for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import uniform
from typing import Final, NamedTuple, TypeAlias

from anyio import Event, current_time, move_on_after, sleep_until
from anyio.lowlevel import RunVar

__all__ = ["Place", "Run", "wait_in_line", "wake_next"]

Place: TypeAlias = tuple[int, str]  # the id() of a repository, and a conversation's

_FIRST_PAUSE: Final = 0.02  # seconds between two looks at a lease that somebody else has
_LONGEST_PAUSE: Final = 0.5
_LONG_RUN: Final = 2.0, 4  # seconds and turns, both: so that a line of short or of long turns loses little by its stops
_STOP: Final = 0.6  # seconds, in which each one who waits elsewhere looks at least once


class Run(NamedTuple):
    """Turns of one line that had the lease one after the other.

    Attributes:
        since: when the first of them had it.
        turns: how many.
    """

    since: float
    turns: int

    def is_long(self) -> bool:
        """Whether others are to have a chance now."""
        seconds, turns = _LONG_RUN
        return self.turns >= turns and current_time() - self.since >= seconds


class _Waiter:
    """A turn that waits for a lease."""

    __slots__ = ("_event", "_run")

    def __init__(self) -> None:
        self._event = Event()
        self._run: Run | None = None

    def wake(self, run: Run | None = None) -> None:
        self._run = run
        self._event.set()

    async def sleep(self, seconds: float) -> Run | None:
        """Until the time is over or somebody wakes it, maybe with a lease that is free now: the run to go on with."""
        with move_on_after(seconds):
            await self._event.wait()
        if self._event.is_set():
            self._event = Event()
        run, self._run = self._run, None
        return run


_LINES: Final[RunVar[dict[Place, deque[_Waiter]]]] = RunVar("advisorchain.memory.lines")  # gone when nobody waits


async def wait_in_line(
    place: Place, look: Callable[[], Awaitable[int | None]], seconds: float
) -> tuple[int | None, Run | None]:
    """The token that `look` got, and the run that its turn is part of; None when it was not to be had in time."""
    deadline, pause = current_time() + seconds, _FIRST_PAUSE
    run: Run | None = None
    with _in_line(place) as (line, waiter):
        while True:
            first = line[0] is waiter
            if first and (token := await look()) is not None:
                return token, Run(current_time(), 1) if run is None else Run(run.since, run.turns + 1)
            left = deadline - current_time()
            if left <= 0:
                return None, None
            run = await waiter.sleep(min(left, uniform(pause / 2, pause)) if first else left)
            pause = min(pause * 1.5, _LONGEST_PAUSE) if first else pause
            if run is not None and run.is_long():
                await sleep_until(min(deadline, current_time() + _STOP))
                run = None


@contextmanager
def _in_line(place: Place) -> Iterator[tuple[deque[_Waiter], _Waiter]]:
    lines = _LINES.get({})
    _LINES.set(lines)
    line, waiter = lines.setdefault(place, deque()), _Waiter()
    line.append(waiter)
    try:
        yield line, waiter
    finally:
        line.remove(waiter)
        if line:
            line[0].wake()
        else:
            del lines[place]


def wake_next(place: Place, run: Run | None) -> None:
    """Let who waits in this event loop look at once, as the next one of `run`; those of others look by themselves."""
    if line := _LINES.get({}).get(place):
        line[0].wake(run)
