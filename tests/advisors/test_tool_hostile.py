"""Tools and models that mean no good: whatever they raise, call themselves, give or ask for, a turn ends as it should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE, BaseAdvisor, Outcome
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import LimitExceededError
from advisorchain.exchange import ChatChunk, ChatRequest, ToolCallChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ToolCall
from advisorchain.options import ToolDefinition
from advisorchain.testing.models import check_prompt
from advisorchain.tools import Tool, ToolContext, ToolResult, tool

from .._asking import MODES, Mode, ask, asking, given, stored, texts
from ._tool_scripts import Runs, asks, looping, results_of

both = pytest.mark.parametrize("mode", MODES)
KINDS = pytest.mark.parametrize("kind", ["async", "sync"])
ON_ERROR = pytest.mark.parametrize("on_error", ["tell", "raise"])


class Ends(BaseAdvisor):
    """Writes down how turns end, outermost."""

    order = HIGHEST_PRECEDENCE

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        self.outcomes.append(outcome.status)


def raising(error: BaseException, kind: str) -> Any:
    async def bad() -> str:
        """Raise."""
        raise error

    def bad_in_thread() -> str:
        """Raise, in a thread."""
        raise error

    return tool(bad if kind == "async" else bad_in_thread, name="bad")


class Bench:
    """A turn with a tool that raises and one that takes its time, memory and an observer around them."""

    def __init__(self, error: BaseException, kind: str, on_error: Any) -> None:
        self.ends, self.memory, self.slow_ended = Ends(), ChatMemory(), False
        remembering = MessageChatMemoryAdvisor(self.memory, remember="turn")
        tools = [raising(error, kind), Runs().giving("slow", self._slow)]
        advisors = [self.ends, remembering]
        self.chain, self.model = looping(tools, asks("bad", "slow"), "done", on_error=on_error, advisors=advisors)

    async def _slow(self) -> str:
        try:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            return "ok"
        finally:
            self.slow_ended = True


class OwnError(BaseException):
    """No Exception, as pytest's own are none."""


# -- what is raised


@both
@KINDS
@ON_ERROR
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), OwnError("mine"), BaseExceptionGroup("group", [KeyboardInterrupt(), ValueError("x")])],
    ids=lambda error: type(error).__name__,
)
async def test_what_is_no_error_of_the_tool_comes_out_as_it_is(mode: Mode, kind: str, on_error: Any, error: Any) -> None:
    bench = Bench(error, kind, on_error)
    try:
        await ask(mode, bench.chain, "q", conversation_id="c")
    except BaseException as raised:
        assert raised is error  # noqa: PT017  pytest.raises does not take each of these
    else:
        pytest.fail("it was not raised")
    assert bench.slow_ended
    assert (bench.ends.outcomes, len(bench.model.requests)) == (["error"], 1)
    assert await stored(bench.memory) == []


@both
@KINDS
@ON_ERROR
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError("own"), "CancelledError: own"),
        (BaseExceptionGroup("group", [asyncio.CancelledError(), ValueError("x")]), "CancelledError; ValueError: x"),
        (BaseExceptionGroup("group", [GeneratorExit(), KeyError("x")]), "GeneratorExit; KeyError: 'x'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_an_end_that_is_not_the_turns_own_is_a_failure(
    mode: Mode, kind: str, on_error: Any, error: Any, told: str
) -> None:
    bench = Bench(error, kind, on_error)
    response = await ask(mode, bench.chain, "q", conversation_id="c")
    assert [result.text for result in results_of(response)] == [f"tool `bad` failed: {told}", "ok"]
    assert bench.ends.outcomes == ["ok"]
    check_prompt(tuple(await stored(bench.memory)))


@both
@KINDS
@ON_ERROR
async def test_a_tool_that_exits_does_not_end_the_process(mode: Mode, kind: str, on_error: Any) -> None:
    """As a command does that reads its arguments wrong."""
    error = SystemExit(2)
    bench = Bench(error, kind, on_error)
    if on_error == "raise":
        with pytest.raises(SystemExit) as raised:
            await ask(mode, bench.chain, "q", conversation_id="c")
        assert raised.value is error
    else:
        response = await ask(mode, bench.chain, "q", conversation_id="c")
        assert results_of(response)[0].text == "tool `bad` failed: SystemExit: 2"


@both
async def test_of_a_group_the_model_is_told_the_first_errors(mode: Mode) -> None:
    inner = ExceptionGroup("inner", [ValueError("a"), KeyError("b")])
    bench = Bench(ExceptionGroup("group", [inner, OSError("c"), RuntimeError("d")]), "async", "tell")
    response = await ask(mode, bench.chain, "q", conversation_id="c")
    assert results_of(response)[0].text == "tool `bad` failed: ValueError: a; KeyError: 'b'; OSError: c; and 1 more"


# -- tools that reach for the turn they run in


@both
async def test_a_tool_may_ask_the_chain_that_it_runs_in(mode: Mode) -> None:
    memory, chains = ChatMemory(), list[AdvisorChain]()

    @tool
    async def inquire(question: str, context: ToolContext) -> str:
        """Ask again."""
        return (await ask(mode, chains[0], question, conversation_id=context.conversation_id)).text

    script = [asks(("k", "inquire", '{"question": "inner"}')), "inner answer", "outer answer"]
    chain, _ = looping([inquire], *script, advisors=[MessageChatMemoryAdvisor(memory)])
    chains.append(chain)
    response = await ask(mode, chain, "outer", conversation_id="c")
    assert texts(response.turn) == ["", "inner answer", "outer answer"]
    assert texts(await stored(memory)) == ["inner", "inner answer", "outer", "outer answer"]


@both
@KINDS
@ON_ERROR
async def test_a_tool_that_asks_for_itself_without_end_ends_all_its_turns(mode: Mode, kind: str, on_error: Any) -> None:
    asked, chains, ends = 0, list[AdvisorChain](), Ends()

    async def deeper() -> str:
        """Ask again."""
        return (await ask(mode, chains[0], "q")).text

    def deeper_from_thread() -> str:
        """Ask again, from a thread."""
        return str(anyio.from_thread.run(deeper))

    async def model(request: ChatRequest) -> Any:
        nonlocal asked
        asked += 1
        return asks("deeper")

    made = tool(deeper if kind == "async" else deeper_from_thread, name="deeper")
    loop = ToolCallingAdvisor([made], on_error=on_error, max_repeats=None)
    chains.append(AdvisorChain(model, [loop, ends]))
    with pytest.raises(LimitExceededError, match="tools asked chains whose tools asked chains, 10 deep"):
        await ask(mode, chains[0], "q")
    assert asked == 10
    assert ends.outcomes == ["error"] * 11


@both
async def test_many_turns_beside_each_other_are_not_deep(mode: Mode) -> None:
    chain, _ = looping(Runs().several("a"), *[asks("a")] * 24, "done", max_rounds=30)
    assert (await ask(mode, chain, "q")).text == "done"


async def test_a_tool_cannot_close_the_stream_that_it_runs_in() -> None:
    streams: list[Any] = []

    async def leave() -> str:
        await streams[0].aclose()
        return "closed"

    chain, _ = looping([Runs().giving("leave", leave)], asks("leave", text="One. "), "done")
    async with chain.stream("q") as stream:
        streams.append(stream)
        async for _ in stream:
            pass
    assert "StreamError: another task is waiting" in results_of(stream.response)[0].text
    assert stream.response.text == "done"


async def test_a_tool_cannot_read_the_stream_that_it_runs_in() -> None:
    streams: list[Any] = []

    async def read() -> str:
        return str(await anext(aiter(streams[0])))

    chain, _ = looping([Runs().giving("read", read)], asks("read"), "done", on_error="raise")
    with pytest.raises(RuntimeError, match="already running"):
        async with chain.stream("q") as stream:
            streams.append(stream)
            async for _ in stream:
                pass


@both
async def test_a_tool_may_cancel_its_caller(mode: Mode) -> None:
    async def cancel() -> str:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return "never"

    memory, ends = ChatMemory(), Ends()
    advisors = [MessageChatMemoryAdvisor(memory), ends]
    chain, model = looping([Runs().giving("cancel", cancel)], asks("cancel"), "never", advisors=advisors)
    with anyio.CancelScope() as scope:
        await ask(mode, chain, "q", conversation_id="c")
    assert scope.cancelled_caught
    assert (ends.outcomes, len(model.requests), await stored(memory)) == (["cancelled"], 1, [])


# -- what a model asks for


@both
@pytest.mark.parametrize(
    "name", ["functions.look", "look ", " ", "lo\u202eok\x00\n`", "x" * 1_000_000, "búsqueda", "look.look"]
)
async def test_a_name_that_providers_refuse_is_sent_back_as_one_that_they_take(mode: Mode, name: str) -> None:
    memory = ChatMemory()
    remembering = MessageChatMemoryAdvisor(memory, remember="turn")
    runs = Runs()
    chain, model = looping([runs.giving("look"), runs.giving("look_")], asks(("k", name)), "done", advisors=[remembering])
    (result,) = results_of(await ask(mode, chain, "q", conversation_id="c"))
    asked = model.prompts[1][-2]
    assert isinstance(asked, AssistantMessage)
    (call,) = asked.tool_calls
    assert call.name == result.name
    assert 1 <= len(call.name) <= 64
    assert set(call.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert result.is_error
    assert f"there is no tool `{name[:80]}" in result.text
    assert len(result.text) < 200
    assert runs.names == []  # `look ` is not `look_`
    assert [message.tool_calls for message in await stored(memory) if isinstance(message, AssistantMessage)] == [(call,), ()]


@both
@pytest.mark.parametrize(
    "arguments",
    ['{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}', '{"x": "a\\ud83d"}', '{"\\uDC00": 1}', '{"x": ' + "9" * 5000 + "}"],
    ids=["nan", "infinity", "overflow", "half of a character", "in a name", "long number"],
)
async def test_arguments_that_could_not_be_sent_back_are_told_and_left_out(mode: Mode, arguments: str) -> None:
    @tool
    async def take(x: Any) -> str:
        """Take."""
        return "taken"

    chain, model = looping([take], asking(("k", "take", arguments)), "done")
    (result,) = results_of(await ask(mode, chain, "q"))
    assert result.is_error
    assert "JSON object" in result.text
    asked = model.prompts[1][-2]
    assert isinstance(asked, AssistantMessage)
    assert asked.tool_calls == (ToolCall("k", "take", "{}"),)


@both
async def test_odd_arguments_that_can_be_sent_back_stay_what_they_are(mode: Mode) -> None:
    @tool
    async def take(x: Any) -> str:
        """Take."""
        return "taken"

    texts_ = ['{"x": "\\ud83d\\ude00"}', '{"x": "a\\u0000b"}', '{"x": 1e308}', '{"x": "\\\\ud83d"}', '{"x": 1, "x": 2}']
    calls = [(f"k{place}", "take", text) for place, text in enumerate(texts_)]
    chain, model = looping([take], asking(*calls), "done")
    assert [result.text for result in results_of(await ask(mode, chain, "q"))] == ["taken"] * len(calls)
    asked = model.prompts[1][1]
    assert isinstance(asked, AssistantMessage)
    assert [call.arguments for call in asked.tool_calls] == texts_


@both
@KINDS
async def test_five_hundred_at_once_answer_in_order(mode: Mode, kind: str) -> None:
    running = most = 0

    async def number(n: int) -> int:
        """Say the number."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return n

    def number_in_thread(n: int) -> int:
        """Say the number."""
        return n

    made = tool(number if kind == "async" else number_in_thread, name="number")
    calls = [(f"k{n}", "number", json.dumps({"n": n})) for n in range(500)]
    limits: Any = {"max_calls": None, "max_calls_per_tool": None, "max_concurrency": 500}
    chain, model = looping([made], asks(*calls), "done", **limits)
    response = await ask(mode, chain, "q")
    assert [result.text for result in results_of(response)] == [str(n) for n in range(500)]
    assert most == (500 if kind == "async" else 0)
    check_prompt(model.prompts[1])


@both
async def test_five_hundred_tools_are_told_and_one_that_is_not_among_them_is_said_briefly(mode: Mode) -> None:
    tools = Runs().several(*[f"tool_{n}" for n in range(500)])
    chain, model = looping(tools, asks("tool_499", "gone"), "done")
    ran, gone = results_of(await ask(mode, chain, "q"))
    assert (ran.text, gone.is_error) == ("ok", True)
    assert len(gone.text) < 2020
    assert len(model.requests[0].options.tools) == 500


@both
@pytest.mark.parametrize("nothing", ["", None])
async def test_B165_calls_without_ids_have_ids_and_results_of_their_own(mode: Mode, nothing: Any) -> None:
    @tool
    async def f(n: int) -> str:
        """Say the number."""
        return f"f {n}"

    pieces = [
        ToolCallChunk(place, nothing, call["name"], call["arguments"])
        for place, call in enumerate(given("B165")["tool_calls"])
    ]
    chain, model = looping([f], [ChatChunk(tool_calls=tuple(pieces)), ChatChunk(finish_reason="tool_calls")], "done")
    await ask(mode, chain, "q")
    asked, one, other = model.prompts[1][1:]
    assert isinstance(asked, AssistantMessage)
    ids = [call.id for call in asked.tool_calls]
    assert all(ids)
    assert len(set(ids)) == 2
    assert [(result.tool_call_id, result.text) for result in (one, other)] == [
        (ids[0], "f 1"), (ids[1], "f 2"),
    ]  # fmt: skip


# -- a tool that reads its arguments itself, and badly


@both
async def test_a_tool_whose_own_check_of_arguments_breaks_has_failed(mode: Mode) -> None:
    class Breaking(Tool):
        def values(self, arguments: str) -> Any:
            raise RuntimeError("broke")

        async def run(self, arguments: str, context: ToolContext) -> ToolResult:
            self.values(arguments)
            return ToolResult("never")

    calls = [("k1", "odd", "[1]"), ("k2", "odd", "{}")]
    chain, _ = looping([Breaking(ToolDefinition("odd"))], asking(*calls), "done")
    one, two = results_of(await ask(mode, chain, "q"))
    assert "not a JSON object" in one.text
    assert two.text == "tool `odd` failed: RuntimeError: broke"


# -- two resumptions of one turn at the same time


@both
async def test_two_that_resume_one_turn_at_once_leave_whole_turns(mode: Mode) -> None:
    paid: list[str] = []

    async def pay() -> str:
        await anyio.lowlevel.checkpoint()
        paid.append("paid")
        return "paid"

    memory = ChatMemory()
    remembering = MessageChatMemoryAdvisor(memory, remember="turn")
    script = [asks("pay"), "Done.", "Done too.", "fine"]
    chain, _ = looping([Runs().giving("pay", pay, needs_approval=True)], *script, advisors=[remembering])
    pause = (await ask(mode, chain, "q", conversation_id="c")).pause
    assert pause is not None

    async def go_on() -> None:
        arguments: Any = pause.resume(approve=["k1"])
        await ask(mode, chain, arguments.pop("prompt"), **arguments)

    async with anyio.create_task_group() as group:
        group.start_soon(go_on)
        group.start_soon(go_on)
    assert paid == ["paid"] * 2  # as `ToolPause` says
    kept = await stored(memory)
    assert texts(kept[:3]) == texts(kept[4:7]) == ["q", "", "paid"]
    assert {kept[3].text, kept[7].text} == {"Done.", "Done too."}
    assert (await ask(mode, chain, "next", conversation_id="c")).text == "fine"


# -- a model that breaks off amid a call


async def test_a_stream_that_breaks_amid_a_call_runs_nothing() -> None:
    runs, ends = Runs(), Ends()

    async def model(request: ChatRequest) -> AsyncIterator[Any]:
        yield asking(("k", "look", '{"a": '))[0]
        raise ConnectionError("cut")

    chain = AdvisorChain(model, [ToolCallingAdvisor([runs.giving("look")]), ends])
    with pytest.raises(ConnectionError, match="cut"):
        await ask("stream", chain, "q")
    assert (runs.names, ends.outcomes) == ([], ["error"])
