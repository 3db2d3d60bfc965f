"""What is current when: in the reader, in an advisor, in what both start. The pitfalls of async generators, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.trace import StatusCode

from advisorchain import (
    AdvisorChain,
    AroundAdvisor,
    BaseAdvisor,
    ChatRequest,
    ChatResponse,
    Next,
    Outcome,
    StreamItem,
)

from ._spans import MODES, Endless, Hooks, Spans, Times, ask, chain, words


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
    with tracer.start_as_current_span("reading"):
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


class Holding(AroundAdvisor):
    """Holds a span of its own open over its yields, which is what most instrumentations do."""

    name, order = "holding", 4

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        with self.tracer.start_as_current_span("held"):
            async with aclosing(next(request)) as items:
                async for item in items:
                    yield item


@MODES
async def test_a_span_that_an_advisor_holds_open_over_its_yields_is_the_parent_of_what_lies_inside(
    spans: Spans, mode: str
) -> None:
    asked = AdvisorChain(words, [Holding(spans.provider.get_tracer("mine")), Hooks("in", 5)], telemetry=spans.telemetry)
    with spans.provider.get_tracer("reader").start_as_current_span("request") as request:
        if mode == "stream":
            async with asked.stream("hi") as stream:
                async for _ in stream:
                    assert otel_trace.get_current_span() is request
        else:
            await asked.call("hi")
        assert otel_trace.get_current_span() is request
    inside = ["    advisor holding", "      held", "        advisor in", "          chat words"]
    assert spans.tree() == ["request", "  advisor_chain chain", *inside]


async def test_each_pull_in_a_task_of_its_own_keeps_the_parents(spans: Spans) -> None:
    asked = AdvisorChain(words, [Times(2), Hooks("in", 9)], telemetry=spans.telemetry)
    async with asked.stream("hi") as stream:
        items = aiter(stream)
        texts: list[str] = []

        async def pull() -> None:
            texts.append((await anext(items)).text)

        for _ in range(2):
            async with anyio.create_task_group() as group:
                group.start_soon(pull)
        with pytest.raises(StopAsyncIteration):
            await anext(items)
    assert texts == ["one ", "two"]
    inner = ["    advisor in", "      chat words"]
    assert spans.tree() == ["advisor_chain chain", "  advisor times", *inner, *inner]


@MODES
async def test_tasks_and_threads_that_an_advisor_starts_lie_in_its_span(spans: Spans, mode: str) -> None:
    tracer = spans.provider.get_tracer("mine")

    def in_thread(name: str) -> None:
        with tracer.start_as_current_span(name):
            pass

    class Working(BaseAdvisor):
        name = "working"

        async def before(self, request: ChatRequest) -> ChatRequest:
            async def in_task() -> None:
                with tracer.start_as_current_span("task"):
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as group:
                group.start_soon(in_task)
            await anyio.to_thread.run_sync(in_thread, "anyio's thread")
            with ThreadPoolExecutor(1) as pool:
                pool.submit(copy_context().run, in_thread, "a pool's thread, with a copied context").result()
            return request

    await ask(AdvisorChain(words, [Working()], telemetry=spans.telemetry), mode)
    own = spans.named("advisor working").context.span_id
    for name in ("task", "anyio's thread", "a pool's thread, with a copied context"):
        parent = spans.named(name).parent
        assert parent is not None
        assert parent.span_id == own


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_started_before_the_request_needs_the_context_by_hand(spans: Spans) -> None:
    """As for anything that is traced: OpenTelemetry's own rule, which nothing of ours changes."""
    jobs: asyncio.Queue[Any] = asyncio.Queue()
    asked = AdvisorChain(words, name="job", telemetry=spans.telemetry)

    async def worker() -> None:
        for _ in range(2):
            context = await jobs.get()
            token = otel_context.attach(context) if context is not None else None
            await asked.call("hi")
            if token is not None:
                otel_context.detach(token)

    working = asyncio.create_task(worker())
    with spans.provider.get_tracer("server").start_as_current_span("request"):
        await jobs.put(None)
        await jobs.put(otel_context.get_current())
    await working
    roots = [span.parent is None for span in spans.many("advisor_chain job")]
    assert roots == [True, False]


@MODES
async def test_a_task_that_is_cancelled_inside_an_advisor(spans: Spans, mode: str) -> None:
    class Waiting(BaseAdvisor):
        name = "waiting"

        async def before(self, request: ChatRequest) -> ChatRequest:
            await anyio.sleep_forever()
            return request

    with anyio.move_on_after(0.01):
        await ask(AdvisorChain(words, [Hooks("out", -1), Waiting()], telemetry=spans.telemetry), mode)
    assert spans.outcomes() == dict.fromkeys(("advisor_chain chain", "advisor out", "advisor waiting"), "cancelled")
    assert {span.status.status_code for span in spans.all()} == {StatusCode.UNSET}
    assert not otel_trace.get_current_span().get_span_context().is_valid


async def test_what_is_held_open_ends_before_the_span_around_it_when_a_stream_is_closed(spans: Spans) -> None:
    asked = AdvisorChain(Endless(), [Holding(spans.provider.get_tracer("mine")), Hooks("in", 5)], telemetry=spans.telemetry)
    async with asked.stream("hi") as stream:
        await anext(aiter(stream))  # and left in this task: in another one OpenTelemetry would complain of what is held
    ended = [span.name for span in spans.all()]
    assert ended == ["chat endless", "advisor in", "held", "advisor holding", "advisor_chain chain"]


async def test_baggage_and_other_entries_of_the_context_reach_advisors_and_model(spans: Spans) -> None:
    seen: list[object] = []

    async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
        seen.append(otel_context.get_value("tenant"))
        yield "x"

    class Looking(BaseAdvisor):
        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            seen.append(otel_context.get_value("tenant"))
            return response

    token = otel_context.attach(otel_context.set_value("tenant", "t1"))
    stream = AdvisorChain(model, [Looking()], telemetry=spans.telemetry).stream("hi")
    otel_context.detach(token)
    async with stream:
        async for _ in stream:
            pass
    assert seen == ["t1", "t1"]


@MODES
async def test_an_advisor_that_leaves_what_lies_inside_half_read_without_closing_it(spans: Spans, mode: str) -> None:
    """The finaliser of an async generator runs anywhere: the chain closes what was left, where its spans belong."""

    class First(AroundAdvisor):
        name, order = "first", 4

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            async for item in next(request):
                yield item
                break
            yield request.reply(item.text)

    asked = AdvisorChain(Endless() if mode == "stream" else words, [First(), Hooks("in", 5)], telemetry=spans.telemetry)
    with spans.provider.get_tracer("reader").start_as_current_span("request") as request:
        await ask(asked, mode)
        assert otel_trace.get_current_span() is request
    inside = ["    advisor first", "      advisor in", f"        chat {'endless' if mode == 'stream' else 'words'}"]
    assert spans.tree() == ["request", "  advisor_chain chain", *inside]
    left = "closed" if mode == "stream" else "ok"  # a call has its whole answer by then
    assert spans.outcomes() == {
        "request": "None",
        "advisor_chain chain": "ok",
        "advisor first": "ok",
        "advisor in": left,
        inside[2].strip(): left,
    }


class Attaching(BaseAdvisor):
    """Attaches baggage in one of its hooks, as for the headers of a provider's SDK, and notes what is there in all."""

    name, order = "attaching", 1

    def __init__(self, where: str, seen: list[tuple[str, object]]) -> None:
        self.where = where
        self.seen = seen

    def comes(self, hook: str) -> None:
        self.seen.append((f"{self.name} {hook}", baggage.get_baggage("tenant")))
        if hook == self.where:
            otel_context.attach(baggage.set_baggage("tenant", "t1"))

    def before(self, request: ChatRequest) -> ChatRequest:
        self.comes("before")
        return request

    def transform(self, request: ChatRequest) -> None:
        self.comes("transform")

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        self.comes("after")
        return response

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        self.comes("done")


class AttachingAsync(Attaching):
    async def before(self, request: ChatRequest) -> ChatRequest:  # type: ignore[override]
        await anyio.lowlevel.checkpoint()
        return super().before(request)

    async def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:  # type: ignore[override]
        await anyio.lowlevel.checkpoint()
        return super().after(request, response)

    async def done(self, request: ChatRequest, outcome: Outcome) -> None:  # type: ignore[override]
        await anyio.lowlevel.checkpoint()
        super().done(request, outcome)


class Inside(Attaching):
    name, order = "inside", 8


class AttachingAround(AroundAdvisor):
    name, order = "around", 1

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        otel_context.attach(baggage.set_baggage("tenant", "t1"))
        async with aclosing(next(request)) as items:
            async for item in items:
                yield item


@MODES
@pytest.mark.parametrize("between", [True, False], ids=["around between", "hooks only"])
@pytest.mark.parametrize("model_span", [True, False], ids=["model span", "no model span"])
@pytest.mark.parametrize("where", ["before", "transform", "after", "done", "before, async", "after, async", "around"])
async def test_what_a_hook_attaches_is_seen_inside_of_it_recorded_or_not(
    mode: str, where: str, model_span: bool, between: bool
) -> None:
    """And after it in the same advisor; recorded, it goes no further out, nor to who asked."""

    async def seen_with(telemetry: Any) -> list[tuple[str, object]]:
        seen: list[tuple[str, object]] = []

        async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
            seen.append(("model", baggage.get_baggage("tenant")))
            yield "fine"

        kind = AttachingAsync if "async" in where else Attaching
        outer = AttachingAround() if where == "around" else kind(where.partition(",")[0], seen)
        advisors = [outer, *([Times(1)] if between else []), Inside("", seen)]

        async def run() -> None:  # in a context of its own
            await ask(AdvisorChain(model, advisors, telemetry=telemetry), mode)
            if telemetry is not None:
                assert baggage.get_baggage("tenant") is None

        async with anyio.create_task_group() as group:
            group.start_soon(run)
        return seen

    recorded = await seen_with(Spans(model_span=model_span).telemetry)
    assert recorded == await seen_with(None)
    assert dict(recorded)["model"] == (None if where[:5] in ("after", "done") else "t1")


async def test_a_context_that_before_attached_and_done_detached_leaves_nothing(spans: Spans) -> None:
    class Attached(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            token = otel_context.attach(baggage.set_baggage("tenant", "t1"))
            return request.replace(local={self.name: token})

        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            otel_context.detach(request.local[self.name])

    await AdvisorChain(words, [Attached(), Hooks("in", 1)], telemetry=spans.telemetry).call("q")
    assert baggage.get_baggage("tenant") is None


async def test_a_span_that_before_opened_holds_what_is_inside(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("mine")

    class Opening(BaseAdvisor):
        name = "opening"

        def before(self, request: ChatRequest) -> ChatRequest:
            self.span = tracer.start_span("mine")
            otel_context.attach(otel_trace.set_span_in_context(self.span))
            return request

        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            self.span.end()

    await AdvisorChain(words, [Opening(), Hooks("in", 1)], telemetry=spans.telemetry).call("q")
    assert spans.tree() == ["advisor_chain chain", "  advisor opening", "    mine", "      advisor in", "        chat words"]
