"""A cache outside the tool loop gives no answer that was made with other tools, nor one that a person had a say in."""

from __future__ import annotations

from typing import Any

import pytest

from advisorchain.advisors.cache import CacheAdvisor, InMemoryCache
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor, offer_tools
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorOrderWarning
from advisorchain.exchange import ChatOptions, ChatRequest, ChatResponse, ToolDefinition
from advisorchain.hooks import before
from advisorchain.memory import ChatMemory
from advisorchain.messages import ImagePart, UserMessage
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool
from advisorchain.tools.toolset import toolset

from .._asking import MODES, Mode, ask
from ._tool_scripts import Runs, asks

both = pytest.mark.parametrize("mode", MODES)


def answers(*texts: str) -> ScriptedModel:
    return ScriptedModel(*texts)


def is_cached(response: ChatResponse) -> bool:
    return bool(response.metadata.get("cached"))


@both
async def test_tools_of_the_request_are_in_the_key(mode: Mode) -> None:
    model = answers("plain", "with a", "with b")
    chain = AdvisorChain(model, [CacheAdvisor(shared=True), ToolCallingAdvisor()])
    options = [ChatOptions(tools=tuple(ToolDefinition(name) for name in names)) for names in ("", "a", "b")]
    for _ in range(2):
        said = [(await ask(mode, chain, "q", options=each)).text for each in options]
        assert said == ["plain", "with a", "with b"]
    assert len(model.requests) == 3


@both
async def test_tools_of_the_loop_are_in_the_key(mode: Mode) -> None:
    store, runs = InMemoryCache(), Runs()
    model = answers("without", "with a", "with b", "with both")
    a, b = runs.several("a", "b")
    loops = [[], [a], [b], [a, b]]
    chains = [AdvisorChain(model, [CacheAdvisor(store, shared=True), ToolCallingAdvisor(tools)]) for tools in loops]
    chains.append(chains[0].replacing("tools", ToolCallingAdvisor([a])))
    chains.append(chains[0].without("tools"))
    for place, chain in enumerate([*chains, *chains]):
        expected = ["without", "with a", "with b", "with both", "with a", "without"][place % 6]
        response = await ask(mode, chain, "q")
        assert (response.text, is_cached(response)) == (expected, place > 3)


@both
async def test_a_tool_that_is_told_in_other_words_is_another_tool(mode: Mode) -> None:
    def look(far: bool = False) -> str:
        """Look."""
        return ""

    store, model = InMemoryCache(), answers("one", "two")
    made = [tool(look), tool(look, description="Look, please."), tool(look)]
    said = [
        (await ask(mode, AdvisorChain(model, [CacheAdvisor(store, shared=True), ToolCallingAdvisor([each])]), "q")).text
        for each in made
    ]
    assert said == ["one", "two", "one"]


@both
@pytest.mark.parametrize("loop", [False, True])
async def test_the_tools_of_one_call_are_in_the_key(mode: Mode, loop: bool) -> None:
    a, b, c = Runs().several("a", "b", "c")

    @toolset
    def more(request: ChatRequest) -> list[Any]:
        return [c]

    model = answers("none", "a", "b", "c")
    client = ChatClient(model, advisors=[CacheAdvisor(shared=True), *([ToolCallingAdvisor()] if loop else [])])

    async def said(*tools: Any) -> str:
        if mode == "call":
            return (await client.call("q", tools=tools)).text
        async with client.stream("q", tools=tools) as stream:
            return "".join([chunk.text async for chunk in stream])

    for _ in range(2):
        assert [await said(), await said(a), await said(b), await said(more)] == ["none", "a", "b", "c"]


@both
async def test_what_a_toolset_gives_this_user_is_in_the_key(mode: Mode) -> None:
    look, order = Runs().several("look", "order")

    @toolset
    def for_user(request: ChatRequest) -> list[Any]:
        return [look, order] if request.context["may_order"] else [look]

    model = answers("you may", "you may not")
    advisors = [CacheAdvisor(shared=True), ToolsetAdvisor(for_user), ToolCallingAdvisor()]
    chain = AdvisorChain(model, advisors)
    assert [row.name for row in chain.describe()] == ["toolsets", "cache", "tools"]
    for _ in range(2):
        for may, said in ((True, "you may"), (False, "you may not")):
            assert (await ask(mode, chain, "q", context={"may_order": may})).text == said
    assert len(model.requests) == 2


@both
async def test_what_an_advisor_further_out_offers_is_in_the_key(mode: Mode) -> None:
    extra = Runs().giving("extra")

    @before(order=CacheAdvisor().order - 1)
    def offering(request: ChatRequest) -> ChatRequest:
        return offer_tools(request, extra) if request.context["extra"] else request

    chain = AdvisorChain(answers("with", "without"), [offering, CacheAdvisor(shared=True), ToolCallingAdvisor()])
    said = [(await ask(mode, chain, "q", context={"extra": extra})).text for extra in (True, False, True, False)]
    assert said == ["with", "without", "with", "without"]


def test_a_cache_around_toolsets_is_warned_of() -> None:
    inside = ToolsetAdvisor(toolset(lambda request: []), order=CacheAdvisor().order + 1)
    with pytest.warns(AdvisorOrderWarning, match="other tools of `toolsets`, which is further in"):
        AdvisorChain(answers(), [CacheAdvisor(), inside, ToolCallingAdvisor()])


async def test_without_tools_the_key_is_that_of_the_request_alone() -> None:
    seen: list[ChatRequest] = []

    class Telling(CacheAdvisor):
        def key(self, request: ChatRequest) -> str:
            seen.append(request)
            return super().key(request)

    cache = Telling(shared=True)
    await AdvisorChain(answers("a"), [cache, ToolCallingAdvisor()]).call("q")
    assert cache.key(seen[0]) == cache.key(ChatRequest((UserMessage("q"),)))


# -- a person's decision


@both
async def test_a_turn_that_a_person_decided_on_is_neither_looked_up_nor_kept(mode: Mode) -> None:
    paid: list[int] = []

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    asking = asks(("p", "pay", '{"amount": 5}'))
    model = ScriptedModel(asking, asking, "Paid.", asking, "Again.")
    chain = AdvisorChain(model, [CacheAdvisor(shared=True), ToolCallingAdvisor([pay])])
    first, second = (await ask(mode, chain, "Pay 5.")).pause, (await ask(mode, chain, "Pay 5.")).pause
    assert first is not None
    assert second is not None

    async def go_on(pause: Any) -> ChatResponse:
        arguments: Any = pause.resume(approve=["p"])
        return await ask(mode, chain, arguments.pop("prompt"), **arguments)

    assert ((await go_on(first)).text, paid) == ("Paid.", [5])
    third = await ask(mode, chain, "Pay 5.")  # asks a person again
    assert (third.finish_reason, paid) == ("paused", [5])
    assert ((await go_on(second)).text, paid) == ("Again.", [5, 5])  # what was approved is run, whatever was answered before


@both
async def test_a_turn_with_tools_is_given_again_whole(mode: Mode) -> None:
    picture = ImagePart(data=b"\x89PNG", media_type="image/png")
    runs = Runs()

    async def draw() -> Any:
        return ["here:", picture]

    model = ScriptedModel(asks("draw", text="I draw. "), "Done.")
    memory = MessageChatMemoryAdvisor(ChatMemory(), remember="turn")
    chain = AdvisorChain(model, [memory, CacheAdvisor(shared=True), ToolCallingAdvisor([runs.giving("draw", draw)])])
    first = await ask(mode, chain, "q", conversation_id="one")
    again = await ask(mode, chain, "q", conversation_id="two")
    assert again.turn == first.turn
    assert (is_cached(again), runs.names) == (True, ["draw"])
    assert [message.role for message in (await memory.chat_memory.get("two"))] == ["user", "assistant", "tool", "assistant"]
