"""How a run is recorded: the steps and the source of a frame are replaced by watched ones, and the frame runs as ever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from advisorchain import conventions as names
from advisorchain._chain.run import Run, status_of
from advisorchain._chain.sources import AroundSource, ModelSource, Opened, Source
from advisorchain._chain.steps import Step
from advisorchain._telemetry.around_span import WatchedAround
from advisorchain._telemetry.clock import Clock, current_context
from advisorchain._telemetry.content import as_json
from advisorchain._telemetry.entry import Entry
from advisorchain._telemetry.labels import ChainLabels
from advisorchain._telemetry.model_span import CarriedModel, WatchedModel
from advisorchain._telemetry.probe import Probe
from advisorchain._telemetry.recorder import Recorder, Recording, carrying, error_type
from advisorchain._telemetry.watched import Watched
from advisorchain.exchange import ChatRequest, ChatResponse

if TYPE_CHECKING:
    from advisorchain._chain.frames import Frame

__all__ = ["Trace"]


class Trace(Recording):
    """One recorded call or stream: the chain's span, and what is needed to make the others.

    Attributes:
        labels: what is known of the spans already.
        streaming: whether it is a stream.
        span_capture: makes content for spans; None: spans tell none.
    """

    def __init__(self, recorder: Recorder, labels: ChainLabels, request: ChatRequest, *, stream: bool) -> None:
        super().__init__(recorder, request.conversation_id)
        self.labels: Final = labels
        self.streaming: Final = stream
        self._model: Final = request.options.model or labels.asks
        self.span_capture: Final = self.capture if recorder.settings.content_on_spans else None
        self._request: ChatRequest | None = request if self.span_capture is not None else None
        self._parent = current_context()  # of the one who asks, not of the one who reads first

    def _start(self) -> Clock:
        attributes = self.labels.attributes[self.streaming]
        if self.conversation_id is not None:
            attributes = {**attributes, names.CONVERSATION_ID: self.conversation_id}
        if self.labels.agent is not None:
            attributes = {**attributes, names.REQUEST_MODEL: self._model}
        parent = carrying(self._parent, self)  # for the spans that an advisor has within it: those of tools
        return self.recorder.start(self.labels.name, parent, attributes, links=self.labels.links)

    async def call(self, entry: Callable[[ChatRequest], Awaitable[ChatResponse]], request: ChatRequest) -> ChatResponse:
        """Run a call in the chain's span."""
        clock, error, response = self._start(), None, None
        status = "ok"
        try:
            with clock:
                response = await entry(request)
            return response
        except BaseException as raised:
            status = status_of(raised, "cancelled")
            error = raised if status == "error" else None
            raise
        finally:
            self._end(clock, status, {}, response, error)
            error = None  # which holds this frame

    async def stream(self, items: AsyncGenerator[Any, None], opened: Opened, run: Run) -> AsyncGenerator[Any, None]:
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
            told = {**watched.measured(), names.READER_DURATION: watched.clock.idle}
            self._end(watched.clock, status, told, self._seen(opened), error)
            error = None  # which holds this frame

    def _seen(self, opened: Opened) -> ChatResponse | None:
        """What has left the chain, if it is wanted."""
        if opened.response is not None or self.span_capture is None or opened.progress is None:
            return opened.response
        try:
            return opened.progress.partial(0)
        except Exception:  # what there is makes no message
            return None

    def _end(
        self, clock: Clock, status: str, told: dict[str, Any], response: ChatResponse | None, error: BaseException | None
    ) -> None:
        told[names.OUTCOME] = status
        if self.recorder.settings.prices is not None and self.cost:
            told[names.COST] = self.cost
        request, self._request = self._request, None
        if request is not None and clock.span.is_recording():
            told |= self._content(request, response)
        self._measure(clock, status, {} if error is None else {names.ERROR_TYPE: error_type(error)})
        self.recorder.end(clock, told, error)
        self.told = None  # an error, whose frames hold this

    def _measure(self, clock: Clock, status: str, failed: dict[str, str]) -> None:
        instruments, measure = self.recorder.instruments, self.recorder.measure
        if instruments is None:
            return
        seconds = clock.age
        measure(instruments.chain, seconds, {**self.labels.measured[self.streaming], names.OUTCOME: status, **failed}, clock)
        if self.labels.agent is not None:
            agent = {names.AGENT_NAME: self.labels.agent}
            measure(instruments.agent, seconds, {**agent, names.REQUEST_MODEL: self._model, **failed}, clock)
            measure(instruments.inference_calls, self.inference_calls, agent, clock)
            measure(instruments.tool_calls, self.tool_calls, agent, clock)

    def _content(self, request: ChatRequest, response: ChatResponse | None) -> dict[str, str]:
        capture = self.span_capture
        assert capture is not None
        try:
            said = {**capture.asked(request), **capture.answered(response)}
            told = {name: as_json(value) for name, value in said.items()}
            if self.recorder.settings.openinference:
                told |= {**capture.input_value(request.messages), **capture.output_value(response)}
        except Exception as failure:
            self.recorder.failed("content", failure)
            return {}
        return told

    def observed(self, frame: Frame, attempt: int = 1) -> Frame:
        """A frame like this one, watched, for one entry; `attempt` is the how manieth it is in its round."""
        if frame.watched:
            return frame
        entry = Entry(self, current_context(), attempt)
        steps = [Probe(step, entry) for step in frame.steps]
        return type(frame)(steps, self._watching(frame.source, entry), frame.voice, watched=True)

    def thrown_away(self, entered: Sequence[Step]) -> None:
        """End the spans of advisors of a call whose coroutine was closed: no `done` can run any more."""
        for step in reversed(entered):
            if isinstance(step, Probe):
                step.thrown_away()

    def _watching(self, source: Source, entry: Entry) -> Source:
        if isinstance(source, AroundSource):
            return WatchedAround(source, entry)
        if isinstance(source, ModelSource):
            return WatchedModel(source, entry) if self.recorder.settings.model_span else CarriedModel(source, entry)
        return source
