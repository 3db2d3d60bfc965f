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
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # starts the command

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")


class Terminal:
    """The other end of a terminal that the command runs at."""

    def __init__(self, home: Path, *args: str) -> None:
        self.end, theirs = pty.openpty()
        command = [sys.executable, "-m", "advisorchain.cli", *(args if args[0] == "conversations" else ("chat", *args))]
        command += ["--memory", "kept.db"]
        env = {**os.environ, "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
        self.chat = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=env)
        os.close(theirs)
        self.unread = ""

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def read_until(self, expected: str) -> str:
        """What came up to `expected`, without it."""
        return self._read_until(re.escape(expected))

    def read_prompt(self) -> str:
        """What came up to the next prompt."""
        return self._read_until(r"(?:\A|\n)> ")

    def says(self, expected: str, within: float) -> bool:
        """Whether it comes in so many seconds."""
        return self._await(re.escape(expected), within) is not None

    def _read_until(self, pattern: str) -> str:
        found = self._await(pattern, 30)
        assert found is not None, f"{pattern!r} did not come; there is {self.unread!r}"
        before, self.unread = self.unread[: found.start()], self.unread[found.end() :]
        return before

    def _await(self, pattern: str, within: float) -> re.Match[str] | None:
        deadline = time.monotonic() + within
        while (found := re.search(pattern, self.unread)) is None:
            ready, _, _ = select.select([self.end], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            try:
                self.unread += os.read(self.end, 4096).decode(errors="replace").replace("\r\n", "\n")
            except OSError:  # the command has ended
                return None
        return found

    def read_rest(self) -> str:
        """What is left, once the command has ended."""
        try:
            while said := os.read(self.end, 4096):
                self.unread += said.decode(errors="replace").replace("\r\n", "\n")
        except OSError:
            pass
        return self.unread

    def interrupt(self) -> None:
        self.chat.send_signal(signal.SIGINT)

    def close(self) -> None:
        if self.chat.poll() is None:
            self.chat.kill()
        self.chat.wait()
        os.close(self.end)


@contextmanager
def at_terminal(home: Path, *args: str) -> Iterator[Terminal]:
    terminal = Terminal(home, *args)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    with at_terminal(home, "--model", "scripted:answer", "--trace") as terminal:
        yield terminal


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(terminal: Terminal) -> None:
    assert "conversation `default`, 0 messages kept" in terminal.read_prompt()
    terminal.type("wait\n")
    terminal.read_until("one two")
    terminal.interrupt()
    tree = terminal.read_until("stopped; what you see of the answer is kept\n")
    assert [line.split()[-1] for line in tree.splitlines() if "advisor memory" in line] == ["cancelled"]
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
    terminal.read_until("advisorchain: RuntimeError: the model broke (--debug shows where)\n")
    terminal.read_prompt()
    terminal.type("hi\n")
    terminal.read_until("heard: hi\n")


def test_what_a_model_says_does_not_steer_the_terminal(home: Path) -> None:
    with at_terminal(home, "--model", "scripted:pieces") as terminal:
        terminal.read_prompt()
        terminal.type("hi\n")
        terminal.read_until("a�[31mb\n\tc�\n")
        assert "\x1b" not in terminal.read_prompt()


def test_arrow_keys_edit_and_recall_and_control_characters_are_not_sent(home: Path) -> None:
    pytest.importorskip("readline")
    with at_terminal(home, "--model", "scripted:asked") as terminal:
        terminal.read_prompt()
        terminal.type("ac\x1b[Db\n")  # a c left b
        terminal.read_until("'abc'\n")
        terminal.read_prompt()
        terminal.type("\x1b[A!\n")  # up
        terminal.read_until("'abc!'\n")
        terminal.read_prompt()
        terminal.type("\x16\x1b[31mred\x16\x07\n")  # Ctrl-V takes what follows as it is
        terminal.read_until("'red'\n")
        terminal.read_prompt()
        os.write(terminal.end, b"\xff\n")
        terminal.read_until("what you typed is not utf-8\n")
        terminal.read_prompt()
    assert sorted(path.name for path in home.iterdir() if "hist" in path.name) == []


def test_the_header_says_how_to_begin_anew(terminal: Terminal) -> None:
    assert "--conversation NAME begins another" in terminal.read_prompt()


def test_ctrl_c_before_the_first_chunk_is_not_lost(home: Path) -> None:
    with at_terminal(home, "--model", "scripted:answer") as terminal:
        terminal.read_prompt()
        terminal.type("silence\n")
        terminal.read_until("silence\n")  # the echo; the line is perhaps not read yet: then Ctrl-C is one at the prompt
        terminal.interrupt()
        told = terminal.read_until("\n")
        if told == "the model was asked":
            told = terminal.read_until("\n")
        if told:
            assert told == "stopped; nothing of this turn is kept"
            terminal.read_prompt()
            terminal.type("\x04")
        assert terminal.chat.wait(30) == 0
        assert terminal.read_rest().strip() == ""


def test_ctrl_c_while_all_is_closed_is_status_130_and_no_traceback(home: Path) -> None:
    with at_terminal(home, "--model", "scripted:answer", "--advisor", "scripted:SlowToClose") as terminal:
        terminal.read_prompt()
        terminal.type("\x04")
        terminal.read_until("closing\n")
        terminal.interrupt()
        assert terminal.chat.wait(30) == 130
        assert terminal.read_rest() == ""


def test_a_third_ctrl_c_ends_what_does_not_listen(home: Path) -> None:
    with at_terminal(home, "--model", "scripted:deaf") as terminal:
        terminal.read_prompt()
        terminal.type("hi\n")
        terminal.read_until("the model was asked\n")
        terminal.interrupt()
        while not terminal.says("still busy; Ctrl-C once more ends at once\n", within=0.2):
            assert terminal.chat.poll() is None
            terminal.interrupt()  # two that come at once are one
        terminal.interrupt()
        assert terminal.chat.wait(30) == 130


def test_an_export_to_a_terminal_does_not_steer_it(home: Path) -> None:
    with at_terminal(home, "a\x9b31mb\u202ec", "--model", "scripted:asked") as terminal:
        assert terminal.chat.wait(30) == 0
    with at_terminal(home, "conversations", "export") as terminal:
        terminal.read_until('"content": "a\\u009b31mb\\u202ec"')
        assert terminal.chat.wait(30) == 0


def test_delete_asks(home: Path) -> None:
    with at_terminal(home, "hi", "--model", "scripted:answer") as terminal:
        assert terminal.chat.wait(30) == 0
    question = "Delete `default` with 2 messages for good? [y/N]: "
    for answer, status, told in (
        ("n\n", 1, "n\nnothing was deleted"),
        ("\x04", 1, "nothing was deleted"),
        ("", 130, ""),
        ("y\n", 0, "y\ndeleted `default` with 2 messages"),
        ("", 1, None),
    ):
        with at_terminal(home, "conversations", "delete", "default") as terminal:
            if told is None:
                terminal.read_until("there is no conversation `default`")
            else:
                terminal.read_until(question)
                terminal.type(answer) if answer else terminal.interrupt()
            assert terminal.chat.wait(30) == status
            assert told is None or terminal.read_rest().strip() == told
