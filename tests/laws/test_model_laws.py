"""The laws hold for the scripted model and plain functions, and each finds a model that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from advisorchain.errors import InvalidInputError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, ToolCall, Usage
from advisorchain.testing import ScriptedModel, check_model, check_prompt

ANSWER = ChatResponse(
    AssistantMessage("Two words", reasoning="hm", tool_calls=(ToolCall("c", "t", "{}"),)),
    "tool_calls",
    Usage(1, 2),
    "m",
    "1",
)


async def strict_text(request: ChatRequest) -> str:
    check_prompt(request.messages)
    return "hello"


async def strict_chunks(request: ChatRequest) -> Any:
    check_prompt(request.messages)
    yield "hel"
    await anyio.lowlevel.checkpoint()
    yield ChatChunk("lo", finish_reason="stop")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScriptedModel("Hello there.", repeat=True),
        lambda: ScriptedModel(["Hel", "lo", ChatChunk(finish_reason="stop")], repeat=True),
        lambda: ScriptedModel(ANSWER, repeat=True),
        lambda: strict_text,
        lambda: strict_chunks,
    ],
)
async def test_good_models_keep_the_laws(make: Callable[[], Any]) -> None:
    await check_model(make)


class Good:
    """A model that keeps the laws; what is broken below differs in one place."""

    name = "good"
    provider = "test"

    async def call(self, request: ChatRequest) -> Any:
        check_prompt(request.messages)
        return ChatResponse("one two")

    async def stream(self, request: ChatRequest) -> Any:
        check_prompt(request.messages)
        yield ChatChunk("one ")
        yield ChatChunk("two")


class Nameless(Good):
    name = ""


class Empty(Good):
    async def stream(self, request: ChatRequest) -> Any:
        for nothing in ():
            yield nothing


class Responds(Good):
    async def stream(self, request: ChatRequest) -> Any:
        yield ChatChunk("one two")
        yield ChatResponse("one two")


class Differs(Good):
    async def call(self, request: ChatRequest) -> Any:
        return ChatResponse("three")


class AnswersNothing(Good):
    async def call(self, request: ChatRequest) -> Any:
        return None


class NeverClosed(Good):
    def __init__(self) -> None:
        self.busy = False

    async def stream(self, request: ChatRequest) -> Any:
        assert not self.busy, "busy"
        self.busy = True
        yield ChatChunk("one ")
        yield ChatChunk("two")
        self.busy = False


class SwallowsCancellation(Good):
    async def call(self, request: ChatRequest) -> Any:
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            raise RuntimeError("interrupted") from None
        return ChatResponse("one two")


class Mixes(Good):
    def __init__(self) -> None:
        self.words: list[str] = []

    async def call(self, request: ChatRequest) -> Any:
        self.words = []
        for word in ("one ", "two"):
            self.words.append(word)
            await anyio.lowlevel.checkpoint()
        return ChatResponse("".join(self.words))


class Lenient(Good):
    async def call(self, request: ChatRequest) -> Any:
        return ChatResponse("one two")


class RefusesForeign(Good):
    async def call(self, request: ChatRequest) -> Any:
        try:
            check_prompt(request.messages)
        except InvalidInputError:
            raise KeyError("messages") from None
        return ChatResponse("one two")


@pytest.mark.parametrize(
    ("make", "law", "because"),
    [
        (Nameless, "it is named", "`name` is blank"),
        (Empty, "chunks only, at least one", "gave nothing"),
        (Responds, "chunks only, at least one", "yielded a ChatResponse"),
        (Differs, "the stream, folded, equals the call", "not what a call answers"),
        (AnswersNothing, "the stream, folded, equals the call", "answered None"),
        (NeverClosed, "closing early stops it", "busy"),
        (SwallowsCancellation, "a cancellation stops it", "RuntimeError"),
        (Mixes, "concurrent requests are kept apart", "beside other requests"),
        (Lenient, "bad input is refused", "was answered"),
        (RefusesForeign, "bad input is refused", "KeyError, not ours"),
    ],
)
async def test_each_law_finds_what_breaks_it(make: Callable[[], Any], law: str, because: str) -> None:
    with pytest.raises(AssertionError) as raised:
        await check_model(make)
    assert f"law `{law}`" in str(raised.value)
    assert because in str(raised.value)


async def test_a_model_of_many_words_is_compared_by_what_it_says_at_all() -> None:
    with pytest.raises(AssertionError, match="equals the call"):
        await check_model(Differs)

    class Varies(Good):
        async def call(self, request: ChatRequest) -> Any:
            check_prompt(request.messages)
            return ChatResponse("three")

    await check_model(Varies, deterministic=False)


async def test_tool_calls_are_compared_by_name_and_arguments() -> None:
    class OtherIds(Good):
        async def call(self, request: ChatRequest) -> Any:
            check_prompt(request.messages)
            return ChatResponse(AssistantMessage(tool_calls=(ToolCall("a", "t"),)))

        async def stream(self, request: ChatRequest) -> Any:
            check_prompt(request.messages)
            yield ChatChunk(tool_calls=(ToolCallChunk(0, "b", "t", "{}"),))

    await check_model(OtherIds)
