"""`timeout=`: advisors see a cancellation, the caller a CallTimeoutError, and the reader's own time does not count."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import AdvisorChainError, CallTimeoutError, InvalidInputError
from advisorchain.exchange import ChatRequest
from advisorchain.memory import ChatMemory
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel


async def test_the_caller_gets_a_timeout_the_advisors_a_cancellation(ask: Any, mode: str) -> None:
    recorder = RecordingAdvisor("a")
    model = ScriptedModel(["one ", Pause(), "never"])
    with pytest.raises(CallTimeoutError, match=r"`timeout` of 0\S* seconds ran out") as raised:
        await ask(AdvisorChain(model, [recorder]), timeout=0)
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, AdvisorChainError)
    [outcome] = recorder.outcomes
    assert outcome.status == "cancelled"
    partial = outcome.response.text if outcome.response else None
    assert partial == ("one " if mode == "stream" else None)
    assert model.open_streams == 0


async def test_a_partial_answer_is_kept_as_of_any_cancellation() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory())
    model = ScriptedModel(["one ", Pause(), "never"], "fine")
    chain = AdvisorChain(model, [memory])
    shown = []
    with pytest.raises(CallTimeoutError):
        async with chain.stream("q", conversation_id="c", timeout=0) as stream:
            async for chunk in stream:
                shown.append(chunk.text)
    assert shown == ["one "]
    assert stream.partial is not None
    assert stream.partial.text == "one "
    page = await memory.chat_memory.history("c")
    assert [entry.message.text for entry in page.items] == ["q", "one "]
    await chain.call("next", conversation_id="c")


async def test_within_its_time_nothing_changes(ask: Any) -> None:
    response = await ask(AdvisorChain(ScriptedModel("fine"), [RecordingAdvisor("a")]), timeout=100)
    assert response.text == "fine"


async def test_a_timeout_of_the_model_itself_is_not_ours(ask: Any) -> None:
    failure = TimeoutError("of the model")
    with pytest.raises(TimeoutError) as raised:
        await ask(AdvisorChain(ScriptedModel([failure])), timeout=100)
    assert raised.value is failure


async def test_a_cancellation_from_outside_is_not_a_timeout(ask: Any) -> None:
    recorder, pause = RecordingAdvisor("a"), Pause()
    chain = AdvisorChain(ScriptedModel([pause, "never"]), [recorder])
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ask(chain, timeout=100))
            await pause.reached.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert [outcome.status for outcome in recorder.outcomes] == ["cancelled"]


async def test_leaving_early_is_no_timeout() -> None:
    recorder = RecordingAdvisor("a")
    model = ScriptedModel(["one", "two"])
    async with AdvisorChain(model, [recorder]).stream("q", timeout=100) as stream:
        async for _ in stream:
            break
    assert [outcome.status for outcome in recorder.outcomes] == ["closed"]
    assert model.open_streams == 0


@pytest.mark.parametrize("timeout", [-1, "5", True, float("nan")])
async def test_seconds_that_are_none(ask: Any, timeout: Any) -> None:
    model = ScriptedModel("fine")
    with pytest.raises(InvalidInputError, match="`timeout`"):
        await ask(AdvisorChain(model), timeout=timeout)
    assert model.requests == []


# on trio's own clock, which jumps: nothing waits
CLOCK = [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)})]


async def slow_model(request: ChatRequest) -> Any:
    for word in ("one ", "two ", "three"):
        await anyio.sleep(3)
        yield word


@pytest.mark.parametrize("anyio_backend", CLOCK)
async def test_the_readers_own_time_does_not_count() -> None:
    async with AdvisorChain(slow_model).stream("q", timeout=10) as stream:
        async for _ in stream:
            await anyio.sleep(100)
    assert stream.response.text == "one two three"


@pytest.mark.parametrize("anyio_backend", CLOCK)
async def test_the_time_of_all_chunks_counts_together() -> None:
    shown = []
    with pytest.raises(CallTimeoutError):
        async with AdvisorChain(slow_model).stream("q", timeout=8) as stream:
            async for chunk in stream:
                shown.append(chunk.text)
                await anyio.sleep(100)
    assert shown == ["one ", "two "]
    with pytest.raises(CallTimeoutError):
        await AdvisorChain(slow_model).call("q", timeout=8)
    assert (await AdvisorChain(slow_model).call("q", timeout=10)).text == "one two three"


@pytest.mark.parametrize("anyio_backend", CLOCK)
async def test_grace_is_one_deadline_for_all_that_has_to_finish() -> None:
    class Slow(RecordingAdvisor):
        async def done(self, request: ChatRequest, outcome: Any) -> None:
            await anyio.sleep(2)
            super().done(request, outcome)

    recorders = [Slow(name) for name in "abcd"]
    async with AdvisorChain(ScriptedModel(["one", "two"]), recorders, grace=5).stream("q") as stream:
        async for _ in stream:
            break
        began = anyio.current_time()
    assert anyio.current_time() - began == 5
    assert [len(recorder.outcomes) for recorder in recorders] == [0, 0, 1, 1]
