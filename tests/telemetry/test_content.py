"""What was said is told only where that is wanted: four modes, the shapes of the conventions, long texts cut."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry._logs import SeverityNumber

from advisorchain import (
    AdvisorChain,
    AssistantMessage,
    AudioPart,
    ChatChunk,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    FilePart,
    ImagePart,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from advisorchain._telemetry.content import Capture, as_json
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.options import ToolDefinition
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._shapes import check_structured, checked
from ._spans import CANARY, MODES, Endless, Hooks, Spans, ask, chain

CAPTURES = pytest.mark.parametrize("capture", ["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"])
EVENT = "gen_ai.client.inference.operation.details"


@MODES
@CAPTURES
async def test_content_is_where_the_mode_says(mode: str, capture: Any) -> None:
    spans = Spans(events=True, metrics=True, capture_content=capture)

    async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        yield ChatChunk(CANARY, finish_reason="stop")

    await ask(chain(spans, model), mode, CANARY, system=CANARY)
    on_spans = CANARY in "".join(span.to_json() for span in spans.all())
    on_events = CANARY in str([event.attributes for event in spans.events()])
    assert on_spans is (capture in ("SPAN_ONLY", "SPAN_AND_EVENT"))
    assert on_events is (capture in ("EVENT_ONLY", "SPAN_AND_EVENT"))
    assert len(spans.events()) == on_events


@MODES
async def test_the_event_lies_in_its_span_and_tells_the_same(mode: str) -> None:
    spans = Spans(events=True, capture_content="SPAN_AND_EVENT")
    await ask(chain(spans), mode, system="be brief", conversation_id="c")
    (event,) = spans.events()
    span = spans.named("chat words")
    assert event.event_name == EVENT
    assert (event.trace_id, event.span_id) == (span.context.trace_id, span.context.span_id)
    told = dict(event.attributes)
    check_structured(told)
    on_span = spans.told("chat words")
    for name, value in checked(on_span).items():
        assert json.loads(json.dumps(told.pop(name))) == value
        del on_span[name]
    assert {key: json.loads(json.dumps(value)) for key, value in told.items()} == {
        key: json.loads(json.dumps(value)) for key, value in on_span.items()
    }


@MODES
async def test_an_event_of_a_call_that_fails(mode: str) -> None:
    spans = Spans(events=True, capture_content="EVENT_ONLY")

    async def model(request: ChatRequest) -> str:
        raise LookupError(CANARY)

    with pytest.raises(LookupError):
        await ask(chain(spans, model), mode, "question")
    event, failure = spans.events()
    assert failure.event_name == "gen_ai.client.operation.exception"
    assert event.attributes["error.type"] == "LookupError"
    assert "gen_ai.output.messages" not in event.attributes
    assert CANARY not in spans.text()


@MODES
@CAPTURES
async def test_a_failed_model_call_is_an_event_with_its_type_and_no_more_unless_that_is_wanted(
    mode: str, capture: Any
) -> None:
    async def model(request: ChatRequest) -> str:
        raise LookupError(CANARY)

    for record in (False, True):
        spans = Spans(events=True, capture_content=capture, record_exceptions=record)
        with pytest.raises(LookupError):
            await ask(chain(spans, model), mode, "question")
        (event,) = [event for event in spans.events() if event.event_name == "gen_ai.client.operation.exception"]
        assert (event.severity_number, event.span_id) == (SeverityNumber.WARN, spans.named("chat model").context.span_id)
        told = dict(event.attributes)
        assert told.pop("exception.type") == "LookupError"
        assert set(told) == ({"exception.message", "exception.stacktrace"} if record else set())
        assert (CANARY in spans.text()) is record


@MODES
async def test_a_model_call_that_was_left_is_no_failure(mode: str) -> None:
    spans = Spans(events=True)
    with anyio.move_on_after(0.01):
        await ask(chain(spans, Endless()), mode)
    assert spans.outcomes()["chat endless"] == "cancelled"
    assert spans.events() == []


@MODES
async def test_of_a_long_conversation_the_newest_messages_are_told(mode: str) -> None:
    spans = Spans(capture_content="SPAN_AND_EVENT", events=True, content_limit=1000)
    pairs = [(UserMessage(f"q{place} " + "x" * 700), AssistantMessage(f"a{place} " + "y" * 700)) for place in range(500)]
    history = (SystemMessage("be brief"), *(message for pair in pairs for message in pair), UserMessage("now?"))
    await ask(chain(spans), mode, history)
    for name in ("chat words", "advisor_chain demo"):
        marker, *kept = checked(spans.told(name))["gen_ai.input.messages"]
        assert 18 < len(kept) < 24  # 16 texts of the limit
        assert marker == {
            "role": "system",
            "parts": [{"type": "text", "content": f"… [cut: {1001 - len(kept)} earlier messages]"}],
        }
        assert kept[-1]["parts"][0]["content"] == "now?"
        assert kept[-2]["parts"][0]["content"].startswith("a499 ")
    check_structured(dict(spans.events()[0].attributes))
    assert max(len(str(value)) for span in spans.all() for value in (span.attributes or {}).values()) < 20_000
    assert {spans.told(f"advisor {name}")["input.value"] for name in ("a", "upper", "b")} == {"now?"}


@MODES
async def test_what_is_new_to_an_advisor_in_a_round_of_tools_is_what_came_after_the_answer(mode: str) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "there"

    spans = Spans(capture_content="SPAN_ONLY")
    model = ScriptedModel(asks(("k1", "look", "{}")), "done")
    asked = AdvisorChain(model, [ToolCallingAdvisor([look]), Hooks("in", 0)], telemetry=spans.telemetry)
    await ask(asked, mode, (UserMessage("one"), AssistantMessage("two"), UserMessage("three")))
    first, second = (dict(span.attributes or {}) for span in spans.many("advisor in"))
    assert first["input.value"] == "three"
    (result,) = json.loads(second["input.value"])
    assert result == {"role": "tool", "parts": [{"type": "tool_call_response", "id": "k1", "response": "there"}]}


def test_what_is_new_in_a_prompt_that_ends_with_an_answer_is_that() -> None:
    told = Capture(100).input_value((UserMessage("one"), AssistantMessage("two, and")))
    assert [message["role"] for message in json.loads(told["input.value"])] == ["user", "assistant"]


@MODES
async def test_a_turn_with_tools_is_told_whole(mode: str) -> None:
    @tool
    async def look(where: str) -> str:
        """Look somewhere."""
        return f"seen in {where}"

    spans = Spans(capture_content="SPAN_ONLY")
    model = ScriptedModel(asks(("k1", "look", '{"where":"there"}'), text="I look."), "It is there.")
    asked = AdvisorChain(model, [ToolCallingAdvisor([look])], telemetry=spans.telemetry)
    await ask(asked, mode, "where?", system="be brief")
    first, second = (checked(dict(span.attributes or {})) for span in spans.many("chat scripted"))
    call = {"type": "tool_call", "id": "k1", "name": "look", "arguments": {"where": "there"}}
    assert first["gen_ai.system_instructions"] == [{"type": "text", "content": "be brief"}]
    assert first["gen_ai.input.messages"] == [{"role": "user", "parts": [{"type": "text", "content": "where?"}]}]
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "I look."}, call]}
    assert first["gen_ai.output.messages"] == [{**answer, "finish_reason": "tool_call"}]
    (definition,) = first["gen_ai.tool.definitions"]
    assert (definition["name"], definition["description"]) == ("look", "Look somewhere.")
    assert definition["parameters"]["properties"] == {"where": {"type": "string"}}
    result = {"type": "tool_call_response", "id": "k1", "response": "seen in there"}
    assert second["gen_ai.input.messages"][1:] == [answer, {"role": "tool", "parts": [result]}]

    run = spans.told("execute_tool look")
    assert json.loads(run["gen_ai.tool.call.arguments"]) == {"where": "there"}
    assert run["gen_ai.tool.call.result"] == "seen in there"
    root = spans.told("advisor_chain chain")
    assert checked(root)["gen_ai.output.messages"][0]["parts"] == [{"type": "text", "content": "It is there."}]
    assert (root["input.value"], root["input.mime_type"]) == ("where?", "text/plain")
    assert (root["output.value"], root["output.mime_type"]) == ("It is there.", "text/plain")
    advisor = spans.told("advisor tools")
    assert (advisor["input.value"], advisor["output.value"]) == ("where?", "It is there.")


@MODES
async def test_an_advisor_tells_what_came_to_it_and_what_left_it(mode: str) -> None:
    spans = Spans(capture_content="SPAN_ONLY")
    history = (UserMessage("one"), AssistantMessage("two"), UserMessage("three"))
    await ask(chain(spans), mode, history)
    told = spans.told("advisor b")
    assert (told["input.value"], told["input.mime_type"]) == ("three", "text/plain")  # what is new to it
    assert told["output.value"] == "one two"
    assert spans.told("advisor upper")["output.value"] == "ONE TWO"


EVERYTHING = (
    SystemMessage("first"),
    SystemMessage((TextPart("second"), TextPart("third"))),
    UserMessage(
        (
            TextPart("look"),
            ImagePart("https://example.org/a.png"),
            ImagePart(data=b"canary-bytes" * 10, media_type="image/png"),
            ImagePart("data:image/png;base64,Y2FuYXJ5"),
            AudioPart(data=b"canary-sound", media_type="audio/wav"),
            FilePart(file_id="f1", media_type="application/pdf"),
            FilePart("https://example.org/b.pdf"),
            FilePart(data=b"canary-file"),
        ),
        name="ann",
    ),
    AssistantMessage(
        "hm", reasoning="I think", tool_calls=(ToolCall("k", "t", '{"a": [1, null]}'), ToolCall("l", "u", "half {"))
    ),
    ToolMessage("result", tool_call_id="k", name="t"),
    ToolMessage((TextPart("parts"), ImagePart(data=b"canary", media_type="image/png")), tool_call_id="l", is_error=True),
    SystemMessage("later"),
    AssistantMessage((TextPart("no"), RefusalPart("I decline")), refusal="not that"),
    UserMessage("go on"),
)  # fmt: skip


def test_every_kind_of_message_has_its_shape_and_no_bytes() -> None:
    told = {name: as_json(value) for name, value in Capture(1000).asked(ChatRequest(EVERYTHING)).items()}
    assert checked(told)["gen_ai.system_instructions"] == [
        {"type": "text", "content": text} for text in ("first", "second", "third")
    ]
    messages = json.loads(told["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "system", "assistant", "user"]
    assert messages[0]["name"] == "ann"
    assert [(part["type"], part.get("modality"), part.get("size")) for part in messages[0]["parts"]] == [
        ("text", None, None),
        ("uri", "image", None),
        ("blob", "image", 120),
        ("blob", "image", 30),
        ("blob", "audio", 12),
        ("file", "document", None),
        ("uri", "document", None),
        ("blob", "document", 11),
    ]
    assert [part["type"] for part in messages[1]["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert messages[1]["parts"][3]["arguments"] == "half {"
    assert [(part["content"], part.get("refusal")) for part in messages[5]["parts"]] == [
        ("no", None),
        ("I decline", True),
        ("not that", True),
    ]
    assert "canary" not in str(told)
    assert "Y2FuYXJ5" not in str(told)


def test_the_user_and_password_of_a_url_are_not_told() -> None:
    message = UserMessage((ImagePart(f"https://me:{CANARY}@example.org/a@b.png"),))
    value = Capture(100).input_value((message,))["input.value"]
    assert json.loads(value)[0]["parts"][0]["uri"] == "https://example.org/a@b.png"


@pytest.mark.parametrize(
    "arguments",
    ['{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"a": 123456789012345678901}', "[" * 5000, "", "null", "{"],
)
def test_arguments_that_are_no_json_to_everyone_are_told_as_text(arguments: str) -> None:
    message = AssistantMessage(tool_calls=(ToolCall("k", "t", arguments),))
    told = {name: as_json(value) for name, value in Capture(10_000).answered(ChatResponse(message)).items()}
    (part,) = checked(told)["gen_ai.output.messages"][0]["parts"]
    assert part["arguments"] == (None if arguments == "null" else arguments)
    json.dumps(part).encode()


_TEXT = st.text(max_size=30)
_MESSAGES = st.one_of(
    st.builds(UserMessage, content=_TEXT),
    st.builds(AssistantMessage, content=_TEXT, reasoning=_TEXT, tool_calls=st.just((ToolCall("k", "t", '{"a":1}'),))),
    st.builds(lambda text: ToolMessage(text, tool_call_id="k"), _TEXT),
    st.builds(SystemMessage, content=_TEXT),
)


@given(st.lists(_MESSAGES, min_size=1, max_size=8), st.integers(0, 20))
def test_any_prompt_at_any_limit_has_its_shape(messages: list[Any], limit: int) -> None:
    capture, request = Capture(limit), ChatRequest(tuple(messages))
    told = {name: as_json(value) for name, value in capture.asked(request).items()}
    checked(told)
    check_structured(capture.asked(request))
    for value in capture.input_value(request.messages).values():
        value.encode()


@MODES
async def test_long_texts_are_cut_and_say_so(mode: str) -> None:
    spans = Spans(capture_content="SPAN_ONLY", content_limit=10)

    async def model(request: ChatRequest) -> str:
        return "y" * 25

    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    options = ChatOptions(tools=(ToolDefinition("t", "d" * 12, schema),))
    await ask(chain(spans, model), mode, "x" * 1010, options=options)
    told = checked(spans.told("chat model"))
    assert told["gen_ai.input.messages"][0]["parts"][0]["content"] == "x" * 10 + "… [cut: 1000 more characters]"
    assert told["gen_ai.output.messages"][0]["parts"][0]["content"] == "y" * 10 + "… [cut: 15 more characters]"
    (definition,) = told["gen_ai.tool.definitions"]
    assert definition == {"type": "function", "name": "t", "description": "d" * 10 + "… [cut: 2 more characters]", "cut": 54}
    assert spans.told("advisor_chain demo")["input.value"] == "x" * 10 + "… [cut: 1000 more characters]"


async def test_a_tools_long_result_and_arguments_are_cut() -> None:
    @tool
    async def echo(text: str) -> str:
        """Echo."""
        return text

    spans = Spans(capture_content="SPAN_ONLY", content_limit=20)
    model = ScriptedModel(asks(("k1", "echo", json.dumps({"text": "z" * 50}))), "done")
    await AdvisorChain(model, [ToolCallingAdvisor([echo])], telemetry=spans.telemetry).call("q")
    told = spans.told("execute_tool echo")
    assert told["gen_ai.tool.call.result"] == "z" * 20 + "… [cut: 30 more characters]"
    assert told["gen_ai.tool.call.arguments"].endswith("… [cut: 42 more characters]")
    for span in spans.many("chat scripted"):
        checked(dict(span.attributes or {}))


@MODES
async def test_the_text_of_an_error_is_told_only_where_that_is_wanted(mode: str) -> None:
    def fail(*_: Any) -> Any:
        raise LookupError(CANARY)

    async def model(request: ChatRequest) -> str:
        return str(fail())

    for record in (False, True):
        spans = Spans(record_exceptions=record)
        with pytest.raises(LookupError):
            await ask(chain(spans, model), mode)
        events = [(span.name, event.name) for span in spans.all() for event in span.events]
        assert events == ([("chat model", "exception")] if record else [])  # once, where it began
        assert (CANARY in spans.text()) is record
        assert {span.status.description for span in spans.all()} == {"LookupError"}
