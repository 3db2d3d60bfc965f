"""With content off, nothing of what was said is anywhere: not in spans, metrics, events or logs; nor a key, nor an error."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import structlog

from advisorchain import AdvisorChain, AroundAdvisor, BaseAdvisor, ChatOptions, ChatRequest, ChatResponse, Outcome, Usage
from advisorchain.advisors import (
    LoggingAdvisor,
    MessageChatMemoryAdvisor,
    RetryAdvisor,
    SafeGuardAdvisor,
    ToolCallingAdvisor,
)
from advisorchain.errors import ModelError
from advisorchain.memory import ChatMemory
from advisorchain.testing import ScriptedModel
from advisorchain.tools import ToolContext, tool

from .._asking import given
from ..advisors._tool_scripts import asks
from ._spans import CANARY, MODES, Hooks, Spans, Upper, ask, chain

_SAID = [CANARY + suffix for suffix in ("-prompt", "-system", "-answer", "-argument", "-result", "-error", "-context")]


def all_logs(caplog: pytest.LogCaptureFixture) -> str:
    return str([record.__dict__ for record in caplog.records])


@MODES
async def test_nothing_that_was_said_is_anywhere(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    prompt, system, answer, argument, result, error, context = _SAID
    caplog.set_level(logging.DEBUG)

    @tool
    async def echo(text: str) -> str:
        """Echo."""
        assert text == argument
        return result

    @tool
    async def breaks(text: str) -> str:
        """Break."""
        raise LookupError(error)

    class Failing(BaseAdvisor):
        name, order = "failing", 2**30

        def __init__(self) -> None:
            self.failed = False

        async def done(self, request: ChatRequest, outcome: Outcome) -> None:
            if outcome.status == "error":
                raise ValueError(error)

    calling = asks(("1", "echo", json.dumps({"text": argument})), ("2", "breaks", json.dumps({"text": argument})))
    model = ScriptedModel(calling, ModelError(error, retryable=True), answer, accepts=("api_key",))
    spans = Spans(metrics=True, events=True)
    advisors = [
        MessageChatMemoryAdvisor(ChatMemory()), ToolCallingAdvisor([echo, breaks]), LoggingAdvisor(), Upper(), Failing(),
        RetryAdvisor(wait=lambda _: 0.0), SafeGuardAdvisor(["never said"]),
    ]  # fmt: skip
    asked = AdvisorChain(model, advisors, telemetry=spans.telemetry)
    options = ChatOptions(extra={"api_key": CANARY + "-key"})
    response = await ask(
        asked, mode, prompt, system=system, context={"k": context}, conversation_id="c", options=options
    )  # fmt: skip
    assert answer.upper() in response.text.upper()
    assert len(spans.many("execute_tool echo")) == 1
    assert CANARY not in spans.text().lower()
    assert CANARY not in all_logs(caplog).lower()


@MODES
@pytest.mark.parametrize("where", ["before", "transform", "after", "done", "model"])
async def test_an_error_is_on_the_spans_by_its_type_alone(
    spans: Spans, mode: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise LookupError(CANARY)

    class Broken(BaseAdvisor):
        name, order = "broken", 0

    if where != "model":
        setattr(Broken, where, fail)

    async def model(request: ChatRequest) -> str:
        if where == "model":
            fail()
        return "a"

    caplog.set_level(logging.DEBUG)
    with pytest.raises(LookupError):
        await ask(chain(spans, model, Broken()), mode)
    for name in ("advisor_chain demo", "advisor a", "advisor broken"):
        found = spans.named(name)
        assert (found.attributes or {})["error.type"] == "LookupError", name
        assert (found.status.status_code.name, found.status.description) == ("ERROR", "LookupError")
        assert found.events == ()
    assert CANARY not in spans.text()
    assert CANARY not in all_logs(caplog)


@MODES
async def test_B147_keys_are_nowhere_when_a_call_is_retried(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    key = given("B147")["api_key"]

    class Keyed:
        name, provider = "keyed", "openai"

        def __init__(self) -> None:
            self.headers = {"authorization": f"Bearer {key}"}
            self.tried = 0

        async def call(self, request: ChatRequest) -> ChatResponse:
            self.tried += 1
            if self.tried == 1:
                raise ModelError("busy", retryable=True) from ConnectionError(str(self.headers))
            return ChatResponse("fine", usage=Usage(1, 1))

    caplog.set_level(logging.DEBUG)
    spans = Spans(metrics=True, events=True)
    asked = AdvisorChain(Keyed(), [RetryAdvisor(wait=lambda _: 0.0), Hooks("in", 2**30)], telemetry=spans.telemetry)
    with structlog.testing.capture_logs() as events:
        await ask(asked, mode, CANARY, system=CANARY)
    structlog.reset_defaults()
    found = spans.text() + all_logs(caplog) + str(events)
    assert key not in found
    assert CANARY not in found
    assert len(spans.many("chat keyed")) == 2


async def test_the_name_and_type_of_advisors_are_told_and_not_their_settings(spans: Spans) -> None:
    class Secret(AroundAdvisor):
        name = "secret"

        def __init__(self) -> None:
            self.password = CANARY

        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(request):
                yield item

        def __repr__(self) -> str:
            return self.password

    await AdvisorChain(ScriptedModel("x"), [Secret()], telemetry=spans.telemetry).call("q")
    assert CANARY not in spans.text()


async def test_what_a_tool_says_is_not_told(spans: Spans) -> None:
    @tool
    async def counts(context: ToolContext) -> str:
        """Count."""
        return f"{CANARY} {context.call_id}"

    model = ScriptedModel(asks("counts"), "done")
    await AdvisorChain(model, [ToolCallingAdvisor([counts])], telemetry=spans.telemetry).call("q")
    assert CANARY not in spans.text()
