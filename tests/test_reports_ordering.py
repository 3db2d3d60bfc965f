"""Reports about the order of advisors: a chain is never used up, and the rest of it may be asked again."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE, AroundAdvisor, Next, StreamItem
from advisorchain.chain import AdvisorChain
from advisorchain.errors import StreamError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.testing.models import ScriptedModel
from advisorchain.testing.recorders import RecordingAdvisor, Seen, labels

from ._asking import MODES, Mode, ask

ROUND_TRIP = ["one.before", "two.before", "two.after", "one.after"]


def recorded() -> tuple[list[Seen], list[RecordingAdvisor]]:
    log: list[Seen] = []
    return log, [RecordingAdvisor("one", 1, log), RecordingAdvisor("two", 2, log)]


async def test_B018_streams_of_one_chain_are_whole_one_after_the_other() -> None:
    log, advisors = recorded()
    chain = AdvisorChain(ScriptedModel("a b c", repeat=True), advisors)
    async with chain.stream("A") as first:
        assert "".join([chunk.text async for chunk in first]) == "a b c"
        async with chain.stream("B") as second:
            assert "".join([chunk.text async for chunk in second]) == "a b c"
        assert [chunk async for chunk in first] == []  # a stream that was read to its end gives nothing more
    assert labels(log, "before", "after") == ROUND_TRIP * 2
    with pytest.raises(StreamError, match="was entered already"):
        await first.__aenter__()


async def test_B018_two_streams_chunk_by_chunk_are_both_whole() -> None:
    log, advisors = recorded()
    chain = AdvisorChain(ScriptedModel("a b c", "d e f"), advisors)
    seen: dict[str, list[str]] = {"A": [], "B": []}
    async with chain.stream("A") as first, chain.stream("B") as second:
        turns = {"A": aiter(first), "B": aiter(second)}
        while turns:
            for name in list(turns):
                try:
                    seen[name].append((await anext(turns[name])).text)
                except StopAsyncIteration:
                    del turns[name]
        assert (first.response.text, second.response.text) == ("a b c", "d e f")
    assert {name: "".join(texts) for name, texts in seen.items()} == {"A": "a b c", "B": "d e f"}
    assert sorted(labels(log, "before", "after")) == sorted(ROUND_TRIP * 2)
    for question in seen:
        own = [entry for entry in log if entry.request.messages[0].text == question]
        assert labels(own, "before", "after") == ROUND_TRIP


class Twice(AroundAdvisor):
    """Asks the rest of the chain twice and keeps the second answer."""

    order = HIGHEST_PRECEDENCE

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async for _ in next(request):
            pass
        async for item in next(request):
            yield item


class TwiceCalled:
    """The same with full control."""

    name, order = "Twice", HIGHEST_PRECEDENCE

    async def advise_call(self, request: ChatRequest, next: object) -> ChatResponse:
        await next(request)  # type: ignore[operator]
        return await next(request)  # type: ignore[operator,no-any-return]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Twice, TwiceCalled])
async def test_B137_each_asking_of_the_rest_is_a_full_inner_chain(mode: Mode, kind: type) -> None:
    log, advisors = recorded()
    model = ScriptedModel("first", "second", repeat=True)
    chain = AdvisorChain(model, [*advisors, kind()])
    before = (chain.advisors, chain.describe(), repr(chain))
    chunks: list[ChatChunk] = []
    for number in (1, 2):
        response = await ask(mode, chain, "hi", chunks)
        assert response.text == "second"
        assert len(model.requests) == 2 * number
        assert labels(log, "before", "after") == ROUND_TRIP * 2 * number
    if mode == "stream":
        assert "".join(chunk.text for chunk in chunks) == "second" * 2
    assert (chain.advisors, chain.describe(), repr(chain)) == before
    assert model.open_streams == 0
