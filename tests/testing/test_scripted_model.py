"""The scripted model: what it answers, what it refuses, and what it tells of how it was used."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.aggregate import fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, InvalidInputError, ModelError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, check_prompt, labels

REQUEST = ChatRequest((UserMessage("q"),))
U, S = UserMessage("u"), SystemMessage("s")


def A(text: str = "", *ids: str, arguments: str = "{}") -> AssistantMessage:
    return AssistantMessage(text, tool_calls=tuple(ToolCall(call, "t", arguments) for call in ids))


def R(call: str) -> ToolMessage:
    return ToolMessage("r", tool_call_id=call)


async def chunks(model: ScriptedModel) -> list[ChatChunk]:
    async with aclosing(model.stream(REQUEST)) as stream:
        return [chunk async for chunk in stream]


@pytest.mark.parametrize(
    "reply",
    [
        "two words",
        "",
        ["a", ChatChunk("b", finish_reason="length"), ChatChunk(usage=Usage(1, 2))],
        ChatResponse(A("hello there", "1", "2"), "tool_calls", Usage(1, 2), "m", "i", metadata={"limit": 3}),
        ChatResponse(AssistantMessage("x", reasoning="hm", refusal="no")),
        lambda request: f"you said {request.messages[-1].text}",
        lambda request: lambda again: ["deeper"],
    ],
)
async def test_a_call_and_a_stream_of_one_script_are_equal(reply: Any) -> None:
    called = await ScriptedModel(reply).call(REQUEST)
    assert fold_chunks(await chunks(ScriptedModel(reply))) == called


@given(st.text(alphabet="ab \n", max_size=20))
def test_a_text_is_streamed_word_by_word_and_whole(text: str) -> None:
    found = anyio.run(chunks, ScriptedModel(text))
    assert "".join(chunk.text for chunk in found) == text
    assert [chunk.finish_reason for chunk in found] == [None] * (len(found) - 1) + ["stop"]
    assert len(found) <= len(text.split()) + 1


async def test_replies_are_taken_in_order_and_one_too_many_is_an_error() -> None:
    model = ScriptedModel("one", "two")
    assert [(await model.call(REQUEST)).text, (await chunks(model))[0].text] == ["one", "two"]
    with pytest.raises(ModelError, match=r"model `scripted` was asked once more than the 2 replies"):
        await model.call(REQUEST)
    with pytest.raises(ModelError, match="0 replies"):
        await chunks(ScriptedModel())
    with pytest.raises(ModelError, match="0 replies"):
        await chunks(ScriptedModel(repeat=True))


async def test_repeat_begins_anew() -> None:
    model = ScriptedModel("one", "two", repeat=True)
    assert [(await model.call(REQUEST)).text for _ in range(5)] == ["one", "two", "one", "two", "one"]


async def test_what_it_was_asked_is_kept_also_when_it_was_refused() -> None:
    model = ScriptedModel("one", "two")
    orphan = ChatRequest((U, R("1")))
    await model.call(REQUEST)
    with pytest.raises(InvalidInputError):
        await model.call(orphan)
    assert (await model.call(REQUEST)).text == "two"  # a refused request takes no reply
    assert model.requests == [REQUEST, orphan, REQUEST]
    assert model.prompts == [REQUEST.messages, orphan.messages, REQUEST.messages]


async def test_an_exception_is_raised_where_it_stands() -> None:
    error = KeyError("k")
    for reply in (error, [error], ["one", error], lambda request: error):
        for mode in ("call", "stream"):
            model, heard = ScriptedModel(reply), []
            with pytest.raises(KeyError) as raised:
                if mode == "call":
                    await model.call(REQUEST)
                async for chunk in model.stream(REQUEST):
                    heard.append(chunk.text)
            assert raised.value is error
            assert heard == (["one"] if mode == "stream" and isinstance(reply, list) and len(reply) == 2 else [])
            assert (model.opened, model.open_streams) == (1, 0)


async def test_it_waits_at_a_pause_until_it_may_go_on() -> None:
    pause, heard = Pause(), []
    model = ScriptedModel(["one", pause, "two"])

    async def read() -> None:
        heard.extend([chunk.text async for chunk in model.stream(REQUEST)])

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await pause.reached.wait()
        assert (model.opened, model.closed, model.open_streams) == (1, 0, 1)
        pause.go.set()
    assert heard == ["one", "two"]
    assert (model.opened, model.closed, model.open_streams) == (1, 1, 0)


@pytest.mark.parametrize("reply", [None, 5, b"x", [5], ["a", None], KeyError, ChatResponse, {"text": "x"}, object()])
async def test_what_is_no_reply_is_refused_when_the_script_is_written(reply: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"`replies\[1\]` is or holds "):
        ScriptedModel("fine", reply)
    with pytest.raises(ConfigurationError, match="reply 1 of model `scripted` is or holds "):
        await ScriptedModel(lambda request: reply).call(REQUEST)


async def test_an_async_function_is_no_reply() -> None:
    async def reply(request: ChatRequest) -> str:
        return "x"

    with pytest.raises(ConfigurationError, match=r"`replies\[0\]` is or holds a function"):
        ScriptedModel(reply)
    with pytest.raises(ConfigurationError, match="is or holds a coroutine"):
        await ScriptedModel(lambda request: reply(request)).call(REQUEST)


@pytest.mark.parametrize(
    "response",
    [
        ChatResponse(AssistantMessage((TextPart("x"), ImagePart("https://example.org/i.png")))),
        ChatResponse("x", context={"k": 1}),
        ChatResponse("x", earlier=(A("y"),)),
        ChatResponse(AssistantMessage("x", metadata={"k": 1})),
    ],
)
async def test_a_response_that_no_chunks_can_carry_is_for_calls_only(response: ChatResponse) -> None:
    assert await ScriptedModel(response).call(REQUEST) == response
    with pytest.raises(ConfigurationError, match="no chunk can carry"):
        await chunks(ScriptedModel(response))


# -- what it refuses

GOOD: list[tuple[Message, ...]] = [
    (U,),
    (S, S, U),
    (U, U),
    (U, A("a"), U, U, A("b")),
    (U, A("", "1", "2"), R("2"), R("1")),
    (U, A("", "1"), R("1"), A("a"), U),
    (U, A("", "1"), R("1"), A("", "1"), R("1"), U),
    (U, A("", "1", arguments=" "), R("1")),
    (A("hello"), U),
]

BAD: list[tuple[tuple[Message, ...], str]] = [
    ((), "`messages` is empty"),
    ((S,), "`messages` is empty"),
    ((U, R("1")), r"`messages\[1\]` is a result for call `1`"),
    ((U, A("a"), R("1")), r"`messages\[2\]` is a result for call `1`"),
    ((U, A("", "1"), R("1"), R("1")), r"`messages\[3\]` is a result for call `1`"),
    ((U, A("", "1"), R("1"), U, R("1")), r"`messages\[4\]` is a result for call `1`"),
    ((U, A("", "1")), "no result for tool call `1` at the end"),
    ((U, A("", "1", "2"), R("1")), "no result for tool call `2` at the end"),
    ((U, A("", "1", "2"), R("1"), U), r"no result for tool call `2` before `messages\[3\]`"),
    ((U, A("", "1"), U, R("1")), r"no result for tool call `1` before `messages\[2\]`"),
    ((U, A("")), r"`messages\[1\]` is a blank assistant message"),
    ((U, A(" \n"), U), r"`messages\[1\]` is a blank assistant message"),
    ((U, S), r"`messages\[1\]` is a system message behind one of role `user`"),
    ((S, U, A("a"), S, U), r"`messages\[3\]` is a system message behind one of role `assistant`"),
    ((U, A("a"), A("b")), r"`messages\[2\]` is an assistant message right behind another one"),
    ((U, A("", "1", "1"), R("1")), r"`messages\[1\]` has two tool calls with one id"),
    ((U, A("", "1", arguments="[1]"), R("1")), r"`messages\[1\]`: the arguments for `t`"),
    ((U, A("", "1", arguments='{"a": '), R("1")), r"`messages\[1\]`: the arguments for `t`"),
]


@pytest.mark.parametrize("messages", GOOD)
async def test_a_prompt_that_providers_take(messages: tuple[Message, ...]) -> None:
    check_prompt(messages)
    assert (await ScriptedModel("fine").call(ChatRequest(messages))).text == "fine"


@pytest.mark.parametrize(("messages", "match"), BAD)
async def test_a_prompt_that_a_provider_refuses(messages: tuple[Message, ...], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        check_prompt(messages)
    if messages:
        with pytest.raises(InvalidInputError, match=match):
            await AdvisorChain(ScriptedModel("fine")).call(messages)
        assert (await AdvisorChain(ScriptedModel("fine", strict=False)).call(messages)).text == "fine"


async def test_extra_options_that_it_does_not_know_are_refused() -> None:
    request = REQUEST.replace(options=ChatOptions(extra={"tools": [], "top_k": 5}))
    with pytest.raises(InvalidInputError, match=r"`options\.extra` has `tools`, `top_k`"):
        await ScriptedModel("fine").call(request)
    with pytest.raises(InvalidInputError, match=r"`options\.extra` has `tools`,"):
        await ScriptedModel("fine", accepts=["top_k"]).call(request)
    assert (await ScriptedModel("fine", accepts=["top_k", "tools"]).call(request)).text == "fine"
    assert (await ScriptedModel("fine", strict=False).call(request)).text == "fine"


# -- the recorder


async def test_a_recorder_writes_down_what_each_hook_saw() -> None:
    recorder = RecordingAdvisor("r", 5)
    assert (recorder.name, recorder.order) == ("r", 5)
    asking = ChatChunk("x", tool_calls=(ToolCallChunk(0, "1", "t"),))
    response = await AdvisorChain(ScriptedModel(["a ", asking]), [recorder]).call("q")
    assert labels(recorder.log) == ["r.before", "r.transform", "r.feed", "r.flush", "r.after", "r.done ok"]
    assert labels(recorder.log, "done", "before") == ["r.before", "r.done ok"]
    assert {seen.request.messages for seen in recorder.log} == {REQUEST.messages}
    assert [seen.text for seen in recorder.log if seen.text] == ["a x"]
    assert [seen.response for seen in recorder.log if seen.response] == [response]
    assert [outcome.response for outcome in recorder.outcomes] == [response]


async def test_recorders_do_not_share_a_log_unless_it_is_given() -> None:
    one, two = RecordingAdvisor("one"), RecordingAdvisor("two")
    await AdvisorChain(ScriptedModel("x"), [one]).call("q")
    assert one.log
    assert two.log == []
