"""Every way of leaving a stream ends every span once, with the right outcome, and leaves nothing behind in the context."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import copy_context
from typing import Any

import anyio
import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import StatusCode

from advisorchain import AdvisorChain, BaseAdvisor, ChatChunk, ChatRequest, SyncChatClient, Usage
from advisorchain.errors import CallTimeoutError

from ._spans import Endless, Hooks, Spans, Times, Upper, ask, chain, words
from ._time import Time

NAMES = {"advisor_chain demo", "advisor a", "advisor upper", "advisor b", "advisor c", "advisor times", "chat endless"}


class EndsOnce(SpanProcessor):
    """Notices a span that ends twice, or does not end."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.ended: list[int] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.open.add(span.context.span_id)

    def on_end(self, span: Any) -> None:
        self.open.remove(span.context.span_id)
        self.ended.append(span.context.span_id)


@pytest.fixture
def ends(spans: Spans) -> EndsOnce:
    ends = EndsOnce()
    spans.provider.add_span_processor(ends)
    return ends


def deep(spans: Spans, model: Any = None) -> AdvisorChain:
    """Hooks around an around advisor around hooks."""
    return chain(spans, model or Endless(), Hooks("c", 6), Times(1))


async def _read_and_drop(asked: AdvisorChain) -> None:
    async with asked.stream("hi") as stream:
        async for _ in stream:
            break


async def _aclose_twice(asked: AdvisorChain) -> None:
    async with asked.stream("hi") as stream:
        await anext(aiter(stream))
        await stream.aclose()
        await stream.aclose()


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


async def _the_readers_error(asked: AdvisorChain) -> None:
    with pytest.raises(LookupError):
        async with asked.stream("hi") as stream:
            async for _ in stream:
                raise LookupError


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


LEAVING: list[tuple[Callable[[AdvisorChain], Awaitable[None]], str]] = [
    (_read_and_drop, "closed"),
    (_aclose_twice, "closed"),
    (_closed_by_another_task, "closed"),
    (_each_pull_in_a_task_of_its_own, "closed"),
    (_the_readers_error, "closed"),
    (_cancelled_in_the_body, "cancelled"),
    (_cancelled_in_a_pull, "cancelled"),
]
WAYS = pytest.mark.parametrize(("leave", "outcome"), LEAVING, ids=[leave.__name__.strip("_") for leave, _ in LEAVING])


@WAYS
async def test_every_way_to_leave_a_stream_ends_each_span_once(
    spans: Spans, ends: EndsOnce, leave: Callable[[AdvisorChain], Awaitable[None]], outcome: str
) -> None:
    tracer = spans.provider.get_tracer("reader")
    with tracer.start_as_current_span("request") as request:
        await leave(deep(spans))
        assert otel_trace.get_current_span() is request
    assert spans.tree()[:2] == ["request", "  advisor_chain demo"]
    found = spans.outcomes()
    assert found.pop("request") == "None"
    assert found == dict.fromkeys(NAMES, outcome)
    assert {span.status.status_code for span in spans.all()} == {StatusCode.UNSET}
    assert (ends.open, len(ends.ended)) == (set(), len(NAMES) + 1)


@pytest.mark.parametrize("mode", ["call", "stream", "stream that is read"])
async def test_a_time_that_ran_out_is_the_chains_error_and_cancels_what_is_in_it(mode: str, ends: EndsOnce) -> None:
    spans = Spans(metrics=True)
    spans.provider.add_span_processor(ends)

    async def waits(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        if mode == "stream that is read":
            yield ChatChunk("piece ")
        await anyio.sleep_forever()

    with pytest.raises(CallTimeoutError):
        await ask(deep(spans, waits), mode.partition(" ")[0], timeout=0.01)
    root = spans.named("advisor_chain demo")
    assert (root.attributes or {})["error.type"] == "advisorchain.errors.CallTimeoutError"
    found = spans.outcomes()
    assert found.pop("advisor_chain demo") == "error"
    assert set(found.values()) == {"cancelled"}
    assert {span.status.status_code for span in spans.all() if span is not root} == {StatusCode.UNSET}
    assert root.status.status_code is StatusCode.ERROR
    (point,) = spans.points("advisorchain.chain.duration")
    assert point.attributes["error.type"] == "advisorchain.errors.CallTimeoutError"
    assert point.attributes["advisorchain.outcome"] == "error"
    assert (ends.open, len(ends.ended)) == (set(), len(found) + 1)


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_an_error_at_the_first_the_middle_and_the_last_chunk(spans: Spans, ends: EndsOnce, at: int) -> None:
    async def failing(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        for place in range(3):
            if place == at:
                raise LookupError
            yield ChatChunk("piece", finish_reason="stop" if place == 2 else None)

    with pytest.raises(LookupError):
        await ask(deep(spans, failing), "stream")
    names = {name.replace("endless", "failing") for name in NAMES}
    assert spans.outcomes() == dict.fromkeys(names, "error")
    assert {(span.attributes or {}).get("error.type") for span in spans.all()} == {"LookupError"}
    assert (ends.open, len(ends.ended)) == (set(), len(NAMES))
    assert spans.told("chat failing")["advisorchain.stream.chunks_out"] == at


async def test_a_call_that_is_cancelled_ends_its_spans(spans: Spans, ends: EndsOnce) -> None:
    async def waits(request: ChatRequest) -> str:
        await anyio.sleep_forever()
        return ""

    with anyio.move_on_after(0.01):
        await deep(spans, waits).call("q")
    assert set(spans.outcomes().values()) == {"cancelled"}
    assert {span.status.status_code for span in spans.all()} == {StatusCode.UNSET}
    assert ends.open == set()


async def test_a_call_whose_coroutine_is_closed_ends_its_spans(spans: Spans, ends: EndsOnce) -> None:
    async def waiting(request: ChatRequest) -> str:
        await _Never()
        raise AssertionError

    class _Never:
        def __await__(self) -> Any:
            yield

    class Plain(BaseAdvisor):
        name, order = "plain", 0

        def done(self, request: ChatRequest, outcome: Any) -> None:
            raise AssertionError

    call = AdvisorChain(waiting, [Plain()], telemetry=spans.telemetry).call("q")
    call.send(None)
    call.close()
    assert not otel_trace.get_current_span().get_span_context().is_valid
    assert ends.open == set()
    assert set(spans.outcomes().items()) == {
        (name, "cancelled") for name in ("advisor_chain chain", "advisor plain", "chat waiting")
    }


async def test_B021_closing_from_another_task_is_safe(spans: Spans, ends: EndsOnce) -> None:
    seen: dict[str, tuple[Any, Any]] = {}
    tracer = spans.provider.get_tracer("tasks")
    stream = deep(spans).stream("hi")

    async def first() -> None:
        with tracer.start_as_current_span("task a"):
            before = otel_trace.get_current_span()
            await stream.__aenter__()
            await anext(aiter(stream))
            seen["a"] = before, otel_trace.get_current_span()

    async def second() -> None:
        with tracer.start_as_current_span("task b"):
            before = otel_trace.get_current_span()
            await stream.aclose()
            seen["b"] = before, otel_trace.get_current_span()

    for task in (first, second):
        async with anyio.create_task_group() as group:
            group.start_soon(task)
    assert all(before is after for before, after in seen.values())
    assert set(seen) == {"a", "b"}
    assert (ends.open, len(ends.ended)) == (set(), len(NAMES) + 2)


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # trio's own, for a generator it has to collect
async def test_an_abandoned_stream_ends_its_spans(spans: Spans, ends: EndsOnce) -> None:
    async def abandon() -> None:
        stream = deep(spans).stream("hi")
        await stream.__aenter__()
        await anext(aiter(stream))

    await abandon()
    gc.collect()
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert spans.outcomes() == dict.fromkeys(NAMES, "closed")
    assert ends.open == set()


async def test_B022_each_way_to_leave_a_stream_tells_what_was_seen() -> None:
    for leave, outcome in LEAVING:
        spans = Spans(capture_content="SPAN_ONLY")
        await leave(deep(spans))
        root = spans.told("advisor_chain demo")
        assert root["advisorchain.outcome"] == outcome
        assert root["output.value"].startswith("THE-SECRET-CANARY"), leave
        assert spans.told("chat endless")["gen_ai.output.messages"].startswith('[{"role":"assistant"'), leave
        assert spans.told("advisor b")["output.value"].startswith("the-secret-canary"), leave


async def test_B022_a_model_error_in_the_middle_keeps_text_and_usage() -> None:
    async def failing(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk("seen ", usage=Usage(7, 1), metadata={"id": "r1"})
        yield ChatChunk("too")
        raise LookupError

    for capture in ("SPAN_ONLY", "NO_CONTENT"):
        spans = Spans(capture_content=capture)
        with pytest.raises(LookupError):
            await ask(deep(spans, failing), "stream")
        told = spans.told("chat failing")
        assert (told["gen_ai.usage.input_tokens"], told["gen_ai.response.id"]) == (7, "r1")
        assert ("seen too" in spans.text()) is (capture == "SPAN_ONLY")
        assert "error" in spans.outcomes().values()


async def test_B022_a_stream_that_was_never_started_has_no_span(spans: Spans) -> None:
    async with deep(spans).stream("hi"):
        pass
    stream = deep(spans).stream("hi")
    del stream
    gc.collect()
    await anyio.lowlevel.checkpoint()
    assert spans.all() == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("way", ["drained", "break", "close", "error", "dropped"])
def test_B022_ways_to_leave_a_synchronous_stream(spans: Spans, ends: EndsOnce, way: str, anyio_backend: str) -> None:
    advisors = [Hooks("a", 1), Times(1), Upper()]
    model = words if way == "drained" else Endless()
    with SyncChatClient(model, advisors=advisors, telemetry=spans.telemetry) as client:
        try:
            with client.stream("hi") as stream:
                for _ in stream:
                    if way == "close":
                        stream.close()
                        break
                    if way == "error":
                        raise LookupError
                    if way in ("break", "dropped"):
                        break
        except LookupError:
            assert way == "error"
        del stream
        gc.collect()
    assert ends.open == set()
    assert len(spans.all()) == 5
    assert set(spans.outcomes().values()) == {"ok" if way == "drained" else "closed"}


async def test_B023_the_span_of_a_stream_covers_its_consumption(spans: Spans, time: Time) -> None:
    async def slow(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        for place in range(5):
            time.passes(1)
            yield ChatChunk("piece ", finish_reason="stop" if place == 4 else None)
        yield ChatChunk(usage=Usage(1, 5))

    async with chain(spans, slow).stream("hi") as stream:
        async for _ in stream:
            time.passes(2)
    root, model = spans.named("advisor_chain demo"), spans.named("chat slow")
    assert [((span.end_time or 0) - (span.start_time or 0)) / 1e9 for span in (root, model)] == [17, 17]
    told = model.attributes or {}
    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    assert told["gen_ai.usage.output_tokens"] == 5
    assert told["gen_ai.response.time_to_first_chunk"] == 1


async def test_B192_a_stream_begun_in_one_task_and_read_in_a_copy_of_its_context(spans: Spans, ends: EndsOnce) -> None:
    tracer = spans.provider.get_tracer("server")
    texts: list[str] = []

    with tracer.start_as_current_span("handler"):
        stream = deep(spans, words).stream("hi")
        context = copy_context()

    async def body() -> None:
        async with stream:
            async for chunk in stream:
                texts.append(chunk.text)

    if _on_asyncio():
        await asyncio.get_running_loop().create_task(body(), context=context)
    else:
        async with anyio.create_task_group() as group:
            context.run(group.start_soon, body)
    assert texts == ["ONE ", "TWO"]
    assert spans.tree()[:2] == ["handler", "  advisor_chain demo"]
    assert ends.open == set()


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
