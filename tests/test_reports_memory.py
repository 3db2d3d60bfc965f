"""Reports about memory in whole chains: with a tool loop, with readers that leave, with answers without text."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE, TOOL_CALLING_ORDER, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.memory import ChatMemory, SqliteChatMemoryRepository
from advisorchain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    load_message,
)
from advisorchain.testing.models import Pause, ScriptedModel
from advisorchain.testing.recorders import RecordingAdvisor, Seen, labels

from ._asking import MODES, HandLoop, Mode, ask, asking, chunks_given, given, stored, texts
from .cases._stores import TWO_KINDS, Store, opened

U, A = UserMessage, AssistantMessage
both = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(params=TWO_KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


def memory_on(store: Store | None = None, **more: Any) -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory(repository=store.repository if store else None), **more)


# --- with a tool loop -------------------------------------------------------------------------------------------------


@both
async def test_B002_memory_inside_the_loop_adds_the_history_once(mode: Mode, store: Store) -> None:
    data = given("B002")
    memory = memory_on(store, order=TOOL_CALLING_ORDER + 1)
    history: list[Message] = [U(data["history"][0]["content"]), A(data["history"][1]["content"])]
    await memory.chat_memory.add("c", history)
    call = data["round1"]["tool_calls"][0]
    model = ScriptedModel(asking((call["id"], call["name"], call["arguments"])), data["round2"]["content"], "later")
    chain = AdvisorChain(model, [HandLoop(clock=lambda: data["tool_result"]), memory])
    response = await ask(mode, chain, data["user"], conversation_id="c")
    asked, told = A(tool_calls=(ToolCall("t1", "clock"),)), ToolMessage("12:00", tool_call_id="t1", name="clock")
    assert model.prompts == [(*history, U("time?")), (*history, U("time?"), asked, told)]
    assert response.text == "noon"
    log = await stored(memory.chat_memory)
    assert [log.count(U("time?")), log.count(A("noon"))] == [1, 1]
    assert log == [*history, U("time?"), asked, told, A("noon")]
    await ask(mode, chain, "and now?", conversation_id="c")
    assert model.prompts[2] == (*log, U("and now?"))


@both
@pytest.mark.parametrize("swapped", [False, True])
async def test_B003_memory_stands_outside_the_tool_loop_by_default(mode: Mode, swapped: bool) -> None:
    class Counted(MessageChatMemoryAdvisor):
        counts = (0, 0)

        async def before(self, request: ChatRequest) -> ChatRequest:
            self.counts = (self.counts[0] + 1, self.counts[1])
            return await super().before(request)

        async def done(self, request: ChatRequest, outcome: Any) -> None:
            self.counts = (self.counts[0], self.counts[1] + 1)
            await super().done(request, outcome)

    memory, loop = Counted(ChatMemory()), HandLoop(look=lambda: "seen")
    model = ScriptedModel(*[asking((f"k{place}", "look", "{}")) for place in range(3)], "done")
    chain = AdvisorChain(model, [loop, memory] if swapped else [memory, loop])
    assert [row.name for row in chain.describe()] == ["memory", "loop"]
    await ask(mode, chain, "hi", conversation_id="c")
    assert (len(model.requests), memory.counts) == (4, (1, 1))
    assert await stored(memory.chat_memory) == [U("hi"), A("done")]


@both
async def test_B007_tool_round_and_answer_round_are_not_folded_into_one_message(mode: Mode, store: Store) -> None:
    data, memory = given("B007"), memory_on(store)
    model = ScriptedModel(chunks_given(data["round1"]), chunks_given(data["round2"]), "you are welcome")
    chain = AdvisorChain(model, [memory, HandLoop(clock=lambda: "12:00")])
    chunks: list[ChatChunk] = []
    await ask(mode, chain, "time?", chunks, conversation_id="c")
    assert any(chunk.tool_calls for chunk in chunks) == (mode == "stream")
    assert await stored(memory.chat_memory) == [U("time?"), A(data["expect_stored_assistant"]["content"])]
    await ask(mode, chain, "thanks", conversation_id="c")  # the model is strict
    assert texts(model.prompts[2]) == ["time?", "It is noon.", "thanks"]


@both
async def test_B111_the_response_shows_all_messages_of_the_turn(mode: Mode) -> None:
    memory = memory_on()
    model = ScriptedModel(asking(("1", "look", "{}")), asking(("2", "look", "{}"), text="Wait."), "done")
    response = await ask(mode, AdvisorChain(model, [memory, HandLoop(look=lambda: "seen")]), "hi", conversation_id="c")
    assert [message.role for message in response.turn] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert texts(response.turn) == ["", "seen", "Wait.", "seen", "done"]
    assert response.text == "done"
    assert await stored(memory.chat_memory) == [U("hi"), A("done")]


@both
async def test_B164_retrieved_context_is_seen_on_each_round_of_its_turn_and_never_stored(mode: Mode) -> None:
    class Retrieval(BaseAdvisor):
        order = HIGHEST_PRECEDENCE + 250  # between memory and the loop

        def __init__(self) -> None:
            self.found = iter(["context one", "context two"])

        def before(self, request: ChatRequest) -> ChatRequest:
            *others, question = request.messages
            return request.replace(messages=(*others, U(f"{next(self.found)}\n\n{question.text}")))

    memory = memory_on()
    model = ScriptedModel(asking(("1", "look", "{}")), "a1", "a2")
    chain = AdvisorChain(model, [memory, Retrieval(), HandLoop(look=lambda: "seen")])
    for question in ("u1", "u2"):
        await ask(mode, chain, question, conversation_id="c")
    seen = ["\n".join(texts(prompt)) for prompt in model.prompts]
    assert [("context one" in text, "context two" in text) for text in seen] == [(True, False), (True, False), (False, True)]
    assert texts(await stored(memory.chat_memory)) == ["u1", "a1", "u2", "a2"]


async def test_B140_a_reader_that_leaves_in_round_two_makes_one_ending(store: Store) -> None:
    memory, outside, inside = memory_on(store), RecordingAdvisor("outside", HIGHEST_PRECEDENCE), RecordingAdvisor("inside")
    model = ScriptedModel(asking(("1", "look", "{}")), ["It ", "is ", "noon."], "fine")
    chain = AdvisorChain(model, [memory, outside, HandLoop(look=lambda: "seen"), inside])
    async with chain.stream("time?", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.text == "is ":
                break
    assert labels(outside.log, "after", "done") == ["outside.done closed"]
    assert labels(inside.log, "after", "done") == ["inside.after", "inside.done ok", "inside.done closed"]
    assert await stored(memory.chat_memory) == [U("time?"), A("It is ", partial=True)]
    assert model.open_streams == 0
    await chain.call("again", conversation_id="c")
    assert texts(model.prompts[2]) == ["time?", "It is ", "again"]


# --- readers that leave -----------------------------------------------------------------------------------------------


async def test_B017_a_task_that_is_cancelled_at_a_chunk_leaves_everything_finished(store: Store) -> None:
    memory = memory_on(store)
    log: list[Seen] = []
    hooks = [RecordingAdvisor("outer", HIGHEST_PRECEDENCE, log), RecordingAdvisor("inner", 0, log)]
    pause = Pause()
    model = ScriptedModel(["one ", "two ", pause, "three"], "fine")
    chain = AdvisorChain(model, [memory, *hooks])
    went_on = False

    async def handler() -> None:
        nonlocal went_on
        async with chain.stream("u1", conversation_id="c") as stream:
            async for _ in stream:
                pass
        went_on = True

    async with anyio.create_task_group() as group:
        group.start_soon(handler)
        await pause.reached.wait()
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught
    assert not went_on
    assert labels(log, "done") == ["inner.done cancelled", "outer.done cancelled"]
    assert await stored(memory.chat_memory) == [U("u1"), A("one two ", partial=True)]
    await chain.call("u2", conversation_id="c")
    assert texts(model.prompts[1]) == ["u1", "one two ", "u2"]


async def test_B105_after_runs_once_on_the_whole_response(store: Store) -> None:
    memory, seen = memory_on(store), RecordingAdvisor("seen")
    script: list[Any] = [f"{n} " for n in range(9)]
    script.insert(4, ChatChunk())  # without any choice
    async with AdvisorChain(ScriptedModel(script), [memory, seen]).stream("u1", conversation_id="c") as stream:
        async for _ in stream:
            pass
    (after,) = [entry.response for entry in seen.log if entry.hook == "after"]
    assert after is not None
    assert after.text == "0 1 2 3 4 5 6 7 8 "
    assert await stored(memory.chat_memory) == [U("u1"), A(after.text)]


@pytest.mark.parametrize("order", [None, TOOL_CALLING_ORDER + 1])
async def test_B125_half_a_tool_call_is_never_sent(order: int | None) -> None:
    memory = memory_on(None, remember="turn", **({} if order is None else {"order": order}))
    half = ChatChunk(tool_calls=(ToolCallChunk(0, "k", "look", '{"wh'),))
    model = ScriptedModel(["Let me look. ", half, ChatChunk(tool_calls=(ToolCallChunk(0, arguments='at":'),))], "fine")
    chain = AdvisorChain(model, [memory, HandLoop(look=lambda what: "seen")])
    async with chain.stream("u1", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.tool_calls:
                break
    await chain.call("u2", conversation_id="c")
    assert model.prompts[1] == (U("u1"), A("Let me look. ", partial=True), U("u2"))


_READ = """
import json, sys, anyio
from advisorchain.memory import SqliteChatMemoryRepository
from advisorchain.messages import dump_message

async def main():
    repository = SqliteChatMemoryRepository(sys.argv[1])
    for entry in (await repository.page("c")).items:
        print(type(entry.message).__name__, dump_message(entry.message))
    await repository.aclose()

anyio.run(main)
"""


async def test_B145_a_streamed_turn_is_stored_as_a_called_one(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    reply = ChatResponse(A("Hello there", reasoning="greet"), finish_reason="stop")
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=SqliteChatMemoryRepository(path)))
    chain = AdvisorChain(ScriptedModel(reply, reply), [memory])
    for mode in MODES:
        await ask(mode, chain, "u1", conversation_id="c")
    await memory.chat_memory.repository.aclose()
    read = await anyio.run_process([sys.executable, "-c", _READ, str(path)])
    rows = [line.split(" ", 1) for line in read.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["UserMessage", "AssistantMessage"] * 2
    assert [load_message(row[1]) for row in rows] == [U("u1"), reply.message] * 2
    assert rows[0] == rows[2]
    assert rows[1] == rows[3]
    again = MessageChatMemoryAdvisor(ChatMemory(repository=SqliteChatMemoryRepository(path)))
    model = ScriptedModel("fine")
    await ask("stream", AdvisorChain(model, [again]), "u3", conversation_id="c")
    assert texts(model.prompts[0]) == ["u1", "Hello there", "u1", "Hello there", "u3"]
    await again.chat_memory.repository.aclose()


# --- what is in a message ---------------------------------------------------------------------------------------------


@both
async def test_B100_an_answer_of_reasoning_alone_and_an_empty_tool_result_do_no_harm(mode: Mode, store: Store) -> None:
    memory = memory_on(store, remember="turn")
    thought = [ChatChunk(reasoning="hm"), ChatChunk(finish_reason="stop")]
    model = ScriptedModel(thought, asking(("k", "look", "{}")), "a2", "a3")  # strict
    chain = AdvisorChain(model, [memory, HandLoop(look=lambda: "")])
    for question in ("u1", "u2", "u3"):
        await ask(mode, chain, question, conversation_id="c")
    asked, told = A(tool_calls=(ToolCall("k", "look"),)), ToolMessage("", tool_call_id="k", name="look")
    assert model.prompts[2] == (U("u1"), U("u2"), asked, told)  # an empty result stays, paired with its call
    assert model.prompts[3] == (U("u1"), U("u2"), asked, told, A("a2"), U("u3"))


@both
async def test_B101_blank_answers_in_a_store_are_not_sent(mode: Mode, store: Store) -> None:
    memory, model = memory_on(store), ScriptedModel("fine")
    log = [{"u": U, "a": A}[m["role"][0]](m["content"] or "") for m in given("B101")["history"]]
    await memory.chat_memory.add("c", log)
    await ask(mode, AdvisorChain(model, [memory]), "d", conversation_id="c")
    assert texts(model.prompts[0]) == ["a", "b", "c", "d"]
    assert await stored(memory.chat_memory) == [*log, U("d"), A("fine")]


@both
async def test_B077_a_request_without_a_question_stores_none(mode: Mode, store: Store) -> None:
    memory, model = memory_on(store), ScriptedModel("a1", "a2")
    await memory.chat_memory.add("c", [U("u0"), A("a0")])
    chain = AdvisorChain(model, [memory])
    await ask(mode, chain, SystemMessage("Go on."), conversation_id="c")
    assert texts(model.prompts[0]) == ["Go on.", "u0", "a0"]
    assert texts(await stored(memory.chat_memory)) == ["u0", "a0", "a1"]
    await ask(mode, chain, U("  "), conversation_id="blank")  # stored as given
    assert texts(await stored(memory.chat_memory, "blank")) == ["  ", "a2"]


@both
async def test_B079_all_messages_of_one_request_are_stored_in_order(mode: Mode, store: Store) -> None:
    memory, model = memory_on(store), ScriptedModel("Ana.")
    request = [U(message["content"]) for message in given("B079")["request"]]
    await ask(mode, AdvisorChain(model, [memory]), request, conversation_id="c")
    assert await stored(memory.chat_memory) == [*request, A("Ana.")]


@both
async def test_B082_what_a_provider_adds_to_a_message_survives(mode: Mode, store: Store) -> None:
    extras = {"signature": "x" * 200, "items": [{"type": "reasoning", "id": "rs_1", "summary": []}], "n": 1, "f": 1.0}
    answer = A("hi", reasoning="hm", metadata=extras)
    memory = memory_on(store)
    model = ScriptedModel("fine")
    await memory.chat_memory.add("c", [U("u1"), answer])
    await ask(mode, AdvisorChain(model, [memory]), "u2", conversation_id="c")
    sent = model.prompts[0][1]
    assert sent == answer
    assert json.dumps(dict(sent.metadata)) == json.dumps(extras)  # 1 is not 1.0


# --- shared state -----------------------------------------------------------------------------------------------------


@both
async def test_B182_an_inner_advisor_that_edits_the_prompt_does_not_touch_what_is_stored(mode: Mode, store: Store) -> None:
    class Editing(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            return request.replace(messages=tuple(self.edited(message) for message in request.messages))

        def edited(self, message: Message) -> Message:
            if isinstance(message, AssistantMessage) and message.tool_calls:
                return replace(message, tool_calls=tuple(replace(call, arguments='{"x": 1}') for call in message.tool_calls))
            if isinstance(message.content, tuple):
                return replace(message, content=tuple(p for p in message.content if p.type == "text"))
            return replace(message, metadata={"cache": True})

    memory, model = memory_on(store), ScriptedModel("a1", "a2")
    log: list[Message] = [
        U("u0"),
        A("", tool_calls=(ToolCall("k", "look", '{"y": 2}'),)),
        ToolMessage("r", tool_call_id="k"),
        A("a0"),
    ]
    await memory.chat_memory.add("c", log)
    picture = U((TextPart(" look "), ImagePart(data=b"\x89", media_type="image/png")), metadata={"nested": {"a": [1]}})
    chain = AdvisorChain(model, [memory, Editing()])
    for question in (picture, U("u2")):
        await ask(mode, chain, question, conversation_id="c")
    sent = model.prompts[1][1]
    assert isinstance(sent, AssistantMessage)
    assert sent.tool_calls[0].arguments == '{"x": 1}'
    assert await stored(memory.chat_memory) == [*log, picture, A("a1"), U("u2"), A("a2")]


@both
async def test_B183_calls_at_the_same_time_do_not_see_each_others_context(mode: Mode) -> None:
    class Marking(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            return request.replace(context={**request.context, "seen": [*request.context["seen"], request.conversation_id]})

    def answer(request: ChatRequest) -> ChatResponse:
        return ChatResponse("a", context={"by": request.conversation_id})

    # the model's context cannot be streamed
    model = ScriptedModel(answer if mode == "call" else "a", repeat=True)
    chain = AdvisorChain(model, [Marking()])
    messages, context = [U("u1"), A("a1"), U("u2")], {"seen": [], "own": {"k": 1}}
    found: dict[str, ChatResponse] = {}

    async def one(conversation_id: str) -> None:
        found[conversation_id] = await ask(mode, chain, messages, conversation_id=conversation_id, context=context)

    async with anyio.create_task_group() as group:
        for conversation_id in ("x", "y", "z"):
            group.start_soon(one, conversation_id)
    for conversation_id, response in found.items():
        assert response.context["seen"] == [conversation_id]
        assert response.context["own"] is context["own"]
        assert response.context.get("by", conversation_id) == conversation_id
    assert messages == [U("u1"), A("a1"), U("u2")]
    assert context == {"seen": [], "own": {"k": 1}}
