"""The span of an around advisor, and what it asks of the rest of the chain."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from advisorchain import conventions as names
from advisorchain._chain.sources import AroundSource, Opened
from advisorchain._telemetry.clock import Awaited, Clock
from advisorchain._telemetry.entry import Entry
from advisorchain._telemetry.watched import WatchedSource
from advisorchain.advisor import StreamItem
from advisorchain.exchange import ChatRequest, ChatResponse

if TYPE_CHECKING:
    from advisorchain._telemetry.trace import Trace

__all__ = ["WatchedAround"]


class WatchedAround(WatchedSource):
    """An around advisor."""

    def __init__(self, source: AroundSource, entry: Entry) -> None:
        self._rest = _Rest(source.inner, entry.trace)
        self._step = source.step
        super().__init__(AroundSource(source.step, self._rest), entry)

    def start(self, request: ChatRequest) -> Clock:
        self._rest.received = request
        return self.entry.advisor_span(self._step, request)

    def end(self, clock: Clock, status: str, response: ChatResponse | None, error: BaseException | None) -> None:
        rest = self._rest
        told: dict[str, Any] = {
            names.ADVISOR_NEXT_CALLS: rest.calls,
            names.ADVISOR_REQUEST_CHANGED: rest.changed,
            names.ADVISOR_RESPONSE_CHANGED: response is not None and response is not rest.response,
        }
        if self.stream is not None:
            told |= self.stream.measured()
            told[names.CHUNKS_IN] = rest.chunks
            told[names.AWAITED_DURATION] = clock.seconds
        told |= self.entry.content(clock, self.request, response)
        self.entry.advisor_ended(self._step, clock, status, max(0.0, clock.seconds - rest.awaited.seconds), told, error)


class _Rest:
    """The rest of a chain beneath an around advisor: what is asked of it, and the time that is not the advisor's own.

    Attributes:
        received: what the advisor was asked.
        changed: whether it asked something else.
        calls: how often it asked.
        response: what was answered last.
        chunks: how many came out of it.
        awaited: in which at least one answer was.
    """

    def __init__(self, inner: Any, trace: Trace) -> None:
        self._inner = inner
        self._trace = trace
        self._asked: dict[int, int] = {}  # how often in each round of a loop
        self.received: ChatRequest | None = None
        self.changed = False
        self.calls = 0
        self.response: ChatResponse | None = None
        self.chunks = 0
        self.awaited = Awaited()

    @property
    def entry(self) -> Any:
        """The way in that nothing observes, which nobody takes who is."""
        return self._inner.entry

    def _frame(self, request: ChatRequest) -> Any:
        self.calls += 1
        self.changed = self.changed or request is not self.received
        self._asked[request.round] = attempt = self._asked.get(request.round, 0) + 1
        return self._trace.observed(self._inner, attempt)

    async def call(self, request: ChatRequest) -> ChatResponse:
        frame = self._frame(request)
        with self.awaited:
            self.response = response = await frame.call(request)
        return response  # type: ignore[no-any-return]

    async def stream(self, request: ChatRequest, opened: Opened) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(self._frame(request).stream(request, opened)) as items:
            while True:
                with self.awaited:
                    try:
                        item = await items.__anext__()
                    except StopAsyncIteration:
                        return
                if isinstance(item, ChatResponse):
                    self.response = item
                else:
                    self.chunks += 1
                yield item
