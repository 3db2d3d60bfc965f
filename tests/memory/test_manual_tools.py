"""An application that runs tools by itself, outside any loop."""

from __future__ import annotations

import pytest

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from advisorchain.testing.models import ScriptedModel

from .._asking import MODES, Mode, ask, given, stored

U, A = UserMessage, AssistantMessage
both = pytest.mark.parametrize("mode", MODES)


@both
async def test_a_caller_that_runs_tools_itself_may_send_the_result_alone(mode: Mode) -> None:
    memory, call = MessageChatMemoryAdvisor(ChatMemory()), A(tool_calls=(ToolCall("k", "look"),))
    result = ToolMessage("seen", tool_call_id="k", name="look")
    await memory.chat_memory.add("c", [U("u1"), call])
    model = ScriptedModel("a1")
    await ask(mode, AdvisorChain(model, [memory]), result, conversation_id="c")
    assert model.prompts == [(U("u1"), call, result)]
    assert await stored(memory.chat_memory) == [U("u1"), call, result, A("a1")]


async def test_a_stored_call_with_bad_arguments_is_left_out_of_the_view_with_its_result() -> None:
    bad = A(tool_calls=(ToolCall("k", "read", given("B035")["arguments"]),))  # report B035
    memory = ChatMemory()
    log: list[Message] = [U("u1"), bad, ToolMessage("no JSON object", tool_call_id="k", is_error=True), A("sorry")]
    await memory.add("c", log)
    assert await memory.get("c") == (U("u1"), A("sorry"))
    assert await stored(memory) == log
