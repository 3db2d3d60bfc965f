"""Reports about turns: whose they are, what a failure or a retry leaves, what one round hands to the next."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain.advisor import HIGHEST_PRECEDENCE, TOOL_CALLING_ORDER, AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConversationIdError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from advisorchain.telemetry import Telemetry
from advisorchain.testing.models import ScriptedModel

from ._asking import MODES, HandLoop, Mode, ask, asking, given, stored, texts
from .cases._stores import TWO_KINDS, Store, opened

U, A = UserMessage, AssistantMessage
both = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(params=TWO_KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


def memory_on(store: Store, order: int | None = None) -> MessageChatMemoryAdvisor:
    memory = ChatMemory(repository=store.repository)
    return MessageChatMemoryAdvisor(memory) if order is None else MessageChatMemoryAdvisor(memory, order=order)


@both
async def test_B040_without_an_id_there_is_no_history_that_all_share(mode: Mode, store: Store) -> None:
    memory, model = memory_on(store), ScriptedModel("a", repeat=True)
    for user in ("my code is 123", "what is the code?"):
        with pytest.raises(ConversationIdError, match="`conversation_id`"):
            await ask(mode, AdvisorChain(model, [memory]), user)
    assert model.requests == []
    assert (await memory.chat_memory.conversations()).items == ()


@both
async def test_B175_an_id_is_an_opaque_text(mode: Mode, store: Store) -> None:
    memory, model = memory_on(store), ScriptedModel("a1", "a2")
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    chain = AdvisorChain(model, [memory], telemetry=Telemetry(tracer_provider=provider))
    name = "tenantA:chat/7#x"
    for question in ("u1", "u2"):
        await ask(mode, chain, question, conversation_id=name)
    assert [request.conversation_id for request in model.requests] == [name, name]
    assert texts(model.prompts[1]) == ["u1", "a1", "u2"]
    assert [row.conversation_id for row in (await memory.chat_memory.conversations()).items] == [name]
    assert await stored(memory.chat_memory, "tenantA:chat/7") == []
    traced = [(span.attributes or {}).get("gen_ai.conversation.id") for span in exporter.get_finished_spans()]
    assert traced.count(name) >= 2
    assert {*traced} <= {name, None}


class Retry(AroundAdvisor):
    """Asks again when the model fails."""

    order = HIGHEST_PRECEDENCE

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        while True:
            try:
                async for item in next(request):
                    yield item
                return
            except OSError:
                continue


@both
async def test_B087_a_retry_around_memory_starts_from_clean_state(mode: Mode, store: Store) -> None:
    failures = [OSError("down")] * given("B087")["failures_before_success"]
    memory, model = memory_on(store), ScriptedModel(*failures, "a1")
    await ask(mode, AdvisorChain(model, [memory, Retry()]), "u1", conversation_id="c")
    assert model.prompts == [(U("u1"),)] * 3
    assert [message.role for message in await stored(memory.chat_memory)] == given("B087")["expect_store"]


@both
async def test_B088_after_a_turn_that_failed_the_next_prompt_is_valid(mode: Mode, store: Store) -> None:
    memory, model = memory_on(store), ScriptedModel("a1", ["Hel", OSError("down")], "a3")
    chain = AdvisorChain(model, [memory])
    await ask(mode, chain, "u1", conversation_id="c")
    with pytest.raises(OSError, match="down"):
        await ask(mode, chain, "u2", conversation_id="c")
    assert await stored(memory.chat_memory) == [U("u1"), A("a1")]  # a turn that failed leaves nothing
    await ask(mode, chain, "u3", conversation_id="c")
    assert texts(model.prompts[2]) == ["u1", "a1", "u3"]


@both
async def test_B138_context_written_in_each_round_is_there_at_the_end(mode: Mode) -> None:
    class Counting(BaseAdvisor):
        order = TOOL_CALLING_ORDER + 1

        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            return response.with_context(rounds=[*response.context.get("rounds", []), request.round])

    data = given("B138")
    script = [asking((f"k{place}", "look", "{}")) for place in range(data["tool_rounds"])]
    chain = AdvisorChain(ScriptedModel(*script, "done"), [HandLoop(look=lambda: "seen"), Counting()])
    response = await ask(mode, chain, "hi", context={"own": 1})
    assert response.context == {"own": 1, "rounds": data["expected_trace"]}


@both
async def test_B166_an_id_of_an_earlier_turn_does_not_stop_a_tool(mode: Mode, store: Store) -> None:
    script = [
        reply
        for turn in given("B166")["turns"]
        for call in turn["tool_calls"]
        for reply in (asking((call["id"], call["name"], call["arguments"])), "done")
    ]
    memory = MessageChatMemoryAdvisor(ChatMemory(repository=store.repository), remember="turn")
    loop, model = HandLoop(f=lambda n: f"r{n}"), ScriptedModel(*script)
    chain = AdvisorChain(model, [memory, loop])
    for question in ("u1", "u2"):
        await ask(mode, chain, question, conversation_id="c")
    assert [call.parsed() for call in loop.ran] == [{"n": 1}, {"n": 2}]

    def turn(n: int) -> list[object]:
        asked = A(tool_calls=(ToolCall("call_0", "f", f'{{"n":{n}}}'),))
        return [U(f"u{n}"), asked, ToolMessage(f"r{n}", tool_call_id="call_0", name="f")]

    assert list(model.prompts[3]) == [*turn(1), A("done"), *turn(2)]


async def test_B190_a_stream_gives_a_few_records_however_long_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def records(chunks: int) -> int:
        caplog.clear()
        script = [ChatChunk(f"secret{place} ") for place in range(chunks)]
        await ask("stream", AdvisorChain(ScriptedModel(script), [BaseAdvisor()]), "a secret question")
        assert "secret" not in "".join(str(vars(record)) for record in caplog.records)
        return len(caplog.records)

    with caplog.at_level(logging.DEBUG, "advisorchain"):
        few = await records(1)
        assert 1 <= few <= 3
        assert await records(given("B190")["chunks"]) == few
    with caplog.at_level(logging.WARNING):
        assert await records(given("B190")["chunks"]) == 0
