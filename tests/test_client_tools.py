"""Tools that a client is given: a loop is there, once, in a call as in a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from advisorchain import (
    TOOL_CALLING_ORDER,
    AssistantMessage,
    ChatResponse,
    Telemetry,
    ToolCall,
    UserMessage,
)
from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor, ToolPause
from advisorchain.client import ChatClient, TypedResponse
from advisorchain.errors import ConfigurationError, OutputValidationError
from advisorchain.memory import ChatMemory
from advisorchain.sync_client import SyncChatClient
from advisorchain.testing import RecordingAdvisor, ScriptedModel
from advisorchain.tools import tool

from ._asking import MODES, Mode

CASES = Path(__file__).parent / "cases"
RAN: list[str] = []


def case(file: str, case_id: str) -> Any:
    cases = json.loads((CASES / f"{file}.json").read_text(encoding="utf-8"))
    return next(case for case in cases if case["id"] == case_id)


def scripted(data: Any) -> ScriptedModel:
    """The model of a case."""
    answers = []
    for item in data:
        calls = tuple(ToolCall(**call) for call in item.get("tool_calls", ()))
        message = AssistantMessage(item["text"], tool_calls=calls)
        answers.append(ChatResponse(message, finish_reason="tool_calls" if calls else "stop"))
    return ScriptedModel(*answers)


def asks(name: str, arguments: str = "{}") -> ChatResponse:
    return ChatResponse(AssistantMessage("", tool_calls=(ToolCall("k1", name, arguments),)), finish_reason="tool_calls")


async def ask(client: ChatClient, mode: Mode, prompt: Any = "q", **how: Any) -> Any:
    if mode == "call":
        return await client.call(prompt, **how)
    async with client.stream(prompt, **how) as stream:
        async for _ in stream:
            pass
    return stream.response


def weather(city: str = "Rome") -> str:
    """The weather."""
    RAN.append("weather")
    return "25C"


def clock() -> str:
    """The time."""
    RAN.append("clock")
    return "noon"


@tool(needs_approval=True)
def order(what: str = "tea") -> str:
    """Order something."""
    RAN.append("order")
    return "ordered"


class Report(BaseModel):
    degrees: int


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def told(model: ScriptedModel, place: int = -1) -> list[str]:
    return [definition.name for definition in model.requests[place].options.tools]


@pytest.mark.parametrize("mode", MODES)
async def test_tool_056_the_client_adds_the_tool_advisor_by_itself(mode: Mode) -> None:
    given, expect = case("tool_loop", "tool-056")["given"], case("tool_loop", "tool-056")["expect"]
    probe = RecordingAdvisor("probe", order=TOOL_CALLING_ORDER + 100)
    model = scripted(given["model_script"])
    client = ChatClient(model, tools=[tool(weather, name=name) for name in given["tools"]], advisors=[probe])
    response = await ask(client, mode, "weather?")
    assert response.text == expect["content"]
    assert len(model.requests) == expect["model_calls"]
    assert len(probe.outcomes) == expect["probe_runs"]
    assert RAN == ["weather"]


@pytest.mark.parametrize("mode", MODES)
async def test_tool_060_an_explicit_tool_advisor_is_not_doubled(mode: Mode) -> None:
    given, expect = case("tool_loop", "tool-060")["given"], case("tool_loop", "tool-060")["expect"]
    model = scripted(given["model_script"])
    tools = [tool(weather, name=name) for name in given["tools"]]
    loop = ToolCallingAdvisor([clock], max_rounds=2)
    client = ChatClient(model, tools=tools, advisors=[loop])
    assert (await ask(client, mode, "weather?")).text == "Rome: 25C"
    assert len(model.requests) == expect["model_calls"]
    assert [each for each in client.chain.advisors if isinstance(each, ToolCallingAdvisor)] == [loop]
    assert told(model) == ["clock", "getWeather"]
    assert RAN == ["weather"]


@pytest.mark.parametrize("mode", MODES)
async def test_chain_066_the_loop_is_a_child_of_the_request_and_both_model_calls_of_the_loop(mode: Mode) -> None:
    given, expect = case("chain", "chain-066")["given"], case("chain", "chain-066")["expect"]["span_parents"]
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client = ChatClient(
        scripted(given["model_script"]), tools=[weather], telemetry=Telemetry(tracer_provider=provider), name="asked"
    )
    with provider.get_tracer("test").start_as_current_span(given["outer_span"]):
        assert (await ask(client, mode, "u")).text == "sunny"
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans}

    def parent(span: ReadableSpan) -> str | None:
        return None if span.parent is None else names[span.parent.span_id]

    parents = {span.name: parent(span) for span in spans}
    assert parents["advisor_chain asked"] == expect["tool_advisor"] == "outer"  # the chain's own lies between
    assert parents["advisor tools"] == "advisor_chain asked"
    models = [parent(span) for span in spans if span.name.startswith("chat ")]
    assert models == ["advisor tools", "advisor tools"]
    assert {expect["model#1"], expect["model#2"]} == {"tool_advisor"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("own", ["nothing", "tools", "loop", "both"])
async def test_tools_for_one_call_stand_beside_the_clients(mode: Mode, own: str) -> None:
    model = ScriptedModel(asks("clock"), "noon", asks("clock"), "again")
    client = ChatClient(
        model,
        tools=[weather] if own in ("tools", "both") else [],
        advisors=[ToolCallingAdvisor(name="loop")] if own in ("loop", "both") else [],
    )
    before = client.chain.describe()
    assert (await ask(client, mode, tools=[clock])).text == "noon"
    assert told(model) == (["weather", "clock"] if own in ("tools", "both") else ["clock"])
    assert RAN == ["clock"]
    loop = ToolCallingAdvisor([clock], name="mine")
    without = [row.name for row in before if row.type == "ToolCallingAdvisor"]
    assert (await ask(client, mode, tools=[weather], advisors=[loop], without=without)).text == "again"
    assert sorted(told(model)) == ["clock", "weather"]
    assert client.chain.describe() == before


async def test_the_same_tool_twice_is_one_and_another_of_its_name_is_refused() -> None:
    client = ChatClient(model := ScriptedModel("x", repeat=True), tools=[weather])
    await client.call("q", tools=[weather])
    assert told(model) == ["weather"]
    other = tool(clock, name="weather")
    with pytest.raises(ConfigurationError, match="`weather` is the name of another tool of advisor `tools`"):
        await client.call("q", tools=[other])
    with pytest.raises(ConfigurationError, match="`weather` is the name of another tool of advisor `tools`"):
        ChatClient(model, tools=[other], advisors=[ToolCallingAdvisor([weather])])
    assert len(model.requests) == 1


@pytest.mark.parametrize("wrong", [5, "weather", None, [5], [dict], {"weather": weather}])
async def test_what_is_no_tool_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        ChatClient(ScriptedModel(), tools=wrong)
    with pytest.raises(ConfigurationError):
        await ChatClient(ScriptedModel()).call("q", tools=wrong)
    with pytest.raises(ConfigurationError):
        ChatClient(ScriptedModel()).stream("q", tools=wrong)


async def test_without_tools_there_is_no_loop() -> None:
    for tools in ([], (), iter([])):
        assert ChatClient(ScriptedModel(), tools=tools).chain.advisors == ()


@pytest.mark.parametrize("mode", MODES)
async def test_memory_keeps_the_question_and_the_last_answer(mode: Mode) -> None:
    memory = ChatMemory()
    client = ChatClient(ScriptedModel(asks("weather"), "25C", asks("weather"), "warm"), memory=memory, tools=[weather])
    await ask(client, mode, "how is it?", conversation_id="c")
    assert [message.text for message in await memory.get("c")] == ["how is it?", "25C"]
    await ask(client, mode, None, conversation_id="c", turn="regenerate")
    assert [message.text for message in await memory.get("c")] == ["how is it?", "warm"]
    assert RAN == ["weather", "weather"]


# -- typed answers


@pytest.mark.parametrize("mode", MODES)
async def test_tools_run_before_a_typed_answer(mode: Mode) -> None:
    client = ChatClient(ScriptedModel(asks("weather"), '{"degrees": 25}'), tools=[weather])
    response = await ask(client, mode, output_type=Report)
    assert response.output == Report(degrees=25)
    assert len(response.earlier) == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["client", "loop", "call"])
async def test_a_paused_turn_of_a_typed_answer_comes_back_and_goes_on(mode: Mode, where: str) -> None:
    memory = ChatMemory()
    client = ChatClient(
        model := ScriptedModel(asks("order"), '{"degrees": 25}'),
        system="be brief",
        memory=MessageChatMemoryAdvisor(memory, remember="turn"),
        tools=[order] if where in ("client", "loop") else [],
        advisors=[ToolCallingAdvisor()] if where == "loop" else [],
    )
    how: dict[str, Any] = {"output_type": Report, "tools": [order] if where == "call" else []}
    response = await ask(client, mode, "tea?", conversation_id="c", **how)
    assert isinstance(response, TypedResponse)
    assert response.finish_reason == "paused"
    assert RAN == []
    assert await memory.count("c") == 0
    with pytest.raises(OutputValidationError, match=r"waits for a person's yes; go on with `response\.pause`"):
        _ = response.output
    assert response.pause is not None
    pause = ToolPause.load(response.pause.dump())
    response = await ask(client, mode, **pause.resume(approve=["k1"]), **how)
    assert response.output == Report(degrees=25)
    assert RAN == ["order"]
    assert [message.role for message in (await memory.get("c"))] == ["user", "assistant", "tool", "assistant"]
    assert len(model.requests) == 2


@tool(return_direct=True)
def receipt() -> str:
    """Show the receipt."""
    return "one tea"


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_loop_ends_is_no_answer_of_the_type_and_no_error(mode: Mode) -> None:
    client = ChatClient(ScriptedModel(asks("receipt")), tools=[receipt])
    response = await ask(client, mode, output_type=Report)
    assert (response.text, response.finish_reason) == ("one tea", "return_direct")
    with pytest.raises(OutputValidationError, match="results of tools are the answer"):
        _ = response.output
    client = ChatClient(ScriptedModel(asks("weather")), advisors=[ToolCallingAdvisor(max_calls=1)], tools=[weather, clock])
    model = ScriptedModel(asks("weather"), asks("clock"))
    client = ChatClient(model, advisors=[ToolCallingAdvisor([weather, clock], max_calls=1)])
    response = await ask(client, mode, output_type=Report)
    assert response.finish_reason == "tool_limit"
    with pytest.raises(OutputValidationError, match="tools were called too often"):
        _ = response.output


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_that_asks_for_tools_of_the_application_is_no_error(mode: Mode) -> None:
    response = await ask(ChatClient(ScriptedModel(asks("theirs"))), mode, output_type=Report)
    assert response.message.tool_calls[0].name == "theirs"
    with pytest.raises(OutputValidationError, match="asks for tools"):
        _ = response.output


# -- the twin without await, and what is loaded


def test_the_sync_client_runs_tools_too() -> None:
    model = ScriptedModel(asks("weather"), "25C", asks("clock"), "noon", asks("order"))
    with SyncChatClient(model, tools=[weather]) as client:
        assert client.call("q").text == "25C"
        with client.stream("q", tools=[clock]) as stream:
            assert "".join(chunk.text for chunk in stream) == "noon"
        paused = client.call([UserMessage("q")], tools=[order], output_type=Report)
        assert paused.pause is not None
    assert RAN == ["weather", "clock"]


def test_a_client_without_tools_does_not_load_them() -> None:
    code = """
import sys, anyio
import advisorchain.sync_client
from advisorchain.client import ChatClient
async def model(request): return "x"
anyio.run(ChatClient(model).call, "hi")
loaded = {"advisorchain.tools", "advisorchain.advisors.tool_calling", "docstring_parser"} & set(sys.modules)
assert not loaded, loaded
async def look() -> str: return "x"
assert [row.name for row in ChatClient(model, tools=[look]).chain.describe()] == ["tools"]
"""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
