"""Any onion of advisors behaves in a stream as in a call: the frames for the two are written twice, and bound here."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, Seen, labels

from ._cancelling import cancelled_at


class BoomError(Exception):
    pass


class Records(RecordingAdvisor):
    """A recorder that may fail in a hook."""

    def __init__(self, name: str, log: list[Seen], fails: str = "") -> None:
        super().__init__(name, log=log)
        self.fails = fails

    def enter(self, request: ChatRequest) -> None:
        self.log.append(Seen(self.name, "entered", request))

    def passed(self, hook: str, value: Any) -> Any:
        if hook == self.fails:
            raise BoomError(f"{self.name}.{hook}")
        return value

    def before(self, request: ChatRequest) -> Any:
        self.enter(request)
        return self.passed("before", super().before(request))

    def after(self, request: ChatRequest, response: ChatResponse) -> Any:
        return self.passed("after", super().after(request, response))

    def done(self, request: ChatRequest, outcome: Any) -> Any:
        return self.passed("done", super().done(request, outcome))


class AsyncRecords(Records):
    async def before(self, request: ChatRequest) -> Any:
        self.enter(request)  # here, for it may be cancelled before it has written anything else down
        await checkpoint()
        return self.passed("before", RecordingAdvisor.before(self, request))

    async def after(self, request: ChatRequest, response: ChatResponse) -> Any:
        await checkpoint()
        return super().after(request, response)

    async def done(self, request: ChatRequest, outcome: Any) -> Any:
        try:
            return super().done(request, outcome)
        finally:
            await checkpoint()


class AddsContext(Records):
    def before(self, request: ChatRequest) -> Any:
        return super().before(request.with_context(**{f"{self.name} in": request.context.get("count", 0)}))

    def after(self, request: ChatRequest, response: ChatResponse) -> Any:
        return super().after(request, response.with_context(**{f"{self.name} out": len(response.context)}))


class DropsContext(Records):
    def before(self, request: ChatRequest) -> Any:
        return super().before(request.replace(context={}))


class Answers(Records):
    def before(self, request: ChatRequest) -> Any:
        super().before(request)
        return request.reply(f"from {self.name}")


class Delays(BaseAdvisor):
    """Holds one character back, and marks the end of each message."""

    def __init__(self, name: str, log: list[Seen]) -> None:
        self.name = name

    def transform(self, request: ChatRequest) -> Any:
        return DelaysText(self.name)


class DelaysText:
    def __init__(self, name: str) -> None:
        self.name = name
        self.held = ""

    def feed(self, text: str) -> str:
        text = self.held + text
        self.held = text[-1:]
        return text[:-1]

    def flush(self) -> str:
        held, self.held = self.held, ""
        return f"{held}<{self.name}>"


class Around(AroundAdvisor):
    def __init__(self, name: str, log: list[Seen]) -> None:
        self.name = name

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


class Twice(Around):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for _ in next(request):
            pass
        async for item in next(request.with_context(count=2)):
            yield item


class Retries(Around):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        for last in (False, True):
            try:
                async with aclosing(next(request)) as items:
                    async for item in items:
                        yield item
                    return
            except ConnectionError:
                if last:
                    raise
                yield ChatChunk(boundary="attempt", withdraws=1)


class Calls:
    order = 0

    def __init__(self, name: str, log: list[Seen]) -> None:
        self.name = name

    async def advise_call(self, request: ChatRequest, next: Any) -> Any:
        return await next(request)


class Both(Calls):
    async def advise_stream(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Records, AsyncRecords, AddsContext, DropsContext, Answers, Delays, Around, Twice, Retries, Calls, Both)
}
for failing in ("before", "after", "done"):
    KINDS[f"fails in {failing}"] = partial(Records, fails=failing)
    KINDS[f"fails in async {failing}"] = partial(AsyncRecords, fails=failing)


def open_pause() -> Pause:
    """A place where the model awaits without waiting."""
    pause = Pause()
    pause.go.set()
    return pause


REPLIES = {
    "words": lambda: ["one ", "two", ChatChunk(finish_reason="stop")],
    "waits": lambda: ["one ", open_pause(), "two", open_pause()],
    "no reason": lambda: ["one ", "two"],
    "fails": lambda: ConnectionError("at once"),
    "fails late": lambda: ["one ", ConnectionError("late")],
}


async def outcome(kinds: list[str], replies: list[str], mode: str) -> Any:
    """What came out, and what the recorders saw."""
    log: list[Seen] = []
    model = ScriptedModel(*(REPLIES[reply]() for reply in replies), repeat=True)
    chain = AdvisorChain(model, [KINDS[kind](f"{place}", log) for place, kind in enumerate(kinds)])
    try:
        if mode == "call":
            came: Any = await chain.call("q", context={"asked": 1})
        else:
            async with chain.stream("q", context={"asked": 1}) as stream:
                shown = [""]
                async for chunk in stream:
                    shown = [""] if chunk.boundary else shown
                    shown.append(chunk.text)
                came = stream.response
            assert "".join(shown) == came.text
    except (BoomError, ConnectionError) as error:
        came = (type(error), str(error), [note for note in getattr(error, "__notes__", ()) if "failed too" not in note])
    check_ended(model, log)
    return came, labels(log, "before", "after", "done"), len(model.requests)


@settings(max_examples=75, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=6),
    replies=st.lists(st.sampled_from(sorted(REPLIES)), min_size=1, max_size=4),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_a_stream_comes_to_what_a_call_comes_to(kinds: list[str], replies: list[str], backend: str) -> None:
    called = anyio.run(outcome, kinds, replies, "call", backend=backend)
    streamed = anyio.run(outcome, kinds, replies, "stream", backend=backend)
    assert called == streamed


async def left(kinds: list[str], replies: list[str], chunks: int) -> None:
    log: list[Seen] = []
    model = ScriptedModel(*(REPLIES[reply]() for reply in replies), repeat=True)
    chain = AdvisorChain(model, [KINDS[kind](f"{place}", log) for place, kind in enumerate(kinds)])
    try:
        async with chain.stream("q") as stream:
            iterator = aiter(stream)
            for _ in range(chunks):
                await anext(iterator, None)
    except (BoomError, ConnectionError):
        pass
    check_ended(model, log)
    done = [seen for seen in log if seen.hook == "done"]
    last_begun = [seen.advisor for seen in log if seen.hook == "before"]
    assert [seen.advisor for seen in done][-1:] == last_begun[:1]  # the outermost is the last to end


@settings(max_examples=50, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=6),
    replies=st.lists(st.sampled_from(sorted(REPLIES)), min_size=1, max_size=4),
    chunks=st.integers(0, 4),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_any_onion_can_be_left_anywhere(kinds: list[str], replies: list[str], chunks: int, backend: str) -> None:
    anyio.run(left, kinds, replies, chunks, backend=backend)


async def cancelled(kinds: list[str], replies: list[str], mode: str) -> None:
    """Cancel at each await, one after the other, until there is none left to cancel at."""
    completed, number = False, 0
    while not completed:
        number += 1
        log: list[Seen] = []
        model = ScriptedModel(*(REPLIES[reply]() for reply in replies), repeat=True)
        chain = AdvisorChain(model, [KINDS[kind](f"{place}", log) for place, kind in enumerate(kinds)])

        async def ask(chain: AdvisorChain = chain) -> None:
            if mode == "call":
                await chain.call("q")
            async with chain.stream("q") as stream:
                async for _ in stream:
                    await checkpoint()

        with anyio.CancelScope() as scope:
            try:
                await cancelled_at(number, ask(), scope)
            except (BoomError, ConnectionError):
                pass
        completed = not scope.cancel_called
        check_ended(model, log)


def check_ended(model: ScriptedModel, log: list[Seen]) -> None:
    assert model.open_streams == 0
    for name in {seen.advisor for seen in log}:
        hooks = [seen.hook for seen in log if seen.advisor == name]
        assert hooks.count("entered") == hooks.count("done")


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=5),
    replies=st.lists(st.sampled_from(sorted(REPLIES)), min_size=1, max_size=3),
    mode=st.sampled_from(["call", "stream"]),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_any_onion_can_be_cancelled_at_any_await(kinds: list[str], replies: list[str], mode: str, backend: str) -> None:
    anyio.run(cancelled, kinds, replies, mode, backend=backend)
