"""Limits on time: which one ran out, whose time counts, and what others around and inside see of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisor import CHAT_MEMORY_ORDER, HIGHEST_PRECEDENCE
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors import timeout as timeout_module
from advisorchain.advisors.timeout import TimeoutAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, ModelError, ModelTimeoutError
from advisorchain.exchange import ChatChunk, ChatRequest
from advisorchain.memory import ChatMemory
from advisorchain.messages import Message, Usage
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, check_advisor

from .._asking import MODES, Mode, ask, stored
from ._clock import Clock

both = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch)
    clock.put(timeout_module)
    return clock


class Slow:
    """Streams pieces, each after some seconds; None instead of one: it says nothing any more."""

    name, provider = "slow", "tests"

    def __init__(self, clock: Clock, *pieces: tuple[float, str | ChatChunk | None]) -> None:
        self.clock = clock
        self.pieces = pieces
        self.closed = 0

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatChunk, None]:
        try:
            for seconds, piece in self.pieces:
                await checkpoint()
                self.clock.advance(seconds)
                await (anyio.sleep_forever() if piece is None else checkpoint())
                yield piece or ""
        finally:
            self.closed += 1


@pytest.mark.parametrize(
    "limits",
    [{"total": 60}, {"first_chunk": 60}, {"between_chunks": 60}, {"total": 60, "first_chunk": 60, "between_chunks": 60}],
)
async def test_it_keeps_the_laws(limits: Any) -> None:
    await check_advisor(lambda: TimeoutAdvisor(**limits))


@pytest.mark.parametrize(
    ("limits", "pieces", "limit"),
    [
        ({"total": 5}, [(3, "a"), (2, None)], "total"),
        ({"total": 5}, [(5, None)], "total"),
        ({"first_chunk": 5, "total": 9}, [(5, None)], "first_chunk"),
        ({"first_chunk": 5}, [(2, ""), (3, None)], "first_chunk"),
        ({"between_chunks": 2}, [(1, "a"), (2, None)], "between_chunks"),
        ({"first_chunk": 9, "between_chunks": 2}, [(8, "a"), (2, None)], "between_chunks"),
        ({"total": 5, "between_chunks": 3}, [(1, "a"), (2, "b"), (2, None)], "total"),
    ],
)
async def test_a_stream_that_takes_too_long_is_told_which_limit_ran_out(
    clock: Clock, limits: Any, pieces: Any, limit: str
) -> None:
    model, chunks = Slow(clock, *pieces), list[ChatChunk]()
    with pytest.raises(ModelTimeoutError, match=f"`{limit}` of {limits[limit]} seconds ran out") as raised:
        await ask("stream", AdvisorChain(model, [TimeoutAdvisor(**limits)]), "q", chunks)
    assert [chunk.text for chunk in chunks] == [text for _, text in pieces if text is not None]
    assert raised.value.retryable
    assert isinstance(raised.value, TimeoutError)
    assert model.closed == 1


BEGUN = ChatChunk(usage=Usage(7, 1), metadata={"id": "m-1"})  # as Anthropic and OpenAI's Responses begin


@pytest.mark.parametrize(
    ("limits", "pieces", "limit"),
    [
        ({"first_chunk": 5}, [(2, BEGUN), (3, None)], "first_chunk"),
        ({"first_chunk": 5}, [(2, BEGUN), (2, ChatChunk(usage=Usage(7, 2))), (1, None)], "first_chunk"),
        ({"first_chunk": 5, "between_chunks": 1}, [(1, BEGUN), (3, "a"), (1, None)], "between_chunks"),
    ],
)
async def test_an_id_and_usage_alone_are_not_the_first_chunk(clock: Clock, limits: Any, pieces: Any, limit: str) -> None:
    model = Slow(clock, *pieces)
    with pytest.raises(ModelTimeoutError, match=f"`{limit}` of {limits[limit]} seconds ran out"):
        await ask("stream", AdvisorChain(model, [TimeoutAdvisor(**limits)]), "q")
    assert model.closed == 1


@pytest.mark.parametrize(
    ("limits", "pieces"),
    [
        ({"total": 6}, [(3, "a"), (2, "b")]),
        ({"first_chunk": 3}, [(2, "a"), (50, "b")]),
        ({"first_chunk": 3, "between_chunks": 2}, [(2, "a"), (1, "b"), (1, "c"), (1, "d")]),
        ({"between_chunks": 2}, [(50, "a"), (1, "b")]),
    ],
)
async def test_a_stream_in_time_is_left_alone(clock: Clock, limits: Any, pieces: Any) -> None:
    response = await ask("stream", AdvisorChain(Slow(clock, *pieces), [TimeoutAdvisor(**limits)]), "q")
    assert response.text == "".join(text for _, text in pieces)


async def test_the_readers_own_time_does_not_count(clock: Clock) -> None:
    chain = AdvisorChain(Slow(clock, (1, "a"), (1, "b"), (1, "c")), [TimeoutAdvisor(4, between_chunks=2)])
    async with chain.stream("q") as stream:
        async for _ in stream:
            clock.advance(100)
            await checkpoint()
    assert stream.response.text == "abc"


async def test_a_call_has_total_alone(clock: Clock) -> None:
    limits = {"first_chunk": 1, "between_chunks": 1}
    model = Slow(clock, (3, "a"), (3, "b"))
    assert (await AdvisorChain(model, [TimeoutAdvisor(**limits)]).call("q")).text == "ab"
    assert (await AdvisorChain(model, [TimeoutAdvisor(7, **limits)]).call("q")).text == "ab"
    hangs = Slow(clock, (3, "a"), (3, None))
    with pytest.raises(ModelTimeoutError, match="`total` of 6 seconds ran out"):
        await AdvisorChain(hangs, [TimeoutAdvisor(6, **limits)]).call("q")
    assert hangs.closed == 1


@both
async def test_inside_a_cancellation_is_seen_outside_the_error(clock: Clock, mode: Mode) -> None:
    outer, inner = RecordingAdvisor("outer", HIGHEST_PRECEDENCE), RecordingAdvisor("inner", 9000)
    model = Slow(clock, (1, "a"), (2, None))
    with pytest.raises(ModelTimeoutError) as raised:
        await ask(mode, AdvisorChain(model, [outer, TimeoutAdvisor(3, order=0), inner]), "q")
    assert [outcome.status for outcome in inner.outcomes] == ["cancelled"]
    assert [(outcome.status, outcome.error) for outcome in outer.outcomes] == [("error", raised.value)]
    assert "in advisor `total_timeout`, order 0" in raised.value.__notes__


@both
async def test_an_error_of_the_model_stays(clock: Clock, mode: Mode) -> None:
    error = ModelError("no")
    with pytest.raises(ModelError) as raised:
        await ask(mode, AdvisorChain(ScriptedModel(error), [TimeoutAdvisor(3, between_chunks=1)]), "q")
    assert raised.value is error


@both
async def test_a_cancellation_from_outside_is_no_timeout(mode: Mode) -> None:
    pause = Pause()
    recorder = RecordingAdvisor("outer", HIGHEST_PRECEDENCE)
    chain = AdvisorChain(ScriptedModel(["a", pause]), [recorder, TimeoutAdvisor(60, between_chunks=60)])
    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, chain, "q")
        await pause.reached.wait()
        group.cancel_scope.cancel()
    assert [outcome.status for outcome in recorder.outcomes] == ["cancelled"]


async def kept(chain: AdvisorChain, memory: MessageChatMemoryAdvisor, mode: Mode) -> list[Message]:
    with pytest.raises(ModelTimeoutError):
        await ask(mode, chain, "q", conversation_id="c")
    return await stored(memory.chat_memory)


async def test_outside_memory_what_was_seen_of_a_stream_is_kept_as_a_partial_answer(clock: Clock) -> None:
    memory, timeout = MessageChatMemoryAdvisor(ChatMemory()), TimeoutAdvisor(3)
    assert timeout.order < CHAT_MEMORY_ORDER
    question, answer = await kept(AdvisorChain(Slow(clock, (1, "a"), (2, None)), [memory, timeout]), memory, "stream")
    assert (question.text, answer.text, answer.partial) == ("q", "a", True)


async def test_outside_memory_nothing_of_a_call_is_kept(clock: Clock) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory())
    chain = AdvisorChain(Slow(clock, (1, "a"), (2, None)), [memory, TimeoutAdvisor(3)])
    assert await kept(chain, memory, "call") == []


@both
async def test_inside_memory_it_is_an_error_of_which_nothing_is_kept(clock: Clock, mode: Mode) -> None:
    memory, timeout = MessageChatMemoryAdvisor(ChatMemory()), TimeoutAdvisor(3, first_chunk=9)
    assert timeout.order > CHAT_MEMORY_ORDER
    assert await kept(AdvisorChain(Slow(clock, (1, "a"), (2, None)), [memory, timeout]), memory, mode) == []


async def test_of_an_answer_that_stalls_nothing_is_kept(clock: Clock) -> None:
    memory, timeout = MessageChatMemoryAdvisor(ChatMemory()), TimeoutAdvisor(between_chunks=2)
    chain = AdvisorChain(Slow(clock, (1, "a"), (1, "b"), (2, None)), [memory, timeout])
    assert await kept(chain, memory, "stream") == []


def test_both_kinds_stand_in_one_chain() -> None:
    chain = AdvisorChain(ScriptedModel(), [TimeoutAdvisor(first_chunk=1), TimeoutAdvisor(9)])
    assert [advisor.name for advisor in chain.advisors] == ["total_timeout", "timeout"]


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({}, "without a limit"),
        ({"total": 0}, "`total` is 0"),
        ({"first_chunk": "1"}, "`first_chunk` is '1'"),
        ({"between_chunks": float("inf")}, "`between_chunks` is inf"),
        ({"total": -1.0}, "`total` is -1.0"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(limits: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        TimeoutAdvisor(**limits)
