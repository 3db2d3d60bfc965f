"""Leaving a stream early, in every way: all beneath is closed, every `done` runs once, innermost first."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.chain import AdvisorChain, ChatStream
from advisorchain.errors import StreamError
from advisorchain.exchange import ChatRequest
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, Seen, labels


class Passing(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


class HoldsLast(BaseAdvisor):
    """Holds the last character back until there is another."""

    name = "hold"

    def transform(self, request: ChatRequest) -> Any:
        return HoldsLastText()


class HoldsLastText:
    held = ""

    def feed(self, text: str) -> str:
        text = self.held + text
        self.held = text[-1:]
        return text[:-1]

    def flush(self) -> str:
        return self.held


class Onion:
    """a, b and c around a model that pauses after two chunks; between b and c, what the test likes."""

    def __init__(self, *between: Any, transform: bool = False) -> None:
        self.log: list[Seen] = []
        self.pause = Pause()
        self.model = ScriptedModel(["one ", "two ", self.pause, "three"])
        recorders = [RecordingAdvisor(name, log=self.log) for name in "abc"]
        self.between = between
        self.chain = AdvisorChain(self.model, [*recorders[:2], *between, recorders[2]])

    def check(self, status: str, text: str = "one two ") -> None:
        assert labels(self.log, "done") == [f"{name}.done {status}" for name in "cba"]
        assert labels(self.log, "flush", "after") == []
        assert (self.model.opened, self.model.closed) == (1, 1)
        for seen in self.log:
            if seen.outcome is not None:
                assert seen.outcome.error is None
                assert seen.outcome.response.message.partial
                expected = "one two " if seen.advisor == "c" else text
                assert seen.outcome.response.text == expected


@pytest.fixture(params=["fused", "around", "hold"])
def onion(request: pytest.FixtureRequest) -> Onion:
    between = {"fused": (), "around": (Passing(),), "hold": (HoldsLast(),)}[request.param]
    made = Onion(*between)
    made.left = "one two" if request.param == "hold" else "one two "  # type: ignore[attr-defined]
    return made


async def read(stream: ChatStream, chunks: int = 2) -> list[str]:
    iterator = aiter(stream)
    return [(await anext(iterator)).text for _ in range(chunks)]


async def test_break(onion: Any) -> None:
    async with onion.chain.stream("q") as stream:
        heard = 0
        async for _ in stream:
            heard += 1
            if heard == 2:
                break
    onion.check("closed", onion.left)
    assert stream.partial.text == onion.left
    with pytest.raises(StreamError, match="not been read to its end"):
        _ = stream.response


async def test_the_body_raises(onion: Any) -> None:
    with pytest.raises(KeyError, match="of the reader") as raised:
        async with onion.chain.stream("q") as stream:
            await read(stream)
            raise KeyError("of the reader")
    onion.check("closed", onion.left)
    assert not hasattr(raised.value, "__notes__")


async def test_aclose_from_another_task(onion: Any) -> None:
    closed = anyio.Event()

    async def close(stream: ChatStream) -> None:
        await stream.aclose()
        closed.set()

    async with anyio.create_task_group() as group, onion.chain.stream("q") as stream:
        await read(stream)
        group.start_soon(close, stream)
        await closed.wait()
        onion.check("closed", onion.left)
        assert [chunk async for chunk in stream] == []
        await stream.aclose()  # twice is fine
    onion.check("closed", onion.left)


async def test_aclose_while_another_task_waits_for_a_chunk_is_a_clear_error(onion: Any) -> None:
    async with anyio.create_task_group() as group, onion.chain.stream("q") as stream:

        async def consume() -> None:
            async for _ in stream:
                pass

        group.start_soon(consume)
        await onion.pause.reached.wait()
        with pytest.raises(StreamError, match="another task is waiting"):
            await stream.aclose()
        onion.pause.go.set()
        while len(labels(onion.log, "done")) < 3:
            await checkpoint()
    assert stream.response.text == "one two three"


async def test_cancelled_while_waiting_for_a_chunk(onion: Any) -> None:
    async with anyio.create_task_group() as group:

        async def consume() -> None:
            async with onion.chain.stream("q") as stream:
                async for _ in stream:
                    pass

        group.start_soon(consume)
        await onion.pause.reached.wait()
        group.cancel_scope.cancel()
    onion.check("cancelled", onion.left)


async def test_cancelled_in_the_readers_own_body(onion: Any) -> None:
    async with anyio.create_task_group() as group:
        working = anyio.Event()

        async def consume() -> None:
            async with onion.chain.stream("q") as stream:
                await read(stream)
                working.set()
                await anyio.sleep_forever()

        group.start_soon(consume)
        await working.wait()
        group.cancel_scope.cancel()
    onion.check("cancelled", onion.left)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("where", ["in the model", "in the body"])
async def test_cancelled_by_asyncio_itself(onion: Any, where: str) -> None:
    working = asyncio.Event()

    async def consume() -> None:
        async with onion.chain.stream("q") as stream:
            await read(stream)
            working.set()
            if where == "in the body":
                await asyncio.Event().wait()
            await anext(aiter(stream))

    task = asyncio.create_task(consume())
    await (working if where == "in the body" else onion.pause.reached).wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    onion.check("cancelled", onion.left)


async def abandon(onion: Any) -> None:
    stream = await onion.chain.stream("q").__aenter__()
    await read(stream)


async def until_done(onion: Any) -> None:
    for _ in range(50):
        if len(labels(onion.log, "done")) >= 3 and onion.model.closed:
            break
        await checkpoint()
    for _ in range(5):  # whatever else might come
        await checkpoint()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_abandoned_on_asyncio_needs_no_garbage_collector(onion: Any) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    gc.collect()
    gc.disable()
    try:
        await abandon(onion)
        await until_done(onion)
    finally:
        gc.enable()
    onion.check("closed", onion.left)
    assert reported == []


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_abandoned_on_trio_gives_trios_own_warning_only(onion: Any) -> None:
    with pytest.warns(ResourceWarning, match="garbage collected before it had been exhausted") as warned:
        await abandon(onion)
        gc.collect()
        await until_done(onion)
    assert {warning.category for warning in warned} == {ResourceWarning}
    assert len(labels(onion.log, "done")) == 3
    assert [label.split()[0] for label in labels(onion.log, "done")] == ["c.done", "b.done", "a.done"]
    assert (onion.model.opened, onion.model.closed) == (1, 1)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_dropped_inside_a_reference_cycle(onion: Any) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    async def drop() -> None:
        cycle: dict[str, Any] = {}
        cycle["stream"] = await onion.chain.stream("q").__aenter__()
        cycle["self"] = cycle
        await read(cycle["stream"])

    await drop()
    gc.collect()
    await until_done(onion)
    assert sorted(label.split()[0] for label in labels(onion.log, "done")) == ["a.done", "b.done", "c.done"]
    assert (onion.model.opened, onion.model.closed) == (1, 1)
    assert reported == []


async def test_a_stream_that_was_never_begun_asks_nothing(onion: Any) -> None:
    async with onion.chain.stream("q"):
        pass
    onion.chain.stream("q")
    assert onion.log == []
    assert onion.model.requests == []


async def test_left_before_the_first_chunk_there_is_no_partial() -> None:
    pause = Pause()
    recorder = RecordingAdvisor("a")
    chain = AdvisorChain(ScriptedModel([pause, "x"]), [recorder])
    async with anyio.create_task_group() as group:

        async def consume() -> None:
            async with chain.stream("q") as stream:
                async for _ in stream:
                    pass

        group.start_soon(consume)
        await pause.reached.wait()
        group.cancel_scope.cancel()
    assert [(outcome.status, outcome.response) for outcome in recorder.outcomes] == [("cancelled", None)]


async def test_a_call_that_is_cancelled() -> None:
    onion = Onion(Passing())
    async with anyio.create_task_group() as group:
        group.start_soon(onion.chain.call, "q")
        await onion.pause.reached.wait()
        group.cancel_scope.cancel()
    assert labels(onion.log, "done") == ["c.done cancelled", "b.done cancelled", "a.done cancelled"]
    assert all(outcome is None or outcome.response is None for outcome in (seen.outcome for seen in onion.log))
    assert onion.model.open_streams == 0


# -- what goes wrong while leaving


class FailsInDone(RecordingAdvisor):
    async def done(self, request: ChatRequest, outcome: Any) -> None:  # type: ignore[override]
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
    [record] = [record for record in caplog.records if record.name.startswith("advisorchain")]
    assert "advisorchain.done.failed" in record.getMessage()
    assert record.__dict__["advisor"] == "f"
    assert record.__dict__["error_type"] == "KeyError"
    assert "in done" not in record.getMessage()


async def test_dones_finish_though_the_task_is_cancelled() -> None:
    class SlowDone(RecordingAdvisor):
        async def done(self, request: ChatRequest, outcome: Any) -> None:  # type: ignore[override]
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
        async def done(self, request: ChatRequest, outcome: Any) -> None:  # type: ignore[override]
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


async def test_closed_in_the_middle_of_a_flush() -> None:
    class Long(BaseAdvisor):
        name = "long"

        def transform(self, request: ChatRequest) -> Any:
            return HoldsAll()

    class HoldsAll:
        def __init__(self) -> None:
            self.held: list[str] = []

        def feed(self, text: str) -> str:
            self.held.append(text)
            return ""

        def flush(self) -> str:
            return "".join(self.held)

    log: list[Seen] = []
    outer, inner = RecordingAdvisor("outer", log=log), RecordingAdvisor("inner", log=log)
    model = ScriptedModel(["one ", "two"])
    async with AdvisorChain(model, [outer, Long(), inner]).stream("q") as stream:
        async for chunk in stream:  # the first is what was flushed: nothing has come to its end yet
            assert chunk.text == "one two"
            assert labels(log, "after", "done") == []
            break
    assert labels(log, "after", "done") == ["inner.done closed", "outer.done closed"]
    assert outer.outcomes[0].response.text == "one two"  # type: ignore[union-attr]
    assert model.open_streams == 0


async def test_a_stream_is_iterated_inside_async_with_only() -> None:
    stream = Onion().chain.stream("q")
    with pytest.raises(StreamError, match="async with"):
        async for _ in stream:
            pass
    async with stream:
        pass
    with pytest.raises(StreamError, match="entered already"):
        async with stream:
            pass
