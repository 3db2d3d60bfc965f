"""One entry of a frame: where the spans of its advisors begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisorchain import conventions as names
from advisorchain._chain.steps import Step
from advisorchain._telemetry.clock import Clock, Context
from advisorchain._telemetry.recorder import error_type
from advisorchain.exchange import ChatRequest, ChatResponse

if TYPE_CHECKING:
    from advisorchain._telemetry.trace import Trace

__all__ = ["Entry"]


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
            recorder.measure(instruments.advisor, clock.age, ended, clock)
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
