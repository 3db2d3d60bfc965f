"""Reports about streamed answers: pieces of tool calls, finish reasons, refusals, and what a loop streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.aggregate import fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ToolArgumentsError
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from advisorchain.testing.models import ScriptedModel
from advisorchain.testing.recorders import RecordingAdvisor

from ._asking import MODES, HandLoop, Mode, ask, asking, chunks_given, given, stored, texts

both = pytest.mark.parametrize("mode", MODES)


def checked_calls(response: ChatResponse, expected: list[dict[str, Any]]) -> None:
    found = [{"id": call.id, "name": call.name, "arguments": call.parsed()} for call in response.message.tool_calls]
    assert [{key: call[key] for key in wanted} for call, wanted in zip(found, expected, strict=True)] == expected


@both
async def test_B008_the_folded_message_keeps_its_tool_calls(mode: Mode) -> None:
    script = asking(("k", "clock", '{"zone":"UTC"}'))
    outside = RecordingAdvisor("outside")
    response = await ask(mode, AdvisorChain(ScriptedModel(script), [outside]), "time?")
    assert response.message == AssistantMessage(tool_calls=(ToolCall("k", "clock", '{"zone":"UTC"}'),))
    assert response.finish_reason == "tool_calls"
    assert [seen.response for seen in outside.log if seen.hook == "after"] == [response]


@both
@pytest.mark.parametrize("case", ["B009", "B010", "B034", "B121"])
async def test_B009_B010_B034_B121_pieces_make_the_calls_that_were_meant(mode: Mode, case: str) -> None:
    data = given(case)
    chunks = chunks_given(data["chunks"])
    response = await ask(mode, AdvisorChain(ScriptedModel(chunks)), "hi")
    checked_calls(response, data["expect"])
    assert response == fold_chunks(chunks)


@both
@pytest.mark.parametrize("case", ["B009", "B034"])
async def test_B009_B034_a_tool_runs_once_for_each_call(mode: Mode, case: str) -> None:
    data = given(case)
    loop = HandLoop(find_course=lambda **_: "found", read=lambda p: f"content of {p}")
    response = await ask(mode, AdvisorChain(ScriptedModel(chunks_given(data["chunks"]), "done"), [loop]), "hi")
    assert [(call.id, call.parsed()) for call in loop.ran] == [(call["id"], call["arguments"]) for call in data["expect"]]
    assert response.text == "done"


@both
async def test_B011_an_empty_id_is_the_same_as_none(mode: Mode) -> None:
    data = given("B011")
    without = json.loads(json.dumps(data["chunks"]).replace('"id": "", ', ""))
    assert without != data["chunks"]
    told, left_out = [
        await ask(mode, AdvisorChain(ScriptedModel(chunks_given(chunks))), "hi") for chunks in (data["chunks"], without)
    ]
    checked_calls(told, data["expect"])
    assert told == left_out


async def test_B012_text_around_tool_call_pieces_is_all_kept() -> None:
    chunks: list[ChatChunk] = []
    chain = AdvisorChain(ScriptedModel(chunks_given(given("B012")["chunks"])))
    response = await ask("stream", chain, "fare?", chunks)
    assert response.text == "".join(chunk.text for chunk in chunks) == "Looking up the fare."
    assert response.message.tool_calls == (ToolCall("a", "f", "{}"),)


@both
async def test_B035_joined_objects_are_bad_arguments_and_no_tool_runs_on_a_guess(mode: Mode) -> None:
    arguments = given("B035")["arguments"]
    with pytest.raises(ToolArgumentsError, match=r"`read` \(call `k`\) are not one JSON object"):
        ToolCall("k", "read", arguments).parsed()
    loop = HandLoop(read=lambda **_: pytest.fail("the tool was run"))
    model = ScriptedModel(asking(("k", "read", arguments)), "sorry", strict=False)  # the loop sends what it was told
    response = await ask(mode, AdvisorChain(model, [loop]), "read a and b")
    result = response.earlier[1]
    assert isinstance(result, ToolMessage)
    assert (result.is_error, result.tool_call_id) == (True, "k")
    assert "`read`" in result.text
    assert "not one JSON object" in result.text


@both
async def test_B143_the_final_response_lists_the_calls_and_results_of_all_rounds(mode: Mode) -> None:
    script = [
        asking(("1", "add", '{"n":1}'), text="First."),
        asking(("2", "add", '{"n":2}'), ("3", "add", '{"n":3}')),
        "all",
    ]
    outside = RecordingAdvisor("outside", order=HIGHEST_PRECEDENCE)
    chunks: list[ChatChunk] = []
    chain = AdvisorChain(ScriptedModel(*script), [outside, HandLoop(add=lambda n: f"r{n}")])
    response = await ask(mode, chain, "hi", chunks)
    (seen,) = [entry.response for entry in outside.log if entry.hook == "after"]
    assert seen == response
    assert response.turn == (
        AssistantMessage("First.", tool_calls=(ToolCall("1", "add", '{"n":1}'),)),
        ToolMessage("r1", tool_call_id="1", name="add"),
        AssistantMessage(tool_calls=(ToolCall("2", "add", '{"n":2}'), ToolCall("3", "add", '{"n":3}'))),
        ToolMessage("r2", tool_call_id="2", name="add"),
        ToolMessage("r3", tool_call_id="3", name="add"),
        AssistantMessage("all"),
    )
    if mode == "stream":
        assert [chunk.tool_result.text for chunk in chunks if chunk.tool_result] == ["r1", "r2", "r3"]
        assert [chunk.boundary for chunk in chunks if chunk.boundary] == ["round", "round"]


async def test_B151_a_finish_reason_that_is_null_stays_empty() -> None:
    reasons = given("B151")["finish_reasons"]
    script = [ChatChunk(f"{place} ", finish_reason=reason) for place, reason in enumerate(reasons)]
    chunks: list[ChatChunk] = []
    response = await ask("stream", AdvisorChain(ScriptedModel(script)), "hi", chunks)
    assert [chunk.finish_reason for chunk in chunks if chunk.text] == [None, None, None, None, "stop"]
    assert sum(chunk.finish_reason is not None for chunk in chunks) == 1
    assert response.finish_reason == "stop"
    unfinished = await ask("stream", AdvisorChain(ScriptedModel(script[:4])), "hi")
    assert unfinished.finish_reason is None


@both
async def test_B154_a_refusal_is_kept_and_the_next_turn_is_valid(mode: Mode) -> None:
    data = given("B154")
    model = ScriptedModel(chunks_given(data["chunks"]), "fine")
    memory = MessageChatMemoryAdvisor(ChatMemory())
    chain = AdvisorChain(model, [memory])
    response = await ask(mode, chain, "u1", conversation_id="c")
    assert (response.message.refusal, response.text, len(model.requests)) == (data["expect_refusal"], "", 1)
    assert await stored(memory.chat_memory) == [UserMessage("u1"), AssistantMessage(refusal=data["expect_refusal"])]
    await ask(mode, chain, "u2", conversation_id="c")  # the model is strict
    assert texts(model.prompts[1]) == ["u1", "", "u2"]
