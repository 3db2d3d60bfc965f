"""The README's table of metrics, and its attributes to filter by, are what is recorded."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from advisorchain import AdvisorChain, BaseAdvisor, ChatChunk, ChatRequest, ChatResponse, Outcome, Usage, conventions
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._spans import Hooks, Spans, Times, ask

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ((?:`(?:advisorchain|gen_ai)\.[a-z_.]+`(?:, )?)+) \| (\S+) \| (.+?) \|$", re.MULTILINE)
M = "operation.name, provider.name, request.model, response.model, server.address, server.port"


class Remote:
    name, provider, server_address, server_port = "m", "openai", "api.example", 443

    def __init__(self, *, failing: bool = False) -> None:
        self.failing = failing

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        if self.failing:
            raise LookupError
        yield ChatChunk("one ", metadata={"model": "m-1"})
        yield ChatChunk("two", usage=Usage(3, 2))


class Failing(BaseAdvisor):
    name = "failing"

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        raise LookupError

    def transform(self, request: ChatRequest) -> None:
        return None

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        pass


async def recorded() -> Spans:
    """Everything that there is to record, once."""
    spans = Spans(metrics=True, agent_name="support", prices=lambda call: 0.5)

    @tool
    async def look() -> str:
        """Look."""
        return "there"

    @tool
    async def breaks() -> str:
        """Break."""
        raise LookupError

    advisors = [Hooks("a"), Times(2, rounds=True), Hooks("in", 9)]
    await ask(AdvisorChain(Remote(), advisors, telemetry=spans.telemetry), "stream", conversation_id="c")
    scripted = ScriptedModel(asks("look", "breaks"), "done")
    await AdvisorChain(scripted, [ToolCallingAdvisor([look, breaks])], telemetry=spans.telemetry).call("q")
    for failing in (AdvisorChain(Remote(failing=True), [Hooks("a")], telemetry=spans.telemetry),
                    AdvisorChain(Remote(), [Failing()], telemetry=spans.telemetry)):  # fmt: skip
        with pytest.raises(LookupError):
            await failing.call("q")
    return spans


def short(name: str) -> str:
    return name.removeprefix("advisorchain.").removeprefix("gen_ai.")


async def test_the_table_of_metrics_is_what_is_measured() -> None:
    spans = await recorded()
    data = spans.reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: (metric.unit, {short(key) for point in metric.data.data_points for key in point.attributes})
        for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    }  # fmt: skip
    rows = {
        name: (unit, set(re.sub(r"^M\b", M, labels.partition(";")[0]).split(", ")))
        for metrics, unit, labels in ROW.findall(README)
        for name in re.findall(r"[a-z_.]+", metrics)
    }
    found["gen_ai.client.operation.time_per_output_chunk"][1].add("response.model")  # not known before the answer is whole
    assert rows == found
    assert rows.keys() <= {value for value in vars(conventions).values() if isinstance(value, str)}


async def test_the_attributes_to_filter_by_are_on_spans() -> None:
    spans = await recorded()
    told = {key.removeprefix("advisorchain.") for span in spans.all() for key in span.attributes or {}}
    prefix, *named = re.findall(r"`([a-z_.{},]+)`", README[README.index("Spans to filter by") :].partition("\n\n")[0])
    assert (prefix, len(named)) == ("advisorchain.", 11)
    assert {one for name in named for one in spelled(name)} <= told


def spelled(name: str) -> list[str]:
    """`a.{b,c}_d` as `a.b_d` and `a.c_d`."""
    head, _, rest = name.partition("{")
    choices, _, tail = rest.partition("}")
    return [head + choice + tail for choice in choices.split(",")]
