"""The memory advisor's three duties, hook by hook; each hook is called as a chain calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from advisorchain.advisor import CHAT_MEMORY_ORDER, TOOL_CALLING_ORDER, Outcome
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.chat_memory import system_first
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, ConversationDeletedError, ConversationIdError, StorageError
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.memory import (
    ChatMemory,
    ChatMemoryRepository,
    InMemoryChatMemoryRepository,
    MessageWindow,
    Recall,
    open_repository,
)
from advisorchain.messages import AssistantMessage, Message, SystemMessage, TextPart, ToolCall, ToolMessage, UserMessage

U, A, S = UserMessage, AssistantMessage, SystemMessage


def calls(*ids: str, text: str = "") -> AssistantMessage:
    return AssistantMessage(text, tool_calls=tuple(ToolCall(call, "clock") for call in ids))


def result(call: str) -> ToolMessage:
    return ToolMessage(f"r{call}", tool_call_id=call, name="clock")


def ok(answer: AssistantMessage | str, **more: Any) -> Outcome:
    return Outcome("ok", ChatResponse(answer, **more))


def request(*messages: Message, conversation_id: str | None = "c", **more: Any) -> ChatRequest:
    return ChatRequest(messages, conversation_id, **more)


async def turn(advisor: MessageChatMemoryAdvisor, prompt: ChatRequest, outcome: Outcome) -> tuple[Message, ...]:
    """One whole turn; returns the prompt that the model would see."""
    passed = await advisor.before(prompt)
    await advisor.done(passed, outcome)
    return passed.messages


async def stored(advisor: MessageChatMemoryAdvisor) -> list[Message]:
    page = await advisor.chat_memory.history("c")
    return [entry.message for entry in page.items]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


@pytest.fixture
def memory() -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory())


# --- making one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [None, "memory", ChatMemory, InMemoryChatMemoryRepository()], ids=["none", "text", "class", "repository"]
)
def test_mem_001_no_chat_memory_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="`chat_memory`"):
        MessageChatMemoryAdvisor(given)


@pytest.mark.parametrize("given", [{"interrupted": "all"}, {"interrupted": None}, {"remember": "all"}], ids=repr)
def test_a_setting_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"`{next(iter(given))}`"):
        MessageChatMemoryAdvisor(ChatMemory(), **given)


def test_mem_003_name_and_order_are_kept() -> None:
    default = MessageChatMemoryAdvisor(ChatMemory())
    assert (default.name, default.order) == ("memory", CHAT_MEMORY_ORDER)
    assert default.order < TOOL_CALLING_ORDER
    other = MessageChatMemoryAdvisor(ChatMemory(), name="notes", order=42)
    assert (other.name, other.order) == ("notes", 42)


async def test_mem_004_mem_025_no_conversation_id_is_an_error_before_anything_happens() -> None:
    class Closed(InMemoryChatMemoryRepository):
        async def recall(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("the store was asked")

    advisor = MessageChatMemoryAdvisor(ChatMemory(repository=Closed()))
    with pytest.raises(ConversationIdError, match="`conversation_id`"):
        await advisor.before(request(U("hi"), conversation_id=None))


async def test_a_turn_whose_before_failed_ends_without_a_trace(memory: MessageChatMemoryAdvisor) -> None:
    await memory.done(request(U("hi"), conversation_id=None), Outcome("error", error=ConversationIdError("x")))
    assert (await memory.chat_memory.conversations()).items == ()


# --- recalled once ----------------------------------------------------------------------------------------------------


async def test_mem_006_the_question_is_stored_with_its_turn(memory: MessageChatMemoryAdvisor) -> None:
    passed = await memory.before(request(U("hi")))
    assert passed.messages == (U("hi"),)
    assert await stored(memory) == []
    await memory.done(passed, ok("hello"))
    assert await stored(memory) == [U("hi"), A("hello")]


async def test_mem_008_history_in_the_prompt_is_not_put_in_twice(memory: MessageChatMemoryAdvisor) -> None:
    log = [U("when?"), calls("k45")]
    await memory.chat_memory.add("c", log)
    assert await turn(memory, request(*log, result("k45")), ok("Tuesday")) == (*log, result("k45"))
    assert await stored(memory) == [*log, result("k45"), A("Tuesday")]


async def test_mem_009_a_turn_longer_than_the_window_is_left_as_it_is() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(MessageWindow(3)))
    log = [U("when?"), calls("k45"), result("k45"), calls("k46")]
    await memory.chat_memory.add("c", log)
    assert await turn(memory, request(*log, result("k46")), ok("done")) == (*log, result("k46"))
    assert await stored(memory) == [*log, result("k46"), A("done")]


async def test_mem_015_history_that_is_only_partly_in_the_prompt_is_put_in_whole(memory: MessageChatMemoryAdvisor) -> None:
    await memory.chat_memory.add("c", [U("u1"), A("a1")])
    assert texts(await turn(memory, request(U("u1"), U("u2")), ok("a2"))) == ["u1", "a1", "u1", "u2"]
    assert texts(await stored(memory)) == ["u1", "a1", "u1", "u2", "a2"]


async def test_B144_the_log_grows_by_what_is_new(memory: MessageChatMemoryAdvisor) -> None:
    for n in range(4):
        await turn(memory, request(U(f"u{n}")), ok(f"a{n}"))
    assert texts(await stored(memory)) == ["u0", "a0", "u1", "a1", "u2", "a2", "u3", "a3"]


async def test_B146_a_caller_may_send_the_whole_conversation_each_time(memory: MessageChatMemoryAdvisor) -> None:
    said: list[Message] = []
    for question, answer in [("yes", "ok"), ("yes", "ok"), ("u3", "a3")]:
        said.append(U(question))
        assert await turn(memory, request(*said), ok(answer)) == tuple(said)
        said.append(A(answer))
    assert await stored(memory) == said


async def test_B146_two_equal_questions_in_two_turns_both_stay(memory: MessageChatMemoryAdvisor) -> None:
    await turn(memory, request(U("yes")), ok("a1"))
    assert texts(await turn(memory, request(U("yes")), ok("a2"))) == ["yes", "a1", "yes"]
    assert texts(await stored(memory)) == ["yes", "a1", "yes", "a2"]


async def test_B080_an_edited_message_takes_the_place_of_the_branch_after_it(memory: MessageChatMemoryAdvisor) -> None:
    for n in (1, 2):
        await turn(memory, request(U(f"u{n}")), ok(f"a{n}"))
    entries = (await memory.chat_memory.history("c")).items
    await memory.chat_memory.repository.replace("c", entries[:2])
    assert texts(await turn(memory, request(U("u2'")), ok("a2'"))) == ["u1", "a1", "u2'"]
    assert texts(await stored(memory)) == ["u1", "a1", "u2'", "a2'"]


async def test_a_question_that_was_left_without_an_answer_is_stored_once() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), interrupted="question")
    await turn(memory, request(U("u1")), Outcome("closed", ChatResponse("Hel")))
    assert texts(await turn(memory, request(U("u1")), ok("Hello"))) == ["u1"]
    assert texts(await stored(memory)) == ["u1", "Hello"]


async def test_B101_blank_answers_in_the_store_are_not_sent(memory: MessageChatMemoryAdvisor) -> None:
    log = [U("a"), A(""), U("b"), A("   "), U("c"), A((TextPart(""),))]
    await memory.chat_memory.add("c", log)
    assert texts(await turn(memory, request(U("d")), ok("x"))) == ["a", "b", "c", "d"]
    assert (await stored(memory))[:6] == log


# --- system first -----------------------------------------------------------------------------------------------------


async def test_B001_mem_011_one_system_message_and_it_leads(memory: MessageChatMemoryAdvisor) -> None:
    brief = S("Be brief.")
    assert await turn(memory, request(brief, U("hello")), ok("hi")) == (brief, U("hello"))
    second = await turn(memory, request(brief, U("and again")), ok("hi again"))
    assert second == (brief, U("hello"), A("hi"), U("and again"))


async def test_B187_the_prompts_system_message_is_never_stored(memory: MessageChatMemoryAdvisor) -> None:
    for n in range(5):
        sent = await turn(memory, request(S("Be brief."), U(f"u{n}")), ok(f"a{n}"))
    assert [m.role for m in await stored(memory)].count("system") == 0
    assert [m.role for m in sent].count("system") == 1


@pytest.mark.parametrize("first_is_stored", [False, True])
async def test_B188_a_changed_system_message_takes_the_place_of_the_old_one(
    memory: MessageChatMemoryAdvisor, first_is_stored: bool
) -> None:
    if first_is_stored:
        await memory.chat_memory.add("c", S("Reply in verse."))
    await turn(memory, request(S("Reply in verse."), U("u1")), ok("a1"))
    second = await turn(memory, request(S("Reply in prose."), U("u2")), ok("a2"))
    assert texts(second) == ["Reply in prose.", "u1", "a1", "u2"]


async def test_a_stored_system_message_leads_where_the_request_has_none(memory: MessageChatMemoryAdvisor) -> None:
    await memory.chat_memory.add("c", [U("u1"), S("kind"), A("a1")])
    assert texts(await turn(memory, request(U("u2")), ok("a2"))) == ["kind", "u1", "a1", "u2"]


def test_all_system_messages_lead_and_each_distinct_one_once() -> None:
    history, prompt = (S("old"), U("u1")), (U("u2"), S("a"), S("b"), S("a", name="x"))
    assert system_first(history, prompt) == (S("a"), S("b"), U("u1"), U("u2"))
    assert system_first((S("old"), U("u1"), S("old")), (U("u2"),)) == (S("old"), U("u1"), U("u2"))
    assert system_first((), (U("u2"),)) == (U("u2"),)


# --- recorded once ----------------------------------------------------------------------------------------------------


async def test_B079_all_new_messages_are_stored_in_order(memory: MessageChatMemoryAdvisor) -> None:
    await turn(memory, request(S("s"), U("My name is Ana."), U("What is my name?")), ok("Ana"))
    assert texts(await stored(memory)) == ["My name is Ana.", "What is my name?", "Ana"]


async def test_B077_no_user_message_is_made_up_and_a_blank_one_is_stored_as_given(memory: MessageChatMemoryAdvisor) -> None:
    await turn(memory, request(U("u1")), ok("a1"))
    await turn(memory, request(S("Go on.")), ok("a2"))
    await turn(memory, request(U("  ")), ok("a3"))
    assert texts(await stored(memory)) == ["u1", "a1", "a2", "  ", "a3"]


async def test_the_answer_is_stored_whole(memory: MessageChatMemoryAdvisor) -> None:
    answer = A("hi", reasoning="greet", refusal=None, name="bot", metadata={"signature": "x"})
    await turn(memory, request(U("u1", metadata={"at": 1})), ok(answer, finish_reason="length"))
    assert await stored(memory) == [U("u1", metadata={"at": 1}), answer]


async def test_B100_an_answer_without_text_is_stored_and_never_sent(memory: MessageChatMemoryAdvisor) -> None:
    await turn(memory, request(U("u1")), ok(A("", reasoning="hm")))
    assert await stored(memory) == [U("u1"), A("", reasoning="hm")]
    assert texts(await turn(memory, request(U("u2")), ok("a2"))) == ["u1", "u2"]
    assert texts(await turn(memory, request(U("u3")), ok("a3"))) == ["u1", "u2", "a2", "u3"]


@pytest.mark.parametrize("status", ["ok", "closed", "cancelled"])
@pytest.mark.parametrize("reason", ["content_filter", "paused"])
async def test_what_a_guard_refused_or_what_is_paused_leaves_nothing(
    memory: MessageChatMemoryAdvisor, status: Any, reason: str
) -> None:
    await turn(memory, request(U("u1")), Outcome(status, ChatResponse("no", finish_reason=reason)))
    assert await stored(memory) == []


@pytest.mark.parametrize("response", [None, ChatResponse("Hel")], ids=["nothing", "some"])
async def test_an_error_leaves_nothing(memory: MessageChatMemoryAdvisor, response: ChatResponse | None) -> None:
    await turn(memory, request(U("u1")), Outcome("error", response, ValueError("x")))
    assert await stored(memory) == []


PARTIAL = A("Hel", reasoning="hm", tool_calls=(ToolCall("k", "clo", '{"ci'),))


@pytest.mark.parametrize("status", ["closed", "cancelled"])
@pytest.mark.parametrize(
    ("interrupted", "kept"),
    [
        ("partial", [U("u1"), A("Hel", reasoning="hm", partial=True)]),
        ("question", [U("u1")]),
        ("nothing", []),
    ],
)
async def test_B016_what_an_interruption_leaves(status: Any, interrupted: Any, kept: list[Message]) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), interrupted=interrupted)
    await turn(memory, request(U("u1")), Outcome(status, ChatResponse(PARTIAL)))
    assert await stored(memory) == kept
    sent = await turn(memory, request(U("u2")), ok("a2"))
    assert texts(sent) == [*texts(kept), "u2"]


@pytest.mark.parametrize("interrupted", ["partial", "question", "nothing"])
@pytest.mark.parametrize(
    "seen", [None, ChatResponse(""), ChatResponse(calls("k")), ChatResponse(A("", reasoning="hm"))], ids=repr
)
async def test_an_interruption_before_any_text_leaves_nothing(interrupted: Any, seen: ChatResponse | None) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), interrupted=interrupted)
    for status in ("closed", "cancelled"):
        await turn(memory, request(U("u1")), Outcome(status, seen))
    assert await stored(memory) == []


async def test_text_of_an_earlier_round_was_seen(memory: MessageChatMemoryAdvisor) -> None:
    earlier = (calls("k", text="Let me look."), result("k"))
    await turn(memory, request(U("u1")), Outcome("closed", ChatResponse("", earlier=earlier)))
    assert await stored(memory) == [U("u1"), A("Let me look.", partial=True)]
    assert texts(await memory.chat_memory.get("c")) == ["u1", "Let me look."]


async def test_remember_decides_whether_the_rounds_of_an_inner_loop_are_kept() -> None:
    answer, turn_memory = MessageChatMemoryAdvisor(ChatMemory()), MessageChatMemoryAdvisor(ChatMemory(), remember="turn")
    earlier = (calls("1"), result("1"), calls("2"), result("2"))
    for memory in (answer, turn_memory):
        await turn(memory, request(U("u1")), ok("noon", earlier=earlier))
    assert await stored(answer) == [U("u1"), A("noon")]
    assert await stored(turn_memory) == [U("u1"), *earlier, A("noon")]
    partial = Outcome("closed", ChatResponse("It is", earlier=earlier))
    sent = await turn(turn_memory, request(U("u2")), partial)
    assert sent == (U("u1"), *earlier, A("noon"), U("u2"))
    assert (await stored(turn_memory))[6:] == [U("u2"), *earlier, A("It is", partial=True)]


async def test_an_application_that_runs_the_tools_itself_stores_each_step_once(memory: MessageChatMemoryAdvisor) -> None:
    said: list[Message] = [U("time?")]
    for answer, more in [(calls("1"), result("1")), (calls("2"), result("2")), (A("noon"), None)]:
        assert await turn(memory, request(*said), ok(answer)) == tuple(said)
        said += [answer, *([more] if more else [])]
    assert await stored(memory) == said


async def test_B002_B163_inside_a_loop_the_whole_turn_is_stored_once_at_its_end(memory: MessageChatMemoryAdvisor) -> None:
    log = [U("earlier q"), A("earlier a")]
    await memory.chat_memory.add("c", log)
    made: list[Message] = []
    answers = [calls("1"), calls("2"), A("noon")]
    for number, answer in enumerate(answers, start=1):
        sent = await turn(memory, request(U("time?"), *made, round=number, made=len(made)), ok(answer))
        assert sent == (*log, U("time?"), *made)
        assert await stored(memory) == (log if number < 3 else [*log, U("time?"), *made, A("noon")])
        made += [answer, result(str(number))]


async def test_inside_a_loop_a_question_that_was_stored_before_is_not_stored_again(memory: MessageChatMemoryAdvisor) -> None:
    await memory.chat_memory.add("c", U("time?"))
    await turn(memory, request(U("time?"), round=1), ok(calls("1")))
    sent = await turn(memory, request(U("time?"), calls("1"), result("1"), round=2, made=2), ok("noon"))
    assert sent == (U("time?"), calls("1"), result("1"))
    assert await stored(memory) == [U("time?"), calls("1"), result("1"), A("noon")]


async def test_inside_a_loop_that_asks_again_each_answer_is_stored_once(memory: MessageChatMemoryAdvisor) -> None:
    said: list[Message] = [U("as JSON")]
    await turn(memory, request(*said, round=1), ok("oops"))
    said += [A("oops"), U("no JSON")]
    assert await turn(memory, request(*said, round=2, made=2), ok("{}")) == tuple(said)
    assert await stored(memory) == [*said, A("{}")]


async def test_inside_a_loop_an_answer_cut_short_is_stored_with_its_rounds(memory: MessageChatMemoryAdvisor) -> None:
    prompt = request(U("time?"), calls("1"), result("1"), round=2, made=2)
    await turn(memory, prompt, Outcome("closed", ChatResponse("It is")))
    assert await stored(memory) == [U("time?"), calls("1"), result("1"), A("It is", partial=True)]


# --- state, cancellation, failure -------------------------------------------------------------------------------------


async def test_B182_nobody_can_change_a_stored_message_through_the_prompt(memory: MessageChatMemoryAdvisor) -> None:
    question = U((TextPart("hi"),), metadata={"marks": {"cache": [1]}})
    passed = await memory.before(request(question))
    with pytest.raises(TypeError):
        passed.messages[0].metadata["marks"]["cache"].append(2)
    with pytest.raises(AttributeError):
        passed.messages[0].content = "changed"
    await memory.done(passed, ok("a"))
    assert (await stored(memory))[0] == U((TextPart("hi"),), metadata={"marks": {"cache": [1]}})


async def test_B183_the_callers_request_is_not_changed_also_by_calls_at_the_same_time(
    memory: MessageChatMemoryAdvisor,
) -> None:
    await memory.chat_memory.add("c", [U("u0"), A("a0")])
    given = request(U("u1"), context={"k": 1}, local={"other": 1})
    first, second = await memory.before(given), await memory.before(given)
    assert given == request(U("u1"), context={"k": 1}, local={"other": 1})
    assert first.local["other"] == 1
    assert first.local["memory"] is not second.local["memory"]
    await memory.done(second, ok("a2"))
    await memory.done(first, ok("a1"))
    assert texts(await stored(memory)) == ["u0", "a0", "u1", "a2", "u1", "a1"]


async def test_two_memories_in_one_chain_keep_to_themselves() -> None:
    one, other = MessageChatMemoryAdvisor(ChatMemory()), MessageChatMemoryAdvisor(ChatMemory(), name="other")
    await other.chat_memory.add("c", [U("u0"), A("a0")])
    outer = await one.before(request(U("u1")))
    inner = await other.before(outer)
    await other.done(inner, ok("a1"))
    await one.done(outer, ok("a1"))
    assert texts(await stored(one)) == ["u1", "a1"]
    assert texts(await stored(other)) == ["u0", "a0", "u1", "a1"]


class Slow(InMemoryChatMemoryRepository):
    """Lets its test do something while an append is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = anyio.Event(), anyio.Event()

    async def append(self, *args: Any, **kwargs: Any) -> int:
        self.entered.set()
        await self.go.wait()
        return await super().append(*args, **kwargs)


async def test_a_cancellation_on_the_way_to_the_store_does_not_lose_the_answer() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=(slow := Slow())))
    passed = await memory.before(request(U("u1")))
    async with anyio.create_task_group() as group:
        group.start_soon(memory.done, passed, ok("a1"))
        await slow.entered.wait()
        group.cancel_scope.cancel()
        slow.go.set()
    assert texts(await stored(memory)) == ["u1", "a1"]


async def test_a_cancellation_that_is_there_already_does_not_lose_the_answer() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=(slow := Slow())))
    slow.go.set()
    passed = await memory.before(request(U("u1")))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await memory.done(passed, ok("a1"))
    assert texts(await stored(memory)) == ["u1", "a1"]


async def test_an_interrupted_turn_waits_no_longer_than_the_chain_lets_it() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=Slow()))
    passed = await memory.before(request(U("u1")))
    with anyio.move_on_after(0, shield=True) as scope:  # as the chain shields the end of a run that was left
        await memory.done(passed, Outcome("closed", ChatResponse("Hel")))
    assert scope.cancelled_caught


async def test_a_store_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisorchain.advisors.chat_memory._STORE_SECONDS", 0.0)
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=Slow()))
    passed = await memory.before(request(U("u1")))
    with pytest.raises(StorageError, match="store does not answer"):
        await memory.done(passed, ok("a1"))


async def test_a_conversation_deleted_meanwhile_is_an_error_and_stays_deleted(memory: MessageChatMemoryAdvisor) -> None:
    await memory.chat_memory.add("c", U("u0"))
    passed = await memory.before(request(U("u1")))
    await memory.chat_memory.clear("c")
    with pytest.raises(ConversationDeletedError):
        await memory.done(passed, ok("a1"))
    assert await stored(memory) == []


# --- in a chain -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory://", "sqlite://"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[ChatMemoryRepository]:
    async with open_repository(request.param) as repository:
        yield repository


class Script:
    """A model that streams what it was told, and keeps the prompts that it saw."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = iter(answers)
        self.prompts: list[tuple[Message, ...]] = []

    async def stream(self, request: ChatRequest) -> AsyncIterator[str]:
        self.prompts.append(request.messages)
        for text in next(self.answers):
            yield text


async def test_call_and_stream_store_the_same(store: ChatMemoryRepository) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=store))
    script = Script(["Hel", "lo"], ["a", "gain"], ["on"])
    chain = AdvisorChain(script.stream, [memory])
    await chain.call("u1", conversation_id="c", system="S1")
    async with chain.stream("u2", conversation_id="c", system="S2") as stream:
        assert [chunk.text async for chunk in stream] == ["a", "gain"]
    await chain.call([U("u3"), U("u4")], conversation_id="c")
    assert await stored(memory) == [U("u1"), A("Hello"), U("u2"), A("again"), U("u3"), U("u4"), A("on")]
    assert texts(script.prompts[1]) == ["S2", "u1", "Hello", "u2"]
    assert texts(script.prompts[2]) == ["u1", "Hello", "u2", "again", "u3", "u4"]


async def test_B016_leaving_a_stream_keeps_what_was_seen_and_the_next_prompt_is_valid(store: ChatMemoryRepository) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=store))
    script = Script(["Hel", "lo ", "wor", "ld", "!"], ["fine"])
    chain = AdvisorChain(script.stream, [memory])
    async with chain.stream("u1", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.text == "lo ":
                break
    await chain.call("u2", conversation_id="c")
    assert await stored(memory) == [U("u1"), A("Hello ", partial=True), U("u2"), A("fine")]
    assert texts(script.prompts[1]) == ["u1", "Hello ", "u2"]


async def test_mem_025_the_model_is_not_asked_without_a_conversation_id() -> None:
    script = Script(["x"])
    chain = AdvisorChain(script.stream, [MessageChatMemoryAdvisor(ChatMemory())])
    with pytest.raises(ConversationIdError, match="`conversation_id`"):
        await chain.call("u1")
    assert script.prompts == []


async def test_a_model_that_fails_leaves_nothing() -> None:
    async def broken(request: ChatRequest) -> AsyncIterator[str]:
        yield "Hel"
        raise ValueError("broken")

    memory = MessageChatMemoryAdvisor(ChatMemory())

    async def read() -> None:
        async with AdvisorChain(broken, [memory]).stream("u1", conversation_id="c") as stream:
            async for _ in stream:
                pass

    with pytest.raises(ValueError, match="broken"):
        await read()
    assert await stored(memory) == []


async def test_two_turns_at_once_are_whole_in_order_of_completion(store: ChatMemoryRepository) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=store))
    slow_asked, fast_done = anyio.Event(), anyio.Event()
    prompts: list[list[str]] = []

    async def model(request: ChatRequest) -> str:
        prompts.append(texts(request.messages))
        if request.messages[-1].text == "slow":
            slow_asked.set()
            await fast_done.wait()
        return f"{request.messages[-1].text} answer"

    chain = AdvisorChain(model, [memory])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: chain.call("slow", conversation_id="c"))
        await slow_asked.wait()
        await chain.call("fast", conversation_id="c")
        fast_done.set()
    assert prompts == [["slow"], ["fast"]]
    assert texts(await stored(memory)) == ["fast", "fast answer", "slow", "slow answer"]


class Ticking(InMemoryChatMemoryRepository):
    """Cancels `scope` at the n-th await of a turn; what it was asked to append is in the log before it is cancelled."""

    def __init__(self, cancel_at: int) -> None:
        super().__init__()
        self.left = cancel_at
        self.scope = anyio.CancelScope()

    async def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()
        await anyio.lowlevel.checkpoint()

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        await self.tick()
        return await super().recall(conversation_id, last, before=before)

    async def append(self, *args: Any, **kwargs: Any) -> int:
        await self.tick()
        revision = await super().append(*args, **kwargs)
        await self.tick()
        return revision

    async def model(self, request: ChatRequest) -> AsyncIterator[str]:
        for text in ("Hel", "lo"):
            await self.tick()
            yield text
        await self.tick()


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_turn_cancelled_at_any_await_is_in_the_log_once_or_not_at_all(streaming: bool) -> None:
    seen, cancel_at, cancelled = [], 0, True
    while cancelled:
        cancel_at += 1
        ticking = Ticking(cancel_at)
        memory = MessageChatMemoryAdvisor(ChatMemory(repository=ticking))
        chain = AdvisorChain(ticking.model, [memory])
        with ticking.scope:
            if streaming:
                async with chain.stream("u1", conversation_id="c") as stream:
                    async for _ in stream:
                        await ticking.tick()
            else:
                await chain.call("u1", conversation_id="c")
        cancelled = ticking.scope.cancelled_caught
        log = await stored(memory)
        partial = [U("u1"), A(log[-1].text, partial=True)] if log else []
        assert log in ([], [U("u1"), A("Hello")], partial)
        seen.append("".join(texts(log)))
        await AdvisorChain(ticking.model, [memory]).call("u2", conversation_id="c")
        assert texts(await stored(memory)) == [*texts(log), "u2", "Hello"]
    assert seen == sorted(seen, key=len)  # the later it came, the more is kept
    assert seen[0] == ""
    assert seen[-1] == "u1Hello"
    assert ("u1Hel" in seen) == streaming
