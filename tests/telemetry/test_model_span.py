"""The span of a model call, in the words of the GenAI conventions."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry.trace import SpanKind

from advisorchain import AdvisorChain, ChatChunk, ChatOptions, ChatRequest, ChatResponse, Usage, conventions
from advisorchain.options import OutputSchema

from ._spans import MODES, Hooks, Spans, ask, chain


@MODES
async def test_it_has_the_attributes_of_request_and_response(spans: Spans, mode: str) -> None:
    options = ChatOptions(
        temperature=0.5,
        top_p=0.9,
        max_tokens=9,
        seed=1,
        stop=("x",),
        presence_penalty=0.1,
        frequency_penalty=0.2,
        output=OutputSchema({"type": "object"}),
        extra={"top_k": 4, "reasoning_effort": "low", "private": "canary"},
    )
    await ask(chain(spans), mode, options=options, conversation_id="c1")
    told = spans.told("chat words")
    first = told.pop("gen_ai.response.time_to_first_chunk", None)
    assert (first is not None and 0 < first < 60) is (mode == "stream")
    awaited = told.pop("advisorchain.stream.awaited_duration", None)
    assert (awaited is not None and 0 < awaited < 60) is (mode == "stream")
    stream = {"gen_ai.request.stream": True, "advisorchain.stream.chunks_out": 2}
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "function",
        "gen_ai.request.model": "words",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 4,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 1,
        "gen_ai.request.stop_sequences": ("x",),
        "gen_ai.request.presence_penalty": 0.1,
        "gen_ai.request.frequency_penalty": 0.2,
        "gen_ai.request.reasoning.level": "low",
        "gen_ai.output.type": "json",
        "gen_ai.conversation.id": "c1",
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "w-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "advisorchain.outcome": "ok",
        **(stream if mode == "stream" else {}),
    }
    assert spans.named("chat words").kind is SpanKind.CLIENT


@MODES
async def test_tokens_of_all_kinds_and_where_the_model_is(spans: Spans, mode: str) -> None:
    class Remote:
        name, provider = "m-1", "openai"
        server_address, server_port = "api.example", 8443

        async def call(self, request: ChatRequest) -> ChatResponse:
            usage = Usage(10, 7, cached_tokens=2, cache_write_tokens=3, reasoning_tokens=4)
            return ChatResponse("fine", usage=usage)

    await ask(AdvisorChain(Remote(), telemetry=spans.telemetry), mode, options=ChatOptions(model="m-2"))
    told = spans.told("chat m-2")
    assert (told["gen_ai.request.model"], told["gen_ai.provider.name"]) == ("m-2", "openai")
    assert (told["server.address"], told["server.port"]) == ("api.example", 8443)
    usage = {key.removeprefix("gen_ai.usage."): value for key, value in told.items() if key.startswith("gen_ai.usage")}
    assert usage == {
        "input_tokens": 10,
        "output_tokens": 7,
        "cache_read.input_tokens": 2,
        "cache_write.input_tokens": 3,
        "cache_creation.input_tokens": 3,
        "reasoning.output_tokens": 4,
    }


@MODES
async def test_a_model_in_this_process_is_no_client_and_one_that_tells_nonsense_tells_nothing(
    spans: Spans, mode: str
) -> None:
    class Local:
        name, provider, in_process = "local", "tests", True
        server_address, server_port = 5, "x"

        async def call(self, request: ChatRequest) -> str:
            return "fine"

    await ask(AdvisorChain(Local(), telemetry=spans.telemetry), mode)
    assert spans.named("chat local").kind is SpanKind.INTERNAL
    assert not [key for key in spans.told("chat local") if key.startswith("server")]


@MODES
async def test_without_its_span_all_else_stays(mode: str) -> None:
    spans = Spans(model_span=False, metrics=True)
    seen: list[object] = []

    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        seen.append(otel_context.get_value(conventions.OPENLLMETRY_SUPPRESS))
        yield ChatChunk("fine", usage=Usage(1, 1))

    await ask(chain(spans, model), mode)
    assert spans.tree() == ["advisor_chain demo", "  advisor a", "    advisor upper", "      advisor b"]
    assert spans.points("gen_ai.client.operation.duration") == []
    assert spans.points("gen_ai.client.token.usage") == []
    assert len(spans.points("advisorchain.advisor.duration")) == 3
    assert seen == [None]


@MODES
async def test_other_instrumentations_see_that_the_call_is_recorded_already(
    spans: Spans, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InferenceData:
        pass

    seen: list[Any] = []

    async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
        seen.append(otel_context.get_value(conventions.OPENLLMETRY_SUPPRESS))
        seen.append(otel_context.get_value(conventions.UTIL_GENAI_CLIENT))
        yield "fine"

    loaded = ModuleType(conventions.UTIL_GENAI_MODULE)
    asked = AdvisorChain(model, [Hooks("a")], telemetry=spans.telemetry)
    await ask(asked, mode)
    assert seen == [True, None]
    loaded.InferenceData = InferenceData
    monkeypatch.setitem(sys.modules, conventions.UTIL_GENAI_MODULE, loaded)
    await ask(asked, mode)
    assert isinstance(seen[-1], InferenceData)
    loaded.InferenceData = lambda: 1 / 0
    await ask(asked, mode)
    assert seen[-2:] == [True, None]
    assert otel_context.get_value(conventions.OPENLLMETRY_SUPPRESS) is None


@MODES
async def test_a_trailing_report_of_usage_is_told(spans: Spans, mode: str) -> None:
    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk("hi")
        yield ChatChunk(finish_reason="stop")
        yield ChatChunk(usage=Usage(12, 5))

    response = await ask(AdvisorChain(model, telemetry=spans.telemetry), mode)
    assert response.usage == Usage(12, 5, 17)
    told = spans.told("chat model")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (12, 5)


def test_the_conventions_have_each_name_once() -> None:
    names = [value for name, value in vars(conventions).items() if name.isupper() and isinstance(value, str)]
    assert len(names) == len(set(names))
    assert conventions.VERSION == "1.42.0-dev"
