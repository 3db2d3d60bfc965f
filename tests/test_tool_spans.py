"""The spans of tools: each run has one, below the loop that runs it, whatever task or thread it runs in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from advisorchain import AdvisorChain, BaseAdvisor, ChatChunk, ChatRequest, Telemetry, ToolCall
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.advisors._tool_loop.span import ToolSpan
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ._asking import MODES, Mode, ask
from ._asking import given as given_data
from .advisors._tool_scripts import Runs, asks, results_of

CANARY = "the-secret-canary"
both = pytest.mark.parametrize("mode", MODES)


class Spans:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(tracer_provider=self.provider)

    def named(self, beginning: str) -> list[ReadableSpan]:
        """The spans whose names begin so, in the order in which they began."""
        found = [span for span in self.exporter.get_finished_spans() if span.name.startswith(beginning)]
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def chain_of(self, span: ReadableSpan) -> list[str]:
        """The names of all that a span lies in, from the inside outwards."""
        by_id = {each.context.span_id: each for each in self.exporter.get_finished_spans()}
        names = []
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            names.append(span.name)
        return names

    def looping(self, tools: list[Any], *script: Any, advisors: Any = (), **settings: Any) -> AdvisorChain:
        loop = ToolCallingAdvisor(tools, **settings)
        return AdvisorChain(ScriptedModel(*script), [loop, *advisors], name="c", telemetry=self.telemetry)


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(autouse=True)
def _no_context_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("DEBUG", "opentelemetry")
    yield
    assert [record for record in caplog.get_records("call") if record.name.startswith("opentelemetry")] == []


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class Hooks(BaseAdvisor):
    def __init__(self, name: str, order: int) -> None:
        self.name = name
        self.order = order

    def before(self, request: ChatRequest) -> ChatRequest:
        return request


# -- what a span says


@both
async def test_a_run_has_a_span_below_the_loop_and_says_nothing_of_arguments_and_results(spans: Spans, mode: Mode) -> None:
    @tool
    async def echo(text: str) -> str:
        """Echo."""
        return text

    calling = asks(("k1", "echo", f'{{"text": "{CANARY}"}}'))
    chain = spans.looping([echo], calling, "done", advisors=[Hooks("outer", -(2**30) * 2 + 5), Hooks("inner", 0)])
    response = await ask(mode, chain, "q")
    assert results_of(response)[0].text == CANARY
    span = spans.one("execute_tool")
    assert (span.name, span.kind, span.status.status_code) == ("execute_tool echo", SpanKind.INTERNAL, StatusCode.UNSET)
    assert told(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.call.id": "k1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Echo.",
        "advisorchain.outcome": "ok",
    }
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "advisorchain"
    assert spans.chain_of(span) == ["advisor tools", "advisor outer", "advisor_chain c"]
    assert [spans.chain_of(model)[:2] for model in spans.named("chat")] == [["advisor inner", "advisor tools"]] * 2
    assert CANARY not in "".join(each.to_json() for each in spans.exporter.get_finished_spans())


@both
async def test_B058_the_span_of_a_failed_run_has_error_status_and_one_that_says_error_has_not(
    spans: Spans, mode: Mode
) -> None:
    tools = [Runs().giving("raises", ValueError(CANARY)), Runs().giving("says", "error: all is well")]
    await ask(mode, spans.looping(tools, asks("raises", "says"), "done"), "q")
    failed, well = spans.one("execute_tool raises"), spans.one("execute_tool says")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ValueError")
    assert (told(failed)["error.type"], told(failed)["advisorchain.outcome"]) == ("ValueError", "error")
    assert well.status.status_code is StatusCode.UNSET
    assert told(well)["advisorchain.outcome"] == "ok"
    assert CANARY not in failed.to_json()
    assert {told(span)["advisorchain.advisor.outcome"] for span in spans.named("advisor tools")} == {"ok"}


@both
async def test_B095_a_tool_with_a_timeout_sees_its_span_and_its_end_is_an_error(spans: Spans, mode: Mode) -> None:
    seen: dict[bool, int] = {}

    @tool(timeout=0.01)
    async def waits(ever: bool) -> str:
        """Wait."""
        seen[ever] = otel_trace.get_current_span().get_span_context().span_id
        if ever:
            await anyio.sleep_forever()
        return "in time"

    calling = asks(("1", "waits", '{"ever":false}'), ("2", "waits", '{"ever":true}'))
    await ask(mode, spans.looping([waits], calling, "done"), "q")
    one, two = sorted(spans.named("execute_tool"), key=lambda span: str(told(span)["gen_ai.tool.call.id"]))
    assert seen == {False: one.context.span_id, True: two.context.span_id}
    assert (one.status.status_code, two.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert (told(two)["error.type"], told(two)["advisorchain.outcome"]) == ("TimeoutError", "error")


async def test_arguments_that_do_not_fit_are_an_error_and_what_did_not_run_has_no_span(spans: Spans) -> None:
    @tool
    async def add(a: int) -> int:
        """Add."""
        return a

    script = [asks(("1", "add", f'{{"a": "{CANARY}"}}'), ("2", "nowhere", "{}"), ("3", "add", CANARY)), "done"]
    await spans.looping([add], *script).call("q")
    span = spans.one("execute_tool")
    assert told(span)["error.type"] == "advisorchain.errors.ToolArgumentsError"
    assert told(span)["gen_ai.tool.call.id"] == "1"
    assert CANARY not in span.to_json()


@both
async def test_a_tool_that_was_cancelled_is_no_error(spans: Spans, mode: Mode) -> None:
    started = anyio.Event()

    async def hangs() -> None:
        started.set()
        await anyio.sleep_forever()

    chain = spans.looping([Runs().giving("hangs", hangs)], asks("hangs"))
    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, chain, "q")
        await started.wait()
        group.cancel_scope.cancel()
    span = spans.one("execute_tool")
    assert (span.status.status_code, told(span)["advisorchain.outcome"]) == (StatusCode.UNSET, "cancelled")
    assert spans.chain_of(span) == ["advisor tools", "advisor_chain c"]


async def test_a_tool_that_ends_the_turn_stops_the_others(spans: Spans) -> None:
    tools = [Runs().giving("hangs", anyio.sleep_forever), Runs().giving("raises", ValueError("no"))]
    with pytest.raises(ValueError, match="no"):
        await spans.looping(tools, asks("hangs", "raises"), on_error="raise").call("q")
    outcomes = {span.name: told(span)["advisorchain.outcome"] for span in spans.named("execute_tool")}
    assert outcomes == {"execute_tool hangs": "cancelled", "execute_tool raises": "error"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_a_tool_waited_for_was_cancelled(spans: Spans) -> None:
    async def waits() -> None:
        work = asyncio.get_running_loop().create_future()
        work.cancel()
        await work

    await spans.looping([Runs().giving("waits", waits)], asks("waits"), "done").call("q")
    span = spans.one("execute_tool")
    assert span.status.status_code is StatusCode.ERROR
    assert told(span)["error.type"] == "asyncio.exceptions.CancelledError"


# -- whose child it is


@both
async def test_what_a_tool_records_lies_below_its_span(spans: Spans, mode: Mode) -> None:
    own = spans.provider.get_tracer("mine")

    @tool
    async def in_task() -> str:
        """Look."""
        with own.start_as_current_span("own task"):
            return "ok"

    @tool
    def in_thread() -> str:
        """Look."""
        assert threading.current_thread() is not threading.main_thread()
        with own.start_as_current_span("own thread"):
            return "ok"

    await ask(mode, spans.looping([in_task, in_thread], asks("in_task", "in_thread"), "done"), "q")
    assert spans.chain_of(spans.one("own task"))[0] == "execute_tool in_task"
    assert spans.chain_of(spans.one("own thread"))[0] == "execute_tool in_thread"


@both
async def test_B194_no_span_is_missing_when_tools_run_in_parallel(mode: Mode) -> None:
    data = given_data("B194")
    count = data["tools"]
    threads = [tool(_sync_tool, name=f"s{place}", description="Run.") for place in range(count)]
    for tools in (Runs().several(*(f"a{place}" for place in range(count))), threads):
        calling = asks(*(each.name for each in tools))
        for _ in range(data["runs"] // 2):  # as many on each backend, in each mode
            spans = Spans()
            await ask(mode, spans.looping(tools, calling, "done", max_concurrency=count), "q")
            found = spans.named("execute_tool")
            assert sorted(span.name for span in found) == sorted(f"execute_tool {each.name}" for each in tools)
            assert {parent_of(span) for span in found} == {spans.one("advisor tools").context.span_id}


def _sync_tool() -> str:
    return "ok"


@both
async def test_B193_many_calls_at_once_have_spans_of_their_own(spans: Spans, mode: Mode) -> None:
    count = given_data("B193")["calls"]
    gate = anyio.Event()
    waiting: list[str] = []

    @tool
    async def meet(who: str) -> str:
        """Wait until all are here."""
        waiting.append(who)
        if len(waiting) == count:
            gate.set()
        await gate.wait()
        return who

    def turn(request: ChatRequest) -> Any:
        asked = request.messages[0].text
        return asks((f"call {asked}", "meet", f'{{"who": "{asked}"}}')) if request.round == 1 else "done"

    loop = ToolCallingAdvisor([meet])
    chain = AdvisorChain(ScriptedModel(turn, repeat=True), [loop], name="c", telemetry=spans.telemetry)
    with spans.provider.get_tracer("app").start_as_current_span("application") as application:
        async with anyio.create_task_group() as group:
            for place in range(count):
                group.start_soon(_ask_as, mode, chain, str(place))
    chains, tools = spans.named("advisor_chain"), spans.named("execute_tool")
    assert (len(chains), len(tools)) == (count, count)
    assert {parent_of(span) for span in chains} == {application.get_span_context().span_id}
    for root in chains:
        loops = [span for span in spans.named("advisor tools") if parent_of(span) == root.context.span_id]
        below = [span for span in tools if parent_of(span) == loops[0].context.span_id]
        who = told(root)["gen_ai.conversation.id"]
        assert [told(span)["gen_ai.tool.call.id"] for span in below] == [f"call {who}"]


async def _ask_as(mode: Mode, chain: AdvisorChain, who: str) -> None:
    await ask(mode, chain, who, conversation_id=who)


async def _in_new_task(step: Callable[[], Any]) -> Any:
    """Run a step of a stream in a task that knows nothing of the one before."""
    came: list[Any] = []

    async def run() -> None:
        try:
            came.append(await step())
        except StopAsyncIteration:
            came.append(None)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
    return came[0]


async def test_B195_the_parent_stays_right_when_each_step_runs_in_a_new_task(spans: Spans) -> None:
    runs = Runs()
    chain = spans.looping([runs.giving("look")], asks("look", text="I look. "), "It is there.")
    async with chain.stream("q") as stream:
        chunks: list[ChatChunk] = []
        items = aiter(stream)
        while (chunk := await _in_new_task(items.__anext__)) is not None:
            chunks.append(chunk)
    assert "".join(chunk.text for chunk in chunks) == "I look. It is there."
    assert spans.chain_of(spans.one("execute_tool look")) == ["advisor tools", "advisor_chain c"]
    assert [spans.chain_of(span) for span in spans.named("chat")] == [["advisor tools", "advisor_chain c"]] * 2
    assert len({span.context.trace_id for span in spans.exporter.get_finished_spans()}) == 1


# -- nothing where nobody records


@both
async def test_without_a_provider_there_is_no_span(spans: Spans, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a span was started")

    monkeypatch.setattr("advisorchain._telemetry.recorder.Recorder.start", refuse)
    for telemetry in (Telemetry(), None):
        model = ScriptedModel(asks("look"), "done")
        chain = AdvisorChain(model, [ToolCallingAdvisor([Runs().giving("look")])], telemetry=telemetry)
        assert (await ask(mode, chain, "q")).text == "done"


async def test_a_chain_without_telemetry_in_a_tool_records_nothing(spans: Spans) -> None:
    inner = AdvisorChain(ScriptedModel(asks("deep"), "done"), [ToolCallingAdvisor([Runs().giving("deep")])], telemetry=None)

    async def ask_inner() -> str:
        return (await inner.call("q")).text

    await spans.looping([Runs().giving("outer", ask_inner)], asks("outer"), "done").call("q")
    assert [span.name for span in spans.named("execute_tool")] == ["execute_tool outer"]


async def test_a_chain_in_a_tool_lies_below_it(spans: Spans) -> None:
    inner = spans.looping([Runs().giving("deep")], asks("deep"), "done")

    async def ask_inner() -> str:
        return (await inner.call("q")).text

    await spans.looping([Runs().giving("outer", ask_inner)], asks("outer"), "done").call("q")
    assert spans.chain_of(spans.one("execute_tool deep")) == [
        "advisor tools", "advisor_chain c", "execute_tool outer", "advisor tools", "advisor_chain c",
    ]  # fmt: skip


async def test_a_run_outside_of_a_chain_is_not_recorded() -> None:
    with ToolSpan(ToolCall("k1", "look")) as span:
        span.fail(ValueError("no"))
        assert not otel_trace.get_current_span().get_span_context().is_valid
