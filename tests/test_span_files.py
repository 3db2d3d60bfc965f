"""Spans from files: OTLP JSON by real exporters, what the SDK prints, and what others write."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from advisorchain._span_data.data import SpanData, as_span
from advisorchain._span_data.files import SpanLines
from advisorchain._span_data.otlp import spans_in
from advisorchain.errors import InvalidInputError


def record(*exporters: SpanExporter) -> None:
    """Two spans with one of everything."""
    provider = TracerProvider(resource=Resource({"service.name": "zoo", "numbers": [1, 2]}), shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("advisorchain")
    other = tracer.start_span("other")
    told = {"text": "ä\x1b", "whole": 2**40, "part": 0.5, "yes": True, "names": ["a", "b"]}
    with tracer.start_as_current_span(
        "root", kind=SpanKind.CLIENT, attributes=told, links=[Link(other.get_span_context(), {"why": "x"})]
    ):
        inner = tracer.start_span("inner", context=otel_trace.set_span_in_context(otel_trace.get_current_span()))
        inner.add_event("happened", {"n": 1}, timestamp=1_700_000_000_123_456_000)
        inner.set_status(Status(StatusCode.ERROR, "broken"))
        inner.end()
    provider.shutdown()


def timeless(span: SpanData) -> SpanData:
    return dataclasses.replace(span, start=0, end=0, scope="")


def test_otlp_json_tells_what_the_recorder_had(tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    record(memory, FileSpanExporter(tmp_path / "spans.jsonl"))
    lines = SpanLines((tmp_path / "spans.jsonl").read_text(encoding="utf-8").splitlines(keepends=True))
    assert list(lines) == [as_span(span) for span in memory.get_finished_spans()]
    assert lines.unread == 0


def test_what_the_sdk_prints_is_the_same_but_for_scope_and_nanoseconds() -> None:
    memory, printed = InMemorySpanExporter(), io.StringIO()
    record(memory, ConsoleSpanExporter(out=printed))
    found = list(SpanLines(printed.getvalue().splitlines(keepends=True)))
    recorded = [as_span(span) for span in memory.get_finished_spans()]
    assert [timeless(span) for span in found] == [timeless(span) for span in recorded]
    for one, other in zip(found, recorded, strict=True):
        assert max(abs(one.start - other.start), abs(one.end - other.end)) <= 1000


def test_spans_are_found_among_what_an_application_prints() -> None:
    printed = io.StringIO()
    record(ConsoleSpanExporter(out=printed))
    text = f"[INFO] starting\n{{ not json\n{printed.getvalue()}Done.\n"
    lines = SpanLines(text.splitlines(keepends=True))
    assert [span.name for span in lines] == ["inner", "root"]
    assert (lines.unread, lines.first_unread) == (1, 1)


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


IDS = {"traceId": "0AF7651916CD43DD8448EB211C80319C", "spanId": "b7ad6b7169203331"}


def read(text: str) -> tuple[list[str], int]:
    lines = SpanLines(text.splitlines(keepends=True))
    return [span.name for span in lines], lines.unread


def test_one_document_of_many_lines_a_line_each_and_a_list_are_all_read() -> None:
    document = otlp({**IDS, "name": "a"})
    assert read(json.dumps(document, indent=2)) == (["a"], 0)
    assert read(json.dumps(document, indent=2) + "\n" + json.dumps(document)) == (["a", "a"], 0)
    assert read(json.dumps([document, document])) == (["a", "a"], 0)
    assert read(json.dumps([document], indent=1)) == (["a"], 0)


def test_a_file_that_is_being_written_is_read_as_far_as_it_is() -> None:
    line = json.dumps(otlp({**IDS, "name": "a"}))
    assert read(f"{line}\n{line[:40]}") == (["a"], 1)
    assert read(f"{line[:40]}\n{line}\n") == (["a"], 1)


def test_a_document_that_never_ends_is_given_up() -> None:
    """Each try to read it costs its length: a long file of such lines took minutes."""
    line = json.dumps(otlp({**IDS, "name": "a"}))
    assert read("{\n" + "]\n" * 30_000 + line) == (["a"], 1)


def test_a_long_document_that_never_ends_is_not_read_again_at_each_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 4 MB took 73 seconds."""
    parse, lengths = json.loads, []

    def counting(text: str) -> Any:
        lengths.append(len(text))
        return parse(text)

    monkeypatch.setattr(json, "loads", counting)
    assert read("{\n" + '"x": 1,\n' * 500_000 + "}\n" * 200) == ([], 1)
    assert sum(lengths) < 32_000_000


_LARGE = str(10**400)
_PRINTED = {
    "name": "x",
    "context": {"trace_id": "0x" + "a" * 32, "span_id": "0x" + "b" * 16},
    "kind": "SpanKind.INTERNAL",
    "parent_id": None,
    "start_time": "2026-01-01T00:00:00.000000Z",
    "end_time": "2026-01-01T00:00:01.000000Z",
    "status": {"status_code": "UNSET"},
    "attributes": {},
    "events": [],
    "links": [],
}


@pytest.mark.parametrize(
    "document",
    [
        otlp({**IDS, "startTimeUnixNano": _LARGE}),
        otlp({**IDS, "startTimeUnixNano": "-1"}),
        otlp({**IDS, "endTimeUnixNano": str(2**63)}),
        otlp({**IDS, "startTimeUnixNano": float("inf")}),
        otlp({**IDS, "startTimeUnixNano": float("nan")}),
        otlp({**IDS, "attributes": [{"key": "advisorchain.cost", "value": {"intValue": _LARGE}}]}),
        {**_PRINTED, "start_time": "0001-01-01T00:00:00+14:00"},
        {**_PRINTED, "end_time": "9999-12-31T23:59:59-14:00"},
        {**_PRINTED, "attributes": {"advisorchain.cost": 10**400}},
        {**_PRINTED, "attributes": {"a": [1, 10**400]}},
    ],
)
def test_numbers_and_times_that_no_protocol_has_are_left_out(document: dict[str, Any]) -> None:
    assert read(json.dumps(_PRINTED)) == (["x"], 0)
    assert read(json.dumps(document)) == ([], 1)


def test_metrics_and_logs_are_no_fault_and_hold_no_spans() -> None:
    assert read('{"resourceMetrics": []}\n{"resourceLogs": [{}]}\n') == ([], 0)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        '{"resourceSpans": 1}',
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "no ids"}]}]}]}',
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz", "spanId": "1"}]}]}]}',
        '{"name": "x", "context": {}}',
        "[" * 100_000,
    ],
)
def test_what_are_no_spans_is_left_out_and_counted(text: str) -> None:
    assert read(text) == ([], 1)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    return otlp({**IDS, "attributes": [{"key": "deep", "value": value}]})


def test_deep_values_are_read_or_refused() -> None:
    (found,) = spans_in(nested(3))
    assert found.attributes == {"deep": ((("x",),),)}
    with pytest.raises(InvalidInputError, match="cannot be read"):
        spans_in(nested(5000))


def test_what_protobufs_own_json_makes_of_ids_and_kinds_is_understood() -> None:
    (found,) = spans_in(
        otlp(
            {
                "traceId": "CvdlGRbNQ92ESOshHIAxnA==",
                "spanId": "t61rcWkgMzE=",
                "parentSpanId": "",
                "kind": "SPAN_KIND_SERVER",
                "status": {"code": "STATUS_CODE_ERROR"},
                "startTimeUnixNano": 5,
            }
        )
    )
    assert (found.trace_id, found.span_id) == (IDS["traceId"].lower(), IDS["spanId"])
    assert (found.kind, found.status, found.start, found.end) == ("server", "error", 5, 5)


def test_all_kinds_of_values_and_a_remote_parent_are_read() -> None:
    told = [
        {"key": "int", "value": {"intValue": "7"}},
        {"key": "nan", "value": {"doubleValue": "Infinity"}},
        {"key": "bytes", "value": {"bytesValue": "AAE="}},
        {"key": "map", "value": {"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}},
        {"key": "none", "value": {}},
    ]
    (found,) = spans_in(otlp({**IDS, "parentSpanId": "0000000000000001", "flags": 0x300, "attributes": told, "kind": 77}))
    assert found.attributes == {"int": 7, "nan": float("inf"), "bytes": b"\0\1", "map": {"a": True}, "none": None}
    assert (found.parent_id, found.remote_parent, found.kind) == ("0000000000000001", True, "internal")
    (root,) = spans_in(otlp({**IDS, "parentSpanId": "0" * 16}))
    assert root.parent_id is None


def test_what_is_no_span_is_refused_by_type() -> None:
    with pytest.raises(TypeError, match="`int` is no span"):
        as_span(7)
