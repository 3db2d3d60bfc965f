"""Typed answers: what does not fit is asked for again, shown to nobody for long, and kept by nobody."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from advisorchain import AdvisorChain, AssistantMessage, ChatChunk, ChatOptions, ChatResponse, UserMessage
from advisorchain.advisor import AroundAdvisor
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.structured_output import StructuredOutputAdvisor
from advisorchain.errors import AdvisorOrderWarning, ConfigurationError, ModelError, OutputValidationError
from advisorchain.exchange import ToolCallChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import ToolCall, ToolMessage, Usage
from advisorchain.output import OutputType
from advisorchain.testing import ScriptedModel, check_advisor
from advisorchain.testing.models import Pause

MODES = pytest.mark.parametrize("mode", ["call", "stream"])


class Person(BaseModel):
    name: str
    age: int


GOOD = '{"name":"Bo","age":3}'
NO_AGE = '{"name":"Bo"}'
NO_NAME = '{"age":3}'


class Native(ScriptedModel):
    native_output = True


def typed(model: Any, attempts: int = 4, *more: Any) -> AdvisorChain:
    return AdvisorChain(model, [StructuredOutputAdvisor(Person, max_attempts=attempts), *more])


async def ask(chain: AdvisorChain, mode: str, prompt: Any = "make a person", **more: Any) -> ChatResponse:
    if mode == "call":
        return await chain.call(prompt, **more)
    async with chain.stream(prompt, **more) as stream:
        async for _ in stream:
            pass
        return stream.response


# ---- the laws, and the handed cases


@pytest.mark.parametrize("script", [(GOOD,), (NO_AGE, GOOD), ("", NO_NAME, GOOD)], ids=["fits", "second", "third"])
async def test_it_keeps_the_laws(script: tuple[str, ...]) -> None:
    await check_advisor(lambda: StructuredOutputAdvisor(Person), script=script)


@MODES
async def test_chain_046_an_answer_that_fits_takes_one_call(mode: str) -> None:
    model = ScriptedModel(GOOD)
    assert (await ask(typed(model), mode)).text == GOOD
    assert len(model.requests) == 1


@MODES
async def test_chain_047_after_one_that_does_not_fit_comes_one_that_does(mode: str) -> None:
    model = ScriptedModel(NO_AGE, GOOD)
    assert (await ask(typed(model, 3), mode)).text == GOOD
    assert len(model.requests) == 2


@MODES
async def test_chain_052_three_kinds_of_bad_answers(mode: str) -> None:
    model = ScriptedModel(NO_AGE, NO_NAME, "plain words", GOOD)
    assert (await ask(typed(model, 4), mode)).text == GOOD
    assert len(model.requests) == 4


@MODES
async def test_chain_054_a_blank_answer_is_asked_for_again(mode: str) -> None:
    model = ScriptedModel("", GOOD)  # strict: a blank assistant message in the prompt would be refused
    assert (await ask(typed(model, 2), mode)).text == GOOD
    first, second = model.prompts
    assert [message.role for message in second] == [*(message.role for message in first), "user"]


@MODES
async def test_B179_attempts_are_bounded_and_show_only_the_newest_failure(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "advisorchain")
    bad = [f'{{"name":"SECRET{number}"}}' for number in range(5)]
    model = ScriptedModel(*bad)
    with pytest.raises(OutputValidationError, match=r"no `Person`: .* at `age` \(attempt 4 of 4\)") as caught:
        await ask(typed(model, 4), mode)
    assert caught.value.problem == "`age`: Field required"
    assert caught.value.response.text == bad[3]
    assert [len(prompt) for prompt in model.prompts] == [2, 4, 4, 4]  # system with the schema, question; answer, correction
    for number, prompt in enumerate(model.prompts[1:]):
        assert prompt[:2] == model.prompts[0]
        assert prompt[2].text == bad[number]
        assert "`age`: Field required" in prompt[3].text
    told = [record.__dict__ for record in caplog.records if record.getMessage() == "advisorchain.output.attempt"]
    assert [(each["advisor"], each["attempt"], each["fits"]) for each in told] == [
        ("structured_output", attempt, False) for attempt in (1, 2, 3, 4)
    ]
    assert "SECRET" not in f"{told}{caught.value}"


@MODES
async def test_B180_a_further_attempt_has_history_system_question_and_correction(mode: str) -> None:
    memory = ChatMemory()
    await memory.add("c", [UserMessage("earlier"), AssistantMessage("indeed")])
    model = ScriptedModel(NO_AGE, GOOD)
    chain = typed(model, 2, MessageChatMemoryAdvisor(memory))
    response = await ask(chain, mode, conversation_id="c", system="Be brief.")
    system, *said = model.prompts[1]
    assert system.text.startswith("Be brief.")
    assert [message.text for message in said[:4]] == ["earlier", "indeed", "make a person", NO_AGE]
    assert "`age`: Field required" in said[4].text
    assert [message.text for message in await memory.get("c")] == ["earlier", "indeed", "make a person", GOOD]
    assert response.turn == (AssistantMessage(GOOD),)
    assert model.requests[1].made == 2
    assert [message.text for message in model.requests[1].new] == ["make a person"]


# ---- the form of the answer


async def test_a_model_with_a_mode_for_it_is_handed_the_schema() -> None:
    model = Native(GOOD)
    await typed(model).call("make a person", options=ChatOptions(temperature=0.5))
    (request,) = model.requests
    assert request.options == ChatOptions(temperature=0.5, output=OutputType(Person).schema)
    assert request.messages == (UserMessage("make a person"),)


async def test_an_output_type_is_taken_as_it_is() -> None:
    people = OutputType(list[Person], name="people")
    model = Native(f'{{"value": [{GOOD}]}}')
    response = await AdvisorChain(model, [StructuredOutputAdvisor(people)]).call("q")
    assert people.parse(response) == [Person(name="Bo", age=3)]
    assert model.requests[0].options.output == people.schema


# ---- streams


async def test_the_reader_is_told_at_once_that_an_attempt_no_longer_counts() -> None:
    pause = Pause()
    model = ScriptedModel(NO_AGE, [pause, GOOD, ChatChunk(finish_reason="stop")])
    partial, grown = OutputType(Person).partial(), []
    async with typed(model).stream("q") as stream:
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            if (value := partial.add(chunk)) is not None:
                grown.append(value)
            if chunk.boundary == "attempt":
                assert chunk.withdraws == 1
                assert not pause.reached.is_set()  # the model has not been asked again
                assert stream.partial is None  # and nothing of the bad answer would be kept
                pause.go.set()
        assert stream.response.text == GOOD
    assert [chunk.boundary for chunk in chunks if chunk.boundary] == ["attempt"]
    assert grown == [{"name": "Bo"}, {"name": "Bo", "age": 3}]


@pytest.mark.parametrize("interrupted", ["partial", "question"])
async def test_a_reader_who_leaves_between_two_attempts_leaves_no_bad_answer(interrupted: Any) -> None:
    memory = ChatMemory()
    chain = typed(ScriptedModel(NO_AGE, GOOD), 2, MessageChatMemoryAdvisor(memory, interrupted=interrupted))
    async with chain.stream("q", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.boundary is not None:
                break
    assert await memory.get("c") == ()


class TwoRounds(AroundAdvisor):
    """A loop further in: asks, adds a round, and asks again."""

    name, order = "two rounds", 9000

    async def around(self, request: Any, next: Any) -> Any:
        async for item in next(request):
            if not isinstance(item, ChatResponse):
                yield item
        yield ChatChunk(boundary="round")
        async for item in next(request):
            yield item if isinstance(item, ChatChunk) else item.replace(earlier=(AssistantMessage("first"),))


async def test_all_messages_of_an_attempt_are_withdrawn() -> None:
    chain = AdvisorChain(ScriptedModel("first", "bad", "first", GOOD), [StructuredOutputAdvisor(Person), TwoRounds()])
    async with chain.stream("q") as stream:
        told = [(chunk.boundary, chunk.withdraws) async for chunk in stream if chunk.boundary]
    assert told == [("round", 0), ("attempt", 2), ("round", 0)]
    assert [message.text for message in stream.response.turn] == ["first", GOOD]


# ---- usage, and what is not asked for again


@MODES
async def test_the_usage_of_all_attempts_is_told(mode: str) -> None:
    replies = [
        ChatResponse(NO_AGE, finish_reason="stop", usage=Usage(10, 2)),
        ChatResponse(NO_NAME, finish_reason="stop"),
        ChatResponse(GOOD, finish_reason="stop", usage=Usage(20, 3)),
    ]
    assert (await ask(typed(ScriptedModel(*replies)), mode)).usage == Usage(30, 5)
    with pytest.raises(OutputValidationError) as caught:
        await ask(typed(ScriptedModel(*replies), 2), mode)
    assert caught.value.response.usage == Usage(10, 2)


@MODES
@pytest.mark.parametrize(
    "reply",
    [
        ChatResponse(AssistantMessage(refusal="I will not."), finish_reason="stop"),
        ChatResponse("That I may not say.", finish_reason="content_filter"),
        ChatResponse("Wait.", finish_reason="paused"),
    ],
    ids=["refusal", "filtered", "paused"],
)
async def test_refusals_pass_as_they_are(mode: str, reply: ChatResponse) -> None:
    model = ScriptedModel(reply)
    response = await ask(typed(model), mode)
    assert (response.message, response.finish_reason) == (reply.message, reply.finish_reason)
    assert len(model.requests) == 1


@MODES
async def test_answers_that_ask_for_tools_pass_as_they_are(mode: str) -> None:
    asking = [ChatChunk("I look.", tool_calls=(ToolCallChunk(0, "k1", "look", "{}"),), finish_reason="tool_calls")]
    model = ScriptedModel(asking, NO_AGE, GOOD)
    chain = typed(model)
    called = await ask(chain, mode)
    assert called.message.tool_calls == (ToolCall("k1", "look"),)
    result = ToolMessage("Bo, 3", tool_call_id="k1")
    answered = await ask(chain, mode, [UserMessage("who?"), called.message, result])
    assert answered.text == GOOD
    assert model.prompts[2][-3:-1] == (result, AssistantMessage(NO_AGE))


@MODES
async def test_an_answer_that_was_cut_off_is_not_asked_for_again(mode: str) -> None:
    model = ScriptedModel(ChatResponse('{"name": "B', finish_reason="length"))
    with pytest.raises(OutputValidationError, match="raise `max_tokens`"):
        await ask(typed(model), mode)
    assert len(model.requests) == 1
    whole = ChatResponse(GOOD, finish_reason="length")
    assert (await ask(typed(ScriptedModel(whole)), mode)).text == GOOD


@MODES
async def test_an_error_of_a_later_attempt_keeps_its_type_and_leaves_nothing(mode: str) -> None:
    memory = ChatMemory()
    chain = typed(ScriptedModel(NO_AGE, ModelError("down")), 3, MessageChatMemoryAdvisor(memory))
    with pytest.raises(ModelError, match="down"):
        await ask(chain, mode, conversation_id="c")
    assert await memory.get("c") == ()


@MODES
async def test_concurrent_turns_do_not_meet(mode: str) -> None:
    def reply(request: Any) -> str:
        wanted = next(message.text for message in request.messages if isinstance(message, UserMessage))
        return f'{{"name":"{wanted}","age":3}}' if "does not fit" in request.messages[-1].text else f'{{"name":"{wanted}"}}'

    chain = typed(ScriptedModel(reply, repeat=True))
    found: dict[str, str] = {}

    async def turn(name: str) -> None:
        found[name] = (await ask(chain, mode, name)).text

    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(turn, name)
    assert found == {name: f'{{"name":"{name}","age":3}}' for name in "abcd"}


# ---- building it


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, None])
def test_attempts_must_be_a_number(attempts: Any) -> None:
    with pytest.raises(ConfigurationError, match="`max_attempts`"):
        StructuredOutputAdvisor(Person, max_attempts=attempts)


def test_what_is_no_type_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigurationError, match="`type_` is an int"):
        StructuredOutputAdvisor(5)


def test_memory_inside_is_told() -> None:
    with pytest.warns(AdvisorOrderWarning, match="`structured_output`.*has been kept by then: `memory` stands further in"):
        typed(ScriptedModel(GOOD), 2, MessageChatMemoryAdvisor(ChatMemory(), order=9000))
