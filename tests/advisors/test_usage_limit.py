"""Budgets: what is counted, when a request is refused, and how a budget begins anew."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisor import TOOL_CALLING_ORDER
from advisorchain.advisors import usage_limit as usage_limit_module
from advisorchain.advisors.usage_limit import UsageLimitAdvisor, Used
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, LimitExceededError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import Usage
from advisorchain.testing import ScriptedModel, check_advisor

from .._asking import MODES, HandLoop, Mode, ask, asking
from ._clock import Clock

both = pytest.mark.parametrize("mode", MODES)


def using(*usages: Usage) -> ScriptedModel:
    return ScriptedModel(*(ChatResponse("fine", "stop", usage=usage) for usage in usages), repeat=True)


async def test_it_keeps_the_laws() -> None:
    await check_advisor(lambda: UsageLimitAdvisor(total_tokens=10, calls=1000))


@both
@pytest.mark.parametrize(
    ("limit", "answered"),
    [({"total_tokens": 30}, 2), ({"input_tokens": 25}, 3), ({"output_tokens": 5}, 1), ({"calls": 4}, 4)],
)
async def test_a_budget_that_is_used_up_refuses_before_the_model_is_asked(mode: Mode, limit: Any, answered: int) -> None:
    model, advisor = using(Usage(10, 5)), UsageLimitAdvisor(**limit)
    chain = AdvisorChain(model, [advisor])
    for _ in range(answered):
        await ask(mode, chain, "q", conversation_id="c")
    for _ in range(2):
        with pytest.raises(LimitExceededError, match=f"`{next(iter(limit))}` is used up; call `reset`") as raised:
            await ask(mode, chain, "q", conversation_id="c")
    assert raised.value.retry_after is None
    assert len(model.requests) == answered
    assert advisor.used("c") == Used(answered, 10 * answered, 5 * answered, 15 * answered)


async def test_each_conversation_has_a_budget_and_those_without_one_share_one() -> None:
    advisor = UsageLimitAdvisor(calls=1)
    chain = AdvisorChain(using(Usage(1, 1)), [advisor])
    for conversation_id in ("a", "b", None):
        await chain.call("q", conversation_id=conversation_id)
        with pytest.raises(LimitExceededError):
            await chain.call("q", conversation_id=conversation_id)
    assert advisor.used(None) == Used(1, 1, 1, 2)
    assert advisor.used("unknown") == Used()


async def test_whose_budget_it_is_can_be_chosen() -> None:
    advisor = UsageLimitAdvisor(calls=2, key=lambda request: request.context.get("user"))
    chain = AdvisorChain(using(Usage(1, 1)), [advisor])
    for conversation_id in ("a", "b"):
        await chain.call("q", conversation_id=conversation_id, context={"user": 7})
    with pytest.raises(LimitExceededError):
        await chain.call("q", conversation_id="c", context={"user": 7})
    assert advisor.used(7).calls == 2


async def test_reset_begins_anew() -> None:
    advisor = UsageLimitAdvisor(calls=1)
    chain = AdvisorChain(using(Usage(1, 1)), [advisor])
    for _ in range(2):
        await chain.call("q", conversation_id="c")
        advisor.reset("c")
    advisor.reset("unknown")
    assert advisor.used("c") == Used()


async def test_a_budget_begins_anew_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    clock.put(usage_limit_module)
    advisor = UsageLimitAdvisor(calls=1, per_seconds=60)
    chain = AdvisorChain(using(Usage(1, 1)), [advisor])
    await chain.call("q", conversation_id="c")
    clock.advance(20)
    with pytest.raises(LimitExceededError, match="it begins anew in 40 seconds") as raised:
        await chain.call("q", conversation_id="c")
    assert raised.value.retry_after == 40
    clock.advance(40)
    assert advisor.used("c") == Used()
    await chain.call("q", conversation_id="c")
    assert advisor.used("c").calls == 1


async def test_a_stream_that_is_left_or_fails_is_counted_as_far_as_it_was_told() -> None:
    advisor, told = UsageLimitAdvisor(total_tokens=1000), ChatChunk(usage=Usage(10, 1))
    model = ScriptedModel(["One ", told, "two"], ["One ", told, ConnectionError("cut")], ["One ", "two", told])
    chain = AdvisorChain(model, [advisor])
    async with chain.stream("q", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.usage:
                break
    assert advisor.used("c") == Used(1, 10, 1, 11)
    with pytest.raises(ConnectionError):
        await ask("stream", chain, "q", conversation_id="c")
    assert advisor.used("c") == Used(2, 20, 2, 22)
    async with chain.stream("q", conversation_id="c") as stream:
        async for _ in stream:
            break
    assert advisor.used("c") == Used(3, 20, 2, 22)


@both
async def test_a_model_that_tells_nothing_uses_calls_alone(mode: Mode) -> None:
    advisor = UsageLimitAdvisor(total_tokens=1)
    chain = AdvisorChain(ScriptedModel("fine", repeat=True), [advisor])
    for _ in range(3):
        await ask(mode, chain, "q", conversation_id="c")
    assert advisor.used("c") == Used(calls=3)


@pytest.mark.parametrize(
    ("usage", "used"),
    [
        (Usage(3, None), Used(1, 3, 0, 3)),
        (Usage(None, 4), Used(1, 0, 4, 4)),
        (Usage(None, None, 9), Used(1, 0, 0, 9)),
        (Usage(3, 4, 20), Used(1, 3, 4, 20)),
    ],
)
async def test_what_is_not_told_is_none(usage: Usage, used: Used) -> None:
    advisor = UsageLimitAdvisor(total_tokens=100)
    await AdvisorChain(using(usage), [advisor]).call("q", conversation_id="c")
    assert advisor.used("c") == used


@both
async def test_in_a_loop_each_round_is_a_call_around_it_the_turn_is(mode: Mode) -> None:
    spent = ChatChunk(usage=Usage(10, 1))
    for order, calls in ((None, 2), (TOOL_CALLING_ORDER - 1, 1)):
        advisor = UsageLimitAdvisor(calls=9, **({} if order is None else {"order": order}))
        model = ScriptedModel([*asking(("1", "clock", "{}")), spent], ["four", spent])
        await ask(mode, AdvisorChain(model, [advisor, HandLoop(clock=lambda: "4")]), "q", conversation_id="c")
        assert advisor.used("c") == Used(calls, 20, 2, 22)


async def test_calls_at_one_time_do_not_cross_a_limit_of_calls() -> None:
    advisor, results = UsageLimitAdvisor(calls=3), list[str]()

    async def model(request: ChatRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return "fine"

    async def one() -> None:
        try:
            results.append((await AdvisorChain(model, [advisor]).call("q")).text)
        except LimitExceededError:
            results.append("refused")

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(one)
    assert sorted(results) == ["fine"] * 3 + ["refused"] * 2


def test_threads_count_together() -> None:
    advisor = UsageLimitAdvisor(calls=10_000)
    chain = AdvisorChain(using(Usage(1, 1)), [advisor])

    async def many() -> None:
        for _ in range(50):
            await chain.call("q", conversation_id="c")

    threads = [threading.Thread(target=anyio.run, args=[many]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert advisor.used("c") == Used(200, 200, 200, 400)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=40))
def test_memory_is_bounded_and_the_budgets_used_last_are_kept(keys: list[int]) -> None:
    advisor = UsageLimitAdvisor(calls=1000, max_keys=3)

    async def check() -> None:
        chain = AdvisorChain(using(Usage(1, 1)), [advisor])
        for key in keys:
            await chain.call("q", conversation_id=str(key))

    anyio.run(check)
    recent = list(dict.fromkeys(reversed(keys)))[:3]
    assert len(advisor._budgets._used) == len(recent)
    assert all(advisor.used(str(key)).calls >= 1 for key in recent)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "without a limit"),
        ({"calls": 0}, "`calls` is 0"),
        ({"total_tokens": 1.5}, "`total_tokens` is 1.5"),
        ({"calls": 1, "per_seconds": 0}, "`per_seconds` is 0"),
        ({"calls": 1, "max_keys": 0}, "`max_keys` is 0"),
        ({"calls": 1, "key": "user"}, "`key` is a str"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        UsageLimitAdvisor(**arguments)
