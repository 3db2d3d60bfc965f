"""`advisorchain chat` in a pipe."""

from __future__ import annotations

import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisorchain.cli.app import app
from advisorchain.errors import AdvisorChainError, ConfigurationError

pytestmark = pytest.mark.slow  # starts the command

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_standard_input_is_one_prompt_and_standard_output_the_answer(run: Run) -> None:
    ended = run("chat", input="line one\nline two\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "heard: line one\nline two\n", "")


def test_what_a_module_prints_when_it_is_imported_is_no_part_of_the_answer(run: Run, home: Path) -> None:
    (home / "loud.py").write_text("from scripted import answer\nprint('imported')\n")
    ended = run("chat", input="hi", model="loud:answer")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "heard: hi\n", "imported\n")


def test_the_next_start_remembers(run: Run, home: Path) -> None:
    assert run("chat", input="My name is Ada").returncode == 0
    assert run("chat", input="again").stdout == "heard: My name is Ada | heard: My name is Ada | again\n"
    assert run("chat", "--conversation", "other", input="again").stdout == "heard: again\n"
    assert (home / "data" / "advisorchain" / "conversations.db").is_file()


def test_memory_system_and_window(run: Run, home: Path) -> None:
    there = ("--memory", "kept.db")
    assert run("chat", *there, "--system", "Be brief.", input="a").stdout == "heard: Be brief. | a\n"
    assert (home / "kept.db").is_file()
    assert run("chat", *there, "--window", "1", input="b").stdout == "heard: b\n"
    assert run("chat", "--memory", "memory://", input="c").stdout == "heard: c\n"
    assert not (home / "data").exists()


def test_a_custom_advisor_stands_behind_memory(run: Run) -> None:
    ended = run("chat", "--advisor", "scripted:Shout", "--trace", input="hi")
    assert ended.stdout == "HEARD: HI\n"
    spans = [line.lstrip(" │├└").partition("  ")[0] for line in ended.stderr.splitlines()]
    assert [name for name in spans if not name.endswith("_memory")] == [
        "span",
        "advisor_chain chat",
        "advisor memory",
        "advisor shout",
        "chat answer",
    ]
    assert run("chat", input="so").stdout == "heard: hi | HEARD: HI | so\n"


def test_a_failing_model_is_one_line_and_status_1(run: Run) -> None:
    ended = run("chat", "--trace", input="fail")
    assert (ended.returncode, ended.stdout) == (1, "")
    *tree, last = ended.stderr.splitlines()
    assert last == "advisorchain: RuntimeError: the model broke (--debug shows where)"
    assert ["  error Runtime" in line for line in tree[1:] if "_memory" not in line] == [True] * 3


def test_a_timeout_is_one_line_and_status_1(run: Run) -> None:
    ended = run("chat", "--timeout", "0.05", input="wait")
    assert (ended.returncode, ended.stdout) == (1, "one two\n")
    assert len(ended.stderr.splitlines()) == 1
    assert "timeout" in ended.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--model", "gpt"), "`--model` is `gpt`; give gguf, gguf:FILE, openai:NAME, anthropic:NAME or module:attr"),
        (("--model", "nowhere:model"), "names the module `nowhere`, which is not there"),
        (("--model", "scripted:nothing"), "`scripted` has no `nothing`"),
        (("--model", "broken:model"), "`broken` cannot be imported: ZeroDivisionError"),
        (("--model", "gguf:"), "`gguf:` without a file"),
        (("--model", "scripted:escape"), "async"),
        (("--advisor", "scripted:SCRIPT"), "`scripted` has no `SCRIPT`"),
        (("--advisor", "scripted:answer"), "advisor"),
        (("--memory", "text.db"), "text.db"),
        (("--memory", "nowhere/kept.db"), "nowhere/kept.db"),
        (("--memory", "cloud://kept"), "unknown scheme `cloud`"),
        (("--conversation", " "), "`conversation_id` is blank"),
    ],
)
def test_what_cannot_begin(home: Path, args: tuple[str, ...], told: str) -> None:
    (home / "broken.py").write_text("1 / 0")
    (home / "text.db").write_text("this is no database, only a text that is long enough to be read as one. " * 20)
    model = () if "--model" in args else ("--model", "scripted:answer")
    result = CliRunner().invoke(app, ["chat", *args, *model], input="hi")
    assert isinstance(result.exception, AdvisorChainError)
    assert (told in str(result.exception), result.output) == (True, "")


def test_an_error_at_the_start_is_one_line_and_status_1(run: Run) -> None:
    ended = run("chat", input="hi", model="nowhere:model")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "advisorchain: `--model` names the module `nowhere`, which is not there\n"


def test_an_empty_prompt_and_one_that_is_no_text(run: Run, home: Path) -> None:
    for nothing in ("", "  \n"):
        ended = run("chat", input=nothing)
        assert (ended.returncode, ended.stderr) == (1, "advisorchain: standard input is empty; give a question\n")
    assert run("chat", " ").stderr == "advisorchain: the prompt is empty; give a question\n"
    command = [sys.executable, "-m", "advisorchain.cli", "chat", "--model", "scripted:answer"]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    ended = subprocess.run(command, input=b"\xff\xfe", capture_output=True, cwd=home, env=env, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"advisorchain: standard input is not utf-8\n")


def test_a_prompt_alone_counts(run: Run) -> None:
    ended = run("chat", "hi", "--trace", input="not read")
    assert (ended.returncode, ended.stdout) == (0, "heard: hi\n")
    assert [line.split()[0] for line in ended.stderr.splitlines()][:2] == ["span", "advisor_chain"]
    assert run("chat", input="so").stdout == "heard: hi | heard: hi | so\n"


@pytest.mark.parametrize(("model", "shown"), [("steering", "a�[31mb�c\n"), ("pieces", "a�[31mb\n\tc�\n")])
def test_what_a_model_says_is_plain_text_in_a_pipe_too(home: Path, model: str, shown: str) -> None:
    result = CliRunner().invoke(app, ["chat", "hi", "--model", f"scripted:{model}"])
    assert (result.exit_code, result.stdout) == (0, shown)


def test_a_mistake_tells_its_type_and_with_debug_its_place(run: Run) -> None:
    ended = run("chat", "hi", model="scripted:mistaken")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "advisorchain: KeyError: 'k\\x1b[2J' (--debug shows where)\n"
    ended = run("chat", "hi", "--debug", model="scripted:mistaken")
    *shown, last = ended.stderr.splitlines()
    assert (ended.returncode, shown[0], last) == (
        1,
        "Traceback (most recent call last):",
        "advisorchain: KeyError: 'k\\x1b[2J'",
    )
    assert any("scripted.py" in line and "in mistaken" in line for line in shown)


@pytest.mark.parametrize(
    ("source", "attr", "told"),
    [
        ("import json\n\njson.loads('{')", "model", "`mine` cannot be imported: JSONDecodeError: {any} ({file}, line 3)"),
        ("model = 1\nmodel ==", "model", "`mine` cannot be imported: SyntaxError: invalid syntax ({file}, line 2)"),
        ("import sys\nsys.exit('no')", "model", "`mine` cannot be imported: SystemExit: no ({file}, line 2)"),
        ("import nowhere", "model", "`mine` cannot be imported: ModuleNotFoundError: {any} ({file}, line 1)"),
        ("from advisorchain import UserMessage\nUserMessage(1)", "m", "`mine` cannot be imported: {any} ({file}, line 2)"),
        (
            "class M:\n  def __init__(self):\n    1 / 0",
            "M",
            "`mine:M` cannot be made: ZeroDivisionError: {any} ({file}, line 3)",
        ),
        ("class M:\n  def __init__(self, key): ...", "M", "`mine:M` cannot be made: TypeError: {any}'key'"),
    ],
)
def test_an_error_while_loading_names_the_place_of_its_cause(home: Path, source: str, attr: str, told: str) -> None:
    (home / "mine.py").write_text(source)
    sys.modules.pop("mine", None)
    result = CliRunner().invoke(app, ["chat", "hi", "--model", f"mine:{attr}"])
    sys.modules.pop("mine", None)
    assert isinstance(result.exception, ConfigurationError)
    pattern = re.escape(told.replace("{file}", str(home / "mine.py"))).replace(re.escape("{any}"), ".*")
    assert re.search(pattern + "$", str(result.exception), re.DOTALL), result.exception


def test_ctrl_c_keeps_what_was_seen(home: Path) -> None:
    command = [sys.executable, "-m", "advisorchain.cli", "chat", "--model", "scripted:answer", "--memory", "kept.db"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=home) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        assert chat.stderr is not None
        chat.stdin.write(b"wait")
        chat.stdin.close()
        assert chat.stdout.read(7) == b"one two"
        chat.send_signal(signal.SIGINT)
        assert chat.stderr.read() == b"stopped; what you see of the answer is kept\n"
        assert chat.wait(30) == 130
    with closing(sqlite3.connect(home / "kept.db")) as db:
        stored = [row[0] for row in db.execute("SELECT message FROM entries ORDER BY sequence")]
    assert ["wait" in stored[0], "one two" in stored[1], '"partial":true' in stored[1]] == [True, True, True]


def test_ctrl_c_while_the_pipe_is_read(home: Path) -> None:
    command = [sys.executable, "-m", "advisorchain.cli", "chat", "--model", "scripted:answer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=home) as chat:
        assert chat.stdin is not None
        assert chat.stderr is not None
        os.set_blocking(chat.stdin.fileno(), False)
        with pytest.raises(BlockingIOError):  # more than a pipe holds: once there is room again, the command reads
            while True:
                os.write(chat.stdin.fileno(), b"x" * 65536)
        select.select([], [chat.stdin], [], 30)
        chat.send_signal(signal.SIGINT)
        assert (chat.wait(30), chat.stderr.read()) == (130, b"")


def test_a_reader_that_leaves_is_no_traceback(home: Path) -> None:
    command = [sys.executable, "-m", "advisorchain.cli", "chat", "--model", "scripted:answer"]
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE, cwd=home) as chat:
        os.close(writing)
        _, told = chat.communicate(b"hi", timeout=60)
    assert (chat.returncode, told) == (1, b"")


def test_wrong_usage_is_status_2(run: Run) -> None:
    for args in (("chat", "--window", "0"), ("chat", "--no-such-option"), ("no-such-command",)):
        ended = run(*args)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Error" in ended.stderr


def test_help_and_version(run: Run, home: Path) -> None:
    helped = run("chat", "--help", model=None)
    assert helped.returncode == 0
    assert "Ctrl-C stops an answer" in helped.stdout
    words = " ".join(helped.stdout.split())
    for word in ("[PROMPT]", "Standard input is not read", "sqlite:///PATH", "memory://", "--debug"):
        assert word in words
    assert str(home / "data" / "advisorchain" / "conversations.db") in "".join(words.split())
    assert "bool" not in words
    assert run("--version").stdout.startswith("advisorchain ")


def test_a_missing_extra_names_the_command(home: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from advisorchain.cli.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=home, check=False)
    assert ended.returncode == 1
    assert ended.stderr == 'advisorchain: the command needs `typer`: pip install "advisorchain[cli]"\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a file that is always full")
@pytest.mark.parametrize("args", [("--help",), ("chat", "hi", "--model", "scripted:answer")])
def test_an_output_that_takes_no_more_is_one_line(args: tuple[str, ...], home: Path) -> None:
    command = [sys.executable, "-m", "advisorchain.cli", *args]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=home, check=False)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "No space left on device" in ended.stderr
