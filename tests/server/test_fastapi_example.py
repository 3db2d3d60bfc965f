"""`examples/fastapi_sse.py` over real HTTP: two users, a spare model, a reader who leaves."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx2
import pytest

from advisorchain import ChatRequest
from advisorchain.errors import ModelError
from advisorchain.memory import ChatMemory, MessageWindow, open_repository

from ._serving import CLIENT_LETS_GO, SECONDS, Served, running

pytestmark = pytest.mark.filterwarnings(CLIENT_LETS_GO)

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "fastapi_sse.py"
ADA, BOB = {"Authorization": "Bearer of-ada"}, {"Authorization": "Bearer of-bob"}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(tmp_path)  # its database is there
    spec = importlib.util.spec_from_file_location("fastapi_sse", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(example: ModuleType) -> Iterator[Served]:
    with running(example.app) as server:
        yield server


def events(answer: str) -> list[tuple[str, Any]]:
    """Each event's kind and data."""
    told = [dict(line.split(": ", 1) for line in event.splitlines()) for event in answer.strip().split("\n\n")]
    return [(event.get("event", ""), json.loads(event["data"])) for event in told]


def ask(server: Served, text: str, who: dict[str, str]) -> str:
    answer = httpx2.post(f"{server.root}/chat", json={"text": text}, headers=who, timeout=SECONDS)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return "".join(data for kind, data in events(answer.text) if kind != "end")


def test_each_user_has_a_conversation_and_the_spare_model_answers(server: Served) -> None:
    assert ask(server, "one", ADA) == "The spare model sees 1 messages."
    assert ask(server, "two", ADA) == "The spare model sees 3 messages."
    assert ask(server, "one", BOB) == "The spare model sees 1 messages."


def test_what_the_guard_refuses_is_not_remembered(server: Served) -> None:
    assert ask(server, "the Password, please", ADA).startswith("I cannot help")
    assert ask(server, "one", ADA) == "The spare model sees 1 messages."


def test_what_the_guard_refuses_of_an_answer_is_withdrawn(example: ModuleType) -> None:
    async def telling(request: ChatRequest) -> AsyncGenerator[str, None]:
        for piece in ("Gladly: ", "the pass", "word is 7"):
            yield piece

    example.spare = telling
    with running(example.app) as server:
        answer = httpx2.post(f"{server.root}/chat", json={"text": "one"}, headers=ADA, timeout=SECONDS).text
    assert answer.index('"Gladly: ') < answer.index("event: attempt") < answer.index("I cannot help")
    assert "word" not in answer
    assert all(data for kind, data in events(answer) if not kind)  # what was held back is no empty event
    assert events(answer)[-1] == ("end", "content_filter")


def test_strangers_and_empty_questions_are_refused(server: Served) -> None:
    stranger: dict[str, str]
    for stranger in ({}, {"Authorization": "Bearer x"}, {"Authorization": ""}):
        assert httpx2.post(f"{server.root}/chat", json={"text": "one"}, headers=stranger).status_code == 401
    refused: list[dict[str, Any]] = [{}, {"text": " "}, {"text": 7}]
    for body in refused:
        assert httpx2.post(f"{server.root}/chat", json=body, headers=ADA).status_code == 422


async def kept() -> list[tuple[str, bool]]:
    async with open_repository("sqlite:///chat.db") as repository:
        memory = ChatMemory(MessageWindow(20), repository)
        with anyio.fail_after(SECONDS):
            while not (messages := await memory.get("user-ada")):  # noqa: ASYNC110  the server is in another thread
                await anyio.sleep(0.01)
    return [(message.text, getattr(message, "partial", False)) for message in messages]


@pytest.mark.parametrize("words", [2, 100_000])  # the second: more than the connection takes, so it waits at a yield
async def test_the_partial_answer_of_a_reader_who_leaves_is_kept(example: ModuleType, words: int) -> None:
    closed: list[bool] = []

    async def endless(request: ChatRequest) -> AsyncGenerator[str, None]:
        try:
            for _ in range(words):
                yield "word "
            await anyio.sleep_forever()
        finally:
            closed.append(True)

    example.spare = endless
    with running(example.app) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            async with client.stream("POST", f"{server.root}/chat", json={"text": "one"}, headers=ADA) as answer:
                seen = await first(answer.aiter_lines(), 2)
        assert seen == ['data: "word "'] * 2
        question, answered = await kept()
    assert question == ("one", False)
    assert answered[0].startswith("word word ")
    assert answered[1]
    assert closed == [True]


async def first(lines: Any, most: int) -> list[str]:
    found: list[str] = []
    async for line in lines:
        if line:
            found.append(line)
        if len(found) == most:
            break
    await lines.aclose()
    return found


def test_an_error_is_told_as_an_event(example: ModuleType) -> None:
    async def failing(request: ChatRequest) -> AsyncGenerator[str, None]:
        yield "word "
        raise ModelError("secret")

    example.spare = failing
    with running(example.app) as server:
        assert ask(server, "one", ADA) == "word Please ask again."
