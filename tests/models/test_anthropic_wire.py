"""What Anthropic's API is asked, without a server: the rules that it has, and what is refused before it is asked."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import InvalidInputError
from advisorchain.exchange import ChatOptions, ChatRequest, OutputSchema, ToolDefinition
from advisorchain.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    dump_message,
    load_message,
)
from advisorchain.models._anthropic_blocks import kept_blocks
from advisorchain.models._anthropic_wire import request_parameters

CALLING = AssistantMessage("Let me see.", tool_calls=(ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "now")))
RESULTS = (ToolMessage("2", tool_call_id="c1"), ToolMessage("noon", tool_call_id="c2", is_error=True))
HOST = "api.example.com"
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
REDACTED = {"type": "redacted_thinking", "data": "xyz"}


def parameters(*messages: Message | str, all_thinking: bool = False, **options: Any) -> dict[str, Any]:
    prompt = tuple(UserMessage(message) if isinstance(message, str) else message for message in messages)
    request = ChatRequest(prompt, options=ChatOptions(**options))
    return request_parameters(request, name="claude", max_tokens=100, host=HOST, all_thinking=all_thinking)


def turns(*messages: Message | str, all_thinking: bool = False) -> list[tuple[str, list[Any]]]:
    sent = parameters(*messages, all_thinking=all_thinking)["messages"]
    return [(turn["role"], [block.get("text", block["type"]) for block in turn["content"]]) for turn in sent]


def blocks(*messages: Message | str) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = parameters(*messages)["messages"][0]["content"]
    return content


def keeping(came: Sequence[dict[str, Any]], host: str = HOST) -> dict[str, Any]:
    return {"anthropic": {"host": host, "blocks": kept_blocks(came)}}


def thought(text: str = "It is noon.", *, calls: Sequence[ToolCall] = (), **kept: Any) -> AssistantMessage:
    came = [THINKING, REDACTED, {"type": "text", "text": text}]
    came += [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}, **kept} for call in calls]
    return AssistantMessage(text, reasoning="Hm.", tool_calls=tuple(calls), metadata=keeping(came))


def test_the_least_that_is_asked() -> None:
    assert parameters("Hi") == {
        "model": "claude",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_all_system_messages_that_lead_are_the_system_parameter() -> None:
    sent = parameters(SystemMessage("One."), SystemMessage((TextPart("Two."), TextPart(" "))), "Hi")
    assert sent["system"] == [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert [turn["role"] for turn in sent["messages"]] == ["user"]


def test_a_later_system_message_stands_at_the_end_of_the_users_turn() -> None:
    later = SystemMessage("Be short.")
    assert turns("Hi", later, AssistantMessage("Yes?"), "More") == [
        ("user", ["Hi"]),
        ("system", ["Be short."]),
        ("assistant", ["Yes?"]),
        ("user", ["More"]),
    ]
    between = turns("Hi", AssistantMessage("Yes?"), later, "More", SystemMessage("Now."), "and more")
    assert between[2:] == [("user", ["More", "and more"]), ("system", ["Be short.", "Now."])]
    with pytest.raises(InvalidInputError, match="system message behind an answer"):
        turns("Hi", AssistantMessage("Yes?"), later)


def test_turns_alternate() -> None:
    said = turns("a", "b", AssistantMessage("c"), AssistantMessage("d"), "e")
    assert said == [("user", ["a", "b"]), ("assistant", ["c", "d"]), ("user", ["e"])]


def test_results_of_tools_are_one_turn_and_stand_first_in_it() -> None:
    sent = parameters("Hi", CALLING, *RESULTS, "Well?")["messages"]
    assert [turn["role"] for turn in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
    ]
    noon = {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "noon"}], "is_error": True}
    assert sent[2]["content"][1:] == [noon, {"type": "text", "text": "Well?"}]
    assert turns("Hi", CALLING, "Well?", *RESULTS)[2] == ("user", ["tool_result", "tool_result", "Well?"])


def test_a_call_and_its_result_belong_together() -> None:
    with pytest.raises(InvalidInputError, match="`c2` has no result"):
        parameters("Hi", CALLING, RESULTS[0], "Well?")
    with pytest.raises(InvalidInputError, match="`c1` has no result"):
        parameters("Hi", CALLING)
    with pytest.raises(InvalidInputError, match=r"`c1`\) answers no call"):
        parameters("Hi", RESULTS[0])
    with pytest.raises(InvalidInputError, match=r"`c1`\) answers no call"):
        parameters("Hi", CALLING, *RESULTS, AssistantMessage("So."), RESULTS[0])


def test_ids_and_arguments_of_others_are_made_fit() -> None:
    call = ToolCall("functions.add:0", "add", '{"a": ')
    sent = parameters("Hi", AssistantMessage(tool_calls=(call,)), ToolMessage("", tool_call_id=call.id))["messages"]
    assert sent[1]["content"] == [
        {"type": "tool_use", "id": "functions_add_0", "name": "add", "input": {"INVALID_JSON": '{"a": '}}
    ]
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "functions_add_0"}]


def test_blank_texts_are_not_sent() -> None:
    assert turns(
        (TextPart(" "), TextPart("Hi")) and UserMessage((TextPart(" "), TextPart("Hi"))), AssistantMessage("\n")
    ) == [("user", ["Hi"])]
    assert "system" not in parameters(SystemMessage("  "), "Hi")
    with pytest.raises(InvalidInputError, match="hold no text"):
        parameters(UserMessage("  "))
    with pytest.raises(InvalidInputError, match="system messages only"):
        parameters(SystemMessage("Hi"))


def test_images() -> None:
    data = b64encode(b"png").decode()
    told = {"type": "base64", "media_type": "image/png", "data": data}
    images = (
        ImagePart("https://host/a.png"),
        ImagePart(data=b"png", media_type="image/png"),
        ImagePart(f"data:image/png;base64,{data}"),
    )
    assert [block["source"] for block in blocks(UserMessage(images))] == [
        {"type": "url", "url": "https://host/a.png"},
        told,
        told,
    ]
    for wrong, said in (
        (ImagePart(data=b"x", media_type="image/tiff"), "image/tiff"),
        (ImagePart("data:image/png;base64,a!"), "base64"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            parameters(UserMessage((wrong,)))


def test_files() -> None:
    files = (
        FilePart(data=b"%PDF-1.7", name="a.pdf"),
        FilePart(data="Grüße".encode(), media_type="text/markdown"),
        FilePart("https://host/b.pdf"),
        FilePart(file_id="file_1"),
    )
    sent = blocks(UserMessage(files))
    assert [block["type"] for block in sent] == ["document"] * 4
    assert [block.get("title") for block in sent] == ["a.pdf", None, None, None]
    assert [block["source"] for block in sent] == [
        {"type": "base64", "media_type": "application/pdf", "data": b64encode(b"%PDF-1.7").decode()},
        {"type": "text", "media_type": "text/plain", "data": "Grüße"},
        {"type": "url", "url": "https://host/b.pdf"},
        {"type": "file", "file_id": "file_1"},
    ]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (UserMessage((AudioPart(data=b"x", media_type="audio/wav"),)), "AudioPart"),
        (AssistantMessage((ImagePart("https://host/a.png"),)), "ImagePart"),
        (SystemMessage((FilePart(file_id="f"),)), "FilePart"),
        (UserMessage((FilePart(data=b"x"),)), "media_type"),
        (UserMessage((FilePart(data=b"x", name="a.zip"),)), "application/zip"),
        (UserMessage((FilePart(data=b"\xff", media_type="text/plain"),)), "UTF-8"),
    ],
)
def test_what_the_api_does_not_take_is_refused(message: Message, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        parameters("Hi", message)


def test_a_result_may_have_an_image() -> None:
    result = ToolMessage((TextPart("here"), ImagePart("https://host/a.png")), tool_call_id="c1")
    sent = parameters("Hi", AssistantMessage(tool_calls=(ToolCall("c1", "draw"),)), result)["messages"]
    assert [block["type"] for block in sent[2]["content"][0]["content"]] == ["text", "image"]


def test_options_are_the_apis_parameters() -> None:
    tool = ToolDefinition("add", "Adds.", {"properties": {"a": {"type": "integer"}}}, strict=True)
    sent = parameters("Hi", model="other", max_tokens=5, stop=("END",), tools=(tool, ToolDefinition("now")))
    assert (sent["model"], sent["max_tokens"], sent["stop_sequences"]) == ("other", 5, ["END"])
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert sent["tools"] == [
        {"name": "add", "description": "Adds.", "strict": True, "input_schema": schema},
        {"name": "now", "input_schema": {"type": "object"}},
    ]


def test_a_tool_is_strict_where_the_api_can_hold_to_its_schema() -> None:
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    closed = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [ToolDefinition("t", parameters=each, strict=strict) for each, strict in ((free, True), (closed, False))]
    assert [(tool["strict"], tool["input_schema"]) for tool in parameters("Hi", tools=tools)["tools"]] == [
        (False, free),
        (False, closed),
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("add", {"type": "tool", "name": "add"}),
    ],
)
def test_the_choice_of_a_tool(choice: str, sent: dict[str, str]) -> None:
    assert parameters("Hi", tools=(ToolDefinition("add"),), tool_choice=choice)["tool_choice"] == sent


def test_what_the_sdk_has_no_argument_for_is_in_the_extra_body() -> None:
    sent = parameters("Hi", temperature=0.0, top_p=0.5, extra={"top_k": 3, "thinking": {"type": "adaptive"}})
    assert sent["extra_body"] == {"temperature": 0.0, "top_p": 0.5, "top_k": 3, "thinking": {"type": "adaptive"}}
    search = {"type": "web_search_20260318", "name": "web_search"}
    with_tools = parameters("Hi", tools=(ToolDefinition("add"),), extra={"tools": [search]})
    assert [tool["name"] for tool in with_tools["extra_body"]["tools"]] == ["add", "web_search"]


def test_without_tools_there_is_nothing_to_choose() -> None:
    assert "tool_choice" not in parameters("Hi", tool_choice="auto")
    assert parameters("Hi", tool_choice="auto", extra={"tools": [{}]})["tool_choice"] == {"type": "auto"}
    assert parameters("Hi", tool_choice="add")["tool_choice"] == {"type": "tool", "name": "add"}


def test_an_extra_cannot_make_a_stream_of_a_call() -> None:
    with pytest.raises(InvalidInputError, match="`stream`"):
        parameters("Hi", extra={"stream": True})


@pytest.mark.parametrize("field", ["seed", "presence_penalty", "frequency_penalty"])
def test_what_the_api_does_not_have_is_refused(field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"no `{field}`"):
        parameters("Hi", **{field: 1})


def test_definitions_that_are_no_circle_are_the_apis_own_form() -> None:
    leaf = {"type": "string"}
    pair = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Leaf"}, "right": {"$ref": "#/$defs/Leaf"}}}
    either = {"anyOf": [{"$ref": "#/$defs/Pair"}, {"$ref": "#/$defs/Leaf"}]}
    schema = {"type": "object", "properties": {"tree": either}, "$defs": {"Top": either, "Pair": pair, "Leaf": leaf}}
    told = parameters("Hi", output=OutputSchema(schema))["output_config"]["format"]["schema"]
    assert told["$defs"]["Pair"]["additionalProperties"] is False
    assert told["properties"]["tree"] == either


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}


def test_the_form_of_the_answer_is_the_apis_own() -> None:
    sent = parameters("Hi", output=OutputSchema(SCHEMA), extra={"output_config": {"effort": "low"}})
    told = sent["output_config"]["format"]
    assert (told["type"], told["schema"]["additionalProperties"]) == ("json_schema", False)
    assert sent["extra_body"]["output_config"] == {"effort": "low", "format": told}
    assert "system" not in sent


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"any": {}}},
        {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"$ref": "#/$defs/N"}}},
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/T"}},
            "$defs": {"T": {"type": "object", "properties": {"sub": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}},
        },
    ],
)
def test_a_form_that_the_api_cannot_hold_is_told_in_words(schema: dict[str, Any]) -> None:
    sent = parameters(SystemMessage("Hello."), "Hi", output=OutputSchema(schema))
    assert "output_config" not in sent
    assert json.dumps(schema) in sent["system"][0]["text"]


def test_thinking_is_sent_back_unchanged_while_the_turn_goes_on() -> None:
    call = ToolCall("c1", "now")
    answer = load_message(dump_message(thought(calls=[call], caller={"type": "direct"})))
    sent = parameters("Hi", answer, ToolMessage("noon", tool_call_id="c1"))["messages"][1]["content"]
    assert sent == [
        THINKING,
        REDACTED,
        {"type": "text", "text": "It is noon."},
        {"type": "tool_use", "id": "c1", "name": "now", "input": {}, "caller": {"type": "direct"}},
    ]


def test_a_call_that_was_taken_out_of_an_answer_is_not_sent() -> None:
    answer = thought(calls=[ToolCall("c1", "now"), ToolCall("c2", "now")])
    kept = replace(answer, tool_calls=answer.tool_calls[1:])
    sent = parameters("Hi", kept, ToolMessage("noon", tool_call_id="c2"))["messages"][1]["content"]
    assert [block["id"] for block in sent if block["type"] == "tool_use"] == ["c2"]


def test_thinking_of_earlier_turns_is_sent_when_it_is_asked_for() -> None:
    assert turns("Hi", thought(), "More")[1] == ("assistant", ["It is noon."])
    told = turns("Hi", thought(), "More", all_thinking=True)[1]
    assert told == ("assistant", ["thinking", "redacted_thinking", "It is noon."])


def test_a_text_that_was_changed_is_sent_back_changed() -> None:
    secret = replace(thought("My key is 1234."), content="My key is ****, sorry.")
    assert turns("Hi", secret, "More")[1] == ("assistant", ["My key is ****, sorry."])
    assert turns("Hi", replace(thought(), content=""), "More", all_thinking=True)[1][1] == ["thinking", "redacted_thinking"]


def test_what_servers_tools_gave_stands_where_it_stood() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "noon"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    cited = {"type": "text", "text": "Noon.", "citations": [{"type": "char_location", "cited_text": "12"}]}
    came = [{"type": "text", "text": "I look."}, search, found, cited]
    answer = AssistantMessage("I look.Noon.", metadata=keeping(came))
    sent = parameters("Hi", answer, "More")["messages"][1]["content"]
    assert sent == [{"type": "text", "text": "I look."}, search, found, cited]
    changed = parameters("Hi", replace(answer, content="I look. *****"), "More")["messages"][1]["content"]
    assert changed == [{"type": "text", "text": "I look. *****"}, search, found]


def test_what_was_kept_goes_back_to_the_host_that_it_came_from_alone() -> None:
    answer = thought()
    elsewhere = replace(
        answer, metadata=keeping([THINKING, {"type": "text", "text": "It is noon."}], host="other.example.com")
    )
    assert turns("Hi", answer, "More", all_thinking=True)[1][1] == ["thinking", "redacted_thinking", "It is noon."]
    assert turns("Hi", elsewhere, "More", all_thinking=True)[1][1] == ["It is noon."]


def test_plain_answers_keep_nothing() -> None:
    assert kept_blocks([{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "c", "name": "n", "input": {}}]) is None


def test_what_was_declined_is_told() -> None:
    assert turns("Hi", AssistantMessage(refusal="No."), AssistantMessage((RefusalPart("Never."),)), "More")[1] == (
        "assistant",
        ["No.", "Never."],
    )


a_call = st.tuples(st.sampled_from(["", " ", "text"]), st.integers(0, 3), st.booleans())
rounds = st.lists(a_call, max_size=5)


@given(rounds)
def test_any_history_with_paired_calls_is_sent_by_the_rules(rounds: list[tuple[str, int, bool]]) -> None:
    messages: list[Message] = [UserMessage("begin")]
    for number, (text, calls, system) in enumerate(rounds):
        ids = [f"c{number}.{place}" for place in range(calls)]
        messages.append(AssistantMessage(text, tool_calls=tuple(ToolCall(each, "tool") for each in ids)))
        messages += [ToolMessage("done", tool_call_id=each) for each in reversed(ids)]
        messages += [SystemMessage("rule")] if system else []
        messages += [UserMessage(text)]
    messages.append(UserMessage("end"))
    sent = parameters(*messages)["messages"]
    assert sent[0]["role"] == "user"
    for before, turn in pairwise(sent):
        assert before["role"] != turn["role"]
        assert turn["role"] != "system" or before["role"] == "user"
        assert before["role"] != "system" or turn["role"] == "assistant"
    assert all(block.get("text", "x").strip() for turn in sent for block in turn["content"])
    told = [block.get("text") for turn in sent for block in turn["content"]]
    assert told.count("rule") == sum(system for *_, system in rounds)
    assert told.count("text") == 2 * sum(text == "text" for text, *_ in rounds)
