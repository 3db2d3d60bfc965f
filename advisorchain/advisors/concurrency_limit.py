"""No more than so many model calls at one time, in this process."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Final

from anyio import Event, move_on_after
from anyio.lowlevel import current_token

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain._event_loops import poster
from advisorchain.advisor import BaseAdvisor, Outcome
from advisorchain.advisors._orders import CONCURRENCY_LIMIT_ORDER
from advisorchain.errors import LimitExceededError
from advisorchain.exchange import ChatRequest

__all__ = ["ConcurrencyLimitAdvisor"]


class ConcurrencyLimitAdvisor(BaseAdvisor):
    """Lets `limit` calls be under way at one time; those beyond wait, first come, first served.

    A stream is under way until it has ended or was left. One object counts for all chains, threads and event loops that it
    is used in. A call that goes through this advisor again while it is under way (a chain within a chain) holds two.

    Args:
        limit: calls and streams at one time.
        max_wait: seconds that one may wait for its turn; 0 refuses at once. None: everyone waits.
        name: unique in the chain.
        order: inside a retry by default, so that none is held while a retry waits.

    Raises:
        ConfigurationError: an argument that cannot work.
        LimitExceededError: `max_wait` ran out. Its `retry_after` is None: nobody knows when a call will end.
    """

    def __init__(
        self,
        limit: int,
        *,
        max_wait: float | None = None,
        name: str = "concurrency_limit",
        order: int = CONCURRENCY_LIMIT_ORDER,
    ) -> None:
        self.limit = checked_whole("limit", limit)
        self.max_wait = None if max_wait is None else checked_seconds("max_wait", max_wait, zero=True)
        self.to_stream = "observe" if max_wait is None else "cut short"
        self.name = name
        self.order = order
        self._slots: Final = _Slots(limit)

    async def before(self, request: ChatRequest) -> ChatRequest:
        """Wait for a slot."""
        if await self._slots.take(self.max_wait):
            return request.replace(local={**request.local, self.name: True})
        raise LimitExceededError(
            f"{self.limit} calls are under way, and none has ended within `max_wait` of {self.max_wait:g} seconds; "
            "ask again later, or raise one of the two"
        )

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        """Give the slot to who waits longest. From any task: it belongs to the call, not to the task that took it."""
        if request.local.get(self.name):  # else `before` failed
            self._slots.release()


class _Slots:
    """A fair semaphore for any number of event loops in any threads. (anyio's belongs to one loop.)"""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: Final[deque[_Waiter]] = deque()
        self._lock: Final = Lock()

    async def take(self, max_wait: float | None) -> bool:
        """Wait for a slot; False: there was none in time."""
        with self._lock:
            if self._free:  # then nobody waits
                self._free -= 1
                return True
            if max_wait == 0:
                return False
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            with move_on_after(max_wait):
                await waiter.called.wait()
        except BaseException:
            if self._leave(waiter):
                self.release()
            raise
        return self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> bool:
        """End the waiting; whether the waiter has got a slot."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            return waiter.has_slot

    def release(self) -> None:
        """Hand a slot on."""
        with self._lock:
            while self._waiting:
                if self._waiting.popleft().call():
                    return
            self._free += 1


class _Waiter:
    """One who waits, in the event loop in which it was made."""

    __slots__ = ("_post", "called", "has_slot")

    def __init__(self) -> None:
        self.called = Event()
        self.has_slot = False
        self._post: Final = poster(current_token())

    def call(self) -> bool:
        """Give it a slot, from any thread; False: its event loop has ended, and it with it."""
        try:
            self._post(self.called.set)
        except RuntimeError:
            return False
        self.has_slot = True
        return True
