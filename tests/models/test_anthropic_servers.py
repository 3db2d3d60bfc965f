"""AnthropicModel and servers that nobody here wrote: the scripted one, and llama.cpp's own with a small model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from advisorchain import AdvisorChain
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ModelError, ModelTimeoutError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, ToolDefinition
from advisorchain.memory import ChatMemory
from advisorchain.messages import ImagePart, Message, SystemMessage, TextPart, ToolMessage, UserMessage
from advisorchain.models.anthropic import AnthropicModel
from advisorchain.testing import check_model

from ._servers import Aimock, ModelServer, aimock

pytestmark = pytest.mark.slow  # real servers and weights

# what the weights say does not depend on the event loop: on trio when there is time for it
on_one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.slow)])
KEY = "sk-ant-secret-1234"
Ask = Callable[..., Awaitable[ChatResponse]]
LONG = "All happy families are alike; each unhappy family is unhappy in its own way. " * 4


def when(text: str, **response: Any) -> dict[str, Any]:
    return {"match": {"userMessage": text}, "response": response, "chunkSize": 10}


def failing(text: str, status: int, kind: str, **more: Any) -> dict[str, Any]:
    return when(text, error={"message": f"no, {KEY}", "type": kind}, status=status, **more)


CALL = {"name": "weather", "arguments": '{"city": "Oslo", "days": [1, 2]}', "id": "toolu_1"}
FIXTURES = [
    {"match": {"toolCallId": "toolu_1"}, "response": {"content": "It rains in Oslo."}},
    when("Say hello", content="Hello there, how are you today?"),
    when("My name is Ada", content="Nice to meet you, Ada."),
    when("What is my name", content="Your name is Ada."),
    when("What is on it", content="A cat."),
    when("Think", content="It is 4.", reasoning="Two and two.", reasoningSignature="signed", redactedThinking=["hidden"]),
    when("weather", content="I look.", toolCalls=[CALL], reasoning="Where?", reasoningSignature="signed"),
    failing("limit", 429, "rate_limit_error", retryAfter=7),
    failing("fail", 500, "api_error"),
    failing("busy", 529, "overloaded_error"),
    {**when("cut", content=LONG), "truncateAfterChunks": 3},
    {**when("slow", content=LONG), "latency": 300},
    {**when("drop", content=LONG), "chaos": {"dropRate": 1}},
    {**when("malformed", content=LONG), "chaos": {"malformedRate": 1}},
    {**when("disconnect", content=LONG), "chaos": {"disconnectRate": 1}},
]


@pytest.fixture(scope="module")
def scripted() -> Generator[Aimock]:
    with aimock(FIXTURES) as server:
        yield server


@pytest.fixture
async def model(scripted: Aimock) -> AsyncGenerator[AnthropicModel]:
    async with aclosing(AnthropicModel("claude-opus-5-5", base_url=scripted.url, api_key=KEY, max_retries=0)) as model:
        yield model


def asking(*messages: Message | str, **options: Any) -> ChatRequest:
    prompt = tuple(UserMessage(message) if isinstance(message, str) else message for message in messages)
    return ChatRequest(prompt, options=ChatOptions(**options))


async def chunks(model: AnthropicModel, request: ChatRequest) -> list[ChatChunk]:
    async with aclosing(model.stream(request)) as stream:
        return [chunk async for chunk in stream]


async def called(model: AnthropicModel, request: ChatRequest) -> ChatResponse:
    return await model.call(request)


async def folded(model: AnthropicModel, request: ChatRequest) -> ChatResponse:
    return fold_chunks(await chunks(model, request))


both = pytest.mark.parametrize("ask", [called, folded])


async def test_a_call_and_a_stream(model: AnthropicModel) -> None:
    pieces = await chunks(model, asking("Say hello"))
    assert len([chunk for chunk in pieces if chunk.text]) > 2
    streamed, response = fold_chunks(pieces), await model.call(asking("Say hello"))
    assert streamed.text == response.text == "Hello there, how are you today?"
    assert streamed.finish_reason == response.finish_reason == "stop"
    assert streamed.usage == response.usage


@both
async def test_a_round_with_a_tool(model: AnthropicModel, scripted: Aimock, ask: Ask) -> None:
    tool = ToolDefinition("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
    system = SystemMessage("Be short.")
    answer = (await ask(model, asking(system, "weather?", tools=(tool,), tool_choice="required"))).message
    (call,) = answer.tool_calls
    assert (call.name, call.parsed()) == ("weather", {"city": "Oslo", "days": [1, 2]})
    assert (answer.text, answer.reasoning) == ("I look.", "Where?")
    history = (system, UserMessage("weather?"), answer, ToolMessage("rain", tool_call_id=call.id))
    assert (await ask(model, asking(*history, tools=(tool,)))).text == "It rains in Oslo."
    assert KEY not in str(scripted.journal()[-1]["body"])


async def test_a_tools_arguments_come_in_pieces(model: AnthropicModel) -> None:
    pieces = await chunks(model, asking("weather?"))
    arguments = [piece.arguments for chunk in pieces for piece in chunk.tool_calls if piece.arguments]
    assert len(arguments) > 1
    assert json.loads("".join(arguments)) == json.loads(CALL["arguments"])


@both
async def test_thinking(model: AnthropicModel, ask: Ask) -> None:
    message = (await ask(model, asking("Think"))).message
    assert (message.text, message.reasoning) == ("It is 4.", "Two and two.")
    kept = message.metadata["anthropic"]["blocks"]
    assert {"type": "thinking", "thinking": "Two and two.", "signature": "signed"} in kept
    assert {"type": "redacted_thinking", "data": "hidden"} in kept


async def test_an_image(model: AnthropicModel) -> None:
    prompt = UserMessage((ImagePart(data=b"\x89PNG", media_type="image/png"), TextPart("What is on it?")))
    assert (await model.call(asking(prompt))).text == "A cat."


@both
@pytest.mark.parametrize(("prompt", "status", "wait"), [("limit", 429, 7.0), ("fail", 500, None), ("busy", 529, None)])
async def test_errors(model: AnthropicModel, ask: Ask, prompt: str, status: int, wait: float | None) -> None:
    with pytest.raises(ModelError, match=f"status {status}") as caught:
        await ask(model, asking(prompt))
    assert (caught.value.status, caught.value.retryable, caught.value.retry_after) == (status, True, wait)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("prompt", ["cut", "drop", "malformed", "disconnect"])
async def test_faults_of_a_stream(model: AnthropicModel, prompt: str) -> None:
    with pytest.raises(ModelError) as caught:
        await chunks(model, asking(prompt))
    assert caught.value.retryable
    assert "unhappy" not in str(caught.value)


async def test_patience(scripted: Aimock) -> None:
    hurried = AnthropicModel("claude", base_url=scripted.url, api_key=KEY, max_retries=0, timeout=0.1)
    async with aclosing(hurried):
        with pytest.raises(ModelTimeoutError):
            await chunks(hurried, asking("slow"))


async def test_leaving_early(model: AnthropicModel) -> None:
    async with aclosing(model.stream(asking("slow"))) as stream:
        async for chunk in stream:
            if chunk.text:
                break
    with anyio.move_on_after(0.4) as scope:
        await chunks(model, asking("slow"))
    assert scope.cancelled_caught
    assert (await folded(model, asking("Say hello"))).finish_reason == "stop"


async def test_a_remembered_conversation(model: AnthropicModel, scripted: Aimock) -> None:
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory())])
    async with chain.stream("My name is Ada", conversation_id="c") as stream:
        assert "".join([chunk.text async for chunk in stream]) == "Nice to meet you, Ada."
    assert (await chain.call("What is my name?", conversation_id="c")).text == "Your name is Ada."
    told = [message["content"] for message in scripted.journal()[-1]["body"]["messages"]]
    assert "Nice to meet you, Ada." in str(told)


async def test_it_keeps_the_laws_of_models(model: AnthropicModel) -> None:
    await check_model(lambda: model)


@pytest.fixture
async def smollm(small_model: ModelServer) -> AsyncGenerator[AnthropicModel]:
    async with aclosing(AnthropicModel("smollm2", max_tokens=8, base_url=small_model.url, api_key=small_model.key)) as model:
        yield model


EXACT: dict[str, Any] = {"temperature": 0.0, "stop": ("\n",)}


@on_one_loop
async def test_a_real_model_answers_and_remembers(smollm: AnthropicModel) -> None:
    chain = AdvisorChain(smollm, [MessageChatMemoryAdvisor(ChatMemory())])
    options = ChatOptions(**EXACT)
    async with chain.stream("My name is Ada", conversation_id="c", options=options) as stream:
        pieces = [chunk.text async for chunk in stream if chunk.text]
    assert len(pieces) > 2
    response = await chain.call("What is my name?", conversation_id="c", options=options)
    assert "Ada" in response.text
    assert response.finish_reason == "stop"
    assert response.usage is not None
    assert (response.usage.input_tokens or 0) > 0


async def test_a_real_models_stream_is_stopped(smollm: AnthropicModel) -> None:
    endless = asking("Tell a story.", max_tokens=1500, extra={"ignore_eos": True})
    async with aclosing(smollm.stream(endless)) as stream:
        async for chunk in stream:
            if chunk.text:
                break
    assert (await folded(smollm, asking("Hello", max_tokens=2, **EXACT))).finish_reason in ("stop", "length")


async def test_a_wrong_key(small_model: ModelServer) -> None:
    async with aclosing(AnthropicModel("smollm2", base_url=small_model.url, api_key="wrong-key-1234")) as stranger:
        for ask in (called, folded):
            with pytest.raises(ModelError, match="refused the key") as caught:
                await ask(stranger, asking("Hi"))
            assert (caught.value.status, caught.value.retryable) == (401, False)
            assert "wrong-key-1234" not in str(caught.value)


@pytest.mark.slow  # a server with scripted answers is there for each run
async def test_a_real_model_keeps_the_laws_of_models(smollm: AnthropicModel) -> None:
    await check_model(lambda: smollm, prompt="What is the capital of Spain?", deterministic=False)
