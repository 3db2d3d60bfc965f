"""So many calls in so much time: never more in any span, first come first served, across event loops and threads."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisors import rate_limit as rate_limit_module
from advisorchain.advisors.rate_limit import RateLimitAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, LimitExceededError
from advisorchain.exchange import ChatRequest
from advisorchain.testing import check_advisor

from .._asking import MODES, Mode, ask
from ._clock import Clock, Hasty, settle

both = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch)
    clock.put(rate_limit_module)
    return clock


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Hasty:
    hasty = Hasty(monkeypatch)
    hasty.put(rate_limit_module)
    return hasty


async def echo(request: ChatRequest) -> str:
    return request.messages[-1].text


async def test_it_keeps_the_laws() -> None:
    await check_advisor(lambda: RateLimitAdvisor(1000, 60))


async def test_it_keeps_the_laws_while_it_makes_calls_wait(hasty: Hasty) -> None:
    await check_advisor(lambda: RateLimitAdvisor(1, 60))
    assert hasty.slept


@both
async def test_calls_beyond_the_rate_wait_for_their_time(hasty: Hasty, mode: Mode) -> None:
    chain, times = AdvisorChain(echo, [RateLimitAdvisor(2, 10)]), []
    for _ in range(5):
        await ask(mode, chain, "q")
        times.append(hasty.now - 1000)
    assert times == [0, 0, 10, 10, 20]


async def test_first_come_first_served(clock: Clock) -> None:
    chain, served = AdvisorChain(echo, [RateLimitAdvisor(1, 10)]), list[tuple[float, str]]()

    async def one(who: str) -> None:
        answer = await chain.call(who)
        served.append((clock.now - 1000, answer.text))

    async with anyio.create_task_group() as group:
        for who in "abcd":
            group.start_soon(one, who)
            await settle()
        await clock.pass_while(30)
    assert served == [(0, "a"), (10, "b"), (20, "c"), (30, "d")]


async def test_a_place_that_is_given_up_goes_to_who_comes_later(clock: Clock) -> None:
    chain, served = AdvisorChain(echo, [RateLimitAdvisor(1, 10)]), list[tuple[float, str]]()

    async def one(who: str, scope: anyio.CancelScope) -> None:
        with scope:
            answer = await chain.call(who)
            served.append((clock.now - 1000, answer.text))

    async with anyio.create_task_group() as group:
        scopes = {who: anyio.CancelScope() for who in "abc"}
        for who in "ab":
            group.start_soon(one, who, scopes[who])
            await settle()
        scopes["b"].cancel()
        await settle()
        group.start_soon(one, "c", scopes["c"])
        await clock.pass_while(10)
    assert served == [(0, "a"), (10, "c")]


async def test_a_place_may_be_given_up_when_its_time_is_long_over(clock: Clock) -> None:
    chain, scope = AdvisorChain(echo, [RateLimitAdvisor(1, 10)]), anyio.CancelScope()
    await chain.call("a")

    async def late() -> None:
        with scope:
            await chain.call("b")

    async with anyio.create_task_group() as group:
        group.start_soon(late)
        await settle()
        clock.now += 100  # nobody has woken it: the event loop is busy
        assert (await chain.call("c")).text == "c"
        scope.cancel()
    assert scope.cancelled_caught


@both
async def test_who_would_wait_too_long_is_refused_at_once(clock: Clock, mode: Mode) -> None:
    chain = AdvisorChain(echo, [RateLimitAdvisor(1, 10, max_wait=4)])
    await ask(mode, chain, "q")
    clock.advance(5)
    with pytest.raises(LimitExceededError, match="1 calls in 10 seconds") as raised:
        await ask(mode, chain, "q")
    assert raised.value.retry_after == 5
    assert clock.slept == []
    clock.advance(5)  # a refusal takes no place
    assert (await ask(mode, chain, "q")).text == "q"


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.floats(0, 12), st.booleans()), max_size=30))
def test_no_span_ever_has_more_calls_than_the_rate(rate: int, arrivals: list[tuple[float, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        clock.put(rate_limit_module)
        advisor, places = RateLimitAdvisor(rate, 10), []
        for pause, given_up in arrivals:
            clock.now += pause
            place = advisor._reserve()
            assert place.time >= clock.now
            if given_up and place.time > clock.now:
                advisor._places.remove(place)
            else:
                places.append(place.time)
    assert places == sorted(places)
    for earlier, later in zip(places, places[rate:], strict=False):
        assert later - earlier >= 10 - 1e-9


@pytest.mark.parametrize("backends", [("asyncio", "asyncio"), ("trio", "asyncio"), ("trio", "trio")])
def test_one_object_counts_across_event_loops(hasty: Hasty, backends: tuple[str, str]) -> None:
    chain, times = AdvisorChain(echo, [RateLimitAdvisor(1, 10)]), []
    for backend in backends:
        anyio.run(chain.call, "q", backend=backend)
        times.append(hasty.now - 1000)
    assert times == [0, 10]


def test_one_object_counts_across_threads() -> None:
    chain, results = AdvisorChain(echo, [RateLimitAdvisor(5, 3600, max_wait=0)]), []

    def ask_in_a_loop() -> None:
        for _ in range(3):
            try:
                results.append(anyio.run(chain.call, "q").text)
            except LimitExceededError as error:
                results.append(type(error).__name__)

    threads = [threading.Thread(target=ask_in_a_loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["LimitExceededError"] * 7 + ["q"] * 5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"rate": 0}, "`rate` is 0"),
        ({"rate": 1.5}, "`rate` is 1.5"),
        ({"per_seconds": 0}, "`per_seconds` is 0"),
        ({"max_wait": -1}, "`max_wait` is -1"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        RateLimitAdvisor(**{"rate": 1, "per_seconds": 1, **arguments})
