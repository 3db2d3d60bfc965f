"""OpenAI's models over real HTTP, against servers that others wrote. Both APIs, on asyncio and trio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal

import anyio
import pytest

from advisorchain import AdvisorChain
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ModelError, ModelNotFoundError, ModelResponseError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, ToolDefinition
from advisorchain.memory import ChatMemory
from advisorchain.messages import ImagePart, Message, TextPart, ToolMessage, UserMessage
from advisorchain.models.openai import OpenAIModel
from advisorchain.testing import check_model

from ._servers import Aimock, ModelServer, aimock

Api = Literal["chat", "responses"]
APIS: tuple[Api, ...] = ("chat", "responses")

# what the weights say does not depend on the event loop: on trio when there is time for it
on_one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.slow)])

HELLO = "Hi there! How are you?"
LONG = "A long answer that comes in many pieces. " * 20
ARGUMENTS = '{"city": "Rome", "unit": "C"}'
TOOLS = (ToolDefinition("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}}),)


def _fixture(asked: str, response: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"match": {"userMessage": asked}, "response": response, **more}


FIXTURES = [
    {"match": {"hasToolResult": True}, "response": {"content": "18C and sunny"}},
    _fixture("hello", {"content": HELLO}),
    _fixture("My name is Ada", {"content": "Nice to meet you, Ada."}),
    _fixture("What is my name", {"content": "Your name is Ada."}),
    _fixture("look", {"content": "A cat."}),
    _fixture("think", {"content": "42", "reasoning": "Six times seven."}),
    _fixture("weather", {"toolCalls": [{"name": "weather", "arguments": ARGUMENTS}, {"name": "time", "arguments": "{}"}]}),
    _fixture(
        "refuse", {"error": {"message": "secret prompt", "type": "invalid_request_error", "code": "bad"}, "status": 400}
    ),
    _fixture("drop", {"content": HELLO}, chaos={"dropRate": 1}),
    _fixture("limit", {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 7}),
    _fixture("malformed", {"content": HELLO}, chaos={"malformedRate": 1}),
    _fixture("disconnect", {"content": HELLO}, chaos={"disconnectRate": 1}),
    _fixture("cut", {"content": LONG}, truncateAfterChunks=9, latency=20),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Aimock]:
    with aimock(FIXTURES, "--chunk-size", "4") as server:
        yield server


@asynccontextmanager
async def opened(server: Aimock, api: Api) -> AsyncGenerator[OpenAIModel]:
    model = OpenAIModel("gpt-x", api=api, base_url=f"{server.url}/v1", api_key="sk-secret", max_retries=0)
    try:
        yield model
    finally:
        await model.aclose()


def asking(*messages: Message | str, options: ChatOptions | None = None) -> ChatRequest:
    prompt = tuple(UserMessage(message) if isinstance(message, str) else message for message in messages)
    return ChatRequest(prompt, options=options)


async def chunks_of(model: OpenAIModel, request: ChatRequest) -> list[ChatChunk]:
    async with aclosing(model.stream(request)) as stream:
        return [chunk async for chunk in stream]


async def both(model: OpenAIModel, request: ChatRequest) -> tuple[ChatResponse, ChatResponse]:
    return await model.call(request), fold_chunks(await chunks_of(model, request))


@pytest.mark.parametrize("api", APIS)
async def test_a_call_and_a_stream_say_the_same(server: Aimock, api: Api) -> None:
    async with opened(server, api) as model:
        called = await model.call(asking("hello"))
        chunks = await chunks_of(model, asking("hello"))
    streamed = fold_chunks(chunks)
    assert len([chunk for chunk in chunks if chunk.text]) > 3
    assert called.text == streamed.text == HELLO
    assert called.finish_reason == streamed.finish_reason == "stop"
    assert called.usage == streamed.usage is not None
    assert called.model == streamed.model == "gpt-x"
    assert called.id
    assert streamed.id


@pytest.mark.parametrize("api", APIS)
async def test_tool_calls_come_in_pieces_and_their_results_go_back(server: Aimock, api: Api) -> None:
    async with opened(server, api) as model:
        question = UserMessage("weather?")
        called, streamed = await both(model, asking(question, options=ChatOptions(tools=TOOLS)))
        pieces = [piece for chunk in await chunks_of(model, asking(question)) for piece in chunk.tool_calls]
        results = (ToolMessage("18C", tool_call_id=call.id, name=call.name) for call in called.message.tool_calls)
        final = await model.call(asking(question, called.message, *results, options=ChatOptions(tools=TOOLS)))
    for response in (called, streamed):
        assert [(call.name, call.arguments) for call in response.message.tool_calls] == [
            ("weather", ARGUMENTS),
            ("time", "{}"),
        ]
        assert response.finish_reason == "tool_calls"
    assert len([piece for piece in pieces if piece.arguments]) > 3
    assert final.text == "18C and sunny"
    sent = server.journal()[-1]["body"]["messages"]
    assert [message["role"] for message in sent] == ["user", *["assistant"] * (len(sent) - 3), "tool", "tool"]


async def test_an_image_arrives(server: Aimock) -> None:
    message = UserMessage((TextPart("look"), ImagePart(data=b"\x89PNG", media_type="image/png")))
    async with opened(server, "chat") as model:
        assert (await model.call(asking(message))).text == "A cat."
    assert "data:image/png;base64,iVBORw==" in str(server.journal()[-1]["body"])


@pytest.mark.parametrize("api", APIS)
async def test_reasoning_is_apart_from_the_text(server: Aimock, api: Api) -> None:
    async with opened(server, api) as model:
        for response in await both(model, asking("think")):
            assert (response.text, response.message.reasoning) == ("42", "Six times seven.")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("asked", "kind", "retryable", "status"),
    [
        ("refuse", ModelError, False, 400),
        ("nobody knows", ModelNotFoundError, False, 404),
        ("drop", ModelError, True, 500),
        ("limit", ModelError, True, 429),
        ("malformed", ModelResponseError, True, None),
        ("disconnect", ModelError, True, None),
    ],
)
async def test_faults_are_errors_of_ours(
    server: Aimock, api: Api, asked: str, kind: type[ModelError], retryable: bool, status: int | None
) -> None:
    async with opened(server, api) as model:
        for asking_it in (model.call, lambda request: chunks_of(model, request)):
            with pytest.raises(ModelError) as caught:
                await asking_it(asking(asked))
            assert type(caught.value) is kind
            assert (caught.value.retryable, caught.value.status) == (retryable, status)
            assert caught.value.retry_after == (7 if asked == "limit" else None)
            assert "secret" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("api", APIS)
async def test_a_cut_stream_is_an_error_and_what_came_was_shown(server: Aimock, api: Api) -> None:
    seen: list[str] = []
    async with opened(server, api) as model:
        with pytest.raises(ModelError) as caught:
            async with aclosing(model.stream(asking("cut"))) as stream:
                async for chunk in stream:
                    seen.append(chunk.text)
    assert caught.value.retryable
    shown = "".join(seen)
    assert shown
    assert LONG.startswith(shown)
    assert shown != LONG


@pytest.mark.parametrize("api", APIS)
async def test_it_keeps_the_laws_of_models(server: Aimock, api: Api) -> None:
    made: list[OpenAIModel] = []

    def make() -> OpenAIModel:
        made.append(OpenAIModel("gpt-x", api=api, base_url=f"{server.url}/v1", api_key="k", max_retries=0))
        return made[-1]

    await check_model(make, prompt="hello", bad_request=asking("refuse"))
    for model in made:
        await model.aclose()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streaming", [False, True])
async def test_in_a_chain_with_memory_the_second_turn_has_the_first(server: Aimock, api: Api, streaming: bool) -> None:
    async with opened(server, api) as model:
        chain = AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory())])
        for prompt, answer in (("My name is Ada", "Nice to meet you, Ada."), ("What is my name?", "Your name is Ada.")):
            if streaming:
                async with chain.stream(prompt, conversation_id="c") as stream:
                    assert "".join([chunk.text async for chunk in stream]) == stream.response.text == answer
            else:
                assert (await chain.call(prompt, conversation_id="c")).text == answer
    sent = server.journal()[-1]["body"]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "Nice to meet you, Ada." in str(sent[1])


# a real model, behind llama.cpp's own server


@pytest.mark.slow
@on_one_loop
@pytest.mark.parametrize("api", APIS)
async def test_a_real_small_model_answers(small_model: ModelServer, api: Api) -> None:
    model = OpenAIModel("smollm2", api=api, base_url=f"{small_model.url}/v1", api_key=small_model.key)
    options = ChatOptions(temperature=0, max_tokens=8, extra={"stop": ["\n"]})
    told = asking("My name is Ada", options=options)
    called, streamed = await both(model, told)
    assert called.text.strip() == streamed.text.strip() != ""
    assert called.usage is not None
    assert called.usage.output_tokens == streamed.usage.output_tokens
    answer = await model.call(asking("My name is Ada", called.message, "What is my name?", options=options))
    assert "Ada" in answer.text
    await model.aclose()


@pytest.mark.slow
async def test_a_real_models_stream_and_call_are_stopped(small_model: ModelServer) -> None:
    async with OpenAIModel("smollm2", base_url=f"{small_model.url}/v1", api_key=small_model.key) as model:
        endless = ChatOptions(max_tokens=1500, extra={"ignore_eos": True})
        async with aclosing(model.stream(asking("Tell a story.", options=endless))) as stream:
            async for chunk in stream:
                if chunk.text:
                    break
        with anyio.move_on_after(0.3) as scope:
            await model.call(asking("Tell a story.", options=endless))
        assert scope.cancelled_caught
        brief = ChatOptions(max_tokens=4, extra={"stop": ["\n"]})
        assert (await model.call(asking("Hello", options=brief))).finish_reason in ("stop", "length")


@on_one_loop
@pytest.mark.parametrize("api", APIS)
async def test_a_real_server_refuses_a_wrong_key(small_model: ModelServer, api: Api) -> None:
    model = OpenAIModel("smollm2", api=api, base_url=f"{small_model.url}/v1", api_key="sk-wrong", max_retries=0)
    with pytest.raises(ModelError, match="refused the key") as caught:
        await model.call(asking("hi"))
    assert (caught.value.status, caught.value.retryable) == (401, False)
    assert "sk-wrong" not in f"{caught.value} {caught.value.__cause__}"
    await model.aclose()


@on_one_loop
async def test_a_real_server_tells_that_the_prompt_is_too_long(small_model: ModelServer) -> None:
    model = OpenAIModel("smollm2", base_url=f"{small_model.url}/v1", api_key=small_model.key, max_retries=0)
    with pytest.raises(ModelError) as caught:
        await model.call(asking("word " * 4000))
    assert type(caught.value).__name__ == "ContextLengthError"
    await model.aclose()
