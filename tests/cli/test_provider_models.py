"""`--model openai:NAME` and `--model anthropic:NAME`, against a server with scripted answers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from ..models._servers import Aimock, aimock

pytestmark = pytest.mark.slow  # starts the command and real servers

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PROVIDERS = ("openai", "anthropic")


@pytest.fixture(scope="module")
def server() -> Iterator[Aimock]:
    answers = (("My name is Ada", "Nice to meet you, Ada."), ("What is my name", "Your name is Ada."))
    with aimock([{"match": {"userMessage": asked}, "response": {"content": said}} for asked, said in answers]) as server:
        yield server


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("API_KEY", "BASE_URL", "AUTH_TOKEN"):
        monkeypatch.delenv(f"{request.param.upper()}_{name}", raising=False)
    return str(request.param)


def test_it_answers_and_remembers(run: Run, server: Aimock, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-test")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", server.url + ("/v1" if provider == "openai" else ""))
    for asked, said in (("My name is Ada", "Nice to meet you, Ada.\n"), ("What is my name?", "Your name is Ada.\n")):
        ended = run("chat", model=f"{provider}:some-model:1b", input=asked)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, said, "")
    sent = server.journal()[-1]["body"]
    assert sent["model"] == "some-model:1b"
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]


def test_a_missing_key_is_told(run: Run, provider: str) -> None:
    ended = run("chat", model=f"{provider}:some-model", input="hi")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("advisorchain: ")
    assert f"needs a key; set {provider.upper()}_API_KEY" in line
    assert "`api_key`" not in line  # no option of the command


@pytest.mark.parametrize("name", ["", " "])
def test_a_missing_name_is_told(run: Run, provider: str, name: str) -> None:
    ended = run("chat", model=f"{provider}:{name}", input="hi")
    assert ended.returncode == 1
    assert f"`--model` is `{provider}:` without a name; give {provider}:NAME" in ended.stderr


def test_a_server_that_is_not_there_is_one_line(run: Run, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-test")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", "http://127.0.0.1:9/v1")
    ended = run("chat", model=f"{provider}:some-model", input="hi")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "cannot be reached" in line
    assert "sk-test" not in ended.stderr
