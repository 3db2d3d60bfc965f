"""Log events: where they go, what they tell, and that they lie in their spans."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import anyio
import pytest
import structlog

from advisorchain import AdvisorChain, BaseAdvisor, ChatChunk, ChatRequest, Outcome, Usage
from advisorchain.advisors import LoggingAdvisor
from advisorchain.errors import CallTimeoutError
from advisorchain.telemetry import add_trace_ids

from ._spans import CANARY, MODES, Answering, Endless, Hooks, Spans, ask, chain, words


@pytest.fixture
def structlog_events() -> Iterator[list[dict[str, Any]]]:
    """What an application's own structlog gets, with trace ids."""
    events: list[dict[str, Any]] = []

    def keep(_logger: Any, level: str, event: Any) -> Any:
        events.append({**event, "level": level})
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, add_trace_ids, keep])
    yield events
    structlog.reset_defaults()


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
    asked = AdvisorChain(words, [Answering()], name="demo")
    with structlog.testing.capture_logs() as events:
        await ask(asked, "call")
        await ask(asked, "stream")
    structlog.reset_defaults()
    assert [event["event"] for event in events] == ["advisorchain.advisor.short_circuit", "advisorchain.chain.finished"] * 2
    assert all(event["chain"] == "demo" for event in events)
    assert [event["outcome"] for event in events if "outcome" in event] == ["ok", "ok"]


@MODES
async def test_events_carry_the_ids_of_the_span_that_they_lie_in(
    spans: Spans, mode: str, structlog_events: list[dict[str, Any]]
) -> None:
    await ask(chain(spans, words, LoggingAdvisor(name="log", order=1)), mode)
    root = spans.named("advisor_chain demo")
    placed = {
        "advisorchain.request": spans.named("advisor log"),
        "advisorchain.response": spans.named("advisor log"),
        "advisorchain.chain.finished": root,
    }
    assert [event["event"] for event in structlog_events] == list(placed)
    for event, span in zip(structlog_events, placed.values(), strict=True):
        assert event["trace_id"] == f"{span.context.trace_id:032x}"
        assert event["span_id"] == f"{span.context.span_id:016x}"
        assert event["trace_flags"] == f"{span.context.trace_flags:02x}"


async def test_without_a_span_there_are_no_ids(structlog_events: list[dict[str, Any]]) -> None:
    await AdvisorChain(words).call("q")
    (event,) = structlog_events
    assert not {"trace_id", "span_id", "trace_flags"} & event.keys()


async def test_what_is_bound_while_a_stream_is_read_is_the_readers_alone(structlog_events: list[dict[str, Any]]) -> None:
    class Binding(BaseAdvisor):
        name = "binding"

        def before(self, request: ChatRequest) -> ChatRequest:
            structlog.contextvars.bind_contextvars(inner="bound")
            return request

    structlog.contextvars.clear_contextvars()
    async with AdvisorChain(words, [LoggingAdvisor(order=1), Binding()]).stream("q") as stream:
        async for _ in stream:
            structlog.get_logger("application").info("mine")
    assert "chain" not in str([event for event in structlog_events if event["event"] == "mine"])
    structlog.contextvars.clear_contextvars()


@MODES
async def test_the_log_says_how_a_turn_ended(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "advisorchain")

    async def failing(request: ChatRequest) -> str:
        raise LookupError(CANARY)

    with pytest.raises(LookupError):
        await ask(AdvisorChain(failing), mode)
    if mode == "stream":
        async with AdvisorChain(Endless()).stream("q") as stream:
            await anext(aiter(stream))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await ask(AdvisorChain(Endless()), mode)
    with pytest.raises(CallTimeoutError):
        await ask(AdvisorChain(Endless()), mode, timeout=0.01)
    records = [record for record in caplog.records if record.name == "advisorchain"]
    expected = ["error", "cancelled", "error"] if mode == "call" else ["error", "closed", "cancelled", "error"]
    assert [record.__dict__["outcome"] for record in records] == expected
    assert all(record.__dict__["stream"] is (mode == "stream") and record.__dict__["duration"] >= 0 for record in records)
    assert CANARY not in str([record.__dict__ for record in records])


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
    found = spans.told("chat model")
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (12, 5)
    (record,) = [record for record in caplog.records if record.name == "advisorchain"]
    assert (record.__dict__["input_tokens"], record.__dict__["output_tokens"]) == (12, 5)


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


async def test_a_log_processor_that_raises_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("the log is full")

    structlog.configure(processors=[broken])
    try:
        assert (await AdvisorChain(words, [Answering()]).call("hi")).text == "at once"
    finally:
        structlog.reset_defaults()
    assert {record.getMessage() for record in caplog.records if record.name == "advisorchain"} == {"advisorchain.log.failed"}


@MODES
async def test_a_chain_without_telemetry_logs_nothing_of_its_own(mode: str, structlog_events: list[dict[str, Any]]) -> None:
    await ask(AdvisorChain(words, [Hooks("a")], telemetry=None), mode)
    assert structlog_events == []


async def test_events_are_json_for_those_who_render_them() -> None:
    lines: list[str] = []

    def keep(_logger: Any, _level: str, event: Any) -> Any:
        lines.append(event)
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.JSONRenderer(), keep])
    try:
        await AdvisorChain(words, [LoggingAdvisor(content=True), Answering()]).call("q", system="s")
    finally:
        structlog.reset_defaults()
    assert [json.loads(line)["event"] for line in lines] == [
        "advisorchain.request",
        "advisorchain.advisor.short_circuit",
        "advisorchain.response",
        "advisorchain.chain.finished",
    ]
