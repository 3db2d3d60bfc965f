"""The tree of spans, of a real chain."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from advisorchain import AdvisorChain, AroundAdvisor, BaseAdvisor, ChatRequest, Next, StreamItem
from advisorchain.cli.trace_view import TraceView


class Inner(BaseAdvisor):
    name = "inner"
    order = 7


class Twice(AroundAdvisor):
    name = "twice"

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async for _ in next(request):
            pass
        async for item in next(request):
            yield item


async def model(request: ChatRequest) -> str:
    return "hi"


async def test_the_tree_shows_who_stood_around_whom() -> None:
    view = TraceView()
    chain = AdvisorChain(model, [Inner(), Twice()], name="demo", telemetry=view.telemetry)
    await chain.call("hello")
    heading, *lines = view.take()
    assert heading.split() == ["span", "order", "time", "self", "outcome"]
    assert [line.partition("  ")[0] if "advisor_chain" in line else line[:22].rstrip() for line in lines] == [
        "advisor_chain demo",
        "└─ advisor twice",
        "   ├─ advisor inner",
        "   │  └─ chat model",
        "   └─ advisor inner",
        "      └─ chat model",
    ]
    assert [line.split()[-1] for line in lines] == ["ok"] * 6
    assert [line.split()[-6] for line in lines if "inner" in line] == ["7", "7"]
    assert view.take() == []


async def test_columns_stand_under_their_headings() -> None:
    view = TraceView()
    await AdvisorChain(model, [Inner()], telemetry=view.telemetry).call("hello")
    heading, *lines = view.take()
    place = heading.index("outcome")
    assert [line[place:] for line in lines] == ["ok"] * 3
