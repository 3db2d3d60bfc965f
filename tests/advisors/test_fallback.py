"""Other models in turn: when they are asked, with what, and how the answer and the error tell of it."""

from __future__ import annotations

import re
import warnings
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tenacity import wait_none

from advisorchain.advisor import HIGHEST_PRECEDENCE, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.cache import CacheAdvisor
from advisorchain.advisors.fallback import FallbackAdvisor
from advisorchain.advisors.retry import RetryAdvisor
from advisorchain.advisors.structured_output import StructuredOutputAdvisor
from advisorchain.advisors.timeout import TimeoutAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import (
    AdvisorOrderWarning,
    ConfigurationError,
    ContextLengthError,
    InvalidInputError,
    LeaseLostError,
    LimitExceededError,
    ModelError,
)
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, OutputSchema
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, SystemMessage, Usage, UserMessage
from advisorchain.telemetry import Telemetry, set_telemetry
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, check_advisor

from .._asking import MODES, Mode, ask, stored, texts

both = pytest.mark.parametrize("mode", MODES)


def down() -> ModelError:
    return ModelError("down", status=503, retryable=True)


def spare(*replies: Any, name: str = "spare") -> ScriptedModel:
    return ScriptedModel(*replies, name=name)


@pytest.mark.parametrize("after_first_chunk", ["raise", "attempt"])
async def test_it_keeps_the_laws(after_first_chunk: Any) -> None:
    await check_advisor(lambda: FallbackAdvisor(ScriptedModel("never"), after_first_chunk=after_first_chunk))


@both
@pytest.mark.parametrize(
    "error",
    [down(), ModelError("bad key"), ContextLengthError("long"), ConnectionError("cut"), TimeoutError("slow")],
    ids=repr,
)
async def test_the_next_model_is_asked_when_one_fails(mode: Mode, error: Exception) -> None:
    first, second, third = ScriptedModel(error), spare(down()), spare("here", name="third")
    response = await ask(mode, AdvisorChain(first, [FallbackAdvisor(second, third)]), "q")
    assert (response.text, response.model, response.metadata) == ("here", "third", {"fallback": "third"})
    assert [len(model.requests) for model in (first, second, third)] == [1, 1, 1]


@both
async def test_the_first_models_answer_is_left_alone(mode: Mode) -> None:
    answer, other = ChatResponse("here", "stop", model="m-1"), spare("never")
    response = await ask(mode, AdvisorChain(ScriptedModel(answer), [FallbackAdvisor(other)]), "q")
    assert response == answer
    assert other.requests == []


@both
async def test_what_the_other_model_tells_is_kept(mode: Mode) -> None:
    answer = ChatResponse("here", "length", model="m-2", id="r2", usage=Usage(1, 2), metadata={"left": 7})
    response = await ask(mode, AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(spare(answer))]), "q")
    assert response == answer.replace(metadata={"left": 7, "fallback": "spare"})


@both
async def test_it_is_asked_the_same_but_for_the_models_name(mode: Mode) -> None:
    first, other = ScriptedModel(down(), accepts=["x"]), ScriptedModel("here", accepts=["x"])
    options = ChatOptions(model="gpt", temperature=0.5, stop=("END",), extra={"x": 1})
    prompt = [SystemMessage("s"), UserMessage("u1"), AssistantMessage("a1"), UserMessage("u2")]
    chain = AdvisorChain(first, [FallbackAdvisor(other)])
    response = await ask(mode, chain, prompt, conversation_id="c", options=options, context={"k": 1})
    [asked], [asked_first] = other.requests, first.requests
    assert asked.options == ChatOptions(temperature=0.5, stop=("END",), extra={"x": 1})
    assert (asked.messages, asked.conversation_id, asked.context) == (asked_first.messages, "c", {"k": 1})
    assert response.context == {"k": 1}


@both
async def test_the_form_of_the_answer_is_put_into_words_for_the_other_model(mode: Mode) -> None:
    other = spare("{}")
    options = ChatOptions(output=OutputSchema(schema={"type": "object", "title": "Zebra"}))
    await ask(mode, AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(other)]), "q", options=options)
    assert "Zebra" in "".join(texts(other.prompts[0]))


@both
async def test_functions_and_chains_are_models_too(mode: Mode) -> None:
    async def broken(request: ChatRequest) -> AsyncGenerator[str, None]:
        raise ConnectionError("cut")
        yield ""

    inner = RecordingAdvisor("inner")
    chain = AdvisorChain(ScriptedModel("here"), [inner], name="backup")
    response = await ask(mode, AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(broken, chain)]), "q")
    assert (response.text, response.metadata) == ("here", {"fallback": "backup"})
    assert [outcome.status for outcome in inner.outcomes] == ["ok"]


# -- when all fail


@both
async def test_when_all_fail_the_first_error_is_raised_with_notes_of_the_others(mode: Mode) -> None:
    error = ContextLengthError("long")
    others = (
        ScriptedModel(ConnectionError("secret"), repeat=True, name="spare"),
        ScriptedModel(down(), repeat=True, name="third"),
    )
    chain = AdvisorChain(ScriptedModel(error, repeat=True), [FallbackAdvisor(*others)])
    for _ in range(2):  # the same error again: noted once
        with pytest.raises(ContextLengthError) as raised:
            await ask(mode, chain, "q")
        assert raised.value is error
    assert error.__notes__ == [
        "model `spare` of advisor `fallback` failed too: ConnectionError",
        "model `third` of advisor `fallback` failed too: ModelError",
    ]


@both
async def test_an_error_of_another_model_that_is_not_meant_is_raised_itself(mode: Mode) -> None:
    other = spare(InvalidInputError("no images"))
    with pytest.raises(InvalidInputError, match="no images"):
        await ask(mode, AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(other, spare("never"))]), "q")


@both
@pytest.mark.parametrize(
    "error", [ValueError("mine"), LimitExceededError("x"), InvalidInputError("x"), LeaseLostError("x")], ids=repr
)
async def test_other_errors_are_no_reason(mode: Mode, error: Exception) -> None:
    other = spare("never")
    with pytest.raises(type(error)) as raised:
        await ask(mode, AdvisorChain(ScriptedModel(error), [FallbackAdvisor(other)]), "q")
    assert raised.value is error
    assert other.requests == []


@both
@pytest.mark.parametrize("when", [ValueError, (ValueError, KeyError), lambda error: "mine" in str(error)])
async def test_reasons_can_be_chosen(mode: Mode, when: Any) -> None:
    chain = AdvisorChain(ScriptedModel(ValueError("mine"), down()), [FallbackAdvisor(spare("here"), when=when)])
    assert (await ask(mode, chain, "q")).text == "here"
    with pytest.raises(ModelError):
        await ask(mode, chain, "q")


@both
async def test_cancellation_is_no_reason(mode: Mode) -> None:
    async def model(request: ChatRequest) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    other = spare("never")
    with anyio.CancelScope() as scope:
        await ask(mode, AdvisorChain(model, [FallbackAdvisor(other, when=Exception)]), "q")
    assert scope.cancelled_caught
    assert other.requests == []


# -- after something was shown


BEGUN = ChatChunk(usage=Usage(7, 1), metadata={"id": "m-1", "model": "first"})


async def test_an_id_and_usage_alone_show_nothing_and_go_with_the_model_that_failed() -> None:
    chunks: list[ChatChunk] = []
    chain = AdvisorChain(
        ScriptedModel([BEGUN, down()]), [FallbackAdvisor(spare([BEGUN, down()]), spare(["here"], name="third"))]
    )
    response = await ask("stream", chain, "q", chunks)
    assert (response.text, response.id, response.model, response.usage) == ("here", None, "third", None)
    assert [(chunk.text, chunk.boundary, chunk.metadata) for chunk in chunks] == [("here", None, None)]


async def test_a_partial_answer_tells_nothing_of_the_model_that_failed() -> None:
    advisor = FallbackAdvisor(spare(["Two ", "three"]), after_first_chunk="attempt")
    async with AdvisorChain(ScriptedModel([BEGUN, "One ", down()]), [advisor]).stream("q") as stream:
        async for chunk in stream:
            if chunk.text == "Two ":
                break
        partial = stream.partial
    assert partial is not None
    assert (partial.text, partial.id, partial.model, partial.usage) == ("Two ", None, None, None)


async def test_what_was_shown_is_not_shown_again() -> None:
    chunks, other = list[ChatChunk](), spare("never")
    with pytest.raises(ModelError):
        await ask("stream", AdvisorChain(ScriptedModel(["One ", down()]), [FallbackAdvisor(other)]), "q", chunks)
    assert ([chunk.text for chunk in chunks], other.requests) == (["One "], [])


async def test_another_attempt_takes_back_what_was_shown() -> None:
    memory, chunks = MessageChatMemoryAdvisor(ChatMemory()), list[ChatChunk]()
    advisor = FallbackAdvisor(spare(["Tw", down()]), spare("Three", name="third"), after_first_chunk="attempt")
    chain = AdvisorChain(ScriptedModel(["One ", down()]), [memory, advisor])
    response = await ask("stream", chain, "q", chunks, conversation_id="c")
    told = [(chunk.text, chunk.withdraws) for chunk in chunks]
    assert told == [("One ", 0), ("", 1), ("Tw", 0), ("", 1), ("Three", 0)]
    assert (response.text, response.model) == ("Three", "third")
    assert texts(await stored(memory.chat_memory)) == ["q", "Three"]


async def test_leaving_closes_the_other_model() -> None:
    other = spare(["One ", "two"])
    async with AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(other)]).stream("q") as stream:
        async for _ in stream:
            break
    assert (other.opened, other.open_streams) == (1, 0)


@both
async def test_a_cancellation_reaches_the_other_model(mode: Mode) -> None:
    pause, inner, outer = Pause(), RecordingAdvisor("inner"), RecordingAdvisor("outer", HIGHEST_PRECEDENCE)
    other = spare(["One ", pause])
    chain = AdvisorChain(ScriptedModel(down()), [outer, FallbackAdvisor(AdvisorChain(other, [inner]), spare("never"))])
    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, chain, "q")
        await pause.reached.wait()
        group.cancel_scope.cancel()
    assert [outcome.status for outcome in (*inner.outcomes, *outer.outcomes)] == ["cancelled", "cancelled"]
    assert other.open_streams == 0


# -- whose the models are, where the advisor stands


class Owned(ScriptedModel):
    """It is told when it is opened and closed."""

    open = 0
    left = 0
    fails = False

    async def __aenter__(self) -> None:
        if self.fails:
            raise ConnectionError("cannot be opened")
        self.open += 1

    async def __aexit__(self, *ended: object) -> None:
        self.open -= 1
        self.left += 1


async def test_models_that_are_given_alone_are_opened_and_closed_a_chain_is_its_givers() -> None:
    first, other, givers = Owned(down()), Owned(down()), Owned("here")
    advisor = FallbackAdvisor(other, AdvisorChain(givers, name="givers"))
    async with AdvisorChain(first, [advisor]) as chain:
        assert (await chain.call("q")).text == "here"
        assert [model.open for model in (first, other, givers)] == [1, 1, 0]
    assert [(model.open, model.left) for model in (first, other, givers)] == [(0, 1), (0, 1), (0, 0)]
    async with chain:
        assert other.open == 1
    assert (other.open, other.left) == (0, 2)


async def test_in_several_chains_they_are_closed_when_the_last_is_left() -> None:
    other = Owned("here")
    one = AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(other)])
    async with one:
        async with one.with_advisors(RecordingAdvisor("more")):
            assert (other.open, other.left) == (1, 0)
        assert (await one.call("q")).text == "here"
        assert (other.open, other.left) == (1, 0)
    assert (other.open, other.left) == (0, 1)


async def test_when_one_cannot_be_opened_the_others_are_closed() -> None:
    other, fails = Owned("here"), Owned("here")
    fails.fails = True
    chain = AdvisorChain(ScriptedModel(), [FallbackAdvisor(other, fails)])
    with pytest.raises(ConnectionError, match="cannot be opened"):
        async with chain:
            pytest.fail("it was opened")
    assert (other.open, other.left) == (0, 1)
    fails.fails = False
    async with chain:
        assert (other.open, fails.open) == (1, 1)


@both
async def test_a_chain_without_a_name_of_its_own_is_told_by_its_models(mode: Mode) -> None:
    fallback = FallbackAdvisor(AdvisorChain(spare(down(), down())), AdvisorChain(spare("here", down(), name="third")))
    chain = AdvisorChain(ScriptedModel(down(), down()), [fallback])
    response = await ask(mode, chain, "q")
    assert (response.metadata, response.model) == ({"fallback": "third"}, "third")
    with pytest.raises(ModelError) as raised:
        await ask(mode, chain, "q")
    assert [note.split()[1] for note in raised.value.__notes__] == ["`spare`", "`third`"]


@both
async def test_another_model_has_its_own_retries_and_time_limit(mode: Mode) -> None:
    pause = Pause()
    own = [TimeoutAdvisor(total=0.01, first_chunk=0.01), RetryAdvisor(attempts=2, wait=wait_none())]
    other = spare([pause], "here")
    chain = AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(AdvisorChain(other, own, name="second"))])
    response = await ask(mode, chain, "q")
    assert (response.text, response.metadata) == ("here", {"fallback": "second"})
    assert len(other.requests) == 2


class Hides(BaseAdvisor):
    name, order, hides_content = "redact", 7000, True


@pytest.mark.parametrize(
    ("inner", "more"),
    [
        (MessageChatMemoryAdvisor(ChatMemory()), ""),
        (CacheAdvisor(), ""),
        (ToolCallingAdvisor([]), ""),
        (StructuredOutputAdvisor(int), ""),
        (Hides(), ", and see what `redact` hides"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_around_what_should_hold_for_the_other_models_too_it_is_misplaced(inner: Any, more: str) -> None:
    told = (
        f"fallback-passes-by: advisor `fallback`: the other models are not asked through `{inner.name}` (further in){more}; "
    )
    told += f"give this one an `order` above {inner.order}"
    with pytest.warns(AdvisorOrderWarning, match=f"^{re.escape(told)}$"):
        AdvisorChain(ScriptedModel(), [inner, FallbackAdvisor(spare(), order=HIGHEST_PRECEDENCE)])
    with warnings.catch_warnings(action="error"):
        AdvisorChain(ScriptedModel(), [inner, FallbackAdvisor(spare(), order=inner.order + 1)])


def test_where_each_other_model_has_its_own_it_is_not_misplaced() -> None:
    both_have, one_has_not = [AdvisorChain(spare(), [Hides()]), AdvisorChain(spare(), [Hides()])], spare()
    with warnings.catch_warnings(action="error"):
        AdvisorChain(ScriptedModel(), [FallbackAdvisor(*both_have), Hides()])
    with pytest.warns(AdvisorOrderWarning):
        AdvisorChain(ScriptedModel(), [FallbackAdvisor(*both_have, one_has_not), Hides()])


@both
async def test_each_model_has_its_spans_beneath_the_advisors(mode: Mode) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    set_telemetry(Telemetry(tracer_provider=provider))
    try:
        await ask(mode, AdvisorChain(ScriptedModel(down()), [FallbackAdvisor(spare("here"))]), "q")
    finally:
        set_telemetry(Telemetry())
    spans = {span.name: span for span in exporter.get_finished_spans()}
    names = {span.context.span_id: span.name for span in spans.values()}
    parents = {name: names.get(span.parent.span_id) if span.parent else None for name, span in spans.items()}
    assert parents["chat scripted"] == parents["advisor_chain spare"] == "advisor fallback"
    assert parents["chat spare"] == "advisor_chain spare"


@pytest.mark.parametrize(
    ("models", "arguments", "told"),
    [
        ([], {}, "without a model"),
        ([3], {}, "`model` is an int"),
        ([lambda request: "x"], {}, "is not async"),
        ([ScriptedModel("x")], {"when": int}, "`when` is the class `int`"),
        ([ScriptedModel("x")], {"when": BaseException}, "`when` is the class `BaseException`"),
        ([ScriptedModel("x")], {"when": ()}, "`when` is a tuple"),
        ([ScriptedModel("x")], {"when": None}, "`when` is None"),
        ([ScriptedModel("x")], {"after_first_chunk": ""}, "`after_first_chunk` is ''"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(models: Any, arguments: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        FallbackAdvisor(*models, **arguments)


@both
async def test_the_model_that_takes_over_is_recorded_where_the_chain_is(mode: Mode) -> None:
    """Also where that chain has a provider of its own; without any, nothing is."""

    async def gone(request: ChatRequest) -> str:
        raise ConnectionError("gone")

    async def second(request: ChatRequest) -> str:
        return "second"

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    fallback = FallbackAdvisor(second)
    for telemetry in (Telemetry(provider), None):
        assert (await ask(mode, AdvisorChain(gone, [fallback], telemetry=telemetry), "hi")).text == "second"
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert list(spans) == [
        "chat gone",
        "chat second",
        "advisor_chain second",
        "advisor fallback",
        "advisor_chain chain",
    ]
    assert spans["advisor_chain second"].parent == spans["advisor fallback"].context
