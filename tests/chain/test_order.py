"""Everything of an outer advisor encloses everything of a deeper one, fused or not, in a call and in a stream."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels

ORDERED = ("before", "flush", "after", "done")


class Passing(AroundAdvisor):
    def __init__(self, name: str, log: list[Any]) -> None:
        self.name = name
        self.log = log

    async def around(self, request: ChatRequest, next: Any) -> Any:
        self.log.append(Seen(self.name, "before", request))
        async for item in next(request):
            yield item
        self.log.append(Seen(self.name, "after", request))


class AsyncRecording(RecordingAdvisor):
    async def before(self, request: ChatRequest) -> ChatRequest:
        return super().before(request)

    async def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return super().after(request, response)

    async def done(self, request: ChatRequest, outcome: Any) -> None:
        super().done(request, outcome)


def span(log: list[str], name: str) -> tuple[int, int]:
    places = [place for place, label in enumerate(log) if label.startswith(f"{name}.")]
    return places[0], places[-1]


@pytest.mark.parametrize("layout", ["abc", "xabc", "axbc", "abxc", "abcx", "axbyc", "xaybzc", "axyb"])
@pytest.mark.parametrize("kind", [RecordingAdvisor, AsyncRecording])
async def test_everything_of_an_outer_advisor_encloses_the_deeper(ask: Any, layout: str, kind: Any) -> None:
    log: list[Seen] = []
    advisors = [kind(name, log=log) if name < "x" else Passing(name, log) for name in layout]
    model = ScriptedModel(lambda request: log.append(Seen("model", "asked", request)) or ["one ", "two"])

    await ask(AdvisorChain(model, advisors))

    seen = labels(log, *ORDERED, "asked")
    inwards = seen[: seen.index("model.asked")]
    assert inwards == [f"{name}.before" for name in layout]
    for name in layout:
        if name < "x":
            own = [label for label in seen if label.startswith(f"{name}.")]
            assert own == [f"{name}.before", f"{name}.flush", f"{name}.after", f"{name}.done ok"]
    outwards = [label for label in seen[len(inwards) + 1 :] if "flush" not in label]
    hooks = [[f"{name}.after", f"{name}.done ok"] if name < "x" else [f"{name}.after"] for name in reversed(layout)]
    assert outwards == [label for pair in hooks for label in pair]
    for outer, inner in pairwise(layout):
        if outer >= "x":  # around: also the last flushes of what is deeper
            assert span(seen, outer)[0] < span(seen, inner)[0]
            assert span(seen, inner)[1] < span(seen, outer)[1]


async def test_chain_034_lower_order_is_further_out_whatever_the_sequence_given(ask: Any) -> None:
    log: list[Seen] = []
    advisors = [RecordingAdvisor(name, order, log) for name, order in (("mid", 5), ("outer", 1), ("inner", 9))]

    await ask(AdvisorChain(ScriptedModel("ok"), advisors))

    assert labels(log, "before", "after") == [
        *("outer.before", "mid.before", "inner.before"),
        *("inner.after", "mid.after", "outer.after"),
    ]


async def test_equal_orders_keep_the_sequence_also_at_the_edges(ask: Any) -> None:
    log: list[Seen] = []
    orders = [LOWEST_PRECEDENCE, 0, HIGHEST_PRECEDENCE, 0, LOWEST_PRECEDENCE, HIGHEST_PRECEDENCE]
    advisors = [RecordingAdvisor(str(place), order, log) for place, order in enumerate(orders)]

    await ask(AdvisorChain(ScriptedModel("ok"), advisors))

    assert labels(log, "before") == [f"{place}.before" for place in (2, 5, 1, 3, 0, 4)]


async def test_hooks_get_the_request_that_their_advisor_passed_on(ask: Any) -> None:
    class Adds(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            return request.with_context(added=True)

        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            seen.append(request)
            return response

        def done(self, request: ChatRequest, outcome: Any) -> None:
            seen.append(request)

    seen: list[ChatRequest] = []
    outer, inner = RecordingAdvisor("outer"), RecordingAdvisor("inner")
    await ask(AdvisorChain(ScriptedModel("ok"), [outer, Adds(), inner]))

    assert [request.context for request in seen] == [{"added": True}] * 2
    assert {seen.hook for seen in outer.log if seen.request.context} == set()
    assert all(seen.request.context == {"added": True} for seen in inner.log)
    assert len({id(seen.request) for seen in outer.log}) == 1


async def test_the_chain_is_not_used_up_B018(ask: Any) -> None:
    log: list[Seen] = []
    model = ScriptedModel("one", "two")
    chain = AdvisorChain(model, [RecordingAdvisor("a", log=log), RecordingAdvisor("b", log=log)])
    first, second = await ask(chain), await ask(chain)
    assert [first.text, second.text] == ["one", "two"]
    assert labels(log, "before", "done") == ["a.before", "b.before", "b.done ok", "a.done ok"] * 2


async def test_B018_two_streams_interleaved_chunk_by_chunk() -> None:
    log: list[Seen] = []
    chain = AdvisorChain(
        ScriptedModel(["a1", "a2", "a3"], ["b1", "b2", "b3"], "again"),
        [RecordingAdvisor("a", log=log), RecordingAdvisor("b", log=log)],
    )
    heard: list[str] = []
    async with chain.stream("first") as first, chain.stream("second") as second:
        for stream in (first, second) * 3:
            heard.append((await anext(aiter(stream))).text)
        for stream in (first, second):
            assert await anext(aiter(stream), None) is None
            assert [chunk async for chunk in stream] == []  # read once more: nothing, and no half-run chain
    assert heard == ["a1", "b1", "a2", "b2", "a3", "b3"]
    assert (first.response.text, second.response.text) == ("a1a2a3", "b1b2b3")
    assert labels(log, "before") == ["a.before", "b.before"] * 2
    assert labels(log, "done") == ["b.done ok", "a.done ok"] * 2
    async with chain.stream("third") as third:  # while the others are still referenced
        assert "".join([chunk.text async for chunk in third]) == "again"


async def test_B137_asking_the_rest_twice_runs_all_of_it_twice(ask: Any) -> None:
    class Twice(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for _ in next(request):
                pass
            async for item in next(request):
                yield item

    log: list[Seen] = []
    model = ScriptedModel("no", "yes", "no", "yes")
    chain = AdvisorChain(model, [Twice(), RecordingAdvisor("a", log=log), RecordingAdvisor("b", log=log)])
    before = repr(chain)
    for _ in range(2):
        assert (await ask(chain)).text == "yes"
    one_run = ["a.before", "b.before", "b.after", "b.done ok", "a.after", "a.done ok"]
    assert labels(log, "before", "after", "done") == one_run * 4
    assert len(model.requests) == 4
    assert repr(chain) == before


async def test_a_request_that_an_advisor_makes_anew_goes_the_same_way(ask: Any) -> None:
    class MakesAnew(BaseAdvisor):
        name = "hook"

        def before(self, request: ChatRequest) -> ChatRequest:
            return ChatRequest(request.messages, context={**request.context, "hook": 1})

    class MakesAnewAround(AroundAdvisor):
        name = "around"

        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(ChatRequest(request.messages, context={**request.context, "around": 1})):
                yield item

    class MakesAnewInCalls:
        name = "advice"
        order = 0

        async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
            response: ChatResponse = await next(ChatRequest(request.messages, context={**request.context, "advice": 1}))
            return response

    log: list[Seen] = []
    outer, inner = RecordingAdvisor("outer", -1, log), AsyncRecording("inner", 1, log)
    chain = AdvisorChain(ScriptedModel("ok"), [outer, MakesAnew(), MakesAnewAround(), MakesAnewInCalls(), inner])
    response = await ask(chain, context={"asked": 1})
    assert response.context == {"asked": 1, "hook": 1, "around": 1, "advice": 1}
    assert labels(log, "before", "after", "done") == [
        *("outer.before", "inner.before", "inner.after", "inner.done ok", "outer.after", "outer.done ok"),
    ]


async def test_a_request_made_anew_is_closed_with_its_stream() -> None:
    class MakesAnew(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            return ChatRequest(request.messages)

    inner, model = AsyncRecording("inner", 1), ScriptedModel(["one", "two"])
    async with AdvisorChain(model, [MakesAnew(), inner]).stream("q") as stream:
        async for _ in stream:
            break
    assert [outcome.status for outcome in inner.outcomes] == ["closed"]
    assert model.open_streams == 0


@pytest.mark.parametrize("with_around", [False, True])
async def test_context_that_an_inner_advisor_drops_is_on_the_response_all_the_same(ask: Any, with_around: bool) -> None:
    class Drops(BaseAdvisor):
        order = 1

        def before(self, request: ChatRequest) -> ChatRequest:
            return request.replace(context={"own": 1})

    inner = RecordingAdvisor("inner", 2)
    chain = AdvisorChain(ScriptedModel("ok"), [*([Passing("x", [])] if with_around else []), Drops(), inner])
    assert (await ask(chain, context={"asked": 1})).context == {"asked": 1, "own": 1}
    assert inner.log[0].request.context == {"own": 1}
