"""An advisor made of hooks, watched: its span begins with `before` and ends with `done`, and its hooks are timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from advisorchain import conventions as names
from advisorchain._chain.run import status_of
from advisorchain._chain.steps import Step
from advisorchain._telemetry import clock as clocks
from advisorchain._telemetry.clock import Clock
from advisorchain._telemetry.entry import Entry
from advisorchain.advisor import Outcome
from advisorchain.exchange import ChatRequest, ChatResponse

__all__ = ["Probe"]


class Probe(Step):
    """Stands in for one step for one entry."""

    __slots__ = ("_asked_rest", "_changed_request", "_changed_response", "_clock", "_entry", "_received", "_step", "_text")

    def __init__(self, step: Step, entry: Entry) -> None:
        self._step = step
        self._entry = entry
        self._asked_rest = self._changed_request = self._changed_response = False
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

    # -- each hook, as it is and where it is awaited

    def _before(self, request: ChatRequest) -> Any:
        clock, before = self._begin(request), self._step.before
        if before is None:
            self._asked_rest = True
            return request
        with clock.during("before"):
            result = before(request)
        return self._passed(request, result)

    async def _before_async(self, request: ChatRequest) -> Any:
        clock, before = self._begin(request), self._step.before
        assert before is not None
        with clock.during("before"):
            result = await before(request)
        return self._passed(request, result)

    def _transform(self, request: ChatRequest) -> Any:
        assert self._step.transform is not None
        with self._clock.during("transform"):
            transform = self._step.transform(request)
        self._entry.context = self._clock.context
        if transform is None:
            return None
        self._text = _TimedTransform(self._step.checked_transform(transform), self._clock)
        return self._text

    def _after(self, request: ChatRequest, response: ChatResponse) -> Any:
        assert self._step.after is not None
        with self._clock.during("after"):
            result = self._step.after(request, response)
        self._changed_response = result is not response
        return result

    async def _after_async(self, request: ChatRequest, response: ChatResponse) -> Any:
        assert self._step.after is not None
        with self._clock.during("after"):
            result = await self._step.after(request, response)
        self._changed_response = result is not response
        return result

    def _done(self, request: ChatRequest, outcome: Outcome) -> Any:
        result, done = None, self._step.done
        if done is not None:
            try:
                with self._clock.during("done"):
                    result = done(request, outcome)
            except BaseException as error:
                self._end("error", outcome, error)
                raise
        self._end(outcome.status, outcome, outcome.error)
        return result

    async def _done_async(self, request: ChatRequest, outcome: Outcome) -> Any:
        assert self._step.done is not None
        try:
            with self._clock.during("done"):
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

    # -- the span

    def _begin(self, request: ChatRequest) -> Clock:
        self._received = request
        self._clock = clock = self._entry.advisor_span(self._step, request)
        return clock

    def _passed(self, request: ChatRequest, result: Any) -> Any:
        self._entry.context = self._clock.context  # with what was attached in `before`, such as baggage
        self._asked_rest = isinstance(result, ChatRequest)
        self._changed_request = self._asked_rest and result is not request
        return result

    def _end(self, status: str, outcome: Outcome, error: BaseException | None) -> None:
        clock, text = self._clock, self._text
        told: dict[str, Any] = {
            names.ADVISOR_NEXT_CALLS: int(self._asked_rest),
            names.ADVISOR_REQUEST_CHANGED: self._changed_request,
            names.ADVISOR_RESPONSE_CHANGED: self._changed_response,
        }
        if text is not None:
            clock.worked("transform", text.seconds)
            if text.changed:
                told[names.ADVISOR_RESPONSE_CHANGED] = True
            if self._entry.trace.streaming:
                told |= text.measured()
        for hook, seconds in clock.hooks.items():
            told[names.HOOK_DURATIONS[hook]] = seconds
        if clock.failed_hook is not None:
            told[names.ADVISOR_FAILED_HOOK] = clock.failed_hook
        told |= self._entry.content(clock, self._received, outcome.response)
        self._entry.advisor_ended(self._step, clock, status, clock.seconds, told, error)


class _TimedTransform:
    """A transform whose time counts as its advisor's own. Its span is not made current: that would cost more than it.

    A piece of text counts as a chunk.
    """

    __slots__ = ("_clock", "_feed", "_first", "_flush", "_in", "_out", "changed", "seconds")

    def __init__(self, transform: Any, clock: Clock) -> None:
        self._feed: Callable[[str], str] = transform.feed
        self._flush: Callable[[], str] = transform.flush
        self._clock = clock
        self._in = self._out = 0
        self._first: float | None = None
        self.changed = False
        self.seconds = 0.0

    def feed(self, text: str) -> str:
        self._in += 1
        started = clocks.now()
        try:
            left = self._feed(text)
        except Exception:
            self._clock.failed_hook = "transform"
            raise
        finally:
            self.seconds += clocks.now() - started
        if left is not text:
            self.changed = True
        return self._gave(left)

    def flush(self) -> str:
        started = clocks.now()
        try:
            left = self._flush()
        except Exception:
            self._clock.failed_hook = "transform"
            raise
        finally:
            self.seconds += clocks.now() - started
        return self._gave(left)

    def _gave(self, text: str) -> str:
        if text:
            self._out += 1
            if self._first is None:
                self._first = self._clock.age
        return text

    def measured(self) -> dict[str, Any]:
        """How many pieces came in and went out, and the seconds until the first."""
        told: dict[str, Any] = {names.CHUNKS_IN: self._in, names.CHUNKS_OUT: self._out}
        if self._first is not None:
            told[names.TIME_TO_FIRST_CHUNK] = self._first
        return told
