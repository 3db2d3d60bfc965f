"""The concurrency rules of a memory in a chain: in call and stream, and however a turn ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain.advisor import HIGHEST_PRECEDENCE, TOOL_CALLING_ORDER, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.chat_memory import MEMORY_CONVERSATION_ID
from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.usage_limit import UsageLimitAdvisor, by_conversation
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import ConversationConflictError, LeaseLostError, LimitExceededError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory, ConcurrencyRule, Fork, Reject, Serialize
from advisorchain.memory._waiting import _LINES
from advisorchain.messages import AssistantMessage, ToolCall, UserMessage
from advisorchain.telemetry import Telemetry
from advisorchain.testing import ScriptedModel

from .._asking import MODES, Mode, ask, stored, texts
from ..cases._stores import TWO_KINDS, Store, opened
from ._tool_scripts import Runs, asks, looping

U, A = UserMessage, AssistantMessage
both = pytest.mark.parametrize("mode", MODES)
LEASED: list[ConcurrencyRule] = [Serialize(), Reject(), Fork()]
leased = pytest.mark.parametrize("rule", LEASED, ids=lambda rule: type(rule).__name__)


@pytest.fixture(params=TWO_KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


def memory_on(store: Store, rule: ConcurrencyRule, **settings: Any) -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory(repository=store.repository, concurrency=rule), **settings)


async def check_free(store: Store, conversation_id: str = "c") -> None:
    token = await store.repository.acquire(conversation_id, "a probe", 60)
    assert token is not None, "a lease has outlived its turn"
    await store.repository.release(conversation_id, token)


class Gate:
    """A model that says when it was asked, and answers when it may."""

    def __init__(self) -> None:
        self.asked, self.go = anyio.Event(), anyio.Event()
        self.prompts: list[list[str]] = []

    async def __call__(self, request: ChatRequest) -> AsyncIterator[str]:
        self.prompts.append(texts(request.messages))
        if request.messages[-1].text == "slow":
            self.asked.set()
            await self.go.wait()
        yield f"{request.messages[-1].text} "
        yield "answer"


def gated(*advisors: Any, **settings: Any) -> tuple[AdvisorChain, Gate]:
    gate = Gate()

    async def model(request: ChatRequest) -> AsyncIterator[str]:
        async for text in gate(request):
            yield text

    return AdvisorChain(model, advisors, **settings), gate


# --- two at one time --------------------------------------------------------------------------------------------------


@both
async def test_serialize_the_second_call_knows_what_the_first_was_told(mode: Mode, store: Store) -> None:
    memory = memory_on(store, Serialize())
    chain, gate = gated(memory)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(ask, mode, chain, "slow", conversation_id="c"))
        await gate.asked.wait()
        group.start_soon(partial(ask, mode, chain, "fast", conversation_id="c"))
        await ask(mode, chain, "other", conversation_id="d")  # waits for nobody
        gate.go.set()
    assert gate.prompts == [["slow"], ["other"], ["slow", "slow answer", "fast"]]
    assert texts(await stored(memory.chat_memory)) == ["slow", "slow answer", "fast", "fast answer"]
    await check_free(store)


@both
async def test_reject_the_second_call_fails_before_the_model_is_asked(mode: Mode, store: Store) -> None:
    memory = memory_on(store, Reject())
    chain, gate = gated(memory)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(ask, mode, chain, "slow", conversation_id="c"))
        await gate.asked.wait()
        with pytest.raises(ConversationConflictError, match="under way") as raised:
            await ask(mode, chain, "fast", conversation_id="c")
        gate.go.set()
    assert raised.value.__notes__ == [f"in advisor `memory`, order {memory.order}"]
    assert gate.prompts == [["slow"]]
    await ask(mode, chain, "fast", conversation_id="c")
    assert texts(await stored(memory.chat_memory)) == ["slow", "slow answer", "fast", "fast answer"]


class Seeing(BaseAdvisor):
    """Writes down the conversation ids that pass it."""

    def __init__(self, name: str, order: int) -> None:
        self.name, self.order = name, order
        self.ids: list[str | None] = []

    def before(self, request: ChatRequest) -> ChatRequest:
        self.ids.append(request.conversation_id)
        return request

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        self.ids.append(request.conversation_id)
        return response


@both
async def test_fork_the_second_call_is_told_its_branch(mode: Mode, store: Store) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    memory = memory_on(store, Fork())
    await memory.chat_memory.add("c", [U("u0"), A("a0")])
    outer, inner = Seeing("outer", HIGHEST_PRECEDENCE), Seeing("inner", 0)
    chain, gate = gated(memory, outer, inner, telemetry=Telemetry(tracer_provider=provider))
    first: list[ChatResponse] = []

    async def slow() -> None:
        first.append(await ask(mode, chain, "slow", conversation_id="c"))

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await gate.asked.wait()
        exporter.clear()
        second = await ask(mode, chain, "fast", conversation_id="c", context={"own": 1})
        gate.go.set()
    branch = second.context[MEMORY_CONVERSATION_ID]
    assert branch.startswith("c~")
    assert second.context["own"] == 1
    assert MEMORY_CONVERSATION_ID not in first[0].context
    assert gate.prompts[1] == ["u0", "a0", "fast"]
    assert texts(await stored(memory.chat_memory, branch)) == ["u0", "a0", "fast", "fast answer"]
    assert texts(await stored(memory.chat_memory)) == ["u0", "a0", "slow", "slow answer"]
    assert outer.ids == ["c"] * 4
    assert inner.ids == ["c", branch, branch, "c"]
    spans = exporter.get_finished_spans()
    ended = reversed(spans)  # those of the second call ended first
    named = {span.name.partition(" ")[0]: (span.attributes or {}).get("gen_ai.conversation.id") for span in ended}
    assert (named["chat"], named["advisor_chain"]) == (branch, "c")
    third = await ask(mode, chain, "more", conversation_id=branch)
    assert MEMORY_CONVERSATION_ID not in third.context
    assert gate.prompts[2] == ["u0", "a0", "fast", "fast answer", "more"]


@both
async def test_fork_a_limit_by_conversation_counts_a_branch_for_itself(mode: Mode, store: Store) -> None:
    memory = memory_on(store, Fork())
    chain, gate = gated(memory, UsageLimitAdvisor(calls=1, key=by_conversation))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(ask, mode, chain, "slow", conversation_id="c"))
        await gate.asked.wait()
        await ask(mode, chain, "fast", conversation_id="c")
        gate.go.set()
    with pytest.raises(LimitExceededError):
        await ask(mode, chain, "more", conversation_id="c")
    await check_free(store)


@both
async def test_fork_a_turn_that_was_overtaken_is_kept_and_its_answer_given(mode: Mode, store: Store) -> None:
    memory = memory_on(store, Fork())
    chain, gate = gated(memory)
    answers: list[str] = []

    async def slow() -> None:
        answers.append((await ask(mode, chain, "slow", conversation_id="c")).text)

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await gate.asked.wait()
        store.clock.now += 121
        await ask(mode, chain, "fast", conversation_id="c")
        gate.go.set()
    assert answers == ["slow answer"]
    _, branch = (await memory.chat_memory.conversations()).items
    assert texts(await stored(memory.chat_memory)) == ["fast", "fast answer"]
    assert texts(await stored(memory.chat_memory, branch.conversation_id)) == ["slow", "slow answer"]


@both
async def test_serialize_a_turn_that_was_overtaken_is_an_error_after_its_answer(mode: Mode, store: Store) -> None:
    memory = memory_on(store, Serialize())
    chain, gate = gated(memory)
    seen: list[ChatChunk] = []

    async def slow() -> None:
        with pytest.raises(LeaseLostError):
            await ask(mode, chain, "slow", seen, conversation_id="c")

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        await gate.asked.wait()
        store.clock.now += 121
        await ask(mode, chain, "fast", conversation_id="c")
        gate.go.set()
    assert "".join(chunk.text for chunk in seen) == ("slow answer" if mode == "stream" else "")
    assert texts(await stored(memory.chat_memory)) == ["fast", "fast answer"]
    await check_free(store)


# --- however a turn ends ----------------------------------------------------------------------------------------------


def answered(request: ChatRequest) -> ChatResponse:
    return ChatResponse("no", "content_filter")


class Raising(BaseAdvisor):
    """Fails at a hook."""

    def __init__(self, hook: str) -> None:
        def fail(*_: Any) -> None:
            raise ValueError("broken")

        setattr(self, hook, fail)


class Answering(BaseAdvisor):
    def before(self, request: ChatRequest) -> ChatResponse:
        return ChatResponse("at once")


ENDS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    "ok": lambda: (ScriptedModel("fine"), []),
    "the model fails": lambda: (ScriptedModel(["Hel", ValueError("broken")]), []),
    "an inner advisor fails": lambda: (ScriptedModel("fine", repeat=True), [Raising("before")]),
    "an inner after fails": lambda: (ScriptedModel("fine"), [Raising("after")]),
    "an inner done fails": lambda: (ScriptedModel("fine"), [Raising("done")]),
    "a guard refuses": lambda: (ScriptedModel(answered), []),
    "an advisor answers at once": lambda: (ScriptedModel(), [Answering()]),
    "paused": lambda: (ScriptedModel(asks("w")), [ToolCallingAdvisor([Runs().giving("w", needs_approval=True)])]),
}


@both
@leased
@pytest.mark.parametrize("end", ENDS)
async def test_a_lease_is_given_back_however_a_turn_ends(mode: Mode, rule: ConcurrencyRule, end: str, store: Store) -> None:
    model, advisors = ENDS[end]()
    memory = memory_on(store, rule)
    with suppress(ValueError):
        await ask(mode, AdvisorChain(model, [memory, *advisors]), "u1", conversation_id="c")
    await check_free(store)
    kept = texts(await stored(memory.chat_memory))
    assert kept == {"ok": ["u1", "fine"], "an advisor answers at once": ["u1", "at once"]}.get(end, [])


@leased
async def test_a_lease_is_given_back_when_the_reader_leaves(rule: ConcurrencyRule, store: Store) -> None:
    memory = memory_on(store, rule)
    chain = AdvisorChain(ScriptedModel(["Hel", "lo"], ["Hel", "lo"]), [memory])
    async with chain.stream("u1", conversation_id="c") as stream:
        async for _ in stream:
            break
    await check_free(store)
    assert await stored(memory.chat_memory) == [U("u1"), A("Hel", partial=True)]
    async with chain.stream("u2", conversation_id="c"):
        pass  # without reading
    await check_free(store)


class Ticking:
    """A repository over another one that cancels `scope` at the n-th await of a turn: before or after it did its work."""

    def __init__(self, inner: Any, cancel_at: int) -> None:
        self.inner, self.left, self.scope = inner, cancel_at, anyio.CancelScope()

    def __getattr__(self, name: str) -> Any:
        async def ticking(*args: Any, **kwargs: Any) -> Any:
            await self.tick()
            result = await getattr(self.inner, name)(*args, **kwargs)
            await self.tick()
            return result

        return ticking

    async def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()
        await checkpoint()

    async def model(self, request: ChatRequest) -> AsyncIterator[str]:
        for text in ("Hel", "lo"):
            await self.tick()
            yield text
        await self.tick()


@both
@pytest.mark.parametrize(("rule", "busy"), [(Serialize(), False), (Reject(), False), (Fork(), False), (Fork(), True)])
async def test_a_turn_cancelled_at_any_await_leaves_no_lease(
    mode: Mode, rule: ConcurrencyRule, busy: bool, store: Store
) -> None:
    cancel_at, came = 0, True
    while came:
        cancel_at += 1
        name = f"c{cancel_at:03}"
        ticking = Ticking(store.repository, cancel_at)
        memory = MessageChatMemoryAdvisor(ChatMemory(repository=ticking, concurrency=rule))
        token = await store.repository.acquire(name, "another turn", 60) if busy else None
        with ticking.scope:
            await ask(mode, AdvisorChain(ticking.model, [memory]), "u1", conversation_id=name)
            await checkpoint()
        came = ticking.left <= 0
        if token is not None:
            await store.repository.release(name, token)
        await check_free(store, name)
        plain = ChatMemory(repository=store.repository)
        for found in (await plain.conversations(prefix=name)).items:
            assert texts(await stored(plain, found.conversation_id)) in (["u1", "Hello"], ["u1", "Hel"])
    assert cancel_at > 10


# --- pausing, replacing, loops ----------------------------------------------------------------------------------------


@both
@leased
async def test_a_paused_turn_begins_again_and_lets_others_through_meanwhile(
    mode: Mode, rule: ConcurrencyRule, store: Store
) -> None:
    memory = memory_on(store, rule)
    pays = Runs().giving("pay", "paid", needs_approval=True)
    chain, model = looping([pays], asks("pay"), "between", "Done.", advisors=[memory])
    pause = (await ask(mode, chain, "u1", conversation_id="c")).pause
    assert pause is not None
    await check_free(store)
    await ask(mode, chain, "u2", conversation_id="c")
    resumed: Any = pause.resume(approve=["k1"])
    await ask(mode, chain, **resumed)
    assert texts(await stored(memory.chat_memory)) == ["u2", "between", "u1", "Done."]
    assert texts(model.prompts[2]) == ["u1", "", "paid"]
    await check_free(store)


@both
async def test_fork_a_turn_that_was_paused_on_a_branch_goes_on_there(mode: Mode, store: Store) -> None:
    memory = memory_on(store, Fork())
    await memory.chat_memory.add("c", [U("u0"), A("a0")])
    chain, _ = looping([Runs().giving("pay", "paid", needs_approval=True)], asks("pay"), "Done.", advisors=[memory])
    other = await memory.chat_memory.begin("c", [U("u1")])
    paused = await ask(mode, chain, "u2", conversation_id="c")
    assert paused.pause is not None
    branch = paused.context[MEMORY_CONVERSATION_ID]
    await other.commit([A("a1")])
    resumed: Any = paused.pause.resume(approve=["k1"])
    await ask(mode, chain, **resumed)
    assert texts(await stored(memory.chat_memory, branch)) == ["u0", "a0", "u2", "Done."]
    assert texts(await stored(memory.chat_memory)) == ["u0", "a0", "u1", "a1"]


@both
@leased
@pytest.mark.filterwarnings("ignore:memory-in-loop")  # each round is a turn: in general not what is wanted
async def test_memory_inside_a_loop_has_a_lease_for_each_round(mode: Mode, rule: ConcurrencyRule, store: Store) -> None:
    memory = memory_on(store, rule, order=TOOL_CALLING_ORDER + 1)
    chain, _ = looping([Runs().giving("look")], asks("look"), "Done.", advisors=[memory])
    await ask(mode, chain, "u1", conversation_id="c")
    call = A(tool_calls=(ToolCall("k1", "look"),))
    assert [message.role for message in await stored(memory.chat_memory)] == ["user", "assistant", "tool", "assistant"]
    assert (await stored(memory.chat_memory))[1] == call
    await check_free(store)


@both
@leased
async def test_a_client_asks_again_under_every_rule(mode: Mode, rule: ConcurrencyRule, store: Store) -> None:
    memory = ChatMemory(repository=store.repository, concurrency=rule)
    client = ChatClient(ScriptedModel("a1", "better", "best"), memory=memory)
    await ask(mode, client, "u1", conversation_id="c")
    await ask(mode, client, None, conversation_id="c", turn="regenerate")
    assert texts(await stored(memory)) == ["u1", "better"]
    other = await memory.begin("c", [U("u2")])
    asked = partial(ask, mode, client, None, conversation_id="c", turn="regenerate")
    if isinstance(rule, Fork):
        branch = (await asked()).context[MEMORY_CONVERSATION_ID]
        assert texts(await stored(memory, branch)) == ["u1", "best"]
    elif isinstance(rule, Reject):
        with pytest.raises(ConversationConflictError, match="under way"):
            await asked()
    else:
        async with anyio.create_task_group() as group:

            async def waits() -> None:
                with pytest.raises(ConversationConflictError, match="was written to"):
                    await asked()

            group.start_soon(waits)
            while not _LINES.get({}):  # it has looked up the last turn, and waits in line
                await checkpoint()
            await other.commit([A("a2")])
    await other.commit([A("a2")])
    assert texts(await stored(memory)) == ["u1", "better", "u2", "a2"]
    await check_free(store)
