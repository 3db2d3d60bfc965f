"""A receiver of spans on this machine, for tests of what an application tells in OpenTelemetry's protocol (OTLP).

    @pytest.fixture
    def otlp():
        with OtlpReceiver() as receiver:
            yield receiver

    async def test_the_trace(otlp):
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(otlp.url + "/v1/traces")))
        await chain.call("Hello")
        provider.force_flush()
        assert_trace(otlp.spans, chain)     # of advisorchain.testing.traces

It runs in a thread of its own, so it serves asyncio, trio and neither. An exporter waits for its answer, so what was flushed
is there. Another process is told by `OTEL_EXPORTER_OTLP_ENDPOINT=<otlp.url>`, and waited for with `wait`.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Final, Self

from advisorchain._span_data.data import SpanData, SpanEvent, SpanLink
from advisorchain._span_data.otlp import spans_in
from advisorchain.errors import AdvisorChainError, ConfigurationError, InvalidInputError

__all__ = ["OtlpReceiver", "SpanData", "SpanEvent", "SpanLink"]

_MAX_BODY: Final = 64 * 2**20
_LENGTH: Final = re.compile("[0-9]{1,12}")
_TAKEN: Final = ("/v1/traces", "/v1/metrics", "/v1/logs")
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"


class OtlpReceiver:
    """Takes spans by OTLP over HTTP, as protobuf or JSON; metrics and logs are taken too, and dropped.

    Use it in `with`: it listens from there, and no longer than that.

    Args:
        host: where to listen.
        port: 0: any free one.
        any_host: whether `host` may be one that other machines can reach. What they send is not protected by anything.

    Attributes:
        refusals: what was wrong with the last requests that were not taken.

    Raises:
        ConfigurationError: `host` is not one of this machine alone, or nobody can listen there.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, any_host: bool = False) -> None:
        if not any_host and not _is_loopback(host):
            raise ConfigurationError(f"`{host}` is not an address of this machine alone; give 127.0.0.1, or allow any host")
        self._place: Final = (host, port)
        self.refusals: Final[deque[str]] = deque(maxlen=100)
        self._spans: list[SpanData] = []
        self._came: Final = threading.Condition()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        host, port = self._place
        try:
            self._server = _Server(host, port, self)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"nobody can listen at `{host}`, port {port}: {why}; give another one") from error
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="otlp-receiver", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        """Where it listens: what `OTEL_EXPORTER_OTLP_ENDPOINT` is set to.

        Raises:
            ConfigurationError: it does not listen.
        """
        if self._server is None:
            raise ConfigurationError("the receiver does not listen; use it in `with OtlpReceiver() as receiver:`")
        host, port = self._place[0], self._server.server_port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def spans(self) -> tuple[SpanData, ...]:
        """What has come so far, in that order."""
        with self._came:
            return tuple(self._spans)

    def drain(self) -> list[SpanData]:
        """What has come so far, which is forgotten with this."""
        with self._came:
            spans, self._spans = self._spans, []
        return spans

    def wait(self, count: int, timeout: float = 10.0) -> tuple[SpanData, ...]:
        """What has come, once it is at least so many spans. It blocks: in async code, call it in a thread.

        Raises:
            TimeoutError: fewer came within `timeout` seconds.
        """
        with self._came:
            if not self._came.wait_for(lambda: len(self._spans) >= count, timeout):
                refused = f"; refused: {self.refusals[-1]}" if self.refusals else ""
                raise TimeoutError(f"{len(self._spans)} of {count} spans came within {timeout:g} s{refused}")
            return tuple(self._spans)

    def take(self, path: str, content_type: str, body: bytes) -> None:
        """Take one request.

        Raises:
            InvalidInputError: it cannot be read.
            MissingExtraError: what reads protobuf is not installed.
        """
        if path != "/v1/traces":
            return
        spans = spans_in(_as_json(content_type, body))
        with self._came:
            self._spans += spans
            self._came.notify_all()


class _Server(ThreadingHTTPServer):
    def __init__(self, host: str, port: int, receiver: OtlpReceiver) -> None:
        self.receiver = receiver
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), _Request)

    def server_bind(self) -> None:
        """Without asking for the host's full name, which takes its time and is for nobody."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection broke: that is the client's to tell."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0  # seconds for a client that says nothing

    def do_POST(self) -> None:
        content_type = self.headers.get_content_type()
        if self.path.rstrip("/") not in _TAKEN:
            self._refuse(404, f"`{self.path}` is not taken; send to {', '.join(_TAKEN)}")
        elif content_type not in (_JSON, _PROTOBUF):
            self._refuse(415, f"`{content_type}` is not taken; send {_PROTOBUF} or {_JSON}")
        else:
            self._take(content_type)

    def _take(self, content_type: str) -> None:
        try:
            self.server.receiver.take(self.path.rstrip("/"), content_type, self._body())
        except InvalidInputError as error:
            self._refuse(400, str(error))
        except AdvisorChainError as error:
            self._refuse(501, str(error))
        else:
            self._answer(200, content_type, b"{}" if content_type == _JSON else b"")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length) or int(length) > _MAX_BODY:
            raise InvalidInputError(f"the length of a request is to be told, and {_MAX_BODY} bytes at most")
        return _unpacked(self.rfile.read(int(length)), self.headers.get("Content-Encoding", "identity"))

    def _refuse(self, status: int, why: str) -> None:
        self.server.receiver.refusals.append(why)
        self._answer(status, "text/plain; charset=utf-8", f"{why}\n".encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Of what is no HTTP/1 the usual cause is an exporter that speaks gRPC."""
        if code == 505:
            self.server.receiver.refusals.append(
                "a client speaks gRPC; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf for it"
            )
        super().send_error(code, message, explain)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _as_json(content_type: str, body: bytes) -> Any:
    if content_type == _PROTOBUF:
        from advisorchain._span_data.otlp_protobuf import as_json  # here: who sends JSON does not need it

        return as_json(body)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("no JSON") from error


def _unpacked(body: bytes, encoding: str) -> bytes:
    """The body without compression. What would become too large is not unpacked to its end."""
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise InvalidInputError(f"the encoding `{encoding}` is not taken; send gzip, deflate or none")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # tells gzip and zlib apart itself
    try:
        unpacked = unpacking.decompress(body, _MAX_BODY)
    except zlib.error as error:
        raise InvalidInputError(f"the request is not {encoding}, as it says") from error
    if unpacking.unconsumed_tail or unpacking.unused_data or not unpacking.eof:
        raise InvalidInputError(f"the request is cut, in several parts, or more than {_MAX_BODY} bytes when unpacked")
    return unpacked


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
