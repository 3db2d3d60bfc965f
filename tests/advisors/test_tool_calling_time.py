"""Tools of one answer run at the same time: a round takes as long as its longest. Cancelled, nothing is left of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.exchange import ChatRequest
from advisorchain.memory import ChatMemory
from advisorchain.tools import tool

from .._asking import MODES, Mode, ask, stored
from ._tool_scripts import asks, looping, results_of

both = pytest.mark.parametrize("mode", MODES)
KINDS = pytest.mark.parametrize("kind", ["async", "sync"])
WAITS = {"short": 0.1, "middle": 0.2, "long": 0.3}  # seconds


def waiting(took: list[float]) -> dict[str, Callable[[str, float], Any]]:
    """How tools that wait are made; each writes down how long it really took."""

    def of_async(name: str, seconds: float) -> Any:
        async def wait() -> str:
            started = time.perf_counter()
            await anyio.sleep(seconds)
            took.append(time.perf_counter() - started)
            return name

        return tool(wait, name=name)

    def of_sync(name: str, seconds: float) -> Any:
        def wait() -> str:
            started = time.perf_counter()
            time.sleep(seconds)
            took.append(time.perf_counter() - started)
            return name

        return tool(wait, name=name)

    return {"async": of_async, "sync": of_sync}


@both
@KINDS
async def test_a_round_of_three_tools_takes_less_than_seven_tenths_of_their_sum(mode: Mode, kind: str) -> None:
    for _ in range(3):  # a busy machine may hold one up
        share = await share_of_sum(mode, kind)
        if share < 0.7:
            break
    assert share < 0.7  # 0.5 when all begin at once


async def share_of_sum(mode: Mode, kind: str) -> float:
    """How long a round of the three took, beside all that they took."""
    took: list[float] = []
    asked: list[float] = []

    def asking_at(reply: Any) -> Callable[[ChatRequest], Any]:
        def reply_at(request: ChatRequest) -> Any:
            asked.append(time.perf_counter())
            return reply

        return reply_at

    tools = [waiting(took)[kind](name, seconds) for name, seconds in WAITS.items()]
    chain, _ = looping(tools, asking_at(asks(*WAITS)), asking_at("done"))
    response = await ask(mode, chain, "q")
    assert [result.text for result in results_of(response)] == list(WAITS)
    first, second = asked
    assert len(took) == 3
    return (second - first) / sum(took)


@both
@KINDS
@pytest.mark.parametrize("how", ["cancelled", "timeout"])
async def test_when_it_is_cancelled_no_task_is_left_and_no_result_arrives(mode: Mode, kind: str, how: str) -> None:
    begun, go_on, ended = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
    memory = ChatMemory()

    async def wait_async() -> str:
        """Wait."""
        begun.release()
        try:
            await anyio.sleep_forever()
        finally:
            ended.release()
        return "never"

    def wait_sync() -> str:
        """Wait, in a thread that nobody can stop."""
        begun.release()
        go_on.wait(30)
        ended.release()
        return "too late"

    made = wait_async if kind == "async" else wait_sync
    tools = [tool(made, name=name) for name in WAITS]
    remembering = MessageChatMemoryAdvisor(memory, remember="turn", interrupted="partial")
    chain, model = looping(tools, asks(*WAITS), "fine", advisors=[remembering])
    before = {task.id for task in anyio.get_running_tasks()}
    if how == "timeout":
        with pytest.raises(TimeoutError):
            await ask(mode, chain, "q", conversation_id="c", timeout=0.2)
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: ask(mode, chain, "q", conversation_id="c"))
            while not begun.acquire(blocking=False):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert {task.id for task in anyio.get_running_tasks()} <= before
    go_on.set()
    if how == "cancelled" or begun.acquire(blocking=False):  # on a busy machine the time may be over before one has begun
        assert await anyio.to_thread.run_sync(ended.acquire, True, 10)
    for _ in range(20):  # what a thread hands back comes to the event loop in one of its next rounds
        await anyio.lowlevel.checkpoint()
    assert await stored(memory) == []
    assert (len(model.requests), model.open_streams) == (1, 0)
    assert (await ask(mode, chain, "next", conversation_id="c")).turn[-1].text == "fine"
