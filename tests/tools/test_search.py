"""Tool search: a search tool first, found tools from the next round on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, ToolArgumentsError
from advisorchain.exchange import ChatOptions, ChatRequest, ToolDefinition
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from advisorchain.testing import ScriptedModel
from advisorchain.tools import Tool, ToolContext, search, tool
from advisorchain.tools._tool_index import ToolIndex
from advisorchain.tools.search import SearchTool, ToolSearch
from advisorchain.tools.toolset import toolset

from .._asking import MODES, Mode, ask, asking

_CASES = json.loads((Path(__file__).parent.parent / "cases" / "tool_loop.json").read_text(encoding="utf-8"))
CASES: dict[str, Any] = {case["id"]: case for case in _CASES}
HI = ChatRequest((UserMessage("hi"),))
both = pytest.mark.parametrize("mode", MODES)


def made(name: str, description: str = "", **settings: Any) -> Tool:
    def run() -> str:
        return f"{name} ran"

    result: Tool = tool(run, name=name, description=description, **settings)
    return result


WEATHER = made("weather", "How warm it is in a city.")
CLOTHING = made("clothing", "What to put on.")
TIME = made("time", "The clock of a city.")


def history(data: list[Any]) -> tuple[Message, ...]:
    """The `history` of a case."""
    plain = {"user": UserMessage, "assistant": AssistantMessage, "system": SystemMessage}
    messages: list[Message] = []
    for each in data:
        if each["role"] != "tool":
            messages.append(plain[each["role"]](each["text"]))
            continue
        for result in each.get("responses", [each]):
            messages.append(ToolMessage(result["text"], tool_call_id=result["tool_call_id"], name=result["name"]))
    return tuple(messages)


@both
@pytest.mark.parametrize("case_id", ["tool-067", "tool-068", "tool-069"])
async def test_tool_067_tool_068_tool_069_what_was_found_is_offered(mode: Mode, case_id: str) -> None:
    case = CASES[case_id]
    offered: list[set[str]] = []

    async def model(request: ChatRequest) -> str:  # the strict one would not take such a history
        offered.append({definition.name for definition in request.options.tools})
        return "fine"

    many = ToolSearch(
        [made(name) for name in case["given"]["tools"]],
        accumulate=case["given"]["accumulate"],
        name="toolSearchTool",
    )
    chain = AdvisorChain(model, [ToolsetAdvisor(many), ToolCallingAdvisor()])
    await ask(mode, chain, history(case["given"]["history"]))
    assert offered == [set(case["expect"]["set"])]


@both
async def test_tool_066_a_changed_set_is_indexed_again(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    class Counting(ToolIndex):
        def __init__(self, definitions: Any) -> None:
            built.append([definition.name for definition in definitions])
            super().__init__(definitions)

    monkeypatch.setattr(search, "ToolIndex", Counting)
    case = CASES["tool-066"]
    every = {name: made(name) for names in case["given"]["tool_sets"] for name in names}
    changing = toolset(lambda request: [every[name] for name in request.context["names"]])
    model = ScriptedModel("fine", repeat=True)
    chain = AdvisorChain(model, [ToolsetAdvisor(ToolSearch([changing])), ToolCallingAdvisor()])
    for names in case["given"]["tool_sets"]:
        for _ in range(3):
            await ask(mode, chain, "hi", conversation_id=case["given"]["session"], context={"names": names})
    assert built == case["given"]["tool_sets"]
    assert len(built) == case["expect"]["index_builds"]


@both
@pytest.mark.parametrize("accumulate", [True, False])
async def test_found_tools_are_offered_from_the_next_round_on_and_run(mode: Mode, accumulate: bool) -> None:
    model = ScriptedModel(
        asking(("k1", "search_tools", '{"query": "how warm"}')),
        asking(("k2", "weather", "{}")),
        asking(("k3", "search_tools", '{"query": "put on"}')),
        "Take a coat.",
    )
    many = ToolSearch([WEATHER, CLOTHING, TIME], accumulate=accumulate)
    chain = AdvisorChain(model, [ToolsetAdvisor(many), ToolCallingAdvisor([made("now")])])
    response = await ask(mode, chain, "What shall I wear?")
    offered = [[definition.name for definition in request.options.tools] for request in model.requests]
    first = ["now", "search_tools"]
    last = [*first, "weather", "clothing"] if accumulate else [*first, "clothing"]
    assert offered == [first, [*first, "weather"], [*first, "weather"], last]
    results = [message.text for message in response.earlier if isinstance(message, ToolMessage)]
    assert results == ['["weather"]', "weather ran", '["clothing"]']


@both
async def test_a_paused_turn_goes_on_with_what_was_found(mode: Mode) -> None:
    def chain(*script: Any) -> tuple[AdvisorChain, ScriptedModel]:
        model = ScriptedModel(*script)
        tools = ToolSearch([made("pay", "Send money.", needs_approval=True), WEATHER])
        return AdvisorChain(model, [ToolsetAdvisor(tools), ToolCallingAdvisor()]), model

    before, _ = chain(asking(("k1", "search_tools", '{"query": "send money"}')), asking(("k2", "pay", "{}")))
    paused = await ask(mode, before, "Pay.")
    assert paused.pause is not None
    after, model = chain("Paid.")
    response = await ask(mode, after, **paused.pause.resume(approve=["k2"]))
    assert [message.text for message in response.earlier if isinstance(message, ToolMessage)] == ['["pay"]', "pay ran"]
    assert [definition.name for definition in model.requests[0].options.tools] == ["search_tools", "pay"]


async def test_a_tool_that_the_caller_forces_is_in_sight() -> None:
    model = ScriptedModel(asking(("k1", "weather", "{}")), "Warm.")
    chain = AdvisorChain(model, [ToolsetAdvisor(ToolSearch([WEATHER, CLOTHING])), ToolCallingAdvisor()])
    await chain.call("hi", options=ChatOptions(tool_choice="weather"))
    assert [definition.name for definition in model.requests[0].options.tools] == ["search_tools", "weather"]


async def test_the_search_tool_says_what_is_wrong_with_arguments() -> None:
    (searching, *_) = await ToolSearch([WEATHER]).tools_for(HI)
    for arguments in ("{}", '{"query": 3}', "[]", "nonsense", '{"query"'):
        with pytest.raises(ToolArgumentsError, match=r"`search_tools`(?!.*call)"):
            await searching.run(arguments, ToolContext(tool_name="search_tools"))


@both
async def test_a_filtered_search_finds_what_may_be_run(mode: Mode) -> None:
    many = ToolSearch([WEATHER, toolset(lambda request: [CLOTHING, TIME])], limit=9, name="find")
    few = many.filtered(lambda each, request: each.name != "clothing")
    searching, *others = await few.tools_for(HI)
    assert [each.name for each in others] == ["weather", "time"]
    assert "There are 2 more" in searching.definition.description
    script = [asking(("k1", "find", '{"query": "clothing weather time"}')), asking(("k2", "time", "{}")), "done"]
    model = ScriptedModel(*script)
    response = await ask(mode, AdvisorChain(model, [ToolsetAdvisor(few), ToolCallingAdvisor()]), "hi")
    found, ran = (message for message in response.earlier if isinstance(message, ToolMessage))
    assert (sorted(json.loads(found.text)), ran.text) == (["time", "weather"], "time ran")


async def test_results_that_somebody_changed_find_nothing() -> None:
    found = await ToolSearch([WEATHER]).tools_for(HI)
    assert isinstance(found[0], SearchTool)
    options = ChatOptions(tools=tuple(each.definition for each in found))
    for text in ("[redacted]", "7", '[1, {"a": 2}]', '"weather"'):
        said = (UserMessage("hi"), ToolMessage(text, tool_call_id="k", name="search_tools"))
        narrowed = found[0].narrowed(ChatRequest(said, options=options))
        assert [definition.name for definition in narrowed.options.tools] == ["search_tools"]


async def test_no_tools_no_search() -> None:
    assert await ToolSearch([]).tools_for(HI) == ()


@pytest.mark.parametrize("settings", [{"limit": 0}, {"limit": True}, {"name": "a b"}])
def test_settings_that_cannot_be(settings: Any) -> None:
    with pytest.raises(ConfigurationError):
        ToolSearch([WEATHER], **settings)


async def test_names_have_to_differ_and_a_prefix_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="two tools have the name `weather`"):
        await ToolSearch([WEATHER, toolset(lambda request: [WEATHER])]).tools_for(HI)
    with pytest.raises(ConfigurationError, match="takes no prefix"):
        ToolSearch([WEATHER]).prefixed("x")


# -- the index


def index(*tools: tuple[str, str, str]) -> ToolIndex:
    return ToolIndex(
        [
            ToolDefinition(name, told, {"type": "object", "properties": {argument: {"description": "of it"}}})
            for name, told, argument in tools
        ]
    )


MANY = index(
    ("createInvoice", "Bill a customer.", "amount"),
    ("invoice_search", "Find bills by customer.", "customer"),
    ("send_mail", "Send an e-mail, for example with an invoice.", "address"),
    ("café_menu", "What there is to eat.", "day"),
)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("invoice_search", "invoice_search"),
        ("createInvoice", "createInvoice"),
        ("create invoices", "createInvoice"),
        ("sending mails", "send_mail"),
        ("CAFE", "café_menu"),
        ("address", "send_mail"),
        ('invoice" OR name:* NEAR( -', "createInvoice"),
    ],
)
def test_words_find_the_tool_that_fits_best(query: str, best: str) -> None:
    assert MANY.find(query, 3)[0] == best


def test_names_say_more_than_descriptions_and_the_limit_holds() -> None:
    assert set(MANY.find("invoice", 2)) == {"createInvoice", "invoice_search"}
    assert MANY.find("invoice", 9)[-1] == "send_mail"


@given(st.text(), st.integers(1, 5))
def test_no_query_breaks_it(query: str, limit: int) -> None:
    found = MANY.find(query, limit)
    assert len(found) <= limit
    assert set(found) <= set(MANY.names)
    assert len(set(found)) == len(found)
