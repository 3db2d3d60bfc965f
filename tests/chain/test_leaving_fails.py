"""What goes wrong while a stream is left: nothing of it keeps the others from their end."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.chain import AdvisorChain, ChatStream
from advisorchain.errors import MessageError
from advisorchain.exchange import ChatRequest
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels

from ._onion import Onion, Passing, read


class FailsInDone(RecordingAdvisor):
    async def done(self, request: ChatRequest, outcome: Any) -> None:
        super().done(request, outcome)
        await checkpoint()
        raise KeyError("in done")


def failing_onion() -> Onion:
    return Onion(FailsInDone("f"))


async def test_an_error_in_done_on_close_is_raised_after_all_others_ran() -> None:
    onion = failing_onion()
    failing = onion.between[0]
    with pytest.raises(KeyError, match="in done") as raised:
        async with onion.chain.stream("q") as stream:
            await read(stream)
    onion.check("closed")
    assert [outcome.status for outcome in failing.outcomes] == ["closed"]
    assert raised.value.__notes__ == ["in advisor `f`, order 0"]


async def test_an_error_in_done_on_close_does_not_hide_what_the_body_raised() -> None:
    onion = failing_onion()
    with pytest.raises(KeyError, match="in done") as raised:
        async with onion.chain.stream("q") as stream:
            await read(stream)
            raise ValueError("of the reader")
    assert isinstance(raised.value.__cause__, ValueError)
    onion.check("closed")


async def test_an_error_in_done_on_cancel_is_logged_and_the_cancellation_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    onion = failing_onion()
    went_on = False
    async with anyio.create_task_group() as group:

        async def consume() -> None:
            nonlocal went_on
            async with onion.chain.stream("q") as stream:
                async for _ in stream:
                    pass
            went_on = True

        group.start_soon(consume)
        await onion.pause.reached.wait()
        group.cancel_scope.cancel()
    assert not went_on
    onion.check("cancelled")
    [record] = [record for record in caplog.records if record.getMessage() == "advisorchain.done.failed"]
    assert record.__dict__["advisor"] == "f"
    assert record.__dict__["error_type"] == "KeyError"
    assert "in done" not in str(record.__dict__)


async def test_dones_finish_though_the_task_is_cancelled() -> None:
    class SlowDone(RecordingAdvisor):
        async def done(self, request: ChatRequest, outcome: Any) -> None:
            for _ in range(3):
                await checkpoint()
            super().done(request, outcome)

    onion = Onion(SlowDone("s"))
    async with anyio.create_task_group() as group:

        async def consume() -> None:
            async with onion.chain.stream("q") as stream:
                async for _ in stream:
                    pass

        group.start_soon(consume)
        await onion.pause.reached.wait()
        group.cancel_scope.cancel()
    onion.check("cancelled")
    assert [outcome.status for outcome in onion.between[0].outcomes] == ["cancelled"]


@pytest.mark.parametrize("leave", ["close", "cancel"])
async def test_a_done_that_hangs_is_cut_off_after_the_grace(leave: str, caplog: pytest.LogCaptureFixture) -> None:
    class Hangs(RecordingAdvisor):
        async def done(self, request: ChatRequest, outcome: Any) -> None:
            super().done(request, outcome)
            await anyio.sleep_forever()

    onion = Onion(Hangs("h"))
    chain = AdvisorChain(onion.model, onion.chain.advisors, grace=0)
    async with anyio.create_task_group() as group, chain.stream("q") as stream:
        await read(stream)
        if leave == "cancel":
            group.cancel_scope.cancel()
            await checkpoint()
    onion.check("cancelled" if leave == "cancel" else "closed")
    assert [record.__dict__["advisor"] for record in caplog.records if "done.failed" in record.getMessage()] == ["h"]


class FailsToClose:
    """A model that fails while it is closed."""

    name = "m"
    provider = "test"

    async def stream(self, request: ChatRequest) -> Any:
        try:
            yield "one "
            await anyio.sleep_forever()
        finally:
            raise ConnectionError("while closing")


@pytest.mark.parametrize("between", [(), (Passing(),)])
async def test_a_model_that_fails_while_it_is_closed(between: Any, caplog: pytest.LogCaptureFixture) -> None:
    log: list[Seen] = []
    chain = AdvisorChain(FailsToClose(), [RecordingAdvisor("a", log=log), *between, RecordingAdvisor("c", log=log)])
    with pytest.raises(ConnectionError, match="while closing"):
        async with chain.stream("q") as stream:
            await read(stream, 1)
    assert labels(log, "done") == ["c.done closed", "a.done closed"]


async def test_a_model_that_fails_while_the_task_is_cancelled_is_an_error() -> None:
    """It says so itself: it turned the cancellation, which it must not swallow, into an error."""
    log: list[Seen] = []
    chain = AdvisorChain(FailsToClose(), [RecordingAdvisor("a", log=log), RecordingAdvisor("c", log=log)])
    with pytest.raises(ConnectionError, match="while closing"):
        with anyio.CancelScope() as scope:
            async with chain.stream("q") as stream:
                await read(stream, 1)
                scope.cancel()
                await anext(aiter(stream))
    assert labels(log, "done") == ["c.done error", "a.done error"]


async def test_a_lock_of_anyio_across_a_stream_fails_when_another_task_closes_it() -> None:
    """By design of such locks: take a token that any task can give back instead."""

    class Locks(BaseAdvisor):
        name = "lock"

        def __init__(self) -> None:
            self.lock = anyio.Lock()

        async def before(self, request: ChatRequest) -> ChatRequest:
            await self.lock.acquire()
            return request

        def done(self, request: ChatRequest, outcome: Any) -> None:
            self.lock.release()

    onion = Onion(Locks())
    failed: list[Exception] = []

    async def close(stream: ChatStream) -> None:
        try:
            await stream.aclose()
        except Exception as error:
            failed.append(error)

    async with onion.chain.stream("q") as stream:
        await read(stream)
        async with anyio.create_task_group() as group:
            group.start_soon(close, stream)
    [error] = failed
    assert isinstance(error, RuntimeError)
    assert error.__notes__ == ["in advisor `lock`, order 0"]
    onion.check("closed")  # the others' `done` ran all the same


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_native_cancellation_during_a_done_is_raised_after_the_others_ran() -> None:
    waiting = asyncio.Event()

    class Waits(RecordingAdvisor):
        async def done(self, request: ChatRequest, outcome: Any) -> None:
            super().done(request, outcome)
            waiting.set()
            await asyncio.Event().wait()

    onion = Onion(Waits("w"))

    async def leave() -> None:
        async with onion.chain.stream("q") as stream:
            await read(stream)

    task = asyncio.create_task(leave())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    onion.check("closed")


async def test_of_two_dones_that_fail_on_close_the_second_is_a_note() -> None:
    onion = Onion(FailsInDone("f"), FailsInDone("g"))
    with pytest.raises(KeyError, match="in done") as raised:
        async with onion.chain.stream("q") as stream:
            await read(stream)
    assert raised.value.__notes__ == ["in advisor `g`, order 0", "`done` of advisor `f` failed too: KeyError"]
    onion.check("closed")


async def test_a_coroutine_from_done_of_a_failed_turn_is_closed_and_told_in_a_note() -> None:
    async def asynchronous() -> None:
        return None

    class Wrapped(BaseAdvisor):
        name = "wrapped"

        def done(self, request: ChatRequest, outcome: Any) -> Any:
            return asynchronous()

    failure = ValueError("of the model")
    chain = AdvisorChain(ScriptedModel(["one", failure]), [Wrapped()])
    with pytest.raises(ValueError, match="of the model"):
        async with chain.stream("q") as stream:
            await read(stream)
    assert failure.__notes__ == ["`done` of advisor `wrapped` failed too: AdvisorContractError"]


async def test_what_fails_in_closing_after_an_error_is_a_note_too() -> None:
    """x turns to another stream while its first one is open; the second fails, and so does closing the first."""

    class LeavesOne(AroundAdvisor):
        name = "x"

        async def around(self, request: ChatRequest, next: Any) -> Any:
            self.kept = next(request)
            yield await anext(self.kept)
            raise ValueError("of x")

    with pytest.raises(ValueError, match="of x") as raised:
        async with AdvisorChain(FailsToClose(), [LeavesOne(), RecordingAdvisor("c")]).stream("q") as stream:
            await read(stream)
    assert raised.value.__notes__ == [
        "in advisor `x`, order 0",
        "closing the stream beneath failed too: ConnectionError",
    ]


@pytest.mark.parametrize("status", ["error", "closed", "cancelled"])
async def test_ctrl_c_in_a_done_is_never_swallowed(status: str) -> None:
    class Interrupted(RecordingAdvisor):
        def done(self, request: ChatRequest, outcome: Any) -> None:
            super().done(request, outcome)
            raise KeyboardInterrupt

    log: list[Seen] = []

    async def model(request: ChatRequest) -> Any:
        yield "a"
        if status == "error":
            raise ValueError
        await anyio.sleep_forever()

    chain = AdvisorChain(model, [RecordingAdvisor("outer", -1, log), Interrupted("inner", 0, log)])
    with pytest.raises(KeyboardInterrupt), anyio.CancelScope() as scope:
        async with chain.stream("q") as stream:
            async for _ in stream:
                if status == "closed":
                    break
                if status == "cancelled":
                    scope.cancel()
    assert labels(log, "done") == [f"inner.done {status}", f"outer.done {status}"]


async def test_a_done_finishes_where_the_model_made_an_error_of_a_cancellation(ask: Any) -> None:
    ended: list[str] = []

    class Slow(BaseAdvisor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def done(self, request: ChatRequest, outcome: Any) -> None:
            await checkpoint()
            ended.append(f"{self.name} {outcome.status}")

    async def model(request: ChatRequest) -> Any:
        yield "a"
        try:
            scope.cancel()
            await checkpoint()
        except anyio.get_cancelled_exc_class():
            raise ConnectionError from None

    with anyio.CancelScope() as scope:
        with pytest.raises(ConnectionError):
            await ask(AdvisorChain(model, [Slow("outer"), Slow("inner")]))
    assert ended == ["inner error", "outer error"]


HALF = "\ud83d"  # of a character; the other half may be in the next chunk


@pytest.mark.parametrize("way", ["read to the end", "left", "cancelled"])
async def test_a_done_runs_though_what_came_makes_no_message(way: str) -> None:
    log: list[Seen] = []

    async def model(request: ChatRequest) -> Any:
        yield "a"
        yield HALF

    with anyio.CancelScope() as scope:
        try:
            async with AdvisorChain(model, [RecordingAdvisor("c", log=log)]).stream("q") as stream:
                async for chunk in stream:
                    if chunk.text == HALF and way == "left":
                        break
                    if chunk.text == HALF and way == "cancelled":
                        scope.cancel()
                        await checkpoint()
        except MessageError:
            assert way != "cancelled"
        else:
            pytest.fail("nothing was told")
    status = {"read to the end": "error", "left": "closed"}.get(way, "cancelled")
    assert labels(log, "done") == [f"c.done {status}"]
