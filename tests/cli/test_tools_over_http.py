"""A tool call end to end: the command, a provider's own client, HTTP, a server with scripted answers, the tool, memory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..models._servers import Aimock, aimock

pytestmark = pytest.mark.slow  # starts the command and a real server

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TOOLS = """
from pathlib import Path

from advisorchain.tools import tool

DEGREES = {"Rome": 21, "Oslo": -3}


@tool
async def weather(city: str) -> dict[str, int]:
    "Look up the weather."
    return {"degrees": DEGREES[city]}


@tool
def note(text: str) -> str:
    "Write something down."
    with Path("notes.txt").open("a") as file:
        file.write(f"{text}\\n")
    return f"noted: {text}"


@tool(needs_approval=True)
def pay(to: str) -> str:
    "Pay."
    with Path("paid.txt").open("a") as file:
        file.write(f"{to}\\n")
    return f"{to} was paid"


tools = [weather, note, pay]
"""


def _asks(question: str, *calls: tuple[str, str], text: str = "") -> dict[str, Any]:
    made = [{"name": name, "arguments": arguments} for name, arguments in calls]
    said = {"content": text} if text else {}
    return {"match": {"userMessage": question, "hasToolResult": False}, "response": {**said, "toolCalls": made}}


def _answers(result: str, said: str) -> dict[str, Any]:
    """What is answered depends on what the tool has found."""
    return {"match": {"toolResultContains": result}, "response": {"content": said}}


FIXTURES = [
    _answers('{"degrees":21}', "It is 21 degrees in Rome."),
    _answers("KeyError", "I do not know that place."),
    _answers("noted: cold", "It is -3 degrees, and I wrote that down."),
    _answers("Ann was paid", "Ann has her money."),
    _answers("a person did not allow", "Then I leave it."),
    _asks("Rome", ("weather", '{"city":"Rome"}'), text="I look it up. "),
    _asks("Atlantis", ("weather", '{"city":"Atlantis"}')),
    _asks("Oslo", ("weather", '{"city":"Oslo"}'), ("note", '{"text":"cold"}')),
    _asks("Pay", ("pay", '{"to":"Ann"}')),
    {"match": {"userMessage": "warmest"}, "response": {"content": "Rome, as I said."}},
]


@pytest.fixture(scope="module")
def server() -> Iterator[Aimock]:
    with aimock(FIXTURES, "--chunk-size", "5") as server:
        yield server


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest, home: Path, server: Aimock, monkeypatch: pytest.MonkeyPatch) -> str:
    (home / "mytools.py").write_text(TOOLS)
    name = str(request.param)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.setenv(f"{name.upper()}_API_KEY", "sk-test")
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", server.url + ("/v1" if name == "openai" else ""))
    return name


@pytest.fixture
def ask(run: Run, provider: str) -> Run:
    def ask(question: str) -> subprocess.CompletedProcess[str]:
        return run("chat", question, "--tools", "mytools:tools", model=f"{provider}:some-model")

    return ask


def told(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """Standard error, without asyncio's notes on slow imports in development mode."""
    assert ended.returncode == 0, ended.stderr
    return [line for line in ended.stderr.splitlines() if not line.startswith("Executing <")]


def roles_sent(server: Aimock) -> list[str]:
    """The roles of the newest request. aimock notes Anthropic's requests in OpenAI's form."""
    return [message["role"] for message in server.journal()[-1]["body"]["messages"]]


def test_the_answer_is_made_of_what_the_tool_found_and_is_remembered(ask: Run, server: Aimock) -> None:
    ended = ask("What is the weather in Rome?")
    assert ended.stdout == "I look it up. \nIt is 21 degrees in Rome.\n"
    assert told(ended) == ['-> weather {"city":"Rome"}', '<- weather: {"degrees":21}']
    assert roles_sent(server) == ["user", "assistant", "tool"]
    ended = ask("Which is the warmest?")
    assert (ended.stdout, told(ended)) == ("Rome, as I said.\n", [])
    assert roles_sent(server) == ["user", "assistant", "user"]  # memory, outside the loop, keeps question and answer
    sent = json.dumps(server.journal()[-1]["body"])
    assert "It is 21 degrees in Rome." in sent
    assert 'degrees\\":21' not in sent


def test_two_calls_of_one_answer_and_a_failing_one(ask: Run, home: Path) -> None:
    ended = ask("And in Oslo?")
    assert ended.stdout == "It is -3 degrees, and I wrote that down.\n"
    assert told(ended) == [
        '-> weather {"city":"Oslo"}',
        '-> note {"text":"cold"}',
        '<- weather: {"degrees":-3}',
        "<- note: noted: cold",
    ]
    assert (home / "notes.txt").read_text() == "cold\n"
    ended = ask("And in Atlantis?")
    assert ended.stdout == "I do not know that place.\n"
    assert told(ended)[-1] == "<- weather (error): tool `weather` failed: KeyError: 'Atlantis'"


def test_without_a_terminal_what_needs_a_yes_is_denied(ask: Run, home: Path) -> None:
    ended = ask("Pay Ann.")
    assert ended.stdout == "Then I leave it.\n"
    assert "`pay` needs a person's yes" in ended.stderr
    assert not (home / "paid.txt").exists()


def test_a_yes_at_the_terminal_runs_it_once(provider: str, home: Path) -> None:
    pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    from .test_terminal import at_terminal

    with at_terminal(home, "--model", f"{provider}:some-model", "--tools", "mytools:tools") as terminal:
        terminal.read_prompt()
        terminal.type("Pay Ann.\n")
        terminal.read_until("Run it? [y/N] ")
        assert not (home / "paid.txt").exists()
        terminal.type("y\n")
        rest = terminal.read_prompt()
        assert rest.splitlines()[-2:] == ["<- pay: Ann was paid", "Ann has her money."]
        terminal.type("\x04")
        assert terminal.chat.wait(30) == 0
    assert (home / "paid.txt").read_text() == "Ann\n"
