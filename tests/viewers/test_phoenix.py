"""Arize Phoenix: what is sent to it by OTLP is read back by its own client."""

from __future__ import annotations

import pytest

from ._recipes import SPANS, run_recipe
from ._servers import read
from ._shared_tests import ON_BOTH, ViewerTests
from ._shown import Shown

pytestmark = pytest.mark.slow


class TestPhoenix(ViewerTests):
    @pytest.fixture
    def shown(self, in_phoenix: Shown) -> Shown:
        return in_phoenix

    @ON_BOTH
    def test_each_span_has_its_icon(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("tools", backend)
        assert trace.kinds_of("advisor_chain") == {"CHAIN"}
        assert trace.kinds_of("advisor guard") == {"GUARDRAIL"}
        assert {kind for name in ("memory", "tools", "polite", "retry") for kind in trace.kinds_of(f"advisor {name}")} == {
            "CHAIN"
        }
        assert trace.kinds_of("chat") == {"LLM"}
        assert trace.kinds_of("execute_tool") == {"TOOL"}
        assert trace.kinds_of("search_memory") == {"RETRIEVER"}

    def test_advisors_are_found_by_order_index_and_own_time(self, shown: Shown) -> None:
        guards = [span.span_id for trace in shown.traces.values() for span in trace.spans if span.name == "advisor guard"]
        assert shown.read["guards"] == sorted(guards)
        assert shown.read["slow"] == []

    def test_cancelled_streams_are_found(self, shown: Shown) -> None:
        roots = [scene.root.span_id for scene in shown.scenes.values() if scene.outcome == "cancelled"]
        assert shown.read["cancelled"] == sorted(roots)

    @ON_BOTH
    def test_messages_of_a_model_call_are_a_conversation(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("tools", backend)
        last = max((span for span in trace.spans if span.name.startswith("chat")), key=lambda span: span.start).attributes
        roles = [last[f"llm.input_messages.{place}.message.role"] for place in range(7)]
        assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
        assert last["llm.input_messages.2.message.tool_calls.1.tool_call.function.name"] == "trains"
        assert last["llm.output_messages.0.message.content"].startswith("Take the 08:10.")
        assert last["llm.token_count.prompt_details.cache_read"] == 90


def test_the_readmes_recipe(phoenix_url: str) -> None:
    run_recipe("Phoenix", OTEL_EXPORTER_OTLP_ENDPOINT=phoenix_url)
    spans = read("phoenix", phoenix_url, "default", str(SPANS))["spans"]
    assert sorted(span["name"] for span in spans)[:3] == ["advisor memory", "advisor tools", "advisor_chain chain"]
    assert len(spans) == SPANS
