"""Metrics: names, units, boundaries and attributes; also without spans, and nothing that would make too many series."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from advisorchain import (
    AdvisorChain,
    BaseAdvisor,
    ChatChunk,
    ChatOptions,
    ChatRequest,
    Telemetry,
    TextTransform,
    Usage,
    conventions,
)
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._spans import MODES, Endless, Hooks, Spans, Times, ask, chain
from ._time import Time

SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]


@pytest.fixture
def spans() -> Spans:
    return Spans(metrics=True)


def by(points: list[Any], key: str) -> dict[Any, Any]:
    """The points by one of their attributes."""
    return {point.attributes[key]: point for point in points}


@MODES
async def test_a_chain_and_its_advisors_are_measured(spans: Spans, mode: str) -> None:
    for _ in range(2):
        await ask(chain(spans, words_of(2)), mode, conversation_id="c")
    stream = mode == "stream"
    (point,) = spans.points("advisorchain.chain.duration")
    assert dict(point.attributes) == {
        "advisorchain.chain.name": "demo",
        "advisorchain.stream": stream,
        "advisorchain.outcome": "ok",
    }
    assert (point.count, list(point.explicit_bounds)) == (2, SECONDS)
    advisors = by(spans.points("advisorchain.advisor.duration"), "advisorchain.advisor.name")
    assert set(advisors) == {"a", "upper", "b"}
    assert dict(advisors["a"].attributes) == {
        "advisorchain.chain.name": "demo",
        "advisorchain.advisor.name": "a",
        "advisorchain.stream": stream,
        "advisorchain.outcome": "ok",
    }
    assert list(advisors["a"].explicit_bounds) == SECONDS
    own = by(spans.points("advisorchain.advisor.self_duration"), "advisorchain.advisor.name")
    assert set(own["a"].attributes) == {"advisorchain.chain.name", "advisorchain.advisor.name", "advisorchain.stream"}
    assert list(own["a"].explicit_bounds) == [0.0001 * 4**power for power in range(10)]
    assert own["a"].sum <= advisors["a"].sum


def words_of(count: int) -> Any:
    async def words(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        for place in range(count):
            yield ChatChunk("word ", usage=Usage(3, 2) if place == count - 1 else None)

    return words


@MODES
async def test_a_model_call_is_measured(spans: Spans, mode: str) -> None:
    class Remote:
        name, provider, server_address, server_port = "m", "openai", "api.example", 443
        stream = staticmethod(words_of(3))

    await ask(AdvisorChain(Remote(), telemetry=spans.telemetry), mode)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "server.address": "api.example",
        "server.port": 443,
    }
    (point,) = spans.points("gen_ai.client.operation.duration")
    assert dict(point.attributes) == expected
    assert list(point.explicit_bounds) == SECONDS
    tokens = by(spans.points("gen_ai.client.token.usage"), "gen_ai.token.type")
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 3, "output": 2}
    assert list(tokens["input"].explicit_bounds) == TOKENS
    first = spans.points("gen_ai.client.operation.time_to_first_chunk")
    more = spans.points("gen_ai.client.operation.time_per_output_chunk")
    assert [point.count for point in first] == ([1] if mode == "stream" else [])
    assert [point.count for point in more] == ([2] if mode == "stream" else [])
    for point in (*first, *more):
        assert dict(point.attributes) == expected
        assert list(point.explicit_bounds) == SECONDS


@MODES
async def test_units(spans: Spans, mode: str) -> None:
    await ask(chain(spans, words_of(2)), mode)
    data = spans.reader.get_metrics_data()
    assert data is not None
    units = {
        metric.name: metric.unit for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics
    }
    assert units.pop("gen_ai.client.token.usage") == "{token}"
    assert set(units.values()) == {"s"}
    (scope,) = [scope for one in data.resource_metrics for scope in one.scope_metrics]
    assert scope.scope.name == "advisorchain"


@MODES
async def test_errors_and_leaving_have_their_outcome(spans: Spans, mode: str) -> None:
    async def failing(request: ChatRequest) -> str:
        raise LookupError

    with pytest.raises(LookupError):
        await ask(chain(spans, failing), mode)
    (point,) = spans.points("advisorchain.chain.duration")
    assert point.attributes["advisorchain.outcome"] == "error"
    assert point.attributes["error.type"] == "LookupError"
    (point,) = spans.points("gen_ai.client.operation.duration")
    assert point.attributes["error.type"] == "LookupError"
    assert {point.attributes["error.type"] for point in spans.points("advisorchain.advisor.duration")} == {"LookupError"}


async def test_a_stream_that_is_left_is_measured_once(spans: Spans) -> None:
    async with chain(spans, Endless(), Times(1), Hooks("c", 6)).stream("hi") as stream:
        await anext(aiter(stream))
    for name in ("advisorchain.chain.duration", "advisorchain.advisor.duration"):
        points = spans.points(name)
        assert {point.attributes["advisorchain.outcome"] for point in points} == {"closed"}
        assert {point.count for point in points} == {1}
    assert [point.count for point in spans.points("gen_ai.client.operation.duration")] == [1]


@MODES
async def test_the_time_of_a_chunk_is_the_models_alone(spans: Spans, mode: str, time: Time) -> None:
    async def slow(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        for _ in range(4):
            time.passes(1)
            yield ChatChunk("word ")

    class Slow(BaseAdvisor):
        name = "slow"

        def transform(self, request: ChatRequest) -> TextTransform:
            return _SlowText()

    class _SlowText:
        def feed(self, text: str) -> str:
            time.passes(8)
            return text

        def flush(self) -> str:
            return ""

    asked = AdvisorChain(slow, [Slow(), Times(1)], telemetry=spans.telemetry)
    if mode == "call":
        await asked.call("q")
        assert spans.points("gen_ai.client.operation.time_per_output_chunk") == []
        return
    async with asked.stream("q") as stream:
        async for _ in stream:
            time.passes(64)
    (point,) = spans.points("gen_ai.client.operation.time_per_output_chunk")
    assert (point.count, point.sum) == (3, 3)
    (point,) = spans.points("gen_ai.client.operation.time_to_first_chunk")
    assert (point.count, point.sum) == (1, 1)
    (point,) = spans.points("gen_ai.client.operation.duration")  # until it was fully received
    assert point.sum == 4 * (1 + 8 + 64)


@MODES
async def test_tools_and_agents_are_measured(mode: str, time: Time) -> None:
    spans = Spans(metrics=True, agent_name="support")

    @tool
    async def look() -> str:
        """Look."""
        time.passes(2)
        return "seen"

    @tool
    async def breaks() -> str:
        """Break."""
        raise LookupError

    model = ScriptedModel(asks("look", "breaks"), "done")
    await ask(AdvisorChain(model, [ToolCallingAdvisor([look, breaks])], telemetry=spans.telemetry), mode)
    points = by(spans.points("gen_ai.execute_tool.duration"), "gen_ai.tool.name")
    told = {"gen_ai.tool.type": "function", "gen_ai.agent.name": "support"}
    assert dict(points["look"].attributes) == {"gen_ai.tool.name": "look", **told}
    assert dict(points["breaks"].attributes) == {"gen_ai.tool.name": "breaks", **told, "error.type": "LookupError"}
    assert points["look"].sum == 2
    assert list(points["look"].explicit_bounds) == SECONDS
    (point,) = spans.points("gen_ai.invoke_agent.duration")
    assert dict(point.attributes) == {"gen_ai.agent.name": "support", "gen_ai.request.model": "scripted"}
    assert list(point.explicit_bounds) == list(conventions.AGENT_SECONDS)
    for name in ("inference_calls", "tool_calls"):
        (point,) = spans.points(f"gen_ai.invoke_agent.{name}")
        assert (point.count, point.sum, dict(point.attributes)) == (1, 2, {"gen_ai.agent.name": "support"})
        assert list(point.explicit_bounds) == [1, 2, 4, 8, 16, 32, 64, 128]


@MODES
@pytest.mark.parametrize("model_span", [True, False])
async def test_an_agents_model_calls_are_counted_whoever_tells_of_them(mode: str, model_span: bool) -> None:
    spans = Spans(metrics=True, agent_name="support", model_span=model_span)
    await ask(AdvisorChain(words_of(2), [Times(3)], telemetry=spans.telemetry), mode, options=ChatOptions(model="m-2"))
    (point,) = spans.points("gen_ai.invoke_agent.inference_calls")
    assert point.sum == 3
    (point,) = spans.points("gen_ai.invoke_agent.tool_calls")
    assert point.sum == 0
    (point,) = spans.points("gen_ai.invoke_agent.duration")
    assert point.attributes["gen_ai.request.model"] == "m-2"


async def test_a_chain_that_is_no_agent_has_no_agents_metrics(spans: Spans) -> None:
    await chain(spans).call("q")
    assert [name for name in spans.metrics() if "invoke_agent" in name] == []


@MODES
async def test_metrics_need_no_spans(mode: str) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    spans = Spans()
    spans.reader = reader

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(asks("look"), "done")
    asked = AdvisorChain(model, [ToolCallingAdvisor([look])], telemetry=Telemetry(meter_provider=meters))
    await ask(asked, mode)
    assert [point.count for point in spans.points("advisorchain.chain.duration")] == [1]
    assert [point.count for point in spans.points("gen_ai.execute_tool.duration")] == [1]
    assert [point.count for point in spans.points("gen_ai.client.operation.duration")] == [2]


@MODES
async def test_a_value_leads_to_its_span(mode: str) -> None:
    spans = Spans()
    meters = MeterProvider([spans.reader], exemplar_filter=AlwaysOnExemplarFilter(), shutdown_on_exit=False)
    telemetry = Telemetry(spans.provider, meters)
    await ask(AdvisorChain(words_of(2), [Hooks("a")], telemetry=telemetry), mode)
    found = spans.metrics()  # once: exemplars are told once
    for metric, span in (
        ("advisorchain.chain.duration", "advisor_chain chain"),
        ("advisorchain.advisor.duration", "advisor a"),
        ("gen_ai.client.operation.duration", "chat words"),
    ):
        (point,) = found[metric]
        assert {exemplar.span_id for exemplar in point.exemplars} == {spans.named(span).context.span_id}


async def test_no_order_conversation_or_text_is_on_a_metric(spans: Spans) -> None:
    await ask(chain(spans), "stream", "what a canary", conversation_id="conversation-1", system="be brief")
    data = spans.reader.get_metrics_data()
    assert data is not None
    told = data.to_json()
    for word in ("what a canary", "conversation-1", "be brief", ".order", ".index", "one two", "ONE TWO"):
        assert word not in told
