"""What `describe()` tells of each place around and inside the tool loop, and what is warned of at the innermost one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from advisorchain.advisor import TOOL_CALLING_ORDER, AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.retry import RetryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorOrderWarning, ConfigurationError
from advisorchain.exchange import ChatRequest
from advisorchain.memory import ChatMemory
from advisorchain.testing import RecordingAdvisor, ScriptedModel
from advisorchain.tools import tool
from advisorchain.tools.toolset import FunctionToolset, Toolset

from .._asking import MODES, Mode, ask, stored, texts
from ._tool_scripts import Runs, asks

both = pytest.mark.parametrize("mode", MODES)
ROUND = TOOL_CALLING_ORDER + 1


def memory(**settings: Any) -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory(), **settings)


def chain_of(*advisors: Any, script: tuple[Any, ...] = ()) -> AdvisorChain:
    return AdvisorChain(ScriptedModel(*script), advisors)


def seen(chain: AdvisorChain) -> dict[str, str]:
    return {row.name: row.sees for row in chain.describe()}


def test_what_each_place_sees() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    loop, retry = ToolCallingAdvisor([look]), RetryAdvisor()
    inner, innermost = RecordingAdvisor("inner", 0), RecordingAdvisor("innermost", 9000)
    chain = chain_of(memory(), loop, inner, retry, innermost)
    assert seen(chain) == {
        "memory": "the whole turn",
        "tools": "the whole turn",
        "inner": "each round",
        "retry": "each round",
        "innermost": "each attempt of each round",
    }
    assert set(seen(chain.without("tools", "retry")).values()) == {"the whole turn"}
    client = ChatClient(ScriptedModel(), tools=[look], advisors=[inner])
    assert seen(client.chain) == {"tools": "the whole turn", "inner": "each round"}


def test_an_advisor_of_somebody_else_tells_its_own_word() -> None:
    class Voting(AroundAdvisor):
        name, repeats = "voting", "sample"

        async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
            async for item in next(request):
                yield item

    class Counting(RecordingAdvisor):
        repeats = 3  # means something else

    assert seen(chain_of(Voting(), RecordingAdvisor("x", 1))) == {"voting": "the whole turn", "x": "each sample"}
    assert seen(chain_of(Counting("count", 0), RecordingAdvisor("x", 1)))["x"] == "the whole turn"


NOTES = {
    "outside": "keeps the question and the final answer",
    "outside, turns": "keeps each turn with its tool rounds",
    "inside": "keeps each turn with its tool rounds when its last answer is there, nothing of others",
}


@both
@pytest.mark.parametrize("place", NOTES)
async def test_memory_keeps_what_its_note_says(mode: Mode, place: str) -> None:
    remembering = memory(
        **{"outside": {}, "outside, turns": {"remember": "turn"}, "inside": {"order": ROUND}}[place],
    )
    tools = [Runs().giving("look"), Runs().giving("direct", return_direct=True)]
    chain = chain_of(remembering, ToolCallingAdvisor(tools), script=(asks("look"), "fine", asks("direct")))
    (row,) = [row for row in chain.describe() if row.name == "memory"]
    assert (row.note, row.sees) == (NOTES[place], "each round" if place == "inside" else "the whole turn")
    await ask(mode, chain, "q1", conversation_id="c")
    rounds = [] if place == "outside" else ["", "ok"]
    assert texts(await stored(remembering.chat_memory)) == ["q1", *rounds, "fine"]
    await ask(mode, chain, "q2", conversation_id="c")  # ends between two rounds
    kept = {"outside": ["q2", "ok"], "outside, turns": ["q2", "", "ok", "ok"], "inside": []}[place]
    assert texts(await stored(remembering.chat_memory))[2 + len(rounds) :] == kept


def test_the_others_have_no_note() -> None:
    assert [row.note for row in chain_of(ToolCallingAdvisor(), RecordingAdvisor("x", 1)).describe()] == ["", ""]


# -- the innermost place


def test_the_innermost_advisor_is_asked_about_its_place_too() -> None:
    asked: list[Any] = []

    class Placed(BaseAdvisor):
        name = "placed"

        def before(self, request: ChatRequest) -> ChatRequest:
            return request

        def misplaced(self, inner: tuple[Any, ...]) -> str | None:
            asked.append(inner)
            return None if inner else "nothing is further in"

    with pytest.warns(AdvisorOrderWarning, match="`placed`: nothing is further in"):
        AdvisorChain(ScriptedModel(), [Placed()])
    assert asked == [()]


def test_toolsets_without_a_loop_are_warned_of() -> None:
    with pytest.warns(AdvisorOrderWarning, match="no tool loop `tools` is further in"):
        chain_of(ToolsetAdvisor(FunctionToolset(lambda request: [])))


async def test_a_chain_without_advisors_refuses_to_go_on() -> None:
    model = ScriptedModel(asks("pay"), "never")
    chain = AdvisorChain(model, [ToolCallingAdvisor([Runs().giving("pay", needs_approval=True)])])
    pause = (await chain.call("q")).pause
    assert pause is not None
    with pytest.raises(ConfigurationError, match="no advisor `tools`"):
        await AdvisorChain(model).call(**pause.resume(approve=["k1"]))
    assert len(model.requests) == 1


# -- toolsets of one call


class Connected(Toolset):
    """A toolset that has to be opened."""

    def __init__(self) -> None:
        self.depth = self.opened = 0

    async def tools_for(self, request: ChatRequest) -> list[Any]:
        if not self.depth:
            raise ConfigurationError("`connected` is not open")
        return [Runs().giving("far", "from afar")]

    async def __aenter__(self) -> Connected:
        self.depth += 1
        self.opened += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self.depth -= 1


@both
async def test_a_toolset_for_one_call_is_its_givers_to_open(mode: Mode) -> None:
    model = ScriptedModel(asks("far"), "one", asks("far"), "two")
    connected = Connected()
    async with AdvisorChain(model, [ToolCallingAdvisor()]) as chain, ChatClient(model) as client:
        with pytest.raises(ConfigurationError, match="`connected` is not open"):
            await ask(mode, chain, "q", advisors=[ToolsetAdvisor(connected)])
        with pytest.raises(ConfigurationError, match="`connected` is not open"):
            await client.call("q", tools=[connected])
        async with connected:
            assert (await ask(mode, chain, "q", advisors=[ToolsetAdvisor(connected)])).text == "one"
            assert (await client.call("q", tools=[connected])).text == "two"
            assert (connected.depth, connected.opened) == (1, 1)
