"""A model without a mode of its own for typed answers is told their form in the prompt; one with it gets the schema."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, OutputSchema
from advisorchain.messages import SystemMessage, TextPart, UserMessage

SCHEMA = {"type": "object", "properties": {"größe": {"type": "integer"}}}
OPTIONS = ChatOptions(temperature=0.5, output=OutputSchema(SCHEMA, description="A person {x}."))


class Seeing:
    """A model that keeps what it was asked."""

    name, provider = "seeing", "test"

    def __init__(self) -> None:
        self.seen: list[ChatRequest] = []

    async def call(self, request: ChatRequest) -> ChatResponse:
        self.seen.append(request)
        return ChatResponse("{}")

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        self.seen.append(request)
        yield ChatChunk("{}")


class Native(Seeing):
    native_output = True


async def asked_of(model: Any, prompt: Any, options: ChatOptions, *, stream: bool) -> None:
    chain = AdvisorChain(model)
    if not stream:
        await chain.call(prompt, options=options)
        return
    async with chain.stream(prompt, options=options) as chunks:
        assert [chunk.text async for chunk in chunks] == ["{}"]


@pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])
async def test_the_schema_is_in_the_last_leading_system_message(stream: bool) -> None:
    model = Seeing()
    prompt = (SystemMessage("one"), SystemMessage("two"), UserMessage("q"), SystemMessage("later"))
    await asked_of(model, prompt, OPTIONS, stream=stream)
    (seen,) = model.seen
    told = seen.messages[1].text
    assert told.startswith("two\n\nA person {x}.\n")
    assert json.dumps(SCHEMA, ensure_ascii=False) in told
    assert [message.text for message in seen.messages if message is not seen.messages[1]] == ["one", "q", "later"]
    assert seen.options == ChatOptions(temperature=0.5)


async def test_without_a_system_message_it_is_the_first() -> None:
    model = Seeing()
    await asked_of(model, "q", OPTIONS, stream=False)
    first, question = model.seen[0].messages
    assert isinstance(first, SystemMessage)
    assert "größe" in first.text
    assert question == UserMessage("q")


async def test_parts_of_a_system_message_stay() -> None:
    model = Seeing()
    await asked_of(model, (SystemMessage((TextPart("one"),)), UserMessage("q")), OPTIONS, stream=False)
    parts = model.seen[0].messages[0].content
    assert parts[0] == TextPart("one")
    assert "größe" in parts[1].text


async def test_a_function_is_told_too() -> None:
    seen: list[ChatRequest] = []

    async def model(request: ChatRequest) -> str:
        seen.append(request)
        return "{}"

    await asked_of(model, "q", OPTIONS, stream=True)
    assert "größe" in seen[0].messages[0].text


@pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])
async def test_a_model_with_a_mode_of_its_own_gets_the_schema(stream: bool) -> None:
    model = Native()
    await asked_of(model, "q", OPTIONS, stream=stream)
    (seen,) = model.seen
    assert seen.messages == (UserMessage("q"),)
    assert seen.options is OPTIONS


async def test_other_options_leave_the_prompt_alone() -> None:
    model = Seeing()
    await asked_of(model, "q", ChatOptions(temperature=0.5), stream=False)
    assert model.seen[0].messages == (UserMessage("q"),)
