"""`assert_trace`: real traces of all shapes pass, and one that was tampered with does not, and says where."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio
import pytest
import tenacity
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain import (
    AdvisorChain,
    AroundAdvisor,
    AssistantMessage,
    BaseAdvisor,
    ChatChunk,
    ChatClient,
    ChatRequest,
    ChatResponse,
    Next,
    StreamItem,
    Telemetry,
    ToolCall,
)
from advisorchain._span_data.data import as_span
from advisorchain.advisors import MessageChatMemoryAdvisor, RetryAdvisor, ToolCallingAdvisor
from advisorchain.memory import ChatMemory
from advisorchain.testing.traces import assert_trace

MODES = pytest.mark.parametrize("mode", ["call", "stream"])


class Recorded:
    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(self.provider, **settings)

    @property
    def spans(self) -> Any:
        return self.exporter.get_finished_spans()


class Named(BaseAdvisor):
    def __init__(self, name: str, order: int = 0) -> None:
        self.name = name
        self.order = order


class Twice(AroundAdvisor):
    name, order = "twice", 5

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(next(request)) as items:
            async for _ in items:
                pass
        async with aclosing(next(request)) as items:
            async for item in items:
                yield item


class Cached(BaseAdvisor):
    name, order = "cached", 7

    def before(self, request: ChatRequest) -> ChatResponse:
        return request.reply("from the cache")


async def words(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
    await anyio.lowlevel.checkpoint()
    yield ChatChunk("one ")
    yield ChatChunk("two")


def failing(times: int) -> Callable[[ChatRequest], AsyncGenerator[str, None]]:
    """A model that fails so many times first."""
    left = [times]

    async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError("no line")
        yield "fine"

    return model


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def asking_for(tool: str, arguments: str, until: int) -> Callable[[ChatRequest], Awaitable[ChatResponse]]:
    """A model that asks for the tool in each round before `until`, and then answers."""

    async def model(request: ChatRequest) -> ChatResponse:
        if request.round < until:
            call = ToolCall(f"c{request.round}", tool, arguments)
            return ChatResponse(AssistantMessage("", tool_calls=(call,)), "tool_calls")
        return ChatResponse(AssistantMessage("done"), "stop")

    return model


adding = asking_for("add", '{"a": 1, "b": 2}', 3)


async def ask(chain: AdvisorChain, mode: str, prompt: str = "hi", **options: Any) -> None:
    if mode == "call":
        await chain.call(prompt, **options)
        return
    async with chain.stream(prompt, **options) as stream:
        async for _ in stream:
            pass


def retrying(attempts: int = 3) -> RetryAdvisor:
    return RetryAdvisor(attempts=attempts, wait=tenacity.wait_none())


@MODES
@pytest.mark.parametrize(
    ("model", "advisors"),
    [
        (words, []),
        (words, [Named("a")]),
        (words, [Named("b", 9), Named("a"), Twice()]),
        (words, [Twice(), Named("y", 4), Cached()]),
        (words, [Cached(), Named("never", 9)]),
        (adding, [Named("outer", -(2**31)), ToolCallingAdvisor([add]), Named("inner", 9)]),
        (adding, [ToolCallingAdvisor([add]), retrying(), Named("inner", 2**31 - 1)]),
    ],
    ids=["no advisors", "one", "around between hooks", "cached", "short circuit", "tool loop", "retry in a tool loop"],
)
async def test_what_a_chain_records_is_what_it_promises(mode: str, model: Any, advisors: list[Any]) -> None:
    recorded = Recorded()
    chain = AdvisorChain(model, advisors, name="demo", telemetry=recorded.telemetry)
    await ask(chain, mode)
    await ask(chain, mode)
    assert_trace(recorded.spans, chain, runs=2, outcomes={row.name: "ok" for row in chain.describe() if row.name != "never"})


@MODES
async def test_failed_attempts_pass_with_their_outcomes(mode: str) -> None:
    recorded = Recorded()
    chain = AdvisorChain(failing(2), [retrying(), Named("inner", 2**31 - 1)], telemetry=recorded.telemetry)
    await ask(chain, mode)
    assert_trace(recorded.spans, chain, outcomes={"retry": "ok", "inner": ["error", "error", "ok"]})
    recorded = Recorded()
    chain = AdvisorChain(failing(9), [retrying(2)], telemetry=recorded.telemetry)
    with pytest.raises(ConnectionError):
        await ask(chain, mode)
    assert_trace(recorded.spans, chain, outcome="error", outcomes={"retry": ["error"]})


async def test_a_stream_that_was_left_and_one_that_was_cancelled() -> None:
    recorded = Recorded()
    chain = AdvisorChain(words, [Named("a"), Twice()], telemetry=recorded.telemetry)
    async with chain.stream("hi") as stream:
        async for _ in stream:
            break
    assert_trace(recorded.spans, chain, outcome="closed", outcomes={"a": "closed"})
    recorded.exporter.clear()

    async def sleeping(request: ChatRequest) -> str:
        await anyio.sleep_forever()
        return ""

    chain = AdvisorChain(sleeping, [Named("a"), Twice()], telemetry=recorded.telemetry)
    with pytest.raises(TimeoutError):
        await chain.call("hi", timeout=0.01)
    assert_trace(recorded.spans, chain, outcome="error", outcomes={"a": "cancelled"})


async def test_concurrent_calls_are_told_apart() -> None:
    recorded = Recorded()
    chain = AdvisorChain(words, [Named("a"), Twice()], telemetry=recorded.telemetry)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask, chain, "stream")
    assert_trace(recorded.spans, chain, runs=5)


async def test_another_chain_inside_a_tool_is_checked_by_itself() -> None:
    recorded = Recorded()
    helper = AdvisorChain(words, [Named("of the helper")], name="helper", telemetry=recorded.telemetry)

    async def consult() -> str:
        """Ask the helper."""
        return (await helper.call("help")).text

    chain = AdvisorChain(
        asking_for("consult", "{}", 2), [ToolCallingAdvisor([consult]), Named("a", 9)], telemetry=recorded.telemetry
    )
    await chain.call("hi")
    assert_trace(recorded.spans, chain, runs=1)
    assert_trace(recorded.spans, helper, runs=1)


async def test_spans_of_others_in_between_are_passed_over() -> None:
    recorded = Recorded()
    tracer = recorded.provider.get_tracer("mine")

    class Working(AroundAdvisor):
        name, order = "working", -5

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            with tracer.start_as_current_span("work"):
                items = [item async for item in next(request)]
            for item in items:
                yield item

    chain = AdvisorChain(words, [Working(), Named("a")], telemetry=recorded.telemetry)
    with tracer.start_as_current_span("request"):
        await chain.call("hi")
    assert [span.name for span in recorded.spans if span.name in ("work", "request")] == ["work", "request"]
    assert_trace(recorded.spans, chain)
    assert_trace([span for span in recorded.spans if span.name != "request"], chain)


async def test_an_agent_a_client_and_a_chain_without_model_spans() -> None:
    recorded = Recorded(agent_name="support")
    chain = AdvisorChain(words, [Named("a")], telemetry=recorded.telemetry)
    await chain.call("hi")
    assert_trace(recorded.spans, chain)
    recorded = Recorded(model_span=False)
    chain = AdvisorChain(words, [Named("a")], telemetry=recorded.telemetry)
    await chain.call("hi")
    assert_trace(recorded.spans, chain)
    recorded = Recorded()
    client = ChatClient(words, memory=ChatMemory(), telemetry=recorded.telemetry)
    await client.call("hi", conversation_id="c1")
    assert_trace(recorded.spans, client)
    assert [type(advisor) for advisor in client.chain.advisors] == [MessageChatMemoryAdvisor]


# -- tampered


@pytest.fixture
def good() -> tuple[list[Any], AdvisorChain]:
    recorded = Recorded()
    advisors = [Named("outer", -(2**31)), ToolCallingAdvisor([add]), Named("inner", 9)]
    chain = AdvisorChain(adding, advisors, name="demo", telemetry=recorded.telemetry)
    anyio.run(chain.call, "hi")
    spans = sorted((as_span(span) for span in recorded.spans), key=lambda span: span.start)
    assert_trace(spans, chain)
    return spans, chain


def told(**changes: Any) -> dict[str, Any]:
    return {f"advisorchain.{name.replace('__', '.')}": value for name, value in changes.items()}


# place of a span: 0 chain, 1 outer, 2 tools, then three times inner, chat (and a tool)
CHANGES: list[tuple[int, dict[str, Any], str]] = [
    (0, told(outcome="closed"), "`advisorchain.outcome` is 'closed', not 'ok'"),
    (0, told(chain__advisors=("tools", "outer", "inner")), "`advisorchain.chain.advisors` is"),
    (0, told(chain__orders=(1, 2, 3)), "`advisorchain.chain.orders` is (1, 2, 3)"),
    (1, told(advisor__order=7), "`advisor outer`: `advisorchain.advisor.order` is 7, not -2147483648"),
    (1, told(advisor__index=2), "`advisor outer`: `advisorchain.advisor.index` is 2, not 0"),
    (2, told(advisor__name="toolz"), "`advisorchain.advisor.name` is 'toolz'"),
    (2, told(advisor__next_calls=4), "asked 4 times, and the advisor in it has 3 spans"),
    (2, told(advisor__next_calls=2), "asked 2 times, and the advisor in it has 3 spans"),
    (2, told(advisor__outcome=None), "has no outcome"),
    (3, told(round=3), "not in the order in which it began"),
    (3, told(round=2), "of round 2 counts its attempts 1, 1"),
    (3, told(chain__length=9), "`advisorchain.chain.length` is 9, not 3"),
    (3, told(advisor__next_calls=2), "asked 2 times, and the model has 1 spans"),
    (4, told(round=9), "`advisor inner` is of round 1, and what is in it of round 9"),
]


@pytest.mark.parametrize(("place", "attributes", "problem"), CHANGES)
def test_an_attribute_that_is_wrong_is_told_with_both_trees(
    good: tuple[list[Any], AdvisorChain], place: int, attributes: dict[str, Any], problem: str
) -> None:
    spans, chain = good
    changed = dataclasses.replace(spans[place], attributes={**spans[place].attributes, **attributes})
    with pytest.raises(AssertionError) as caught:
        assert_trace([*spans[:place], changed, *spans[place + 1 :]], chain)
    text = str(caught.value)
    assert problem in text
    assert "promised:\n  chain demo\n    advisor outer  index 0, order -2147483648\n" in text
    assert "found:\n  advisor_chain demo" in text


def failure(spans: list[Any], chain: AdvisorChain, **expected: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_trace(spans, chain, **expected)
    return str(caught.value)


def test_a_span_that_is_missing_is_told(good: tuple[list[Any], AdvisorChain]) -> None:
    spans, chain = good
    assert "`advisor tools` is in no span of a chain" in failure([spans[0], *spans[2:]], chain)
    assert "entered 0 advisors, not the outermost one alone" in failure([spans[0], *spans[2:]], chain)
    assert "chain `demo` has no span; those that have: none" in failure(spans[1:], chain)
    assert "found:\n  no spans" in failure([], chain)
    without_chat = [span for span in spans if span.span_id != spans[4].span_id]
    assert "asked 1 times, and the model has 0 spans" in failure(without_chat, chain)


def test_an_advisor_in_the_wrong_place_or_time_is_told(good: tuple[list[Any], AdvisorChain]) -> None:
    spans, chain = good
    moved = [*spans[:2], dataclasses.replace(spans[2], parent_id=spans[0].span_id), *spans[3:]]
    assert "entered 2 advisors" in failure(moved, chain)
    late = [*spans[:3], dataclasses.replace(spans[3], end=spans[0].end + 10), *spans[4:]]
    assert "`advisor inner` begins before `advisor tools`, or ends after it" in failure(late, chain)
    deeper = dataclasses.replace(spans[3], span_id="f" * 16, parent_id=spans[3].span_id)
    assert "`advisor inner` is in the innermost advisor" in failure([*spans, deeper], chain)


def test_how_often_and_how_it_ended_is_as_the_test_says(good: tuple[list[Any], AdvisorChain]) -> None:
    spans, chain = good
    assert "chain `demo` ran 1 times, not 2" in failure(spans, chain, runs=2)
    assert "advisor `inner` ended ok, ok, ok, not ok" in failure(spans, chain, outcomes={"inner": ["ok"]})
    assert "advisor `outer` ended ok, not error" in failure(spans, chain, outcomes={"outer": "error"})
    assert "advisor `absent` ended never, since it was not entered, not ok" in failure(
        spans, chain, outcomes={"absent": "ok"}
    )
    assert_trace(spans, chain, outcome=None)
    other = chain.with_advisors(Named("more", 1))
    assert "`advisorchain.chain.length` is 3, not 4" in failure(spans, other)


async def test_a_chain_without_advisors_asks_the_model_once() -> None:
    recorded = Recorded()
    chain = AdvisorChain(words, telemetry=recorded.telemetry)
    await chain.call("hi")
    spans = [as_span(span) for span in recorded.spans]
    assert_trace(spans, chain)
    again = dataclasses.replace(spans[0], span_id="f" * 16)
    assert "is to ask the model once" in failure([*spans, again], chain)


async def test_of_many_wrong_runs_a_few_are_drawn() -> None:
    recorded = Recorded()
    chain = AdvisorChain(words, [Named("a")], telemetry=recorded.telemetry)
    for _ in range(30):
        await chain.call("hi")
    text = failure(recorded.spans, chain, outcome="error")
    assert (text.count("- `advisor_chain"), "- and 10 more" in text) == (20, True)
    assert (text.count("\n  advisor_chain"), text.endswith("  and 27 more")) == (3, True)


def test_another_name_is_another_chain(good: tuple[list[Any], AdvisorChain]) -> None:
    spans, _ = good
    assert "chain `other` has no span; those that have: `demo`" in failure(spans, AdvisorChain(words, name="other"))


def test_what_are_no_spans_is_an_error_of_its_own() -> None:
    with pytest.raises(TypeError, match="`str` is no span"):
        assert_trace(["span"], AdvisorChain(words))
