"""The guard: what is refused is neither shown nor kept, in call and stream, wherever the pieces end."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from time import process_time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BaseModel

from advisorchain.advisor import BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor, SafeGuardAdvisor
from advisorchain.advisors._guard_rules import Rules
from advisorchain.advisors._guard_stream import GuardedAnswer
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorContractError, AdvisorOrderWarning, ConfigurationError, OutputValidationError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from advisorchain.options import ChatOptions
from advisorchain.output import OutputType
from advisorchain.testing import ScriptedModel, check_advisor

from .._asking import MODES, HandLoop, Mode, ask, asking, given, stored, texts

NO = "No."
STOP = ChatChunk(finish_reason="stop")


def guard(*words: str, **more: Any) -> SafeGuardAdvisor:
    return SafeGuardAdvisor(words, **{"refusal": NO, **more})


def shown_by(chunks: Sequence[ChatChunk]) -> list[str]:
    """The text of each message that still counts."""
    shown = [""]
    for chunk in chunks:
        if chunk.boundary is not None:
            shown.append("")
            if chunk.boundary == "attempt":
                assert chunk.withdraws < len(shown)  # no more than there are
                del shown[len(shown) - 1 - chunk.withdraws : -1]
        shown[-1] += chunk.text
    return shown


def everything(chunks: Sequence[ChatChunk], response: ChatResponse) -> str:
    """All that anybody could see. Reprs of messages do not tell their content."""
    seen = [(c.text, c.reasoning, c.refusal, c.tool_calls, c.metadata, c.tool_result and c.tool_result.text) for c in chunks]
    said = [(m.text, getattr(m, "reasoning", ""), getattr(m, "tool_calls", ()), dict(m.metadata)) for m in response.turn]
    return repr((seen, said, dict(response.metadata), dict(response.context)))


# --- making one -------------------------------------------------------------------------------------------------------


def test_chain_038_words_must_be_given() -> None:
    with pytest.raises(ConfigurationError, match="`words`"):
        SafeGuardAdvisor(None)
    with pytest.raises(ConfigurationError, match="`words` is empty"):
        SafeGuardAdvisor()


@pytest.mark.parametrize(
    ("given", "about"),
    [
        ({"words": "bomb"}, "words"),
        ({"words": ["a", " "]}, r"words\[1\]"),
        ({"words": [3]}, r"words\[0\]"),
        ({"patterns": "a"}, "patterns"),
        ({"patterns": [re.compile("a"), "a|"]}, r"patterns\[1\]"),
        ({"judge": True}, "judge"),
        ({"words": ["a"], "check_input": False, "check_output": False}, "check_input"),
        ({"words": ["a"], "refusal": " "}, "refusal"),
        ({"judge": bool, "hold": "match"}, "hold"),
        ({"judge": bool, "hold": "line"}, "hold"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(given: dict[str, Any], about: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{about}`"):
        SafeGuardAdvisor(**given)


# --- the question -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_chain_039_a_clean_prompt_goes_on(mode: Mode) -> None:
    model = ScriptedModel("Yes, it is.")
    response = await ask(mode, AdvisorChain(model, [guard("bomb")]), "nice weather")
    assert (len(model.requests), response.text, response.finish_reason) == (1, "Yes, it is.", "stop")


@pytest.mark.parametrize("mode", MODES)
async def test_chain_040_a_listed_word_stops_the_request(mode: Mode) -> None:
    model = ScriptedModel()
    chunks: list[ChatChunk] = []
    response = await ask(mode, AdvisorChain(model, [SafeGuardAdvisor(["bomb"])]), "build a bomb", chunks)
    assert not model.requests
    assert response.text == "I cannot help with that. Please ask me something else."
    assert response.finish_reason == "content_filter"
    assert response.metadata["guard"] == {"name": "guard", "checked": "input", "reason": "words"}
    assert mode == "call" or shown_by(chunks) == [response.text]
    assert "bomb" not in everything(chunks, response)


@pytest.mark.parametrize(("word", "text"), [("BOMB", "build a bomb"), ("bomb", "BOMBS"), ("STRASSE", "Straße"), ("ß", "ss")])
async def test_chain_042_letter_case_does_not_matter(word: str, text: str) -> None:
    model = ScriptedModel()
    assert (await AdvisorChain(model, [guard(word)]).call(text)).text == NO
    assert not model.requests


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")], ids="".join)
async def test_composed_and_decomposed_letters_are_one(forms: tuple[str, str]) -> None:
    listed, said = (unicodedata.normalize(form, "café") for form in forms)
    assert (await AdvisorChain(ScriptedModel(), [guard(listed)]).call(said)).text == NO


async def test_chain_043_a_custom_refusal_is_used() -> None:
    assert (await AdvisorChain(ScriptedModel(), [SafeGuardAdvisor(["bomb"], refusal="no.")]).call("bomb")).text == "no."


@pytest.mark.parametrize("mode", MODES)
async def test_chain_044_the_refusal_carries_the_context(mode: Mode) -> None:
    response = await ask(mode, AdvisorChain(ScriptedModel(), [guard("bomb")]), "bomb", context={"k": "v"})
    assert response.context == {"k": "v"}


async def test_neither_history_nor_system_text_is_judged() -> None:
    memory = ChatMemory()
    await memory.add("c", [UserMessage("a bomb"), AssistantMessage("Yes?")])
    model = ScriptedModel("Fine.")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard("bomb")])
    assert (await chain.call("Hello", conversation_id="c", system="Never tell of a bomb.")).text == "Fine."
    assert isinstance(model.prompts[0][0], SystemMessage)
    assert "a bomb" in texts(model.prompts[0])


async def test_the_text_of_parts_is_judged_as_one() -> None:
    prompt = UserMessage((TextPart("a bo"), TextPart("mb")))
    assert (await AdvisorChain(ScriptedModel(), [guard("bomb")]).call(prompt)).text == NO


async def test_each_side_can_be_left_out() -> None:
    only_out = AdvisorChain(ScriptedModel("fine"), [guard("bomb", check_input=False)])
    assert (await only_out.call("bomb")).text == "fine"
    only_in = AdvisorChain(ScriptedModel("a bomb"), [guard("bomb", check_output=False)])
    assert (await only_in.call("hello")).text == "a bomb"


@pytest.mark.parametrize(
    ("verdict", "reason"), [(True, "judge"), ("rude", "rude"), (False, None), (None, None), ("", None)], ids=repr
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_judge_says_why(verdict: Any, reason: str | None, is_async: bool) -> None:
    async def later(text: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return verdict

    judge = later if is_async else lambda text: verdict
    advisor = SafeGuardAdvisor(judge=judge, check_output=False)
    response = await AdvisorChain(ScriptedModel("fine"), [advisor]).call("hello")
    assert response.metadata.get("guard", {}).get("reason") == reason


async def test_a_judge_that_gives_something_else_or_fails_lets_nothing_pass() -> None:
    model = ScriptedModel("fine")
    with pytest.raises(AdvisorContractError, match="`judge` returned an int"):
        await AdvisorChain(model, [SafeGuardAdvisor(judge=lambda text: 1)]).call("hello")
    with pytest.raises(ZeroDivisionError):
        await AdvisorChain(model, [SafeGuardAdvisor(judge=lambda text: bool(1 // 0))]).call("hello")
    assert not model.requests


# --- a client that sends its whole history ----------------------------------------------------------------------------

REFUSED = [UserMessage("a bomb"), AssistantMessage(NO)]
FAKED = [UserMessage("a bomb"), AssistantMessage("Sure, what kind?")]
TOOLS = [
    UserMessage("a bomb"),
    AssistantMessage(tool_calls=(ToolCall("1", "find", "{}"),)),
    ToolMessage("found", tool_call_id="1"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("turn", [REFUSED, FAKED, TOOLS], ids=["refused", "faked", "tools"])
async def test_U2_a_refused_turn_of_a_resent_history_is_left_out(mode: Mode, turn: list[Message]) -> None:
    model = ScriptedModel("Hello.", "And hello.")
    chain = AdvisorChain(model, [guard("bomb")])
    history: list[Message] = [SystemMessage("Be kind."), UserMessage("hi"), AssistantMessage("Hi!"), *turn]
    assert (await ask(mode, chain, [*history, UserMessage("hello")])).text == "Hello."
    assert texts(model.prompts[-1]) == ["Be kind.", "hi", "Hi!", "hello"]
    history += [UserMessage("hello"), AssistantMessage("Hello."), *turn]
    assert (await ask(mode, chain, [*history, UserMessage("again")])).text == "And hello."
    assert texts(model.prompts[-1]) == ["Be kind.", "hi", "Hi!", "hello", "Hello.", "again"]


@pytest.mark.parametrize(
    "asked",
    [
        [UserMessage("a bomb")],
        [UserMessage("hi"), AssistantMessage("Hi!"), UserMessage("a bomb")],
        [UserMessage("hi"), AssistantMessage("Hi!"), UserMessage("a bomb"), UserMessage("go on")],
        [UserMessage("hi"), AssistantMessage("Hi!"), UserMessage("a bomb"), AssistantMessage("Sure: first")],
        [UserMessage("hi"), AssistantMessage("Hi!"), *TOOLS],
        [UserMessage("a bomb"), SystemMessage("Answer."), UserMessage("go on")],
    ],
    ids=["alone", "last", "before the last", "with an answer begun", "with a tool's result", "parted by a system message"],
)
async def test_U2_what_is_asked_now_is_refused(asked: list[Message]) -> None:
    model = ScriptedModel()
    assert (await AdvisorChain(model, [guard("bomb")]).call(asked)).text == NO
    assert not model.requests


async def test_U2_with_a_conversation_that_is_kept_nothing_gets_in_behind_a_faked_answer() -> None:
    memory = ChatMemory()
    model = ScriptedModel("Hello.")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard("bomb")])
    assert (await chain.call([*FAKED, UserMessage("go on")], conversation_id="c")).text == NO
    assert not await stored(memory)
    await chain.call("hi", conversation_id="c")
    assert texts(model.prompts[-1]) == ["hi"]


async def test_U2_the_judge_is_asked_about_each_question_and_nothing_else() -> None:
    judged: list[str] = []

    def judge(text: str) -> bool:
        judged.append(text)
        return text == "bad"

    model = ScriptedModel("Hello.")
    chain = AdvisorChain(model, [SafeGuardAdvisor(judge=judge, check_output=False)])
    asking_ = AssistantMessage("bad", tool_calls=(ToolCall("1", "find", "{}"),))
    history = [UserMessage("bad"), UserMessage("fine"), asking_, ToolMessage("bad", tool_call_id="1")]
    await chain.call([SystemMessage("bad"), *history, UserMessage("now")])
    assert judged == ["now", "bad", "fine"]
    assert texts(model.prompts[-1]) == ["bad", "fine", "bad", "bad", "now"]


# --- the answer -------------------------------------------------------------------------------------------------------


async def test_words_let_text_flow_and_hold_what_may_become_one() -> None:
    model = ScriptedModel(["Take a b", "low, not a bo", "mbard", STOP])
    chunks: list[ChatChunk] = []
    response = await ask("stream", AdvisorChain(model, [guard("bombe")]), "hi", chunks)
    assert [chunk.text for chunk in chunks] == ["Take a ", "blow, not a ", "bombard", ""]
    assert response.text == "Take a blow, not a bombard"


async def test_letters_that_fold_to_several_do_not_shift_what_is_held() -> None:
    model = ScriptedModel(["ßßß bo", "mber, s", "traße"])
    chunks: list[ChatChunk] = []
    await ask("stream", AdvisorChain(model, [guard("bombe", "strasse")]), "hi", chunks)
    assert [chunk.text for chunk in chunks] == ["ßßß ", NO]


async def test_what_was_shown_is_withdrawn_and_the_refusal_is_the_answer() -> None:
    model = ScriptedModel(["How to ", "make a bo", "mb: take", " this", ChatChunk(finish_reason="stop", usage=Usage(3, 4))])
    chunks: list[ChatChunk] = []
    memory = ChatMemory()
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard("bomb")])
    response = await ask("stream", chain, "hi", chunks, conversation_id="c")
    assert [(c.text, c.boundary, c.withdraws) for c in chunks] == [
        ("How to ", None, 0),
        ("make a ", None, 0),
        (NO, "attempt", 1),
    ]
    assert (response.text, response.finish_reason, response.usage) == (NO, "content_filter", Usage(3, 4))
    assert response.metadata["guard"] == {"name": "guard", "checked": "output", "reason": "words"}
    assert not await stored(memory)
    assert "bomb" not in everything(chunks, response)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "pieces",
    [
        [ChatChunk(reasoning="about a bo"), ChatChunk(reasoning="mb"), "fine"],
        [ChatChunk(refusal="not about a bomb")],
        [
            "fine",
            ChatChunk(tool_calls=(ToolCallChunk(0, "1", "find", '{"a": "bo\\u006d'), ToolCallChunk(0, arguments='b"}'))),
        ],
        ["fine", ChatChunk(tool_calls=(ToolCallChunk(0, "1", "find", "bomb"),))],
        ["fine", ChatChunk(finish_reason="stop"), " bo", ChatChunk("mb", metadata={"message": {"s": "bomb"}})],
    ],
    ids=["reasoning", "refusal", "arguments", "no JSON", "after the finish reason"],
)
async def test_all_that_the_model_says_is_judged(mode: Mode, pieces: list[Any]) -> None:
    chunks: list[ChatChunk] = []
    model = ScriptedModel([*pieces, STOP])
    response = await ask(mode, AdvisorChain(model, [guard("bomb")]), "hi", chunks)
    assert (response.text, response.message.reasoning, response.message.tool_calls) == (NO, None, ())
    assert mode == "call" or shown_by(chunks) == [NO]
    assert not re.search(r"bomb|bo\\", everything(chunks, response))


async def test_what_is_harmless_passes_whole() -> None:
    pieces: list[Any] = [
        ChatChunk(reasoning="hm"),
        "Let me ",
        ChatChunk("see", metadata={"message": {"signature": "x"}, "id": "7", "model": "m", "limit": 3}),
        ChatChunk(tool_calls=(ToolCallChunk(0, "1", "find", '{"a":'),)),
        ChatChunk(tool_calls=(ToolCallChunk(0, arguments=" 1}"),), finish_reason="tool_calls"),
        ChatChunk(usage=Usage(1, 2)),
    ]
    bare = await ask("stream", AdvisorChain(ScriptedModel(pieces)), "hi")
    for mode in MODES:
        guarded = await ask(mode, AdvisorChain(ScriptedModel(pieces), [guard("bomb")]), "hi")
        assert guarded == bare


@pytest.mark.parametrize(
    ("hold", "units"),
    [
        ("all", ["One. Two.\nThree!\n\nFour"]),
        ("paragraph", ["One. Two.\nThree!\n\n", "Four"]),
        ("sentence", ["One. ", "Two.\n", "Three!\n\n", "Four"]),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
async def test_a_judge_gets_as_much_at_once_as_hold_says(hold: Any, units: list[str], size: int) -> None:
    judged: list[str] = []
    text = "".join(units)

    def judge(unit: str) -> bool:
        judged.append(unit)
        return False

    model = ScriptedModel([*(text[at : at + size] for at in range(0, len(text), size)), STOP])
    advisor = SafeGuardAdvisor(judge=judge, check_input=False, hold=hold)
    chunks: list[ChatChunk] = []
    await ask("stream", AdvisorChain(model, [advisor]), "hi", chunks)
    assert judged == units
    assert "".join(chunk.text for chunk in chunks) == text
    shown = [chunk.text for chunk in chunks if chunk.text]
    assert len(shown) == len(units) or size == 100


@pytest.mark.parametrize("found_by", [{"words": ["bomb"]}, {"patterns": ["bomb"]}], ids=["words", "patterns"])
@pytest.mark.parametrize(
    ("hold", "shown"),
    [
        (None, ["Take ", "a ", "breath. ", "Then a "]),
        ("match", ["Take ", "a ", "breath. ", "Then a "]),
        ("sentence", ["Take a breath. "]),
        ("all", []),
    ],
)
async def test_U3_as_much_is_shown_before_a_refusal_as_hold_says(found_by: Any, hold: Any, shown: list[str]) -> None:
    pieces = ["Take ", "a ", "breath. ", "Then a b", "omb.", STOP]
    chunks: list[ChatChunk] = []
    advisor = SafeGuardAdvisor(**found_by, refusal=NO, hold=hold)
    response = await ask("stream", AdvisorChain(ScriptedModel(pieces), [advisor]), "hi", chunks)
    assert [chunk.text for chunk in chunks] == [*shown, NO]
    assert (chunks[-1].boundary, response.text) == ("attempt" if shown else None, NO)


@pytest.mark.parametrize(("hold", "shown"), [("sentence", ["One. ", "Two."]), ("all", ["One. Two."])])
async def test_U3_what_is_harmless_comes_when_its_unit_ends(hold: Any, shown: list[str]) -> None:
    chunks: list[ChatChunk] = []
    model = ScriptedModel(["On", "e. T", "wo.", STOP])
    await ask("stream", AdvisorChain(model, [guard("bomb", hold=hold)]), "hi", chunks)
    assert [chunk.text for chunk in chunks if chunk.text] == shown


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad_round", [1, 2])
async def test_each_message_of_a_turn_is_judged_and_all_are_withdrawn(mode: Mode, bad_round: int) -> None:
    first = "a bomb " if bad_round == 1 else "Let me see. "
    model = ScriptedModel(asking(("1", "clock", "{}"), text=first), ["It is ", "bomb" if bad_round == 2 else "", STOP])
    memory = ChatMemory()
    loop = HandLoop(clock=lambda: "12:00")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory, remember="turn"), guard("bomb"), loop])
    chunks: list[ChatChunk] = []
    response = await ask(mode, chain, "hi", chunks, conversation_id="c")
    assert (response.text, response.earlier, response.finish_reason) == (NO, (), "content_filter")
    assert mode == "call" or shown_by(chunks) == [NO]
    assert "bomb" not in everything(chunks, response)
    assert not await stored(memory)


@pytest.mark.parametrize("mode", MODES)
async def test_inside_of_the_loop_it_refuses_before_the_tools_run(mode: Mode) -> None:
    model = ScriptedModel(asking(("1", "clock", '{"a": "bomb"}'), text="Let me see."))
    loop = HandLoop(clock=lambda **_: "12:00")
    chunks: list[ChatChunk] = []
    response = await ask(mode, AdvisorChain(model, [loop, guard("bomb", order=10)]), "hi", chunks)
    assert (response.text, loop.ran) == (NO, [])
    assert mode == "call" or shown_by(chunks) == [NO]


async def test_an_attempt_that_was_withdrawn_is_forgotten() -> None:
    pieces = ["A bo", ChatChunk("mistake.", boundary="attempt", withdraws=1), STOP]
    chunks: list[ChatChunk] = []
    response = await ask("stream", AdvisorChain(ScriptedModel(pieces), [guard("bomb")]), "hi", chunks)
    assert (response.text, shown_by(chunks)) == ("mistake.", ["mistake."])


async def test_no_more_is_withdrawn_than_the_guard_let_pass() -> None:
    again = ["One ", ChatChunk("two ", boundary="attempt", withdraws=1), "a bomb", STOP]
    model = ScriptedModel(asking(("1", "clock", "{}"), text="Let me see."), again)
    chain = AdvisorChain(model, [HandLoop(clock=lambda: "12:00"), guard("bomb", order=10)])
    chunks: list[ChatChunk] = []
    response = await ask("stream", chain, "hi", chunks)
    assert shown_by(chunks) == ["Let me see.", NO]
    assert [message.text for message in response.turn] == ["Let me see.", "12:00", NO]


@pytest.mark.parametrize(
    "boundary", [{"boundary": "round"}, {"boundary": "attempt", "withdraws": 1}], ids=["round", "attempt"]
)
async def test_R15_a_message_that_never_began_for_the_reader_is_not_withdrawn(boundary: dict[str, Any]) -> None:
    inner = ["One ", ChatChunk("a bomb", **boundary), STOP]
    model = ScriptedModel(asking(("1", "clock", "{}"), text="Let me see."), inner)
    chain = AdvisorChain(model, [HandLoop(clock=lambda: "12:00"), guard("bomb", order=10)])
    chunks: list[ChatChunk] = []
    async with chain.stream("hi") as stream:
        async for chunk in stream:
            chunks.append(chunk)
            partial_ = stream.partial
    assert [chunk.withdraws for chunk in chunks if chunk.boundary == "attempt"] == [1]
    assert shown_by(chunks) == ["Let me see.", NO]
    assert [message.text for message in stream.response.turn] == ["Let me see.", "12:00", NO]
    assert partial_ is not None
    assert [message.text for message in partial_.turn] == ["Let me see.", "12:00", NO]


@pytest.mark.parametrize("early", [ChatChunk(usage=Usage(1, 2)), ChatChunk(metadata={"id": "7"}), ChatChunk("")])
async def test_what_no_reader_sees_is_not_withdrawn(early: ChatChunk) -> None:
    chunks: list[ChatChunk] = []
    response = await ask("stream", AdvisorChain(ScriptedModel([early, "bomb", STOP]), [guard("bomb")]), "hi", chunks)
    assert [(chunk.text, chunk.boundary) for chunk in chunks if chunk.shows] == [(NO, None)]
    assert (response.text, shown_by(chunks)) == (NO, [NO])


async def test_harmless_text_beside_a_hit_is_not_shown() -> None:
    model = ScriptedModel([ChatChunk("fine", reasoning="a bomb"), STOP])
    chunks: list[ChatChunk] = []
    await ask("stream", AdvisorChain(model, [guard("bomb")]), "hi", chunks)
    assert [(chunk.text, chunk.boundary) for chunk in chunks] == [(NO, None)]


class Adding(BaseAdvisor):
    """Its response says more than was streamed."""

    name = "adding"

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.replace(earlier=(AssistantMessage("a bomb"),))


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_never_streamed_is_judged_too(mode: Mode) -> None:
    chunks: list[ChatChunk] = []
    response = await ask(mode, AdvisorChain(ScriptedModel("fine"), [guard("bomb"), Adding()]), "hi", chunks)
    assert (response.text, response.earlier) == (NO, ())
    assert mode == "call" or shown_by(chunks) == [NO]


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_B108_nothing_of_a_blocked_turn_is_kept(mode: Mode) -> None:
    memory = ChatMemory()
    model = ScriptedModel("a bomb, well", "Hello.")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard("bomb")])
    assert (await ask(mode, chain, "a bomb", conversation_id="c")).text == NO  # before the model
    assert (await ask(mode, chain, "hm", conversation_id="c")).text == NO  # after it
    assert not await stored(memory)
    assert (await ask(mode, chain, "hi", conversation_id="c")).text == "Hello."
    assert texts(model.prompts[-1]) == ["hi"]
    assert texts(await stored(memory)) == ["hi", "Hello."]


@pytest.mark.parametrize("mode", MODES)
async def test_B197_a_blocked_answer_is_not_stored(mode: Mode) -> None:
    case = given("B197")
    memory = ChatMemory()
    model = ScriptedModel(case["turn1_reply"], "Hello.")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard(case["must_not_be_in_turn2_prompt"])])
    assert (await ask(mode, chain, "first", conversation_id="c")).text == NO
    await ask(mode, chain, case["turn2_user"], conversation_id="c")
    assert case["must_not_be_in_turn2_prompt"] not in "".join(texts(model.prompts[-1]))
    assert texts(model.prompts[-1]) == [case["turn2_user"]]


def test_B197_a_memory_further_in_is_told_when_the_chain_is_built() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), order=10)
    with pytest.warns(AdvisorOrderWarning, match="`guard`.*`memory` stands further in"):
        AdvisorChain(ScriptedModel(), [guard("PIN"), memory])
    AdvisorChain(ScriptedModel(), [guard("PIN", check_output=False), memory])


async def test_a_reader_who_leaves_after_the_refusal_leaves_nothing_behind() -> None:
    memory = ChatMemory()
    model = ScriptedModel(["Well: ", "a bomb", " more"])
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard("bomb")])
    async with chain.stream("hi", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.boundary == "attempt":
                break
    assert model.open_streams == 0
    assert not await stored(memory)


# --- typed answers ----------------------------------------------------------------------------------------------------


class Place(BaseModel):
    path: str


TYPED = ChatOptions(output=OutputType(Place).schema)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hold", [None, "sentence", "all"])
@pytest.mark.parametrize(
    "said",
    [
        r'{"path": "bo\u006db"}',
        r'{"path": "a \u0062\u006F\u006d\u0062."}',
        r'{"b\u006fmb": 1, "path": ""}',
        '```json\n{"path": "bo\\u006db"}\n```',
        r'{"path": "bo\u006db',
        '{"path": "bomb"}',
    ],
    ids=["one", "all", "key", "fenced", "cut off", "plain"],
)
async def test_a_typed_answer_is_judged_as_it_will_be_read(mode: Mode, hold: Any, said: str) -> None:
    memory = ChatMemory()
    advisors = [MessageChatMemoryAdvisor(memory), guard("bomb", hold=hold)]
    chunks: list[ChatChunk] = []
    chain = AdvisorChain(ScriptedModel([*said, STOP]), advisors)
    response = await ask(mode, chain, "hi", chunks, conversation_id="c", options=TYPED)
    assert (response.text, response.finish_reason) == (NO, "content_filter")
    assert mode == "call" or [chunk.text for chunk in chunks if chunk.text] == [NO]
    assert not await stored(memory)


async def test_no_partial_object_has_what_is_refused() -> None:
    said = r'{"path": "bo\u006db"}'
    client = ChatClient(ScriptedModel([*said, STOP], said), advisors=[guard("bomb")])
    partials: list[Any] = []
    with pytest.raises(OutputValidationError, match="refused"):
        async with client.stream("hi", output_type=Place) as stream:
            partials += [partial async for partial in stream.partials()]
            _ = stream.output
    assert "bomb" not in str(partials)
    with pytest.raises(OutputValidationError, match="refused"):
        await client.call("hi", output_type=Place)


async def test_of_a_harmless_answer_the_partial_object_comes_at_the_end() -> None:
    client = ChatClient(ScriptedModel([*r'{"path": "bo\u006d"}', STOP]), advisors=[guard("bomb")])
    async with client.stream("hi", output_type=Place) as stream:
        assert [partial async for partial in stream.partials()] == [{"path": "bom"}]
        assert stream.output == Place(path="bom")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Straße"], r'{"path": "Stra\u00dfe"}'),
        (["😀"], r'{"path": "\ud83d\ude00"}'),
        (['"no"'], r'{"path": "\"no\""}'),
        (["a/b"], r'{"path": "a\/b"}'),
    ],
)
async def test_other_escapes_of_a_typed_answer_are_read(words: list[str], said: str) -> None:
    assert (await AdvisorChain(ScriptedModel(said), [guard(*words)]).call("hi", options=TYPED)).text == NO


@pytest.mark.parametrize(
    "said", [r'{"path": "bo\\u006db"}', r'{"path": "C:\\new\n"}', r'{"path": "\ud83d"}'], ids=["no escape", "line", "half"]
)
async def test_a_harmless_typed_answer_comes_at_once_at_its_end(said: str) -> None:
    judged: list[str] = []
    advisor = guard("bomb", judge=lambda text: judged.append(text), hold="sentence", check_input=False)
    chunks: list[ChatChunk] = []
    response = await ask("stream", AdvisorChain(ScriptedModel([*said, STOP]), [advisor]), "hi", chunks, options=TYPED)
    assert response.text == said
    assert [chunk.text for chunk in chunks if chunk.text] == [said]
    assert len(judged) == 2  # as it was written, and as it is read


async def test_a_typed_answer_without_escapes_is_judged_once() -> None:
    judged: list[str] = []
    client = ChatClient(
        ScriptedModel('{"path":"ab. c"}'), advisors=[guard(judge=judged.append, hold="sentence", check_input=False)]
    )
    assert (await client.call("hi", output_type=Place)).output == Place(path="ab. c")
    assert judged == ['{"path":"ab. c"}']


async def test_escapes_in_text_that_is_not_typed_are_text() -> None:
    said = r'{"path": "bo\u006db"}'
    assert (await AdvisorChain(ScriptedModel(said), [guard("bomb")]).call("hi")).text == said


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("advisor", "prompt", "told"),
    [
        (guard("bomb"), "a bomb", ("guard", "input", "words")),
        (guard(patterns=["bo.b"], name="out"), "hi", ("out", "output", "patterns")),
        (guard(judge=lambda text: text if "bomb" in text else None), "hi", ("guard", "output", "judge")),
    ],
    ids=["input", "output", "judge"],
)
async def test_U14_a_refusal_is_logged_without_content(
    mode: Mode, advisor: SafeGuardAdvisor, prompt: str, told: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="advisorchain")
    await ask(mode, AdvisorChain(ScriptedModel(["a ", "bomb", STOP]), [advisor]), prompt)
    records = [vars(record) for record in caplog.records if record.getMessage() == "advisorchain.guard.refused"]
    assert [(record["advisor"], record["checked"], record["reason"]) for record in records] == [told]
    assert "bomb" not in str([vars(record) for record in caplog.records])


async def test_U14_what_is_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="advisorchain")
    await AdvisorChain(ScriptedModel("Hello."), [guard("bomb")]).call([*REFUSED, UserMessage("hi")])
    (record,) = [vars(record) for record in caplog.records if "guard" in record.getMessage()]
    assert (record["msg"], record["advisor"], record["messages"]) == ("advisorchain.guard.left_out", "guard", 2)


# --- what it costs ----------------------------------------------------------------------------------------------------


def seconds(pieces: int, rules: Rules) -> float:
    async def guarded() -> float:
        answer = GuardedAnswer(rules)
        chunk = ChatChunk("lorem ipsum dolor sit amet, " * 40)
        begun = process_time()
        for _ in range(pieces):
            await answer.take(chunk)
        await answer.end(ChatResponse(AssistantMessage()))
        return process_time() - begun

    return anyio.run(guarded)


@pytest.mark.parametrize(
    "rules",
    [
        lambda: Rules(["bomb"], [], None, "match"),
        lambda: Rules([], [re.compile("bomb")], None, "all"),
        lambda: Rules([], [], lambda text: False, "all"),
        lambda: Rules([], [], lambda text: False, "paragraph"),
    ],
    ids=["words", "patterns, all held", "judge", "judge, no paragraph ends"],
)
def test_R14_a_piece_of_a_long_stream_costs_no_more_than_of_a_short_one(rules: Callable[[], Rules]) -> None:
    short = min(seconds(500, rules()) for _ in range(5))
    assert min(seconds(2000, rules()) for _ in range(4)) < 9 * short  # 16 where each piece costs as much as what came before


# --- any pieces -------------------------------------------------------------------------------------------------------

WORDS = ("bomb", "Straße", "pin")
SAID = st.lists(st.sampled_from(["bom", "b", "BOMB", "pi", "n", "straSSe", "ß", "stra", "e", " ", "mb", "İ"]), max_size=12)


async def asked_both(pieces: Sequence[str], advisor: SafeGuardAdvisor) -> tuple[list[ChatChunk], ChatResponse, list[str]]:
    memory = ChatMemory()
    model = ScriptedModel([*pieces, STOP], [*pieces, STOP])
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), advisor])
    chunks: list[ChatChunk] = []
    called = await ask("call", chain, "hi", conversation_id="called")
    response = await ask("stream", chain, "hi", chunks, conversation_id="c")
    assert called == response
    return chunks, response, texts(await stored(memory))


@settings(max_examples=150, deadline=None)
@any_of(
    said=SAID,
    backend=st.sampled_from(["asyncio", "trio"]),
    data=st.data(),
    by=st.sampled_from(["words", "patterns", "judge"]),
    hold=st.sampled_from([None, "sentence", "all"]),
)
def test_forbidden_text_is_in_no_chunk_and_what_is_streamed_is_final_and_stored(
    said: list[str], backend: str, data: Any, by: str, hold: Any
) -> None:
    text = "".join(said)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(0, len(text))))), len(text)]
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    folded = [word.casefold() for word in WORDS]
    bad = any(word in text.casefold() for word in folded)
    if by == "patterns":
        bad = bool(re.search(r"(?i)\bpin\b|bomb\B", text))
    advisor = {
        "words": lambda: guard(*WORDS, hold=hold),
        "patterns": lambda: guard(patterns=[r"(?i)\bpin\b", re.compile(r"bomb\B", re.IGNORECASE)], hold=hold),
        # a sentence ends where none of the words goes on
        "judge": lambda: guard(judge=lambda text: any(word in text.casefold() for word in folded), hold=hold),
    }[by]()
    chunks, response, kept = anyio.run(partial(asked_both, pieces, advisor), backend=backend)
    assert response.text == (NO if bad else text)
    assert shown_by(chunks) == [response.text]
    assert kept == ([] if bad else ["hi", response.text])
    before = "".join(chunk.text for chunk in chunks if chunk.boundary is None).replace(NO, "")
    assert not (before and bad and hold == "all")
    if by != "patterns":
        assert not [word for word in folded if word in before.casefold()]
    elif bad:
        assert not re.search(r"(?i)\bpin\b(?=.)|bomb\B(?=.)", before)


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script", [("One, two, three, four.",), ("One, two, a bomb, four.",), ("Bomb",)], ids=["harmless", "later", "at once"]
)
@pytest.mark.parametrize("by", ["words", "held", "patterns", "judge", "sentence"])
async def test_the_guard_keeps_the_laws(script: tuple[str, ...], by: str) -> None:
    made: dict[str, Any] = {
        "words": {"words": ["bomb"]},
        "patterns": {"patterns": ["(?i)bom+b"]},
        "judge": {"judge": lambda text: "bomb" in text.lower()},
        "held": {"words": ["bomb"], "hold": "all"},
        "sentence": {"judge": lambda text: "bomb" in text.lower(), "hold": "sentence"},
    }
    await check_advisor(lambda: SafeGuardAdvisor(**made[by]), script=script)


async def test_the_guard_keeps_the_laws_where_it_answers_at_once() -> None:
    await check_advisor(lambda: SafeGuardAdvisor(["count"]))
