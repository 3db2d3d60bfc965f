"""A command run as a user runs it: another process, a folder of its own, a scripted model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """
import sys
import threading

import anyio

from advisorchain import BaseAdvisor


async def answer(request):
    asked = request.messages[-1].text
    if asked == "fail":
        raise RuntimeError("the model\\nbroke")
    if asked in ("wait", "silence"):
        if asked == "wait":
            yield "one "
            yield "two"
        else:
            print("the model was asked", file=sys.stderr, flush=True)
        await anyio.sleep_forever()
    yield "heard: "
    yield " | ".join(message.text for message in request.messages)


class Upper:
    def feed(self, text):
        return text.upper()

    def flush(self):
        return ""


class Shout(BaseAdvisor):
    name = "shout"

    def transform(self, request):
        return Upper()


escape = lambda: None


async def steering(request):
    return "a\\x1b[31mb\\x9bc"


async def pieces(request):
    yield "a\\x1b"
    yield "[31mb\\r"
    yield "\\n\\tc\\x07"


async def asked(request):
    return repr(request.messages[-1].text)


async def mistaken(request):
    return {}["k\\x1b[2J"]


async def deaf(request):
    print("the model was asked", file=sys.stderr, flush=True)
    threading.Event().wait()


class SlowToClose(BaseAdvisor):
    name = "slow"

    def before(self, request):
        return request

    async def aclose(self):
        print("closing", file=sys.stderr, flush=True)
        await anyio.sleep(0.5)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command runs in, with `scripted.py`; the user's data folder lies in it too."""
    (tmp_path / "scripted.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ADVISORCHAIN_MEMORY", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "scripted", raising=False)
    return tmp_path


@pytest.fixture
def run(home: Path) -> Run:
    """Run the command; `input` is its standard input."""

    def run(*args: str, input: str = "", model: str | None = "scripted:answer") -> subprocess.CompletedProcess[str]:
        chosen = ("--model", model) if args[:1] == ("chat",) and model else ()
        return subprocess.run(
            [sys.executable, "-m", "advisorchain.cli", *args, *chosen],
            input=input,
            capture_output=True,
            text=True,
            cwd=home,
            env={**os.environ, "PYTHONWARNINGS": "default", "PYTHONIOENCODING": "utf-8"},  # what is left open is told
            timeout=60,
            check=False,
        )

    return run
