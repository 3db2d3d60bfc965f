"""How a run is recorded: the steps and the source of a frame are replaced by watched ones, and the frame runs as ever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from advisorchain._run import Run, status_of
from advisorchain._steps import Step
from advisorchain._watched import ADVISOR, Entry, Watched, WatchedSource
from advisorchain.advisor import Outcome
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.telemetry import Clock, Tracer, carrying, current_context, end_span, start_span

if TYPE_CHECKING:
    from advisorchain._frames import Frame

__all__ = ["Trace"]


class Trace:
    """One recorded call or stream: the chain's span, and what is needed to make the others."""

    def __init__(self, tracer: Tracer, chain: str, steps: Sequence[Step], request: ChatRequest, *, stream: bool) -> None:
        self.tracer: Final = tracer
        self.length: Final = len(steps)
        self.streaming: Final = stream
        self._parent = current_context()  # of the one who asks, not of the one who reads first
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
        parent = carrying(self._parent, self.tracer)  # for the spans that an advisor has within it: those of tools
        return start_span(self.tracer, self._name, parent, self._attributes)

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
        watched = Watched(items, self._start())
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
        entry = Entry(self, current_context())
        steps = tuple(_Probe(step, entry).watched() for step in frame.steps)
        return type(frame)(steps, WatchedSource(frame.source, entry), frame.voice)


class _Probe:
    """Stands in for one hook-only advisor for one entry: starts its span, times its hooks, ends the span with `done`."""

    def __init__(self, step: Step, entry: Entry) -> None:
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

    async def _done_async(self, request: ChatRequest, outcome: Outcome) -> Any:
        assert self._step.done is not None
        try:
            with self._running().running():
                result = await self._step.done(request, outcome)
        except BaseException as error:
            status = status_of(error, "cancelled")
            self._end(status, error if status == "error" else None)
            raise
        self._end(outcome.status, outcome.error)
        return result

    def _end(self, status: str, error: BaseException | None) -> None:
        clock = self._running()
        ended = {
            f"{ADVISOR}.outcome": status,
            f"{ADVISOR}.next_calls": int(self._asked),
            f"{ADVISOR}.request_changed": self._asked and self._request_changed,
            f"{ADVISOR}.response_changed": self._response_changed,
            f"{ADVISOR}.self_duration": clock.seconds,
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
