"""MCP servers that print, lie, hang, and change: a clear error when it is opened, an error result when it is called."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import TypeAdapter, ValidationError

from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ToolError
from advisorchain.exchange import ChatResponse
from advisorchain.messages import ToolMessage
from advisorchain.testing import ScriptedModel
from advisorchain.tools._mcp_connection import reason_of
from advisorchain.tools.mcp import McpToolset

from .._asking import MODES, Mode, ask, asking

pytestmark = pytest.mark.slow  # starts servers

BAD = str(Path(__file__).parent / "_bad_mcp_server.py")
ECHO = asking(("k", "echo", '{"text": "x"}'))
both = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """The SDK logs what it cannot read."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("mcp").setLevel(logging.NOTSET)


def server(how: str, **settings: Any) -> McpToolset:
    return McpToolset([sys.executable, BAD, how], name="bad", start_timeout=30, **settings)


def chain_of(toolset: McpToolset, *script: Any) -> tuple[AdvisorChain, ScriptedModel]:
    model = ScriptedModel(*script)
    return AdvisorChain(model, [ToolsetAdvisor(toolset), ToolCallingAdvisor()]), model


def results_of(response: ChatResponse) -> list[ToolMessage]:
    return [message for message in response.earlier if isinstance(message, ToolMessage)]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("no server", "`bad` cannot be reached: it sent what is no InitializeResult$"),
        ("old", "`bad` cannot be reached: RuntimeError: Unsupported protocol version"),
        ("ends at once", "MCP server `bad` cannot be read: MCPError: Connection closed"),
        ("no list", "MCP server `bad` cannot be read: it sent what is no ListToolsResult$"),
        ("deep", "tool `deep` of an MCP server cannot be told to a model: .{,300}$"),
    ],
)
async def test_one_that_cannot_be_used_is_a_clear_error_when_it_is_opened(how: str, why: str) -> None:
    before = len(anyio.get_running_tasks())
    with pytest.raises(ToolError, match=why):
        async with server(how):
            raise AssertionError
    assert len(anyio.get_running_tasks()) == before


async def test_one_that_does_not_list_its_tools_is_not_waited_for() -> None:
    # also the time in which Python starts, or it would say that the server cannot be reached
    with pytest.raises(ToolError, match=r"the tools of MCP server `bad` cannot be read: no answer within 3 seconds"):
        async with McpToolset([sys.executable, BAD, "lists nothing"], name="bad", start_timeout=3):
            raise AssertionError


async def test_a_list_without_an_end_is_left_at_a_hundred_pages() -> None:
    chain, model = chain_of(server("endless list"), ECHO, "done")
    async with chain:
        assert results_of(await chain.call("q"))[0].text == "ok"
    assert len(model.requests[0].options.tools) == 100


@both
@pytest.mark.parametrize("how", ["noise", "asks back"])
async def test_what_it_sends_beside_its_answer_is_passed_over(mode: Mode, how: str) -> None:
    chain, _ = chain_of(server(how), ECHO, ECHO, "done")
    async with chain:
        response = await ask(mode, chain, "q")
    assert [result.text for result in results_of(response)] == ["ok", "ok"]


@both
@pytest.mark.parametrize(
    ("how", "seconds", "told"),  # of those that send something, only a machine that is too busy would use up its seconds
    [
        ("no answer", 0.3, "tool `echo` did not end within 0.3 seconds, and was stopped"),
        ("wrong id", 0.3, "tool `echo` did not end within 0.3 seconds, and was stopped"),
        ("half of a character", 0.3, "tool `echo` did not end within 0.3 seconds, and was stopped"),
        ("no result", 30, "tool `echo` failed: ToolError: it sent what is no CallToolResult"),
        ("unknown part", 30, "tool `echo` failed: ToolError: it sent what is no CallToolResult"),
        ("nan", 30, "its server sent a result that cannot be given to a model"),
        ("closes its output", 30, "MCP server `bad` has gone while it ran"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_result_and_the_turn_goes_on(
    mode: Mode, how: str, seconds: float, told: str
) -> None:
    chain, _ = chain_of(server(how, timeout=seconds), ECHO, "It fails.")
    async with chain:
        response = await ask(mode, chain, "q")
    (result,) = results_of(response)
    assert result.is_error
    assert told in result.text
    assert "private" not in result.text
    assert response.text == "It fails."


async def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    own = [BAD, "does not end", str(tmp_path)]  # the folder tells it from those of other test runs
    toolset = McpToolset([sys.executable, *own], name="bad", start_timeout=30)
    async with toolset:
        (echo,) = await toolset.tools_for(None)
        assert echo.name == "echo"
    with anyio.fail_after(30):
        while (await anyio.run_process(["pgrep", "-f", " ".join(own)], check=False)).returncode == 0:  # noqa: ASYNC110
            await anyio.sleep(0.05)  # it was sent SIGKILL, and ends when the machine comes to it: nothing to wait on


@both
async def test_tools_that_change_amid_a_conversation(mode: Mode) -> None:
    script = ECHO, "one", ECHO, asking(("k2", "speak", '{"text": "x"}')), "two"
    chain, model = chain_of(server("others later"), *script)
    async with chain:
        assert results_of(await ask(mode, chain, "q"))[0].text == "ok"
        gone, spoken = results_of(await ask(mode, chain, "q"))
    assert (gone.text, spoken.text) == ("there is no tool `echo`; there are: `speak`", "ok")
    told = [[each.name for each in request.options.tools] for request in model.requests]
    assert told == [["echo"], ["echo"], ["speak"], ["speak"], ["speak"]]


@both
async def test_tools_that_turn_into_what_no_model_can_be_told_stay_what_they_were(mode: Mode) -> None:
    chain, _ = chain_of(server("turns deep"), ECHO, "one", ECHO, "two")
    async with chain:
        for _ in range(2):
            assert results_of(await ask(mode, chain, "q"))[0].text == "ok"


def test_what_the_sdk_makes_of_a_message_that_is_none_is_told_without_what_was_sent() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_json("private")
    assert reason_of(raised.value) == "it sent what is no int"
    assert reason_of(RuntimeError(f"Failed to parse: {raised.value}")) == "it sent what is no message of the protocol"
    assert reason_of(ExceptionGroup("group", [ValueError("x")])) == "ValueError: x"
    assert reason_of(ValueError()) == "ValueError"
