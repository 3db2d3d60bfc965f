"""What callers do wrong: refused before anything happens, nothing stored, nothing left open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import (
    ConversationIdError,
    InvalidInputError,
    MessageError,
)
from advisorchain.exchange import ChatOptions, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import UserMessage, load_message
from advisorchain.testing import RecordingAdvisor, ScriptedModel

Ask = Callable[..., Awaitable[ChatResponse]]


def with_memory(model: ScriptedModel) -> tuple[AdvisorChain, ChatMemory]:
    memory = ChatMemory()
    return AdvisorChain(model, [RecordingAdvisor("a", -(2**31)), MessageChatMemoryAdvisor(memory)]), memory


@pytest.mark.parametrize(
    "conversation_id", [None, "", " \t", 5, 5.0, True, False, b"c", ["c"], "x" * 300, "\0", "a\0", "\ud800"]
)
async def test_a_conversation_id_that_no_store_can_keep(ask: Ask, conversation_id: Any) -> None:
    model = ScriptedModel("fine")
    chain, memory = with_memory(model)
    with pytest.raises(ConversationIdError, match="`conversation_id`") as raised:
        await ask(chain, conversation_id=conversation_id)
    assert isinstance(raised.value, ValueError)
    assert model.requests == []
    assert (await memory.conversations()).items == ()


async def test_no_conversation_id_is_an_error_that_names_the_memory_too(ask: Ask) -> None:
    chain, _ = with_memory(ScriptedModel("fine"))
    with pytest.raises(ConversationIdError, match="`conversation_id` is missing") as raised:
        await ask(chain)
    assert raised.value.__notes__ == [f"in advisor `memory`, order {-(2**31) + 200}"]
    recorder = chain.advisors[0]
    assert [outcome.status for outcome in recorder.outcomes] == ["error"]


async def test_without_memory_no_conversation_id_is_needed(ask: Ask) -> None:
    assert (await ask(AdvisorChain(ScriptedModel("fine")))).text == "fine"


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "`prompt` is empty"),
    ({"prompt": " \n"}, "`prompt` is empty"),
    ({"prompt": []}, "`prompt` is empty"),
    ({"prompt": ()}, "`prompt` is empty"),
    ({"prompt": None}, "`prompt` is None"),
    ({"prompt": 5}, "`prompt` is an int"),
    ({"prompt": b"bytes"}, "`"),
    ({"prompt": {"role": "user", "content": "a secret"}}, "`prompt` is a dict"),
    ({"prompt": [{"role": "user", "content": "a secret"}]}, r"`messages\[0\]` is a dict"),
    ({"prompt": [UserMessage("u"), "a secret"]}, r"`messages\[1\]` is a str"),
    ({"prompt": (UserMessage("u"), None)}, r"`messages\[1\]` is None"),
    ({"prompt": (ChatResponse("x"),)}, r"`messages\[0\]` is a ChatResponse"),
    ({"prompt": "half a character \ud800"}, "lone surrogate"),
    ({"options": {"temperature": 1}}, "`options` is a dict"),
    ({"options": "fast"}, "`options` is a str"),
    ({"context": [("k", "v")]}, "`context` is a list"),
    ({"context": {5: "v"}}, "`context` has a key that is an int"),
    ({"system": ""}, "`system` is blank"),
    ({"system": " "}, "`system` is blank"),
    ({"system": 5}, "`system` is an int"),
    ({"system": UserMessage("u")}, "`system` is an? UserMessage"),
    ({"system": "be brief", "prompt": ""}, "`prompt` is empty"),
    ({"timeout": -1}, "`timeout`"),
    ({"timeout": "soon"}, "`timeout`"),
    ({"without": "memory"}, "`without`"),
]


@pytest.mark.parametrize(("given", "match"), BAD_INPUT)
async def test_bad_input_is_refused_before_anything_happens(ask: Ask, given: dict[str, Any], match: str) -> None:
    model = ScriptedModel("fine")
    chain, memory = with_memory(model)
    with pytest.raises(InvalidInputError, match=match) as raised:
        await ask(chain, **{"conversation_id": "c", "prompt": "fine", **given})
    assert isinstance(raised.value, ValueError)
    assert "secret" not in str(raised.value)
    assert model.requests == []
    assert await memory.count("c") == 0
    assert chain.advisors[0].log == []


@pytest.mark.parametrize("name", ["options", "context", "system", "conversation_id", "timeout"])
async def test_none_is_as_not_given(ask: Ask, name: str) -> None:
    assert (await ask(AdvisorChain(ScriptedModel("fine")), **{name: None})).text == "fine"


@pytest.mark.parametrize("role", ["robot", "", None, 5, "developer", "System"])
def test_an_unknown_role(role: Any) -> None:
    with pytest.raises(MessageError, match="`"):
        load_message({"role": role, "content": "a secret"})
    with pytest.raises(MessageError, match="`role`"):
        UserMessage("u", role=role)


async def test_options_of_the_wrong_type_never_reach_the_model(ask: Ask) -> None:
    model = ScriptedModel("fine")
    with pytest.raises(InvalidInputError, match="`temperature`"):
        await ask(AdvisorChain(model), options=ChatOptions(temperature="hot"))
    assert model.requests == []


async def test_what_a_provider_would_refuse_is_not_stored(ask: Ask) -> None:
    model = ScriptedModel("fine")
    chain, memory = with_memory(model)
    orphan = load_message({"role": "tool", "content": "21", "tool_call_id": "1"})
    with pytest.raises(InvalidInputError, match="call `1`"):
        await ask(chain, [UserMessage("u"), orphan], conversation_id="c")
    assert await memory.count("c") == 0
    assert (await ask(chain, "fine", conversation_id="c")).text == "fine"
