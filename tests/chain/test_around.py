"""Around advisors: asking the rest never, again, at once, or only in part."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import AdvisorContractError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, Seen, labels


class Shout(BaseAdvisor):
    order = -1

    def transform(self, request: ChatRequest) -> Any:
        return ShoutText()


class ShoutText:
    held = ""

    def feed(self, text: str) -> str:
        text = self.held + text
        self.held = text[-1:]
        return text[:-1].upper()

    def flush(self) -> str:
        held, self.held = self.held.upper(), ""
        return held


class Retry(AroundAdvisor):
    """Asks again after an error, and takes back what was shown."""

    name = "retry"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        withdraws = 1
        for _ in range(3):
            try:
                async with aclosing(next(request)) as items:
                    async for item in items:
                        withdraws += isinstance(item, ChatChunk) and item.boundary == "round"
                        yield item
                    return
            except ConnectionError:
                yield ChatChunk(boundary="attempt", withdraws=withdraws)
                withdraws = 1


class Onion:
    """Recorders a (outside) and c (inside) about what the test puts between them."""

    def __init__(self, model: Any, *between: Any) -> None:
        self.log: list[Seen] = []
        self.outer, self.inner = RecordingAdvisor("a", -5, self.log), RecordingAdvisor("c", 5, self.log)
        self.chain = AdvisorChain(model, [self.outer, *between, self.inner])


async def shown(stream: Any) -> list[str]:
    """The text of each message as a reader shows it."""
    texts = [""]
    async for chunk in stream:
        if chunk.boundary:
            texts.append("")
        if chunk.boundary == "attempt":
            del texts[-1 - chunk.withdraws : -1]
        texts[-1] += chunk.text
    return texts


async def test_a_withdrawn_attempt_counts_nowhere(ask: Any, mode: str) -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), order=-2)
    model = ScriptedModel(["first ", ConnectionError()], ["second ", ConnectionError()], ["third ", "time"])
    onion = Onion(model, memory, Shout(), Retry())
    response = await ask(onion.chain, conversation_id="c")
    assert (response.text, response.earlier) == ("THIRD TIME", ())
    assert labels(onion.log, "done") == ["c.done error", "c.done error", "c.done ok", "a.done ok"]
    assert onion.outer.outcomes[0].response == response
    page = await memory.chat_memory.history("c")
    assert [entry.message.text for entry in page.items] == ["question", "THIRD TIME"]


async def test_the_reader_can_tell_the_withdrawn_attempt() -> None:
    model = ScriptedModel(["first ", ConnectionError()], ["third ", "time"])
    async with Onion(model, Shout(), Retry()).chain.stream("q") as stream:
        assert await shown(stream) == ["THIRD TIME"]
    assert stream.response.text == "THIRD TIME"


async def test_left_during_the_second_attempt_the_first_is_gone() -> None:
    model = ScriptedModel(["first ", ConnectionError()], ["second ", "third "])
    onion = Onion(model, Shout(), Retry())
    async with onion.chain.stream("q") as stream:
        async for chunk in stream:
            if chunk.text.startswith("SECOND"):
                break
    [outcome] = onion.outer.outcomes
    assert outcome.response is not None
    assert (outcome.response.text, outcome.response.earlier) == ("SECOND", ())
    assert onion.inner.outcomes[1].response.text == "second "


async def test_an_attempt_can_withdraw_several_messages() -> None:
    class TwoMessages(AroundAdvisor):
        order = 1

        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(request):
                if isinstance(item, ChatChunk):
                    yield item
                else:
                    first = item.message
            yield ChatChunk(boundary="round")
            async for item in next(request):
                yield item.replace(earlier=(first,)) if isinstance(item, ChatResponse) else item

    model = ScriptedModel("one", ["two ", ConnectionError()], "three", "four")
    onion = Onion(model, Shout(), Retry(), TwoMessages())
    async with onion.chain.stream("q") as stream:
        assert await shown(stream) == ["THREE", "FOUR"]
    assert [message.text for message in stream.response.turn] == ["THREE", "FOUR"]
    assert onion.outer.outcomes[0].response == stream.response


async def test_asking_the_rest_at_once(ask: Any) -> None:
    class Best(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            answers: list[ChatResponse] = []

            async def one() -> None:
                async with aclosing(next(request)) as items:
                    async for item in items:
                        await checkpoint()
                        if isinstance(item, ChatResponse):
                            answers.append(item)

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(one)
            best = max(answers, key=lambda answer: len(answer.text))
            yield ChatChunk(best.text)
            yield best

    model = ScriptedModel(["a", "b"], ["long", "er"], ["c", "d"])
    onion = Onion(model, Best())
    assert (await ask(onion.chain)).text == "longer"
    seen = labels(onion.log, "before", "after", "done")
    assert (seen[0], seen[-2:]) == ("a.before", ["a.after", "a.done ok"])
    assert sorted(seen[1:-2]) == ["c.after"] * 3 + ["c.before"] * 3 + ["c.done ok"] * 3
    assert sorted(outcome.response.text for outcome in onion.inner.outcomes if outcome.response) == ["ab", "cd", "longer"]


async def test_never_asking_the_rest(ask: Any) -> None:
    class Cache(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            yield ChatChunk("from the cache")
            yield request.reply("from the cache")

    model = ScriptedModel()
    onion = Onion(model, Cache())
    response = await ask(onion.chain, context={"k": 1})
    assert (response.text, response.context) == ("from the cache", {"k": 1})
    assert labels(onion.log, "before", "after", "done") == ["a.before", "a.after", "a.done ok"]
    assert model.requests == []


class BreaksOff(AroundAdvisor):
    """Leaves the inner stream after its first chunk, keeps it, and says something itself."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    async def around(self, request: ChatRequest, next: Any) -> Any:
        items = next(request)
        self.kept.append(items)
        async for item in items:
            yield item
            break
        yield ChatChunk("that will do")
        yield request.reply("one that will do")


async def test_an_inner_stream_that_was_left_is_closed_by_the_frame_of_its_advisor(ask: Any, mode: str) -> None:
    model = ScriptedModel(["one ", "two"] if mode == "stream" else ["one "])
    onion = Onion(model, BreaksOff())
    assert (await ask(onion.chain)).text == "one that will do"
    inner = "closed" if mode == "stream" else "ok"  # in a call it had answered in one piece
    assert labels(onion.log, "done") == [f"c.done {inner}", "a.done ok"]
    assert labels(onion.log, "after") == (["c.after"] if mode == "call" else []) + ["a.after"]
    assert labels(onion.log).index(f"c.done {inner}") < labels(onion.log).index("a.after")
    assert model.open_streams == 0


async def test_an_inner_stream_that_was_left_is_closed_first_when_the_reader_leaves_too() -> None:
    model = ScriptedModel(["one ", "two"])
    onion = Onion(model, BreaksOff())
    async with onion.chain.stream("q") as stream:
        async for chunk in stream:
            if chunk.text == "that will do":
                assert model.open_streams == 1
                break
    assert labels(onion.log, "done") == ["c.done closed", "a.done closed"]
    assert model.open_streams == 0


async def test_many_left_streams_are_closed_newest_first() -> None:
    class LeavesTwo(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            self.kept = [next(request), next(request)]
            for items in self.kept:
                await anext(items)
            yield ChatChunk("x")
            yield request.reply("x")

    onion = Onion(ScriptedModel(["first", "1"], ["second", "2"]), LeavesTwo())
    async with onion.chain.stream("q") as stream:
        assert await shown(stream) == ["x"]
    closed = [outcome.response.text for outcome in onion.inner.outcomes if outcome.response]
    assert closed == ["second", "first"]


# -- time limits in an advisor


async def test_a_time_limit_around_one_pull_works(ask: Any) -> None:
    class Impatient(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            async with aclosing(next(request)) as items:
                with anyio.move_on_after(0):
                    await anext(items)
            yield ChatChunk("too slow")
            yield request.reply("too slow")

    onion = Onion(ScriptedModel([Pause(), "never"]), Impatient())
    assert (await ask(onion.chain)).text == "too slow"
    assert labels(onion.log, "done") == ["c.done cancelled", "a.done ok"]


class HoldsAScope(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        with anyio.move_on_after(0):
            async for item in next(request):
                yield item


async def test_a_time_limit_across_a_yield_cancels_no_advisor_outside_and_the_error_names_it(ask: Any) -> None:
    onion = Onion(ScriptedModel(["one", Pause(), "never"]), HoldsAScope())
    with pytest.raises(AdvisorContractError, match="`around` of advisor `x`"):
        await ask(onion.chain)
    assert labels(onion.log, "done")[1:] == ["a.done error"]


async def test_a_time_limit_across_a_yield_is_refused_at_once_in_a_stream() -> None:
    class Holds(AroundAdvisor):
        name = "x"

        async def around(self, request: ChatRequest, next: Any) -> Any:
            with anyio.move_on_after(100):
                async for item in next(request):
                    yield item

    onion = Onion(ScriptedModel(["one", "two"]), Holds())
    async with onion.chain.stream("q") as stream:
        with pytest.raises(AdvisorContractError, match="`around` of advisor `x` yields inside a time limit"):
            await anext(aiter(stream))
    assert anyio.current_effective_deadline() == float("inf")
    assert labels(onion.log, "done") == ["c.done closed", "a.done error"]
