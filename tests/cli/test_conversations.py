"""`advisorchain conversations`, in this process by typer's runner."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner, Result

from advisorchain.cli.app import app
from advisorchain.errors import ChatMemoryError, StorageError
from advisorchain.memory import ChatMemory
from advisorchain.memory.urls import open_repository
from advisorchain.messages import AssistantMessage, ImagePart, Message, TextPart, ToolCall, UserMessage, load_message

pytestmark = pytest.mark.slow  # starts the command

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SAID: dict[str, list[Message]] = {
    "ada": [UserMessage("My name is Ada."), AssistantMessage("Hello, A", partial=True)],
    "tools\x1b[2J": [
        UserMessage((TextPart("Look"), ImagePart("http://localhost/a.png"))),
        AssistantMessage(tool_calls=(ToolCall("c1", "look", '{"at": 1}'),)),
    ],
    "many": [UserMessage(f"número {number}") for number in range(450)],
}


@pytest.fixture
def kept(home: Path) -> str:
    """A store in which three conversations are kept."""

    async def fill() -> None:
        async with open_repository("sqlite:///kept.db") as repository:
            for conversation_id, messages in SAID.items():
                await ChatMemory(repository=repository).add(conversation_id, messages)

    anyio.run(fill)
    return str(home / "kept.db")


def invoke(*args: str, input: str = "") -> Result:
    return CliRunner().invoke(app, ["conversations", *args], input=input)


def test_list(kept: str) -> None:
    result = invoke("list", "--memory", kept)
    assert result.exit_code == 0
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["LAST", "USED", "MESSAGES", "ID"]
    assert [line.split()[2:] for line in lines] == [["2", "ada"], ["450", "many"], ["2", "tools�[2J"]]


def test_nothing_was_ever_said(home: Path) -> None:
    result = invoke("list")
    assert (result.exit_code, result.output) == (0, "")
    assert not (home / "data").exists()


def test_show(kept: str) -> None:
    text = invoke("show", "ada", "--memory", kept).stdout
    assert [line.partition(" ")[2][6:] for line in text.splitlines() if line.endswith(":")] == [
        "user:",
        "assistant (stopped):",
    ]
    assert "My name is Ada." in text
    assert "Hello, A" in text
    shown = invoke("show", "tools\x1b[2J", "--memory", kept).stdout
    assert "Look\n[image]" in shown
    assert '[calls look {"at": 1}]' in shown
    assert invoke("show", "many", "--memory", kept).stdout.count("user:") == 450


def test_export_all_to_standard_output(kept: str) -> None:
    lines = [json.loads(line) for line in invoke("export", "--memory", kept).stdout.splitlines()]
    told: dict[str, list[Message]] = {}
    for line in lines:
        told.setdefault(line["conversation_id"], []).append(load_message(line["message"]))
    assert told == SAID
    assert [line["sequence"] for line in lines if line["conversation_id"] == "ada"] == [1, 2]


def test_export_some_to_a_file(kept: str, home: Path) -> None:
    result = invoke("export", "ada", "--memory", kept, "--output", "out.jsonl")
    assert (result.exit_code, result.output) == (0, "")
    assert len((home / "out.jsonl").read_text().splitlines()) == 2
    assert isinstance(invoke("export", "--memory", kept, "-o", "nowhere/out.jsonl").exception, StorageError)
    assert isinstance(invoke("export", "bob", "--memory", kept, "-o", "bob.jsonl").exception, ChatMemoryError)
    assert sorted(path.name for path in home.glob("*.jsonl*")) == ["out.jsonl"]
    assert list(home.glob(".*.part")) == []


def test_nothing_was_ever_said_and_more(home: Path) -> None:
    assert (invoke("export").exit_code, invoke("export").output) == (0, "")
    assert "there is no conversation `ada`" in str(invoke("show", "ada").exception)
    assert "there is no conversation `ada`" in str(invoke("delete", "ada", "--yes").exception)
    assert not (home / "data").exists()


@pytest.mark.parametrize("place", ["none.db", "sqlite:///none.db", "SQLite:///none.db", "~/none.db"])
@pytest.mark.parametrize("command", [["list"], ["export"], ["show", "ada"], ["delete", "ada", "--yes"]], ids=" ".join)
def test_a_place_that_was_given_must_be_there(home: Path, command: list[str], place: str) -> None:
    result = invoke(*command, "--memory", place)
    assert isinstance(result.exception, StorageError)
    assert ("none.db` is not there; check --memory" in str(result.exception), result.output) == (True, "")
    assert list(home.glob("none.db*")) == []


def test_a_place_given_by_the_environment_must_be_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISORCHAIN_MEMORY", "none.db")
    assert isinstance(invoke("list").exception, StorageError)


def test_urls_name_stores_too(kept: str) -> None:
    assert len(invoke("list", "--memory", f"sqlite:///{kept}").stdout.splitlines()) == 4
    assert (invoke("list", "--memory", "memory://").exit_code, invoke("list", "--memory", "memory://").output) == (0, "")


def test_what_was_said_does_not_steer_the_reader_and_is_exported_as_it_was(home: Path) -> None:
    said = "a\x1b]0;title\x07b\x9b31m\r\n\tc"

    async def fill() -> None:
        async with open_repository("sqlite:///kept.db") as repository:
            await ChatMemory(repository=repository).add("ada", [UserMessage(said)])

    anyio.run(fill)
    assert "a�]0;title�b�31m\n\tc\n" in invoke("show", "ada", "--memory", "kept.db").stdout
    line = json.loads(invoke("export", "--memory", "kept.db").stdout)
    assert line["message"]["content"] == said


def test_delete_without_a_terminal_and_yes_deletes_nothing(kept: str) -> None:
    result = invoke("delete", "ada", "--memory", kept, input="y\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "advisorchain: there is no terminal to ask at, so nothing was deleted; give --yes\n"
    assert invoke("show", "ada", "--memory", kept).exit_code == 0


def test_delete_all_or_none(kept: str) -> None:
    assert isinstance(invoke("delete", "many", "bob", "--yes", "--memory", kept).exception, ChatMemoryError)
    assert invoke("delete", "many", "ada", "--yes", "--memory", kept).exit_code == 0
    assert len(invoke("list", "--memory", kept).stdout.splitlines()) == 2


def test_unknown_ids_and_stores_are_one_line_and_status_1(run: Run, kept: str) -> None:
    ended = run("conversations", "show", "bob", "--memory", kept)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "advisorchain: there is no conversation `bob`; see: conversations list\n"
    ended = run("conversations", "list", "--memory", "none.db")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "`none.db` is not there" in ended.stderr
