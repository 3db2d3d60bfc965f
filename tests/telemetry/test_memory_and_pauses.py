"""A memory's trips to its store, and the link from a turn that goes on to where it stopped."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from advisorchain import AdvisorChain, ChatClient
from advisorchain._telemetry.recorder import linked
from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.advisors.tool_calling import ToolPause
from advisorchain.errors import StorageError
from advisorchain.memory import ChatMemory
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._spans import CANARY, MODES, Hooks, Spans, ask


@MODES
async def test_a_memorys_trips_lie_in_its_advisors_span(spans: Spans, mode: str) -> None:
    memory = ChatMemory()
    advisors = [MessageChatMemoryAdvisor(memory), Hooks("in", 0)]
    asked = AdvisorChain(ScriptedModel(CANARY, repeat=True), advisors, telemetry=spans.telemetry)
    for _ in range(2):
        spans.exporter.clear()
        await ask(asked, mode, CANARY, conversation_id="c1")
    assert spans.tree() == [
        "advisor_chain chain",
        "  advisor memory",
        "    search_memory",
        "    advisor in",
        "      chat scripted",
        "    create_memory",
    ]
    common = {
        "gen_ai.memory.store.id": "InMemoryChatMemoryRepository",
        "gen_ai.conversation.id": "c1",
        "advisorchain.outcome": "ok",
        "gen_ai.memory.record.count": 2,
    }
    for name, kind in (("search_memory", "RETRIEVER"), ("create_memory", "CHAIN")):
        assert spans.told(name) == {"gen_ai.operation.name": name, "openinference.span.kind": kind, **common}
        assert spans.named(name).kind is SpanKind.INTERNAL
    assert CANARY not in spans.text()


@MODES
async def test_a_store_elsewhere_is_asked_as_a_client_and_its_failure_is_told(spans: Spans, mode: str) -> None:
    class Far(InMemoryChatMemoryRepository):
        remote = True

        async def append(self, *_: Any, **__: Any) -> int:
            raise StorageError(CANARY)

    asked = AdvisorChain(
        ScriptedModel("x"), [MessageChatMemoryAdvisor(ChatMemory(repository=Far()))], telemetry=spans.telemetry
    )
    with pytest.raises(StorageError):
        await ask(asked, mode, conversation_id="c1")
    failed = spans.named("create_memory")
    assert (failed.kind, failed.status.description) == (SpanKind.CLIENT, "advisorchain.errors.StorageError")
    assert spans.named("search_memory").kind is SpanKind.CLIENT
    assert spans.outcomes()["create_memory"] == "error"
    assert CANARY not in spans.text()


async def test_a_turn_that_takes_anothers_place_updates(spans: Spans) -> None:
    client = ChatClient(ScriptedModel("one", "two"), memory=ChatMemory(), telemetry=spans.telemetry)
    await client.call("q", conversation_id="c1")
    await client.call(conversation_id="c1", turn="regenerate")
    names = [span.name for span in spans.all() if span.name.endswith("memory")]
    assert names == ["search_memory", "create_memory", "advisor memory", "search_memory", "update_memory", "advisor memory"]


async def test_a_memory_outside_of_a_chain_records_nothing(spans: Spans) -> None:
    turn = await ChatMemory().begin("c1", ())
    await turn.commit()
    assert spans.all() == []


def removes(runs: list[str]) -> Any:
    @tool(needs_approval=True)
    async def remove(name: str) -> str:
        """Remove."""
        runs.append(name)
        return "removed"

    return remove


@MODES
async def test_a_turn_that_goes_on_links_to_where_it_stopped(mode: str) -> None:
    runs: list[str] = []
    first, second = Spans(), Spans()

    def built(spans: Spans, *script: Any) -> AdvisorChain:
        return AdvisorChain(ScriptedModel(*script), [ToolCallingAdvisor([removes(runs)])], telemetry=spans.telemetry)

    response = await ask(built(first, asks(("k1", "remove", '{"name":"a"}'))), mode)
    assert response.pause is not None
    stored = response.pause.dump()
    stopped = first.named("advisor tools").context
    resumed = ToolPause.load(stored).resume(approve=["k1"])
    going_on = built(second, "done")
    if mode == "call":
        response = await going_on.call(**resumed)
    else:
        async with going_on.stream(**resumed) as stream:
            async for _ in stream:
                pass
        response = stream.response
    assert (response.text, runs) == ("done", ["a"])
    (link,) = second.named("advisor_chain chain").links
    assert (link.context.trace_id, link.context.span_id) == (stopped.trace_id, stopped.span_id)
    assert link.context.is_remote
    assert [span.name for span in second.all() if span.links] == ["advisor_chain chain"]


async def test_a_pause_without_telemetry_has_no_link(spans: Spans) -> None:
    loop = ToolCallingAdvisor([removes([])])
    response = await AdvisorChain(ScriptedModel(asks(("k1", "remove", '{"name":"a"}'))), [loop], telemetry=None).call("q")
    assert response.pause is not None
    assert response.pause.traceparent is None
    going_on = AdvisorChain(ScriptedModel("done"), [loop], telemetry=spans.telemetry)
    assert (await going_on.call(**response.pause.resume(approve=["k1"]))).text == "done"
    assert spans.named("advisor_chain chain").links == ()


@pytest.mark.parametrize("told", ["", "nonsense", "00-xyz-1-01", "00-0-0-00", "00-12", 5, None])
def test_what_names_no_span_is_no_link(told: object) -> None:
    assert linked(told) == ()
