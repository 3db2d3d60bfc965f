"""What both adapters over HTTP do alike: a client for each event loop, its end, its settings, and answers that are none."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import anyio.from_thread
import pytest

from advisorchain import AdvisorChain
from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ConfigurationError, ModelError, ModelResponseError
from advisorchain.exchange import ChatRequest
from advisorchain.messages import UserMessage
from advisorchain.models.anthropic import AnthropicModel
from advisorchain.models.openai import OpenAIModel
from advisorchain.sync_client import SyncChatClient

from ._servers import Reply, events, json_reply, raw_server

Make = Callable[..., Any]
REQUEST = ChatRequest((UserMessage("hi"),))
CHAT = {"id": "c1", "model": "x", "choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "x",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def openai_model(url: str, **more: Any) -> OpenAIModel:
    return OpenAIModel("x", base_url=f"{url}/v1", **{"api_key": "sk-test", "max_retries": 0, **more})


def anthropic_model(url: str, **more: Any) -> AnthropicModel:
    return AnthropicModel("x", base_url=url, **{"api_key": "sk-test", "max_retries": 0, **more})


both = pytest.mark.parametrize("make", [openai_model, anthropic_model])


class Answering(BaseHTTPRequestHandler):
    """Keeps its connections open, so that a client uses them again."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(MESSAGE if self.path.endswith("/messages") else CHAT).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    """Of a server in a thread of its own: it outlives the event loops of the tests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def left_open() -> Generator[None]:
    """Connections that nobody closes before their loop ends are closed when they are freed, with a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@both
def test_one_loop_after_another_need_not_close_it(make: Make, url: str) -> None:
    with left_open():
        model = make(url)

        for backend in ("asyncio", "trio", "asyncio", "trio", "asyncio", "asyncio"):
            assert anyio.run(model.call, REQUEST, backend=backend).text == "ok"
        assert len(model._clients._of_loops) == 1  # those of the loops that have ended are dropped, and closed
        del model


@pytest.mark.slow
@both
def test_what_a_loop_leaves_behind_makes_no_noise_in_the_next(make: Make, url: str) -> None:
    noise: list[dict[str, Any]] = []
    with left_open():
        model = make(url)

        async def ask(model: Any) -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _loop, told: noise.append(told))
            await model.call(REQUEST)
            gc.collect()
            await anyio.lowlevel.checkpoint()

        for _ in range(3):
            asyncio.run(ask(model))
        del model
    assert noise == []


@both
def test_each_live_loop_has_one_client_however_many_there_are(make: Make, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, clients = make(url), []
    make_client = model._clients._make
    monkeypatch.setattr(model._clients, "_make", lambda: clients.append(make_client()) or clients[-1])
    with ExitStack() as stack:
        backends = ("asyncio", "trio") * 3
        portals = [stack.enter_context(anyio.from_thread.start_blocking_portal(backend)) for backend in backends]
        for _ in range(3):
            for portal in portals:
                assert portal.call(model.call, REQUEST).text == "ok"
        assert len(clients) == 5  # and the one that was made with the model
        for portal in portals:
            portal.call(model.aclose)
    assert all(client.is_closed() for client in (model._clients.first, *clients))


@both
def test_a_sync_client_that_closes_takes_the_model_from_no_other_loop(make: Make, url: str) -> None:
    model = make(url)

    async def main() -> None:
        assert (await model.call(REQUEST)).text == "ok"
        client = SyncChatClient(model)
        for _ in range(2):
            assert (await anyio.to_thread.run_sync(client.call, "hi")).text == "ok"
            assert (await model.call(REQUEST)).text == "ok"
        await anyio.to_thread.run_sync(client.close)
        assert (await model.call(REQUEST)).text == "ok"
        await model.aclose()

    asyncio.run(main())


@both
async def test_a_question_after_the_end_is_a_clear_error_in_this_loop(make: Make, url: str) -> None:
    async with make(url) as model:
        assert (await model.call(REQUEST)).text == "ok"
    await model.aclose()
    for asking in (model.call(REQUEST), anext(model.stream(REQUEST))):
        with pytest.raises(ModelError, match="`x` was closed in this event loop"):
            await asking

    def elsewhere() -> str:
        async def ask() -> str:
            async with AdvisorChain(model) as chain:
                return (await chain.call("hi")).text

        return anyio.run(ask)

    assert await anyio.to_thread.run_sync(elsewhere) == "ok"


@both
@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": True},
        {"timeout": "5"},
        {"max_retries": -1},
        {"max_retries": "2"},
        {"max_retries": True},
        {"max_retries": 1.5},
        {"base_url": 5},
        {"base_url": "localhost:11434/v1"},
        {"base_url": "http://[::1"},
        {"api_key": "sk-secret\n"},
        {"api_key": ["sk-secret"]},
        {"name": " "},
        {"name": None},
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Make, wrong: dict[str, Any]) -> None:
    kind = OpenAIModel if make is openai_model else AnthropicModel
    with pytest.raises(
        ConfigurationError, match="API key" if wrong.get("api_key") == "sk-secret\n" else next(iter(wrong))
    ) as caught:
        kind(**{"name": "x", "api_key": "sk-secret", **wrong})
    assert "secret" not in str(caught.value)


# what a server tells that our values refuse is the server's fault, in a call and in a stream

HALF = "\ud800"
DEEP = {"a": 1}
for _ in range(120):
    DEEP = {"a": DEEP}


def chat_answers(**changes: Any) -> tuple[Reply, Reply]:
    """A call's answer and a stream's, in chat completions."""
    told = {"id": "c1", "model": "x", **{key: value for key, value in changes.items() if key in ("id", "model", "usage")}}
    said = {key: value for key, value in changes.items() if key not in told}
    reason = said.pop("finish_reason", "stop")
    calls = [{"index": 0, "type": "function", **call} for call in said.pop("tool_calls", ())]
    said = {"content": "ok", **said, **({"tool_calls": calls} if calls else {})}
    whole = {**told, "choices": [{"message": said, "finish_reason": reason}]}
    return json_reply(whole), events({**told, "choices": [{"delta": said, "finish_reason": reason}]})


def response_answers(item: dict[str, Any] | None = None, **changes: Any) -> tuple[Reply, Reply]:
    """The same in the Responses API."""
    done = {"id": "r1", "model": "x", "status": "completed", "output": [item] if item else [], **changes}
    begun = [{"type": "response.output_item.added", "item": item}, {"type": "response.output_item.done", "item": item}]
    return json_reply(done), events(*(begun if item else []), {"type": "response.completed", "response": done})


def message_answers(item: dict[str, Any] | None = None, **changes: Any) -> tuple[Reply, Reply]:
    """The same of Anthropic."""
    item = item or {"type": "text", "text": "ok"}
    whole = {**MESSAGE, "content": [item], **changes}
    end = {key: whole.get(key) for key in ("stop_reason", "stop_sequence", "stop_details")}
    streamed = [
        {"type": "message_start", "message": {**whole, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": item},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return json_reply(whole), events(*streamed, done=False, named=True)


REFUSED = {
    "chat: a tool's name": (chat_answers, {"tool_calls": [{"id": "c1", "function": {"name": HALF, "arguments": "{}"}}]}),
    "chat: a call's id": (chat_answers, {"tool_calls": [{"id": HALF, "function": {"name": "f", "arguments": "{}"}}]}),
    "chat: an id of another kind": (chat_answers, {"tool_calls": [{"id": 5, "function": {"name": "f"}}]}),
    "chat: a name of another kind": (chat_answers, {"tool_calls": [{"id": "c", "function": {"name": ["f"]}}]}),
    "chat: what goes back": (chat_answers, {"tool_calls": [{"id": "c", "function": {"name": "f"}, "extra_content": HALF}]}),
    "chat: too deep": (chat_answers, {"tool_calls": [{"id": "c", "function": {"name": "f"}, "extra_content": DEEP}]}),
    "chat: no number": (chat_answers, {"tool_calls": [{"id": "c", "function": {"name": "f"}, "x": float("nan")}]}),
    "chat: the answer's id": (chat_answers, {"id": 5}),
    "chat: the model": (chat_answers, {"model": ["x"]}),
    "chat: why it ended": (chat_answers, {"finish_reason": 5}),
    "chat: text": (chat_answers, {"content": 5}),
    "chat: endless usage": (chat_answers, {"usage": {"prompt_tokens": float("inf")}}),
    "responses: a tool's name": (
        response_answers,
        {"item": {"type": "function_call", "id": "f1", "call_id": "c1", "name": HALF, "arguments": "{}"}},
    ),
    "responses: the answer's id": (response_answers, {"id": {"a": 1}}),
    "responses: what goes back": (response_answers, {"item": {"type": "reasoning", "id": "r", "encrypted_content": HALF}}),
    "anthropic: a tool's name": (message_answers, {"item": {"type": "tool_use", "id": "t1", "name": HALF, "input": {}}}),
    "anthropic: a call's id": (message_answers, {"item": {"type": "tool_use", "id": HALF, "name": "f", "input": {}}}),
    "anthropic: what goes back": (message_answers, {"item": {"type": "redacted_thinking", "data": HALF}}),
    "anthropic: too deep": (message_answers, {"item": {"type": "new_kind", "data": DEEP}}),
    "anthropic: the model": (message_answers, {"model": 5}),
    "anthropic: why it refused": (
        message_answers,
        {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": HALF}},
    ),
    "anthropic: usage": (message_answers, {"usage": {"input_tokens": -1, "output_tokens": 1}}),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("streaming", [False, True], ids=["call", "stream"])
async def test_what_our_values_refuse_is_an_answer_that_is_none(what: str, streaming: bool) -> None:
    answers, changes = REFUSED[what]
    async with raw_server(answers(**changes)[streaming]) as server:
        make = anthropic_model if answers is message_answers else openai_model
        more = {"api": "responses"} if answers is response_answers else {}
        async with make(server.url, **more) as model:
            with pytest.raises(ModelResponseError, match="no answer") as caught:
                if streaming:
                    async with aclosing(model.stream(REQUEST)) as stream:
                        fold_chunks([chunk async for chunk in stream])
                else:
                    await model.call(REQUEST)
            assert caught.value.retryable


@pytest.mark.parametrize("answers", [chat_answers, response_answers, message_answers])
async def test_the_answers_of_these_tests_are_fine_as_they_are(answers: Any) -> None:
    for streaming in (False, True):
        async with raw_server(answers()[streaming]) as server:
            make = anthropic_model if answers is message_answers else openai_model
            more = {"api": "responses"} if answers is response_answers else {}
            async with make(server.url, **more) as model, AdvisorChain(model) as chain:
                if streaming:
                    async with chain.stream("hi") as stream:
                        assert [chunk async for chunk in stream]
                    assert stream.response.finish_reason == "stop"
                else:
                    assert (await chain.call("hi")).finish_reason == "stop"
