"""MLflow: what is sent to it by OTLP is read back by its own client."""

from __future__ import annotations

import pytest

from advisorchain import conventions as names

from ._recipes import SPANS, run_recipe
from ._servers import read
from ._shared_tests import ON_BOTH, ViewerTests
from ._shown import Shown

pytestmark = pytest.mark.slow


class TestMlflow(ViewerTests):
    @pytest.fixture
    def shown(self, in_mlflow: Shown) -> Shown:
        return in_mlflow

    @ON_BOTH
    def test_each_span_has_its_icon(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("tools", backend)
        assert trace.kinds_of("advisor_chain") == {"CHAIN"}
        assert trace.kinds_of("advisor guard") == {"GUARDRAIL"}
        assert {kind for name in ("memory", "tools", "polite", "retry") for kind in trace.kinds_of(f"advisor {name}")} == {
            "CHAIN"
        }
        assert trace.kinds_of("chat") == {"CHAT_MODEL"}
        assert trace.kinds_of("execute_tool") == {"TOOL"}
        assert trace.kinds_of("search_memory") == {"RETRIEVER"}

    def test_traces_are_found_by_the_name_of_an_advisor(self, shown: Shown) -> None:
        assert set(shown.traces) >= {scene.trace_id for scene in shown.scenes.values()}

    def test_cancelled_streams_are_found(self, shown: Shown) -> None:
        traces = [scene.trace_id for scene in shown.scenes.values() if scene.outcome == "cancelled"]
        assert shown.read["cancelled"] == sorted(traces)

    @ON_BOTH
    def test_messages_of_a_model_call_are_structured(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("tools", backend)
        last = max((span for span in trace.spans if span.name.startswith("chat")), key=lambda span: span.start).attributes
        assert [message["role"] for message in last[names.INPUT_MESSAGES]][-2:] == ["assistant", "tool"]
        assert last["mlflow.spanOutputs"][0]["parts"][0]["content"].startswith("Take the 08:10.")
        assert last["mlflow.chat.tokenUsage"]["cache_read_input_tokens"] == 90


def test_the_readmes_recipe(mlflow_url: str) -> None:
    run_recipe("MLflow", OTEL_EXPORTER_OTLP_ENDPOINT=mlflow_url)
    (trace,) = read("mlflow", mlflow_url, "0", "ada")["traces"].values()
    assert len(trace["spans"]) == SPANS
    assert trace["request"] is None  # content is told only if that is asked for
