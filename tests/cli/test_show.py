"""`advisorchain show`: a chain's order at the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from advisorchain.cli.app import app
from advisorchain.errors import AdvisorChainError, ConfigurationError
from advisorchain.lint import rules

CHAINS = """
from contextlib import asynccontextmanager
from advisorchain import AdvisorChain, BaseAdvisor, ChatClient, SyncChatClient
from advisorchain.advisors import MessageChatMemoryAdvisor, SafeGuardAdvisor
from advisorchain.memory import ChatMemory

left = []


async def model(request):
    raise AssertionError("the model is not asked")


class Shout(BaseAdvisor):
    name, order = "shout", 9

    def transform(self, request):
        return None


class Steering(Shout):
    name = "a\\x1b[31mb\\nc"


memory = MessageChatMemoryAdvisor(ChatMemory())
chain = AdvisorChain(model, [Shout(), memory], name="demo")
client = ChatClient(model, memory=ChatMemory(), advisors=[Shout()])
steering = AdvisorChain(model, [Steering()])
wrong = AdvisorChain(model, [SafeGuardAdvisor(["x"]), MessageChatMemoryAdvisor(ChatMemory(), order=0), Shout()])
equal = AdvisorChain(model, [Shout(), Steering()])
text = "not a chain"


def made():
    return chain


async def awaited():
    return client


@asynccontextmanager
async def opened():
    yield chain
    left.append("opened")


def broken():
    return 1 / 0


def needs(url):
    return chain


def leaves():
    raise SystemExit(4)


class Locked:
    @property
    def chain(self):
        raise RuntimeError("not yet")


@asynccontextmanager
async def closed():
    raise OSError("no server")
    yield


@asynccontextmanager
async def loud():
    print("opening")
    yield chain
    print("closing")
"""

Show = Callable[..., Result]


@pytest.fixture
def show(home: Path) -> Show:
    (home / "chains.py").write_text(CHAINS)
    sys.modules.pop("chains", None)

    def show(*args: str) -> Result:
        return CliRunner().invoke(app, ["show", *args])

    return show


@pytest.mark.filterwarnings("default::advisorchain.errors.AdvisorOrderWarning")
def test_the_table(show: Show) -> None:
    shown = show("chains:chain")
    assert (shown.exit_code, shown.stderr) == (0, "")
    first, _, memory, shout, note = shown.stdout.splitlines()
    assert first == "chain `demo` around model `model`: 2 advisors, outermost first"
    assert memory.split()[:4] == ["0", "-2147483448", "memory", "MessageChatMemoryAdvisor"]
    assert shout.split() == ["1", "9", "shout", "Shout", "transform", "the", "whole", "turn", "change,", "hold", "back"]
    assert note == "memory: keeps the question and the final answer"


@pytest.mark.parametrize("place", ["client", "made", "awaited", "opened"])
def test_whatever_gives_a_chain(show: Show, place: str) -> None:
    shown = show(f"chains:{place}")
    assert shown.exit_code == 0
    assert "memory" in shown.stdout
    assert "shout" in shown.stdout
    if place == "opened":
        assert sys.modules["chains"].left == ["opened"]


def test_mermaid_in_both_modes(show: Show) -> None:
    stream, call = show("chains:chain", "--mermaid"), show("chains:chain", "--mermaid", "--call")
    assert stream.stdout.startswith("flowchart TB\n")
    assert "chunks" in stream.stdout
    assert "chunks" not in call.stdout
    assert stream.stdout == show("chains:chain", "--mermaid", "--stream").stdout


def test_a_picture_in_a_file(show: Show, home: Path) -> None:
    shown = show("chains:chain", "--svg", "onion.svg", "--call")
    assert (shown.exit_code, shown.stdout) == (0, "")
    picture = ET.parse(home / "onion.svg").getroot()
    assert "A call through the chain “demo”" in ["".join(text.itertext()) for text in picture]
    failed = show("chains:chain", "--svg", "nowhere/onion.svg")
    assert isinstance(failed.exception, AdvisorChainError)
    assert "`nowhere/onion.svg` cannot be written: No such file" in str(failed.exception)


def test_json_with_and_without_lint(show: Show) -> None:
    told = json.loads(show("chains:chain", "--json").stdout)
    assert [row["name"] for row in told["advisors"]] == ["memory", "shout"]
    assert "lint" not in told
    shown = show("chains:wrong", "--json", "--lint")
    assert shown.exit_code == 1
    (finding,) = json.loads(shown.stdout)["lint"]
    assert (finding["rule"], finding["advisor"]) == ("guard-outside-memory", "guard")


def test_lint_tells_by_its_exit_status(show: Show) -> None:
    fine = show("chains:chain", "--lint")
    assert (fine.exit_code, fine.stdout) == (0, "")
    assert fine.stderr == f"{len(rules())} rules have found nothing\n"
    wrong = show("chains:wrong", "--lint")
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith("warning guard-outside-memory: advisor `guard`: what it refuses has been kept by then")
    assert wrong.stderr == ""
    hint = show("chains:equal", "--lint")
    assert hint.exit_code == 1
    assert hint.stdout.startswith("hint equal-orders: advisor `shout`: ")
    assert show("chains:equal", "--lint", "--ignore", "equal-orders").exit_code == 0
    unknown = show("chains:equal", "--lint", "--ignore", "nonsense")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("advisorchain: `ignore` has `nonsense`, which is no rule; the rules: ")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("nowhere:chain",), "names the module `nowhere`, which is not there"),
        (("faulty:chain",), "`faulty` cannot be imported: ZeroDivisionError: division by zero"),
        (("chains:broken",), "`chains:broken` cannot be made"),
        (("chains:text",), "which is a str"),
        (("chains:wrong", "--svg", "nowhere/onion.svg"), "cannot be written"),
    ],
)
def test_lint_that_cannot_ask_is_not_taken_for_one_that_found_something(
    show: Show, home: Path, args: tuple[str, ...], told: str
) -> None:
    (home / "faulty.py").write_text("1 / 0\n")
    failed = show(*args, "--lint")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert failed.stderr.startswith("advisorchain: ")
    assert told in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_help_tells_the_exit_statuses_of_lint(show: Show) -> None:
    told = " ".join(show("--help").stdout.split())
    assert "Exit status 0: it does; 1: a rule has found something; 2: they could not be asked" in told


def test_a_table_says_that_there_is_something_to_look_at(show: Show) -> None:
    shown = show("chains:wrong")
    assert shown.exit_code == 0
    assert shown.stderr == "1 found to look at: advisorchain show chains:wrong --lint\n"
    pictured = show("chains:wrong", "--mermaid")
    assert pictured.stderr == ""


def test_nothing_in_a_name_steers_the_terminal(show: Show) -> None:
    for mode in ((), ("--mermaid",), ("--lint",), ("--json",)):
        shown = show("chains:equal", *mode)
        assert "\x1b" not in shown.output
    assert "a�[31mb�c" in show("chains:steering").stdout
    assert len(show("chains:equal", "--lint").stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("chains:text", "`CHAIN` is `chains:text`, which is a str; give an AdvisorChain or a ChatClient"),
        ("chains:nothing", "`chains` has no `nothing`"),
        ("chains", "give module:attr"),
        ("nowhere:chain", "names the module `nowhere`, which is not there"),
        ("chains:broken", "`chains:broken` cannot be made: ZeroDivisionError: division by zero"),
        ("chains:needs", "`chains:needs` cannot be made: TypeError: needs() missing 1 required positional argument"),
        ("chains:Shout", "which is a Shout"),
        ("chains:leaves", "`chains:leaves` cannot be made: SystemExit: 4"),
        ("chains:Locked", "`chains:Locked` has no chain: RuntimeError: not yet"),
        ("chains:closed", "`chains:closed` cannot be made: OSError: no server"),
    ],
)
def test_what_is_no_chain_is_told(show: Show, place: str, told: str) -> None:
    failed = show(place)
    assert isinstance(failed.exception, ConfigurationError)
    assert told in str(failed.exception)
    linted = show(place, "--lint")
    assert (linted.exit_code, told in linted.stderr) == (2, True)


def test_what_their_code_prints_is_no_part_of_what_is_shown(show: Show, home: Path) -> None:
    (home / "chains.py").write_text(CHAINS + 'print("imported")\n')
    shown = show("chains:loud", "--json")
    assert [row["name"] for row in json.loads(shown.stdout)["advisors"]] == ["memory", "shout"]
    assert shown.stderr.splitlines() == ["imported", "opening", "closing"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--mermaid", "--json"), "give --mermaid or --json, not both"),
        (("--mermaid", "--lint"), "give --mermaid or --lint, not both"),
        (("--ignore", "equal-orders"), "--ignore is for --lint"),
    ],
)
def test_options_that_contradict_each_other(show: Show, options: tuple[str, ...], told: str) -> None:
    failed = show("chains:chain", *options)
    assert failed.exit_code == 2
    assert told in failed.output


@pytest.mark.slow  # starts the command
def test_at_a_terminal_rich_shows_the_table(show: Show, home: Path) -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    import os
    import subprocess

    end, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "advisorchain.cli", "show", "chains:chain"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=home, env=env) as ran:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(end, 4096):
                shown += piece
        except OSError:  # the command has ended
            pass
    os.close(end)
    assert ran.returncode == 0
    assert "─" in shown.decode()
    assert b"\x1b[" in shown
    assert b"-2147483448" in shown


@pytest.mark.slow  # starts the command
@pytest.mark.parametrize(("place", "status"), [("chain", 0), ("wrong", 1), ("nothing", 2)])
def test_the_exit_status_is_that_of_the_process(run: Callable[..., object], show: Show, place: str, status: int) -> None:
    ran = run("show", f"chains:{place}", "--lint")
    assert ran.returncode == status
