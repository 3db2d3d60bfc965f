"""Leaving a stream early, in every way: all beneath is closed, every `done` runs once, innermost first."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisor import BaseAdvisor
from advisorchain.chain import AdvisorChain, ChatStream
from advisorchain.errors import StreamError
from advisorchain.exchange import ChatRequest
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, Seen, labels

from ._onion import Another, HoldsLast, Onion, Passing, Timed, read


@pytest.fixture(params=["fused", "around", "arounds", "hold", "timed"])
def onion(request: pytest.FixtureRequest) -> Onion:
    inner = RecordingAdvisor("i")
    between: dict[str, Any] = {"around": [Passing()], "arounds": [Passing(), inner, Another()], "hold": [HoldsLast()]}
    made: Any = Onion(*between.get(request.param, ()))
    made.left = "one two" if request.param == "hold" else "one two "
    made.chain = Timed(made.chain) if request.param == "timed" else made.chain
    return made


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


async def test_each_chunk_may_be_read_by_another_task(onion: Any) -> None:
    heard: list[str] = []
    onion.pause.go.set()

    async def next_chunk(stream: ChatStream) -> None:
        chunk = await anext(aiter(stream), None)
        heard.append(chunk.text if chunk is not None else "end")

    async with onion.chain.stream("q") as stream:
        while "end" not in heard:
            async with anyio.create_task_group() as group:
                group.start_soon(next_chunk, stream)
    assert "".join(heard).removesuffix("end") == stream.response.text == "one two three"
    assert labels(onion.log, "done") == ["c.done ok", "b.done ok", "a.done ok"]


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
    assert outer.outcomes[0].response.text == "one two"
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
