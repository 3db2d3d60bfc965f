"""Spans, metrics and events of one Telemetry, and how they stand in OpenTelemetry's context.

A stream never holds a context across a `yield`: a span is current only while its clock runs, which is for one pull or one
hook, so that nothing leaks into the reader and closing in another task is safe. Nothing that OpenTelemetry raises, such as
a span processor's error, reaches an application; of each kind one is logged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from traceback import format_exception
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from advisorchain import conventions as names
from advisorchain._telemetry.clock import Clock, Context
from advisorchain._telemetry.content import Capture
from advisorchain._telemetry.log import SCOPE, recording_failed
from advisorchain._telemetry.metrics import Instruments
from advisorchain._telemetry.settings import Settings

__all__ = [
    "Recorder",
    "Recording",
    "carrying",
    "claiming_model_calls",
    "current_traceparent",
    "error_type",
    "linked",
    "recording_in",
]

_RECORDING: Final = otel_context.create_key(SCOPE)


class Recorder:
    """Records for one Telemetry. `tracer`, `instruments` and `logger` are None where nobody wants spans, metrics, events."""

    def __init__(self, tracer: Tracer | None, meter: Any, logger: Any, settings: Settings) -> None:
        self.tracer: Final = tracer
        self.settings: Final = settings
        self.instruments: Final = None if meter is None else Instruments(meter)
        self.logger: Final[Any] = logger
        self.content_on_events: Final = logger is not None and settings.content_on_events
        self._failed: set[tuple[str, type[Exception]]] = set()

    def capture(self) -> Capture | None:
        """What makes content for one call or stream; None: no content is told."""
        on_spans = self.settings.content_on_spans and self.tracer is not None
        return Capture(self.settings.content_limit) if on_spans or self.content_on_events else None

    def start(
        self,
        name: str,
        parent: Context,
        attributes: Mapping[str, Any],
        *,
        client: bool = False,
        links: Sequence[Link] = (),
    ) -> Clock:
        """Start a span beneath `parent`."""
        if self.tracer is None:
            return Clock(parent)
        kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        try:
            span = self.tracer.start_span(name, parent, kind, attributes, links)
        except Exception as error:  # of a span processor: OpenTelemetry lets it through
            self.failed("span", error)
            return Clock(parent)
        return Clock(otel_trace.set_span_in_context(span, parent), span)

    def end(self, clock: Clock, attributes: dict[str, Any], error: BaseException | None = None) -> None:
        """End a span. Of an error only the type is told: its text may hold what a user wrote."""
        span = clock.span
        try:
            try:
                if span.is_recording():
                    self._tell(clock, attributes, error)
            finally:
                span.end()
        except Exception as failure:
            self.failed("span", failure)

    def _tell(self, clock: Clock, attributes: dict[str, Any], error: BaseException | None) -> None:
        if error is not None:
            attributes[names.ERROR_TYPE] = kind = error_type(error)
            clock.span.set_status(Status(StatusCode.ERROR, kind))
        clock.span.set_attributes(attributes)
        if error is not None:
            self._told_once(clock, error)

    def _told_once(self, clock: Clock, error: BaseException) -> None:
        """Tell message and stack trace where that is wanted, on the span in which the error began: the first to end."""
        if not self.settings.record_exceptions:
            return
        recording = recording_in(clock.context)
        if recording is None or recording.told is not error:
            clock.span.record_exception(error)
        if recording is not None:
            recording.told = error

    def event(self, name: str, clock: Clock, attributes: Mapping[str, Any], severity: SeverityNumber | None = None) -> None:
        """Emit an event within a span."""
        record = LogRecord(context=clock.context, event_name=name, severity_number=severity, attributes=attributes)
        try:
            self.logger.emit(record)
        except Exception as failure:
            self.failed("event", failure)

    def exception(self, clock: Clock, error: BaseException) -> None:
        """Emit the event of a model call that failed: its type, and the rest where that is wanted."""
        if self.logger is None:
            return
        told = {names.EXCEPTION_TYPE: error_type(error)}
        if self.settings.record_exceptions:
            told[names.EXCEPTION_MESSAGE] = str(error)
            told[names.EXCEPTION_STACKTRACE] = "".join(format_exception(error))
        self.event(names.OPERATION_EXCEPTION, clock, told, SeverityNumber.WARN)

    def measure(self, instrument: Any, value: float, attributes: Mapping[str, Any], clock: Clock) -> None:
        """Record one value."""
        try:
            instrument.record(value, attributes, context=clock.context)
        except Exception as failure:
            self.failed("metric", failure)

    def add(self, counter: Any, value: float, attributes: Mapping[str, Any], clock: Clock) -> None:
        """Count."""
        try:
            counter.add(value, attributes, context=clock.context)
        except Exception as failure:
            self.failed("metric", failure)

    def failed(self, what: str, error: Exception) -> None:
        """Log that something could not be told, once a kind: each call would say the same."""
        if (what, type(error)) not in self._failed:
            self._failed.add((what, type(error)))
            recording_failed(what, error)


class Recording:
    """One call or stream that is recorded, as those see it who have something to tell within it: tools, memories.

    Attributes:
        recorder: where it is told.
        conversation_id: of the request that the chain was asked.
        capture: makes content; None: none is told.
        told: the error whose stack trace was recorded last.
        inference_calls, tool_calls: how many there were so far.
        cost: what the model calls have cost so far; None: one of them is not known.
    """

    def __init__(self, recorder: Recorder, conversation_id: str | None) -> None:
        self.recorder: Final = recorder
        self.conversation_id: Final = conversation_id
        self.capture: Final = recorder.capture()
        self.told: BaseException | None = None
        self.cost: float | None = 0.0
        self.inference_calls = self.tool_calls = 0


def error_type(error: BaseException) -> str:
    """The class of an error, with its module unless that is Python's own."""
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def carrying(context: Context, recording: Recording | None) -> Context:
    """`context`, in which a tool or memory finds the recording that it runs in; None: it finds none."""
    return otel_context.set_value(_RECORDING, recording, context)


def recording_in(context: Context) -> Recording | None:
    """What is recorded in `context`; None: nothing is."""
    return context.get(_RECORDING)  # type: ignore[return-value]


def current_traceparent() -> str | None:
    """The current span in the words of W3C Trace Context, for a link from another trace; None: there is none."""
    span = otel_trace.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None


def linked(traceparent: object) -> tuple[Link, ...]:
    """A link to a span that `current_traceparent` told of, maybe in another process; none, if it is not one."""
    if not isinstance(traceparent, str):
        return ()
    try:
        trace_id, span_id, flags = (int(part, 16) for part in traceparent.split("-")[1:4])
    except ValueError:
        return ()
    span = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return (Link(span),) if span.is_valid else ()


def claiming_model_calls(context: Context) -> Context:
    """`context`, in which a provider SDK's own instrumentation sees that the model call in it is recorded already."""
    claimed = otel_context.set_value(names.OPENLLMETRY_SUPPRESS, True, context)
    kind = getattr(sys.modules.get(names.UTIL_GENAI_MODULE), "InferenceData", None)  # there if anyone uses it
    if kind is None:
        return claimed
    try:
        return otel_context.set_value(names.UTIL_GENAI_CLIENT, kind(), claimed)
    except Exception:  # another version, in which it is made otherwise
        return claimed
