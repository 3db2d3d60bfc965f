"""`advisorchain trace URL` as a user runs it: another process that spans are sent to, ended by Ctrl-C; and the example."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

pytestmark = pytest.mark.slow  # starts the command

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "advisorchain.cli", "trace"]
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Tracing:
    """The command, and what it has written."""

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self._end = end
        self.text = ""
        self.url = self.until(r"taken at (http://\S+)")[1]

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for what matches."""
        deadline = time.monotonic() + 30
        while (found := re.search(pattern, self.text)) is None:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} did not come; there is {self.text!r}"
            came = self._read()
            assert came, f"{pattern!r} did not come; there is {self.text!r}"
        return found

    def _read(self) -> bool:
        try:
            came = os.read(self._end, 65536)
        except OSError:  # a terminal whose other end was closed
            return False
        self.text += came.decode(errors="replace")
        return bool(came)

    def send(self, *spans: dict[str, Any]) -> None:
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
        request = urllib.request.Request(f"{self.url}/v1/traces", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200

    def interrupt(self) -> str:
        """Ctrl-C, and what is written from then on."""
        before = len(self.text)
        self.process.send_signal(signal.SIGINT)
        while self._read():
            pass
        assert self.process.wait(30) == 0
        return self.text[before:]


def span(id: str, parent: str, milliseconds: int, **told: str) -> dict[str, Any]:
    attributes = [{"key": f"advisorchain.{key}", "value": {"stringValue": value}} for key, value in told.items()]
    times = {"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": str(1700000000000000000 + milliseconds * 10**6)}
    return {
        "traceId": TRACE,
        "spanId": id * 16,
        "parentSpanId": parent * 16,
        "name": f"span {id}",
        "attributes": attributes,
        **times,
    }


@contextmanager
def tracing(out: IO[bytes] | int, end: int, **env: str) -> Iterator[Tracing]:
    told = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONDEVMODE": "1", **env}
    process = subprocess.Popen([*COMMAND, "http://127.0.0.1:0"], stdin=out, stdout=out, stderr=out, env=told)
    os.close(out) if isinstance(out, int) else None
    try:
        yield Tracing(process, end)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(end)


def test_through_a_pipe_each_trace_is_written_once_when_it_has_come() -> None:
    end, out = os.pipe()
    with tracing(out, end) as command:
        command.send(span("b", "a", 20))
        command.send(span("a", "", 30, kind="chain", outcome="ok"))
        command.until(r"slowest: `span b`, 20.0 ms of 30.0 ms its own")
        command.send({**span("c", "d", 7, kind="advisor"), "traceId": "f" * 32})
        rest = command.interrupt()
    assert "\x1b" not in command.text
    assert command.text.count(f"trace {TRACE}") == 1
    assert f"trace {'f' * 32}" in rest  # what has come is shown, though its root has not
    assert "(a span that is not among these)" in rest
    total = "slowest in 2 traces: `span b`, 20.0 ms of 37.0 ms its own (54%); then `span a`, 10.0 ms (27%); then `span c`, "
    assert rest.splitlines()[-1].startswith(total)


def test_at_a_terminal_a_trace_is_drawn_while_it_runs() -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    end, theirs = pty.openpty()
    with tracing(theirs, end, TERM="xterm", COLUMNS="100", LINES="30") as command:
        command.send(span("b", "a", 20))
        command.until(r"has not ended yet")
        command.send(span("a", "", 30, kind="chain", outcome="ok"))
        command.until(r"slowest: `span b`")
        command.interrupt()
    assert "slowest in" not in command.text  # of one trace it was told beneath it
    assert command.text.count("\x1b[?25l") == command.text.count("\x1b[?25h") == 1  # the cursor is back
    final = command.text.rpartition(f"trace {TRACE}")[2]
    assert "has not ended yet" not in final


def test_what_is_refused_is_told() -> None:
    end, out = os.pipe()
    with tracing(out, end) as command:
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{command.url}/v1/spans", b"{}", timeout=20).close()
        command.until(r"advisorchain: not taken: `/v1/spans` is not taken; send to /v1/traces")
        command.interrupt()


def test_a_port_that_is_taken_is_one_line() -> None:
    end, out = os.pipe()
    with tracing(out, end) as command:
        ran = subprocess.run([*COMMAND, command.url], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(r"advisorchain: nobody can listen at `127.0.0.1`, port \d+: .*\n", ran.stderr)


def test_last_and_slowest_are_one_or_the_other() -> None:
    ran = subprocess.run([*COMMAND, "x", "--last", "2", "--slowest", "2"], capture_output=True, text=True, check=False)
    assert (ran.returncode, "not both" in ran.stderr) == (2, True)


def test_help_says_which_variables_the_application_needs() -> None:
    env = {**os.environ, "COLUMNS": "80"}
    told = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True, env=env)
    both = [line.strip() for line in told.stdout.splitlines() if "export OTEL" in line]
    assert both == [
        "export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318",
        "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ]


def test_the_example_is_slow_and_its_trace_says_why(tmp_path: Path) -> None:
    example = [sys.executable, "-W", "error", str(ROOT / "examples" / "slow_chain.py")]
    ran = subprocess.run(example, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("An ocelot is a cat.\n", "")
    for source in ("spans.jsonl", "-"):
        with open(tmp_path / "spans.jsonl") as file:
            traced = subprocess.run([*COMMAND, source], cwd=tmp_path, stdin=file, capture_output=True, text=True, check=True)
        *tree, _, closing = traced.stdout.splitlines()
        assert ["advisor glossary" in line for line in tree if "◀" in line] == [True]
        assert re.match(r"slowest: `advisor glossary`, \S+ m?s of \S+ m?s its own \(\d+%\), \S+ m?s in `before`", closing)
        assert traced.stderr == ""
