"""Tools of MCP servers: one of ours in this process, over stdio and over HTTP, and servers that nobody here wrote."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import AudioContent, BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent
from mcp_types import Tool as ServerTool

from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.advisors.toolsets import ToolsetAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, ToolArgumentsError, ToolError
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.messages import AudioPart, FilePart, ImagePart, TextPart, ToolMessage, UserMessage
from advisorchain.sync_client import SyncChatClient
from advisorchain.testing import ScriptedModel
from advisorchain.tools import ToolContext, ToolResult
from advisorchain.tools._mcp_content import definition_of, names_of, result_from
from advisorchain.tools.mcp import McpTool, McpToolset
from advisorchain.tools.search import ToolSearch

from .._asking import MODES, Mode, ask, asking
from ..models._servers import unavailable
from ._mcp_server import make_server

pytestmark = pytest.mark.slow  # starts servers

OURS = [sys.executable, str(Path(__file__).parent / "_mcp_server.py")]
NODE_MODULES = Path(__file__).parent.parent / "servers" / "node_modules" / "@modelcontextprotocol"
HI = ChatRequest((UserMessage("hi"),))
both = pytest.mark.parametrize("mode", MODES)


def clock() -> list[str]:
    if importlib.util.find_spec("mcp_server_time") is None:
        unavailable("mcp-server-time is not installed: pip install mcp-server-time")
    return [sys.executable, "-m", "mcp_server_time"]


def node(server: str, *words: str) -> list[str]:
    script = NODE_MODULES / f"server-{server}" / "dist" / "index.js"
    if shutil.which("node") is None or not script.exists():
        unavailable(f"no Node, or not {server}: npm install --ignore-scripts --no-package-lock --prefix tests/servers")
    return ["node", str(script), *words]


@contextmanager
def over_http(port: int = 0, command: Sequence[str] = OURS) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """A server over HTTP, its URL and its process."""
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    with subprocess.Popen([*command, str(port)], env={**os.environ, "PORT": str(port)}) as process:
        try:
            until_it_listens(port, process)
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.kill()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].removesuffix("/mcp"))


def until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)  # leaves the machine to the server
    raise AssertionError("the server ended")


def chain_of(server: McpToolset, *script: Any, **settings: Any) -> tuple[AdvisorChain, ScriptedModel]:
    model = ScriptedModel(*script)
    return AdvisorChain(model, [ToolsetAdvisor(server), ToolCallingAdvisor(**settings)]), model


def results_of(response: ChatResponse) -> list[ToolMessage]:
    return [message for message in response.earlier if isinstance(message, ToolMessage)]


async def run(server: McpToolset, name: str, **arguments: Any) -> ToolResult:
    tools = {tool.name: tool for tool in await server.tools_for(HI)}
    return await tools[name].run(json.dumps(arguments), ToolContext(tool_name=name))


# -- a server in this process


@both
async def test_its_tools_are_offered_and_run(mode: Mode) -> None:
    chain, model = chain_of(McpToolset(make_server()), asking(("k1", "add", '{"a": 1, "b": 2}')), "Three.")
    async with chain:
        response = await ask(mode, chain, "How much is 1 and 2?")
    (result,) = results_of(response)
    assert (result.text, result.structured, result.is_error) == ("3", {"result": 3}, False)
    told = {definition.name: definition for definition in model.requests[0].options.tools}
    assert told["add"].description == "Add two numbers."
    assert set(told["add"].parameters["properties"]) == {"a", "b"}


@both
async def test_what_fails_there_is_an_error_result_and_the_turn_goes_on(mode: Mode) -> None:
    script = asking(("k1", "fail", "{}"), ("k2", "add", '{"a": 1}'), ("k3", "add", "[1]"), ("k4", "nothing", "{}"))
    chain, _ = chain_of(McpToolset(make_server()), script, "Sorry.")
    async with chain:
        response = await ask(mode, chain, "Try.")
    failed, wrong, no_object, unknown = results_of(response)
    assert "the shelf is empty" in failed.text
    assert "Field required" in wrong.text
    assert "JSON object" in no_object.text
    assert "there is no tool `nothing`" in unknown.text
    assert all(result.is_error for result in (failed, wrong, no_object, unknown))
    assert response.text == "Sorry."


async def test_names_that_providers_refuse_are_made_ones_that_they_take() -> None:
    async with McpToolset(make_server()) as server:
        assert (await run(server, "files_read_all")).content == "read"
        assert (await run(server, "files_read_all_2")).content == "read otherwise"


async def test_pictures_are_parts() -> None:
    async with McpToolset(make_server()) as server:
        result = await run(server, "picture")
    assert result.content == (TextPart("a picture:"), ImagePart(data=b"\x89PNG", media_type="image/png"))


async def test_the_time_of_a_call_is_limited() -> None:
    # long enough for `sizes` on a busy machine
    chain, _ = chain_of(McpToolset(make_server(), timeout=2), asking(("k1", "hang", "{}"), ("k2", "sizes", "{}")), "done")
    async with chain:
        response = await chain.call("hi")
    hung, other = results_of(response)
    assert "did not end within 2 seconds" in hung.text
    assert other.structured == {"b": 2}


async def test_cancelling_a_turn_leaves_the_server_usable() -> None:
    house, begun = make_server(), anyio.Event()

    @house.tool()
    async def hang_here() -> str:
        begun.set()
        await anyio.sleep_forever()

    server = McpToolset(house)
    chain, model = chain_of(server, asking(("k1", "hang_here", "{}")))
    async with chain:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(chain.call, "hi")
                await begun.wait()  # the call has come to the server
                group.cancel_scope.cancel()
        assert len(model.requests) == 1
        assert (await run(server, "add", a=2, b=2)).structured == {"result": 4}


async def test_a_person_can_be_asked() -> None:
    def costly(values: Any, context: ToolContext) -> bool:
        return context.tool_name == "add" and values["a"] > 10

    server = McpToolset(make_server(), needs_approval=costly)
    chain, _ = chain_of(server, asking(("k1", "add", '{"a": 11, "b": 2}')), "Done.")
    async with chain:
        paused = await chain.call("hi")
        assert paused.pause is not None
        assert paused.pause.waiting == ("k1",)
        response = await chain.call(**paused.pause.resume(approve=["k1"]))
    assert results_of(response)[0].structured == {"result": 13}


@pytest.mark.parametrize("ours", [None, OURS], ids=["in process", "stdio"])
async def test_changes_of_the_list_are_picked_up(ours: Any) -> None:
    async with McpToolset(ours or make_server()) as server:
        before = await server.tools_for(HI)
        assert "extra" not in {tool.name for tool in before}
        await run(server, "grow")
        with anyio.fail_after(30):
            while "extra" not in {tool.name for tool in await server.tools_for(HI)}:  # the notice may come after the result
                await anyio.lowlevel.checkpoint()
        assert (await run(server, "extra")).content == "extra"
        after = {tool.name: tool for tool in await server.tools_for(HI)}
        assert all(after[tool.name] is tool for tool in before)  # so that what rests on them need not be made anew


async def test_one_that_is_open_stays_open_for_whoever_opened_it() -> None:
    server = McpToolset(make_server())
    async with server:
        async with AdvisorChain(ScriptedModel(), [ToolsetAdvisor(server), ToolCallingAdvisor()]):
            pass
        assert (await run(server, "add", a=1, b=1)).structured == {"result": 2}
    async with server:
        assert (await run(server, "add", a=1, b=1)).structured == {"result": 2}
    with pytest.raises(ConfigurationError, match=r"`house` is not open; .*`async with chain`"):
        await server.tools_for(HI)


@pytest.mark.parametrize(
    ("ours", "by", "first_out", "mode"),
    [
        (None, "toolset", 0, "call"),
        (None, "toolset", 1, "stream"),
        (None, "toolset", 2, "call"),
        (None, "chain", 0, "stream"),
        (None, "search", 2, "call"),
        (OURS, "toolset", 0, "stream"),
    ],
    ids=lambda value: "stdio" if value is OURS else str(value),
)
async def test_tasks_may_have_it_open_at_overlapping_times(ours: Any, by: str, first_out: int, mode: Mode) -> None:
    server = McpToolset(ours or make_server())
    advisor = ToolsetAdvisor(ToolSearch([server]) if by == "search" else server)
    inside, left = 0, [anyio.Event() for _ in range(3)]
    all_inside = anyio.Event()

    async def request(place: int) -> None:
        nonlocal inside
        model = ScriptedModel(asking(("k", "add", f'{{"a": {place}, "b": 1}}')), "Done.")
        chain = AdvisorChain(model, [advisor, ToolCallingAdvisor()])
        async with server if by == "toolset" else chain:
            inside += 1
            if inside == 3:
                all_inside.set()
            await all_inside.wait()
            if place != first_out:
                await left[first_out].wait()
            assert [result.text for result in results_of(await ask(mode, chain, "hi"))] == [str(place + 1)]
        left[place].set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for place in range(3):
                group.start_soon(request, place)
    with pytest.raises(ConfigurationError, match="not open"):
        await server.tools_for(HI)


async def test_inside_an_opening_it_is_shared_and_a_task_that_outlives_it_gets_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = McpToolset(["sh", "-c", f'echo started >> "{log}"; exec "$@"', "sh", *OURS])
    outer_left, inner_in = anyio.Event(), anyio.Event()

    async def inner() -> None:
        async with server:
            assert (await run(server, "add", a=1, b=1)).structured == {"result": 2}
            assert log.read_text().split() == ["started"]
            inner_in.set()
            await outer_left.wait()
            assert (await run(server, "add", a=2, b=1)).structured == {"result": 3}
            assert log.read_text().split() == ["started"] * 2

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            async with server:
                group.start_soon(inner)
                await inner_in.wait()
            outer_left.set()


async def test_only_the_task_that_has_opened_it_leaves_it() -> None:
    async with McpToolset(make_server()) as server:

        async def leave() -> None:
            with pytest.raises(ConfigurationError, match="`house` is to be left by the task that has opened it"):
                await server.__aexit__(None, None, None)

        async with anyio.create_task_group() as group:
            group.start_soon(leave)
        assert (await run(server, "add", a=1, b=1)).structured == {"result": 2}


async def test_an_error_of_the_application_keeps_its_type() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with McpToolset(make_server()):
            raise KeyError("mine")


async def test_two_servers_in_one_chain() -> None:
    one, two = McpToolset(make_server()), McpToolset(make_server())
    model = ScriptedModel(asking(("k1", "one_add", '{"a": 1, "b": 2}'), ("k2", "two_add", '{"a": 3, "b": 4}')), "Done.")
    both = ToolsetAdvisor(one.prefixed("one_"), two.prefixed("two_"))
    async with AdvisorChain(model, [both, ToolCallingAdvisor()]) as chain:
        response = await chain.call("hi")
    assert [result.text for result in results_of(response)] == ["3", "7"]


async def test_a_search_stands_before_it_and_the_giver_keeps_it_open() -> None:
    search = ToolSearch([McpToolset(make_server())])
    async with search:
        async with AdvisorChain(ScriptedModel(), [ToolsetAdvisor(search), ToolCallingAdvisor()]):
            pass
        searching, *others = await search.tools_for(HI)
        found = await searching.run('{"query": "add numbers"}', ToolContext(tool_name=searching.name))
    assert found.structured is None or found.structured[0] == "add"
    assert "add" in {tool.name for tool in others}
    with pytest.raises(ConfigurationError, match="not open"):
        await search.tools_for(HI)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_serves_a_client_for_synchronous_callers(backend: Any) -> None:
    model = ScriptedModel(asking(("k1", "add", '{"a": 1, "b": 2}')), "Three.")
    advisors = [ToolsetAdvisor(McpToolset(make_server())), ToolCallingAdvisor()]
    with SyncChatClient(model, advisors=advisors, backend=backend) as client:
        assert client.call("hi").text == "Three."


# -- over stdio


async def test_cancelling_while_it_is_open_ends_the_process(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with anyio.CancelScope() as scope:
        async with McpToolset(["sh", "-c", f'echo $$ > "{pid}"; exec "$@"', "sh", *OURS]):
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@both
async def test_a_server_that_is_killed_in_mid_call_is_an_error_result_and_the_turn_goes_on(mode: Mode) -> None:
    script = asking(("k1", "die", "{}"), ("k2", "hang", "{}")), asking(("k3", "add", '{"a": 1, "b": 2}')), "Three."
    chain, _ = chain_of(McpToolset(OURS, name="house"), *script)
    async with chain:
        response = await ask(mode, chain, "hi")
    died, hung, added = results_of(response)
    assert died.is_error
    assert hung.is_error
    assert "MCP server `house` has gone while it ran; nobody knows whether it has done its work" in died.text
    assert (added.text, added.is_error) == ("3", False)  # started anew
    assert response.text == "Three."


async def test_a_server_that_cannot_be_started_again_is_told_for_each_call(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    shutil.copy(OURS[1], script)
    chain, _ = chain_of(
        McpToolset([sys.executable, str(script)]), asking(("k1", "die", "{}")), asking(("k2", "add", "{}")), "No.", "Bye."
    )
    async with chain:
        script.unlink()
        response = await chain.call("hi")
        died, refused = results_of(response)
        assert "has gone while it ran" in died.text
        assert "cannot be reached" in refused.text
        assert (await chain.call("again")).text == "Bye."


@pytest.mark.parametrize(
    ("command", "seconds", "why"),
    [
        (["no-such-command-here"], 30, "cannot be reached: FileNotFoundError"),
        ([sys.executable, "-c", "pass"], 30, "cannot be reached: MCPError: Connection closed"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], 1, "no answer within 1 seconds"),
    ],
)
async def test_a_server_that_does_not_start_is_a_clear_error(command: list[str], seconds: float, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        async with McpToolset(command, start_timeout=seconds):
            raise AssertionError


async def test_env_and_folder_of_the_process(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    code = "import os, pathlib; pathlib.Path('seen').write_text(os.environ['HOUSE'])"
    with pytest.raises(ToolError):
        async with McpToolset([sys.executable, "-c", code], env={"HOUSE": "ours"}, cwd=tmp_path):
            raise AssertionError
    assert file.read_text() == "ours"


# -- over HTTP


@both
async def test_over_http_also_when_the_server_is_killed_and_started_again(mode: Mode) -> None:
    with over_http() as (url, process):
        script = asking(("k1", "die", "{}")), asking(("k2", "sizes", "{}")), "Gone.", asking(("k3", "sizes", "{}"))
        chain, _ = chain_of(McpToolset(url, headers={"x-house": "1"}), *script, "Two.")
        async with chain:
            response = await ask(mode, chain, "hi")
            died, refused = results_of(response)
            assert "MCP server `127.0.0.1` has gone while it ran" in died.text
            assert "MCP server `127.0.0.1` cannot be reached: ConnectError" in refused.text
            assert process.wait() == -signal.SIGKILL
            with over_http(port_of(url)):
                assert results_of(await ask(mode, chain, "hi"))[0].structured == {"b": 2}


async def test_nobody_at_the_url() -> None:
    with pytest.raises(ToolError, match=r"MCP server `127.0.0.1` cannot be reached: ConnectError"):
        async with McpToolset("http://user:secret@127.0.0.1:9/mcp?key=secret") as server:
            raise AssertionError(server)


# -- servers that nobody here wrote


@both
async def test_mcp_server_time_over_stdio(mode: Mode) -> None:
    call = ("k1", "get_current_time", '{"timezone": "Europe/Lisbon"}'), ("k2", "get_current_time", '{"timezone": "Nowhere"}')
    chain, _ = chain_of(McpToolset(clock()), asking(*call), "It is late.")
    async with chain:
        response = await ask(mode, chain, "What time is it in Lisbon?")
    told, wrong = results_of(response)
    assert told.structured["timezone"] == "Europe/Lisbon"
    assert wrong.is_error
    assert "Nowhere" in wrong.text


@both
async def test_server_everything_on_node_over_stdio_and_killed_in_mid_call(mode: Mode, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = ["sh", "-c", f'echo $$ > "{pid}"; exec "$@"', "sh", *node("everything", "stdio")]
    script = (
        asking(("k1", "get-sum", '{"a": 2, "b": 3}'), ("k2", "get-tiny-image", "{}")),
        asking(("k3", "trigger-long-running-operation", '{"duration": 60, "steps": 1}')),
        "Five.",
    )
    chain, model = chain_of(McpToolset(words, name="everything"), *script)

    async def kill() -> None:
        while len(model.requests) < 2:
            await anyio.lowlevel.checkpoint()
        os.kill(int(pid.read_text()), signal.SIGKILL)

    async with chain, anyio.create_task_group() as group:
        group.start_soon(kill)
        response = await ask(mode, chain, "hi")
    added, image, killed = results_of(response)
    assert "5" in added.text
    assert any(isinstance(part, ImagePart) for part in image.content)
    assert "MCP server `everything` has gone while it ran" in killed.text
    assert response.text == "Five."


# on trio the SDK leaves the generator of a stream that was cut to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
async def test_server_everything_on_node_over_http_forgets_its_sessions_when_it_is_started_anew() -> None:
    command = node("everything", "streamableHttp")
    call = asking(("k1", "get-sum", '{"a": 2, "b": 3}'))
    with over_http(command=command) as (url, process):
        chain, _ = chain_of(McpToolset(url), call, "Five.", call, call, "Five.")
        async with chain:
            assert "5" in results_of(await chain.call("hi"))[0].text
            process.kill()
            process.wait()
            with over_http(port_of(url), command):
                refused, answered = results_of(await chain.call("hi"))
    assert refused.is_error
    assert "MCP server `127.0.0.1` has refused the call" in refused.text
    assert "5" in answered.text


async def test_server_memory_on_node_over_stdio(tmp_path: Path) -> None:
    async with McpToolset(node("memory"), env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}) as server:
        entity = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
        await run(server, "create_entities", entities=[entity])
        found = await run(server, "search_nodes", query="tea")
    assert "Ada" in str(found.content)


# -- what has no server


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="`server` is no command"):
        McpToolset("")
    with pytest.raises(ConfigurationError, match="`server` is None"):
        McpToolset(None)
    with pytest.raises(ConfigurationError, match="`headers`"):
        McpToolset("uvx mcp-server-time", headers={})
    with pytest.raises(ConfigurationError, match="`env` and `cwd`"):
        McpToolset("http://localhost/mcp", env={})
    with pytest.raises(ConfigurationError, match="`env` and `cwd`"):
        McpToolset(make_server(), cwd=".")
    with pytest.raises(ConfigurationError, match="`start_timeout`"):
        McpToolset(make_server(), start_timeout=0)
    with pytest.raises(ConfigurationError, match="`timeout`"):
        McpToolset(make_server(), timeout=-1)
    assert repr(McpToolset('/usr/bin/x "a b"')) == "<McpToolset x>"
    assert repr(McpToolset("https://user:secret@tools.example/mcp?key=secret")) == "<McpToolset tools.example>"


def test_arguments_of_a_call_that_are_no_object() -> None:
    tool_there = ServerTool(name="a.b", input_schema={"$schema": "x", "type": "object"})
    (name,) = names_of([tool_there])
    assert name == "a_b"
    assert definition_of(name, tool_there).parameters == {"type": "object", "properties": {}}
    made = McpTool(McpToolset(make_server()), "a.b", definition_of(name, tool_there))
    assert made.values("") == {}
    with pytest.raises(ToolArgumentsError, match="the arguments for `a_b` are not one JSON object"):
        made.values("[]")


def test_long_names_are_cut_and_stay_different() -> None:
    names = list(names_of(ServerTool(name="x" * 70 + end, input_schema={}) for end in "abc"))
    assert len(set(names)) == 3
    assert all(len(name) <= 64 for name in names)


def test_sound_and_files_are_parts() -> None:
    file = BlobResourceContents(uri="file:///a/b.pdf", mime_type="application/pdf", blob="aGk=")
    image = BlobResourceContents(uri="x://y", mime_type="image/png", blob="aGk=")
    sound = BlobResourceContents(uri="x://y", mime_type="audio/wav", blob="aGk=")
    blocks = [EmbeddedResource(resource=each) for each in (file, image, sound)]
    result = CallToolResult(content=[AudioContent(data="aGk=", mime_type="audio/wav"), *blocks])
    assert result_from("x", result).content == (
        AudioPart(data=b"hi", media_type="audio/wav"),
        FilePart(data=b"hi", media_type="application/pdf", name="b.pdf"),
        ImagePart(data=b"hi", media_type="image/png"),
        AudioPart(data=b"hi", media_type="audio/wav"),
    )


def test_data_alone_is_told_as_json() -> None:
    result = result_from("x", CallToolResult(content=[], structured_content={"a": [1]}))
    assert (result.content, result.structured) == ('{"a":[1]}', {"a": [1]})
    assert result_from("x", CallToolResult(content=[])).content == ""


def test_what_cannot_be_given_to_a_model_is_an_error() -> None:
    with pytest.raises(ToolError, match="cannot be given to a model"):
        result_from("x", CallToolResult(content=[ImageContent(data="no base64!", mime_type="image/png")]))
    with pytest.raises(ToolError, match="it gives no reason"):
        result_from("x", CallToolResult(content=[], is_error=True))
