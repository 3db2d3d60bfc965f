"""The question twice for the model, once for everybody else."""

from __future__ import annotations

import pytest

from advisorchain import AdvisorChain, AssistantMessage, UserMessage
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.re_reading import ReReadingAdvisor
from advisorchain.errors import AdvisorOrderWarning
from advisorchain.memory import ChatMemory
from advisorchain.messages import ImagePart, Message, TextPart, ToolCall, ToolMessage
from advisorchain.testing import ScriptedModel, check_advisor


async def sent(*messages: Message) -> tuple[Message, ...]:
    model = ScriptedModel("answer")
    await AdvisorChain(model, [ReReadingAdvisor()]).call(messages)
    (prompt,) = model.prompts
    return prompt


async def test_it_keeps_the_laws() -> None:
    await check_advisor(ReReadingAdvisor)


async def test_the_question_is_there_twice() -> None:
    (question,) = await sent(UserMessage("How many {legs}?", name="ada"))
    assert question == UserMessage("How many {legs}?\nRead the question again: How many {legs}?", name="ada")


async def test_only_the_last_question_is_repeated() -> None:
    first, answer, last = await sent(UserMessage("one"), AssistantMessage("1"), UserMessage("two"))
    assert (first.text, answer.text) == ("one", "1")
    assert last.text == "two\nRead the question again: two"


async def test_of_several_parts_the_text_is_repeated() -> None:
    image = ImagePart(url="https://example.org/cat.png")
    (question,) = await sent(UserMessage((TextPart("Is this "), image, TextPart("a cat?"))))
    assert question.content[1] == image
    assert question.text == "Is this a cat?\nRead the question again: Is this a cat?"


async def test_a_question_without_text_stays() -> None:
    question = UserMessage((ImagePart(url="https://example.org/cat.png"),))
    assert await sent(question) == (question,)


async def test_what_is_no_question_stays() -> None:
    asked = (AssistantMessage(tool_calls=(ToolCall("k", "look"),)), ToolMessage("a cat", tool_call_id="k"))
    assert await sent(*asked) == asked


async def test_memory_keeps_the_question_as_it_was() -> None:
    memory, model = ChatMemory(), ScriptedModel("1", "2")
    chain = AdvisorChain(model, [ReReadingAdvisor(), MessageChatMemoryAdvisor(memory)])
    question = UserMessage("one")
    await chain.call(question, conversation_id="c")
    await chain.call(question, conversation_id="c")  # the same object again: only the new one is changed
    assert [message.text for message in await memory.get("c")] == ["one", "1", "one", "2"]
    assert [message.text for message in model.prompts[1]] == ["one", "1", "one\nRead the question again: one"]


def test_memory_inside_is_told() -> None:
    with pytest.warns(AdvisorOrderWarning, match="`memory`, which is further in, keeps the question twice"):
        AdvisorChain(ScriptedModel("x"), [ReReadingAdvisor(), MessageChatMemoryAdvisor(ChatMemory(), order=0)])
