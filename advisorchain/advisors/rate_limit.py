"""No more than so many model calls in so much time, in this process."""

from __future__ import annotations

from collections import deque
from threading import Lock
from time import monotonic
from typing import Final

from anyio import sleep

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain.advisor import BaseAdvisor
from advisorchain.advisors._orders import RATE_LIMIT_ORDER
from advisorchain.errors import LimitExceededError
from advisorchain.exchange import ChatRequest

__all__ = ["RateLimitAdvisor"]


class RateLimitAdvisor(BaseAdvisor):
    """Lets `rate` calls through in any span of `per_seconds`; those beyond wait, first come, first served.

    One object counts for all chains, threads and event loops that it is used in. A call that is cancelled while it waits
    gives its place to those who come later; those who wait already keep theirs.

    Args:
        rate: calls; as many may go at once.
        per_seconds: the span, in seconds.
        max_wait: seconds; who would have to wait longer is refused at once. None: everyone waits.
        name: unique in the chain.
        order: inside a retry by default, so that each attempt counts.

    Raises:
        ConfigurationError: an argument that cannot work.
        LimitExceededError: the wait would be longer than `max_wait`; `retry_after` is how long it would be.
    """

    def __init__(
        self,
        rate: int,
        per_seconds: float,
        *,
        max_wait: float | None = None,
        name: str = "rate_limit",
        order: int = RATE_LIMIT_ORDER,
    ) -> None:
        self.rate = checked_whole("rate", rate)
        self.per_seconds = checked_seconds("per_seconds", per_seconds)
        self.max_wait = None if max_wait is None else checked_seconds("max_wait", max_wait, zero=True)
        self.to_stream = "observe" if max_wait is None else "cut short"
        self.name = name
        self.order = order
        self._places: Final[deque[_Place]] = deque()  # of the last span and of those who wait, in order of time
        self._lock: Final = Lock()

    async def before(self, request: ChatRequest) -> ChatRequest:
        """Wait for this call's time."""
        place = self._reserve()
        try:
            if (left := place.time - monotonic()) > 0:
                await sleep(left)
        except BaseException:
            with self._lock:
                if place in self._places:
                    self._places.remove(place)
            raise
        return request

    def _reserve(self) -> _Place:
        with self._lock:
            now = monotonic()  # not an event loop's clock: each loop may have its own
            while self._places and self._places[0].time <= now - self.per_seconds:
                self._places.popleft()
            time = max(now, self._places[-1].time) if self._places else now
            if len(self._places) >= self.rate:
                time = max(time, self._places[-self.rate].time + self.per_seconds)
            if self.max_wait is not None and time - now > self.max_wait:
                raise LimitExceededError(
                    f"{self.rate} calls in {self.per_seconds:g} seconds are made, and the wait is longer than `max_wait` of "
                    f"{self.max_wait:g} seconds; ask again later, or raise one of the two",
                    retry_after=time - now,
                )
            place = _Place(time)
            self._places.append(place)
            return place


class _Place:
    """The time at which one call may go. Compared by identity."""

    __slots__ = ("time",)

    def __init__(self, time: float) -> None:
        self.time = time
