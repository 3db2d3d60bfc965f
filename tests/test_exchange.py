"""Requests, responses and chunks: values that are checked and copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConversationIdError, InvalidInputError, MessageError
from advisorchain.exchange import (
    ChatChunk,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    OutputSchema,
    ToolCallChunk,
    ToolDefinition,
)
from advisorchain.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, Usage, UserMessage

PROMPT = (UserMessage("u"),)


@pytest.mark.parametrize("context", [{None: "x"}, {5: "x"}, {"k": 1, b"k": 2}])
def test_chain_025_a_context_key_is_text(context: Any) -> None:
    with pytest.raises(InvalidInputError, match="`context` has a key that is "):
        ChatRequest(PROMPT, context=context)
    with pytest.raises(InvalidInputError, match="`context`"):
        ChatRequest(PROMPT).replace(context=context)
    with pytest.raises(InvalidInputError, match="`context`"):
        ChatResponse("x", context=context)


def test_chain_026_the_context_of_a_copy_is_its_own() -> None:
    original = ChatRequest(PROMPT, context={"k": "v"})
    copy = original.replace(context={"k": "w"})
    assert (original.context, copy.context) == ({"k": "v"}, {"k": "w"})
    for request in (original, copy):
        with pytest.raises(TypeError):
            request.context["k"] = "changed"


def test_chain_026_the_dict_that_was_given_may_change_afterwards() -> None:
    given = {"k": "v"}
    request, response = ChatRequest(PROMPT, context=given), ChatResponse("x", context=given)
    given["k"] = "changed"
    assert request.context == response.context == {"k": "v"}


def test_chain_027_with_context_adds_and_keeps_the_others() -> None:
    original = ChatRequest(PROMPT, context={"a": 1})
    copy = original.with_context(b=2, c=3)
    assert original.context == {"a": 1}
    assert copy.context == {"a": 1, "b": 2, "c": 3}
    response = ChatResponse("x", context={"a": 1})
    assert response.with_context(a=2, b=3).context == {"a": 2, "b": 3}
    assert response.context == {"a": 1}


def test_chain_029_another_prompt_keeps_the_context() -> None:
    original = ChatRequest((UserMessage("old"),), "c", context={"a": 1})
    copy = original.replace(messages=(UserMessage("new"),))
    assert [message.text for message in original.messages] == ["old"]
    assert [message.text for message in copy.messages] == ["new"]
    assert (copy.context, copy.conversation_id) == ({"a": 1}, "c")


def test_a_copy_differs_in_the_named_fields_only() -> None:
    options = ChatOptions(model="m")
    original = ChatRequest(PROMPT, "c", options, {"a": 1}, {"b": 2}, 3, 4)
    values: dict[str, Any] = {
        "messages": (UserMessage("w"),),
        "conversation_id": None,
        "options": ChatOptions(),
        "context": {},
        "local": {"n": 1},
        "round": 9,
        "made": 8,
    }
    for name, value in values.items():
        copy = original.replace(**{name: value})
        assert getattr(copy, name) == value
        for other in values.keys() - {name}:
            assert getattr(copy, other) == getattr(original, other)
    assert original.replace() == original


def test_a_copy_of_a_response_differs_in_the_named_fields_only() -> None:
    tool = ToolMessage("r", tool_call_id="1")
    original = ChatResponse("a", "stop", Usage(1, 2), "m", "i", {"c": 1}, (tool,), {"d": 1})
    values: dict[str, Any] = {
        "message": AssistantMessage("b"),
        "finish_reason": None,
        "usage": None,
        "model": None,
        "id": None,
        "context": {},
        "earlier": (),
        "metadata": {},
    }
    for name, value in values.items():
        copy = original.replace(**{name: value})
        assert getattr(copy, name) == value
        for other in values.keys() - {name}:
            assert getattr(copy, other) == getattr(original, other)
    assert original.replace() == original
    assert original.turn == (tool, AssistantMessage("a"))
    assert original.replace(message="b").text == "b"


def test_a_reply_answers_the_request_and_carries_its_context() -> None:
    response = ChatRequest(PROMPT, context={"a": 1}).reply("no", finish_reason="content_filter")
    assert (response.text, response.finish_reason, response.context) == ("no", "content_filter", {"a": 1})


@pytest.mark.parametrize("messages", [(), [], "text", None, ("text",), (UserMessage("u"), None), {"role": "user"}])
def test_messages_that_are_none_are_refused(messages: Any) -> None:
    with pytest.raises(InvalidInputError, match="`messages"):
        ChatRequest(messages)
    with pytest.raises(InvalidInputError, match="`messages"):
        ChatRequest(PROMPT).replace(messages=messages)


@pytest.mark.parametrize("conversation_id", ["", " ", "\n", 5, True, b"c", "x" * 256, "a\0b", "\ud800"])
def test_conversation_ids_that_no_store_can_keep(conversation_id: Any) -> None:
    with pytest.raises(ConversationIdError, match="`conversation_id`"):
        ChatRequest(PROMPT, conversation_id)


def test_a_conversation_id_is_replaced_by_a_good_one_only() -> None:
    bad: tuple[Any, ...] = ("", " ", "\0", "x" * 256, 0, False, b"")
    for conversation_id in bad:
        with pytest.raises(ConversationIdError, match="`conversation_id`"):
            ChatRequest(PROMPT, "c").replace(conversation_id=conversation_id)
    assert ChatRequest(PROMPT, "c").replace(conversation_id=None).conversation_id is None
    assert ChatRequest(PROMPT).replace(conversation_id="é" * 255).conversation_id == "é" * 255


@pytest.mark.parametrize("options", [{"model": "m"}, "m", ChatOptions])
def test_options_that_are_none_are_refused(options: Any) -> None:
    with pytest.raises(InvalidInputError, match="`options`"):
        ChatRequest(PROMPT, options=options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_p", float("inf")),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 1.5),
        ("seed", "1"),
        ("model", 5),
        ("stop", "END"),
        ("stop", [5]),
        ("extra", {"k": object()}),
        ("extra", {5: "k"}),
        ("temprature", 1.0),
    ],
)
def test_option_values_of_the_wrong_type_are_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"`{name}") as raised:
        ChatOptions(**{name: value})
    assert "hot" not in str(raised.value)


def test_a_response_holds_an_assistant_message() -> None:
    for message in (None, 5, UserMessage("u"), ["x"]):
        with pytest.raises(InvalidInputError, match="`message`"):
            ChatResponse(message)
        with pytest.raises(InvalidInputError, match="`message`"):
            ChatResponse("x").replace(message=message)


def test_a_chunk_is_plain_when_it_has_text_alone() -> None:
    assert ChatChunk("x").plain
    assert ChatChunk().plain
    others: list[dict[str, Any]] = [
        {"reasoning": ""},
        {"refusal": "no"},
        {"tool_calls": (ToolCallChunk(0),)},
        {"tool_result": ToolMessage("r", tool_call_id="1")},
        {"finish_reason": "stop"},
        {"usage": Usage()},
        {"metadata": {}},
        {"boundary": "round"},
    ]
    for other in others:
        chunk = ChatChunk("x", **other)
        assert not chunk.plain
        changed = chunk.replace(text="y")
        assert changed.text == "y"
        assert changed.replace(text="x") == chunk


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))],
    ids=["copy", "deep copy", "pickle"],
)
@pytest.mark.parametrize(
    "value",
    [
        ChatRequest((UserMessage("q"),), "c", ChatOptions(seed=1), {"a": [1]}, {"b": [2]}, round=3, made=1),
        ChatResponse("a", "stop", Usage(1, 2), "model", "id", {"a": [1]}, (AssistantMessage("e"),), {"m": [3]}),
    ],
    ids=["request", "response"],
)
def test_requests_and_responses_can_be_copied(value: Any, copied: Callable[[Any], Any]) -> None:
    copy_ = copied(value)
    assert copy_ == value
    assert copy_.context is not value.context


async def test_half_a_character_in_a_chunk_is_a_clear_error() -> None:
    async def model(request: ChatRequest) -> Any:
        for piece in ("a", "\ud83d", "\ude00"):
            yield piece

    with pytest.raises(MessageError, match="lone surrogate"):
        async with AdvisorChain(model).stream("q") as stream:
            async for _ in stream:
                pass


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ChatChunk(reasoning=3), "`reasoning` of a ChatChunk is an int"),
        (lambda: ChatChunk(finish_reason=3), "`finish_reason`"),
        (lambda: ChatChunk(usage={"input": 1}), "`usage` of a ChatChunk is a dict"),
        (lambda: ChatChunk(metadata=[1]), "`metadata`"),
        (lambda: ChatChunk(tool_calls=({"id": "1"},)), "`tool_calls` of a ChatChunk holds a dict"),
        (lambda: ChatChunk(tool_calls=(ToolCallChunk(arguments=3),)), "`arguments` of a ToolCallChunk is an int"),
        (lambda: ChatChunk(boundary="zz"), "`boundary`"),
        (lambda: ChatResponse("x", usage={"input": 1}), "`usage` of a ChatResponse is a dict"),
        (lambda: ChatResponse("x", finish_reason=3), "`finish_reason`"),
        (lambda: ChatResponse("x", earlier=(1,)), "`earlier` of a ChatResponse holds an int"),
        (lambda: ChatResponse("x").replace(usage=3), "`usage`"),
    ],
)
def test_a_field_of_another_kind_is_told_where_it_is_made(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        make()


def test_what_is_new_is_neither_system_nor_recalled_nor_made() -> None:
    old, answer, new = UserMessage("old"), AssistantMessage("answer"), UserMessage("new")
    call = AssistantMessage(tool_calls=(ToolCall("c1", "look"),))
    result = ToolMessage("found", tool_call_id="c1")
    request = ChatRequest((SystemMessage("be brief"), old, answer, new, call, result), made=2, recalled=2)
    assert request.new == (new,)
    inserted = request.replace(messages=(SystemMessage("first"), *request.messages))
    assert inserted.new == (new,)
    assert request.replace(recalled=0).new == (old, answer, new)
    assert pickle.loads(pickle.dumps(request)).recalled == 2


def test_options_tell_tools_and_the_form_of_the_answer() -> None:
    tool = ToolDefinition("look", "Looks.", {"type": "object"})
    options = ChatOptions(tools=[tool], tool_choice="look", output=OutputSchema({"type": "object"}))
    assert options.tools == (tool,)
    with pytest.raises(InvalidInputError, match="name"):
        ToolDefinition("")
    with pytest.raises(InvalidInputError, match="name"):
        OutputSchema({}, "no blanks")
    with pytest.raises(InvalidInputError, match="parameters"):
        ToolDefinition("look", parameters={"x": object()})


def test_a_chunk_shows_what_a_reader_can_see() -> None:
    seen = [
        ChatChunk("x"),
        ChatChunk(reasoning="x"),
        ChatChunk(refusal="x"),
        ChatChunk(tool_calls=(ToolCallChunk(),)),
        ChatChunk(tool_result=ToolMessage("x", tool_call_id="k")),
        ChatChunk(finish_reason="stop"),
        ChatChunk(boundary="attempt"),
    ]
    assert all(chunk.shows for chunk in seen)
    unseen = [ChatChunk(), ChatChunk(usage=Usage(1, 2)), ChatChunk(metadata={"id": "r-1"}), ChatChunk(reasoning="")]
    assert not any(chunk.shows for chunk in unseen)
