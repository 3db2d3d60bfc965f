"""Nothing that OpenTelemetry, an exporter, a price list or our own content raises costs an answer; one record a kind."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from advisorchain import (
    AdvisorChain,
    BaseAdvisor,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Outcome,
    Telemetry,
    ToolCallChunk,
    Usage,
)
from advisorchain._telemetry.content import Capture
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.errors import StreamTextWarning
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._spans import CANARY, MODES, Hooks, Spans, Times, Upper, ask, chain, words


def own_events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "advisorchain"]


@MODES
@pytest.mark.parametrize("place", ["on_start", "on_end"])
async def test_a_span_processor_that_raises_costs_no_answer(mode: str, place: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(CANARY)

    processor, provider, done = SpanProcessor(), TracerProvider(shutdown_on_exit=False), []
    setattr(processor, place, fail)
    provider.add_span_processor(processor)

    class Hooked(BaseAdvisor):
        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            done.append(outcome.status)

    chain = AdvisorChain(words, [Hooked(), Times(1)], telemetry=Telemetry(provider))
    for _ in range(3):
        assert (await ask(chain, mode)).text == "one two"
    assert done == ["ok"] * 3
    told = [record for record in caplog.records if record.name == "advisorchain"]
    assert [record.getMessage() for record in told] == ["advisorchain.span.failed"]
    assert CANARY not in str([record.__dict__ for record in told])


class Broken:
    """Raises, whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError(CANARY)

        return fail


@MODES
async def test_B148_broken_tracers_exporters_and_values_change_nothing(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    class Own:
        """Cannot be serialised."""

        def __repr__(self) -> str:
            raise RuntimeError

    class Getting:
        """A provider whose tracers, meters and loggers raise."""

        def get_tracer(self, *_: Any) -> Any:
            return Broken()

        get_logger = get_tracer

        def get_meter(self, *_: Any) -> Any:
            return self

        def create_histogram(self, *_: Any, **__: Any) -> Any:
            return Broken()

        create_counter = create_histogram

    class Full(SpanExporter):
        def export(self, spans: Any) -> Any:
            raise OSError("full")

    def no_price(call: Any) -> float:
        raise KeyError(CANARY)

    broken: Any = Getting()
    first = Telemetry(broken, broken, logger_provider=broken, capture_content="SPAN_AND_EVENT", prices=no_price)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Full()))
    expected = await ask(AdvisorChain(words, [Hooks("a"), Times(2)], telemetry=None), mode, context={"own": Own()})
    chain = AdvisorChain(words, [Hooks("a"), Times(2)], telemetry=first)
    for _ in range(3):
        response = await ask(chain, mode, context={"own": Own()})
        assert (response.text, response.usage) == (expected.text, expected.usage)
    told = [record.getMessage() for record in caplog.records if record.name == "advisorchain"]
    kinds = [
        "advisorchain.cost.failed",
        "advisorchain.event.failed",
        "advisorchain.metric.failed",
        "advisorchain.span.failed",
    ]
    assert sorted(told) == kinds
    assert CANARY not in str([record.__dict__ for record in caplog.records])
    assert isinstance(response.context["own"], Own)


async def test_B148_a_broken_exporter_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Full(SpanExporter):
        def export(self, spans: Any) -> Any:
            raise OSError("full")

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Full()))
    chain = AdvisorChain(words, [Hooks("a")], telemetry=Telemetry(provider))
    assert (await chain.call("q")).text == "one two"
    assert not otel_trace.get_current_span().get_span_context().is_valid
    assert [record for record in caplog.records if record.name == "advisorchain"] == []
    caplog.clear()  # OpenTelemetry's own exporter has told of it


@MODES
async def test_a_provider_that_gives_no_tracer_costs_no_answer(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = Broken()
    asked = AdvisorChain(words, [Hooks("a")], telemetry=Telemetry(broken))
    for _ in range(3):
        assert (await ask(asked, mode)).text == "one two"
    assert own_events(caplog) == ["advisorchain.telemetry.failed"]


@MODES
async def test_content_that_cannot_be_made_costs_no_answer(
    mode: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RecursionError(CANARY)

    for name in ("asked", "input_value", "tool_result"):
        monkeypatch.setattr(Capture, name, fail)

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    spans = Spans(capture_content="SPAN_AND_EVENT", events=True)
    model = ScriptedModel(asks("look"), "done")
    asked = AdvisorChain(model, [ToolCallingAdvisor([look]), Hooks("in", 0)], telemetry=spans.telemetry)
    assert (await ask(asked, mode)).text == "done"
    assert own_events(caplog) == ["advisorchain.content.failed"]
    assert set(spans.outcomes().values()) == {"ok"}
    assert spans.events() == []


@MODES
async def test_a_counter_that_raises_costs_no_answer(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    class Meters:
        def get_meter(self, *_: Any) -> Any:
            return self

        def create_histogram(self, *_: Any, **__: Any) -> Any:
            return Broken()

        create_counter = create_histogram

    meters: Any = Meters()
    asked = AdvisorChain(words, telemetry=Telemetry(meter_provider=meters, prices=lambda call: 1.0))
    assert (await ask(asked, mode)).text == "one two"
    assert own_events(caplog) == ["advisorchain.metric.failed"]


@pytest.mark.parametrize("piece", [ChatChunk(tool_calls=(ToolCallChunk(0, "k"),)), ChatChunk("\ud83d")])
async def test_half_an_answer_that_makes_no_message_is_left_out(piece: ChatChunk) -> None:
    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk(usage=Usage(1, 1))
        yield piece
        raise LookupError

    spans = Spans(capture_content="SPAN_ONLY")
    with pytest.raises(LookupError):
        await ask(chain(spans, model), "stream")
    assert spans.outcomes()["chat model"] == "error"
    assert "gen_ai.output.messages" not in spans.told("chat model")
    assert "output.value" not in spans.told("advisor_chain demo")


@MODES
async def test_an_error_that_a_tool_raises_to_the_caller_is_told_once(mode: str) -> None:
    @tool
    async def breaks() -> str:
        """Break."""
        raise LookupError

    spans = Spans(record_exceptions=True)
    loop = ToolCallingAdvisor([breaks], on_error="raise")
    with pytest.raises(LookupError):
        await ask(AdvisorChain(ScriptedModel(asks("breaks")), [loop], telemetry=spans.telemetry), mode)
    assert [span.name for span in spans.all() if span.events] == ["execute_tool breaks"]


@MODES
@pytest.mark.parametrize("recorded", ["none", "spans", "exceptions"])
async def test_a_call_that_fails_leaves_nothing_for_the_garbage_collector(mode: str, recorded: str) -> None:
    """Neither with nor without telemetry: what an error's frames hold does not hold the error."""

    async def model(request: ChatRequest) -> str:
        raise LookupError("gone")

    spans = Spans(record_exceptions=recorded == "exceptions")
    telemetry = None if recorded == "none" else spans.telemetry
    asked = AdvisorChain(model, [Hooks("a"), Upper(), Times(1), Hooks("b", 9)], telemetry=telemetry)

    async def fail() -> None:
        with contextlib.suppress(LookupError):
            await ask(asked, mode)
        spans.exporter.clear()

    await fail()
    gc.collect()
    gc.freeze()  # so that what earlier tests have left is not looked through once more
    gc.disable()
    try:
        for _ in range(5):
            await fail()
        assert gc.collect() < 5
    finally:
        gc.enable()


@MODES
async def test_an_error_whose_text_cannot_be_made_ends_each_span(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    class UntellableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError(CANARY)

    async def model(request: ChatRequest) -> str:
        raise UntellableError

    spans = Spans(record_exceptions=True)
    with pytest.raises(UntellableError):
        await ask(AdvisorChain(model, [Hooks("a")], telemetry=spans.telemetry), mode)
    told = {span.name: str((span.attributes or {}).get("error.type")).rpartition(".")[2] for span in spans.all()}
    assert told == dict.fromkeys(("chat model", "advisor a", "advisor_chain chain"), "UntellableError")
    assert set(spans.outcomes().values()) == {"error"}


@MODES
async def test_a_recorded_call_leaves_nothing_for_the_garbage_collector(spans: Spans, mode: str) -> None:
    async def model(request: ChatRequest) -> str:
        return "fine"

    asked = AdvisorChain(model, [Hooks("a"), Upper(), Hooks("b", 2)], telemetry=spans.telemetry)
    await ask(asked, mode)
    gc.collect()
    gc.freeze()  # so that what earlier tests have left is not looked through once more
    gc.disable()
    try:
        for _ in range(5):
            await ask(asked, mode)
        left = gc.collect()
        await ask(AdvisorChain(model, [Hooks("a"), Upper(), Hooks("b", 2)], telemetry=None), mode)
        assert left <= gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not recorded"])
async def test_a_warning_points_at_who_reads_the_stream(spans: Spans, recorded: bool) -> None:
    class Late(BaseAdvisor):
        name = "late"

        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            return response.replace(message="something else")

    asked = AdvisorChain(words, [Times(1), Late()], telemetry=spans.telemetry if recorded else None)
    with pytest.warns(StreamTextWarning) as warned:
        await ask(asked, "stream")
    assert [Path(each.filename).name for each in warned] == ["_spans.py"]  # where `ask` is
