"""So many calls at one time: a slot is held for all of a stream, handed on in turn, and never lost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisors import concurrency_limit as concurrency_limit_module
from advisorchain.advisors.concurrency_limit import ConcurrencyLimitAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, LimitExceededError
from advisorchain.exchange import ChatRequest
from advisorchain.messages import UserMessage
from advisorchain.testing import Pause, ScriptedModel, check_advisor

from .._asking import MODES, Mode, ask
from ._clock import Clock, settle

both = pytest.mark.parametrize("mode", MODES)


class Counting:
    """Counts who is inside at one time; whoever is, waits for `go`."""

    name, provider = "counting", "tests"

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.order: list[str] = []
        self.go = anyio.Event()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str, None]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(request.messages[-1].text)
        try:
            yield "One "
            await self.go.wait()
            await checkpoint()
            yield "two."
        finally:
            self.inside -= 1


def free(advisor: ConcurrencyLimitAdvisor) -> int:
    return advisor._slots._free


async def test_it_keeps_the_laws() -> None:
    made = []

    def make() -> ConcurrencyLimitAdvisor:
        made.append(ConcurrencyLimitAdvisor(2))
        return made[-1]

    await check_advisor(make)
    assert [free(advisor) for advisor in made] == [2] * len(made)


@both
@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_no_more_are_inside_than_the_limit_and_they_come_in_turn(mode: Mode, limit: int) -> None:
    model, advisor = Counting(), ConcurrencyLimitAdvisor(limit)
    chain = AdvisorChain(model, [advisor])
    async with anyio.create_task_group() as group:
        for who in "abcdef":
            group.start_soon(ask, mode, chain, who)
            await settle()
        assert model.inside == limit
        model.go.set()
    assert (model.most, free(advisor)) == (limit, limit)
    if limit == 1:  # of those that are called at one time, trio draws by lot who runs first
        assert model.order == list("abcdef")
    else:
        assert sorted(model.order[:limit]) == list("abcdef"[:limit])


@both
@pytest.mark.parametrize("error", [ValueError("x"), ConnectionError("x")])
async def test_a_call_that_fails_gives_its_slot_back(mode: Mode, error: Exception) -> None:
    advisor = ConcurrencyLimitAdvisor(1, max_wait=0)
    for _ in range(2):
        with pytest.raises(type(error)):
            await ask(mode, AdvisorChain(ScriptedModel(["One ", error]), [advisor]), "q")
    assert free(advisor) == 1


async def test_a_stream_holds_its_slot_until_it_is_left_also_by_another_task() -> None:
    model, advisor = Counting(), ConcurrencyLimitAdvisor(1, max_wait=0)
    chain = AdvisorChain(model, [advisor])
    stream = await chain.stream("q").__aenter__()
    assert (await anext(aiter(stream))).text == "One "
    with pytest.raises(LimitExceededError, match="1 calls are under way") as raised:
        await chain.call("q")
    assert raised.value.retry_after is None
    assert free(advisor) == 0
    async with anyio.create_task_group() as group:
        group.start_soon(stream.aclose)
    assert (free(advisor), model.inside) == (1, 0)


@both
async def test_who_is_cancelled_while_waiting_takes_no_slot(mode: Mode) -> None:
    model, advisor = Counting(), ConcurrencyLimitAdvisor(1)
    chain = AdvisorChain(model, [advisor])
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await ask(mode, chain, "b")

    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, chain, "a")
        await settle()
        group.start_soon(cancelled)
        await settle()
        group.start_soon(ask, mode, chain, "c")
        await settle()
        scope.cancel()
        await settle()
        model.go.set()
    assert (model.order, free(advisor)) == (["a", "c"], 1)


async def test_who_is_cancelled_just_when_the_slot_comes_hands_it_on() -> None:
    advisor = ConcurrencyLimitAdvisor(1)
    request, scope, got = ChatRequest((UserMessage("q"),)), anyio.CancelScope(), list[str]()
    holder = await advisor.before(request)

    async def waits(who: str) -> None:
        passed = await advisor.before(request)
        got.append(who)
        advisor.done(passed, None)

    async def cancelled() -> None:
        with scope:
            await waits("b")

    async with anyio.create_task_group() as group:
        group.start_soon(cancelled)
        await settle()
        group.start_soon(waits, "c")
        await settle()
        advisor.done(holder, None)
        scope.cancel()
    assert got[-1] == "c"
    assert free(advisor) == 1


@pytest.mark.parametrize("max_wait", [0, 5])
async def test_who_waits_too_long_is_refused_and_leaves_the_line(max_wait: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pause, advisor = Clock(monkeypatch), Pause(), ConcurrencyLimitAdvisor(1, max_wait=max_wait)
    clock.put(concurrency_limit_module)
    chain, refused = AdvisorChain(ScriptedModel([pause, "fine"], "next"), [advisor]), list[float]()

    async def late() -> None:
        with pytest.raises(LimitExceededError, match=f"`max_wait` of {max_wait} seconds"):
            await chain.call("b")
        refused.append(clock.now - 1000)

    async with anyio.create_task_group() as group:
        group.start_soon(chain.call, "a")
        await pause.reached.wait()
        group.start_soon(late)
        await clock.pass_while(7)
        pause.go.set()
    assert refused == [max_wait]
    assert (await chain.call("c")).text == "next"
    assert free(advisor) == 1


async def test_any_mix_of_leaving_failing_and_cancelling_loses_no_slot() -> None:
    choose, advisor = random.Random(7), ConcurrencyLimitAdvisor(2)

    async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
        for _ in range(choose.randrange(3)):
            await checkpoint()
        yield "One "
        if choose.random() < 0.3:
            raise ConnectionError
        yield "two."

    chain = AdvisorChain(model, [advisor])

    async def one(number: int) -> None:
        with anyio.CancelScope() as scope:
            if number % 3 == 0:
                group.start_soon(cancel_soon, scope)
            try:
                async with chain.stream("q") as stream:
                    async for _ in stream:
                        if number % 5 == 0:
                            break
            except ConnectionError:
                pass

    async def cancel_soon(scope: anyio.CancelScope) -> None:
        for _ in range(choose.randrange(30)):
            await checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(one, number)
    assert free(advisor) == 2
    assert not advisor._slots._waiting


@pytest.mark.parametrize("backends", [("asyncio", "asyncio"), ("trio", "asyncio"), ("trio", "trio")])
def test_one_object_serves_one_event_loop_after_another(backends: tuple[str, str]) -> None:
    advisor = ConcurrencyLimitAdvisor(1)

    async def busy() -> list[str]:
        pause = Pause()
        chain, answers = AdvisorChain(ScriptedModel([pause, "one"], "two"), [advisor]), list[str]()

        async def one() -> None:
            answers.append((await chain.call("q")).text)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            await pause.reached.wait()
            group.start_soon(one)
            await settle()
            pause.go.set()
        return answers

    for backend in backends:
        assert anyio.run(busy, backend=backend) == ["one", "two"]
    assert free(advisor) == 1


def test_one_object_serves_event_loops_in_several_threads() -> None:
    advisor, answers, most = ConcurrencyLimitAdvisor(2), [], []
    inside: list[int] = []

    async def model(request: ChatRequest) -> str:
        inside.append(1)
        most.append(len(inside))
        await checkpoint()
        inside.pop()
        return "fine"

    async def several() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(one)

    async def one() -> None:
        answers.append((await AdvisorChain(model, [advisor]).call("q")).text)

    threads = [
        threading.Thread(target=anyio.run, args=[several], kwargs={"backend": backend})
        for backend in ("asyncio", "trio") * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == ["fine"] * 60
    assert max(most) <= 2
    assert free(advisor) == 2


def test_a_waiter_whose_event_loop_has_ended_is_passed_over() -> None:
    advisor, loop = ConcurrencyLimitAdvisor(1), asyncio.new_event_loop()
    holder = anyio.run(advisor.before, ChatRequest((UserMessage("q"),)))

    async def begin() -> None:
        waiting.append(asyncio.ensure_future(advisor.before(ChatRequest((UserMessage("q"),)))))
        await settle()

    waiting: list[Any] = []
    loop.run_until_complete(begin())
    loop.run_until_complete(loop.shutdown_asyncgens())
    waiting[0]._log_destroy_pending = False
    loop.close()
    advisor.done(holder, None)
    assert free(advisor) == 1
    waiting.clear()
    assert free(advisor) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"limit": 0}, "`limit` is 0"),
        ({"limit": True}, "`limit` is True"),
        ({"limit": 1, "max_wait": -1}, "`max_wait` is -1"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        ConcurrencyLimitAdvisor(**arguments)
