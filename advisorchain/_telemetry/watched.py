"""Sources and streams that are watched: the spans of around advisors, and what they ask of the rest of the chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from advisorchain import conventions as names
from advisorchain._chain.run import Left, Run, status_of
from advisorchain._chain.sources import AroundSource, Opened, Opening, Source
from advisorchain._chain.steps import Step
from advisorchain._telemetry.recorder import Clock, Context, error_type
from advisorchain.advisor import StreamItem
from advisorchain.aggregate import Fold
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

if TYPE_CHECKING:
    from advisorchain._telemetry.trace import Trace

__all__ = ["Entry", "Watched", "WatchedAround", "WatchedSource"]


_CHUNKS: Final = (ChatChunk, str)  # to make their union for each chunk costs more than all else here


class Entry:
    """One entry of a frame: where the next span inwards belongs, and the how manieth of its kind it is."""

    __slots__ = ("attempt", "context", "trace")

    def __init__(self, trace: Trace, context: Context, attempt: int) -> None:
        self.trace = trace
        self.context = context
        self.attempt = attempt

    def advisor_span(self, step: Step, request: ChatRequest) -> Clock:
        """Start the span of an advisor, within the one before."""
        trace = self.trace
        labels = trace.labels.advisors[step.index]
        attributes = labels.attributes[trace.streaming]
        if request.round or self.attempt > 1:
            attributes = dict(attributes)
            if request.round:
                attributes[names.ROUND] = request.round
            if self.attempt > 1:
                attributes[names.ADVISOR_ATTEMPT] = self.attempt
        clock = trace.recorder.start(labels.name, self.context, attributes)
        self.context = clock.context
        return clock

    def advisor_ended(
        self, step: Step, clock: Clock, status: str, own: float, told: dict[str, Any], error: BaseException | None
    ) -> None:
        """End it."""
        recorder = self.trace.recorder
        told[names.ADVISOR_OUTCOME] = status
        told[names.ADVISOR_SELF_DURATION] = own
        if (instruments := recorder.instruments) is not None:
            labels = self.trace.labels.advisors[step.index].measured[self.trace.streaming]
            ended = {**labels, names.OUTCOME: status}
            if error is not None:
                ended[names.ERROR_TYPE] = error_type(error)
            recorder.measure(instruments.advisor, perf_counter() - clock.begun, ended, clock)
            recorder.measure(instruments.advisor_self, own, labels, clock)
        recorder.end(clock, told, error)

    def content(self, clock: Clock, request: ChatRequest | None, response: ChatResponse | None) -> dict[str, Any]:
        """What went in and came out of an advisor, where that is wanted."""
        trace = self.trace
        if trace.span_capture is None or not trace.recorder.settings.openinference or not clock.span.is_recording():
            return {}
        try:
            said = {} if request is None else trace.span_capture.input_value(request.messages)
            return {**said, **trace.span_capture.output_value(response)}
        except Exception as error:
            trace.recorder.failed("content", error)
            return {}


class Watched:
    """A stream whose pulls run in a span.

    Attributes:
        chunks: how many have come.
        first: seconds until the first; None: none has come.
    """

    __slots__ = ("_items", "_last", "_see", "chunks", "clock", "first")

    def __init__(self, items: AsyncIterator[Any], clock: Clock, see: Callable[[Any, float], None] | None = None) -> None:
        self._items = items
        self._see = see  # told of each chunk, and of the seconds since the one before; 0 for the first
        self._last = 0.0
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
            if self.first is None or self._see is not None:
                self._came(item)
        return item

    def _came(self, item: Any) -> None:
        now = perf_counter()
        if self.first is None:
            self.first = now - self.clock.begun
            self._last = now
        if self._see is not None:
            self._see(item, now - self._last)
            self._last = now

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
        self.name = source.name
        self.response = source.response
        self.item = source.item
        self.entry = entry
        self.request: ChatRequest | None = None
        self.stream: Watched | None = None
        self._source = source
        self._clock: Clock | None = None
        self._run: Run | None = None

    @abstractmethod
    def start(self, request: ChatRequest) -> Clock:
        """Start the span."""

    @abstractmethod
    def end(self, clock: Clock, status: str, response: ChatResponse | None, error: BaseException | None) -> None:
        """End it."""

    def see(self, clock: Clock) -> Callable[[Any, float], None] | None:
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


class WatchedAround(WatchedSource):
    """An around advisor."""

    def __init__(self, source: AroundSource, entry: Entry) -> None:
        rest: Any = _Rest(source.inner, entry.trace)  # an `Inner`, but for the way in that nothing observes
        super().__init__(_Entered(source, rest), entry)
        self._rest: _Rest = rest
        self._step = source.step

    def start(self, request: ChatRequest) -> Clock:
        return self.entry.advisor_span(self._step, request)

    def end(self, clock: Clock, status: str, response: ChatResponse | None, error: BaseException | None) -> None:
        rest = self._rest
        told: dict[str, Any] = {
            names.ADVISOR_NEXT_CALLS: rest.calls,
            names.ADVISOR_REQUEST_CHANGED: any(request is not self.request for request in rest.requests),
            names.ADVISOR_RESPONSE_CHANGED: response is not None and response is not rest.response,
        }
        if self.stream is not None:
            told |= self.stream.measured()
            told[names.CHUNKS_IN] = rest.chunks
        told |= self.entry.content(clock, self.request, response)
        self.entry.advisor_ended(self._step, clock, status, max(0.0, clock.seconds - rest.seconds), told, error)


class _Entered(AroundSource):
    """A source for one entry: it does not hold its own method, or it would stay until a garbage collection."""

    def __init__(self, source: AroundSource, rest: Any) -> None:
        self.step = source.step  # type: ignore[misc]
        self.inner = rest  # type: ignore[misc]
        self.name = source.name

    @property
    def call(self) -> Callable[[ChatRequest], Awaitable[Any]]:  # type: ignore[override]
        """How the advisor is asked."""
        return self._drained if self.step.advise_call is None else self._advised


class _Rest:
    """The rest of a chain beneath an around advisor: what is asked of it, and the time that is not the advisor's own.

    Attributes:
        calls: how often it was asked.
        requests: what it was asked, each request once.
        response: what it answered last.
        chunks: how many came out of it.
        seconds: in which at least one answer of it was awaited.
    """

    def __init__(self, inner: Any, trace: Trace) -> None:
        self._inner = inner
        self._trace = trace
        self._awaited = 0
        self._since = 0.0
        self._asked: dict[int, int] = {}  # how often in each round of a loop
        self.calls = 0
        self.requests: list[ChatRequest] = []
        self.response: ChatResponse | None = None
        self.chunks = 0
        self.seconds = 0.0

    def _frame(self, request: ChatRequest) -> Any:
        self.calls += 1
        if not self.requests or self.requests[-1] is not request:
            self.requests.append(request)
        self._asked[request.round] = attempt = self._asked.get(request.round, 0) + 1
        return self._trace.observed(self._inner, attempt)

    def _wait(self) -> None:
        self._awaited += 1
        if self._awaited == 1:
            self._since = perf_counter()

    def _go_on(self) -> None:
        self._awaited -= 1
        if self._awaited == 0:
            self.seconds += perf_counter() - self._since

    async def call(self, request: ChatRequest) -> ChatResponse:
        frame = self._frame(request)
        self._wait()
        try:
            self.response = response = await frame.call(request)
        finally:
            self._go_on()
        return response  # type: ignore[no-any-return]

    async def stream(self, request: ChatRequest, opened: Opened) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(self._frame(request).stream(request, opened)) as items:
            while True:
                self._wait()
                try:
                    item = await items.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    self._go_on()
                if isinstance(item, ChatResponse):
                    self.response = item
                else:
                    self.chunks += 1
                yield item


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
