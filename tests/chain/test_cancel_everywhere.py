"""A turn that is cancelled at each of its awaits, one after the other: stored once, whole or partial, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatRequest
from advisorchain.memory import ChatMemory, SqliteChatMemoryRepository
from advisorchain.messages import AssistantMessage, Message
from advisorchain.testing import RecordingAdvisor, ScriptedModel

from ._cancelling import cancelled_at

ANSWER = "It is noon."


class CommitsThenIsCancelled(SqliteChatMemoryRepository):
    async def append(self, *args: Any, **kwargs: Any) -> int:
        revision = await super().append(*args, **kwargs)
        await checkpoint()
        return revision


class Slow(RecordingAdvisor):
    """Awaits in every hook."""

    async def before(self, request: ChatRequest) -> Any:
        await checkpoint()
        return super().before(request)

    async def after(self, request: ChatRequest, response: Any) -> Any:
        await checkpoint()
        return super().after(request, response)

    async def done(self, request: ChatRequest, outcome: Any) -> None:
        super().done(request, outcome)
        await checkpoint()


async def spoken(request: ChatRequest) -> AsyncIterator[str]:
    for word in ("It ", "is ", "noon."):
        await checkpoint()
        yield word
    await checkpoint()


@pytest.mark.parametrize("kind", [SqliteChatMemoryRepository, CommitsThenIsCancelled])
async def test_cancelled_at_every_await_of_a_turn(ask: Any, mode: str, kind: Any, tmp_path: Path) -> None:
    outcomes: set[str] = set()
    repository = kind(tmp_path / "memory.db", synchronous="OFF")
    try:
        chain = AdvisorChain(spoken, [memory := MessageChatMemoryAdvisor(ChatMemory(repository=repository))])
        completed, number = False, 0
        while not completed:
            number += 1
            recorders = [Slow("a", -(2**31)), Slow("c", 5)]
            with anyio.CancelScope() as scope:
                turn = ask(chain.with_advisors(*recorders), conversation_id=f"c{number}")
                await cancelled_at(number, turn, scope)
                completed = not scope.cancel_called
            for recorder in recorders:
                entered = sum(seen.hook == "before" for seen in recorder.log)
                assert len(recorder.outcomes) >= entered
                assert len(recorder.outcomes) <= 1
            kept = [entry.message for entry in (await memory.chat_memory.history(f"c{number}")).items]
            outcomes.add(checked(kept))
            await next_turn(memory, f"c{number}")
    finally:
        await repository.aclose()
    assert number > 8
    assert outcomes == ({"nothing", "partial", "whole"} if mode == "stream" else {"nothing", "whole"})


def checked(kept: list[Message]) -> str:
    """What is left of the turn; AssertionError when it is neither nothing, nor the question with its answer."""
    if not kept:
        return "nothing"
    question, answer = kept
    assert question.text == "question"
    assert isinstance(answer, AssistantMessage)
    if not answer.partial:
        assert answer.text == ANSWER
        return "whole"
    assert answer.text
    assert ANSWER.startswith(answer.text)
    return "partial"


async def next_turn(memory: MessageChatMemoryAdvisor, conversation_id: str) -> None:
    model = ScriptedModel("Fine.")
    before = await memory.chat_memory.count(conversation_id)
    response = await AdvisorChain(model, [memory]).call("And now?", conversation_id=conversation_id)
    assert response.text == "Fine."
    assert await memory.chat_memory.count(conversation_id) == before + 2
    assert len(model.prompts[0]) == before + 1


# -- two turns at once


async def test_two_turns_at_once_are_both_whole_and_see_no_half_of_each_other(ask: Any, tmp_path: Path) -> None:
    repository = SqliteChatMemoryRepository(tmp_path / "memory.db")
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=repository))
    gates = {name: anyio.Event() for name in ("first", "second")}
    prompts: dict[str, list[str]] = {}

    async def model(request: ChatRequest) -> str:
        name = request.messages[-1].text
        prompts[name] = [message.text for message in request.messages]
        arrived.release()
        await gates[name].wait()
        return f"to {name}"

    chain, arrived = AdvisorChain(model, [memory]), anyio.Semaphore(0)

    async def turn(name: str) -> None:
        await ask(chain, name, conversation_id="c")
        ended.release()

    ended = anyio.Semaphore(0)
    try:
        async with anyio.create_task_group() as group:
            for name in gates:
                group.start_soon(turn, name)
            for _ in gates:
                await arrived.acquire()
            for name in reversed(gates):
                gates[name].set()
                await ended.acquire()
        assert prompts == {"first": ["first"], "second": ["second"]}
        texts = [entry.message.text for entry in (await memory.chat_memory.history("c")).items]
        assert texts == ["second", "to second", "first", "to first"]
    finally:
        await repository.aclose()


async def test_many_turns_at_once_never_mix(ask: Any, tmp_path: Path) -> None:
    repository = SqliteChatMemoryRepository(tmp_path / "memory.db", synchronous="OFF")
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=repository))
    model = ScriptedModel(lambda request: [f"to {request.messages[-1].text}"], repeat=True)
    chain = AdvisorChain(model, [memory, Slow("a")])
    try:
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(lambda number=number: ask(chain, f"q{number}", conversation_id="c"))
        texts = [entry.message.text for entry in (await memory.chat_memory.history("c")).items]
        assert sorted(texts[::2]) == [f"q{number}" for number in range(6)]
        assert texts[1::2] == [f"to {question}" for question in texts[::2]]
        for prompt in model.prompts:  # the strict model has seen to the rest: no question without its answer between
            said = [message.text for message in prompt[:-1]]
            assert said[1::2] == [f"to {question}" for question in said[::2]]
    finally:
        await repository.aclose()
