"""What a trace tells of a turn that waits for another one of its conversation."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain import AdvisorChain
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory, Fork, Reject, Serialize
from advisorchain.memory._waiting import _LINES
from advisorchain.testing import ScriptedModel

from ._spans import MODES, Spans, ask


@MODES
async def test_waiting_for_another_turn_is_the_advisors_time_and_not_the_stores(spans: Spans, mode: str) -> None:
    memory = ChatMemory(concurrency=Serialize())
    advisor = MessageChatMemoryAdvisor(memory)
    asked = AdvisorChain(ScriptedModel("x"), [advisor], telemetry=spans.telemetry)
    other = await memory.begin("c1", ())
    async with anyio.create_task_group() as group:
        group.start_soon(partial(ask, asked, mode, conversation_id="c1"))
        while not _LINES.get({}):
            await checkpoint()
        assert spans.all() == []
        await other.abandon()
    told, trip = spans.told("search_memory"), spans.named("search_memory")
    waited = told["advisorchain.memory.wait_duration"]
    before = trip.start_time - spans.named("advisor memory").start_time
    assert 0 < waited * 1e9 <= before
    assert spans.told("advisor memory")["advisorchain.advisor.self_duration"] >= waited


@pytest.mark.parametrize("rule", [Reject(), Fork()], ids=repr)
async def test_a_lease_that_is_had_or_refused_is_waited_for_before_the_trip(spans: Spans, rule: Any) -> None:
    chain = AdvisorChain(
        ScriptedModel("x"), [MessageChatMemoryAdvisor(ChatMemory(concurrency=rule))], telemetry=spans.telemetry
    )
    await chain.call("q", conversation_id="c1")
    assert spans.told("search_memory")["advisorchain.memory.wait_duration"] > 0
