"""Sources and streams that are watched: whatever way they end, a span ends once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeAlias

from advisorchain import conventions as names
from advisorchain._chain.run import Left, Run, status_of
from advisorchain._chain.sources import Opening, Source
from advisorchain._telemetry.clock import Clock
from advisorchain._telemetry.entry import Entry
from advisorchain.aggregate import Fold
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

__all__ = ["See", "Watched", "WatchedSource"]

See: TypeAlias = Callable[[Any, float | None], None]
"""Told of each chunk, and of the seconds in which it was awaited since the one before; None for the first."""

_CHUNKS: Final = (ChatChunk, str)  # to make their union for each chunk costs more than all else here


class Watched:
    """A stream whose pulls run in a span.

    Attributes:
        chunks: how many have come.
        first: seconds until the first; None: none has come.
    """

    __slots__ = ("_items", "_last", "_see", "chunks", "clock", "first")

    def __init__(self, items: AsyncIterator[Any], clock: Clock, see: See | None = None) -> None:
        self._items = items
        self._see = see
        self._last: float | None = None
        self.clock = clock
        self.chunks = 0
        self.first: float | None = None

    @property
    def ag_running(self) -> bool:
        return bool(getattr(self._items, "ag_running", False))

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> Any:
        with self.clock:
            item = await self._items.__anext__()
        if isinstance(item, _CHUNKS):
            self.chunks += 1
            if self.first is None:
                self.first = self.clock.age
            if self._see is not None:
                # not what passed meanwhile: that is the time of who reads, and of what lies between
                awaited, last = self.clock.seconds, self._last
                self._see(item, None if last is None else awaited - last)
                self._last = awaited
        return item

    async def aclose(self) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None and not self.ag_running:
            with self.clock:
                await close()

    def measured(self) -> dict[str, Any]:
        """What left it."""
        told: dict[str, Any] = {names.CHUNKS_OUT: self.chunks}
        if self.first is not None:
            told[names.TIME_TO_FIRST_CHUNK] = self.first
        return told


class WatchedSource(ABC):
    """Stands in for a source for one entry, and ends its span once, however it ends. A subclass says what the span is."""

    def __init__(self, source: Source, entry: Entry) -> None:
        self.response = source.response
        self.item = source.item
        self.entry = entry
        self.request: ChatRequest | None = None
        self.stream: Watched | None = None
        self._source = source
        self._clock: Clock | None = None
        self._run: Run | None = None

    @property
    def name(self) -> str:
        return self._source.name

    @abstractmethod
    def start(self, request: ChatRequest) -> Clock:
        """Start the span."""

    @abstractmethod
    def end(self, clock: Clock, status: str, response: ChatResponse | None, error: BaseException | None) -> None:
        """End it."""

    def see(self, clock: Clock) -> See | None:
        """Who is told of each chunk."""
        return None

    def _begin(self, request: ChatRequest) -> Clock:
        self.request = request
        self._clock = clock = self.start(request)
        return clock

    async def call(self, request: ChatRequest) -> Any:
        clock = self._begin(request)
        try:
            with clock:
                response = self._source.response(await self._source.call(request))
        except BaseException as error:
            self._fail(error, "cancelled")
            raise
        self._end("ok", response)
        return response

    def open(self, request: ChatRequest, run: Run) -> Opening:
        self._run = run
        clock = self._begin(request)
        try:
            with clock:
                opening = self._source.open(request, run)
        except BaseException as error:
            self._fail(error, "closed")
            raise
        self.stream = Watched(opening.items, clock, self.see(clock))
        return Opening(_Ending(self.stream, self._fail, run), opening.inner)

    def settle(self, fold: Fold, response: ChatResponse | None, opening: Opening) -> ChatResponse:
        try:
            settled = self._source.settle(fold, response, opening)
        except BaseException as error:
            self._fail(error, "closed")
            raise
        self._end("ok", settled)
        return settled

    def _fail(self, error: BaseException, leaving: Left) -> None:
        status = status_of(error, leaving)
        self._end(status, None, error if status == "error" else None)

    def _end(self, status: str, response: ChatResponse | None, error: BaseException | None = None) -> None:
        clock, self._clock = self._clock, None
        if clock is not None:  # it has not ended already
            self.end(clock, status, response, error)


class _Ending:
    """A watched stream that tells when it failed or was closed."""

    __slots__ = ("_fail", "_run", "_stream")

    def __init__(self, stream: Watched, fail: Callable[[BaseException, Left], None], run: Run) -> None:
        self._stream = stream
        self._fail = fail
        self._run = run

    @property
    def ag_running(self) -> bool:
        return self._stream.ag_running

    def __aiter__(self) -> _Ending:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._fail(error, self._run.leaving)
            raise

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            if not self.ag_running:
                self._fail(GeneratorExit(), self._run.leaving)
