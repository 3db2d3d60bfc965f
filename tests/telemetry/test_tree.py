"""The spans of a call or stream: who lies in whom, in which order, how often entered, and what each advisor did."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind
from tenacity import wait_none

from advisorchain import (
    AdvisorChain,
    AroundAdvisor,
    BaseAdvisor,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Next,
    Outcome,
    StreamItem,
    SyncChatClient,
    Telemetry,
    TextTransform,
)
from advisorchain._span_data.data import as_span
from advisorchain._span_data.tree import trees
from advisorchain._telemetry.content import Capture
from advisorchain.advisors import RetryAdvisor, SafeGuardAdvisor, ToolCallingAdvisor
from advisorchain.errors import ModelError
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._spans import MODES, Answering, Hooks, Spans, Times, Upper, ask, chain, words
from ._time import Time

TREE = ["advisor_chain demo", "  advisor a", "    advisor upper", "      advisor b", "        chat words"]


def check_is_described(spans: Spans, asked: AdvisorChain, *, stream: bool) -> None:
    assert spans.tree() == TREE
    root = spans.told("advisor_chain demo")
    rows = asked.describe()
    assert root["advisorchain.kind"] == "chain"
    assert root["advisorchain.chain.name"] == "demo"
    assert root["advisorchain.chain.advisors"] == tuple(row.name for row in rows)
    assert root["advisorchain.chain.orders"] == tuple(row.order for row in rows)
    assert root["advisorchain.chain.length"] == len(rows)
    assert root["advisorchain.stream"] is stream
    assert root["openinference.span.kind"] == "CHAIN"
    for row in rows:
        found = spans.told(f"advisor {row.name}")
        assert found["advisorchain.kind"] == "advisor"
        assert found["advisorchain.advisor.name"] == row.name
        assert found["advisorchain.advisor.order"] == row.order
        assert found["advisorchain.advisor.index"] == row.index
        assert str(found["advisorchain.advisor.type"]).endswith(f".{row.type}")
        assert found["advisorchain.chain.length"] == len(rows)
        assert found["advisorchain.stream"] is stream
        assert found["advisorchain.advisor.outcome"] == "ok"
        assert found["advisorchain.advisor.next_calls"] == 1
        assert found["openinference.span.kind"] == "CHAIN"
        assert spans.named(f"advisor {row.name}").kind is SpanKind.INTERNAL


@MODES
async def test_the_span_tree_is_what_describe_tells(spans: Spans, mode: str) -> None:
    asked = chain(spans)
    await ask(asked, mode, conversation_id="c1")
    check_is_described(spans, asked, stream=mode == "stream")
    assert spans.told("advisor_chain demo")["gen_ai.conversation.id"] == "c1"


@MODES
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_the_span_tree_of_a_synchronous_client_is_the_same(
    spans: Spans, mode: str, backend: Any, anyio_backend: str
) -> None:
    advisors = [Hooks("b", 2), Hooks("a", -7), Upper()]
    tracer = spans.provider.get_tracer("application")
    with SyncChatClient(words, advisors=advisors, name="demo", telemetry=spans.telemetry, backend=backend) as client:
        with tracer.start_as_current_span("request"):
            if mode == "call":
                client.call("hi")
            else:
                with client.stream("hi") as stream:
                    assert "".join(chunk.text for chunk in stream) == "ONE TWO"
        asked = client.chain
    assert spans.tree() == ["request", *(f"  {line}" for line in TREE)]
    spans.exporter._finished_spans = [span for span in spans.all() if span.name != "request"]
    check_is_described(spans, asked, stream=mode == "stream")


@MODES
async def test_each_entry_of_an_advisor_inside_a_loop_has_a_span_of_its_own(spans: Spans, mode: str) -> None:
    asked = AdvisorChain(words, [Times(3, rounds=True), Hooks("inner", 9)], telemetry=spans.telemetry)
    await ask(asked, mode)
    inner = ["    advisor inner", "      chat words"]
    assert spans.tree() == ["advisor_chain chain", "  advisor times", *inner * 3]
    assert spans.told("advisor times")["advisorchain.advisor.next_calls"] == 3
    entries = [dict(span.attributes or {}) for span in spans.many("advisor inner")]
    assert [entry["advisorchain.advisor.index"] for entry in entries] == [1] * 3
    assert [entry["advisorchain.round"] for entry in entries] == [1, 2, 3]
    assert not [entry for entry in entries if "advisorchain.advisor.attempt" in entry]
    assert [dict(span.attributes or {})["advisorchain.round"] for span in spans.many("chat words")] == [1, 2, 3]


@MODES
async def test_a_retry_counts_its_attempts_in_each_round(spans: Spans, mode: str) -> None:
    advisors = [Times(2, "loop", 1, rounds=True), Times(2, "retry", 2), Hooks("in", 3)]
    asked = AdvisorChain(words, advisors, telemetry=spans.telemetry)
    await ask(asked, mode)
    told = [dict(span.attributes or {}) for span in spans.many("advisor in")]
    assert [(each["advisorchain.round"], each.get("advisorchain.advisor.attempt")) for each in told] == [
        (1, None), (1, 2), (2, None), (2, 2),
    ]  # fmt: skip
    assert [(span.attributes or {}).get("advisorchain.attempt") for span in spans.many("chat words")] == [None, 2, None, 2]
    assert "advisorchain.advisor.attempt" not in str([span.attributes for span in spans.many("advisor retry")])


@MODES
async def test_the_retry_advisor_shows_its_attempts(spans: Spans, mode: str) -> None:
    model = ScriptedModel(ModelError("no", retryable=True), "yes")
    asked = AdvisorChain(model, [RetryAdvisor(wait=wait_none()), Hooks("in", 2**30)], telemetry=spans.telemetry)
    await ask(asked, mode)
    first, second = (dict(span.attributes or {}) for span in spans.many("advisor in"))
    assert (first["advisorchain.advisor.outcome"], first.get("advisorchain.advisor.attempt")) == ("error", None)
    assert (second["advisorchain.advisor.outcome"], second["advisorchain.advisor.attempt"]) == ("ok", 2)
    assert spans.told("advisor retry")["advisorchain.advisor.next_calls"] == 2
    assert spans.told("advisor retry")["advisorchain.advisor.outcome"] == "ok"


@MODES
async def test_a_tool_loop_nests_each_round_in_it(spans: Spans, mode: str) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "there"

    model = ScriptedModel(asks("look"), "done")
    advisors = [ToolCallingAdvisor([look]), Hooks("inner", 0), Hooks("deeper", 1)]
    await ask(AdvisorChain(model, advisors, telemetry=spans.telemetry), mode)
    one_round = ["    advisor inner", "      advisor deeper", "        chat scripted"]
    assert spans.tree() == [
        "advisor_chain chain",
        "  advisor tools",
        *one_round,
        "    execute_tool look",
        *one_round,
    ]
    assert {(span.attributes or {})["advisorchain.advisor.index"] for span in spans.many("advisor inner")} == {1}


@MODES
async def test_a_short_circuit_shows_as_no_next_call(spans: Spans, mode: str) -> None:
    await ask(chain(spans, words, Answering()), mode)
    found = spans.told("advisor answering")
    assert found["advisorchain.advisor.next_calls"] == 0
    assert found["advisorchain.advisor.outcome"] == "ok"
    assert found["advisorchain.advisor.request_changed"] is False
    assert not [span for span in spans.all() if span.name.startswith("chat")]


@MODES
async def test_what_an_advisor_changed_is_told(spans: Spans, mode: str) -> None:
    class Asking(BaseAdvisor):
        name, order = "asking", 1

        def before(self, request: ChatRequest) -> ChatRequest:
            return request.with_context(more=1)

    class Noting(BaseAdvisor):
        name, order = "noting", 2

        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            return response.with_context(seen=1)

    class Loud(AroundAdvisor):
        name, order = "loud", 3

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            async for item in next(request.with_context(loud=1)):
                yield item.with_context(loud=2) if isinstance(item, ChatResponse) else item

    advisors = [Asking(), Noting(), Loud(), Times(1, "quiet", 4), Upper()]
    await ask(AdvisorChain(words, advisors, telemetry=spans.telemetry), mode)
    changed = {}
    for row in ("asking", "noting", "loud", "quiet", "upper"):
        told = spans.told(f"advisor {row}")
        changed[row] = told["advisorchain.advisor.request_changed"], told["advisorchain.advisor.response_changed"]
    assert changed == {
        "asking": (True, False),
        "noting": (False, True),
        "loud": (True, True),
        "quiet": (False, False),
        "upper": (False, True),
    }


@MODES
async def test_the_time_of_an_advisor_itself_is_without_what_lies_inside(spans: Spans, mode: str, time: Time) -> None:
    class Slow(AroundAdvisor):
        name, order = "slow", 3

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            time.passes(1)
            async for item in next(request):
                yield item
            time.passes(2)

    class SlowDone(BaseAdvisor):
        name, order = "done", 4

        async def done(self, request: ChatRequest, outcome: Outcome) -> None:
            time.passes(4)

    async def slow(request: ChatRequest) -> AsyncGenerator[str, None]:
        time.passes(8)
        yield "slow"

    advisors = [Hooks("out", 1), Slow(), SlowDone(), Hooks("in", 5)]
    await ask(AdvisorChain(slow, advisors, telemetry=spans.telemetry), mode)
    own = {
        name: spans.told(f"advisor {name}")["advisorchain.advisor.self_duration"] for name in ("out", "slow", "done", "in")
    }
    assert own == {"out": 0, "slow": 3, "done": 4, "in": 0}
    whole = {span.name: (span.end_time or 0) - (span.start_time or 0) for span in spans.all()}
    assert [whole[f"advisor {name}"] / 1e9 for name in ("out", "slow", "done", "in")] == [15, 15, 12, 8]


class Timed(BaseAdvisor):
    """All four hooks, each of which takes its time; `failing` is one that raises, when it has."""

    name, order = "timed", 1

    def __init__(self, time: Time, failing: str | None = None) -> None:
        self.time = time
        self.failing = failing

    def takes(self, hook: str, seconds: float) -> None:
        self.time.passes(seconds)
        if hook == self.failing:
            raise LookupError

    def before(self, request: ChatRequest) -> ChatRequest:
        self.takes("before", 1)
        return request

    def transform(self, request: ChatRequest) -> TextTransform:
        self.takes("transform", 2)
        return _TimedText(self)

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        self.takes("after", 16)
        return response

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        self.takes("done", 32)


class TimedAsync(Timed):
    async def before(self, request: ChatRequest) -> ChatRequest:  # type: ignore[override]
        return super().before(request)

    async def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:  # type: ignore[override]
        return super().after(request, response)

    async def done(self, request: ChatRequest, outcome: Outcome) -> None:  # type: ignore[override]
        super().done(request, outcome)


class _TimedText:
    def __init__(self, advisor: Timed) -> None:
        self.advisor = advisor

    def feed(self, text: str) -> str:
        self.advisor.takes("feed", 4)
        return text

    def flush(self) -> str:
        self.advisor.takes("flush", 8)
        return ""


def hooks_of(spans: Spans, name: str) -> dict[str, float]:
    """What the span of an advisor tells of its hooks."""
    told = {key.removeprefix("advisorchain.advisor."): value for key, value in spans.told(f"advisor {name}").items()}
    return {key.removesuffix("_duration"): value for key, value in told.items() if key.endswith("_duration")}


@MODES
@pytest.mark.parametrize("kind", [Timed, TimedAsync])
async def test_each_hook_tells_its_time_and_they_sum_to_the_advisors_own(
    spans: Spans, mode: str, time: Time, kind: type[Timed]
) -> None:
    advisors = [kind(time), Answering(), Hooks("never", 9)]
    await ask(AdvisorChain(words, [kind(time), Hooks("plain", 2)], telemetry=spans.telemetry), mode)
    fed = 1 if mode == "call" else 2  # pieces of text
    hooks = {"before": 1, "transform": 2 + 4 * fed + 8, "after": 16, "done": 32}
    assert hooks_of(spans, "timed") == {**hooks, "self": sum(hooks.values())}
    assert hooks_of(spans, "plain") == {"before": 0, "after": 0, "self": 0}
    assert "advisorchain.advisor.failed_hook" not in spans.told("advisor timed")
    spans.exporter.clear()
    await ask(AdvisorChain(words, advisors, telemetry=spans.telemetry), mode)
    assert hooks_of(spans, "answering") == {"before": 0, "self": 0}


@MODES
@pytest.mark.parametrize("kind", [Timed, TimedAsync])
@pytest.mark.parametrize("failing", ["before", "transform", "feed", "flush", "after", "done"])
async def test_the_hook_that_failed_is_told(spans: Spans, mode: str, time: Time, kind: type[Timed], failing: str) -> None:
    asked = AdvisorChain(words, [Hooks("out"), kind(time, failing), Hooks("in", 2)], telemetry=spans.telemetry)
    with pytest.raises(LookupError):
        await ask(asked, mode)
    told = spans.told("advisor timed")
    assert told["advisorchain.advisor.failed_hook"] == ("transform" if failing in ("feed", "flush") else failing)
    assert sum(hooks_of(spans, "timed").values()) == 2 * told["advisorchain.advisor.self_duration"]
    assert "advisorchain.advisor.failed_hook" not in spans.told("advisor out")


async def test_time_that_two_answers_are_awaited_at_once_counts_once(spans: Spans, time: Time) -> None:
    class Both:
        name, order = "both", 1

        async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
            answers: list[ChatResponse] = []

            async def one() -> None:
                answers.append(await next(request))

            async with anyio.create_task_group() as group:
                group.start_soon(one)
                group.start_soon(one)
            time.passes(1)
            return answers[0]

    asked: list[anyio.Event] = []

    async def slow(request: ChatRequest) -> str:
        asked.append(anyio.Event())
        if len(asked) == 2:  # both wait now
            time.passes(4)
            for event in asked:
                event.set()
        await asked[0].wait()
        return "slow"

    await AdvisorChain(slow, [Both()], telemetry=spans.telemetry).call("q")
    told = spans.told("advisor both")
    assert told["advisorchain.advisor.next_calls"] == 2
    assert told["advisorchain.advisor.self_duration"] == 1
    assert {span.parent.span_id for span in spans.many("chat slow") if span.parent} == {
        spans.named("advisor both").context.span_id
    }


async def test_the_time_of_a_slow_reader_is_told_apart_from_the_models(spans: Spans, time: Time) -> None:
    async def slow(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        for _ in range(3):
            time.passes(1)
            yield ChatChunk("word ")

    class Out(Times):
        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            async for item in next(request):
                time.passes(2)
                yield item

    advisors = [Hooks("a"), Out(1, "out", 1), Times(1)]
    async with AdvisorChain(slow, advisors, telemetry=spans.telemetry).stream("q") as stream:
        async for _ in stream:
            time.passes(4)
    whole = spans.named("advisor_chain chain")
    assert spans.told("advisor_chain chain")["advisorchain.stream.reader_duration"] == 12
    awaited = {name: spans.told(name)["advisorchain.stream.awaited_duration"] for name in ("chat slow", "advisor times")}
    assert awaited == {"chat slow": 3, "advisor times": 3}
    assert spans.told("advisor out")["advisorchain.stream.awaited_duration"] == 11  # with the response
    assert ((whole.end_time or 0) - (whole.start_time or 0)) / 1e9 == 23
    [found] = trees(as_span(span) for span in spans.all())
    own = {node.span.name: node.own for node in found.walk() if node.span is not None}
    assert own == {"advisor_chain chain": 0, "advisor a": 0, "advisor out": 8, "advisor times": 0, "chat slow": 3}
    assert (found.reader, found.seconds) == (12, 23)


async def test_a_reader_that_leaves_late_has_read_until_then(spans: Spans, time: Time) -> None:
    async with AdvisorChain(words, telemetry=spans.telemetry).stream("q") as stream:
        async for _ in stream:
            time.passes(3)
            break
    told = spans.told("advisor_chain chain")
    assert (told["advisorchain.outcome"], told["advisorchain.stream.reader_duration"]) == ("closed", 3)


async def test_a_call_has_no_reader(spans: Spans) -> None:
    await chain(spans).call("q")
    assert [name for span in spans.all() for name in (span.attributes or {}) if "advisorchain.stream." in name] == []


async def test_chunks_are_counted_where_they_come_in_and_go_out(spans: Spans) -> None:
    class Every(AroundAdvisor):
        name, order = "every second", 1

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            async with aclosing(next(request)) as items:
                count = 0
                async for item in items:
                    count += isinstance(item, ChatChunk)
                    if isinstance(item, ChatResponse) or count % 2:
                        yield item

    class Holding(BaseAdvisor):
        name, order = "holding", 2

        def transform(self, request: ChatRequest) -> TextTransform:
            return _Held()

    class _Held:
        held = ""

        def feed(self, text: str) -> str:
            text, self.held = self.held, text
            return text

        def flush(self) -> str:
            return self.held

    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        for letter in "abcd":
            yield ChatChunk(letter)

    asked = AdvisorChain(model, [Every(), Holding(), Hooks("plain", 3)], telemetry=spans.telemetry)
    await ask(asked, "stream")
    counted = {name.removeprefix("advisor "): _chunks(spans.told(name)) for name in (
        "advisor_chain chain", "advisor every second", "advisor holding", "advisor plain", "chat model",
    )}  # fmt: skip
    assert counted == {
        "advisor_chain chain": (None, 2),
        "every second": (4, 2),
        "holding": (4, 4),
        "plain": (None, None),
        "chat model": (None, 4),
    }
    for name in ("advisor_chain chain", "advisor every second", "advisor holding"):
        assert 0 < spans.told(name)["advisorchain.stream.time_to_first_chunk"] < 60


def _chunks(told: dict[str, Any]) -> tuple[Any, Any]:
    return told.get("advisorchain.stream.chunks_in"), told.get("advisorchain.stream.chunks_out")


@MODES
async def test_a_guard_shows_as_one_and_any_advisor_may_say_its_kind(spans: Spans, mode: str) -> None:
    class Searching(BaseAdvisor):
        name, span_kind = "searching", "RETRIEVER"

    class Odd(BaseAdvisor):
        name, span_kind = "odd", "SOMETHING"

    advisors = [SafeGuardAdvisor(["bad"]), Searching(), Odd()]
    await ask(AdvisorChain(words, advisors, telemetry=spans.telemetry), mode)
    kinds = {name: spans.told(f"advisor {name}")["openinference.span.kind"] for name in ("guard", "searching", "odd")}
    assert kinds == {"guard": "GUARDRAIL", "searching": "RETRIEVER", "odd": "CHAIN"}


@MODES
async def test_openinferences_keys_can_be_left_out(mode: str) -> None:
    spans = Spans(openinference=False, capture_content="SPAN_ONLY")
    await ask(chain(spans), mode)
    keys = {key for span in spans.all() for key in span.attributes or {}}
    assert not {key for key in keys if key.startswith(("openinference", "input.", "output."))}


@MODES
async def test_a_chain_may_be_an_agent(mode: str) -> None:
    spans = Spans(agent_name="support")
    await ask(chain(spans), mode, conversation_id="c")
    root = spans.told("invoke_agent support")
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert root["openinference.span.kind"] == "AGENT"
    assert root["advisorchain.chain.name"] == "demo"
    assert root["gen_ai.request.model"] == "words"
    assert {(span.attributes or {})["gen_ai.agent.name"] for span in spans.all()} == {"support"}


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
    for span in spans.all():
        if span.name == "advisor b":
            (upper,) = [other for other in spans.many("advisor upper") if other.context.trace_id == span.context.trace_id]
            assert span.parent is not None
            assert span.parent.span_id == upper.context.span_id


async def test_what_a_sampler_needs_is_there_at_the_start() -> None:
    seen: dict[str, dict[str, Any]] = {}

    class Looking(Sampler):
        def should_sample(self, parent: Any, trace: int, name: str, kind: Any = None, attributes: Any = None, *rest: Any, **more: Any) -> Any:  # fmt: skip  # noqa: E501
            seen[name] = dict(attributes)
            return ALWAYS_ON.should_sample(parent, trace, name, kind, attributes)

        def get_description(self) -> str:
            return "looking"

    telemetry = Telemetry(TracerProvider(sampler=Looking(), shutdown_on_exit=False), agent_name="support")
    model = ScriptedModel(asks("look"), "done", provider="openai")
    chain = AdvisorChain(model, [ToolCallingAdvisor([tool(_look)])], telemetry=telemetry)
    await chain.call("q", conversation_id="c")
    assert {"gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.conversation.id"} <= seen["invoke_agent support"].keys()
    assert {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"} <= seen["chat scripted"].keys()
    assert {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.type"} <= seen["execute_tool look"].keys()
    assert {"advisorchain.advisor.name", "advisorchain.advisor.order"} <= seen["advisor tools"].keys()


def _look() -> str:
    """Look."""
    return "there"


_look.__name__ = "look"


@MODES
async def test_what_is_sampled_out_costs_no_content(mode: str) -> None:
    telemetry = Telemetry(TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False), capture_content="SPAN_ONLY")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("asked", "answered", "input_value", "output_value"):
            patch.setattr(Capture, name, lambda *_: pytest.fail("content was made"))
        asked = AdvisorChain(words, [Hooks("a"), Times(1)], telemetry=telemetry)
        assert (await ask(asked, mode)).text == "one two"
