"""The threads of plain functions: how many, whom those keep waiting that hang, and what is left of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

from advisorchain.errors import ToolError
from advisorchain.tools import ToolContext, _threads, tool

HERE = ToolContext(tool_name="x")


class Hanging:
    """Tools that hang until they are let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun = threading.Semaphore(0)

    def hang(self) -> str:
        """Hang."""
        self.begun.release()
        self.go_on.wait(30)
        return "at last"

    async def leave(self, many: int) -> None:
        """Run so many of them, and leave them to themselves."""
        run = tool(self.hang, timeout=9).run
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                for _ in range(many):
                    group.start_soon(run, "{}", HERE)
                for _ in range(many):
                    await anyio.to_thread.run_sync(self.begun.acquire)
                scope.cancel()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.go_on.set()


async def until_none_is_left() -> None:
    with anyio.fail_after(20):
        while _threads._threads.left:
            await anyio.lowlevel.checkpoint()


async def test_tools_that_hang_keep_no_other_waiting(hanging: Hanging) -> None:
    await hanging.leave(40)
    assert _threads._threads.left == 40
    with anyio.fail_after(10):
        assert (await tool(lambda: "ok", name="quick").run("{}", HERE)).content == "ok"
    hanging.go_on.set()
    await until_none_is_left()


async def test_too_many_that_hang_are_an_error_until_some_have_ended(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threads, "_LEFT", 3)
    quick = tool(lambda: "ok", name="quick")
    await hanging.leave(3)
    with pytest.raises(ToolError, match="3 runs of tools whose time ran out still go on"):
        await quick.run("{}", HERE)
    hanging.go_on.set()
    await until_none_is_left()
    assert (await quick.run("{}", HERE)).content == "ok"


async def test_at_most_forty_are_waited_for_at_once() -> None:
    running = most = 0
    lock = threading.Lock()
    all_begun = threading.Event()

    def work() -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if most == 40:
                all_begun.set()
        all_begun.wait(10)
        with lock:
            running -= 1
        return "ok"

    run = tool(work).run
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(run, "{}", HERE)
    assert most == 40
    assert _threads._threads.left == 0


async def test_one_that_is_cancelled_before_its_thread_begins_does_not_run() -> None:
    ran: list[str] = []

    @tool(timeout=9)
    def work() -> str:
        ran.append("ran")
        return "ok"

    with anyio.CancelScope() as scope:
        scope.cancel()
        await work.run("{}", HERE)
    assert scope.cancelled_caught
    await anyio.to_thread.run_sync(lambda: None)
    assert ran == []
    assert _threads._threads.left == 0


@pytest.mark.parametrize("timeout", [None, 9])
async def test_long_work_may_ask_whether_it_was_cancelled(timeout: float | None) -> None:
    begun, stopped = threading.Event(), threading.Event()

    @tool(timeout=timeout)
    def work() -> str:
        begun.set()
        try:
            while True:
                anyio.from_thread.check_cancelled()
        finally:
            stopped.set()

    async with anyio.create_task_group() as group:
        group.start_soon(work.run, "{}", HERE)
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(stopped.wait, 10)
    await until_none_is_left()


async def test_a_generators_end_that_escapes_is_raised_where_it_is_waited_for() -> None:
    @tool
    def work() -> str:
        raise GeneratorExit

    with pytest.raises(GeneratorExit):
        await work.run("{}", HERE)


_HANGS = """
import sys, threading
import anyio
from advisorchain import AdvisorChain, ChatResponse
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.testing import ScriptedModel
from advisorchain.messages import AssistantMessage, ToolCall

def hang() -> str:
    "Hang."
    threading.Event().wait()
    return "never"

asks = ChatResponse(AssistantMessage("", tool_calls=(ToolCall("k1", "hang"),)), "tool_calls")
chain = AdvisorChain(ScriptedModel(asks, "It hangs."), [ToolCallingAdvisor([hang], timeout=0.05)])

async def main() -> None:
    print((await chain.call("q")).text)

anyio.run(main, backend=sys.argv[1])
"""


def test_a_tool_that_hangs_does_not_keep_the_process_from_ending(anyio_backend_name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _HANGS, anyio_backend_name], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("It hangs.\n", "", 0)


@pytest.mark.parametrize("timeout", [None, 9])
async def test_a_plain_function_may_run_an_event_loop_of_its_own_and_ask_the_one_of_its_caller(
    timeout: float | None,
) -> None:
    here = threading.get_ident()
    name = ContextVar("name", default="nobody")
    name.set("caller")

    async def place() -> tuple[int, str]:
        await anyio.lowlevel.checkpoint()
        return threading.get_ident(), name.get()

    @tool(timeout=timeout)
    def work() -> list[bool]:
        own, outside = anyio.run(place), anyio.from_thread.run(place)
        return [own == (threading.get_ident(), "caller"), outside == (here, "caller"), name.get() == "caller"]

    assert (await work.run("{}", HERE)).structured == [True, True, True]
