"""What goes wrong with tools: what the model is told of it, what the caller, and what is stopped."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.aggregate import Fold
from advisorchain.chain import AdvisorChain
from advisorchain.errors import LimitExceededError
from advisorchain.exchange import ChatChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ToolCall, ToolMessage
from advisorchain.options import ToolDefinition
from advisorchain.testing import ScriptedModel
from advisorchain.tools import Tool, ToolContext, ToolResult, tool

from .._asking import MODES, Mode, ask, asking, stored, texts
from .._asking import given as given_data
from ._tool_scripts import CASES, Runs, asks, looping, results_of

both = pytest.mark.parametrize("mode", MODES)


# -- what the model is told


@both
async def test_tool_036_an_unknown_tool_is_told_to_the_model(mode: Mode) -> None:
    (call,) = CASES["tool-036"]["do"]["assistant"]["tool_calls"]
    chain, model = looping(Runs().several("a", "b"), asks((call["id"], call["name"])), "done")
    response = await ask(mode, chain, "q")
    told = ToolMessage("there is no tool `hidden`; there are: `a`, `b`", tool_call_id="k1", name="hidden", is_error=True)
    assert (model.prompts[1][-1], response.text) == (told, "done")


@both
async def test_tool_041_B057_a_tool_that_fails_is_told_to_the_model_and_the_loop_goes_on(mode: Mode) -> None:
    raised = CASES["tool-041"]["given"]["tools"][0]["raises"]
    chain, model = looping([Runs().giving("c", ValueError(raised))], asks("c"), "without it")
    response = await ask(mode, chain, "q")
    assert response.text == "without it"
    assert model.prompts[1][-1] == ToolMessage(
        f"tool `c` failed: ValueError: {raised}", tool_call_id="k1", name="c", is_error=True
    )


@both
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_B056_one_of_three_fails_and_the_others_count(mode: Mode, how: str) -> None:
    runs = Runs()

    @tool
    def boom() -> str:
        """Fail, in a thread."""
        runs.names.append("boom")
        raise ValueError("broken")

    tools = [*runs.several("ok1", "ok2"), runs.giving("boom", ValueError("broken")) if how == "async" else boom]
    calls = [(call["id"], call["name"]) for call in given_data("B056")["tool_calls"]]
    chain, model = looping(tools, asks(*calls), "done")
    await ask(mode, chain, "q")
    one, two, three = model.prompts[1][-3:]
    assert [(each.tool_call_id, each.is_error) for each in (one, two, three)] == [
        ("a", False), ("b", True), ("c", False),
    ]  # fmt: skip
    assert two.text == "tool `boom` failed: ValueError: broken"
    assert sorted(runs.names) == ["boom", "ok1", "ok2"]
    assert len(model.requests) == 2


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot say")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError(), "ValueError"),
        (_MuteError(), "_MuteError"),
        (KeyError("x"), "KeyError: 'x'"),
        (FileNotFoundError(2, "No such file", "/home/me/secret/report.csv"), "[Errno 2] No such file: '…/report.csv'"),
        (OSError("C:\\Users\\me\\report.csv is locked"), "OSError: …/report.csv is locked"),
        (OSError(r"C:\\Users\\me\\report.csv is locked"), "OSError: …/report.csv is locked"),
        (OSError("C:/Users/me/report.csv is locked"), "OSError: …/report.csv is locked"),
        (OSError("no file:///home/me/report.csv"), "OSError: no …/report.csv"),
        (OSError(r"no \\server\share\me\report.csv"), "OSError: no …/report.csv"),
        (OSError("see https://example.org/a/b?c=/d/e and a/b/c"), "see https://example.org/a/b?c=…/e and a/b/c"),
        (RuntimeError("the worker said:\nTraceback (most recent call last)\n  File x"), "RuntimeError: the worker said:"),
        (ExceptionGroup("group", [ExceptionGroup("group", [ValueError("inside")])]), "ValueError: inside"),
        (ValueError("half \ud83d"), "ValueError: half ?"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_the_text_of_an_error_has_no_trace_and_no_folders(error: Exception, told: str) -> None:
    chain, _ = looping([Runs().giving("t", error)], asks("t"), "done")
    (result,) = results_of(await chain.call("q"))
    assert result.text.startswith("tool `t` failed: ")
    assert result.text.endswith(told)
    assert "Traceback" not in result.text
    assert "me" not in result.text.split()[-1]


async def test_the_text_of_an_error_is_cut() -> None:
    chain, _ = looping([Runs().giving("t", ValueError("x" * 100_000))], asks("t"), "done")
    (result,) = results_of(await chain.call("q"))
    assert 2000 < len(result.text) < 2020
    assert result.text.endswith("… (cut)")


@both
async def test_B058_a_failed_run_is_marked_beside_its_text(mode: Mode) -> None:
    tools = [Runs().giving("raises", ValueError("no")), Runs().giving("says", "error: all is well")]
    chain, _ = looping(tools, asks("raises", "says"), "done")
    assert [result.is_error for result in results_of(await ask(mode, chain, "q"))] == [True, False]


# -- arguments


@tool
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@tool
def add_in_thread(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


async def _told(mode: Mode, adding: Any, arguments: str) -> tuple[ToolMessage, ScriptedModel]:
    # as pieces, in which a call without arguments has none at all
    chain, model = looping([adding], asking(("k1", adding.name, arguments)), "done")
    (result,) = results_of(await ask(mode, chain, "q"))
    return result, model


# in both modes, as it compares them
@pytest.mark.parametrize("arguments", ["", '{"a": 1, "b', '{"a": "one"}', '{"c": 1}', "{}"])
async def test_B062_the_same_bad_arguments_are_told_alike_in_every_way(arguments: str) -> None:
    said = set()
    for mode in MODES:
        for adding in (add, add_in_thread):
            result, model = await _told(mode, adding, arguments)
            assert result.is_error
            said.add(result.text.replace(adding.name, "add"))
            assert len(model.requests) == 2  # the strict model took the call back
    (text,) = said
    assert "`add`" in text


@both
@pytest.mark.parametrize("arguments", [*given_data("B063")["arguments"], '{"a":' + "x" * 500_000])
async def test_B063_arguments_that_are_no_object_are_an_error_and_null_is_none(mode: Mode, arguments: str) -> None:
    result, model = await _told(mode, add, arguments)
    assert result.is_error
    assert len(result.text) < 3000
    assert "xxx" not in result.text
    asked = model.prompts[1][-2]
    assert isinstance(asked, AssistantMessage)
    assert asked.tool_calls == (ToolCall("k1", "add", "{}"),)
    if arguments == "null":
        assert "`a`" in result.text  # as with `{}`: an argument is missing


@both
async def test_null_and_tool_052_missing_arguments_are_no_arguments(mode: Mode) -> None:
    runs = Runs()
    for arguments in ("null", "", "{}"):
        result, model = await _told(mode, runs.giving("t"), arguments)
        assert (result.text, result.is_error) == ("ok", False)
        asked = model.prompts[1][-2]
        assert isinstance(asked, AssistantMessage)
        assert [call.arguments for call in asked.tool_calls] == ["{}"]
    assert runs.names == ["t"] * 3


class _Unchecked(Tool):
    """A tool that hands its arguments on, as one of a server would."""

    def values(self, arguments: str) -> Mapping[str, Any]:
        return {}

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        return ToolResult(arguments)


@both
async def test_a_tool_that_does_not_read_its_arguments_gets_an_object_or_is_not_run(mode: Mode) -> None:
    for arguments, told in (
        ("{", "not one JSON object"),
        ("[1]", "not a JSON object"),
        ('{"a":1}', '{"a":1}'),
        ("null", "{}"),
    ):
        result, _ = await _told(mode, _Unchecked(ToolDefinition("far")), arguments)
        assert told in result.text
        assert result.is_error is ("JSON" in told)


# -- results


@both
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1, 2}, [1, 2]),
        (b"\x00\xff", "AP8="),
        ({1: "a", (2, 3): "b"}, {"1": "a", "2,3": "b"}),
        ([float("inf")], None),
        ("circular", None),
        ("nothing", "null"),
    ],
    ids=["set", "bytes", "keys", "inf", "circular", "none"],
)
async def test_B066_B068_odd_results_are_json_or_an_error_and_others_are_kept(mode: Mode, value: Any, expected: Any) -> None:
    if value == "circular":
        value = []
        value.append(value)

    async def give() -> Any:
        return None if value == "nothing" else value

    tools = [Runs().giving("odd", give), Runs().giving("fine")]
    chain, model = looping(tools, asks("odd", "fine"), "done")
    response = await ask(mode, chain, "q")
    odd, fine = results_of(response)
    assert (fine.text, response.text, len(model.requests)) == ("ok", "done", 2)
    assert odd.is_error is (expected is None)
    if expected is None:
        assert "tool `odd`" in odd.text
    elif expected == "null":
        assert odd.text == "null"
    else:
        assert json.loads(odd.text) == expected == odd.structured


@both
async def test_B067_a_dict_is_sent_as_json(mode: Mode) -> None:
    data = given_data("B067")["result"]

    async def give() -> Any:
        return data

    chain, model = looping([Runs().giving("t", give)], asks("t"), "done")
    await ask(mode, chain, "q")
    text = model.prompts[1][-1].text
    assert json.loads(text) == data
    assert "Zoë" in text


# -- raising


@both
async def test_B057_with_raise_the_original_error_comes_out_and_nothing_is_stored(mode: Mode) -> None:
    error, memory = KeyError("mine"), ChatMemory()
    chain, _ = looping(
        [Runs().giving("t", error)],
        asks("t"),
        on_error="raise",
        advisors=[MessageChatMemoryAdvisor(memory, remember="turn")],
    )
    with pytest.raises(KeyError) as raised:
        await ask(mode, chain, "q", conversation_id="c")
    assert raised.value is error
    assert "in tool `t` (call `k1`)" in error.__notes__
    assert any("`tools`" in note for note in error.__notes__)
    assert await stored(memory) == []


async def test_an_error_that_is_raised_twice_is_noted_once() -> None:
    error = ValueError("again")
    for _ in range(2):
        chain, _ = looping([Runs().giving("t", error)], asks("t"), on_error="raise")
        with pytest.raises(ValueError, match="again"):
            await chain.call("q")
    assert error.__notes__.count("in tool `t` (call `k1`)") == 1


class _StopError(BaseException):
    def add_note(self, note: str) -> None:
        raise TypeError("it takes no notes")


async def test_what_takes_no_note_comes_out_as_it_is() -> None:
    async def stops() -> None:
        raise _StopError

    chain, _ = looping([Runs().giving("t", stops)], asks("t"))
    with pytest.raises(_StopError):
        await chain.call("q")


@both
async def test_with_raise_what_the_model_did_wrong_is_told_all_the_same(mode: Mode) -> None:
    chain, _ = looping([add], asks("gone", ("k2", "add", "[]"), ("k3", "add", "{}")), "done", on_error="raise")
    assert [result.is_error for result in results_of(await ask(mode, chain, "q"))] == [True] * 3


@both
async def test_B169_an_error_that_is_raised_stops_the_other_tools_first(mode: Mode) -> None:
    written: list[str] = []
    ended: list[str] = []
    begun = 0
    all_begun = anyio.Event()

    async def slow() -> str:
        nonlocal begun
        begun += 1
        if begun == 2:
            all_begun.set()
        try:
            await anyio.sleep(5)
            written.append("went on")
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            ended.append("stopped")
        return "never"

    async def fails() -> str:
        await all_begun.wait()
        raise ValueError("at once")

    tools = [Runs().giving("a", fails), Runs().giving("b", slow), Runs().giving("c", slow)]
    chain, _ = looping(tools, asks("a", "b", "c"), on_error="raise")
    with pytest.raises(ValueError, match="at once"):
        await ask(mode, chain, "q")
    assert (written, ended) == ([], ["stopped", "stopped"])


# -- time


@both
async def test_B095_a_tool_with_a_timeout_sees_the_context_and_its_end_is_told(mode: Mode) -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("the caller's")
    seen: list[str] = []

    @tool(timeout=0.01)
    async def waits(ever: bool) -> str:
        """Wait."""
        seen.append(variable.get())
        if ever:
            await anyio.sleep_forever()
        return "in time"

    chain, model = looping([waits], asks(("1", "waits", '{"ever":false}'), ("2", "waits", '{"ever":true}')), "done")
    one, two = results_of(await ask(mode, chain, "q"))
    assert seen == ["the caller's"] * 2
    assert (one.text, one.is_error) == ("in time", False)
    assert (two.text, two.is_error) == ("tool `waits` did not end within 0.01 seconds, and was stopped", True)
    assert len(model.requests) == 2


@both
async def test_a_tool_without_a_timeout_has_that_of_the_loop(mode: Mode) -> None:
    chain, _ = looping([Runs().giving("t", anyio.sleep_forever)], asks("t"), "done", timeout=0.01)
    (result,) = results_of(await ask(mode, chain, "q"))
    assert "within 0.01 seconds" in result.text


@both
@pytest.mark.parametrize(
    ("own", "limits"),
    [
        (0.01, {}),
        (None, {"timeout": 0.01}),
        (None, {"total_timeout": 0.01}),
        (None, {"timeout": None, "total_timeout": 0.01}),
    ],
    ids=str,
)
async def test_a_thread_whose_time_runs_out_is_left_to_itself(mode: Mode, own: float | None, limits: Any) -> None:
    go_on, ended = threading.Event(), list[str]()

    @tool(timeout=own)
    def hangs() -> str:
        """Hang."""
        go_on.wait(10)
        ended.append("ended")
        return "too late"

    chain, _ = looping([hangs], asks("hangs"), "done", **limits)
    try:
        (result,) = results_of(await ask(mode, chain, "q"))
        assert (result.is_error, ended) == (True, [])
    finally:
        go_on.set()


@both
async def test_a_thread_does_not_outlast_the_time_of_the_whole_call(mode: Mode) -> None:
    go_on, ended = threading.Event(), list[str]()

    def hangs() -> str:
        """Hang."""
        go_on.wait(10)
        ended.append("ended")
        return "too late"

    chain, _ = looping([hangs], asks("hangs"), "never", timeout=None)
    try:
        with pytest.raises(TimeoutError):
            await ask(mode, chain, "q", timeout=0.05)
        assert ended == []
    finally:
        go_on.set()


@both
async def test_all_tools_of_a_turn_share_the_total_time(mode: Mode) -> None:
    runs = Runs()
    tools = [runs.giving("slow", anyio.sleep_forever), runs.giving("quick")]
    chain, model = looping(tools, asks("slow", "quick"), asks("quick"), "done", total_timeout=0.02)
    response = await ask(mode, chain, "q")
    slow, quick, later = results_of(response)
    assert (quick.text, slow.text) == ("ok", "tool `slow` was stopped: the time for all tools of this turn is used up")
    assert (later.is_error, "used up" in later.text) == (True, True)
    assert sorted(runs.names) == ["quick", "slow"]  # when there is no time left, nothing is begun
    assert len(model.requests) == 2  # it was told, and asked all the same
    assert (response.finish_reason, response.text) == (
        "tool_limit",
        "The answer ends here: tool `quick` was to run, and the 0.02 seconds for all tools of one turn are used up.",
    )


@both
async def test_a_model_that_is_told_of_the_time_may_answer(mode: Mode) -> None:
    tools = [Runs().giving("slow", anyio.sleep_forever)]
    chain, _ = looping(tools, asks("slow"), "I could not look.", total_timeout=0.02, on_limit="raise")
    assert (await ask(mode, chain, "q")).text == "I could not look."
    chain, _ = looping(tools, asks("slow"), asks("slow"), total_timeout=0.02, on_limit="raise")
    with pytest.raises(LimitExceededError, match=r"`total_timeout` of 0\.02 is reached"):
        await ask(mode, chain, "q")


# -- threads


@both
async def test_B093_tools_in_threads_have_the_callers_context_each_its_own_copy(mode: Mode) -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("the caller's")
    together = threading.Barrier(3, timeout=10)

    @tool
    def own(value: str) -> str:
        """Set the variable, and read it when the others have set theirs."""
        before = variable.get()
        variable.set(value)
        together.wait()
        return f"{before} then {variable.get()}"

    calls = [(name, "own", json.dumps({"value": name})) for name in "abc"]
    chain, _ = looping([own], asks(*calls), "done")
    results = results_of(await ask(mode, chain, "q"))
    assert [result.text for result in results] == [f"the caller's then {name}" for name in "abc"]
    assert variable.get() == "the caller's"


# -- cancelling and leaving


class _Waiting:
    """Tools that wait until they are stopped."""

    def __init__(self, tools: int) -> None:
        self.begun = anyio.Event()
        self.running = 0
        self._expected = tools

    async def __call__(self) -> str:
        self.running += 1
        if self.running == self._expected:
            self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.running -= 1
        return "never"


@both
async def test_B071_B169_cancelling_stops_the_tools_that_run(mode: Mode) -> None:
    waiting = _Waiting(2)
    chain, model = looping([Runs().giving(name, waiting) for name in "ab"], asks("a", "b"), "never")
    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, chain, "q")
        await waiting.begun.wait()
        group.cancel_scope.cancel()
    assert waiting.running == 0
    assert (len(model.requests), model.open_streams) == (1, 0)


@both
@pytest.mark.parametrize(("timeout", "expected"), [(None, ["ended"]), (60, [])])
async def test_cancelling_waits_for_a_tool_in_a_thread_whose_time_is_not_limited(
    mode: Mode, timeout: float | None, expected: list[str]
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), list[str]()

    @tool
    def work() -> str:
        """Work, in a thread that nobody can stop."""
        begun.set()
        go_on.wait(10)
        ended.append("ended")
        return "never seen"

    chain, _ = looping([work], asks("work"), "never", timeout=timeout)
    async with anyio.create_task_group() as group:
        group.start_soon(ask, mode, chain, "q")
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
        if timeout is None:
            threading.Timer(0.02, go_on.set).start()
    assert ended == expected
    go_on.set()


@both
@pytest.mark.parametrize("on_error", ["tell", "raise"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio nobody can raise a cancellation that is not there
async def test_a_tool_whose_own_work_was_cancelled_has_failed(mode: Mode, on_error: Any) -> None:
    async def waits_for_what_is_cancelled() -> str:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return "never"

    tools = [Runs().giving("a", waits_for_what_is_cancelled), Runs().giving("b")]
    chain, _ = looping(tools, asks("a", "b"), "done", on_error=on_error)
    one, two = results_of(await ask(mode, chain, "q"))
    assert (one.text, one.is_error, two.text) == ("tool `a` failed: CancelledError", True, "ok")


async def _breaks_off() -> str:
    """Wait; make an error of whatever ends that, as libraries of networks do."""
    try:
        await anyio.sleep_forever()
    except BaseException:
        raise ConnectionError("broken off") from None


@both
@pytest.mark.parametrize("settings", [{}, {"return_direct": True}], ids=["ordinary", "return_direct"])
@pytest.mark.parametrize("on_error", ["tell", "raise"])
async def test_a_tool_that_makes_an_error_of_its_cancellation_does_not_keep_the_turn(
    mode: Mode, settings: Any, on_error: Any
) -> None:
    memory = ChatMemory()
    tools = [tool(_breaks_off, name="t", **settings)]
    chain, model = looping(tools, asks("t"), "never", on_error=on_error, advisors=[MessageChatMemoryAdvisor(memory)])
    with pytest.raises(TimeoutError):
        await ask(mode, chain, "q", conversation_id="c", timeout=0.05)
    assert len(model.requests) == 1
    assert texts(await stored(memory)) == []
    with anyio.CancelScope() as scope:
        chain, model = looping(tools, asks("t"), "never", on_error=on_error)
        async with anyio.create_task_group() as group:
            group.start_soon(ask, mode, chain, "q")
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert (scope.cancelled_caught, len(model.requests)) == (True, 1)


@both
@pytest.mark.parametrize("on_error", ["tell", "raise"])
async def test_a_tool_that_makes_an_error_of_the_end_of_its_time_is_told_as_one_that_ran_out(
    mode: Mode, on_error: Any
) -> None:
    chain, _ = looping([tool(_breaks_off, name="t", timeout=0.05)], asks("t"), "done", on_error=on_error)
    (result,) = results_of(await ask(mode, chain, "q"))
    assert result.text == "tool `t` did not end within 0.05 seconds, and was stopped"


async def test_a_timeout_of_the_call_stops_the_tools_that_run() -> None:
    waiting = _Waiting(1)
    chain, _ = looping([Runs().giving("a", waiting)], asks("a"), "never")
    with pytest.raises(TimeoutError):
        await chain.call("q", timeout=0.01)
    assert waiting.running == 0


async def test_B071_after_the_stream_is_closed_nothing_starts() -> None:
    runs, fold = Runs(), Fold()
    script = [asks("a", text="One. "), [*asking(("k2", "a", "{}"), text="Two. ")], "never"]
    chain, model = looping([runs.giving("a")], *script)
    async with chain.stream("q") as stream:
        async for chunk in stream:
            fold.add(chunk)
            if chunk.text == "Two. ":
                break
    assert (runs.names, len(model.requests), model.open_streams) == (["a"], 2, 0)
    assert stream.partial is not None
    assert texts(stream.partial.turn) == ["One. ", "ok", "Two. "]


async def test_a_stream_that_is_left_between_two_results_has_the_round_in_its_partial() -> None:
    chain, _ = looping(Runs().several("a", "b"), asks("a", "b", text="Both. "), "never")
    async with chain.stream("q") as stream:
        async for chunk in stream:
            if chunk.tool_result is not None:
                break
    assert stream.partial is not None
    asked, result, message = stream.partial.turn
    assert isinstance(asked, AssistantMessage)
    assert [call.id for call in asked.tool_calls] == ["k1"]  # a call without its result is no part of it
    assert (result.text, message.text) == ("ok", "")


@both
async def test_turns_at_the_same_time_do_not_meet(mode: Mode) -> None:
    @tool
    async def whose(context: ToolContext) -> str:
        """Tell whose turn it is."""
        await anyio.lowlevel.checkpoint()
        return str(context.conversation_id)

    def reply(request: Any) -> Any:
        return asks("whose") if request.made == 0 else [ChatChunk(request.messages[-1].text, finish_reason="stop")]

    chain, _ = looping([whose], *[reply] * 20, max_calls=1)
    answers: dict[str, str] = {}

    async def one(name: str) -> None:
        answers[name] = (await ask(mode, chain, "q", conversation_id=name)).text

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(one, f"c{number}")
    assert answers == {f"c{number}": f"c{number}" for number in range(10)}


async def test_a_chain_without_telemetry_runs_the_same_loop() -> None:
    chain, _ = looping([add], asks(("k", "add", '{"a":1}')), "done")
    plain = AdvisorChain(ScriptedModel(asks(("k", "add", '{"a":1}')), "done"), chain.advisors, telemetry=None)
    assert await plain.call("q") == await chain.call("q")
