"""Retries: what is asked again, how long is waited, and what a reader, a memory and a trace see of it."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tenacity import RetryCallState, retry_always, stop_after_attempt, stop_before_delay, wait_fixed, wait_none

from advisorchain.advisor import HIGHEST_PRECEDENCE, TOOL_CALLING_ORDER, AroundAdvisor, Next, StreamItem
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors import retry as retry_module
from advisorchain.advisors.cache import CacheAdvisor
from advisorchain.advisors.fallback import FallbackAdvisor
from advisorchain.advisors.retry import RetryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.usage_limit import UsageLimitAdvisor
from advisorchain.aggregate import Fold, fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.errors import (
    AdvisorOrderWarning,
    ConfigurationError,
    ContextLengthError,
    InvalidInputError,
    LeaseLostError,
    LimitExceededError,
    ModelError,
    ModelResponseError,
    ModelTimeoutError,
)
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, Usage
from advisorchain.telemetry import Telemetry
from advisorchain.testing import RecordingAdvisor, ScriptedModel, check_advisor

from .._asking import MODES, HandLoop, Mode, ask, asking, stored, texts
from .._asking import given as given_data
from ._clock import Clock, Hasty

both = pytest.mark.parametrize("mode", MODES)
BUSY = ModelError("busy", retryable=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hasty:
    hasty = Hasty(monkeypatch)
    hasty.put(retry_module)
    return hasty


def busy(after: float | None = None) -> ModelError:
    return ModelError("busy", retryable=True, retry_after=after)


def quick(**more: Any) -> RetryAdvisor:
    return RetryAdvisor(wait=wait_none(), **more)


@pytest.mark.parametrize("after_first_chunk", ["raise", "attempt"])
async def test_it_keeps_the_laws(after_first_chunk: Any) -> None:
    await check_advisor(lambda: quick(after_first_chunk=after_first_chunk))


async def test_an_attempt_that_is_withdrawn_keeps_the_laws() -> None:
    failing = ["Five ", ModelError("cut", retryable=True)]
    await check_advisor(
        lambda: quick(after_first_chunk="attempt"), script=(failing, "One, two, three."), passes_errors=False
    )


# -- what is asked again


@both
@pytest.mark.parametrize("make", [busy, lambda: ModelTimeoutError("slow"), ConnectionResetError, TimeoutError])
async def test_an_error_that_may_pass_is_retried(mode: Mode, make: Callable[[], Exception], clock: Hasty) -> None:
    model = ScriptedModel(make(), make(), "fine")
    response = await ask(mode, AdvisorChain(model, [RetryAdvisor()]), "q")
    assert (response.text, len(model.requests)) == ("fine", 3)
    first, second = clock.slept
    assert 0 <= first <= 0.5
    assert 0 <= second <= 1


@both
@pytest.mark.parametrize(
    "error",
    [
        ModelError("bad key", status=401),
        ContextLengthError("long"),
        ModelResponseError("nonsense"),
        ValueError("mine"),
        OSError("disk"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_that_stays_is_raised_at_once_as_it_is(mode: Mode, error: Exception) -> None:
    model = ScriptedModel(error, repeat=True)
    with pytest.raises(type(error)) as raised:
        await ask(mode, AdvisorChain(model, [quick()]), "q")
    assert raised.value is error
    assert len(model.requests) == 1
    assert not [note for note in getattr(error, "__notes__", ()) if "attempt" in note]


@both
@pytest.mark.parametrize(
    "error",
    [InvalidInputError("x"), ConfigurationError("x"), LimitExceededError("x", retry_after=1), LeaseLostError("x")],
    ids=lambda error: type(error).__name__,
)
async def test_some_errors_are_never_retried(mode: Mode, error: Exception) -> None:
    model = ScriptedModel(error, repeat=True)
    with pytest.raises(type(error)):
        await ask(mode, AdvisorChain(model, [quick(retry=retry_always)]), "q")
    assert len(model.requests) == 1


@both
async def test_the_last_error_is_raised_as_it_is_and_tells_the_number_of_attempts(mode: Mode, clock: Hasty) -> None:
    errors = [busy(), ConnectionError("down"), ModelTimeoutError("slow")]
    model = ScriptedModel(*errors, "never")
    with pytest.raises(ModelTimeoutError) as raised:
        await ask(mode, AdvisorChain(model, [RetryAdvisor()]), "q")
    assert raised.value is errors[2]
    assert "advisor `retry`: attempt 3 was the last" in raised.value.__notes__
    assert len(clock.slept) == 2


@both
async def test_another_kind_of_error_ends_it(mode: Mode) -> None:
    model = ScriptedModel(busy(), ModelError("bad key"), "never")
    with pytest.raises(ModelError, match="bad key") as raised:
        await ask(mode, AdvisorChain(model, [quick()]), "q")
    assert "advisor `retry`: attempt 2 was the last" in raised.value.__notes__


@both
async def test_cancellation_is_not_retried(mode: Mode) -> None:
    async def model(request: ChatRequest) -> str:
        asked.append(request)
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    asked: list[ChatRequest] = []
    with anyio.CancelScope() as scope:
        await ask(mode, AdvisorChain(model, [quick(retry=retry_always)]), "q")
    assert scope.cancelled_caught
    assert len(asked) == 1


@both
async def test_cancelled_while_it_waits(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.put(retry_module)
    recorder, model = RecordingAdvisor("outer", HIGHEST_PRECEDENCE), ScriptedModel(busy(), "never")
    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, AdvisorChain(model, [recorder, RetryAdvisor()]), "q")
        while not clock.slept:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert [outcome.status for outcome in recorder.outcomes] == ["cancelled"]
    assert len(model.requests) == 1


# -- how long is waited


@both
async def test_a_providers_hint_is_waited_for(mode: Mode, clock: Hasty) -> None:
    model = ScriptedModel(busy(7.5), busy(0.5), "fine")
    await ask(mode, AdvisorChain(model, [RetryAdvisor(wait=wait_fixed(2))]), "q")
    assert clock.slept == [7.5, 2]


@both
async def test_a_hint_beyond_the_cap_is_not_waited_for(mode: Mode, clock: Hasty) -> None:
    error = busy(60.5)
    with pytest.raises(ModelError) as raised:
        await ask(mode, AdvisorChain(ScriptedModel(error, "never"), [RetryAdvisor()]), "q")
    assert raised.value is error
    assert "advisor `retry`: attempt 1 was the last" in error.__notes__
    assert clock.slept == []


async def test_strategies_see_the_state_of_their_call(clock: Hasty) -> None:
    seen: list[tuple[int, str, float]] = []

    def stop(state: RetryCallState) -> bool:
        assert state.outcome is not None
        seen.append((state.attempt_number, str(state.outcome.exception()), state.upcoming_sleep))
        return False

    chain = AdvisorChain(
        ScriptedModel(busy(3.0), ConnectionError("down"), "fine"), [RetryAdvisor(stop=stop, wait=wait_fixed(1))]
    )
    assert (await chain.call("q")).text == "fine"
    assert seen == [(1, "busy", 3.0), (2, "down", 1.0)]


async def test_strategies_are_joined_as_tenacity_joins_them(clock: Hasty) -> None:
    model = ScriptedModel(busy(), busy(), busy(), "never")
    stop = stop_after_attempt(5) | stop_before_delay(2.5)
    with pytest.raises(ModelError):
        await AdvisorChain(model, [RetryAdvisor(stop=stop, wait=wait_fixed(1) + wait_fixed(2))]).call("q")
    assert (len(model.requests), clock.slept) == (1, [])


async def test_calls_at_one_time_have_attempts_of_their_own() -> None:
    failures: dict[str, int] = {}

    async def model(request: ChatRequest) -> str:
        who = request.messages[-1].text
        failures[who] = failures.get(who, 0) + 1
        await anyio.lowlevel.checkpoint()
        if failures[who] < 3:
            raise ConnectionError(who)
        return who

    chain, answers = AdvisorChain(model, [quick()]), []

    async def one(who: str) -> None:
        answers.append((await chain.call(who)).text)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(one, str(number))
    assert sorted(answers) == ["0", "1", "2", "3", "4"]
    assert set(failures.values()) == {3}


# -- after something was shown


async def heard(chain: AdvisorChain, **more: Any) -> tuple[list[ChatChunk], ChatResponse]:
    chunks: list[ChatChunk] = []
    response = await ask("stream", chain, "q", chunks, **more)
    return chunks, response


async def test_what_was_shown_is_not_shown_again() -> None:
    model = ScriptedModel(["One ", busy()], "never")
    chunks: list[ChatChunk] = []
    with pytest.raises(ModelError):
        await ask("stream", AdvisorChain(model, [quick()]), "q", chunks)
    assert ([chunk.text for chunk in chunks], len(model.requests)) == (["One "], 1)


async def test_a_call_has_shown_nothing() -> None:
    model = ScriptedModel(["One ", busy()], "Two.")
    assert (await AdvisorChain(model, [quick()]).call("q")).text == "Two."


async def test_a_chunk_of_nothing_has_shown_nothing() -> None:
    chunks, response = await heard(AdvisorChain(ScriptedModel(["", busy()], "fine"), [quick()]))
    assert response.text == "fine"
    assert all(chunk.boundary is None for chunk in chunks)


BEGUN = ChatChunk(usage=Usage(7, 1), metadata={"id": "m-1", "model": "first", "left": 3})


async def test_what_a_failed_attempt_told_before_it_showed_something_goes_with_it() -> None:
    # as Anthropic and OpenAI's Responses begin: an id and usage, and then perhaps that they are overloaded
    model = ScriptedModel([BEGUN, busy()], [ChatChunk(metadata={"id": "m-2"}), "fine"])
    chunks, response = await heard(AdvisorChain(model, [quick()]))
    assert (response.text, response.id, response.model, response.usage) == ("fine", "m-2", None, None)
    assert fold_chunks(chunks) == response
    assert all(chunk.boundary is None for chunk in chunks)


async def test_what_was_shown_stays_while_the_next_attempt_has_told_its_id_alone() -> None:
    model = ScriptedModel(["One ", busy()], [BEGUN, busy()], [BEGUN, "Three"])
    chunks, response = await heard(AdvisorChain(model, [quick(after_first_chunk="attempt")]))
    assert [(chunk.text, chunk.withdraws) for chunk in chunks] == [("One ", 0), ("", 1), ("", 0), ("Three", 0)]
    assert (response.text, response.id, response.usage) == ("Three", "m-1", Usage(7, 1))
    assert fold_chunks(chunks) == response


async def test_an_answer_of_nothing_passes_with_all_that_it_told() -> None:
    chunks, response = await heard(AdvisorChain(ScriptedModel([BEGUN]), [quick()]))
    assert (chunks, response.id, response.text) == ([BEGUN], "m-1", "")


async def test_a_partial_answer_tells_nothing_of_what_was_withdrawn() -> None:
    model = ScriptedModel([BEGUN, "One ", busy()], [ChatChunk(metadata={"id": "m-2"}), "Two ", "three"])
    async with AdvisorChain(model, [quick(after_first_chunk="attempt")]).stream("q") as stream:
        async for chunk in stream:
            if chunk.text == "Two ":
                break
        partial = stream.partial
    assert partial is not None
    assert (partial.text, partial.id, partial.model, partial.usage, partial.metadata) == ("Two ", "m-2", None, None, {})


@pytest.mark.parametrize("piece", [ChatChunk(reasoning="hm"), ChatChunk(finish_reason="stop"), ChatChunk(refusal="no")])
async def test_a_chunk_of_something_else_than_text_has_shown_something(piece: ChatChunk) -> None:
    with pytest.raises(ModelError):
        await heard(AdvisorChain(ScriptedModel([piece, busy()], "never"), [quick()]))


async def test_another_attempt_takes_back_what_was_shown() -> None:
    spent = ChatChunk(usage=Usage(100, 100))
    model = ScriptedModel(["One ", spent, busy()], ["Tw", busy()], ["Three", ChatChunk(usage=Usage(3, 4))])
    memory = MessageChatMemoryAdvisor(ChatMemory())
    chain = AdvisorChain(model, [memory, quick(after_first_chunk="attempt")])
    chunks, response = await heard(chain, conversation_id="c")
    told = [(chunk.text, chunk.boundary, chunk.withdraws) for chunk in chunks if chunk.text or chunk.boundary]
    withdrawn = ("", "attempt", 1)
    assert told == [("One ", None, 0), withdrawn, ("Tw", None, 0), withdrawn, ("Three", None, 0)]
    assert (response.text, response.earlier, response.usage) == ("Three", (), Usage(3, 4))
    assert texts(await stored(memory.chat_memory)) == ["q", "Three"]


async def test_an_attempt_that_shows_nothing_takes_nothing_back() -> None:
    model = ScriptedModel(["One ", busy()], busy(), ChatResponse("Three", "stop"))
    chunks, response = await heard(AdvisorChain(model, [quick(after_first_chunk="attempt")]))
    assert [(chunk.text, chunk.withdraws) for chunk in chunks] == [("One ", 0), ("", 1), ("Three", 0)]
    assert response.text == "Three"


async def test_around_a_loop_all_messages_since_the_entry_are_taken_back() -> None:
    tool = asking(("1", "clock", "{}"), text="Let me see. ")
    model = ScriptedModel(tool, ["It is", busy()], tool, "It is four.")
    retry = quick(after_first_chunk="attempt", order=TOOL_CALLING_ORDER - 1)
    chunks, response = await heard(AdvisorChain(model, [retry, HandLoop(clock=lambda: "4")]))
    assert [chunk.withdraws for chunk in chunks if chunk.boundary == "attempt"] == [2]
    assert [message.text for message in response.turn] == ["Let me see. ", "4", "It is four."]


class Plays(AroundAdvisor):
    """Attempts as written: texts of messages, and whether it fails in the end."""

    def __init__(self, attempts: list[tuple[list[list[str]], bool]]) -> None:
        self.attempts = iter(attempts)

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        messages, inner_restart = __import__("builtins").next(self.attempts)
        for place, pieces in enumerate(messages):
            if place:
                yield ChatChunk(boundary="attempt" if inner_restart else "round", withdraws=1 if inner_restart else 0)
            for piece in pieces:
                yield ChatChunk(piece)
        if messages and messages[-1][-1:] == ["!"]:
            whole = ["".join(pieces) for pieces in messages]
            earlier = () if inner_restart else tuple(AssistantMessage(text) for text in whole[:-1])
            yield ChatResponse(whole[-1], earlier=earlier)
            return
        raise ConnectionError


piece = st.sampled_from(["a", "b", "", "c d"])
failed = st.tuples(st.lists(st.lists(piece, max_size=3), max_size=3), st.booleans())
last = st.tuples(
    st.lists(st.lists(piece, max_size=3), max_size=3).map(lambda messages: [*messages, ["the end", "!"]]), st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(failed, max_size=3), last)
def test_what_counts_of_a_stream_is_the_last_attempt(attempts: list[Any], ending: Any) -> None:
    async def check() -> None:
        advisors = [quick(after_first_chunk="attempt", stop=stop_after_attempt(9)), Plays([*attempts, ending])]
        advisors[1].order = advisors[0].order + 1
        recorder = RecordingAdvisor("outer", HIGHEST_PRECEDENCE)
        fold = Fold()
        async with AdvisorChain(answerless, [recorder, *advisors]).stream("q") as stream:
            async for chunk in stream:
                fold.add(chunk)
        counted, texts = fold.response(), [message.text for message in stream.response.turn]
        assert [message.text for message in counted.turn] == texts
        seen = next(seen.response for seen in recorder.log if seen.hook == "after")
        assert seen is not None
        assert [message.text for message in seen.turn] == texts

    anyio.run(check)


async def answerless(request: ChatRequest) -> str:
    raise AssertionError("never asked")


async def test_a_reader_who_leaves_is_not_answered_again() -> None:
    closes: list[str] = []

    async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
        try:
            yield "One "
            yield "two"
        finally:
            closes.append("closed")
            raise ConnectionError("while closing")

    chain = AdvisorChain(model, [quick(after_first_chunk="attempt")])
    with pytest.raises(ConnectionError, match="while closing"):
        async with chain.stream("q") as stream:
            async for _ in stream:
                break
    assert closes == ["closed"]


async def test_a_reader_who_is_cancelled_between_attempts_keeps_what_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.put(retry_module)
    memory, model = MessageChatMemoryAdvisor(ChatMemory()), ScriptedModel(["One ", busy()], "never")
    chain = AdvisorChain(model, [memory, RetryAdvisor(after_first_chunk="attempt")])
    async with anyio.create_task_group() as group:

        async def read() -> None:
            await heard(chain, conversation_id="c")

        group.start_soon(read)
        while not clock.slept:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    question, answer = await stored(memory.chat_memory)
    assert (question.text, answer.text, answer.partial) == ("q", "One ", True)


# -- around other parts


@both
async def test_B087_the_shipped_retry_around_memory_starts_from_clean_state(mode: Mode) -> None:
    data = given_data("B087")
    memory = MessageChatMemoryAdvisor(ChatMemory())
    model = ScriptedModel(*[busy()] * data["failures_before_success"], "a1")
    with pytest.warns(AdvisorOrderWarning):
        chain = AdvisorChain(model, [quick(order=HIGHEST_PRECEDENCE), memory])
    await ask(mode, chain, "q1", conversation_id="c")
    assert [message.role for message in await stored(memory.chat_memory)] == data["expect_store"]
    assert [texts(prompt) for prompt in model.prompts] == [["q1"]] * 3


@both
async def test_B088_after_retries_that_failed_for_good_the_next_prompt_is_valid(mode: Mode) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory())
    model = ScriptedModel(busy(), busy(), busy(), "a2")
    chain = AdvisorChain(model, [memory, quick()])
    with pytest.raises(ModelError):
        await ask(mode, chain, "q1", conversation_id="c")
    await ask(mode, chain, "q2", conversation_id="c")
    assert texts(model.prompts[-1]) == ["q2"]  # a turn that failed leaves nothing
    assert texts(await stored(memory.chat_memory)) == ["q2", "a2"]


@both
async def test_B147_keys_do_not_get_into_spans_or_logs_when_a_call_is_retried(
    mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    key = given_data("B147")["api_key"]

    class Keyed:
        name, provider = "keyed", "tests"
        asked = 0

        def __init__(self, api_key: str) -> None:
            self.headers = {"authorization": f"Bearer {api_key}"}

        async def call(self, request: ChatRequest) -> str:
            self.asked += 1
            if self.asked == 1:
                raise ConnectionError(f"refused: {self.headers}")
            return "the answer"

    caplog.set_level(logging.DEBUG)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    model = Keyed(key)
    chain = AdvisorChain(model, [quick()], telemetry=Telemetry(tracer_provider=provider))
    await ask(mode, chain, "the question", system="the system text")
    told = "".join(span.to_json() for span in exporter.get_finished_spans()) + caplog.text
    assert model.asked == 2
    assert [
        span.attributes["advisorchain.advisor.next_calls"]
        for span in exporter.get_finished_spans()
        if span.name == "advisor retry"
    ] == [2]
    for secret in (key, "the question", "the answer", "the system text"):
        assert secret not in told


# -- where it stands


@pytest.mark.parametrize(
    ("inner", "told"),
    [
        (MessageChatMemoryAdvisor(ChatMemory()), "goes through `memory` again, from the start of the turn"),
        (CacheAdvisor(), "goes through `cache` again"),
        (ToolCallingAdvisor([]), "runs the tools of `tools` again"),
        (UsageLimitAdvisor(calls=9), "is a call in the budget of `usage_limit`"),
        (FallbackAdvisor(ScriptedModel()), "asks all models of `fallback` again"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_around_what_belongs_around_it_a_retry_is_misplaced(inner: Any, told: str) -> None:
    with pytest.warns(AdvisorOrderWarning, match=f"advisor `retry`: each attempt {told}.*an `order` above {inner.order}$"):
        AdvisorChain(ScriptedModel(), [quick(order=HIGHEST_PRECEDENCE), inner])
    with warnings.catch_warnings(action="error"):
        AdvisorChain(ScriptedModel(), [quick(), inner])
        AdvisorChain(ScriptedModel(), [quick(order=inner.order + 1), inner])


def test_the_highest_order_that_it_names_is_the_cure_for_all_of_them() -> None:
    inner: list[Any] = [MessageChatMemoryAdvisor(ChatMemory()), FallbackAdvisor(ScriptedModel())]
    with pytest.warns(AdvisorOrderWarning) as warned:
        AdvisorChain(ScriptedModel(), [quick(order=HIGHEST_PRECEDENCE), *inner])
    cure = max(int(str(warning.message).rpartition(" ")[2]) for warning in warned)
    with warnings.catch_warnings(action="error"):
        AdvisorChain(ScriptedModel(), [quick(order=cure + 1), *inner])


# -- made wrongly


@both
@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_the_number_of_attempts_is_an_argument(mode: Mode, attempts: int) -> None:
    model = ScriptedModel(busy(), repeat=True)
    with pytest.raises(ModelError) as raised:
        await ask(mode, AdvisorChain(model, [quick(attempts=attempts)]), "q")
    assert len(model.requests) == attempts
    assert raised.value.__notes__[0] == f"advisor `retry`: attempt {attempts} was the last"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"stop": 3}, "`stop` is 3; give `attempts=3`"),
        ({"stop": "3"}, "`stop` is a str"),
        ({"attempts": 0}, "`attempts` is 0"),
        ({"attempts": 2.0}, "`attempts` is 2.0"),
        ({"attempts": 3, "stop": stop_after_attempt(3)}, "`attempts` and `stop` are both given"),
        ({"wait": wait_none}, "`wait` is the class `wait_none`"),
        ({"retry": None}, "`retry` is None"),
        ({"max_retry_after": -1}, "`max_retry_after` is -1"),
        ({"max_retry_after": float("nan")}, "`max_retry_after` is nan"),
        ({"max_retry_after": True}, "`max_retry_after` is True"),
        ({"after_first_chunk": "again"}, "`after_first_chunk` is 'again'"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        RetryAdvisor(**arguments)


def test_an_async_strategy_is_refused() -> None:
    async def wait(state: RetryCallState) -> float:
        return 0

    with pytest.raises(ConfigurationError, match="`wait` is async"):
        RetryAdvisor(wait=wait)


def test_the_missing_library_names_the_command() -> None:
    code = "import sys; sys.modules['tenacity'] = None; import advisorchain.advisors.retry"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'MissingExtraError: retries need tenacity: pip install "advisorchain[retry]"' in ended.stderr
