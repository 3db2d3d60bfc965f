"""The receiver, sent to by OpenTelemetry's own exporters and by clients that get it wrong."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest, Telemetry
from advisorchain._span_data.data import as_span
from advisorchain.errors import ConfigurationError, MissingExtraError
from advisorchain.testing.otlp import OtlpReceiver
from advisorchain.testing.traces import assert_trace


@pytest.fixture
def otlp() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


class Polite(BaseAdvisor):
    name, order = "polite", 5


async def model(request: ChatRequest) -> str:
    return "fine"


def provider_with(*exporters: SpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def post(receiver: OtlpReceiver, body: bytes, path: str = "/v1/traces", **headers: str) -> tuple[int, str, str]:
    """Status, content type and text of the answer."""
    connection = http.client.HTTPConnection(receiver.url.removeprefix("http://"), timeout=20)
    try:
        told = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request("POST", path, body, told)
        answer = connection.getresponse()
        return answer.status, answer.headers.get_content_type(), answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
async def test_what_the_exporter_sends_is_what_was_recorded(otlp: OtlpReceiver, compression: Compression) -> None:
    memory = InMemorySpanExporter()
    provider = provider_with(memory, OTLPSpanExporter(f"{otlp.url}/v1/traces", compression=compression))
    chain = AdvisorChain(model, [Polite()], name="demo", telemetry=Telemetry(provider))
    await chain.call("Hello", conversation_id="c1")
    async with chain.stream("Hello") as stream:
        async for _ in stream:
            pass
    assert await anyio.to_thread.run_sync(provider.force_flush)
    assert list(otlp.spans) == [as_span(span) for span in memory.get_finished_spans()]
    assert_trace(otlp.spans, chain, runs=2)
    provider.shutdown()


def test_spans_come_as_json_too(otlp: OtlpReceiver, tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(tmp_path / "spans.jsonl")))
    provider.get_tracer("mine").start_span("a", attributes={"n": 1}).end()
    provider.shutdown()
    body = (tmp_path / "spans.jsonl").read_bytes()
    assert post(otlp, body) == (200, "application/json", "{}")
    assert post(otlp, gzip.compress(body, mtime=0), Content_Encoding="gzip")[0] == 200
    assert post(otlp, zlib.compress(body), "/v1/traces/", Content_Encoding="deflate")[0] == 200
    (span,) = memory.get_finished_spans()
    assert otlp.drain() == [as_span(span)] * 3
    assert otlp.spans == ()


def test_metrics_and_logs_are_taken_and_dropped(otlp: OtlpReceiver) -> None:
    exporter = OTLPMetricExporter(f"{otlp.url}/v1/metrics")
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, 1e9)], shutdown_on_exit=False)
    provider.get_meter("mine").create_counter("n").add(1)
    assert provider.force_flush()
    provider.shutdown()
    assert post(otlp, b'{"resourceLogs": []}', "/v1/logs")[0] == 200
    assert otlp.spans == ()
    assert list(otlp.refusals) == []


@pytest.mark.parametrize(
    ("status", "body", "path", "headers", "why"),
    [
        (400, b"no json", "/v1/traces", {}, "no JSON"),
        (400, b"[" * 100_000, "/v1/traces", {}, "no JSON"),
        (400, b"[]", "/v1/traces", {}, "no export request"),
        (400, b'{"resourceSpans": 7}', "/v1/traces", {}, "cannot be read"),
        (400, b"\xff\xff\xff", "/v1/traces", {"Content_Type": "application/x-protobuf"}, "no export request"),
        (400, b"no gzip", "/v1/traces", {"Content_Encoding": "gzip"}, "not gzip"),
        (400, gzip.compress(b"{}", mtime=0)[:-9], "/v1/traces", {"Content_Encoding": "gzip"}, "cut"),
        (400, gzip.compress(b"{}", mtime=0) * 2, "/v1/traces", {"Content_Encoding": "gzip"}, "several parts"),
        (400, b"", "/v1/traces", {"Content_Length": "9" * 5000}, "length"),
        (400, b"", "/v1/traces", {"Content_Length": "\xb2"}, "length"),
        (400, b"", "/v1/traces", {"Content_Encoding": "br"}, "`br` is not taken"),
        (400, b"", "/v1/traces", {"Content_Length": str(10**9)}, "bytes at most"),
        (404, b"{}", "/v1/spans", {}, "send to /v1/traces"),
        (415, b"{}", "/v1/traces", {"Content_Type": "text/plain"}, "`text/plain` is not taken"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    otlp: OtlpReceiver, status: int, body: bytes, path: str, headers: dict[str, str], why: str
) -> None:
    found, _, text = post(otlp, body, path, **headers)
    assert (found, why in text) == (status, True), text
    assert why in otlp.refusals[-1]
    assert otlp.spans == ()


def test_what_would_fill_the_memory_is_not_unpacked(otlp: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisorchain.testing.otlp._MAX_BODY", 1000)
    status, _, text = post(otlp, gzip.compress(b" " * 100_000, mtime=0), Content_Encoding="gzip")
    assert (status, "1000 bytes" in text) == (400, True)


def test_a_client_that_speaks_grpc_is_told_of(otlp: OtlpReceiver) -> None:
    host, port = otlp.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        client.recv(1000)
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in otlp.refusals[-1]


def test_a_client_that_leaves_is_no_trouble(otlp: OtlpReceiver, capfd: pytest.CaptureFixture[str]) -> None:
    host, port = otlp.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
    assert post(otlp, b"{}")[0] == 200
    assert capfd.readouterr().err == ""


def test_wait_is_until_so_many_have_come_and_tells_what_was_refused(otlp: OtlpReceiver) -> None:
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "1" * 32, "spanId": "2" * 16}]}]}]})
    sender = threading.Thread(target=post, args=(otlp, body.encode()))
    sender.start()
    assert [span.span_id for span in otlp.wait(1)] == ["2" * 16]
    sender.join()
    post(otlp, b"x")
    with pytest.raises(TimeoutError, match=r"1 of 2 spans came within 0.01 s; refused: no JSON"):
        otlp.wait(2, timeout=0.01)


def test_another_process_is_told_by_the_environment(otlp: OtlpReceiver) -> None:
    code = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
provider.get_tracer("theirs").start_span("there").end()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"OTEL_EXPORTER_OTLP_ENDPOINT": otlp.url})
    assert [(span.name, span.scope) for span in otlp.wait(1)] == [("there", "theirs")]


def test_only_this_machine_may_send_unless_it_is_said() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.org", "::"):
        with pytest.raises(ConfigurationError, match="not an address of this machine alone"):
            OtlpReceiver(host)
    with OtlpReceiver("0.0.0.0", any_host=True) as receiver:
        assert receiver.url.startswith("http://0.0.0.0:")


def test_a_place_that_is_taken_is_an_error_that_says_so(otlp: OtlpReceiver) -> None:
    taken = int(otlp.url.rpartition(":")[2])
    for port, why in ((taken, "in use"), (99_999, "0-65535")):
        with pytest.raises(ConfigurationError, match=f"nobody can listen at `127.0.0.1`, port {port}: .*{why}"):
            OtlpReceiver(port=port).__enter__()


def test_it_listens_only_within_its_with() -> None:
    receiver = OtlpReceiver()
    with pytest.raises(ConfigurationError, match="does not listen"):
        _ = receiver.url
    with receiver:
        port = int(receiver.url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with receiver:
        assert post(receiver, b"{}")[0] == 200


def test_ipv6_loopback() -> None:
    try:
        with OtlpReceiver("::1") as receiver:
            assert receiver.url.startswith("http://[::1]:")
            assert post(receiver, b"{}")[0] == 200
    except ConfigurationError as error:
        pytest.skip(str(error))


def test_without_what_reads_protobuf_it_says_what_to_install(otlp: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "advisorchain._span_data.otlp_protobuf", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    status, _, text = post(otlp, b"", Content_Type="application/x-protobuf")
    assert (status, 'pip install "advisorchain[trace]"' in text) == (501, True)
    with pytest.raises(MissingExtraError):
        otlp.take("/v1/traces", "application/x-protobuf", b"")
    assert post(otlp, b"{}")[0] == 200


def test_a_protobuf_request_may_be_for_nothing(otlp: OtlpReceiver) -> None:
    found: Any = post(otlp, b"", Content_Type="application/x-protobuf; charset=x")
    assert found == (200, "application/x-protobuf", "")
