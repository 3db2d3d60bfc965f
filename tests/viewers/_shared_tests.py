"""What every viewer has to show. A subclass has a fixture `shown`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData
from advisorchain.testing.traces import assert_trace

from ._scenes import BACKENDS, SCENES
from ._shown import Shown

EVERY = pytest.mark.parametrize(("scene", "backend"), [(scene, backend) for scene in SCENES for backend in BACKENDS])
ON_BOTH = pytest.mark.parametrize("backend", BACKENDS)


class ViewerTests:
    @EVERY
    def test_every_span_is_where_it_was(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        places = {span.span_id: (span.name, span.parent_id) for span in sent.spans}
        assert {span.span_id: (span.name, span.parent_id) for span in trace.spans} == places

    @EVERY
    def test_order_and_index_are_those_of_describe(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        assert_trace(trace.spans, sent.chain, outcome=sent.outcome, runs=1)
        for row in sent.chain.describe():
            told = [span.attributes for span in trace.spans if span.name == f"advisor {row.name}"]
            assert told
            for of in told:
                order, index = of[names.ADVISOR_ORDER], of[names.ADVISOR_INDEX]
                assert (type(order), type(index)) == (int, int)
                assert (order, index) == (row.order, row.index)

    @EVERY
    def test_the_outcome_of_each(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        assert dict(_outcomes(trace.spans)) == dict(_outcomes(sent.spans))
        (root,) = (span for span in trace.spans if span.parent_id is None)
        assert root.attributes[names.OUTCOME] == sent.outcome

    @EVERY
    def test_our_attributes_are_whole(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        found = {span.span_id: span.attributes for span in trace.spans}
        for span in sent.spans:
            own = {name: value for name, value in span.attributes.items() if name.startswith("advisorchain.")}
            assert {name: found[span.span_id].get(name) for name in own} == own

    @EVERY
    def test_the_conversation_is_the_session(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        assert trace.session == sent.conversation_id

    @EVERY
    def test_tokens_are_summed(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        assert trace.tokens == sent.tokens

    @EVERY
    def test_question_and_answer_stand_in_the_list(self, shown: Shown, scene: str, backend: str) -> None:
        sent, trace = shown.pair(scene, backend)
        assert trace.asked == sent.root.attributes[names.INPUT_VALUE]
        assert trace.answered == sent.root.attributes[names.OUTPUT_VALUE]
        assert trace.asked.endswith("?")

    @ON_BOTH
    def test_rounds_of_the_tool_loop(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("tools", backend)
        (loop,) = (span for span in trace.spans if span.name == "advisor tools")
        inside = sorted((span for span in trace.spans if span.parent_id == loop.span_id), key=lambda span: span.start)
        told = [(span.name, span.attributes.get(names.ROUND)) for span in inside]
        first, both, then = told[:1], sorted(told[1:3]), told[3:]  # trio begins two tasks in any order
        assert first == [("advisor polite", 1)]
        assert both == [("execute_tool trains", None), ("execute_tool weather", None)]
        assert then == [("advisor polite", 2), ("execute_tool trains", None), ("advisor polite", 3)]

    @ON_BOTH
    def test_a_failed_attempt(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("call", backend)
        first, second = sorted((span for span in trace.spans if span.name == "chat scripted"), key=lambda span: span.start)
        assert (first.status, first.attributes[names.ERROR_TYPE]) == ("error", "advisorchain.errors.ModelError")
        assert (second.status, second.attributes[names.ATTEMPT]) == ("unset", 2)
        assert [span.name for span in trace.spans if span.status == "error"] == ["chat scripted"]

    @ON_BOTH
    def test_a_cancelled_stream_is_no_error(self, shown: Shown, backend: str) -> None:
        _, trace = shown.pair("cancelled", backend)
        assert {span.status for span in trace.spans} == {"unset"}
        assert dict(_outcomes(trace.spans))[_named(trace.spans, "advisor memory").span_id] == "cancelled"
        assert _named(trace.spans, "create_memory").attributes[names.MEMORY_RECORD_COUNT] == 2  # what had been seen is kept


def _outcomes(spans: Any) -> Iterator[tuple[str, str]]:
    for span in spans:
        yield span.span_id, str(span.attributes.get(names.ADVISOR_OUTCOME, span.attributes.get(names.OUTCOME)))


def _named(spans: Any, name: str) -> SpanData:
    (span,) = (span for span in spans if span.name == name)
    return span
