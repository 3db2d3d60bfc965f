"""What OpenAI's two APIs are asked and answer, as JSON: one history for both, and nothing lost on the way back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.aggregate import fold_chunks
from advisorchain.errors import InvalidInputError, MessageError, ModelError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, OutputSchema, ToolDefinition
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
)
from advisorchain.models._openai_chat import ChatReader, chat_body
from advisorchain.models._openai_responses import ResponsesReader, responses_body

HOST = "api.example.com"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
STRICT = {**SCHEMA, "required": ["city"], "additionalProperties": False}
CALL = ToolCall("c1", "weather", '{"city": "Rome"}')


def request(*messages: Message, **options: Any) -> ChatRequest:
    return ChatRequest(messages or (UserMessage("hi"),), options=ChatOptions(**options))


def chat(*messages: Message, host: str = HOST, **options: Any) -> dict[str, Any]:
    return chat_body(request(*messages, **options), model="gpt-x", max_tokens="max_tokens", host=host)


def responses(*messages: Message, host: str = HOST, **options: Any) -> dict[str, Any]:
    return responses_body(request(*messages, **options), model="gpt-x", host=host)


# what is asked


def test_only_what_is_said_is_asked() -> None:
    assert chat() == {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}
    assert responses() == {
        "model": "gpt-x",
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "store": False,
    }


def test_options_have_their_names_there() -> None:
    body = chat(model="gpt-y", temperature=0, top_p=0.5, max_tokens=9, stop=["\n"], seed=1, presence_penalty=0.1)
    named = {"model": "gpt-y", "temperature": 0, "top_p": 0.5, "max_tokens": 9, "stop": ["\n"], "seed": 1}
    assert {**named, "presence_penalty": 0.1}.items() <= body.items()
    body = responses(model="gpt-y", temperature=0, top_p=0.5, max_tokens=9)
    assert {"model": "gpt-y", "temperature": 0, "top_p": 0.5, "max_output_tokens": 9}.items() <= body.items()


@pytest.mark.parametrize("options", [{"stop": ("x",)}, {"seed": 0}, {"presence_penalty": 0.0}, {"frequency_penalty": 1.0}])
def test_what_the_responses_api_does_not_know_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=f"`options.{next(iter(options))}`"):
        responses(**options)


def test_tools_are_described() -> None:
    tools = (ToolDefinition("weather", "The weather.", SCHEMA, strict=True), ToolDefinition("now"))
    nothing = {"type": "object", "properties": {}}
    first = {"name": "weather", "description": "The weather.", "parameters": SCHEMA, "strict": True}
    assert chat(tools=tools)["tools"] == [
        {"type": "function", "function": first},
        {"type": "function", "function": {"name": "now", "parameters": nothing}},
    ]
    assert responses(tools=tools)["tools"] == [
        {"type": "function", **first},
        {"type": "function", "name": "now", "parameters": nothing, "strict": None},
    ]


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_way_to_choose_is_told_where_there_is_a_choice(choice: str) -> None:
    tools = (ToolDefinition("weather"),)
    assert chat(tools=tools, tool_choice=choice)["tool_choice"] == choice
    assert responses(tools=tools, tool_choice=choice)["tool_choice"] == choice
    assert ("tool_choice" in chat(tool_choice=choice)) == (choice == "required")


def test_a_tool_may_be_demanded() -> None:
    tools = (ToolDefinition("weather"),)
    assert chat(tools=tools, tool_choice="weather")["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert responses(tools=tools, tool_choice="weather")["tool_choice"] == {"type": "function", "name": "weather"}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, False),
        (STRICT, True),
        ({**STRICT, "properties": {"city": SCHEMA}}, False),
        ({**STRICT, "properties": {"city": {"anyOf": [STRICT, {"type": "null"}]}}}, True),
        ({**STRICT, "properties": {"city": {"type": "string", "default": "Rome"}}}, False),
        ({**STRICT, "required": []}, False),
    ],
)
def test_the_form_of_the_answer_is_strict_where_it_can_be(schema: dict[str, Any], strict: bool) -> None:
    output = OutputSchema(schema, name="place", description="Where.")
    told = {"name": "place", "schema": schema, "strict": strict, "description": "Where."}
    assert chat(output=output)["response_format"] == {"type": "json_schema", "json_schema": told}
    assert responses(output=output)["text"] == {"format": {"type": "json_schema", **told}}


def test_a_history_is_projected_to_both() -> None:
    history = (
        SystemMessage("Be kind."),
        UserMessage((TextPart("look"), ImagePart("https://example.com/a.png", detail="low"))),
        AssistantMessage("Let me see.", tool_calls=(CALL,)),
        ToolMessage("18C", tool_call_id="c1", name="weather"),
        AssistantMessage("", refusal="I may not say."),
        AssistantMessage("18C", reasoning="They ask.", metadata={"mine": 1}),
    )
    assert [message["role"] for message in chat(*history)["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "assistant",
    ]
    assert responses(*history)["input"] == [
        {"type": "message", "role": "system", "content": "Be kind."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
            ],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "18C"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I may not say."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "18C"}]},
    ]


def test_parts_of_the_responses_api() -> None:
    parts = (
        ImagePart(data=b"\x89PNG", media_type="image/png"),
        FilePart(file_id="f1"),
        FilePart("https://example.com/a.pdf"),
        FilePart(data=b"%PDF", name="a.pdf"),
        AudioPart(data=b"RIFF", media_type="audio/wav"),
    )
    assert responses(UserMessage(parts))["input"][0]["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"},
        {"type": "input_file", "file_id": "f1"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]
    for body in (chat, responses):
        with pytest.raises((MessageError, InvalidInputError), match="by URL"):
            body(UserMessage((AudioPart("https://example.com/a.wav"),)))
    with pytest.raises(InvalidInputError, match="more than text"):
        responses(AssistantMessage(parts[:1]))
    said = responses(AssistantMessage((TextPart("a"), RefusalPart("b"))))["input"]
    assert said[0]["content"] == [{"type": "output_text", "text": "ab"}]


# what is answered


def read_chat(*pieces: dict[str, Any]) -> list[ChatChunk]:
    reader = ChatReader("gpt-x", HOST)
    return [chunk for piece in pieces if (chunk := reader.read(piece)) is not None]


def read_responses(*events: dict[str, Any]) -> list[ChatChunk]:
    reader = ResponsesReader("gpt-x", HOST)
    return [chunk for event in events if (chunk := reader.read(event)) is not None]


def piece(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "gpt-x-1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def test_a_chunk_is_made_of_each_piece_that_tells_something() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}}
    chunks = read_chat(
        piece(role="assistant", content=""),
        piece(reasoning_content="hm", reasoning="hm"),
        piece(content="a"),
        piece(refusal="no"),
        piece("stop"),
        {"choices": [], "usage": usage},
        {"choices": []},
    )
    assert [chunk.reasoning for chunk in chunks if chunk.reasoning] == ["hm"]
    response = fold_chunks(chunks)
    assert (response.id, response.model, response.finish_reason) == ("r1", "gpt-x-1", "stop")
    assert (response.message.text, response.message.refusal) == ("a", "no")
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.reasoning_tokens) == (3, 1)
    assert response.message.metadata == {}


def test_usage_that_is_odd_does_not_cost_the_answer() -> None:
    usage = {"prompt_tokens": 1.0, "completion_tokens": "2", "total_tokens": None, "prompt_tokens_details": None}
    (chunk,) = read_chat({**piece("stop", content="a"), "usage": usage})
    assert chunk.usage is not None
    assert (chunk.usage.input_tokens, chunk.usage.output_tokens) == (1, None)


def answered_with_tools(host: str = HOST) -> ChatResponse:
    function = {"name": "weather", "arguments": ""}
    extra = {"google": {"thought_signature": "abc"}}
    call = {"index": 0, "id": "c1", "type": "function", "function": function, "extra_content": extra}
    reader = ChatReader("gpt-x", host)
    pieces = (
        piece(reasoning="They ask for Rome."),
        piece(tool_calls=[call]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": '{"city": "Rome"}'}}]),
        piece("tool_calls"),
    )
    return fold_chunks([chunk for each in pieces if (chunk := reader.read(each)) is not None])


def test_what_a_server_wants_back_with_its_calls_goes_back_to_it_alone() -> None:
    message = answered_with_tools().message
    result = ToolMessage("18C", tool_call_id="c1")
    sent = chat(UserMessage("weather?"), message, result)["messages"][1]
    assert sent["reasoning"] == "They ask for Rome."
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "abc"}}
    for elsewhere in (chat(message, result, host="other"), responses(message, result, host="other")):
        assert "They ask" not in json.dumps(elsewhere)
        assert "abc" not in json.dumps(elsewhere)
    assert "They ask" not in json.dumps(chat(UserMessage("a"), AssistantMessage("b", reasoning="They ask")))


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_a_whole_answer_with_an_error_is_one(kind: str) -> None:
    reader = ChatReader("gpt-x", HOST) if kind == "chat" else ResponsesReader("gpt-x", HOST)
    failed = {"error": {"code": "server_error", "message": "x"}, "status": "failed", "output": []}
    with pytest.raises(ModelError, match="server_error"):
        reader.whole(failed)


REASONING = {
    "type": "reasoning",
    "id": "rs1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "xyz",
    "status": None,
}
COMMENT = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Let me look."}],
}
ANSWER = {
    "type": "message",
    "id": "m2",
    "role": "assistant",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "Soon. "}, {"type": "output_text", "text": "Wait."}],
}
FUNCTION = {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'}
WHOLE = {
    "id": "resp1",
    "model": "gpt-x-1",
    "status": "completed",
    "output": [REASONING, COMMENT, {**REASONING, "id": "rs2"}, ANSWER, FUNCTION],
    "usage": {"input_tokens": 3, "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 2}},
}


def streamed(answer: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """The events of an answer as OpenAI streams them, in pieces of that size."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**answer, "output": []}}]

    def deltas(kind: str, text: str, **where: Any) -> None:
        for begin in range(0, len(text), size):
            events.append({"type": f"response.{kind}.delta", "delta": text[begin : begin + size], **where})

    for item in answer["output"]:
        begun = {**item, "content": [], "arguments": "", "encrypted_content": "unfinished"}
        events.append({"type": "response.output_item.added", "item": begun})
        for place, part in enumerate(item.get("summary", ())):
            deltas("reasoning_summary_text", part["text"], item_id=item["id"], summary_index=place)
        for place, part in enumerate(item.get("content", ())):
            deltas(part["type"], part["text"], item_id=item["id"], content_index=place)
        deltas("function_call_arguments", item.get("arguments", ""), item_id=item["id"])
        events.append({"type": "response.output_item.done", "item": item})
    events.append({"type": f"response.{answer['status']}", "response": answer})
    return events


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_whole_answer_and_a_streamed_one_are_equal(size: int) -> None:
    called = fold_chunks(ResponsesReader("gpt-x", HOST).whole(WHOLE))
    assert called == fold_chunks(read_responses(*streamed(WHOLE, size)))
    assert called.text == "Let me look.\n\nSoon. Wait."
    assert called.message.reasoning == "First.\n\nThen.\n\nFirst.\n\nThen."
    assert called.message.tool_calls == (CALL,)
    assert (called.id, called.model, called.finish_reason) == ("resp1", "gpt-x-1", "tool_calls")
    assert called.usage is not None
    assert (called.usage.total_tokens, called.usage.reasoning_tokens) == (7, 2)


def said(text: str, phase: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, "phase": phase}


def test_an_answer_goes_back_as_the_items_that_it_was() -> None:
    message = fold_chunks(read_responses(*streamed(WHOLE, 3))).message
    thought = {"type": "reasoning", "id": "rs1", "summary": REASONING["summary"], "encrypted_content": "xyz"}
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'}
    assert responses(message)["input"] == [
        thought,
        said("Let me look.", "commentary"),
        {**thought, "id": "rs2"},
        said("Soon. Wait.", "final_answer"),
        call,
    ]
    plain = responses(message, host="other")["input"]
    assert [item["type"] for item in plain] == ["message", "function_call"]
    assert "xyz" not in json.dumps(plain) + json.dumps(chat(message))


def test_text_that_was_changed_goes_back_changed() -> None:
    message = fold_chunks(read_responses(*streamed(WHOLE, 3))).message
    changed = AssistantMessage("Redacted.", tool_calls=message.tool_calls, metadata=message.metadata)
    items = responses(changed)["input"]
    assert [item["type"] for item in items] == ["reasoning", "reasoning", "message", "function_call"]
    assert items[2] == said("Redacted.", "final_answer")
    bare = responses(UserMessage("a"), AssistantMessage("", metadata=message.metadata))["input"]
    assert [item["type"] for item in bare] == ["message"]  # reasoning without what came of it is refused


def test_a_plain_answer_needs_nothing_kept() -> None:
    plain = {**WHOLE, "output": [{key: value for key, value in ANSWER.items() if key != "phase"}]}
    assert fold_chunks(ResponsesReader("gpt-x", HOST).whole(plain)).message == AssistantMessage("Soon. Wait.")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete"}, "incomplete"),
    ],
)
def test_why_it_stopped_is_told_in_the_words_of_chat(told: dict[str, Any], reason: str) -> None:
    answer = {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}], **told}
    response = fold_chunks(ResponsesReader("gpt-x", HOST).whole(answer))
    assert (response.finish_reason, response.message.refusal) == (reason, "no")


def test_an_event_that_nobody_knows_tells_nothing() -> None:
    assert read_responses({"type": "response.in_progress"}, {"type": "response.new_thing"}, {}) == []


def test_arguments_that_are_not_streamed_are_read_at_the_end() -> None:
    events = [event for event in streamed({**WHOLE, "output": [FUNCTION]}, 3) if "arguments.delta" not in event["type"]]
    assert fold_chunks(read_responses(*events)).message.tool_calls == (CALL,)


text = st.text(max_size=8).filter(lambda text: text.isprintable())
item = st.one_of(
    st.tuples(st.just("message"), text, st.sampled_from([None, "commentary"])),
    st.tuples(st.just("reasoning"), text, st.none()),
    st.tuples(st.just("function_call"), text, st.none()),
)


@given(st.lists(item, max_size=5), st.integers(1, 4))
def test_any_answer_is_the_same_however_it_comes_and_goes_back_as_it_was(given_items: list[Any], size: int) -> None:
    output: list[dict[str, Any]] = []
    for place, (kind, said, phase) in enumerate(given_items):
        made: dict[str, Any] = {"type": kind, "id": f"i{place}"}
        if kind == "message":
            made |= {"content": [{"type": "output_text", "text": said}], **({"phase": phase} if phase else {})}
        elif kind == "reasoning":
            made |= {"summary": [{"type": "summary_text", "text": said}], "encrypted_content": f"e{place}"}
        else:
            made |= {"call_id": f"c{place}", "name": "f", "arguments": json.dumps({"a": said})}
        output.append(made)
    answer = {**WHOLE, "output": output}
    called = fold_chunks(ResponsesReader("gpt-x", HOST).whole(answer))
    assert called == fold_chunks(read_responses(*streamed(answer, size)))
    sent = responses(UserMessage("a"), called.message)["input"][1:]
    assert [each.get("encrypted_content") or each.get("call_id") or each["content"][0]["text"] for each in sent] == [
        each.get("encrypted_content") or each.get("call_id") or each["content"][0]["text"]
        for each in without_trailing_reasoning([each for each in output if told(each)])
    ]


def told(item: dict[str, Any]) -> bool:
    return item["type"] != "message" or bool(item["content"][0]["text"])


def without_trailing_reasoning(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    while items and items[-1]["type"] == "reasoning":
        items = items[:-1]
    return items
