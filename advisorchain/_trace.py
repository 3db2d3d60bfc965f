"""How a run is recorded: the steps and the source of a frame are replaced by watched ones, and the frame runs as ever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Tracer

from advisorchain._run import Left, Run, status_of
from advisorchain._sources import AroundSource, Inner, ModelSource, Opened, Opening, Source
from advisorchain._steps import Step
from advisorchain.advisor import Outcome, StreamItem
from advisorchain.aggregate import Fold
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.telemetry import Clock, end_span, start_span

if TYPE_CHECKING:
    from advisorchain._frames import Frame

__all__ = ["Trace"]

_ADVISOR: Final = "advisorchain.advisor"


class Trace:
    """One recorded call or stream: the chain's span, and what is needed to make the others."""

    def __init__(self, tracer: Tracer, chain: str, steps: Sequence[Step], request: ChatRequest, *, stream: bool) -> None:
        self.tracer: Final = tracer
        self.length: Final = len(steps)
        self.streaming: Final = stream
        self._parent = otel_context.get_current()  # of the one who asks, not of the one who reads first
        self._name = f"advisor_chain {chain}"
        self._attributes = {
            "advisorchain.kind": "chain",
            "advisorchain.chain.name": chain,
            "advisorchain.chain.length": self.length,
            "advisorchain.chain.advisors": [step.name for step in steps],
            "advisorchain.chain.orders": [step.order for step in steps],
            "advisorchain.stream": stream,
            "openinference.span.kind": "CHAIN",
            "gen_ai.conversation.id": request.conversation_id,
        }

    def _start(self) -> Clock:
        return start_span(self.tracer, self._name, self._parent, self._attributes)

    async def call(self, entry: Callable[[ChatRequest], Awaitable[ChatResponse]], request: ChatRequest) -> ChatResponse:
        """Run a call in the chain's span."""
        clock, error = self._start(), None
        status = "ok"
        try:
            with clock.running():
                return await entry(request)
        except BaseException as raised:
            status = status_of(raised, "cancelled")
            error = raised if status == "error" else None
            raise
        finally:
            end_span(clock, {"advisorchain.outcome": status}, error)

    async def stream(self, items: AsyncGenerator[Any, None], run: Run) -> AsyncGenerator[Any, None]:
        """Read a stream in the chain's span, which begins with the first pull."""
        watched = _Watched(items, self._start())
        status, error = "ok", None
        try:
            async for item in watched:
                yield item
        except BaseException as raised:
            status = status_of(raised, run.leaving)
            error = raised if status == "error" else None
            with run.shielded():
                await watched.aclose()
            raise
        finally:
            ended = {"advisorchain.outcome": status, **watched.measured("out")}
            end_span(watched.clock, ended, error)

    def observed(self, frame: Frame) -> Frame:
        """A frame like this one, watched, for one entry."""
        entry = _Entry(self, otel_context.get_current())
        steps = tuple(_Probe(step, entry).watched() for step in frame.steps)
        return type(frame)(steps, _WatchedSource(frame.source, entry), frame.voice)


class _Entry:
    """One entry of a frame: where the next span inwards belongs."""

    __slots__ = ("context", "trace")

    def __init__(self, trace: Trace, context: Context) -> None:
        self.trace = trace
        self.context = context

    def advisor_span(self, step: Step) -> Clock:
        clock = start_span(self.trace.tracer, f"advisor {step.name}", self.context, self._describe(step))
        self.context = clock.context
        return clock

    def _describe(self, step: Step) -> dict[str, Any]:
        kind = type(step.advisor)
        return {
            "advisorchain.kind": "advisor",
            f"{_ADVISOR}.name": step.name,
            f"{_ADVISOR}.type": f"{kind.__module__}.{kind.__qualname__}",
            f"{_ADVISOR}.order": step.order,
            f"{_ADVISOR}.index": step.index,
            "advisorchain.chain.length": self.trace.length,
            "advisorchain.stream": self.trace.streaming,
            "openinference.span.kind": "CHAIN",
        }


class _Probe:
    """Stands in for one hook-only advisor for one entry: starts its span, times its hooks, ends the span with `done`."""

    def __init__(self, step: Step, entry: _Entry) -> None:
        self._step = step
        self._entry = entry
        self._clock: Clock | None = None
        self._asked = False
        self._request_changed = self._response_changed = False

    def watched(self) -> Step:
        """The step with its hooks replaced."""
        step = self._step.copy()
        step.before = self._before_async if step.before_async else self._before
        step.transform = self._transform if step.transform is not None else None
        if step.after is not None:
            step.after = self._after_async if step.after_async else self._after
        step.done = self._done_async if step.done_async else self._done
        return step

    def _started(self) -> Clock:
        self._clock = self._entry.advisor_span(self._step)
        return self._clock

    def _running(self) -> Clock:
        assert self._clock is not None  # `before` comes first
        return self._clock

    def _passed(self, request: ChatRequest, result: Any) -> Any:
        self._asked = isinstance(result, ChatRequest)
        self._request_changed = result is not request
        return result

    def _before(self, request: ChatRequest) -> Any:
        clock, before = self._started(), self._step.before
        if before is None:
            return self._passed(request, request)
        with clock.running():
            return self._passed(request, before(request))

    async def _before_async(self, request: ChatRequest) -> Any:
        clock, before = self._started(), self._step.before
        assert before is not None
        with clock.running():
            return self._passed(request, await before(request))

    def _transform(self, request: ChatRequest) -> Any:
        assert self._step.transform is not None
        with self._running().running():
            transform = self._step.transform(request)
        return None if transform is None else _TimedTransform(self._step.checked_transform(transform), self._running())

    def _after(self, request: ChatRequest, response: ChatResponse) -> Any:
        assert self._step.after is not None
        with self._running().running():
            result = self._step.after(request, response)
        self._response_changed = result is not response
        return result

    async def _after_async(self, request: ChatRequest, response: ChatResponse) -> Any:
        assert self._step.after is not None
        with self._running().running():
            result = await self._step.after(request, response)
        self._response_changed = result is not response
        return result

    def _done(self, request: ChatRequest, outcome: Outcome) -> Any:
        try:
            with self._running().running():
                result = None if self._step.done is None else self._step.done(request, outcome)
        except BaseException as error:
            self._end("error", error)
            raise
        self._end(outcome.status, outcome.error)
        return result

    async def _done_async(self, request: ChatRequest, outcome: Outcome) -> None:
        assert self._step.done is not None
        try:
            with self._running().running():
                await self._step.done(request, outcome)
        except BaseException as error:
            status = status_of(error, "cancelled")
            self._end(status, error if status == "error" else None)
            raise
        self._end(outcome.status, outcome.error)

    def _end(self, status: str, error: BaseException | None) -> None:
        clock = self._running()
        ended = {
            f"{_ADVISOR}.outcome": status,
            f"{_ADVISOR}.next_calls": int(self._asked),
            f"{_ADVISOR}.request_changed": self._asked and self._request_changed,
            f"{_ADVISOR}.response_changed": self._response_changed,
            f"{_ADVISOR}.self_duration": clock.seconds,
        }
        end_span(clock, ended, error)


class _TimedTransform:
    """A transform whose time counts as its advisor's own. Its span is not made current: that would cost more than it."""

    __slots__ = ("_clock", "_transform")

    def __init__(self, transform: Any, clock: Clock) -> None:
        self._transform = transform
        self._clock = clock

    def feed(self, text: str) -> str:
        started = perf_counter()
        try:
            return self._transform.feed(text)  # type: ignore[no-any-return]
        finally:
            self._clock.seconds += perf_counter() - started

    def flush(self) -> str:
        started = perf_counter()
        try:
            return self._transform.flush()  # type: ignore[no-any-return]
        finally:
            self._clock.seconds += perf_counter() - started


class _Watched:
    """A stream whose pulls run in a span. Counts its chunks, and the seconds until the first."""

    def __init__(self, items: AsyncIterator[Any], clock: Clock) -> None:
        self._items = items
        self.clock = clock
        self._chunks = 0
        self._first: float | None = None
        self._begun = perf_counter()

    @property
    def ag_running(self) -> bool:
        return bool(getattr(self._items, "ag_running", False))

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        with self.clock.running():
            item = await self._items.__anext__()
        if isinstance(item, ChatChunk | str):
            self._chunks += 1
            if self._first is None:
                self._first = perf_counter() - self._begun
        return item

    async def aclose(self) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None and not self.ag_running:
            with self.clock.running():
                await close()

    def measured(self, way: str) -> dict[str, Any]:
        return {
            f"advisorchain.stream.chunks_{way}": self._chunks,
            "advisorchain.stream.time_to_first_chunk": self._first,
        }


class _Counted:
    """The rest of a chain beneath an around advisor: how often it was asked, and the time that is not the advisor's own."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self.calls = 0
        self.seconds = 0.0
        self._clocks: list[Clock] = []

    @property
    def entry(self) -> Callable[[ChatRequest], Awaitable[ChatResponse]]:
        return self.call

    async def call(self, request: ChatRequest) -> ChatResponse:
        self.calls += 1
        started = perf_counter()
        try:
            return await self._inner.call(request)
        finally:
            self.seconds += perf_counter() - started

    async def stream(self, request: ChatRequest, opened: Opened) -> AsyncGenerator[StreamItem, None]:
        self.calls += 1
        async with aclosing(self._inner.stream(request, opened)) as items:
            while True:
                started = perf_counter()
                try:
                    item = await items.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    self.seconds += perf_counter() - started
                yield item


class _WatchedSource:
    """Stands in for a source for one entry: an around advisor's span, or the span of the model call."""

    def __init__(self, source: Source, entry: _Entry) -> None:
        self.name = source.name
        self._entry = entry
        self._clock: Clock | None = None
        self._stream: _Watched | None = None
        self._rest: _Counted | None = None
        self._run: Run | None = None
        if isinstance(source, AroundSource):
            self._rest = _Counted(source.inner)
            source = AroundSource(source.step, self._rest)
        self._source = source
        self.response = source.response
        self.item = source.item

    def _start(self, request: ChatRequest) -> Clock:
        if isinstance(self._source, AroundSource):
            return self._entry.advisor_span(self._source.step)
        assert isinstance(self._source, ModelSource)
        model, options = self._source.model, request.options
        name = options.model or model.name
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": model.provider,
            "gen_ai.request.model": name,
            "gen_ai.request.stream": True if self._entry.trace.streaming else None,
            "gen_ai.request.temperature": options.temperature,
            "gen_ai.request.top_p": options.top_p,
            "gen_ai.request.max_tokens": options.max_tokens,
            "gen_ai.request.seed": options.seed,
            "gen_ai.request.stop_sequences": list(options.stop) or None,
            "gen_ai.request.presence_penalty": options.presence_penalty,
            "gen_ai.request.frequency_penalty": options.frequency_penalty,
            "gen_ai.conversation.id": request.conversation_id,
        }
        return start_span(self._entry.trace.tracer, f"chat {name}", self._entry.context, attributes, client=True)

    async def call(self, request: ChatRequest) -> Any:
        self._clock = self._start(request)
        try:
            with self._clock.running():
                response = self._source.response(await self._source.call(request))
        except BaseException as error:
            self._fail(error, "cancelled")
            raise
        self._end("ok", response)
        return response

    def open(self, request: ChatRequest, run: Run) -> Opening:
        self._run = run
        self._clock = self._start(request)
        try:
            with self._clock.running():
                opening = self._source.open(request, run)
        except BaseException as error:
            self._fail(error, "closed")
            raise
        self._stream = _Watched(opening.items, self._clock)
        return Opening(_Ending(self._stream, self._fail, run), opening.inner)

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
        if clock is None:  # it has ended already
            return
        ended = self._stream.measured("in") if self._stream is not None else {}
        if self._rest is not None:
            ended[f"{_ADVISOR}.outcome"] = status
            ended[f"{_ADVISOR}.next_calls"] = self._rest.calls
            ended[f"{_ADVISOR}.self_duration"] = max(0.0, clock.seconds - self._rest.seconds)
        else:
            ended["advisorchain.outcome"] = status
            ended["gen_ai.response.time_to_first_chunk"] = ended.pop("advisorchain.stream.time_to_first_chunk", None)
            ended |= _answered(response) if response is not None else {}
        end_span(clock, ended, error)


def _answered(response: ChatResponse) -> dict[str, Any]:
    usage = response.usage
    return {
        "gen_ai.response.id": response.id,
        "gen_ai.response.model": response.model,
        "gen_ai.response.finish_reasons": [response.finish_reason] if response.finish_reason else None,
        "gen_ai.usage.input_tokens": usage.input_tokens if usage else None,
        "gen_ai.usage.output_tokens": usage.output_tokens if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens if usage else None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens if usage else None,
    }


class _Ending:
    """A watched stream that tells when it failed or was closed."""

    def __init__(self, stream: _Watched, fail: Callable[[BaseException, Left], None], run: Run) -> None:
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
