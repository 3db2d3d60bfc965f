"""Reports about usage: counted once, summed over the rounds of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk
from advisorchain.messages import Usage
from advisorchain.testing.models import ScriptedModel
from advisorchain.testing.recorders import RecordingAdvisor

from ._asking import MODES, HandLoop, Mode, ask, asking, chunks_given, given
from .cases._reading import usage_of

both = pytest.mark.parametrize("mode", MODES)


@both
async def test_B037_a_trailing_chunk_with_nothing_but_usage_breaks_no_reader(mode: Mode) -> None:
    chunks: list[ChatChunk] = []
    response = await ask(mode, AdvisorChain(ScriptedModel(chunks_given(given("B037")["chunks"]))), "hi", chunks)
    assert response.usage == Usage(12, 5, 17)
    assert (response.text, response.finish_reason) == ("hi", "stop")
    if mode == "stream":
        assert [chunk.text for chunk in chunks if chunk.text] == ["hi"]


@both
async def test_B039_the_same_usage_on_two_chunks_is_not_counted_twice(mode: Mode) -> None:
    data = given("B039")
    response = await ask(mode, AdvisorChain(ScriptedModel(chunks_given(data["chunks"]))), "hi")
    assert response.usage == Usage(data["expect"]["input"], data["expect"]["output"])


def rounds_of(rounds: Sequence[Any]) -> list[Any]:
    """Answers with these usages; all but the last ask for a tool."""
    script: list[Any] = []
    for place, usage in enumerate(rounds):
        pieces = asking((f"k{place}", "look", "{}")) if place < len(rounds) - 1 else ["done"]
        script.append([*pieces, ChatChunk(usage=usage_of(usage))] if usage else pieces)
    return script


@both
@pytest.mark.parametrize("case", ["B073", "B074"])
async def test_B073_B074_usage_of_a_turn_is_the_sum_over_its_rounds(mode: Mode, case: str) -> None:
    data = given(case)
    outside, inside = RecordingAdvisor("outside", HIGHEST_PRECEDENCE), RecordingAdvisor("inside")
    model = ScriptedModel(*rounds_of(data["rounds"]))
    response = await ask(mode, AdvisorChain(model, [outside, HandLoop(look=lambda: "seen"), inside]), "hi")
    total = usage_of(data["expect_total"])
    assert total is not None
    assert total.total_tokens == 69
    assert response.usage == total

    def seen(advisor: RecordingAdvisor) -> list[Any]:
        return [entry.response.usage for entry in advisor.log if entry.response is not None]

    assert seen(outside) == [total]
    assert seen(inside) == [usage_of(usage) for usage in data["rounds"]]
