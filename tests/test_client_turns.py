"""The last turn asked again, or edited: replaced whole when the new one is stored, else not touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from anyio import create_task_group, fail_after, move_on_after, sleep_forever
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from advisorchain import (
    AroundAdvisor,
    AssistantMessage,
    ChatRequest,
    ChatResponse,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from advisorchain.advisors import CacheAdvisor, MessageChatMemoryAdvisor
from advisorchain.client import ChatClient
from advisorchain.errors import (
    CallTimeoutError,
    ChatMemoryError,
    ConversationConflictError,
    ConversationDeletedError,
    ConversationIdError,
    InvalidInputError,
    ModelError,
)
from advisorchain.hooks import before
from advisorchain.memory import (
    ChatMemory,
    ChatMemoryRepository,
    InMemoryChatMemoryRepository,
    MessageWindow,
    SqliteChatMemoryRepository,
)
from advisorchain.testing import Pause, ScriptedModel

Mode = Literal["call", "stream"]
MODES: tuple[Mode, ...] = ("call", "stream")


@pytest.fixture(params=["memory", "sqlite"])
async def repository(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChatMemoryRepository]:
    made: ChatMemoryRepository
    made = InMemoryChatMemoryRepository() if request.param == "memory" else SqliteChatMemoryRepository(tmp_path / "m.db")
    try:
        yield made
    finally:
        await made.aclose()


async def ask(client: ChatClient, mode: Mode, prompt: Any = None, **how: Any) -> ChatResponse:
    how = {"conversation_id": "c", **how}
    if mode == "call":
        return await client.call(prompt, **how)
    async with client.stream(prompt, **how) as stream:
        async for _ in stream:
            pass
    return stream.response


async def log(memory: ChatMemory) -> list[str]:
    return [entry.message.text for entry in (await memory.history("c")).items]


def said(model: ScriptedModel) -> list[str]:
    return [message.text for message in model.requests[-1].messages]


async def filled(repository: ChatMemoryRepository, *turns: str) -> ChatMemory:
    memory = ChatMemory(repository=repository)
    for turn in turns:
        await memory.add("c", [UserMessage(f"q{turn}"), AssistantMessage(f"a{turn}")])
    return memory


@pytest.mark.parametrize("mode", MODES)
async def test_regenerate_asks_the_last_question_again(repository: ChatMemoryRepository, mode: Mode) -> None:
    memory = await filled(repository, "1", "2")
    client = ChatClient(model := ScriptedModel("new"), memory=memory, system="sys")
    assert (await ask(client, mode, turn="regenerate")).text == "new"
    assert said(model) == ["sys", "q1", "a1", "q2"]
    assert await log(memory) == ["q1", "a1", "q2", "new"]
    assert [row.name for row in client.chain.describe()] == ["memory"]


@pytest.mark.parametrize("mode", MODES)
async def test_edit_puts_the_prompt_in_the_last_questions_place(repository: ChatMemoryRepository, mode: Mode) -> None:
    memory = await filled(repository, "1", "2")
    client = ChatClient(model := ScriptedModel("new", "then"), memory=memory)
    await ask(client, mode, "other", turn="edit")
    assert said(model) == ["q1", "a1", "other"]
    assert await log(memory) == ["q1", "a1", "other", "new"]
    await ask(client, mode, "more")
    assert said(model) == ["q1", "a1", "other", "new", "more"]


async def test_the_new_turn_has_an_id_of_its_own_and_the_others_keep_theirs(repository: ChatMemoryRepository) -> None:
    memory = await filled(repository, "1", "2")
    was = (await memory.history("c")).items
    await ask(ChatClient(ScriptedModel("a2"), memory=memory), "call", turn="regenerate")  # word for word the old answer
    now = (await memory.history("c")).items
    assert [(entry.turn_id, entry.created) for entry in now[:2]] == [(entry.turn_id, entry.created) for entry in was[:2]]
    assert now[2].turn_id == now[3].turn_id not in {entry.turn_id for entry in was}


@pytest.mark.parametrize("turn", ["regenerate", "edit"])
async def test_a_typed_answer_may_be_asked_for_again(turn: Any) -> None:
    memory = await filled(InMemoryChatMemoryRepository(), "1")
    client = ChatClient(ScriptedModel('{"value": "x"}', '{"value": 5}'), memory=memory)
    prompt = "number?" if turn == "edit" else None
    response = await client.call(prompt, conversation_id="c", output_type=int, turn=turn)
    assert response.output == 5
    assert (await log(memory))[1:] == ['{"value": 5}']


@pytest.mark.parametrize("mode", MODES)
async def test_an_error_keeps_the_old_turn(repository: ChatMemoryRepository, mode: Mode) -> None:
    memory = await filled(repository, "1", "2")
    client = ChatClient(ScriptedModel(["a word", ModelError("broken")]), memory=memory)
    with pytest.raises(ModelError, match="broken"):
        await ask(client, mode, turn="regenerate")
    assert await log(memory) == ["q1", "a1", "q2", "a2"]


async def test_leaving_before_anything_was_seen_keeps_the_old_turn(repository: ChatMemoryRepository) -> None:
    memory = await filled(repository, "1")
    client = ChatClient(model := ScriptedModel("new"), memory=memory)
    async with client.stream(conversation_id="c", turn="regenerate"):
        pass
    assert await log(memory) == ["q1", "a1"]
    assert model.open_streams == 0


@pytest.mark.parametrize("turn", ["regenerate", "edit"])
@pytest.mark.parametrize("interrupted", ["partial", "question", "nothing"])
async def test_half_an_answer_does_not_take_the_old_ones_place(
    repository: ChatMemoryRepository, interrupted: Any, turn: Any
) -> None:
    memory = await filled(repository, "1")
    client = ChatClient(
        ScriptedModel("new words", repeat=True), memory=MessageChatMemoryAdvisor(memory, interrupted=interrupted)
    )
    how = {"prompt": "other" if turn == "edit" else None, "conversation_id": "c", "turn": turn}
    async with client.stream(**how) as stream:
        await anext(aiter(stream))
    assert await log(memory) == ["q1", "a1"]
    with move_on_after(60) as scope:
        async with client.stream(**how) as stream:
            async for _ in stream:
                scope.cancel()
                await checkpoint()
    assert scope.cancelled_caught
    assert await log(memory) == ["q1", "a1"]
    async with client.stream("q2", conversation_id="c") as stream:  # the client's own turns are kept as before
        await anext(aiter(stream))
    assert (
        await log(memory)
        == {
            "partial": ["q1", "a1", "q2", "new"],
            "question": ["q1", "a1", "q2"],
            "nothing": ["q1", "a1"],
        }[interrupted]
    )


@pytest.mark.parametrize("mode", MODES)
async def test_two_that_ask_again_at_once_conflict(repository: ChatMemoryRepository, mode: Mode) -> None:
    memory = await filled(repository, "1")
    pause = Pause()
    slow = ChatClient(ScriptedModel(["slow ", pause, "words"]), memory=memory)
    fast = ChatClient(ScriptedModel("fast"), memory=memory)

    async def regenerate() -> None:
        with pytest.raises(ConversationConflictError, match="Look it up again") as caught:
            await ask(slow, mode, turn="regenerate")
        assert caught.value.expected < caught.value.found

    async with create_task_group() as group:
        group.start_soon(regenerate)
        await pause.reached.wait()
        await ask(fast, mode, turn="regenerate")
        pause.go.set()
    assert await log(memory) == ["q1", "fast"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_timeout_bounds_looking_up_the_last_turn(mode: Mode) -> None:
    class Slow(ChatMemory):
        async def last_turn(self, conversation_id: str) -> Any:
            await sleep_forever()

    client = ChatClient(model := ScriptedModel("new"), memory=Slow())
    with fail_after(60), pytest.raises(CallTimeoutError, match=r"`timeout` of 0\.01 seconds"):
        await ask(client, mode, turn="regenerate", timeout=0.01)
    assert not model.requests


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_left_of_the_timeout_is_the_models(mode: Mode) -> None:
    memory = await filled(InMemoryChatMemoryRepository(), "1")
    client = ChatClient(model := ScriptedModel([Pause()], "new"), memory=memory)
    with fail_after(60), pytest.raises(CallTimeoutError):
        await ask(client, mode, turn="regenerate", timeout=0.01)
    assert model.open_streams == 0
    assert (await ask(client, mode, turn="regenerate", timeout=60)).text == "new"
    for timeout in (-1, "5", True):
        with pytest.raises(InvalidInputError, match="`timeout` is"):
            await ask(client, mode, turn="regenerate", timeout=timeout)


async def test_a_refused_answer_keeps_the_old_turn() -> None:
    memory = await filled(InMemoryChatMemoryRepository(), "1")
    client = ChatClient(ScriptedModel(ChatResponse("no", finish_reason="content_filter")), memory=memory)
    await ask(client, "call", "other", turn="edit")
    assert await log(memory) == ["q1", "a1"]


@pytest.mark.parametrize("mode", MODES)
async def test_what_others_wrote_meanwhile_is_not_overwritten(repository: ChatMemoryRepository, mode: Mode) -> None:
    memory = await filled(repository, "1")
    pause = Pause()
    client = ChatClient(ScriptedModel(["new ", pause, "words"]), memory=memory)
    raised: list[BaseException] = []

    async def regenerate() -> None:
        with pytest.raises(ConversationConflictError) as caught:
            await ask(client, mode, turn="regenerate")
        raised.append(caught.value)

    async with create_task_group() as group:
        group.start_soon(regenerate)
        await pause.reached.wait()
        await memory.add("c", [UserMessage("q2"), AssistantMessage("a2")])
        pause.go.set()
    assert len(raised) == 1
    assert await log(memory) == ["q1", "a1", "q2", "a2"]


async def test_a_conversation_that_was_deleted_meanwhile_stays_so(repository: ChatMemoryRepository) -> None:
    for anew in (False, True):
        memory = await filled(repository, "1")

        @before(order=1)
        async def meanwhile(request: ChatRequest, memory: ChatMemory = memory, anew: bool = anew) -> ChatRequest:
            await memory.clear("c")
            if anew:  # at the same revision
                await memory.add("c", [UserMessage("q9"), AssistantMessage("a9")])
            return request

        client = ChatClient(ScriptedModel("new"), memory=memory, advisors=[meanwhile])
        with pytest.raises((ConversationDeletedError, ConversationConflictError)):
            await ask(client, "call", turn="regenerate")
        assert await log(memory) == (["q9", "a9"] if anew else [])
        await memory.clear("c")


async def test_a_write_before_the_turn_begins_is_seen_at_once() -> None:
    memory = await filled(InMemoryChatMemoryRepository(), "1")
    last = await memory.last_turn("c")
    assert last is not None
    await memory.add("c", UserMessage("q2"))
    with pytest.raises(ConversationConflictError) as raised:
        await memory.begin("c", [UserMessage("q1")], replacing=last)
    assert (raised.value.expected, raised.value.found) == (1, 2)
    await memory.clear("c")
    with pytest.raises(ConversationDeletedError):
        await memory.begin("c", [UserMessage("q1")], replacing=last)


@pytest.mark.parametrize("turn", ["regenerate", "edit"])
async def test_a_question_without_an_answer_is_asked_again(repository: ChatMemoryRepository, turn: Any) -> None:
    memory = await filled(repository, "1")
    await memory.add("c", UserMessage("q2"))
    client = ChatClient(model := ScriptedModel("a2"), memory=memory)
    await ask(client, "call", "q2" if turn == "edit" else None, turn=turn)
    assert said(model) == ["q1", "a1", "q2"]
    assert await log(memory) == ["q1", "a1", "q2", "a2"]


async def test_the_same_question_twice_is_not_taken_for_one() -> None:
    memory = ChatMemory()
    await memory.add("c", [UserMessage("hi"), UserMessage("hi"), AssistantMessage("old")])
    await ask(ChatClient(ScriptedModel("new"), memory=memory), "call", turn="regenerate")
    assert await log(memory) == ["hi", "hi", "new"]


async def test_a_turn_of_tool_rounds_goes_whole(repository: ChatMemoryRepository) -> None:
    memory = ChatMemory(MessageWindow(3), repository)
    rounds: list[Message] = []
    for number in range(4):
        call = ToolCall(f"t{number}", "look", "{}")
        rounds += [AssistantMessage("", tool_calls=(call,)), ToolMessage("found", tool_call_id=call.id)]
    await memory.add("c", [UserMessage("q1"), AssistantMessage("a1")])
    await memory.add("c", [UserMessage("q2"), *rounds, AssistantMessage("a2")])
    client = ChatClient(model := ScriptedModel("new"), memory=memory)
    await ask(client, "call", turn="regenerate")
    assert said(model) == ["q1", "a1", "q2"]
    assert await log(memory) == ["q1", "a1", "q2", "new"]


async def test_what_is_no_part_of_the_turn_stays(repository: ChatMemoryRepository) -> None:
    memory = await filled(repository, "1")
    await memory.add("c", SystemMessage("from now on in Welsh"))
    await ask(ChatClient(ScriptedModel("new"), memory=memory), "call", turn="regenerate")
    assert sorted(await log(memory)) == ["from now on in Welsh", "new", "q1"]


async def test_an_edit_may_bring_the_whole_conversation() -> None:
    memory = await filled(InMemoryChatMemoryRepository(), "1", "2")
    whole = [
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": "a1"},
        {"role": "user", "content": "other"},
    ]
    client = ChatClient(model := ScriptedModel("new"), memory=memory)
    await ask(client, "call", whole, turn="edit")
    assert said(model) == ["q1", "a1", "other"]
    assert await log(memory) == ["q1", "a1", "other", "new"]


async def test_memory_inside_a_loop_replaces_the_whole_turn() -> None:
    class Loop(AroundAdvisor):
        name, order = "loop", -1

        async def around(self, request: ChatRequest, next: Any) -> Any:
            for number in (1, 2):
                async for item in next(request.replace(round=number)):
                    response = item
                if number == 1:
                    made = (response.message, ToolMessage("found", tool_call_id="t"))
                    request = request.replace(messages=(*request.messages, *made), made=2)
            yield response

    memory = await filled(InMemoryChatMemoryRepository(), "1", "2")
    asks = ChatResponse(AssistantMessage("", tool_calls=(ToolCall("t", "look", "{}"),)), finish_reason="tool_calls")
    client = ChatClient(
        model := ScriptedModel(asks, "new"), memory=MessageChatMemoryAdvisor(memory, order=0), advisors=[Loop()]
    )
    await ask(client, "call", turn="regenerate")
    assert said(model) == ["q1", "a1", "q2", "", "found"]
    assert await log(memory) == ["q1", "a1", "q2", "", "found", "new"]


@pytest.mark.parametrize("mode", MODES)
async def test_what_cannot_be_asked_again_is_refused(mode: Mode) -> None:
    client = ChatClient(model := ScriptedModel("x", repeat=True), memory=ChatMemory())
    with pytest.raises(InvalidInputError, match="no question yet"):
        await ask(client, mode, turn="regenerate")
    with pytest.raises(InvalidInputError, match="leave `prompt` out"):
        await ask(client, mode, "hi", turn="regenerate")
    with pytest.raises(InvalidInputError, match="`turn` is 'again'"):
        await ask(client, mode, "hi", turn="again")
    with pytest.raises(ConversationIdError):
        await ask(client, mode, turn="regenerate", conversation_id=None)
    with pytest.raises(InvalidInputError, match="needs a memory"):
        await ask(ChatClient(model), mode, "hi", turn="edit")
    with pytest.raises(InvalidInputError, match="needs a memory"):
        await ask(client, mode, "hi", turn="edit", without=["memory"])
    assert not model.requests
    await ask(client, mode, "hi")
    with pytest.raises(InvalidInputError, match="`prompt` is None"):
        await ask(client, mode, turn="edit")


async def test_an_advisor_that_changes_the_conversation_id_is_told() -> None:
    @before(order=-(2**31))
    def tenant(request: ChatRequest) -> ChatRequest:
        return request.replace(conversation_id="tenant/c")

    memory = await filled(InMemoryChatMemoryRepository(), "1")
    client = ChatClient(ScriptedModel("x"), memory=memory, advisors=[tenant])
    with pytest.raises(InvalidInputError, match="changed `conversation_id`"):
        await ask(client, "call", turn="regenerate")
    assert await log(memory) == ["q1", "a1"]


async def test_committing_again_does_nothing_and_after_abandoning_it_is_refused() -> None:
    memory = await filled(InMemoryChatMemoryRepository(), "1")
    last = await memory.last_turn("c")
    turn = await memory.begin("c", [UserMessage("q1")], replacing=last)
    await turn.commit([AssistantMessage("new")])
    await turn.commit([AssistantMessage("newer")])
    assert await log(memory) == ["q1", "new"]
    turn = await memory.begin("c", [UserMessage("q1")], replacing=await memory.last_turn("c"))
    await turn.abandon()
    with pytest.raises(ChatMemoryError, match="abandoned"):
        await turn.commit([AssistantMessage("x")])


async def test_there_is_no_last_turn_of_nothing() -> None:
    memory = ChatMemory()
    assert await memory.last_turn("c") is None
    await memory.add("c", SystemMessage("be brief"))
    assert await memory.last_turn("c") is None


_MESSAGES = st.lists(st.sampled_from("usa"), max_size=8)


@given(_MESSAGES, st.integers(1, 6))
def test_regenerating_changes_nothing_before_the_last_question(roles: list[str], room: int) -> None:
    import anyio

    kinds: dict[str, Any] = {"u": UserMessage, "a": AssistantMessage, "s": SystemMessage}
    messages = [kinds[role](f"{role}{place}") for place, role in enumerate([*roles, "u"])]

    async def check() -> None:
        memory = ChatMemory(MessageWindow(room))
        for message in messages:
            await memory.add("c", message)
        last = await memory.last_turn("c")
        assert last is not None
        turn = await memory.begin("c", [UserMessage("edited")], replacing=last)
        assert turn.new == (UserMessage("edited"),)
        assert last.question.message not in turn.history
        await turn.commit([AssistantMessage("new")])
        assert await log(memory) == [*(message.text for message in messages[:-1]), "edited", "new"]

    anyio.run(check)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("without", [(), ("cache",)], ids=["with the cache", "without it"])
async def test_a_question_asked_again_is_not_answered_by_a_cache(mode: Mode, without: tuple[str, ...]) -> None:
    model = ScriptedModel("first", "second")
    client = ChatClient(model, memory=ChatMemory(), advisors=[CacheAdvisor()])
    assert (await ask(client, mode, "q")).text == "first"
    assert (await ask(client, mode, turn="regenerate", without=without)).text == "second"
    assert [message.text for message in await client.memory.get("c")] == ["q", "second"]
