"""The tree of spans, of a real chain."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import pytest
from rich.cells import cell_len

from advisorchain import AdvisorChain, AroundAdvisor, BaseAdvisor, ChatRequest, Next, StreamItem
from advisorchain.cli.trace_view import TraceView


class Inner(BaseAdvisor):
    name = "inner"
    order = 7


class Named(BaseAdvisor):
    def __init__(self, name: str) -> None:
        self.name = name


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
    assert heading.split()[:3] == ["span", "order", "0"]
    assert heading.split()[-3:] == ["time", "self", "outcome"]
    assert [re.split(r"(?<=[\w)])  ", line)[0] for line in lines] == [
        "advisor_chain demo",
        "└ advisor twice",
        "  ├ advisor inner",
        "  │ └ chat model",
        "  └ advisor inner (attempt 2)",
        "    └ chat model (attempt 2)",
    ]
    assert [line.split()[-1] for line in lines] == ["ok"] * 6
    assert [line.replace("(attempt 2)", "").split("inner")[1].split()[0] for line in lines if "inner" in line] == ["7", "7"]
    assert view.take() == []


async def test_columns_stand_under_their_headings() -> None:
    view = TraceView()
    await AdvisorChain(model, [Inner()], telemetry=view.telemetry).call("hello")
    heading, *lines = view.take()
    place = heading.index("outcome")
    assert [line[place:] for line in lines] == ["ok"] * 3


async def test_long_names_and_deep_chains_keep_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    view = TraceView()
    deep = [Named(f"{number:02} " + "名" * 60 + "\x1b\n") for number in range(30)]
    await AdvisorChain(model, deep, telemetry=view.telemetry).call("hello")
    heading, *lines = view.take()
    assert [cell_len(line) for line in lines if cell_len(line) > 80] == []
    assert {cell_len(line.removesuffix("ok")) for line in lines} == {heading.index("outcome")}
    assert [number for number in range(30) if not any(f"advisor {number:02}" in line for line in lines)] == []
    assert not any("\x1b" in line or "\n" in line for line in lines)
