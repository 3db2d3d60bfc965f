"""Retry, fallback, time limits and budgets in one chain around one model, at their own places, with memory outside."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors import rate_limit as rate_limit_module
from advisorchain.advisors import retry as retry_module
from advisorchain.advisors import timeout as timeout_module
from advisorchain.advisors.concurrency_limit import ConcurrencyLimitAdvisor
from advisorchain.advisors.fallback import FallbackAdvisor
from advisorchain.advisors.rate_limit import RateLimitAdvisor
from advisorchain.advisors.retry import RetryAdvisor
from advisorchain.advisors.timeout import TimeoutAdvisor
from advisorchain.advisors.usage_limit import UsageLimitAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ContextLengthError, LimitExceededError, ModelError, ModelTimeoutError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import Usage
from advisorchain.testing import ScriptedModel

from .._asking import MODES, Mode, ask, stored, texts
from ..chain._cancelling import cancelled_at
from ._clock import Hasty

both = pytest.mark.parametrize("mode", MODES)


class Plan:
    """Each time it is asked it streams the next of its answers; an error is raised, a number of seconds passes."""

    name, provider = "plan", "tests"

    def __init__(self, clock: Hasty, *answers: list[Any]) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.asked = 0

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        self.asked += 1
        for piece in self.answers.pop(0):
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, int):
                await checkpoint()
                self.clock.advance(piece)
                await (anyio.sleep_forever() if piece > 10 else checkpoint())
            else:
                yield piece if isinstance(piece, ChatChunk) else ChatChunk(piece)


class Bench:
    """The whole onion."""

    def __init__(self, clock: Hasty, *answers: list[Any], spare: tuple[Any, ...] = (), shown: Any = "raise") -> None:
        self.clock = clock
        self.model, self.spare = Plan(clock, *answers), ScriptedModel(*spare, name="spare")
        self.memory = MessageChatMemoryAdvisor(ChatMemory())
        self.usage = UsageLimitAdvisor(total_tokens=100)
        self.concurrency = ConcurrencyLimitAdvisor(1, max_wait=0)
        advisors = [
            TimeoutAdvisor(20, first_chunk=20, between_chunks=20),
            self.concurrency,
            RateLimitAdvisor(2, 5),
            RetryAdvisor(wait=lambda state: 1, after_first_chunk=shown),
            FallbackAdvisor(self.spare, after_first_chunk=shown),
            self.usage,
            self.memory,
            TimeoutAdvisor(60),
        ]
        self.chain = AdvisorChain(self.model, advisors)

    async def ask(self, mode: Mode, *seen: list[ChatChunk]) -> ChatResponse:
        return await ask(mode, self.chain, "q", *seen, conversation_id="c")

    async def kept(self) -> list[str]:
        assert self.concurrency._slots._free == 1
        return texts(await stored(self.memory.chat_memory))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hasty:
    hasty = Hasty(monkeypatch)
    hasty.put(retry_module, timeout_module, rate_limit_module)
    return hasty


def busy(after: float | None = None) -> ModelError:
    return ModelError("busy", retryable=True, retry_after=after, status=429)


def test_each_stands_at_its_own_place_whatever_the_sequence(clock: Hasty) -> None:
    assert [row.name for row in Bench(clock).chain.describe()] == [
        "total_timeout",
        "memory",
        "usage_limit",
        "fallback",
        "retry",
        "rate_limit",
        "concurrency_limit",
        "timeout",
    ]


@both
async def test_an_attempt_that_succeeds_is_all_that_is_kept(clock: Hasty, mode: Mode) -> None:
    bench = Bench(clock, [busy(3)], [30], ["Here.", ChatChunk(usage=Usage(10, 5))])
    response = await bench.ask(mode)
    assert (response.text, response.usage, response.metadata) == ("Here.", Usage(10, 5), {})
    assert await bench.kept() == ["q", "Here."]
    assert clock.slept == [3, 1]  # the hint, the policy; the rate has room again by then
    assert bench.usage.used("c").calls == 1


@both
async def test_another_model_answers_when_the_attempts_are_used_up(clock: Hasty, mode: Mode) -> None:
    bench = Bench(clock, [busy()], [ConnectionError("cut")], [busy()], spare=("From the spare.",))
    response = await bench.ask(mode)
    assert (response.text, response.model) == ("From the spare.", "spare")
    assert await bench.kept() == ["q", "From the spare."]
    assert bench.model.asked == 3
    assert clock.slept == [1, 1, 3]  # between the attempts; the third has to wait for its permit


@both
async def test_a_model_that_hangs_is_left_for_another(clock: Hasty, mode: Mode) -> None:
    bench = Bench(clock, [15], [15], [15], spare=("From the spare.",))
    limit = TimeoutAdvisor(10, first_chunk=10)
    bench.chain = bench.chain.replacing("timeout", limit)
    assert (await bench.ask(mode)).text == "From the spare."
    assert bench.model.asked == 3
    assert await bench.kept() == ["q", "From the spare."]


@both
async def test_when_all_fail_the_error_of_the_first_model_keeps_its_type_and_nothing_is_kept(
    clock: Hasty, mode: Mode
) -> None:
    error = ContextLengthError("too long")
    bench = Bench(clock, [error], spare=(busy(),))
    with pytest.raises(ContextLengthError) as raised:
        await bench.ask(mode)
    assert raised.value is error
    assert error.__notes__ == ["model `spare` of advisor `fallback` failed too: ModelError"]
    assert bench.model.asked == 1
    assert await bench.kept() == []


@both
async def test_the_next_turn_after_one_that_failed_is_valid(clock: Hasty, mode: Mode) -> None:
    bench = Bench(clock, [busy()], [busy()], [busy()], ["Here."], spare=(busy(),))
    with pytest.raises(ModelError) as raised:
        await bench.ask(mode)
    assert "advisor `retry`: attempt 3 was the last" in raised.value.__notes__
    assert (await bench.ask(mode)).text == "Here."
    assert await bench.kept() == ["q", "Here."]


@both
async def test_a_budget_that_is_used_up_is_neither_retried_nor_evaded(clock: Hasty, mode: Mode) -> None:
    bench = Bench(clock, ["Here.", ChatChunk(usage=Usage(90, 10))], ["never"], spare=("never",))
    await bench.ask(mode)
    with pytest.raises(LimitExceededError, match="`total_tokens` is used up"):
        await bench.ask(mode)
    assert (bench.model.asked, len(bench.spare.requests)) == (1, 0)
    assert await bench.kept() == ["q", "Here."]


@both
async def test_the_total_ends_all_that_is_further_in(clock: Hasty, mode: Mode) -> None:
    bench = Bench(clock, [busy(59)], [15], spare=("never",))
    with pytest.raises(ModelTimeoutError, match="`total` of 60 seconds ran out") as raised:
        await bench.ask(mode)
    assert "in advisor `total_timeout`, order -2147483548" in raised.value.__notes__
    assert (bench.model.asked, len(bench.spare.requests)) == (2, 0)
    assert await bench.kept() == []


@pytest.mark.parametrize("failure", [busy(), 30], ids=["an error", "silence"])
async def test_in_mid_stream_each_attempt_takes_the_place_of_the_one_before(clock: Hasty, failure: Any) -> None:
    bench = Bench(clock, *[["One ", failure]] * 3, spare=(["From ", "the spare."],), shown="attempt")
    bench.chain = bench.chain.without("total_timeout")
    chunks: list[ChatChunk] = []
    response = await bench.ask("stream", chunks)
    shown = [""]
    for chunk in chunks:
        if chunk.boundary == "attempt":
            assert chunk.withdraws == 1
            shown.append("")
        shown[-1] += chunk.text
    assert shown == ["One ", "One ", "One ", "From the spare."]
    assert response.text == "From the spare."
    assert await bench.kept() == ["q", "From the spare."]


async def test_in_mid_stream_an_error_goes_on_by_default_and_nothing_is_kept(clock: Hasty) -> None:
    bench, chunks = Bench(clock, ["One ", busy()], spare=("never",)), list[ChatChunk]()
    with pytest.raises(ModelError, match="busy"):
        await bench.ask("stream", chunks)
    assert [chunk.text for chunk in chunks] == ["One "]
    assert (bench.model.asked, len(bench.spare.requests)) == (1, 0)
    assert await bench.kept() == []


async def test_a_reader_who_leaves_keeps_the_partial_answer_and_frees_all(clock: Hasty) -> None:
    bench = Bench(clock, [busy()], ["One ", "two."], spare=("never",), shown="attempt")
    async with bench.chain.stream("q", conversation_id="c") as stream:
        async for _ in stream:
            break
    assert await bench.kept() == ["q", "One "]


@both
@pytest.mark.parametrize("shown", ["raise", "attempt"])
async def test_cancelled_at_every_await_nothing_is_left_taken_or_half_kept(clock: Hasty, mode: Mode, shown: Any) -> None:
    outcomes: set[tuple[str, ...]] = set()
    for awaits in range(1, 200):
        answers = [[1, busy()], [1, "One ", 1, busy()], [1, "One ", 1, "two.", 1]]
        bench = Bench(clock, *answers, spare=(["From ", "the spare."],), shown=shown)
        clock.advance(1000)
        with anyio.CancelScope() as scope:
            try:
                await cancelled_at(awaits, bench.ask(mode), scope)
            except ModelError:
                assert (mode, shown) == ("stream", "raise")
        outcomes.add(tuple(await bench.kept()))
        assert bench.spare.open_streams == 0
        if not scope.cancel_called:
            break
    else:
        pytest.fail("the turn has no end")
    assert awaits > 5
    if mode == "call":
        assert outcomes == {(), ("q", "One two.")}
    elif shown == "attempt":
        assert outcomes == {(), ("q", "One "), ("q", "One two.")}
    else:  # the second attempt fails in mid-stream, for good
        assert outcomes == {(), ("q", "One ")}
