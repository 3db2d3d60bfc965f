"""`advisorchain chat --tools`: what tools do is shown as it happens, and a person's yes is asked for at the terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisorchain import AdvisorChain, AssistantMessage, ChatChunk, ChatRequest, ChatResponse, ToolCall, ToolCallChunk
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.cli.answer_view import AnswerView
from advisorchain.cli.app import app
from advisorchain.errors import ConfigurationError
from advisorchain.messages import ToolMessage
from advisorchain.tools import tool

pytestmark = pytest.mark.slow  # starts the command

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TOOLS = """
import json
import sys
from pathlib import Path

import anyio

from advisorchain import AssistantMessage, ChatResponse, ToolCall, ToolMessage
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.tools import tool


def weather(city: str) -> str:
    "Look up the weather."
    return f"21 degrees in {city}\\n" + "and more to say " * 20


@tool
async def broken() -> str:
    "Fail."
    raise ValueError("no\\x1b[2Jway")


@tool
async def hangs() -> str:
    "Hang."
    print("hanging", file=sys.stderr, flush=True)
    await anyio.sleep_forever()


@tool(needs_approval=True)
def pay(to: str, amount: int = 1) -> str:
    "Pay."
    with Path("paid.txt").open("a") as file:
        file.write(f"{to} {amount}\\n")
    return f"paid {amount}"


several = [weather, broken]
many = (pay, hangs)
word = "word"
loop = ToolCallingAdvisor([weather])


async def model(request):
    '''Ask for what the question says: calls as JSON, round by round; then say what came of it.'''
    asked = next(message.text for message in reversed(request.messages) if message.role == "user")
    rounds = json.loads(asked) if asked.startswith("[") else []
    if request.round and request.round <= len(rounds):
        asked = enumerate(rounds[request.round - 1])
        calls = tuple(ToolCall(f"{request.round}.{place}", *call) for place, call in asked)
        return ChatResponse(AssistantMessage(f"Round {request.round}.", tool_calls=calls), finish_reason="tool_calls")
    return "end: " + " | ".join(message.text for message in request.messages if isinstance(message, ToolMessage))
"""


@pytest.fixture(autouse=True)
def _tools(home: Path) -> None:
    (home / "mytools.py").write_text(TOOLS)


@pytest.fixture
def ask(run: Run) -> Run:
    def ask(prompt: str, *more: str, tools: tuple[str, ...] = ("several", "many")) -> subprocess.CompletedProcess[str]:
        named = [word for name in tools for word in ("--tools", f"mytools:{name}")]
        return run("chat", prompt, *named, *more, model="mytools:model")

    return ask


def test_what_tools_do_is_told_beside_the_answer(ask: Run) -> None:
    ended = ask('[[["weather", "{\\"city\\": \\"Rome\\"}"], ["broken", "{}"]]]')
    told = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "Round 1.")
    assert ended.stdout.splitlines()[1].startswith("end: 21 degrees in Rome")
    assert told[:2] == ['-> weather {"city": "Rome"}', "-> broken {}"]
    assert told[2].startswith("<- weather: 21 degrees in Rome and more to say")
    assert (len(told[2]), told[2][-1]) == (80, "…")
    assert told[3:] == ["<- broken (error): tool `broken` failed: ValueError: no�[2Jway"]


def test_the_conversation_goes_on_behind_tools(ask: Run) -> None:
    assert ask('[[["broken", "{}"]]]', tools=("broken",)).returncode == 0
    ended = ask("so?", tools=("broken",))
    assert (ended.returncode, ended.stdout, ended.stderr.splitlines()) == (0, "end: \n", [])


def test_the_trace_shows_the_tools(ask: Run) -> None:
    ended = ask('[[["broken", "{}"]]]', "--trace", tools=("broken",))
    tree = [line for line in ended.stderr.splitlines() if not line.startswith(("->", "<-"))]
    assert [line.lstrip(" │├└─").partition("  ")[0] for line in tree] == [
        "span", "advisor_chain chat", "advisor memory", "search_memory", "advisor tools", "chat model (round 1)",
        "execute_tool broken", "chat model (round 2)", "create_memory",
    ]  # fmt: skip
    endings = ["ok", "ok", "ok", "ok", "ok", "error", "ok", "ok"]
    assert all(end in line for line, end in zip(tree[1:9], endings, strict=True))


def test_without_a_terminal_what_needs_a_yes_is_denied(ask: Run, home: Path) -> None:
    ended = ask('[[["pay", "{\\"to\\": \\"Ann\\"}"], ["broken", "{}"]]]', "--trace")
    told = [line for line in ended.stderr.splitlines() if line.startswith(("->", "<-", "`"))]
    assert ended.returncode == 0
    assert told == [
        '-> pay {"to": "Ann"}',
        "-> broken {}",
        "<- broken (error): tool `broken` failed: ValueError: no�[2Jway",
        "`pay` needs a person's yes, and there is no terminal to ask at: it was denied",
        "<- pay (error): a person did not allow this call of tool `pay`, and it was not …",
    ]
    assert "not run: there is nobody at a terminal who could be asked" in ended.stdout
    assert [line for line in ended.stdout.splitlines() if line.startswith("Round")] == ["Round 1."]
    assert not (home / "paid.txt").exists()


def test_the_tools_of_a_loop_that_is_given_as_an_advisor_are_there_too(run: Run) -> None:
    prompt = '[[["weather", "{\\"city\\": \\"Rome\\"}"], ["broken", "{}"]]]'
    ended = run("chat", prompt, "--advisor", "mytools:loop", "--tools", "mytools:broken", model="mytools:model")
    assert ended.returncode == 0
    assert [line.split(":")[0] for line in ended.stderr.splitlines()[2:]] == ["<- weather", "<- broken (error)"]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (("mytools:nothing",), "`--tools` is `mytools:nothing`, but `mytools` has no `nothing`"),
        (("mytools",), "`--tools` is `mytools`; give module:attr"),
        (("mytools:word",), "`--tools`: a tool is made of a function, not of "),
        (("mytools:broken", "mytools:several"), "`--tools`: two tools have the name `broken`"),
    ],
)
def test_what_is_no_tool(home: Path, tools: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mytools", raising=False)
    named = [word for name in tools for word in ("--tools", name)]
    result = CliRunner().invoke(app, ["chat", "hi", "--model", "scripted:answer", *named])
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception).startswith(said)


# -- at a terminal


pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")

from .test_terminal import Terminal, at_terminal  # noqa: E402  behind the check for terminals


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    tools = ("--tools", "mytools:several", "--tools", "mytools:many")
    with at_terminal(home, "--model", "mytools:model", *tools) as terminal:
        terminal.read_prompt()
        yield terminal


PAY_TWO = (
    '[[["pay", "{\\"to\\": \\"Ann\\"}"], ["broken", "{}"], ["pay", "{\\"to\\": \\"B\\u202eob\\", \\"amount\\": 2}"]]]\n'
)


def test_a_yes_runs_the_tool_and_a_no_tells_the_model_why(terminal: Terminal, home: Path) -> None:
    terminal.type(PAY_TWO)
    shown = terminal.read_until('`pay` is to run with {"to": "Ann"}\nRun it? [y/N] ')
    assert [line.split()[:2] for line in shown.partition("Round 1.\n")[2].splitlines()] == [
        ["->", "pay"], ["->", "broken"], ["->", "pay"], ["<-", "broken"],
    ]  # fmt: skip
    assert not (home / "paid.txt").exists()
    terminal.type("y\n")
    terminal.read_until('`pay` is to run with {"to": "B\\u202eob", "amount": 2}\nRun it? [y/N] ')
    terminal.type("n\n")
    terminal.read_until("Why not, for the model to know? (Enter: no reason) ")
    terminal.type("too much\n")
    rest = terminal.read_prompt()
    assert [line[:8] for line in rest.splitlines() if line[:2] in ("->", "<-", "Ro")] == ["<- pay: ", "<- pay ("]
    assert "end: paid 1 | " in rest
    assert rest.endswith("and it was not run: too much")
    assert (home / "paid.txt").read_text() == "Ann 1\n"
    terminal.type("so?\n")
    terminal.read_until("end: \n")


def test_whatever_is_no_yes_is_a_no(terminal: Terminal, home: Path) -> None:
    for answer in ("\n\n", "maybe\n\n", "\x04"):
        terminal.type('[[["pay", "{\\"to\\": \\"Ann\\"}"]]]\n')
        terminal.read_until("Run it? [y/N] ")
        terminal.type(answer)
        assert terminal.read_prompt().endswith("and it was not run")
    assert not (home / "paid.txt").exists()


def test_ctrl_c_at_the_question_ends_the_turn_and_the_chat_goes_on(terminal: Terminal, home: Path) -> None:
    terminal.type('[[["pay", "{\\"to\\": \\"Ann\\"}"]]]\n')
    terminal.read_until("Run it? [y/N] ")
    terminal.interrupt()
    terminal.read_until("stopped; what you see of the answer is kept\n")
    terminal.read_prompt()
    terminal.type("so?\n")
    terminal.read_until("end: \n")
    assert not (home / "paid.txt").exists()


def test_ctrl_c_at_a_later_question_keeps_what_was_seen(home: Path, run: Run) -> None:
    with at_terminal(home, "--model", "mytools:model", "--tools", "mytools:many", "--memory", "kept.db") as terminal:
        terminal.read_prompt()
        terminal.type('[[["pay", "{\\"to\\": \\"Ann\\"}"]], [["pay", "{\\"to\\": \\"Bo\\"}"]]]\n')
        terminal.read_until("Run it? [y/N] ")
        terminal.type("y\n")
        terminal.read_until("Run it? [y/N] ")
        terminal.interrupt()
        terminal.read_until("stopped; what you see of the answer is kept\n")
        terminal.read_prompt()
    assert (home / "paid.txt").read_text() == "Ann 1\n"
    lines = run("conversations", "export", "--memory", "kept.db").stdout.splitlines()
    kept = [json.loads(line)["message"] for line in lines]
    assert [(message["role"], message["content"]) for message in kept[1:]] == [("assistant", "Round 2.")]
    assert (kept[0]["role"], kept[1]["partial"], kept[1]["tool_calls"]) == ("user", True, [])


def test_a_second_question_in_one_turn_shows_nothing_twice(terminal: Terminal) -> None:
    pay = '[["pay", "{\\"to\\": \\"Ann\\"}"]]'
    terminal.type(f'[[["broken", "{{}}"]], {pay}, {pay}]\n')
    shown = terminal.read_until("Run it? [y/N] ")
    terminal.type("y\n")
    shown += terminal.read_until("Run it? [y/N] ")
    terminal.type("y\n")
    shown += terminal.read_prompt()
    lines = [line.split(":")[0] for line in shown.splitlines() if line[:2] in ("->", "<-", "Ro", "en")]
    call = '-> pay {"to"'
    assert lines == [
        "Round 1.", "-> broken {}", "<- broken (error)", "Round 2.", call, "<- pay", "Round 3.", call, "<- pay", "end",
    ]  # fmt: skip


def test_ctrl_c_stops_a_tool(terminal: Terminal) -> None:
    terminal.type('[[["hangs", "{}"]]]\n')
    terminal.read_until("hanging\n")
    terminal.interrupt()
    terminal.read_until("stopped; what you see of the answer is kept\n")
    terminal.read_prompt()


def test_a_single_prompt_is_asked_at_the_terminal_too(home: Path) -> None:
    question = '[[["pay", "{\\"to\\": \\"Ann\\"}"]]]'
    how = (question, "--model", "mytools:model", "--tools", "mytools:pay")
    with at_terminal(home, *how) as terminal:
        terminal.read_until("Run it? [y/N] ")
        terminal.type("y\n")
        assert terminal.chat.wait(30) == 0
    with at_terminal(home, *how) as terminal:
        terminal.read_until("Run it? [y/N] ")
        terminal.interrupt()
        assert terminal.chat.wait(30) == 130
    assert (home / "paid.txt").read_text() == "Ann 1\n"


# -- the view, chunk by chunk


def shown(capsys: pytest.CaptureFixture[str], view: AnswerView, *chunks: ChatChunk) -> tuple[str, str]:
    for chunk in chunks:
        view.show(chunk)
    out, err = capsys.readouterr()
    return out, err


def piece(*values: object) -> ChatChunk:
    return ChatChunk(tool_calls=(ToolCallChunk(*values),))


def test_a_call_is_told_when_it_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    view = AnswerView()
    assert shown(capsys, view, ChatChunk("I look."), piece(0, "a", "look"), piece(0, None, None, '{"a": {}')) == (
        "I look.",
        "",
    )
    assert shown(capsys, view, piece(0, None, None, "}")) == ("\n", '-> look {"a": {}}\n')
    assert shown(capsys, view, piece(1, "b", "see"), piece(2, "c", "hear", '{"b": 1}')) == ("", '-> hear {"b": 1}\n')
    assert shown(capsys, view, ChatChunk(finish_reason="tool_calls")) == ("", "-> see {}\n")
    result = ToolMessage("", tool_call_id="b", name="see")
    assert shown(capsys, view, ChatChunk(tool_result=result)) == ("", "<- see: (no text)\n")
    assert shown(capsys, view, ChatChunk("It is", boundary="round"), ChatChunk(" so.")) == ("It is so.", "")
    view.end()
    view.end()
    assert capsys.readouterr().out == "\n"


def test_a_call_without_a_name_is_left_to_the_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, AnswerView(), piece(0, "a", None, "{}"), ChatChunk(finish_reason="tool_calls")) == ("", "")


async def test_results_of_a_provider_that_counts_its_calls_anew_in_each_round_are_all_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its ids were those of results that had been shown, so theirs were not."""
    rounds = (("a", "b"), ("a", "pay"), ("a", "b"), ("b", "pay"))

    async def model(request: ChatRequest) -> ChatResponse:
        if request.round > len(rounds):
            return ChatResponse(AssistantMessage("end"))
        names = rounds[request.round - 1]
        calls = tuple(ToolCall(f"call_{place}", name, "{}") for place, name in enumerate(names))
        return ChatResponse(AssistantMessage(f"{request.round}.", tool_calls=calls), finish_reason="tool_calls")

    tools = [
        tool(lambda: "done", name=name, description="Does it.", needs_approval=name == "pay") for name in ("a", "b", "pay")
    ]
    chain = AdvisorChain(model, [ToolCallingAdvisor(tools)], telemetry=None)
    view, turn = AnswerView(), {"prompt": "go"}
    while turn:
        async with chain.stream(**turn) as stream:
            async for chunk in stream:
                view.show(chunk)
        pause = stream.response.pause
        turn = {} if pause is None else pause.resume(approve=[call.id for call in pause.open_calls])
        view = AnswerView(pause)
    out, err = capsys.readouterr()
    assert out == "1.\n2.\n3.\n4.\nend"
    told = [line for line in err.splitlines() if line.startswith("<-")]
    assert told == [f"<- {name}: done" for names in rounds for name in names]


ADD = '[[["add", "{\\"a\\": 2, \\"b\\": 3}"]]]'
MCP = f"{sys.executable} {Path(__file__).parent.parent / 'tools' / '_mcp_server.py'}"


def test_the_tools_of_a_server_run_once_they_are_allowed(run: Run) -> None:
    ended = run("chat", ADD, "--mcp", MCP, "--yes", model="mytools:model")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["Round 1.", "end: 5"]
    assert '-> add {"a": 2, "b": 3}' in ended.stderr


def test_the_tools_of_a_server_need_a_yes(run: Run) -> None:
    ended = run("chat", ADD, "--mcp", MCP, "--tools", "mytools:weather", model="mytools:model")
    assert ended.returncode == 0, ended.stderr
    assert "`add` needs a person's yes" in ended.stderr
    assert "end: 5" not in ended.stdout


def test_a_server_that_cannot_be_started_is_one_line(run: Run) -> None:
    ended = run("chat", "hi", "--mcp", "no-such-command-here", model="mytools:model")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no-such-command-here" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("more", [(), ("--debug",)], ids=["", "debug"])
def test_what_a_server_prints_beside_its_messages_does_not_stand_amid_the_answer(run: Run, more: tuple[str, ...]) -> None:
    noisy = f"{sys.executable} {Path(__file__).parent.parent / 'tools' / '_bad_mcp_server.py'} noise"
    ended = run("chat", '[[["echo", "{}"]]]', "--mcp", noisy, "--yes", *more, model="mytools:model")
    assert (ended.returncode, ended.stdout) == (0, "Round 1.\nend: ok\n")
    assert ("Failed to parse" in ended.stderr) is bool(more)
    if not more:
        assert ended.stderr.splitlines() == ["-> echo {}", "<- echo: ok"]
