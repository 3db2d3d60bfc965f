"""AnthropicModel over real HTTP on loopback: what it understands, what it says of faults, and that it lets go."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

import anthropic
import anyio
import pytest

from advisorchain import AdvisorChain
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.aggregate import fold_chunks
from advisorchain.errors import (
    ConfigurationError,
    ContextLengthError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
)
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, OutputSchema
from advisorchain.memory import ChatMemory
from advisorchain.messages import ImagePart, Message, TextPart, ToolMessage, Usage, UserMessage
from advisorchain.models import _connections
from advisorchain.models.anthropic import AnthropicModel

from ._servers import RawServer, Reply, events, json_reply, raw_server

KEY = "sk-ant-secret-1234"
CONTENT = "quibble"  # by this name, since a traceback shows lines of these tests
Event = dict[str, Any]
Ask = Callable[..., Awaitable[ChatResponse]]


def begun(**usage: int) -> Event:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude-x"}
    counted = {"input_tokens": 10, "output_tokens": 1, **usage}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": counted}}


def block(place: int, started: Event, *deltas: Event) -> list[Event]:
    return [
        {"type": "content_block_start", "index": place, "content_block": started},
        *({"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": place},
    ]


def text_block(place: int, *texts: str) -> list[Event]:
    return block(place, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


def ended(
    stop_reason: str = "end_turn", stop_sequence: str | None = None, *, usage: Event | None = None, **more: Any
) -> list[Event]:
    delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence, **more}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5, **(usage or {})}},
        {"type": "message_stop"},
    ]


HELLO = (begun(), *text_block(0, "Hel", "lo"), *ended())
WHOLE = {
    **begun()["message"],
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}


def streamed(*given: object, ending: Literal["whole", "cut", "hang"] = "whole") -> Reply:
    return events(*given, done=False, ending=ending, named=True)


def asking(*messages: Message | str, **options: Any) -> ChatRequest:
    prompt = tuple(UserMessage(message) if isinstance(message, str) else message for message in messages or ("Hi",))
    return ChatRequest(prompt, options=ChatOptions(**options))


@asynccontextmanager
async def served(
    *replies: Reply, timeout: float | None = 30, max_retries: int = 0
) -> AsyncGenerator[tuple[AnthropicModel, RawServer]]:
    async with raw_server(*replies) as server:
        model = AnthropicModel("claude", base_url=server.url, api_key=KEY, timeout=timeout, max_retries=max_retries)
        async with aclosing(model):
            yield model, server


async def chunks(model: AnthropicModel, request: ChatRequest | None = None) -> list[ChatChunk]:
    async with aclosing(model.stream(request or asking())) as stream:
        return [chunk async for chunk in stream]


async def called(model: AnthropicModel, request: ChatRequest | None = None) -> ChatResponse:
    return await model.call(request or asking())


async def folded(model: AnthropicModel, request: ChatRequest | None = None) -> ChatResponse:
    return fold_chunks(await chunks(model, request))


both = pytest.mark.parametrize("ask", [called, folded])


async def test_a_stream_is_the_texts_as_they_come_and_folds_to_what_a_call_gives() -> None:
    async with served(streamed(*HELLO), json_reply(WHOLE)) as (model, server):
        pieces = await chunks(model)
        response = await model.call(asking())
    assert [chunk.text for chunk in pieces if chunk.text] == ["Hel", "lo"]
    assert response == fold_chunks(pieces)
    assert (response.text, response.finish_reason, response.model, response.id) == ("Hello", "stop", "claude-x", "msg_1")
    assert response.usage == Usage(10, 5)
    assert (response.message.metadata, response.metadata) == ({}, {})
    assert [request.json.get("stream") for request in server.requests] == [True, None]
    assert {request.path for request in server.requests} == {"/v1/messages"}


@both
async def test_the_key_is_sent_and_options_arrive(ask: Ask) -> None:
    reply = json_reply(WHOLE) if ask is called else streamed(*HELLO)
    async with served(reply, timeout=None) as (model, server):  # with its own, the SDK refuses so many tokens in a call
        await ask(model, asking(temperature=0.5, stop=("END",), max_tokens=100_000, extra={"top_k": 2}))
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    sent = request.json
    assert (sent["temperature"], sent["top_k"], sent["stop_sequences"]) == (0.5, 2, ["END"])
    assert (sent["model"], sent["max_tokens"]) == ("claude", 100_000)


@both
async def test_the_form_of_the_answer_arrives(ask: Ask) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    reply = json_reply(WHOLE) if ask is called else streamed(*HELLO)
    async with served(reply) as (model, server):
        chain, options = (
            AdvisorChain(model),
            ChatOptions(output=OutputSchema(schema), extra={"output_config": {"effort": "low"}}),
        )
        if ask is called:
            await chain.call("Hi", options=options)
        else:
            async with chain.stream("Hi", options=options) as stream:
                assert "".join([chunk.text async for chunk in stream]) == "Hello"
    told = {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}
    assert server.requests[0].json["output_config"] == {"effort": "low", "format": told}
    assert "system" not in server.requests[0].json


TOOLS = (
    begun(),
    *text_block(0, "Let me see."),
    *block(
        1,
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
        *({"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"a": ', '"\\ud83d\\ude00"}')),
    ),
    *block(2, {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}),
    *ended("tool_use"),
)


async def test_tool_calls_come_in_pieces() -> None:
    whole = {
        **WHOLE,
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": "😀"}},
            {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
        ],
        "stop_reason": "tool_use",
    }
    async with served(streamed(*TOOLS), json_reply(whole)) as (model, _):
        pieces = await chunks(model)
        response = await model.call(asking())
    arguments = [piece.arguments for chunk in pieces for piece in chunk.tool_calls]
    assert arguments == [None, '{"a": ', '"\\ud83d\\ude00"}', None]
    answer = fold_chunks(pieces)
    assert answer.finish_reason == response.finish_reason == "tool_calls"
    assert [(call.id, call.name) for call in answer.message.tool_calls] == [("toolu_1", "add"), ("toolu_2", "now")]
    assert [call.parsed() for call in answer.message.tool_calls] == [{"a": "😀"}, {}]
    assert [call.parsed() for call in response.message.tool_calls] == [{"a": "😀"}, {}]


THOUGHT = (
    begun(),
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": piece} for piece in ("Hm, ", "so.")),
        {"type": "signature_delta", "signature": "signed"},
    ),
    *block(1, {"type": "redacted_thinking", "data": "hidden"}),
    *text_block(2, "I add."),
    *block(3, {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}),
    *ended("tool_use", usage={"output_tokens_details": {"thinking_tokens": 3}}),
)
THOUGHT_BLOCKS = [
    {"type": "thinking", "thinking": "Hm, so.", "signature": "signed"},
    {"type": "redacted_thinking", "data": "hidden"},
    {"type": "text", "text": "I add."},
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
]


async def test_thinking_is_reasoning_and_goes_back_unchanged_with_the_answer() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 3}}
    whole = {**WHOLE, "content": THOUGHT_BLOCKS, "stop_reason": "tool_use", "usage": usage}
    async with served(streamed(*THOUGHT), json_reply(whole), json_reply(WHOLE)) as (model, server):
        response = await folded(model)
        assert response == await model.call(asking())
        assert response.message.reasoning == "Hm, so."
        assert response.usage == Usage(10, 5, reasoning_tokens=3)
        await model.call(asking("Hi", response.message, ToolMessage("3", tool_call_id="toolu_1")))
    assert server.requests[-1].json["messages"][1] == {"role": "assistant", "content": THOUGHT_BLOCKS}


async def test_a_servers_tool_and_citations_go_back_with_the_answer() -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [], "caller": {"type": "direct"}}
    citation = {
        "type": "char_location",
        "cited_text": "12",
        "document_index": 0,
        "document_title": None,
        "start_char_index": 0,
        "end_char_index": 2,
        "file_id": None,
    }
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    given = (
        begun(),
        *block(0, search, *({"type": "input_json_delta", "partial_json": piece} for piece in ('{"query":', '"noon"}'))),
        *block(1, found),
        *block(
            2,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "Noon."},
            {"type": "citations_delta", "citation": citation},
        ),
        *ended("pause_turn"),
    )
    blocks = [{**search, "input": {"query": "noon"}}, found, {"type": "text", "text": "Noon.", "citations": [citation]}]
    whole = {**WHOLE, "content": blocks, "stop_reason": "pause_turn"}
    async with served(streamed(*given), json_reply(whole), json_reply(WHOLE)) as (model, server):
        response = await folded(model)
        assert response == await model.call(asking())
        assert (response.text, response.finish_reason) == ("Noon.", "pause_turn")
        await model.call(asking("Hi", response.message))
    assert server.requests[-1].json["messages"][1]["content"] == blocks


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
    ],
)
async def test_why_it_stopped(stop_reason: str, finish_reason: str) -> None:
    given = (begun(), *text_block(0, "Hello"), *ended(stop_reason))
    async with served(streamed(*given), json_reply({**WHOLE, "stop_reason": stop_reason})) as (model, _):
        response = await folded(model)
        assert response == await model.call(asking())
    assert response.finish_reason == finish_reason


async def test_what_it_tells_of_a_refusal_and_a_stop_sequence() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "This is dangerous."}
    refused = (begun(), *ended("refusal", stop_details=details))
    stopped = (begun(), *text_block(0, "Hello"), *ended("stop_sequence", "END"))
    whole = {**WHOLE, "content": [], "stop_reason": "refusal", "stop_details": details}
    async with served(streamed(*refused), json_reply(whole), streamed(*stopped)) as (model, _):
        response = await folded(model)
        assert response == await model.call(asking())
        assert (response.text, response.message.refusal) == ("", "This is dangerous.")
        assert response.metadata == {"refusal_category": "bio"}
        assert (await folded(model)).metadata == {"stop_sequence": "END"}


async def test_the_cache_counts_as_input() -> None:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30}
    given = (begun(**usage), *text_block(0, "Hello"), *ended())
    later = (begun(), *text_block(0, "Hello"), *ended(usage={"input_tokens": 11, "cache_read_input_tokens": 7}))
    async with served(streamed(*given), json_reply({**WHOLE, "usage": {**usage, "output_tokens": 5}}), streamed(*later)) as (
        model,
        _,
    ):
        response = await folded(model)
        assert response == await model.call(asking())
        assert response.usage == Usage(60, 5, cached_tokens=30, cache_write_tokens=20)
        assert (await folded(model)).usage == Usage(18, 5, cached_tokens=7)


async def test_halves_of_characters_are_joined() -> None:
    texts = text_block(0, "a\ud83d", "\ude00b", "c\ud83d")
    thinking = block(1, {"type": "thinking", "thinking": "\ud83d"}, {"type": "thinking_delta", "thinking": "\ude00"})
    async with served(streamed(begun(), *texts, *thinking, *ended())) as (model, _):
        response = await folded(model)
    assert (response.text, response.message.reasoning) == ("a😀bc\ufffd", "😀")


async def test_events_of_a_later_version_are_passed_over() -> None:
    new = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "new": 1}}
    given = (begun(), *HELLO[1:3], {"type": "new_event", "new": 1}, new, {"type": "ping"}, *HELLO[3:])
    async with served(streamed(*given)) as (model, _):
        assert (await folded(model)).text == "Hello"


async def test_an_image_arrives() -> None:
    message = UserMessage((TextPart("What is this?"), ImagePart(data=b"\x89PNG", media_type="image/png")))
    async with served(streamed(*HELLO)) as (model, server):
        await folded(model, asking(message))
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert server.requests[0].json["messages"][0]["content"][1] == {"type": "image", "source": source}


def failure(kind: str, message: str = "no", **more: Any) -> Event:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


@both
@pytest.mark.parametrize(
    ("status", "kind", "error", "retryable"),
    [
        (400, "invalid_request_error", ModelError, False),
        (401, "authentication_error", ModelError, False),
        (402, "billing_error", ModelError, False),
        (403, "permission_error", ModelError, False),
        (404, "not_found_error", ModelNotFoundError, False),
        (413, "request_too_large", ContextLengthError, False),
        (429, "rate_limit_error", ModelError, True),
        (500, "api_error", ModelError, True),
        (504, "timeout_error", ModelTimeoutError, True),
        (529, "overloaded_error", ModelError, True),
    ],
)
async def test_what_a_status_means(ask: Ask, status: int, kind: str, error: type[ModelError], retryable: bool) -> None:
    told = failure(kind, f"the key {KEY} and the word {CONTENT}")
    async with served(json_reply(told, status)) as (model, _):
        with pytest.raises(ModelError, match=str(status)) as caught:
            await ask(model, asking(CONTENT))
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.retryable, caught.value.retry_after) == (status, retryable, None)
    assert isinstance(caught.value.__cause__, anthropic.APIStatusError)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert CONTENT not in shown


@both
async def test_a_hint_when_to_ask_again_is_kept(ask: Ask) -> None:
    for header, wait in (("12", 12.0), ("0.5", 0.5)):
        async with served(json_reply(failure("rate_limit_error"), 429, retry_after=header)) as (model, _):
            with pytest.raises(ModelError, match="too often") as caught:
                await ask(model)
        assert (caught.value.status, caught.value.retryable, caught.value.retry_after) == (429, True, wait)


@both
async def test_the_sdks_own_retries_are_honoured(ask: Ask) -> None:
    late = json_reply(failure("overloaded_error"), 529, retry_after_ms="1")
    good = json_reply(WHOLE) if ask is called else streamed(*HELLO)
    async with served(late, late, good, max_retries=2) as (model, server):
        assert (await ask(model)).text == "Hello"
        assert len(server.requests) == 3
    async with served(late, max_retries=1) as (model, server):
        with pytest.raises(ModelError, match="529"):
            await ask(model)
        assert len(server.requests) == 2


@both
async def test_a_prompt_that_is_too_long(ask: Ask) -> None:
    told = failure("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    async with served(json_reply(told, 400)) as (model, _):
        with pytest.raises(ContextLengthError, match="longer than `claude` can read"):
            await ask(model)


@both
async def test_a_refusal_names_the_field_that_it_is_about(ask: Ask) -> None:
    told = failure("invalid_request_error", "temperature: Extra inputs are not permitted")
    other = failure("invalid_request_error", f"{KEY}: not permitted")
    async with served(json_reply(told, 400), json_reply(other, 400)) as (model, _):
        with pytest.raises(ModelError, match="about `temperature`"):
            await ask(model, asking(temperature=1.0))
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert "about" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "retryable"), [("overloaded_error", True), ("api_error", True), ("invalid_request_error", False)]
)
async def test_an_error_in_the_middle_of_a_stream(kind: str, retryable: bool) -> None:
    async with served(streamed(*HELLO[:3], failure(kind, KEY), ending="hang")) as (model, server):
        stream = model.stream(asking())
        assert [(await anext(stream)).text for _ in range(2)] == ["", "Hel"]
        with pytest.raises(ModelError, match=f"`{kind}`") as caught:
            await anext(stream)
        with anyio.fail_after(30):
            await server.client_left.wait()
    assert (caught.value.retryable, caught.value.status) == (retryable, None)
    assert KEY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "reply",
    [
        streamed(*HELLO[:3]),
        streamed(*HELLO[:-1]),
        streamed(*HELLO[:3], ending="cut"),
        streamed(*HELLO[:3], "{not json"),
        streamed(*HELLO[:3], {"type": "content_block_delta", "index": 0}),
        streamed(*HELLO[:3], {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}}),
        streamed(*HELLO[:3], {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}}),
        streamed(*HELLO[:3], {"type": "message_delta", "delta": {}, "usage": {"output_tokens": "many"}}),
        streamed(*HELLO[:3], {"type": "message_delta"}),
        streamed(*HELLO[:3], {"type": "error"}),
    ],
    ids=["ended", "no stop", "cut", "no json", "no delta", "no block", "no text", "odd usage", "bare", "odd error"],
)
@pytest.mark.filterwarnings("error")
async def test_a_stream_that_breaks_off_or_is_nonsense(reply: Reply) -> None:
    if b"{not json" in reply.pieces[-1]:  # named as the event that it would be
        reply = Reply(reply.status, reply.headers, (*reply.pieces[:-1], b"event: ping2\ndata: {not json\n\n"))
    async with served(reply) as (model, _):
        seen: list[str] = []
        with pytest.raises(ModelError, match="`claude`") as caught:
            async with aclosing(model.stream(asking())) as stream:
                async for chunk in stream:
                    seen.append(chunk.text)
    assert caught.value.retryable
    assert "Hel" in seen


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"content-type": "text/html"}, (b"<html>",)),
        Reply(200, {}, (b"{not json",)),
        Reply(200, {}, (b"",), "cut"),
        json_reply([]),
        json_reply({}),
        json_reply({**WHOLE, "content": None}),
        json_reply({**WHOLE, "content": [{"type": "tool_use"}]}),
        json_reply({**WHOLE, "content": [{"type": "text", "text": 3}]}),
        json_reply({**WHOLE, "usage": {"input_tokens": -3, "output_tokens": 1}}),
    ],
)
@both
async def test_an_answer_that_is_none(ask: Ask, reply: Reply) -> None:
    async with served(reply) as (model, _):
        with pytest.raises(ModelError, match="`claude`") as caught:
            await ask(model)
    assert caught.value.retryable


@both
async def test_the_clients_patience_runs_out(ask: Ask) -> None:
    async with served(Reply(0, ending="hang"), timeout=0.5) as (model, server):
        with pytest.raises(ModelTimeoutError, match="did not answer in time"):
            await ask(model)
        with anyio.fail_after(30):
            await server.client_left.wait()


async def test_the_clients_patience_runs_out_in_the_middle_of_a_stream() -> None:
    async with served(streamed(*HELLO[:3], ending="hang"), timeout=0.5) as (model, server):
        stream = model.stream(asking())
        assert [(await anext(stream)).text for _ in range(2)] == ["", "Hel"]
        with pytest.raises(ModelTimeoutError):
            await anext(stream)
        with anyio.fail_after(30):
            await server.client_left.wait()


@both
async def test_nobody_is_there(ask: Ask) -> None:
    async with raw_server(Reply()) as server:
        url = server.url
    async with aclosing(AnthropicModel("claude", base_url=url, api_key=KEY, max_retries=0)) as model:
        with pytest.raises(ModelError, match="cannot be reached") as caught:
            await ask(model)
    assert (caught.value.retryable, caught.value.status) == (True, None)


async def test_closing_early_closes_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connections, "_GRACE", 3600)  # it is closed, and not waited for
    async with served(streamed(*HELLO[:4], ending="hang")) as (model, server):
        with anyio.fail_after(30):
            async with aclosing(model.stream(asking())) as stream:
                async for chunk in stream:
                    if chunk.text:
                        break
            await server.client_left.wait()
        gc.collect()  # a generator that the SDK left open would warn now


async def test_closing_while_cancelled_closes_the_response() -> None:
    async with served(streamed(*HELLO[:4], ending="hang")) as (model, server):
        with anyio.CancelScope() as scope:
            async with aclosing(model.stream(asking())) as stream:
                await anext(stream)
                scope.cancel()
        with anyio.fail_after(30):
            await server.client_left.wait()
        gc.collect()


async def test_closing_the_model_ends_a_running_stream_with_a_clear_error() -> None:
    async with served(streamed(*HELLO[:4], ending="hang")) as (model, server):
        stream = model.stream(asking())
        assert [(await anext(stream)).text for _ in range(3)] == ["", "Hel", "lo"]
        await model.aclose()
        with anyio.fail_after(30):
            with pytest.raises(ModelError, match="`claude`"):
                await anext(stream)
            await server.client_left.wait()


async def test_closing_in_another_task_closes_the_response() -> None:
    async with served(streamed(*HELLO[:4], ending="hang")) as (model, server):
        stream = model.stream(asking())

        async def pull() -> None:
            await anext(stream)

        for step in (pull, pull, stream.aclose):
            async with anyio.create_task_group() as group:
                group.start_soon(step)
        with anyio.fail_after(30):
            await server.client_left.wait()


@pytest.mark.parametrize("reply", [streamed(*HELLO[:4], ending="hang"), Reply(0, ending="hang")], ids=["middle", "before"])
async def test_cancelling_closes_the_response(reply: Reply) -> None:
    async with served(reply) as (model, server):
        async with anyio.create_task_group() as group:
            group.start_soon(chunks, model)
            with anyio.fail_after(30):
                while not server.requests:
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            await server.client_left.wait()
        gc.collect()


async def test_leaving_a_chains_stream_closes_the_response() -> None:
    async with served(streamed(*HELLO[:4], ending="hang")) as (model, server):
        async with AdvisorChain(model).stream("Hi") as stream:
            async for chunk in stream:
                if chunk.text:
                    break
        assert stream.partial is not None
        assert stream.partial.text == "Hel"
        with anyio.fail_after(30):
            await server.client_left.wait()


async def test_a_connection_is_used_again() -> None:
    async with served(streamed(*HELLO)) as (model, server):
        for _ in range(3):
            assert (await folded(model)).text == "Hello"
        assert len(server.requests) == 3
        assert server.open_connections == 1


async def test_what_follows_the_last_event_is_not_waited_for() -> None:
    async with served(streamed(*HELLO, ending="hang"), timeout=30) as (model, server):
        with anyio.fail_after(15):
            assert (await folded(model)).text == "Hello"
            await server.client_left.wait()


async def test_a_remembered_conversation_of_two_turns() -> None:
    async with served(streamed(*THOUGHT[:-5], *ended()), json_reply(WHOLE)) as (model, server):
        chain = AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory())])
        async with chain.stream("My name is Ada", conversation_id="c") as stream:
            async for _ in stream:
                pass
        await chain.call("What is my name?", conversation_id="c", system="Be short.")
    sent = server.requests[-1].json
    assert sent["system"] == [{"type": "text", "text": "Be short."}]
    assert [(turn["role"], [block.get("text") for block in turn["content"]]) for turn in sent["messages"]] == [
        ("user", ["My name is Ada"]),
        ("assistant", ["I add."]),
        ("user", ["What is my name?"]),
    ]


@pytest.mark.slow
async def test_it_closes_only_a_client_that_it_made() -> None:
    async with raw_server(json_reply(WHOLE)) as server:
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url)
        async with aclosing(AnthropicModel("claude", client=client)) as model:
            assert (await model.call(asking())).text == "Hello"
        assert not client.is_closed()
        await client.close()
        for ask in (called, folded):
            with pytest.raises(ModelError, match="`claude`"):
                await ask(AnthropicModel("claude", client=client))
        own = AnthropicModel("claude", api_key=KEY, base_url=server.url)
        await own.aclose()
        await own.aclose()
        for ask in (called, folded):
            with pytest.raises(ModelError, match="was closed"):
                await ask(own)


def test_arguments_that_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"max_tokens": 0}, {"thinking": "never"}, {"client": "x"}, {"client": anthropic.Anthropic(api_key=KEY)}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            AnthropicModel("claude", **{**({} if "client" in wrong else {"api_key": KEY}), **wrong})
    with pytest.raises(ConfigurationError, match="`name` is None"):
        AnthropicModel(None)
    with pytest.raises(ConfigurationError, match="`api_key` is given beside `client`"):
        AnthropicModel("claude", api_key=KEY, client=anthropic.AsyncAnthropic(api_key=KEY))


def test_the_sdk_makes_no_spans_beside_the_chains() -> None:
    assert AnthropicModel("claude", api_key=KEY)._clients.first.open_telemetry["traces"]["enabled"] is False


def test_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for client in (None, anthropic.AsyncAnthropic()):
        with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
            AnthropicModel("claude", client=client)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))  # without a profile in it
    with pytest.raises(ConfigurationError, match="profile"):
        AnthropicModel("claude")


@both
async def test_nothing_is_logged_or_shown_of_the_key(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with served(json_reply(failure("authentication_error", KEY), 401)) as (model, _):
        with pytest.raises(ModelError, match="refused the key") as caught:
            await ask(model, asking(CONTENT))
        assert KEY not in repr(model) + repr(caught.value) + caplog.text
        assert CONTENT not in caplog.text


def test_a_missing_sdk_names_the_command() -> None:
    code = "import sys; sys.modules['anthropic'] = None; import advisorchain.models.anthropic"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "advisorchain[anthropic]"' in ended.stderr
