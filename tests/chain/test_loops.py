"""A loop of tool rounds, written as a small around advisor: memory outside and inside of it, texts, context, leaving."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from advisorchain.advisor import TOOL_CALLING_ORDER, AroundAdvisor, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, Message, ToolCall, ToolMessage
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel

Tool = Callable[[ToolCall], Awaitable[str]]


class Loop(AroundAdvisor):
    """Rounds of the rest until no tool is asked for."""

    name = "loop"
    order = TOOL_CALLING_ORDER

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    async def around(self, request: ChatRequest, next: Any) -> Any:
        earlier: list[Any] = []
        request = request.replace(round=1)
        while True:
            async with aclosing(next(request)) as items:
                async for item in items:
                    if isinstance(item, ChatChunk):
                        yield item
                    else:
                        response = item
            if not response.message.tool_calls:
                yield response.replace(earlier=tuple(earlier))
                return
            results = await self.run(response.message.tool_calls)
            for result in results:
                yield ChatChunk(tool_result=result)
            made = [response.message, *results]
            earlier += made
            yield ChatChunk(boundary="round")
            request = request.replace(
                messages=(*request.messages, *made),
                round=request.round + 1,
                made=request.made + len(made),
                context=response.context,
            )

    async def run(self, calls: tuple[ToolCall, ...]) -> list[ToolMessage]:
        results: dict[str, ToolMessage] = {}

        async def one(call: ToolCall) -> None:
            results[call.id] = ToolMessage(await self.tool(call), tool_call_id=call.id, name=call.name)

        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(one, call)
        return [results[call.id] for call in calls]


class Shout(BaseAdvisor):
    """Changes text, and says at the end of each message how many pieces it came from: so a missing flush shows."""

    name = "shout"
    order = -1_000_000_000 - 2**30  # outside of the loop's and the memory's default places

    def transform(self, request: ChatRequest) -> Any:
        return ShoutText()


class ShoutText:
    held = ""

    def feed(self, text: str) -> str:
        self.held += text
        return ""

    def flush(self) -> str:
        held, self.held = self.held.upper(), ""
        return held


def calls(text: str, *ids: str) -> ChatResponse:
    return ChatResponse(AssistantMessage(text, tool_calls=tuple(ToolCall(call, "clock") for call in ids)), "tool_calls")


async def clock(call: ToolCall) -> str:
    return f"noon by {call.id}"


async def stored(memory: MessageChatMemoryAdvisor) -> list[str]:
    page = await memory.chat_memory.history("c")
    return [told(entry.message) for entry in page.items]


def told(message: Message) -> str:
    mark = "~" if isinstance(message, AssistantMessage) and message.partial else ""
    asked = " + calls" if isinstance(message, AssistantMessage) and message.tool_calls else ""
    return f"{message.role}: {message.text}{asked}{mark}"


def outside(**more: Any) -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory(), **more)


def inside(**more: Any) -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory(), order=TOOL_CALLING_ORDER + 100, **more)


TURN = ["user: question", "assistant: Let me see. + calls", "tool: noon by 1", "tool: noon by 2", "assistant: It is noon."]


@pytest.mark.parametrize("remember", ["answer", "turn"])
async def test_memory_outside_stores_the_question_and_the_final_answer(ask: Any, remember: Any) -> None:
    memory = outside(remember=remember)
    model = ScriptedModel(calls("Let me see.", "1", "2"), "It is noon.", "Still noon.")
    chain = AdvisorChain(model, [memory, Loop(clock)])

    response = await ask(chain, conversation_id="c")
    kept = TURN if remember == "turn" else [TURN[0], TURN[-1]]
    assert [told(message) for message in response.turn] == TURN[1:]
    assert await stored(memory) == kept

    await ask(chain, "And now?", conversation_id="c")
    assert [told(message) for message in model.prompts[1]] == TURN[:-1]
    assert [told(message) for message in model.prompts[2]] == [*kept, "user: And now?"]


async def test_memory_inside_stores_the_whole_turn_once(ask: Any) -> None:
    counts: list[int] = []

    async def counting(call: ToolCall) -> str:
        counts.append(await memory.chat_memory.count("c"))
        return await clock(call)

    memory = inside()
    model = ScriptedModel(calls("Let me see.", "1", "2"), "It is noon.", calls("Let me see.", "1", "2"), "It is noon.")
    chain = AdvisorChain(model, [Loop(counting), memory])

    await ask(chain, conversation_id="c")
    assert await stored(memory) == TURN
    await ask(chain, conversation_id="c")
    assert await stored(memory) == TURN * 2
    assert counts == [0, 0, len(TURN), len(TURN)]
    assert [told(message) for message in model.prompts[2]] == [*TURN, TURN[0]]
    assert [told(message) for message in model.prompts[3]] == [*TURN, *TURN[:-1]]


async def test_a_transform_outside_changes_each_message_of_the_turn(ask: Any) -> None:
    chain = AdvisorChain(ScriptedModel(calls("Let me see.", "1"), "It is noon."), [Shout(), Loop(clock)])
    response = await ask(chain)
    assert [message.text for message in response.turn] == ["LET ME SEE.", "noon by 1", "IT IS NOON."]


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_each_round_s_streamed_text_is_that_round_s_message(size: int) -> None:
    def cut(text: str, *more: ChatChunk) -> list[Any]:
        return [*(text[at : at + size] for at in range(0, len(text), size)), *more]

    first = calls("", "1").message
    asking = ChatChunk(tool_calls=tuple(chunks_of(first)), finish_reason="tool_calls")
    recorder = RecordingAdvisor("r", -(2**31))
    model = ScriptedModel(cut("Let me see.", asking), cut("It is noon."))
    chain = AdvisorChain(model, [recorder, Shout(), outside(), Loop(clock)])
    texts, results = [""], 0
    async with chain.stream("q", conversation_id="c") as stream:
        async for chunk in stream:
            texts += [""] if chunk.boundary == "round" else []
            texts[-1] += chunk.text
            results += chunk.tool_result is not None
    assert texts == ["LET ME SEE.", "IT IS NOON."]
    assert results == 1
    assert [message.text for message in stream.response.turn if isinstance(message, AssistantMessage)] == texts
    assert recorder.outcomes[0].response == stream.response


def chunks_of(message: AssistantMessage) -> Any:
    from advisorchain.exchange import ToolCallChunk

    return (ToolCallChunk(place, call.id, call.name, call.arguments) for place, call in enumerate(message.tool_calls))


# -- context


class Counts(BaseAdvisor):
    """Counts in the context, in each round."""

    name = "counts"

    def before(self, request: ChatRequest) -> ChatRequest:
        return request.with_context(inwards=request.context.get("inwards", 0) + 1)

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.with_context(outwards=response.context.get("outwards", 0) + 1)


class BuildsItsOwn(BaseAdvisor):
    name = "own"

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return ChatResponse(response.message, response.finish_reason, earlier=response.earlier)


@pytest.mark.parametrize("order", [-(2**31), 5, -5])
async def test_context_of_each_round_is_there_at_the_end(ask: Any, order: int) -> None:
    own = BuildsItsOwn()
    own.order = order
    chain = AdvisorChain(ScriptedModel(calls("", "1"), "It is noon."), [own, Loop(clock), Counts()])
    response = await ask(chain, context={"asked": "yes"})
    assert response.context == {"asked": "yes", "inwards": 2, "outwards": 2}


# -- leaving


async def cancelled_while_tools_run(chain: AdvisorChain, running: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def consume() -> None:
            async with chain.stream("question", conversation_id="c") as stream:
                async for _ in stream:
                    pass

        group.start_soon(consume)
        await running.wait()
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("text", "kept"), [("Let me see.", ["user: question", "assistant: Let me see.~"]), ("", [])])
@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_cancelled_while_tools_run(place: str, text: str, kept: list[str]) -> None:
    running, ended = anyio.Event(), []

    async def hangs(call: ToolCall) -> str:
        try:
            running.set()
            await anyio.sleep_forever()
        finally:
            ended.append(call.id)
        return ""

    memory = outside() if place == "outside" else inside()
    model = ScriptedModel(calls(text, "1", "2"), "Fine.")
    await cancelled_while_tools_run(AdvisorChain(model, [memory, Loop(hangs)]), running)

    assert sorted(ended) == ["1", "2"]  # both were awaited: nothing goes on in the background
    assert model.open_streams == 0
    assert await stored(memory) == (kept if place == "outside" else [])
    assert (await AdvisorChain(model, [memory]).call("next", conversation_id="c")).text == "Fine."


@pytest.mark.parametrize("remember", ["answer", "turn"])
@pytest.mark.parametrize("leave", ["close", "cancel"])
@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_left_during_round_two(place: str, leave: str, remember: Any) -> None:
    memory = outside(remember=remember) if place == "outside" else inside(remember=remember)
    pause = Pause()
    model = ScriptedModel(calls("Let me see.", "1", "2"), ["It is ", "noon", pause, "."], "Fine.")
    chain = AdvisorChain(model, [memory, Loop(clock)])

    async def consume() -> None:
        async with chain.stream("question", conversation_id="c") as stream:
            async for chunk in stream:
                if leave == "close" and chunk.text == "noon":
                    return

    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        if leave == "cancel":
            await pause.reached.wait()
            group.cancel_scope.cancel()

    assert model.open_streams == 0
    whole = [*TURN[:-1], "assistant: It is noon~"]
    assert await stored(memory) == (whole if remember == "turn" or place == "inside" else [whole[0], whole[-1]])
    assert (await AdvisorChain(model, [memory]).call("next", conversation_id="c")).text == "Fine."


async def test_left_between_the_rounds() -> None:
    memory, recorder = outside(remember="turn"), RecordingAdvisor("r", -(2**31))
    model = ScriptedModel(calls("Let me see.", "1", "2"), "Fine.")
    async with AdvisorChain(model, [recorder, memory, Loop(clock)]).stream("question", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.tool_result is not None and chunk.tool_result.tool_call_id == "2":
                break
    [outcome] = recorder.outcomes
    assert outcome.status == "closed"
    assert outcome.response is not None
    assert [told(message) for message in outcome.response.turn] == [*TURN[1:-1], "assistant: ~"]
    await AdvisorChain(model, [memory]).call("next", conversation_id="c")  # the strict model takes what was stored
    assert told(model.prompts[-1][0]) == "user: question"
