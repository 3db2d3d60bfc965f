"""Sources and streams that are watched: the spans of around advisors and of the model call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from advisorchain._run import Left, Run, status_of
from advisorchain._sources import AroundSource, Inner, ModelSource, Opened, Opening, Source
from advisorchain._steps import Step
from advisorchain.advisor import StreamItem
from advisorchain.aggregate import Fold
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.telemetry import Clock, Context, end_span, start_span

if TYPE_CHECKING:
    from advisorchain._trace import Trace

__all__ = ["ADVISOR", "Entry", "Watched", "WatchedSource"]

ADVISOR: Final = "advisorchain.advisor"


class Entry:
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
            f"{ADVISOR}.name": step.name,
            f"{ADVISOR}.type": f"{kind.__module__}.{kind.__qualname__}",
            f"{ADVISOR}.order": step.order,
            f"{ADVISOR}.index": step.index,
            "advisorchain.chain.length": self.trace.length,
            "advisorchain.stream": self.trace.streaming,
            "openinference.span.kind": "CHAIN",
        }


class Watched:
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

    def __aiter__(self) -> Watched:
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


class WatchedSource:
    """Stands in for a source for one entry: an around advisor's span, or the span of the model call."""

    def __init__(self, source: Source, entry: Entry) -> None:
        self.name = source.name
        self._entry = entry
        self._clock: Clock | None = None
        self._stream: Watched | None = None
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
        self._stream = Watched(opening.items, self._clock)
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
            ended[f"{ADVISOR}.outcome"] = status
            ended[f"{ADVISOR}.next_calls"] = self._rest.calls
            ended[f"{ADVISOR}.self_duration"] = max(0.0, clock.seconds - self._rest.seconds)
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
