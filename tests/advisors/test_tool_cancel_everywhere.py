"""A turn with tools that is cancelled at each of its awaits, one after the other: nothing runs on, nothing is half kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from advisorchain.advisor import HIGHEST_PRECEDENCE, TOOL_CALLING_ORDER, BaseAdvisor, Outcome
from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatRequest
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ToolMessage
from advisorchain.testing import ScriptedModel
from advisorchain.testing.models import check_prompt
from advisorchain.tools import tool

from .._asking import MODES, Mode, ask, stored, texts
from ..chain._cancelling import cancelled_at
from ._tool_scripts import asks, looping

both = pytest.mark.parametrize("mode", MODES)


class Workshop:
    """Tools that count what runs, and call `at` at each of their steps."""

    def __init__(self) -> None:
        self.steps = self.running = self.most = 0
        self.at: Callable[[int], None] = lambda step: None

    async def step(self) -> None:
        self.steps += 1
        self.at(self.steps)
        await anyio.lowlevel.checkpoint()

    async def walk(self) -> str:
        """Walk, in steps."""
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(3):
                await self.step()
            return "walked"
        finally:
            self.running -= 1

    async def spread(self) -> str:
        """Have others walk."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.walk)
            group.start_soon(self.walk)
        return "spread"

    def dig(self) -> str:
        """Dig, in a thread."""
        anyio.from_thread.run(self.step)
        return "dug"

    def tools(self) -> list[Any]:
        return [
            tool(self.walk),
            tool(self.spread),
            tool(self.dig, timeout=None),
            tool(self.dig, name="dig_in_time", timeout=9),
        ]


class Ends(BaseAdvisor):
    """Writes down how turns end, outermost."""

    order = HIGHEST_PRECEDENCE

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        self.outcomes.append(outcome.status)


class Bench:
    """A chain of one turn: two rounds of tools, then an answer."""

    def __init__(self, inside: bool) -> None:
        self.workshop, self.ends, self.memory = Workshop(), Ends(), ChatMemory()
        order = {"order": TOOL_CALLING_ORDER + 1} if inside else {}
        remembering = MessageChatMemoryAdvisor(self.memory, remember="turn", **order)
        script = [asks("walk", "dig", "dig_in_time", text="One. "), asks("spread", "walk", text="Two. "), "Done."]
        self.model = ScriptedModel(*script)
        loop = ToolCallingAdvisor(self.workshop.tools(), timeout=None)
        # a busy machine may take long to close what is left: that is not what is looked at
        self.chain = AdvisorChain(self.model, [loop, remembering, self.ends], grace=60)

    async def check(self, before: set[int]) -> str:
        """What is left of the turn, which is to be valid; and that a next one goes well."""
        with anyio.fail_after(60):  # on trio a thread that was left to itself may just be in a task of the system
            while not {task.id for task in anyio.get_running_tasks()} <= before:  # noqa: ASYNC110  nobody tells of its end
                await anyio.sleep(0.001)  # so that it gets to run, on a machine that is busy
        assert (self.workshop.running, self.model.open_streams) == (0, 0)
        assert len(self.ends.outcomes) <= 1
        kept = await stored(self.memory)
        model = ScriptedModel("fine")
        await AdvisorChain(model, [MessageChatMemoryAdvisor(self.memory)]).call("next", "c")
        if not kept:
            return "nothing"
        question, *turn = kept
        assert question.text == "q"
        last = turn[-1]
        assert isinstance(last, AssistantMessage)
        check_prompt(tuple(kept))
        if not last.partial:
            assert texts(turn)[-1] == "Done."
            assert sum(isinstance(message, ToolMessage) for message in turn) == 5
        return "partial" if last.partial else "whole"


@both
@pytest.mark.parametrize("inside", [False, True], ids=["memory outside", "memory inside"])
async def test_at_each_await_of_the_caller(mode: Mode, inside: bool) -> None:
    outcomes: set[str] = set()
    for awaits in range(1, 300):
        bench = Bench(inside)
        before = {task.id for task in anyio.get_running_tasks()}
        with anyio.CancelScope() as scope:
            await cancelled_at(awaits, ask(mode, bench.chain, "q", conversation_id="c"), scope)
        outcomes.add(await bench.check(before))
        if not scope.cancel_called:
            break
    else:
        pytest.fail("the turn has no end")
    assert awaits > 2
    assert outcomes == ({"partial", "whole"} if mode == "stream" and not inside else {"nothing", "whole"})


@both
@pytest.mark.parametrize("inside", [False, True], ids=["memory outside", "memory inside"])
async def test_at_each_step_of_the_tools(mode: Mode, inside: bool) -> None:
    outcomes: set[str] = set()
    most = 0
    for number in range(1, 100):
        bench = Bench(inside)
        before = {task.id for task in anyio.get_running_tasks()}
        with anyio.CancelScope() as scope:

            def cancel(step: int, number: int = number, scope: anyio.CancelScope = scope) -> None:
                if step == number:
                    scope.cancel()

            bench.workshop.at = cancel
            await ask(mode, bench.chain, "q", conversation_id="c")
        outcomes.add(await bench.check(before))
        most = max(most, bench.workshop.most)
        if not scope.cancel_called:
            break
        assert scope.cancelled_caught
        assert bench.ends.outcomes == ["cancelled"]
    assert number == 15  # 5 steps of the first round, 9 of the second
    assert most == 3
    assert outcomes == ({"partial", "whole"} if mode == "stream" and not inside else {"nothing", "whole"})


@both
async def test_tools_with_tasks_of_their_own_library_are_cancelled_and_timed(mode: Mode, anyio_backend_name: str) -> None:
    begun = anyio.Event()

    async def wait() -> None:
        begun.set()
        await anyio.sleep_forever()

    async def nested() -> str:
        """Wait in tasks of one's own."""
        if anyio_backend_name == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                nursery.start_soon(wait)
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                group.create_task(wait())
        return "never"

    before = {task.id for task in anyio.get_running_tasks()}
    chain, _ = looping([nested], asks("nested"), "done", timeout=0.05)
    assert "within 0.05 seconds" in (await ask(mode, chain, "q")).earlier[1].text
    begun, (chain, _) = anyio.Event(), looping([nested], asks("nested"), "never")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, mode, chain, "q")
            await begun.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert {task.id for task in anyio.get_running_tasks()} <= before
