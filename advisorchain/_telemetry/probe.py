"""An advisor made of hooks, watched: its span begins with `before` and ends with `done`, and its hooks are timed."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from advisorchain import conventions as names
from advisorchain._chain.run import status_of
from advisorchain._chain.steps import Step
from advisorchain._telemetry.recorder import Clock
from advisorchain._telemetry.watched import Entry
from advisorchain.advisor import Outcome
from advisorchain.exchange import ChatRequest, ChatResponse

__all__ = ["Probe"]


class Probe(Step):
    """Stands in for one step for one entry."""

    __slots__ = ("_asked", "_clock", "_entry", "_received", "_request_changed", "_response_changed", "_step", "_text")

    def __init__(self, step: Step, entry: Entry) -> None:
        self._step = step
        self._entry = entry
        self._asked = self._request_changed = self._response_changed = False
        self._text: _TimedTransform | None = None
        self.advisor, self.name, self.order, self.index = step.advisor, step.name, step.order, step.index
        self.before_async, self.after_async, self.done_async = step.before_async, step.after_async, step.done_async
        self.around = self.advise_call = self.advise_stream = None

    # looked up when they are needed, not kept: what holds its own methods stays until a garbage collection

    @property
    def before(self) -> Callable[..., Any]:  # type: ignore[override]
        """Always there: the span begins with it."""
        return self._before_async if self._step.before_async else self._before

    @property
    def transform(self) -> Callable[..., Any] | None:  # type: ignore[override]
        """That of the step, if it has one."""
        return None if self._step.transform is None else self._transform

    @property
    def after(self) -> Callable[..., Any] | None:  # type: ignore[override]
        """That of the step, if it has one."""
        if self._step.after is None:
            return None
        return self._after_async if self._step.after_async else self._after

    @property
    def done(self) -> Callable[..., Any]:  # type: ignore[override]
        """Always there: the span ends with it."""
        return self._done_async if self._step.done_async else self._done

    def _started(self, request: ChatRequest) -> Clock:
        self._received = request
        self._clock = clock = self._entry.advisor_span(self._step, request)
        return clock

    def _passed(self, request: ChatRequest, result: Any) -> Any:
        self._asked = isinstance(result, ChatRequest)
        self._request_changed = self._asked and result is not request
        return result

    def _before(self, request: ChatRequest) -> Any:
        clock, before = self._started(request), self._step.before
        if before is None:
            self._asked = True
            return request
        with clock:
            result = before(request)
        return self._passed(request, result)

    async def _before_async(self, request: ChatRequest) -> Any:
        clock, before = self._started(request), self._step.before
        assert before is not None
        with clock:
            result = await before(request)
        return self._passed(request, result)

    def _transform(self, request: ChatRequest) -> Any:
        assert self._step.transform is not None
        with self._clock:
            transform = self._step.transform(request)
        if transform is None:
            return None
        self._text = _TimedTransform(self._step.checked_transform(transform), self._clock)
        return self._text

    def _after(self, request: ChatRequest, response: ChatResponse) -> Any:
        assert self._step.after is not None
        with self._clock:
            result = self._step.after(request, response)
        self._response_changed = result is not response
        return result

    async def _after_async(self, request: ChatRequest, response: ChatResponse) -> Any:
        assert self._step.after is not None
        with self._clock:
            result = await self._step.after(request, response)
        self._response_changed = result is not response
        return result

    def _done(self, request: ChatRequest, outcome: Outcome) -> Any:
        result, done = None, self._step.done
        if done is not None:
            try:
                with self._clock:
                    result = done(request, outcome)
            except BaseException as error:
                self._end("error", outcome, error)
                raise
        self._end(outcome.status, outcome, outcome.error)
        return result

    async def _done_async(self, request: ChatRequest, outcome: Outcome) -> Any:
        assert self._step.done is not None
        try:
            with self._clock:
                result = await self._step.done(request, outcome)
        except BaseException as error:
            status = status_of(error, "cancelled")
            self._end(status, outcome, error if status == "error" else None)
            raise
        self._end(outcome.status, outcome, outcome.error)
        return result

    def thrown_away(self) -> None:
        """Nobody will come to `done`."""
        self._end("cancelled", Outcome("cancelled"), None)

    def _end(self, status: str, outcome: Outcome, error: BaseException | None) -> None:
        clock, text = self._clock, self._text
        told: dict[str, Any] = {
            names.ADVISOR_NEXT_CALLS: int(self._asked),
            names.ADVISOR_REQUEST_CHANGED: self._request_changed,
            names.ADVISOR_RESPONSE_CHANGED: self._response_changed,
        }
        if text is not None:
            told[names.ADVISOR_RESPONSE_CHANGED] = self._response_changed or text.changed
            if self._entry.trace.streaming:
                told |= text.measured()
        told |= self._entry.content(clock, self._received, outcome.response)
        self._entry.advisor_ended(self._step, clock, status, clock.seconds, told, error)


class _TimedTransform:
    """A transform whose time counts as its advisor's own. Its span is not made current: that would cost more than it.

    A piece of text counts as a chunk.
    """

    __slots__ = ("_clock", "_first", "_in", "_out", "_transform", "changed")

    def __init__(self, transform: Any, clock: Clock) -> None:
        self._transform = transform
        self._clock = clock
        self._in = self._out = 0
        self._first: float | None = None
        self.changed = False

    def feed(self, text: str) -> str:
        started = perf_counter()
        try:
            left: str = self._transform.feed(text)
        finally:
            self._clock.seconds += perf_counter() - started
        self._in += 1
        self.changed = self.changed or left is not text
        return self._gave(left)

    def flush(self) -> str:
        started = perf_counter()
        try:
            left: str = self._transform.flush()
        finally:
            self._clock.seconds += perf_counter() - started
        return self._gave(left)

    def _gave(self, text: str) -> str:
        if text:
            self._out += 1
            if self._first is None:
                self._first = perf_counter() - self._clock.begun
        return text

    def measured(self) -> dict[str, Any]:
        """How many pieces came in and went out, and the seconds until the first."""
        told: dict[str, Any] = {names.CHUNKS_IN: self._in, names.CHUNKS_OUT: self._out}
        if self._first is not None:
            told[names.TIME_TO_FIRST_CHUNK] = self._first
        return told
