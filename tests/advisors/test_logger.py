"""What is logged: two events for a request, and nothing of what was said unless that is wanted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog
from tenacity import wait_none

from advisorchain import AdvisorChain, ChatResponse
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.fallback import FallbackAdvisor
from advisorchain.advisors.logger import LoggingAdvisor
from advisorchain.advisors.retry import RetryAdvisor
from advisorchain.errors import ConfigurationError, ModelError
from advisorchain.memory import ChatMemory
from advisorchain.messages import Usage
from advisorchain.testing import ScriptedModel, check_advisor

MODES = pytest.mark.parametrize("mode", ["call", "stream"])
SECRET = "the canary sings"


async def ask(chain: AdvisorChain, mode: str, prompt: str = "question", **more: Any) -> ChatResponse:
    if mode == "call":
        return await chain.call(prompt, **more)
    async with chain.stream(prompt, **more) as stream:
        async for _ in stream:
            pass
        return stream.response


def told(caplog: pytest.LogCaptureFixture, *advisors: str) -> list[dict[str, Any]]:
    """The advisor's own events."""
    rows = [record.__dict__ | {"event": record.getMessage()} for record in caplog.records if record.name == "advisorchain"]
    return [row for row in rows if row.get("advisor") in (advisors or ("logger",))]


@pytest.fixture(autouse=True)
def _debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "advisorchain")


@pytest.mark.parametrize("content", [False, True])
async def test_it_keeps_the_laws(content: bool) -> None:
    await check_advisor(lambda: LoggingAdvisor(content=content))


async def logs_one_request_and_one_response(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    chain = AdvisorChain(ScriptedModel("answer"), [LoggingAdvisor(content=True)])
    assert (await ask(chain, mode)).text == "answer"
    request, response = told(caplog)
    assert (request["event"], request["levelname"]) == ("advisorchain.request", "DEBUG")
    assert request["content"] == [{"role": "user", "text": "question"}]
    assert (response["event"], response["levelname"]) == ("advisorchain.response", "DEBUG")
    assert (response["content"], response["outcome"], response["finish_reason"]) == ("answer", "ok", "stop")


async def test_chain_061_one_request_and_one_response_of_a_call(caplog: pytest.LogCaptureFixture) -> None:
    await logs_one_request_and_one_response("call", caplog)


async def test_chain_062_one_request_and_one_whole_response_of_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    await logs_one_request_and_one_response("stream", caplog)


async def test_B190_a_long_stream_is_few_records_without_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    chain = AdvisorChain(ScriptedModel([SECRET] * 500), [LoggingAdvisor()])
    assert len((await ask(chain, "stream", SECRET)).text) == 500 * len(SECRET)
    records = [record for record in caplog.records if record.name == "advisorchain"]
    assert len(records) == 3  # request, response, and the chain's own
    assert SECRET not in str([record.__dict__ for record in records])


@MODES
async def test_what_is_told_of_a_turn(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    memory = ChatMemory()
    reply = ChatResponse("answer", finish_reason="stop", model="m-1", usage=Usage(7, 2))
    chain = AdvisorChain(ScriptedModel(reply, repeat=True), [MessageChatMemoryAdvisor(memory), LoggingAdvisor()])
    for _ in range(2):
        await ask(chain, mode, conversation_id="c", system="s")
    request, response = told(caplog)[2:]
    assert (request["messages"], request["recalled"], request["round"]) == (4, 2, 0)
    shown = {
        key: response[key] for key in ("outcome", "finish_reason", "model", "input_tokens", "output_tokens", "tool_calls")
    }
    assert shown == {
        "outcome": "ok",
        "finish_reason": "stop",
        "model": "m-1",
        "input_tokens": 7,
        "output_tokens": 2,
        "tool_calls": 0,
    }
    assert response["duration"] >= 0


@MODES
async def test_of_an_error_the_type_is_told(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    chain = AdvisorChain(ScriptedModel(ModelError(SECRET)), [LoggingAdvisor(content=True)])
    with pytest.raises(ModelError):
        await ask(chain, mode)
    response = told(caplog)[1]
    assert (response["outcome"], response["error_type"]) == ("error", "ModelError")
    assert SECRET not in str(response)


async def test_a_reader_who_leaves_is_told_with_what_was_seen(caplog: pytest.LogCaptureFixture) -> None:
    chain = AdvisorChain(ScriptedModel("one two three"), [LoggingAdvisor(content=True)])
    async with chain.stream("question") as stream:
        await anext(aiter(stream))
    response = told(caplog)[1]
    assert (response["outcome"], response["content"]) == ("closed", "one")


@MODES
async def test_several_stand_where_one_wants_to_look(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    outside, inside = LoggingAdvisor(name="outside", order=-5), LoggingAdvisor(name="inside", order=5)
    await ask(AdvisorChain(ScriptedModel("answer"), [inside, outside]), mode)
    events = [(row["advisor"], row["event"].rpartition(".")[2]) for row in told(caplog, "outside", "inside")]
    assert events == [("outside", "request"), ("inside", "request"), ("inside", "response"), ("outside", "response")]


async def test_structlog_gets_the_events_where_it_is_configured() -> None:
    chain = AdvisorChain(ScriptedModel("answer"), [LoggingAdvisor()])
    with structlog.testing.capture_logs() as events:
        await chain.call("question")
    structlog.reset_defaults()
    mine = [event for event in events if event.get("advisor") == "logger"]
    assert [(event["event"], event["log_level"]) for event in mine] == [
        ("advisorchain.request", "debug"),
        ("advisorchain.response", "debug"),
    ]


@MODES
async def test_the_level_is_ones_own_and_failures_may_have_another(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    loud = LoggingAdvisor(level="info", error_level="error", name="loud", order=-1)
    even = LoggingAdvisor(level="warning", name="even")
    chain = AdvisorChain(ScriptedModel("answer", ModelError(SECRET)), [loud, even])
    await ask(chain, mode)
    with pytest.raises(ModelError):
        await ask(chain, mode)
    levels = [(row["advisor"], row["levelname"]) for row in told(caplog, "loud", "even")]
    well = [("loud", "INFO"), ("even", "WARNING"), ("even", "WARNING"), ("loud", "INFO")]
    assert levels == [*well, *well[:3], ("loud", "ERROR")]


@MODES
async def test_a_retry_and_a_fallback_tell_what_they_swallow(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    again = RetryAdvisor(attempts=2, wait=wait_none())
    chain = AdvisorChain(
        ScriptedModel(*[ModelError(SECRET, retryable=True)] * 2),
        [again, FallbackAdvisor(ScriptedModel("answer", name="spare"))],
    )
    assert (await ask(chain, mode)).text == "answer"
    retried, fell_back = told(caplog, "retry", "fallback")
    assert (retried["event"], retried["attempt"], retried["error_type"]) == ("advisorchain.retry.again", 1, "ModelError")
    assert (fell_back["event"], fell_back["next"]) == ("advisorchain.fallback.again", "spare")
    assert {row["levelname"] for row in (retried, fell_back)} == {"WARNING"}
    assert SECRET not in str([record.__dict__ for record in caplog.records])


@pytest.mark.parametrize("name", ["level", "error_level"])
def test_a_level_is_one_of_four(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{name}`"):
        LoggingAdvisor(**{name: "loud"})


def test_content_is_yes_or_no() -> None:
    with pytest.raises(ConfigurationError, match="`content` is a str"):
        LoggingAdvisor(content="yes")
