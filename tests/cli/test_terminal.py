"""`advisorchain chat` at a real terminal (a pty), with real interrupts."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")


class Terminal:
    """The other end of a terminal that the command runs at."""

    def __init__(self, home: Path, *args: str) -> None:
        self._end, theirs = pty.openpty()
        command = [sys.executable, "-m", "advisorchain.cli", "chat", "--memory", "kept.db", *args]
        env = {**os.environ, "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
        self.chat = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=env)
        os.close(theirs)
        self.unread = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def read_until(self, expected: str) -> str:
        """What came up to `expected`, without it."""
        return self._read_until(re.escape(expected))

    def read_prompt(self) -> str:
        """What came up to the next prompt."""
        return self._read_until(r"(?:\A|\n)> ")

    def _read_until(self, pattern: str) -> str:
        deadline = time.monotonic() + 30
        while (found := re.search(pattern, self.unread)) is None:
            ready, _, _ = select.select([self._end], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} did not come; there is {self.unread!r}"
            try:
                self.unread += os.read(self._end, 4096).decode(errors="replace").replace("\r\n", "\n")
            except OSError:  # the command has ended
                pytest.fail(f"{pattern!r} did not come; there is {self.unread!r}")
        before, self.unread = self.unread[: found.start()], self.unread[found.end() :]
        return before

    def interrupt(self) -> None:
        self.chat.send_signal(signal.SIGINT)

    def close(self) -> None:
        if self.chat.poll() is None:
            self.chat.kill()
        self.chat.wait()
        os.close(self._end)


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    terminal = Terminal(home, "--model", "scripted:answer", "--trace")
    yield terminal
    terminal.close()


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(terminal: Terminal) -> None:
    assert "conversation `default`, 0 messages kept" in terminal.read_prompt()
    terminal.type("wait\n")
    terminal.read_until("one two")
    terminal.interrupt()
    tree = terminal.read_until("stopped; what you see of the answer is kept\n")
    assert [line.split()[-1] for line in tree.splitlines() if "memory" in line] == ["cancelled"]
    terminal.read_prompt()
    terminal.type("go on\n")
    terminal.read_until("heard: wait | one two | go on\n")
    terminal.read_prompt()
    terminal.type("\x04")
    assert terminal.chat.wait(30) == 0


def test_stopped_before_anything_was_seen(terminal: Terminal) -> None:
    terminal.read_prompt()
    terminal.type("silence\n")
    terminal.read_until("the model was asked\n")
    terminal.interrupt()
    terminal.read_until("stopped; nothing of this turn is kept\n")
    terminal.read_prompt()
    terminal.type("hi\n")
    terminal.read_until("heard: hi\n")


def test_ctrl_c_at_the_prompt_ends_the_chat(terminal: Terminal) -> None:
    terminal.read_prompt()
    terminal.type("\n")  # a blank line asks nothing
    terminal.read_prompt()
    terminal.interrupt()
    assert terminal.chat.wait(30) == 0


def test_an_error_does_not_end_the_chat(terminal: Terminal) -> None:
    terminal.read_prompt()
    terminal.type("fail\n")
    terminal.read_until("advisorchain: RuntimeError: the model broke\n")
    terminal.read_prompt()
    terminal.type("hi\n")
    terminal.read_until("heard: hi\n")


def test_what_a_model_says_does_not_steer_the_terminal(home: Path) -> None:
    terminal = Terminal(home, "--model", "scripted:steering")
    try:
        terminal.read_prompt()
        terminal.type("hi\n")
        terminal.read_until("a�[31mb�c\n")
        assert "\x1b" not in terminal.read_prompt()
    finally:
        terminal.close()
