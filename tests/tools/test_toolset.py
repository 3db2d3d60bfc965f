"""Toolsets: tools that change from request to request, prefixes, filters, and their advisor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorContractError, AdvisorOrderWarning, ConfigurationError
from advisorchain.exchange import ChatRequest
from advisorchain.messages import UserMessage
from advisorchain.testing import ScriptedModel, check_advisor
from advisorchain.tools import Tool, ToolContext, tool
from advisorchain.tools.toolset import FunctionToolset, Toolset, toolset

from .._asking import MODES, Mode, ask, asking

both = pytest.mark.parametrize("mode", MODES)


@tool
def read(path: str = "a") -> str:
    """Read a file."""
    return f"read {path}"


@tool(needs_approval=True)
def delete(path: str = "a") -> str:
    """Delete a file."""
    return f"deleted {path}"


@toolset
def files(request: ChatRequest) -> list[Tool]:
    return [read, delete] if request.context.get("may_delete") else [read]


def offered_to(model: ScriptedModel) -> list[list[str]]:
    return [[definition.name for definition in request.options.tools] for request in model.requests]


def asked(**context: Any) -> ChatRequest:
    return ChatRequest((UserMessage("hi"),), context=context)


@both
async def test_each_request_has_the_tools_that_its_function_gives(mode: Mode) -> None:
    model = ScriptedModel("one", "two")
    chain = AdvisorChain(model, [ToolsetAdvisor(files), ToolCallingAdvisor()])
    await ask(mode, chain, "hi")
    await ask(mode, chain, "hi", context={"may_delete": True})
    assert offered_to(model) == [["read"], ["read", "delete"]]


@both
async def test_a_tool_of_a_set_is_run_and_stands_beside_the_loops_own(mode: Mode) -> None:
    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    async def later(request: ChatRequest) -> list[Any]:
        return [read]

    model = ScriptedModel(asking(("k1", "f_read", '{"path": "b"}'), ("k2", "now", "{}")), "done")
    chain = AdvisorChain(model, [ToolsetAdvisor(toolset(later).prefixed("f_")), ToolCallingAdvisor([now])])
    response = await ask(mode, chain, "hi")
    assert offered_to(model) == [["now", "f_read"]] * 2
    assert [message.text for message in response.earlier] == ["", "read b", "noon"]


async def test_a_prefix_keeps_what_the_tool_is() -> None:
    (plain, other) = await files.prefixed("f_").tools_for(asked(may_delete=True))
    assert (plain.name, other.name) == ("f_read", "f_delete")
    assert other.needs_approval is True
    assert other.definition.parameters == delete.definition.parameters
    assert other.values('{"path": "c"}') == {"path": "c"}
    assert (await plain.run("{}", ToolContext(tool_name="f_read"))).content == "read a"


async def test_a_filter_sees_tool_and_request() -> None:
    kept = files.filtered(lambda tool, request: tool.name != "delete" or request.context["admin"])
    assert list(await kept.tools_for(asked(may_delete=True, admin=False))) == [read]
    assert list(await kept.tools_for(asked(may_delete=True, admin=True))) == [read, delete]


async def test_what_a_filter_leaves_out_cannot_be_run() -> None:
    model = ScriptedModel(asking(("k1", "delete", "{}")), "no")
    kept = files.filtered(lambda tool, request: tool.name == "read")
    response = await AdvisorChain(model, [ToolsetAdvisor(kept), ToolCallingAdvisor()]).call(
        "hi", context={"may_delete": True}
    )
    assert "there is no tool `delete`" in response.earlier[1].text


async def test_a_filter_that_answers_no_bool_is_told() -> None:
    async def keep(tool: Tool, request: ChatRequest) -> bool:
        return False

    with pytest.raises(AdvisorContractError, match="`keep` returned a coroutine for tool `read`"):
        await files.filtered(keep).tools_for(asked())


@pytest.mark.parametrize("given", [None, "read", {"read": 1}])
async def test_a_function_that_returns_no_list_is_told(given: Any) -> None:
    with pytest.raises(AdvisorContractError, match="toolset `<lambda>` returned"):
        await FunctionToolset(lambda request: given).tools_for(asked())


async def test_two_sets_with_one_name_are_an_error_before_the_model_is_asked() -> None:
    model = ScriptedModel("never")
    with pytest.raises(ConfigurationError, match="two tools have the name `read`"):
        await AdvisorChain(model, [ToolsetAdvisor(files, files), ToolCallingAdvisor()]).call("hi")
    assert not model.requests


@both
@pytest.mark.parametrize(
    "settings", [{"needs_approval": True}, {"return_direct": True}, {"timeout": 5}, {"sequential": True}]
)
async def test_a_function_with_other_settings_is_another_tool(mode: Mode, settings: dict[str, Any]) -> None:
    runs: list[str] = []

    async def send() -> str:
        """Send."""
        runs.append("sent")
        return "sent"

    again = tool(send, **settings)
    model = ScriptedModel(asking(("k1", "send", "{}")), "done")
    chain = AdvisorChain(model, [ToolsetAdvisor(toolset(lambda request: [again])), ToolCallingAdvisor([send])])
    with pytest.raises(ConfigurationError, match="`send` is the name of another tool already"):
        await ask(mode, chain, "hi")
    with pytest.raises(ConfigurationError, match="`send` is the name of another tool of advisor `tools`"):
        await ChatClient(model, tools=[send]).call("hi", tools=[again])
    assert (runs, model.requests) == ([], [])


@both
async def test_equal_tools_of_two_servers_are_two(mode: Mode) -> None:
    def server(answer: str) -> Toolset:
        def ping() -> str:
            """Ping."""
            return answer

        return toolset(lambda request: [ping])

    model = ScriptedModel()
    sets = [ToolsetAdvisor(server("a"), name="one"), ToolsetAdvisor(server("b"), name="two")]
    with pytest.raises(ConfigurationError, match="`ping` is the name of another tool already"):
        await ask(mode, AdvisorChain(model, [*sets, ToolCallingAdvisor()]), "hi")


class Clock:
    def now(self) -> str:
        """Tell the time."""
        return "noon"


@both
async def test_the_same_tool_again_is_no_harm(mode: Mode) -> None:
    clock = Clock()
    model = ScriptedModel(asking(("k1", "now", "{}"), ("k2", "read", "{}")), "done")
    again = toolset(lambda request: [clock.now, read])
    chain = AdvisorChain(model, [ToolsetAdvisor(again), ToolCallingAdvisor([clock.now, read])])
    response = await ask(mode, chain, "hi")
    assert [message.text for message in response.earlier[1:]] == ["noon", "read a"]
    assert offered_to(model) == [["now", "read"]] * 2


@pytest.mark.parametrize("prefix", ["", "a b", "x" * 33, None])
def test_a_prefix_that_providers_refuse(prefix: Any) -> None:
    with pytest.raises(ConfigurationError, match="`prefix`"):
        files.prefixed(prefix)


def test_what_is_no_toolset() -> None:
    with pytest.raises(ConfigurationError, match="made of a function of the request, not of a list"):
        toolset([read])
    with pytest.raises(ConfigurationError, match="`toolsets` has a FunctionTool"):
        ToolsetAdvisor(read)
    with pytest.raises(ConfigurationError, match="`keep` is None"):
        files.filtered(None)


def test_without_a_loop_further_in_it_is_told() -> None:
    with pytest.warns(AdvisorOrderWarning, match="no tool loop `tools` is further in"):
        AdvisorChain(ScriptedModel(), [ToolsetAdvisor(files), ToolCallingAdvisor(name="other")])


class Opened(Toolset):
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    async def tools_for(self, request: ChatRequest) -> Sequence[Tool]:
        return []

    async def __aenter__(self) -> Opened:
        if self.name == "broken":
            raise OSError("no")
        self.log.append(f"+{self.name}")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.log.append(f"-{self.name}")


async def test_the_chain_opens_and_closes_the_sets() -> None:
    log: list[str] = []
    advisor = ToolsetAdvisor(Opened(log, "a").prefixed("x"), Opened(log, "b").filtered(lambda tool, request: True))
    async with AdvisorChain(ScriptedModel(), [advisor, ToolCallingAdvisor()]):
        assert log == ["+a", "+b"]
    assert log == ["+a", "+b", "-b", "-a"]


async def test_when_one_cannot_be_opened_the_others_are_closed() -> None:
    log: list[str] = []
    chain = AdvisorChain(ScriptedModel(), [ToolsetAdvisor(Opened(log, "a"), Opened(log, "broken")), ToolCallingAdvisor()])
    with pytest.raises(OSError, match="no"):
        async with chain:
            raise AssertionError
    assert log == ["+a", "-a"]


@pytest.mark.filterwarnings("ignore::advisorchain.errors.AdvisorOrderWarning")
async def test_it_keeps_the_laws() -> None:
    await check_advisor(lambda: ToolsetAdvisor(files))
