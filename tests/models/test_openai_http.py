"""OpenAI's models against bytes as they are: what is sent, cuts, silence, and who closes the connection."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

import anyio
import openai
import pytest

from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ConfigurationError, InvalidInputError, ModelError, ModelResponseError, ModelTimeoutError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest
from advisorchain.messages import ImagePart, TextPart, Usage, UserMessage
from advisorchain.models.openai import OpenAIModel

from ._servers import RawServer, Reply, events, json_reply, raw_server

Api = Literal["chat", "responses"]
APIS: tuple[Api, ...] = ("chat", "responses")
KEY = "sk-very-secret"
PROMPT = "a private prompt"
REQUEST = ChatRequest((UserMessage(PROMPT),))
HTML = Reply(200, {"content-type": "text/html"}, (b"<html>private</html>",))


@asynccontextmanager
async def asked(server: RawServer, api: Api = "chat", **arguments: Any) -> AsyncGenerator[OpenAIModel]:
    given = {"max_retries": 0, **arguments}
    model = OpenAIModel("gpt-x", api=api, base_url=f"{server.url}/v1", api_key=KEY, **given)
    try:
        yield model
    finally:
        await model.aclose()


async def chunks_of(model: OpenAIModel, request: ChatRequest = REQUEST) -> list[ChatChunk]:
    async with aclosing(model.stream(request)) as stream:
        return [chunk async for chunk in stream]


async def failed(model: OpenAIModel, mode: str) -> ModelError:
    """The error of a call or stream, which shows neither the key nor the prompt nor what the server said."""
    with pytest.raises(ModelError) as caught:
        await (model.call(REQUEST) if mode == "call" else chunks_of(model))
    printed = "".join(traceback.format_exception(caught.value)).splitlines()
    shown = "\n".join(line for line in printed if not line.startswith("    "))  # without the lines of source
    for hidden in (KEY, "private", "Bearer"):
        assert hidden not in shown
    return caught.value


def piece(text: str | None = None, reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "model": "gpt-x-1",
        "choices": [{"index": 0, "delta": {"content": text, **delta}, "finish_reason": reason}],
    }


def text_event(text: str, item: str = "m1") -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": item, "delta": text}


BEGUN = {"chat": piece("Hello"), "responses": text_event("Hello")}


@pytest.mark.parametrize("api", APIS)
async def test_leaving_early_closes_the_connection(api: Api) -> None:
    async with raw_server(events(BEGUN[api], BEGUN[api], ending="hang")) as server, asked(server, api) as model:
        async with aclosing(model.stream(REQUEST)) as stream:
            assert (await anext(stream)).text == "Hello"
            assert not server.client_left.is_set()
        with anyio.fail_after(30):
            await server.client_left.wait()


@pytest.mark.parametrize("api", APIS)
async def test_cancelling_closes_the_connection(api: Api) -> None:
    async with raw_server(events(BEGUN[api], ending="hang", done=False)) as server, asked(server, api) as model:
        with anyio.CancelScope() as scope:
            async with aclosing(model.stream(REQUEST)) as stream:
                async for _ in stream:
                    scope.cancel()
        assert scope.cancelled_caught
        with anyio.fail_after(30):
            await server.client_left.wait()


@pytest.mark.parametrize("mode", ["call", "stream"])
async def test_cancelling_before_an_answer_closes_the_connection(mode: str) -> None:
    async with raw_server(Reply(status=0, ending="hang")) as server, asked(server) as model:
        async with anyio.create_task_group() as group:
            group.start_soon(model.call if mode == "call" else lambda request: chunks_of(model, request), REQUEST)
            while not server.requests:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            await server.client_left.wait()


@pytest.mark.parametrize("mode", ["call", "stream"])
async def test_a_server_that_says_nothing_is_a_timeout(mode: str) -> None:
    async with raw_server(Reply(status=0, ending="hang")) as server, asked(server, timeout=0.5) as model:
        error = await failed(model, mode)
        assert isinstance(error, ModelTimeoutError)
        with anyio.fail_after(30):
            await server.client_left.wait()


@pytest.mark.parametrize("api", APIS)
async def test_silence_in_mid_stream_is_a_timeout(api: Api) -> None:
    async with (
        raw_server(events(BEGUN[api], done=False, ending="hang")) as server,
        asked(server, api, timeout=0.5) as model,
    ):
        assert isinstance(await failed(model, "stream"), ModelTimeoutError)
        with anyio.fail_after(30):
            await server.client_left.wait()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (lambda api: events(BEGUN[api], ending="cut", done=False), ModelError),
        (lambda api: events(BEGUN[api], done=False), ModelResponseError),
        (lambda api: events(BEGUN[api]), ModelResponseError),
        (lambda api: events(), ModelResponseError),
        (lambda api: events(BEGUN[api], "{private"), ModelResponseError),
        (lambda api: events('["private"]'), ModelResponseError),
        (lambda api: events({**BEGUN[api], "choices": "private", "delta": {"private": 1}}), ModelResponseError),
        (lambda api: Reply(200, {"content-type": "text/event-stream"}, (b"data: \xffprivate\n\n",)), ModelResponseError),
        (lambda api: HTML, ModelResponseError),
        (lambda api: Reply(ending="cut"), ModelError),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_a_stream_that_breaks_off_is_an_error(api: Api, reply: Callable[[Api], Reply], kind: type[ModelError]) -> None:
    async with raw_server(reply(api)) as server, asked(server, api) as model:
        error = await failed(model, "stream")
        assert type(error) is kind
        assert error.retryable


@pytest.mark.parametrize(
    "reply", [HTML, json_reply([]), json_reply({"choices": [], "output": None}), json_reply({"x": "private"})]
)
@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_is_no_answer_is_an_error(api: Api, reply: Reply) -> None:
    async with raw_server(reply) as server, asked(server, api) as model:
        assert isinstance(await failed(model, "call"), ModelResponseError)


ERROR = {"message": f"you said: {PROMPT} with Bearer {KEY}", "type": "rate_limit_error", "code": "rate_limit_exceeded"}


@pytest.mark.parametrize("mode", ["call", "stream"])
@pytest.mark.parametrize(("header", "seconds"), [({"retry_after": "3"}, 3), ({"retry_after_ms": "1500"}, 1.5), ({}, None)])
async def test_429_has_the_wait(mode: str, header: dict[str, str], seconds: float | None) -> None:
    async with raw_server(json_reply({"error": ERROR}, 429, **header)) as server, asked(server) as model:
        error = await failed(model, mode)
        assert (error.status, error.retryable, error.retry_after) == (429, True, seconds)


@pytest.mark.parametrize("mode", ["call", "stream"])
async def test_the_sdks_own_retries_are_kept(mode: str) -> None:
    soon = {"retry_after_ms": "1"}
    answers = {"call": json_reply({"choices": [{"message": {"content": "ok"}}]}), "stream": events(piece("ok", "stop"))}
    replies = json_reply({"error": ERROR}, 500, **soon), json_reply({"error": ERROR}, 429, **soon), answers[mode]
    async with raw_server(*replies) as server, asked(server, max_retries=2) as model:
        text = (await model.call(REQUEST)).text if mode == "call" else (await chunks_of(model))[0].text
        assert (text, len(server.requests)) == ("ok", 3)


@pytest.mark.parametrize(
    ("status", "told"),
    [(401, "refused the key"), (404, "there is no `gpt-x`"), (500, "failed"), (400, "refused the request")],
)
@pytest.mark.parametrize("mode", ["call", "stream"])
@pytest.mark.parametrize("api", APIS)
async def test_a_refusal_tells_neither_key_nor_prompt(api: Api, mode: str, status: int, told: str) -> None:
    private = {"error": {"message": ERROR["message"], "type": PROMPT, "code": f"Bearer {KEY}", "param": PROMPT}}
    async with raw_server(json_reply(private, status)) as server, asked(server, api) as model:
        error = await failed(model, mode)
        assert error.status == status
        assert told in str(error)


@pytest.mark.parametrize("error", ["private", ["private"], {"type": 5, "code": {"a": 1}, "param": ["private"]}, None, {}])
@pytest.mark.parametrize("mode", ["call", "stream"])
async def test_an_error_of_any_form_is_one_of_ours(mode: str, error: object) -> None:
    async with raw_server(json_reply({"error": error}, 500)) as server, asked(server) as model:
        assert (await failed(model, mode)).status == 500
    if error:
        async with raw_server(events({"error": error}), json_reply({"error": error})) as server, asked(server) as model:
            await failed(model, "stream")
            await failed(model, "call")


@pytest.mark.parametrize(
    ("event", "retryable"),
    [
        ({"error": {"message": "private", "type": "server_error"}}, True),
        ({"error": {"message": "private", "code": 503}}, True),
        ({"error": {"message": "private", "code": 400}}, False),
        ({"error": "private"}, False),
    ],
)
async def test_an_error_in_mid_stream_is_one_of_ours(event: dict[str, Any], retryable: bool) -> None:
    async with raw_server(events(piece("Hello"), event)) as server, asked(server) as model:
        assert (await failed(model, "stream")).retryable == retryable


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "private"},
        {"type": "error", "error": {"code": "server_error", "message": "private"}},
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "private"}}},
    ],
)
async def test_an_error_in_mid_stream_of_responses_is_one_of_ours(event: dict[str, Any]) -> None:
    async with raw_server(events(text_event("Hello"), event, named=True)) as server, asked(server, "responses") as model:
        error = await failed(model, "stream")
        assert error.retryable
        assert "`server_error`" in str(error)


async def test_an_error_that_the_caller_deals_with_keeps_its_text() -> None:
    async with raw_server(json_reply({"error": ERROR}, 500)) as server, asked(server) as model:
        mine = KeyError("mine")
        for mode in ("call", "stream"):
            try:
                raise mine
            except KeyError:
                await failed(model, mode)
        assert mine.args == ("mine",)


async def test_an_sdk_that_fails_by_itself_is_an_error() -> None:
    async def key() -> str:
        raise openai.OpenAIError(f"no {KEY}")

    async with openai.AsyncOpenAI(api_key=key, base_url="http://127.0.0.1:9/v1") as client:
        for mode in ("call", "stream"):
            assert "was not asked" in str(await failed(OpenAIModel("gpt-x", client=client), mode))


async def test_nobody_there_is_an_error() -> None:
    model = OpenAIModel("gpt-x", base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0)
    for mode in ("call", "stream"):
        assert (await failed(model, mode)).retryable
    await model.aclose()


async def test_halves_of_a_character_are_joined() -> None:
    pieces = ['{"choices":[{"delta":{"content":"a\\ud83d"}}]}', '{"choices":[{"delta":{"content":"\\ude00b"}}]}']
    reply = events(*pieces, piece("\ud83d"), piece(reason="stop"))
    async with raw_server(reply) as server, asked(server) as model:
        chunks = await chunks_of(model)
        assert [chunk.text for chunk in chunks] == ["a", "😀b", "\ufffd"]


@pytest.mark.parametrize("api", APIS)
async def test_what_is_asked_arrives(api: Api) -> None:
    message = UserMessage((TextPart("look"), ImagePart(data=b"\x89PNG", media_type="image/png")))
    options = ChatOptions(temperature=0.5, max_tokens=9, extra={"reasoning": {"effort": "low"}, "top_p": 0.1})
    answer = {"choices": [{"message": {"content": "ok"}}], "output": [], "status": "completed"}
    async with raw_server(json_reply(answer)) as server, asked(server, api) as model:
        await model.call(ChatRequest((message,), options=options))
        (received,) = server.requests
    assert received.headers["authorization"] == f"Bearer {KEY}"
    sent = received.json
    assert (sent["model"], sent["temperature"], sent["top_p"]) == ("gpt-x", 0.5, 0.1)
    assert sent["reasoning"] == {"effort": "low"}
    assert "data:image/png;base64,iVBORw==" in json.dumps(sent)
    if api == "chat":
        assert (received.path, sent["max_tokens"]) == ("/v1/chat/completions", 9)
    else:
        assert (received.path, sent["max_output_tokens"], sent["store"]) == ("/v1/responses", 9, False)


async def test_a_refusal_of_the_model_is_no_text() -> None:
    whole = {"choices": [{"message": {"content": None, "refusal": "I may not."}, "finish_reason": "stop"}]}
    replies = json_reply(whole), events(piece(refusal="I may "), piece(refusal="not."), piece(reason="stop"))
    async with raw_server(*replies) as server, asked(server) as model:
        for response in (await model.call(REQUEST), fold_chunks(await chunks_of(model))):
            assert (response.text, response.message.refusal, response.finish_reason) == ("", "I may not.", "stop")


async def test_an_answer_that_is_whole_stays_so_whatever_comes_after() -> None:
    done = events(piece("ok", "stop"))
    for ending in ("cut", "hang"):
        async with raw_server(Reply(200, done.headers, done.pieces, ending)) as server, asked(server) as model:
            assert fold_chunks(await chunks_of(model)).text == "ok"


async def test_a_stream_asks_for_its_usage_and_uses_its_connection_again() -> None:
    usage = {
        "choices": [],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
        },
    }
    async with raw_server(events(piece("ok", "stop"), usage)) as server, asked(server) as model:
        for _ in range(2):
            response = fold_chunks(await chunks_of(model))
            assert server.open_connections == 1
        assert server.requests[0].json["stream_options"] == {"include_usage": True}
    assert response.usage is not None
    assert response.usage == Usage(3, 2, 5, cached_tokens=1, cache_write_tokens=2)


@pytest.mark.parametrize("extra", [{"n": 2}, {"stream": True}, {"modalities": ["text", "audio"]}, {"background": True}])
async def test_what_cannot_be_read_is_not_asked_for(extra: dict[str, Any]) -> None:
    async with raw_server(json_reply({})) as server, asked(server) as model:
        request = ChatRequest((UserMessage("hi"),), options=ChatOptions(extra=extra))
        for asking in (model.call(request), chunks_of(model, request)):
            with pytest.raises(InvalidInputError, match=f"`{next(iter(extra))}`"):
                await asking
        assert server.requests == []


async def test_a_given_client_is_used_and_stays_open() -> None:
    async with raw_server(json_reply({"choices": [{"message": {"content": "ok"}}]})) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as client:
            model = OpenAIModel("gpt-x", client=client)
            await model.aclose()
            assert (await model.call(REQUEST)).text == "ok"
            assert not client.is_closed()


async def test_a_given_client_with_a_broken_key_does_not_show_it() -> None:
    async with raw_server(json_reply({})) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=f"{KEY}\n", max_retries=0) as client:
            for mode in ("call", "stream"):
                await failed(OpenAIModel("gpt-x", client=client), mode)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": " "}, "`name`"),
        ({"api": "completions"}, "`api`"),
        ({"client": "x"}, "`client` is a str"),
        ({"api_key": "sk-secret\n"}, "the API key has"),
        ({"api_key": "sk-secret…"}, "the API key has"),
        ({"api_key": ""}, "`api_key` is empty"),
        ({"api_key": 5}, "`api_key` is an int"),
        ({"provider": 5}, "`provider` is an int"),
        ({"native_output": "yes"}, "`native_output` is a str"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        OpenAIModel(
            **{"name": "gpt-x", "api_key": KEY, **arguments} if "client" not in arguments else {"name": "x", **arguments}
        )
    assert "secret" not in str(caught.value)


def test_a_blank_key_in_the_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(ConfigurationError, match="there is no API key"):
        OpenAIModel("gpt-x")


def test_a_missing_sdk_names_the_command() -> None:
    code = "import sys; sys.modules['openai'] = None; import advisorchain.models.openai"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'MissingExtraError: models of OpenAI need its SDK: pip install "advisorchain[openai]"' in ended.stderr


def test_a_missing_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="set OPENAI_API_KEY or give `api_key`"):
        OpenAIModel("gpt-x")


def test_a_client_and_its_settings_are_not_both_given() -> None:
    with pytest.raises(ConfigurationError, match="`timeout` is given beside `client`"):
        OpenAIModel("gpt-x", client=openai.AsyncOpenAI(api_key=KEY), timeout=3)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/v1", "max_completion_tokens"),
        ("http://localhost:11434/v1", "max_tokens"),
    ],
)
def test_the_most_tokens_are_called_what_the_server_knows(url: str, name: str) -> None:
    body = OpenAIModel("gpt-x", api_key=KEY, base_url=url)._body(
        ChatRequest((UserMessage("hi"),), options=ChatOptions(max_tokens=9))
    )
    assert body[name] == 9


def test_the_environment_is_used_and_the_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    model = OpenAIModel("gpt-x")
    assert (repr(model), model.provider, model.name, model.native_output) == (
        "OpenAIModel('gpt-x', api='chat')",
        "openai",
        "gpt-x",
        True,
    )
    assert model._host == "localhost"
