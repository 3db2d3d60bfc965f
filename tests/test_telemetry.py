"""Spans and log events: what they tell, what they keep to themselves, and that no way of leaving a stream breaks them."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
import structlog
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from advisorchain import (
    AdvisorChain,
    AroundAdvisor,
    BaseAdvisor,
    ChatChunk,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    Next,
    Outcome,
    StreamItem,
    Telemetry,
    TextTransform,
    Usage,
)

CANARY = "the-secret-canary"


class Spans:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(tracer_provider=self.provider)

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        found = [span for span in self.all() if span.name == name]
        assert len(found) == 1, [span.name for span in self.all()]
        return found[0]

    def tree(self) -> list[str]:
        """Each span below its parent, indented, in the order in which they began."""
        spans = sorted(self.all(), key=lambda span: span.start_time or 0)
        ids = {span.context.span_id for span in spans}

        def below(parent: int | None, depth: int) -> Iterator[str]:
            for span in spans:
                own = span.parent.span_id if span.parent is not None and span.parent.span_id in ids else None
                if own == parent:
                    yield "  " * depth + span.name
                    yield from below(span.context.span_id, depth + 1)

        return list(below(None, 0))


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(autouse=True)
def _no_context_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "opentelemetry")
    yield
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


class Hooks(BaseAdvisor):
    def __init__(self, name: str, order: int = 0) -> None:
        self.name = name
        self.order = order

    async def before(self, request: ChatRequest) -> ChatRequest:
        await anyio.lowlevel.checkpoint()
        return request

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response


class Upper(BaseAdvisor):
    name, order = "upper", 1

    def transform(self, request: ChatRequest) -> TextTransform:
        return _Upper()


class _Upper:
    def feed(self, text: str) -> str:
        return text.upper()

    def flush(self) -> str:
        return ""


class Twice(AroundAdvisor):
    name, order = "twice", 5

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(next(request)) as items:
            async for _ in items:
                pass
        async with aclosing(next(request)) as items:
            async for item in items:
                yield item


class Endless:
    """Streams until it is stopped."""

    name, provider = "endless", "tests"

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        while True:
            await anyio.lowlevel.checkpoint()
            yield ChatChunk(CANARY)


async def words(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
    await anyio.lowlevel.checkpoint()
    yield ChatChunk("one ")
    yield ChatChunk("two", finish_reason="stop", usage=Usage(3, 2, cached_tokens=1), metadata={"id": "r1", "model": "w-1"})


def chain(spans: Spans, model: Any = words, *more: Any) -> AdvisorChain:
    return AdvisorChain(model, [Hooks("b", 2), Hooks("a", -7), Upper(), *more], name="demo", telemetry=spans.telemetry)


async def ask(chain: AdvisorChain, mode: str, **options: Any) -> ChatResponse:
    if mode == "call":
        return await chain.call("hi", **options)
    async with chain.stream("hi", **options) as stream:
        async for _ in stream:
            pass
    return stream.response


MODES = pytest.mark.parametrize("mode", ["call", "stream"])


@MODES
async def test_the_span_tree_is_what_describe_tells(spans: Spans, mode: str) -> None:
    asked = chain(spans)
    await ask(asked, mode, conversation_id="c1", options=ChatOptions(temperature=0.5, stop=("x",)))
    assert spans.tree() == [
        "advisor_chain demo",
        "  advisor a",
        "    advisor upper",
        "      advisor b",
        "        chat words",
    ]
    root = spans.named("advisor_chain demo").attributes or {}
    assert root["advisorchain.chain.advisors"] == tuple(row.name for row in asked.describe())
    assert root["advisorchain.chain.orders"] == tuple(row.order for row in asked.describe())
    assert root["gen_ai.conversation.id"] == "c1"
    assert root["advisorchain.stream"] is (mode == "stream")
    for row in asked.describe():
        found = spans.named(f"advisor {row.name}").attributes or {}
        assert found["advisorchain.advisor.order"] == row.order
        assert found["advisorchain.advisor.index"] == row.index
        assert str(found["advisorchain.advisor.type"]).endswith(row.type)
        assert found["advisorchain.advisor.outcome"] == "ok"
        assert found["advisorchain.advisor.next_calls"] == 1


@MODES
async def test_the_model_span_has_the_genai_attributes(spans: Spans, mode: str) -> None:
    await ask(chain(spans), mode, options=ChatOptions(temperature=0.5, max_tokens=9))
    found = spans.named("chat words").attributes or {}
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.request.max_tokens"] == 9
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert (found["gen_ai.response.id"], found["gen_ai.response.model"]) == ("r1", "w-1")
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (3, 2)
    assert found["gen_ai.usage.cache_read.input_tokens"] == 1
    assert found.get("gen_ai.request.stream") is (True if mode == "stream" else None)
    assert ("gen_ai.response.time_to_first_chunk" in found) is (mode == "stream")


@MODES
async def test_B037_a_trailing_usage_chunk_is_counted_in_response_span_and_log(
    spans: Spans, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "advisorchain")

    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk("hi")
        yield ChatChunk(finish_reason="stop")
        yield ChatChunk(usage=Usage(12, 5))

    response = await ask(AdvisorChain(model, telemetry=spans.telemetry), mode)
    assert response.usage == Usage(12, 5, 17)
    found = spans.named("chat model").attributes or {}
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (12, 5)
    (record,) = [record for record in caplog.records if record.name == "advisorchain"]
    assert (record.__dict__["input_tokens"], record.__dict__["output_tokens"]) == (12, 5)


@MODES
async def test_each_entry_of_an_advisor_inside_a_loop_has_a_span_of_its_own(spans: Spans, mode: str) -> None:
    asked = AdvisorChain(words, [Twice(), Hooks("inner", 9)], telemetry=spans.telemetry)
    await ask(asked, mode)
    inner = ["    advisor inner", "      chat words"]
    assert spans.tree() == ["advisor_chain chain", "  advisor twice", *inner, *inner]
    twice = spans.named("advisor twice").attributes or {}
    assert twice["advisorchain.advisor.next_calls"] == 2
    seconds = [
        (span.attributes or {})["advisorchain.advisor.self_duration"] for span in spans.all() if "advisor " in span.name
    ]
    whole = spans.named("advisor_chain chain")
    assert 0 <= sum(float(str(part)) for part in seconds) <= ((whole.end_time or 0) - (whole.start_time or 0)) / 1e9


@MODES
async def test_a_short_circuit_shows_as_no_next_call(spans: Spans, mode: str) -> None:
    class Cached(BaseAdvisor):
        name = "cached"

        def before(self, request: ChatRequest) -> ChatResponse:
            return request.reply("from the cache")

    await ask(chain(spans, words, Cached()), mode)
    found = spans.named("advisor cached").attributes or {}
    assert found["advisorchain.advisor.next_calls"] == 0
    assert found["advisorchain.advisor.outcome"] == "ok"
    assert not [span for span in spans.all() if span.name.startswith("chat")]


@MODES
@pytest.mark.parametrize("where", ["before", "transform", "after", "done", "model"])
async def test_an_error_is_on_the_spans_by_its_type_alone(spans: Spans, mode: str, where: str) -> None:
    def fail(*_: Any) -> Any:
        raise LookupError(CANARY)

    class Broken(BaseAdvisor):
        name, order = "broken", 0

    if where != "model":
        setattr(Broken, where, fail)

    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk("a")
        if where == "model":
            fail()

    with pytest.raises(LookupError):
        await ask(chain(spans, model, Broken()), mode)
    for name in ("advisor_chain demo", "advisor a", "advisor broken"):
        found = spans.named(name)
        assert (found.attributes or {})["error.type"] == "LookupError", name
        assert found.status.status_code is StatusCode.ERROR
        assert found.events == ()
    assert CANARY not in "".join(span.to_json() for span in spans.all())


@MODES
async def test_nothing_that_was_said_is_in_a_span_or_a_log(
    spans: Spans, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk(CANARY)

    caplog.set_level(logging.DEBUG, "advisorchain")
    asked = chain(spans, model)
    async with asked.stream(CANARY, system=CANARY, context={"key": CANARY}) as stream:
        assert CANARY.upper() in "".join([chunk.text async for chunk in stream])
    await asked.call(CANARY, system=CANARY)
    assert [record.getMessage() for record in caplog.records] == ["advisorchain.chain.finished"] * 2
    assert CANARY.lower() not in "".join(span.to_json() for span in spans.all()).lower()
    assert CANARY not in str([record.__dict__ for record in caplog.records])


async def _break(asked: AdvisorChain) -> None:
    async with asked.stream("hi") as stream:
        async for _ in stream:
            break


async def _closed_by_another_task(asked: AdvisorChain) -> None:
    async with asked.stream("hi") as stream:
        await anext(aiter(stream))
        async with anyio.create_task_group() as group:
            group.start_soon(stream.aclose)


async def _each_pull_in_a_task_of_its_own(asked: AdvisorChain) -> None:
    async with asked.stream("hi") as stream:
        items = aiter(stream)

        async def pull() -> None:
            await anext(items)

        for _ in range(3):
            async with anyio.create_task_group() as group:
                group.start_soon(pull)


async def _cancelled_in_the_body(asked: AdvisorChain) -> None:
    with anyio.CancelScope() as scope:
        async with asked.stream("hi") as stream:
            async for _ in stream:
                scope.cancel()
                await anyio.lowlevel.checkpoint()


async def _cancelled_in_a_pull(asked: AdvisorChain) -> None:
    with anyio.CancelScope() as scope:
        async with asked.stream("hi") as stream:
            async for _ in stream:
                scope.cancel()


LEAVING = [
    (_break, "closed"),
    (_closed_by_another_task, "closed"),
    (_each_pull_in_a_task_of_its_own, "closed"),
    (_cancelled_in_the_body, "cancelled"),
    (_cancelled_in_a_pull, "cancelled"),
]


@pytest.mark.parametrize(("leave", "outcome"), LEAVING, ids=[leave.__name__.strip("_") for leave, _ in LEAVING])
async def test_every_way_to_leave_a_stream_ends_each_span_once(spans: Spans, leave: Any, outcome: str) -> None:
    tracer = spans.provider.get_tracer("reader")
    with tracer.start_as_current_span("request") as request:
        await leave(chain(spans, Endless(), Hooks("c", 3)))
        assert otel_trace.get_current_span() is request
    found = spans.tree()
    assert found[:2] == ["request", "  advisor_chain demo"]
    assert len(found) == 7
    for span in spans.all():
        told = span.attributes or {}
        if span.name != "request":
            assert told.get("advisorchain.advisor.outcome", told.get("advisorchain.outcome")) == outcome, span.name
            assert span.status.status_code is StatusCode.UNSET


async def test_the_reader_never_sees_the_chains_context(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("reader")
    async with chain(spans).stream("hi") as stream:
        async for _ in stream:
            assert not otel_trace.get_current_span().get_span_context().is_valid
            with tracer.start_as_current_span("reader's own"):
                pass
    assert all(span.parent is None for span in spans.all() if span.name == "reader's own")


async def test_the_parent_is_that_of_the_one_who_asks(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("reader")
    with tracer.start_as_current_span("asking"):
        stream = chain(spans).stream("hi")
    async with stream:
        assert [chunk.text async for chunk in stream]
    assert spans.tree()[:2] == ["asking", "  advisor_chain demo"]


async def test_an_advisors_own_spans_lie_in_its_span(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("mine")

    class Searching(AroundAdvisor):
        name, order = "searching", 4

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            with tracer.start_as_current_span("search"):
                await anyio.lowlevel.checkpoint()
            async for item in next(request):
                yield item

    class Looking(BaseAdvisor):
        name, order = "looking", 3

        async def done(self, request: ChatRequest, outcome: Outcome) -> None:
            with tracer.start_as_current_span("look"):
                await anyio.lowlevel.checkpoint()

    for mode in ("call", "stream"):
        spans.exporter.clear()
        await ask(AdvisorChain(words, [Searching(), Looking()], telemetry=spans.telemetry), mode)
        inside = ["    advisor searching", "      search", "      chat words", "    look"]
        assert spans.tree() == ["advisor_chain chain", "  advisor looking", *inside]


async def test_many_calls_at_once_never_mix_their_parents(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("reader")
    asked = chain(spans)

    async def one(number: int) -> None:
        with tracer.start_as_current_span(f"request {number}"):
            await ask(asked, "stream" if number % 2 else "call")

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(one, number)
    traces: dict[int, list[str]] = {}
    for span in spans.all():
        traces.setdefault(span.context.trace_id, []).append(span.name)
    names = ["advisor a", "advisor b", "advisor upper", "advisor_chain demo", "chat words"]
    assert sorted(sorted(name for name in found if "request" not in name) for found in traces.values()) == [names] * 20


async def test_a_provider_that_is_set_after_the_build_is_seen() -> None:
    code = """
import anyio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from advisorchain import AdvisorChain, BaseAdvisor

async def model(request):
    return "fine"

chain = AdvisorChain(model, [BaseAdvisor()])
anyio.run(chain.call, "hi")
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
anyio.run(chain.call, "hi")
print([span.name for span in exporter.get_finished_spans()])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['chat model', 'advisor BaseAdvisor', 'advisor_chain chain']\n"
    assert done.stderr == ""


async def test_a_chain_without_telemetry_makes_no_span(spans: Spans) -> None:
    asked = AdvisorChain(words, telemetry=None)
    for mode in ("call", "stream"):
        await ask(asked, mode)
    assert spans.all() == []


def test_an_application_that_configured_nothing_hears_nothing() -> None:
    code = """
import anyio
from advisorchain import AdvisorChain, BaseAdvisor

class Answering(BaseAdvisor):
    def before(self, request):
        return request.reply("at once")

async def model(request):
    return "fine"

anyio.run(AdvisorChain(model).call, "hi")
anyio.run(AdvisorChain(model, [Answering()]).call, "hi")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


async def test_structlog_gets_the_events_once_it_is_configured() -> None:
    class Answering(BaseAdvisor):
        name = "answering"

        def before(self, request: ChatRequest) -> ChatResponse:
            return request.reply("at once")

    asked = AdvisorChain(words, [Answering()], name="demo")
    with structlog.testing.capture_logs() as events:
        await ask(asked, "call")
        await ask(asked, "stream")
    structlog.reset_defaults()
    assert [event["event"] for event in events] == ["advisorchain.advisor.short_circuit", "advisorchain.chain.finished"] * 2
    assert all(event["chain"] == "demo" for event in events)
    assert [event["outcome"] for event in events if "outcome" in event] == ["ok", "ok"]


async def test_what_done_raises_while_the_task_is_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(BaseAdvisor):
        name = "failing"

        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            raise RuntimeError(CANARY)

    with anyio.CancelScope() as scope:
        async with AdvisorChain(Endless(), [Failing()]).stream("hi") as stream:
            async for _ in stream:
                scope.cancel()
    assert scope.cancelled_caught
    (record,) = [record for record in caplog.records if record.name == "advisorchain"]
    assert record.getMessage() == "advisorchain.done.failed"
    assert record.__dict__["advisor"] == "failing"
    assert CANARY not in str(record.__dict__)


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # trio's own, for a generator it has to collect
async def test_an_abandoned_stream_ends_its_spans(spans: Spans) -> None:
    async def abandon() -> None:
        stream = chain(spans, Endless()).stream("hi")
        await stream.__aenter__()
        await anext(aiter(stream))

    await abandon()
    gc.collect()
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert len(spans.all()) == 5
    assert {str((span.attributes or {}).get("advisorchain.outcome", "closed")) for span in spans.all()} == {"closed"}


@pytest.mark.parametrize("name", ["name", "args", "message", "chain"])
async def test_what_an_application_has_bound_breaks_no_call(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """`logging` keeps some names for itself, and raises where another value is given for one."""
    caplog.set_level(logging.DEBUG, "advisorchain")

    async def model(request: ChatRequest) -> str:
        return "answer"

    with structlog.contextvars.bound_contextvars(**{name: "of the application"}):
        assert (await AdvisorChain(model).call("q")).text == "answer"
    (record,) = [record for record in caplog.records if record.name == "advisorchain"]
    assert record.getMessage() == "advisorchain.chain.finished"
    assert record.__dict__["chain" if name == "chain" else f"{name}_"] in ("chain", "of the application")


@MODES
@pytest.mark.parametrize("place", ["on_start", "on_end"])
async def test_a_span_processor_that_fails_loses_no_answer(place: str, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """OpenTelemetry's SDK lets its error through to us."""

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError(CANARY)

    processor, provider, done = SpanProcessor(), TracerProvider(), []
    setattr(processor, place, fail)
    provider.add_span_processor(processor)

    class Hooked(BaseAdvisor):
        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            done.append(outcome.status)

    async def model(request: ChatRequest) -> str:
        return "answer"

    chain = AdvisorChain(model, [Hooked()], telemetry=Telemetry(tracer_provider=provider))
    assert (await ask(chain, mode)).text == "answer"
    assert done == ["ok"]
    told = [record for record in caplog.records if record.name == "advisorchain"]
    assert {record.getMessage() for record in told} == {"advisorchain.span.failed"}
    assert CANARY not in str([record.__dict__ for record in told])


async def test_a_log_processor_that_raises_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Answering(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatResponse:
            return request.reply("at once")

    def broken(*_: Any) -> Any:
        raise OSError("the log is full")

    structlog.configure(processors=[broken])
    try:
        assert (await AdvisorChain(words, [Answering()]).call("hi")).text == "at once"
    finally:
        structlog.reset_defaults()
    assert {record.getMessage() for record in caplog.records if record.name == "advisorchain"} == {"advisorchain.log.failed"}
