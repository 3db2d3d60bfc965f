"""The span, metrics and event of a model call."""

from __future__ import annotations

from math import isfinite
from typing import Any

from advisorchain import conventions as names
from advisorchain._chain.sources import ModelSource
from advisorchain._telemetry.clock import Clock
from advisorchain._telemetry.content import as_json
from advisorchain._telemetry.entry import Entry
from advisorchain._telemetry.labels import model_attributes
from advisorchain._telemetry.recorder import claiming_model_calls, error_type
from advisorchain._telemetry.watched import See, WatchedSource
from advisorchain.aggregate import Fold
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.messages import Usage
from advisorchain.telemetry import PricedCall

__all__ = ["CarriedModel", "WatchedModel"]


class CarriedModel(WatchedSource):
    """The model where its calls have no span of ours: it is asked within that of the advisor around it."""

    def start(self, request: ChatRequest) -> Clock:
        self.entry.trace.inference_calls += 1
        return Clock(self.entry.context)

    def end(self, clock: Clock, status: str, response: ChatResponse | None, error: BaseException | None) -> None:
        """There is none."""


class WatchedModel(WatchedSource):
    """The model, for one call."""

    def __init__(self, source: ModelSource, entry: Entry) -> None:
        super().__init__(source, entry)
        self._model = source.model
        self._name = source.model.name
        self._asked: dict[str, Any] = {}
        self._fold: Fold | None = None  # of a stream, for one that does not come to its end

    def start(self, request: ChatRequest) -> Clock:
        trace = self.entry.trace
        trace.inference_calls += 1
        self._name = request.options.model or self._model.name
        self._asked = told = model_attributes(trace.labels, request, self._name, stream=trace.streaming)
        if self.entry.attempt > 1:
            told[names.ATTEMPT] = self.entry.attempt
        local = self._model.in_process
        clock = trace.recorder.start(f"{names.CHAT} {self._name}", self.entry.context, told, client=not local)
        clock.context = claiming_model_calls(clock.context)
        return clock

    def see(self, clock: Clock) -> See | None:
        trace = self.entry.trace
        self._fold = fold = Fold()
        instruments, whole = trace.recorder.instruments, trace.capture is not None
        if instruments is None:
            return lambda chunk, _: _keep(fold, chunk, whole)
        measure, attributes = trace.recorder.measure, self._measured(None)

        def seen(chunk: Any, since: float | None) -> None:
            _keep(fold, chunk, whole)
            if since is not None:
                measure(instruments.next_chunk, since, attributes, clock)

        return seen

    def end(self, clock: Clock, status: str, response: ChatResponse | None, error: BaseException | None) -> None:
        recorder = self.entry.trace.recorder
        if response is None and self._fold is not None:
            response = _so_far(self._fold)
        if recorder.instruments is not None:
            self._measure(clock, response, error)
        told = {names.OUTCOME: status, **self._answered(response)}
        if (cost := self._cost(clock, response)) is not None:
            told[names.COST] = cost
        if self.stream is not None:
            told |= {names.CHUNKS_OUT: self.stream.chunks, names.AWAITED_DURATION: clock.seconds}
            if self.stream.first is not None:
                told[names.RESPONSE_TIME_TO_FIRST_CHUNK] = self.stream.first
        if self.entry.trace.capture is not None:
            told |= self._content(clock, told, response, error)
        if error is not None:
            recorder.exception(clock, error)
        recorder.end(clock, told, error)

    def _answered(self, response: ChatResponse | None) -> dict[str, Any]:
        if response is None:
            return {}
        told = {
            names.RESPONSE_ID: response.id,
            names.RESPONSE_MODEL: response.model,
            names.RESPONSE_FINISH_REASONS: [response.finish_reason] if response.finish_reason else None,
            **_counted(response.usage),
        }
        return {key: value for key, value in told.items() if value is not None}

    def _cost(self, clock: Clock, response: ChatResponse | None) -> float | None:
        """What it cost, where that is asked for and known: it is never guessed."""
        trace = self.entry.trace
        prices = trace.recorder.settings.prices
        if prices is None:
            return None
        cost: float | None = None
        if response is not None and response.usage is not None:
            call = PricedCall(self._model.provider, response.model or self._name, response.usage, self._model.server_address)
            try:
                cost = _dollars(prices(call))
            except Exception as error:
                trace.recorder.failed("cost", error)
        trace.cost = None if cost is None or trace.cost is None else trace.cost + cost
        if cost is not None and (instruments := trace.recorder.instruments) is not None:
            trace.recorder.add(instruments.cost, cost, self._measured(response), clock)
        return cost

    def _content(
        self, clock: Clock, told: dict[str, Any], response: ChatResponse | None, error: BaseException | None
    ) -> dict[str, str]:
        """What was said: an event where that is wanted, and what is to be on the span."""
        trace = self.entry.trace
        recorder = trace.recorder
        if trace.capture is None or self.request is None:
            return {}
        on_span = trace.span_capture is not None and clock.span.is_recording()
        if not on_span and not recorder.content_on_events:
            return {}
        try:
            said = {**trace.capture.asked(self.request), **trace.capture.answered(response)}
            on_spans = {name: as_json(value) for name, value in said.items()} if on_span else {}
        except Exception as failure:
            recorder.failed("content", failure)
            return {}
        if recorder.content_on_events:
            failed = {} if error is None else {names.ERROR_TYPE: error_type(error)}
            recorder.event(names.INFERENCE_DETAILS, clock, {**self._asked, **told, **failed, **said})
        return on_spans

    def _measured(self, response: ChatResponse | None) -> dict[str, Any]:
        told = {key: self._asked[key] for key in _MEASURED if key in self._asked}
        if response is not None and response.model is not None:
            told[names.RESPONSE_MODEL] = response.model
        return told

    def _measure(self, clock: Clock, response: ChatResponse | None, error: BaseException | None) -> None:
        recorder = self.entry.trace.recorder
        instruments = recorder.instruments
        assert instruments is not None
        told = self._measured(response)
        if self.stream is not None and self.stream.first is not None:
            recorder.measure(instruments.first_chunk, self.stream.first, told, clock)
        if response is not None:
            for kind, count in _tokens(response.usage):
                recorder.measure(instruments.tokens, count, {**told, names.TOKEN_TYPE: kind}, clock)
        if error is not None:
            told[names.ERROR_TYPE] = error_type(error)
        recorder.measure(instruments.model, clock.age, told, clock)


_MEASURED = (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.SERVER_ADDRESS, names.SERVER_PORT)


def _keep(fold: Fold, chunk: Any, whole: bool) -> None:
    """Keep of a chunk what is told of an answer that does not come to its end: without its text, unless content is."""
    if isinstance(chunk, str):
        if whole:
            fold.text.append(chunk)
    elif whole or not chunk.plain:
        fold.add(chunk)


def _so_far(fold: Fold) -> ChatResponse | None:
    if fold.empty:
        return None
    try:
        return fold.response()
    except Exception:  # half a tool call, say
        return None


def _counted(usage: Usage | None) -> dict[str, int | None]:
    if usage is None:
        return {}
    return {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cached_tokens,
        names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        names.CACHE_CREATION_TOKENS: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
    }


def _tokens(usage: Usage | None) -> list[tuple[str, int]]:
    told = [] if usage is None else [("input", usage.input_tokens), ("output", usage.output_tokens)]
    return [(kind, count) for kind, count in told if count is not None]


def _dollars(price: Any) -> float | None:
    """What an application's function said, as a number that can be summed up and sent."""
    cost = None if price is None else float(price)
    if cost is not None and not isfinite(cost):
        raise ValueError(f"the price of a call is {cost}, which is no number of dollars")
    return cost
