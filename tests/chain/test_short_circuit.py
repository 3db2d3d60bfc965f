"""An advisor whose `before` gives a response answers at once."""

from __future__ import annotations

from typing import Any

import pytest

from advisorchain.advisor import AroundAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ToolCall
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels


class Answers(RecordingAdvisor):
    answer = ChatResponse("at once", "stop")

    def before(self, request: ChatRequest) -> Any:
        super().before(request)
        return self.answer


class AnswersAsync(Answers):
    async def before(self, request: ChatRequest) -> Any:
        return super().before(request)


class Passing(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


@pytest.mark.parametrize("kind", [Answers, AnswersAsync])
@pytest.mark.parametrize("between", [(), (Passing(),)])
async def test_the_rest_is_untouched(ask: Any, kind: Any, between: Any) -> None:
    log: list[Seen] = []
    model = ScriptedModel()
    advisors = [RecordingAdvisor("a", log=log), *between, kind("b", log=log), RecordingAdvisor("c", log=log)]

    response = await ask(AdvisorChain(model, advisors), context={"k": 1})

    assert (response.text, response.finish_reason, response.context) == ("at once", "stop", {"k": 1})
    assert labels(log, "before", "after", "done") == ["a.before", "b.before", "b.done ok", "a.after", "a.done ok"]
    assert labels(log, "flush") == ["a.flush"]
    assert [seen.text for seen in log if seen.hook == "feed"] == ["at once"]
    assert model.requests == []


async def test_its_own_transform_and_after_are_skipped_wherever_it_stands(ask: Any) -> None:
    for place in range(3):
        log: list[Seen] = []
        names = "abc"
        kinds = [Answers if at == place else RecordingAdvisor for at in range(3)]
        await ask(AdvisorChain(ScriptedModel(), [kind(name, log=log) for kind, name in zip(kinds, names, strict=True)]))
        assert labels(log, "before") == [f"{name}.before" for name in names[: place + 1]]
        assert not [label for label in labels(log, "transform", "feed", "flush", "after") if label[0] >= names[place]]
        assert labels(log, "done") == [f"{name}.done ok" for name in reversed(names[: place + 1])]


async def test_a_stream_shows_the_text_as_one_chunk_first() -> None:
    async with AdvisorChain(ScriptedModel(), [Answers("b")]).stream("q") as stream:
        chunks = [chunk async for chunk in stream]
    assert chunks == [ChatChunk("at once", finish_reason="stop")]
    assert stream.response.text == "at once"


async def test_left_at_its_only_chunk() -> None:
    log: list[Seen] = []
    chain = AdvisorChain(ScriptedModel(), [RecordingAdvisor("a", log=log), Answers("b", log=log)])
    async with chain.stream("q") as stream:
        async for _ in stream:
            break
    assert labels(log, "after", "done") == ["b.done closed", "a.done closed"]


async def test_a_response_with_tool_calls_keeps_them(ask: Any) -> None:
    class Asks(Answers):
        answer = ChatResponse(AssistantMessage("", tool_calls=(ToolCall("1", "clock"),)), "tool_calls")

    response = await ask(AdvisorChain(ScriptedModel(), [Asks("b")]))
    assert response.message.tool_calls == (ToolCall("1", "clock"),)


async def test_a_refusal_is_not_remembered_nor_is_its_question(ask: Any) -> None:
    class Guard(Answers):
        answer = ChatResponse("no", "content_filter")

    memory = MessageChatMemoryAdvisor(ChatMemory())
    chain = AdvisorChain(ScriptedModel("hello"), [memory, Guard("guard")])
    assert (await ask(chain, conversation_id="c")).text == "no"
    assert await memory.chat_memory.count("c") == 0
    await ask(chain, conversation_id="c", without=["guard"])
    assert await memory.chat_memory.count("c") == 2
