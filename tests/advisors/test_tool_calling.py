"""The tool loop: rounds, what is asked in each, what is shown, how a turn ends."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from advisorchain.advisor import CHAT_MEMORY_ORDER, TOOL_CALLING_ORDER, AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor, offer_tools
from advisorchain.aggregate import fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.errors import AdvisorOrderWarning, ConfigurationError, LimitExceededError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, ToolDefinition
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ImagePart, TextPart, ToolCall, ToolMessage, Usage, UserMessage
from advisorchain.testing import RecordingAdvisor, ScriptedModel, check_advisor
from advisorchain.tools import ToolContext, ToolResult, tool

from .._asking import MODES, Mode, ask, asking, texts
from ._tool_scripts import CASES, Runs, asks, endless, looping, results_of, scripted

both = pytest.mark.parametrize("mode", MODES)


@tool
async def look(place: str = "here") -> str:
    """Look at a place."""
    return f"seen {place}"


# -- laws


async def test_it_keeps_the_laws_when_no_tool_is_asked_for() -> None:
    await check_advisor(lambda: ToolCallingAdvisor([look]))


async def test_it_keeps_the_laws_through_rounds() -> None:
    script = [asks("look", "look", text="Let me see. "), asks("look"), "One, two."]
    await check_advisor(lambda: ToolCallingAdvisor([look]), script=script, passes_errors=True)


@pytest.mark.parametrize("on_limit", ["answer", "raise"])
async def test_it_keeps_the_laws_where_a_turn_ends_without_the_model(on_limit: Any) -> None:
    direct = Runs().giving("calc", "tool data", return_direct=True)
    await check_advisor(lambda: ToolCallingAdvisor([direct], on_limit=on_limit), script=[asks("calc")])
    await check_advisor(lambda: ToolCallingAdvisor([look], max_calls=1), script=[asks("look", "look")])
    waits = Runs().giving("pay", needs_approval=True)
    await check_advisor(lambda: ToolCallingAdvisor([look, waits]), script=[asks("look", "pay", text="May I? ")])


# -- the handed cases of a whole turn


@both
@pytest.mark.parametrize("case", ["tool-009", "tool-010", "tool-012", "tool-013", "tool-017", "tool-018", "tool-020"])
async def test_tool_009_tool_010_tool_012_tool_013_tool_017_tool_018_tool_020_a_turn(case: str, mode: Mode) -> None:
    await _turn(case, mode)


@both
@pytest.mark.parametrize("case", ["tool-025", "tool-058"])
async def test_tool_025_tool_058_a_turn(case: str, mode: Mode) -> None:
    await _turn(case, mode)


async def _turn(case: str, mode: Mode) -> None:
    given, expect = CASES[case]["given"], CASES[case]["expect"]
    runs, probe, seen = Runs(), RecordingAdvisor("probe", TOOL_CALLING_ORDER + 100), list[ChatChunk]()
    made = [
        runs.giving(item["name"], item["result"], return_direct=item.get("return_direct", False))
        for item in given.get("tools", [{"name": "calc", "result": "ok"}])
    ]
    no_tools = case in ("tool-009", "tool-058")
    chain, model = looping([] if no_tools else made, *scripted(given["model_script"]), advisors=[probe])
    response = await ask(mode, chain, CASES[case]["do"].get("user", "test"), seen)
    assert len(model.requests) == expect["model_calls"] == expect.get("probe_runs", len(probe.outcomes))
    assert len(probe.outcomes) == len(model.requests)
    answers = [message for message in response.earlier if isinstance(message, AssistantMessage)]
    assert len(answers) == len(runs.names) == expect.get("tool_rounds", expect.get("tool_executions", 0))
    if "answer" in expect:
        assert response.message == AssistantMessage(expect["answer"]["text"])
    if "usage" in expect:
        assert response.usage == Usage(*expect["usage"])
    assert response.finish_reason == ("return_direct" if case in ("tool-017", "tool-018", "tool-025") else "stop")
    if no_tools:
        assert (model.requests[0].round, model.requests[0].options.tools) == (0, ())
    if mode == "stream":
        assert [chunk.text for chunk in seen if chunk.text] == expect.get("chunks", [response.text])


@both
async def test_tool_033_a_tool_that_an_advisor_further_out_adds_runs_in_the_same_turn_alone(mode: Mode) -> None:
    runs = Runs()

    class Injecting(BaseAdvisor):
        order = CHAT_MEMORY_ORDER

        def before(self, request: ChatRequest) -> ChatRequest:
            return offer_tools(offer_tools(request, runs.giving("injected")), look)

    chain, model = looping([], asks("injected"), "done", "plain", advisors=[Injecting()])
    assert (await ask(mode, chain, "test")).text == "done"
    assert runs.names == ["injected"]
    assert [[each.name for each in request.options.tools] for request in model.requests] == [["injected", "look"]] * 2
    await ask(mode, chain.without("Injecting"), "again")
    assert model.requests[2].options.tools == ()


# -- rounds


@both
async def test_what_is_asked_in_each_round(mode: Mode) -> None:
    chain, model = looping([look], asks(("1", "look", '{"place":"sea"}'), text="Hm."), asks(("2", "look")), "The sea.")
    response = await ask(mode, chain, [UserMessage("earlier"), AssistantMessage("yes"), UserMessage("q")])
    first = [UserMessage("earlier"), AssistantMessage("yes"), UserMessage("q")]
    call, again = ToolCall("1", "look", '{"place":"sea"}'), ToolCall("2", "look")
    one = [AssistantMessage("Hm.", tool_calls=(call,)), ToolMessage("seen sea", tool_call_id="1", name="look")]
    two = [AssistantMessage(tool_calls=(again,)), ToolMessage("seen here", tool_call_id="2", name="look")]
    assert model.prompts == [tuple(first), (*first, *one), (*first, *one, *two)]
    assert [(request.round, request.made) for request in model.requests] == [(1, 0), (2, 2), (3, 4)]
    assert all(request.new == tuple(first) for request in model.requests)
    assert all(request.options == ChatOptions(tools=(look.definition,)) for request in model.requests)
    assert response.turn == (*one, *two, AssistantMessage("The sea."))


async def test_a_stream_shows_texts_calls_results_and_where_messages_begin() -> None:
    script = [asking(("1", "look", "{}"), ("2", "look", "{}"), text="Let me see. "), "It is noon."]
    chain, _ = looping([look], *script)
    seen: list[ChatChunk] = []
    response = await ask("stream", chain, "q", seen)
    assert [chunk.text for chunk in seen if chunk.text] == ["Let me see. ", "It", " is", " noon."]
    marks = [
        (chunk.boundary or "") + "call" * len(chunk.tool_calls) + "result" * (chunk.tool_result is not None)
        for chunk in seen
    ]
    assert [mark for mark in marks if mark] == ["callcall", "result", "result", "round"]
    folded = fold_chunks(seen)
    assert (folded.earlier, folded.message) == (response.earlier, response.message)


@both
async def test_usage_is_summed_over_rounds_where_it_is_told(mode: Mode) -> None:
    script = [asks("look", usage=Usage(10, 1)), asks("look"), ChatResponse("done", "stop", Usage(20, 2))]
    chain, _ = looping([look], *script)
    seen: list[ChatChunk] = []
    response = await ask(mode, chain, "q", seen)
    assert response.usage == Usage(30, 3, 33)
    assert [chunk.usage for chunk in seen if chunk.usage] == ([Usage(10, 1), Usage(20, 2)] if mode == "stream" else [])


@both
async def test_context_is_kept_from_round_to_round_and_comes_back(mode: Mode) -> None:
    class Counting(BaseAdvisor):
        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            return response.with_context(rounds=[*response.context.get("rounds", []), request.round])

    chain, _ = looping([look], asks("look"), asks("look"), "done", advisors=[Counting()])
    response = await ask(mode, chain, "q", context={"own": 1})
    assert response.context == {"own": 1, "rounds": [1, 2, 3]}


@both
async def test_a_choice_that_forces_a_tool_holds_for_the_first_answer(mode: Mode) -> None:
    for choice, later in (("required", None), ("look", None), ("auto", "auto"), ("none", "none")):
        chain, model = looping([look], asks("look"), "done")
        await ask(mode, chain, "q", options=ChatOptions(tool_choice=choice, temperature=0.0))
        assert [request.options.tool_choice for request in model.requests] == [choice, later]
        assert all(request.options.tools == (look.definition,) for request in model.requests)


@both
async def test_a_tool_of_the_request_is_the_applications(mode: Mode) -> None:
    theirs = ToolDefinition("theirs")
    options = ChatOptions(tools=(theirs,))
    chain, model = looping([look], asks("theirs", "look"), asks("theirs", text="Your turn."))
    response = await ask(mode, chain, "q", options=options)
    assert model.requests[0].options.tools == (theirs, look.definition)
    assert (response.text, response.finish_reason, response.message.tool_calls) == (
        "Your turn.", "tool_calls", (ToolCall("k1", "theirs"),)
    )  # fmt: skip
    mixed, seen = results_of(response)
    assert (mixed.text, mixed.is_error) == ("tool `theirs` cannot be asked for together with others; ask for it alone", True)
    assert (seen.text, seen.is_error) == ("seen here", False)


@both
async def test_a_definition_in_the_request_of_a_tool_that_is_here_takes_its_place(mode: Mode) -> None:
    told = ToolDefinition("look", "Look, in other words.", look.definition.parameters)
    chain, model = looping([look], asks("look"), "done")
    response = await ask(mode, chain, "q", options=ChatOptions(tools=(told,)))
    assert [message.text for message in results_of(response)] == ["seen here"]
    assert model.requests[1].options.tools == (told,)


@both
async def test_the_parts_of_a_result_go_to_the_model_and_its_data_to_the_program(mode: Mode) -> None:
    picture = ImagePart("https://example.org/a.png")

    @tool
    def draw() -> list[str | ImagePart]:
        """Draw."""
        return ["here:", picture]

    @tool
    def count() -> ToolResult:
        """Count."""
        return ToolResult("three", {"n": 3})

    chain, model = looping([draw, count], asks("draw", "count"), "done")
    await ask(mode, chain, "q")
    drawn, counted = model.prompts[1][-2:]
    assert drawn.content == (TextPart("here:"), picture)
    assert isinstance(counted, ToolMessage)
    assert (counted.content, counted.structured) == ("three", {"n": 3})


# -- several at once


@both
async def test_tool_038_several_tools_run_at_the_same_time_and_answer_in_order(mode: Mode) -> None:
    assert CASES["tool-038"]["expect"]["results"][0]["tool_call_id"] == "k1"
    arrived, all_there = 0, anyio.Event()

    async def meet() -> str:
        nonlocal arrived
        arrived += 1
        if arrived == 3:
            all_there.set()
        await all_there.wait()
        return "ok"

    runs = Runs()
    chain, model = looping([runs.giving(name, meet) for name in "abc"], asks("a", "b", "c"), "done")
    await ask(mode, chain, "q")
    assert [(message.tool_call_id, message.name, message.text) for message in model.prompts[1][-3:]] == [
        ("k1", "a", "ok"), ("k2", "b", "ok"), ("k3", "c", "ok"),
    ]  # fmt: skip


@both
async def test_plain_functions_run_at_the_same_time_too(mode: Mode) -> None:
    together = threading.Barrier(3, timeout=10)  # passes when all three wait at it, and breaks when they do not

    def meets(name: str) -> Any:
        def meet() -> str:
            """Wait for the others."""
            together.wait()
            return name

        return tool(meet, name=name)

    chain, _ = looping([meets(name) for name in "abc"], asks("a", "b", "c"), "done")
    assert [result.text for result in results_of(await ask(mode, chain, "q"))] == ["a", "b", "c"]


@both
async def test_B184_results_are_in_the_order_of_the_calls_not_of_finishing(mode: Mode) -> None:
    prompts = set()
    for _ in range(20):
        fast_ended = anyio.Event()

        async def slow(fast_ended: anyio.Event = fast_ended) -> str:
            await fast_ended.wait()
            return "slow"

        async def fast(fast_ended: anyio.Event = fast_ended) -> str:
            fast_ended.set()
            return "fast"

        runs = Runs()
        chain, model = looping(
            [runs.giving("slow", slow), runs.giving("fast", fast)], asks(("1", "slow"), ("2", "fast")), "done"
        )
        await ask(mode, chain, "q")
        assert [message.tool_call_id for message in model.prompts[1][-2:]] == ["1", "2"]
        prompts.add(repr(model.prompts[1]))
    assert len(prompts) == 1


@both
@pytest.mark.parametrize(("at_once", "expected"), [(1, 1), (2, 2), (8, 5)])
async def test_no_more_run_at_the_same_time_than_allowed(mode: Mode, at_once: int, expected: int) -> None:
    running = most = 0

    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return "ok"

    names = ["a", "b", "c", "d", "e"]
    chain, _ = looping([Runs().giving(name, work) for name in names], asks(*names), "done", max_concurrency=at_once)
    await ask(mode, chain, "q")
    assert most == expected


@both
async def test_a_sequential_tool_runs_alone_between_those_before_and_behind_it(mode: Mode) -> None:
    log: list[str] = []

    def working(name: str) -> Any:
        async def work() -> str:
            log.append(f"{name}+")
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            log.append(f"{name}-")
            return name

        return work

    tools = [Runs().giving(name, working(name), sequential=name in "ds") for name in "abdsz"]
    chain, model = looping(tools, asks("a", "b", "d", "s", "z"), "done")
    await ask(mode, chain, "q")
    assert sorted(log[:4]) == ["a+", "a-", "b+", "b-"]
    assert log[:2] in (["a+", "b+"], ["b+", "a+"])
    assert log[4:] == ["d+", "d-", "s+", "s-", "z+", "z-"]
    assert texts(model.prompts[1][-5:]) == ["a", "b", "d", "s", "z"]


@both
async def test_async_tools_have_context_variables_of_their_own(mode: Mode) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("the caller's")

    async def set_own() -> str:
        before = variable.get()
        variable.set("mine")
        return before

    chain, model = looping([Runs().giving(name, set_own) for name in "ab"], asks("a"), asks("a", "b"), "done")
    await ask(mode, chain, "q")
    assert texts(model.prompts[2])[-2:] == ["the caller's"] * 2
    assert variable.get() == "the caller's"


# -- answers of tools


@both
@pytest.mark.parametrize("case", ["tool-039", "tool-040"])
async def test_tool_039_tool_040_return_direct_holds_when_all_tools_of_the_answer_have_it(case: str, mode: Mode) -> None:
    given = CASES[case]["given"]["tools"]
    tools = [Runs().giving(item["name"], f"by {item['name']}", return_direct=item["return_direct"]) for item in given]
    chain, model = looping(tools, asks("a", "b"), "done")
    response = await ask(mode, chain, "q")
    if CASES[case]["expect"]["return_direct"]:
        assert (response.text, response.finish_reason) == ("by a\nby b", "return_direct")
        assert texts(response.earlier) == ["", "by a", "by b"]
    assert len(model.requests) == (1 if CASES[case]["expect"]["return_direct"] else 2)


@both
async def test_a_direct_tool_that_fails_is_told_to_the_model(mode: Mode) -> None:
    tools = [Runs().giving("a", return_direct=True), Runs().giving("b", ValueError("no"), return_direct=True)]
    chain, model = looping(tools, asks("a", "b"), "done")
    response = await ask(mode, chain, "q")
    assert (response.text, len(model.requests)) == ("done", 2)


@both
async def test_direct_parts_are_the_answer(mode: Mode) -> None:
    picture = ImagePart("https://example.org/a.png")
    tools = [Runs().giving("a", "see:", return_direct=True), Runs().giving("b", picture, return_direct=True)]
    chain, _ = looping(tools, asks("a", "b"))
    assert (await ask(mode, chain, "q")).message.content == (TextPart("see:"), picture)


# -- limits


@both
async def test_tool_030_a_limit_on_calls_answers_and_keeps_what_was_done(mode: Mode) -> None:
    given, expect = CASES["tool-030"]["given"], CASES["tool-030"]["expect"]
    runs, seen = Runs(), list[ChatChunk]()
    chain, model = looping(
        [runs.giving("calc")], *scripted(given["model_script"]), max_calls_per_tool=given["max_calls_per_tool"]
    )
    response = await ask(mode, chain, "u", seen)
    assert expect["answer_contains"] in response.text
    assert (response.finish_reason, len(model.requests), runs.names) == ("tool_limit", 1, ["calc"])
    done = ToolMessage("ok", tool_call_id="k1", name="calc")
    assert response.metadata["tool_results"] == (done,)
    asked, first, second = response.earlier
    assert (asked.text, first) == ("", done)
    assert isinstance(second, ToolMessage)
    assert (second.tool_call_id, second.is_error) == ("k2", True)
    if mode == "stream":
        assert [chunk.text for chunk in seen if chunk.text] == [response.text]
        assert seen[-1].finish_reason == "tool_limit"
    with pytest.raises(LimitExceededError, match=r"`max_calls_per_tool` of 1 .* tool `calc`") as raised:
        await ask(mode, looping([runs.giving("calc")], asks("calc", "calc"), max_calls_per_tool=1, on_limit="raise")[0], "u")
    assert raised.value.retry_after is None


@both
async def test_tool_045_a_tool_without_a_limit_is_limited_by_the_total_alone(mode: Mode) -> None:
    calls = [(f"k{place}", "a") for place in range(60)]
    chain, _ = looping([Runs().giving("a")], asks(*calls), "done", max_calls_per_tool={"a": None})
    assert (await ask(mode, chain, "q")).text == "done"
    chain, _ = looping([Runs().giving("a")], asks(*calls), max_calls_per_tool={"a": None}, max_calls=50)
    assert (await ask(mode, chain, "q")).finish_reason == "tool_limit"


@both
async def test_tool_046_the_total_counts_calls_of_every_tool(mode: Mode) -> None:
    chain, _ = looping(Runs().several("a", "b"), asks("b"), asks("a"), max_calls=1, on_limit="raise")
    with pytest.raises(LimitExceededError, match=r"`max_calls` of 1 is reached: tool `a` .* all tools .* `tools`"):
        await ask(mode, chain, "q")


@both
async def test_tool_047_a_tool_may_be_called_40_times_unless_told_otherwise(mode: Mode) -> None:
    runs = Runs()
    for settings in ({}, {"max_calls_per_tool": {"b": 1}}):
        chain, _ = looping([runs.giving("a")], *[endless("a")] * 41, max_rounds=100, on_limit="raise", **settings)
        with pytest.raises(LimitExceededError, match="of 40 is reached"):
            await ask(mode, chain, "q")
        assert len(runs.names) == 40
        runs.names.clear()
    chain, model = looping([runs.giving("a")], *[endless("a")] * 44, "done", max_rounds=100, max_calls_per_tool=None)
    assert ((await ask(mode, chain, "q")).text, len(model.requests)) == ("done", 45)


@both
async def test_tool_050_calls_of_an_earlier_turn_do_not_count(mode: Mode) -> None:
    before = [
        UserMessage("earlier"),
        AssistantMessage(tool_calls=(ToolCall("p", "a"),)),
        ToolMessage("ok", tool_call_id="p", name="a"),
        AssistantMessage("so"),
    ]
    chain, model = looping([Runs().giving("a")], asks("a"), "done", max_calls_per_tool={"a": 1}, max_calls=1)
    assert (await ask(mode, chain, [*before, UserMessage("now")])).text == "done"
    assert model.prompts[1][-1] == ToolMessage("ok", tool_call_id="k1", name="a")


@both
@pytest.mark.parametrize("limit", [1, 10, 100])
async def test_B072_the_limit_on_rounds_is_the_one_that_was_set(mode: Mode, limit: int) -> None:
    runs = Runs()
    chain, model = looping([runs.giving("spin")], *[endless("spin")] * 101, max_rounds=limit, max_calls_per_tool=None)
    with pytest.raises(LimitExceededError, match=rf"`max_rounds` of {limit} is .* `spin` \(advisor `tools`\)"):
        await ask(mode, chain, "q")
    assert len(model.requests) == limit
    assert len(runs.names) == limit - 1  # what the last answer asked for could not be told to the model


@both
async def test_in_the_last_round_a_direct_tool_may_be_asked_for(mode: Mode) -> None:
    chain, _ = looping([Runs().giving("a", return_direct=True)], asks("a"), max_rounds=1)
    assert (await ask(mode, chain, "q")).finish_reason == "return_direct"


@both
@pytest.mark.parametrize("on_limit", ["answer", "raise"])
async def test_a_call_that_fails_again_and_again_in_the_same_way_ends_the_turn(mode: Mode, on_limit: Any) -> None:
    runs = Runs()
    tools = [runs.giving("a", ValueError("no"))]
    chain, model = looping(tools, asks("a", ("x", "a")), asks("a"), asks("a"), max_repeats=3, on_limit=on_limit)
    if on_limit == "raise":
        with pytest.raises(LimitExceededError, match="`max_repeats` of 3 is reached: tool `a`"):
            await ask(mode, chain, "q")
    else:
        response = await ask(mode, chain, "q")
        assert (response.finish_reason, "limit" in response.text) == ("tool_limit", True)
        assert [result.text for result in response.metadata["tool_results"]] == ["tool `a` failed: ValueError: no"]
    assert (len(model.requests), len(runs.names)) == (3, 4)


@both
async def test_what_fails_in_other_ways_each_time_goes_on(mode: Mode) -> None:
    bad = [asks((f"k{place}", "look", f'{{"wrong{place}":1, "place": {place}}}')) for place in range(5)]
    chain, _ = looping([look], *bad, "done", max_repeats=2)
    assert (await ask(mode, chain, "q")).text == "done"


# -- tools that come later


@both
async def test_B201_a_tool_that_a_tool_adds_is_offered_for_the_rest_of_the_turn(mode: Mode) -> None:
    shipped: list[int] = []

    @tool
    async def ship(parcel: int) -> str:
        """Ship a parcel."""
        shipped.append(parcel)
        return "shipped"

    @tool
    async def search(context: ToolContext) -> str:
        """Find tools."""
        context.add_tools(ship)
        context.add_tools(ship)  # once more is no harm
        return "found: ship"

    memory = MessageChatMemoryAdvisor(ChatMemory(), order=TOOL_CALLING_ORDER + 100)
    script = [asks("search"), asks(("k2", "ship", '{"parcel":"x"}')), asks(("k3", "ship", '{"parcel":1}')), "done"]
    chain, model = looping([search], *script, "next", advisors=[memory])
    response = await ask(mode, chain, "q", conversation_id="c")
    found, refused, done = results_of(response)
    assert (found.text, refused.is_error, done.text, shipped) == ("found: ship", True, "shipped", [1])
    await ask(mode, chain, "another", conversation_id="c")
    offered = [[each.name for each in request.options.tools] for request in model.requests]
    assert offered == [["search"], *[["search", "ship"]] * 3, ["search"]]


@both
async def test_a_tool_that_is_added_under_a_name_that_is_taken_is_an_error_at_the_tool(mode: Mode) -> None:
    @tool
    def adds(context: ToolContext) -> str:
        """Add a tool, from a thread."""
        context.add_tools(Runs().giving("look"))
        return "never"

    chain, model = looping([look, adds], asks("adds"), "done")
    (result,) = results_of(await ask(mode, chain, "q"))
    assert result.is_error
    assert "`look` is the name of another tool already" in result.text
    assert [len(request.options.tools) for request in model.requests] == [2, 2]


@both
async def test_tool_042_a_tool_that_asks_for_the_context_has_it(mode: Mode) -> None:
    seen: list[ToolContext] = []

    @tool
    async def with_context(context: ToolContext) -> str:
        """Look around."""
        seen.append(context)
        return "ok"

    chain, _ = looping([with_context, Runs().giving("plain")], asks("plain", "with_context"), "done")
    context = CASES["tool-042"]["given"]["tool_context"]
    await ask(mode, chain, "q", conversation_id="c", context=context)
    (one,) = seen
    assert one.context == CASES["tool-042"]["expect"]["context_seen"]
    assert (one.conversation_id, one.call_id, one.tool_name, one.round) == ("c", "k2", "with_context", 1)


# -- odd answers


@both
async def test_two_calls_with_one_id_get_ids_of_their_own(mode: Mode) -> None:
    runs = Runs()
    reply = asks(("k", "a"), ("k", "b")) if mode == "call" else asking(("k", "a", "{}"), ("k", "b", "{}"))
    chain, model = looping(runs.several("a", "b"), reply, "done")
    await ask(mode, chain, "q")
    asked, one, two = model.prompts[1][-3:]
    assert isinstance(asked, AssistantMessage)
    assert [call.id for call in asked.tool_calls] == [one.tool_call_id, two.tool_call_id]
    assert sorted(runs.names) == ["a", "b"]


class _Inner(AroundAdvisor):
    """Another loop further in, which answers in two messages."""

    order = TOOL_CALLING_ORDER + 1

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        call = ToolCall("own", "own")
        made = (AssistantMessage(tool_calls=(call,)), ToolMessage("o", tool_call_id="own", name="own"))
        async for item in next(request.replace(messages=(*request.messages, *made))):
            yield item.replace(earlier=made) if isinstance(item, ChatResponse) else item


@both
async def test_what_an_inner_loop_made_stays_in_the_turn(mode: Mode) -> None:
    chain, _ = looping([], "done", advisors=[_Inner()])
    assert texts((await ask(mode, chain, "q")).turn) == ["", "o", "done"]


# -- settings


@pytest.mark.parametrize(
    "settings",
    [
        {"max_rounds": 0},
        {"max_concurrency": None},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"total_timeout": -1},
        {"max_calls": 0},
        {"max_calls_per_tool": "many"},
        {"max_calls_per_tool": {"a": 0}},
        {"max_calls_per_tool": {1: 1}},
        {"max_repeats": 1.5},
        {"on_limit": "stop"},
        {"on_error": "ignore"},
    ],
    ids=str,
)
def test_a_setting_that_cannot_work_is_refused(settings: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"`{next(iter(settings))}"):
        ToolCallingAdvisor([look], **settings)


def test_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="`look`"):
        ToolCallingAdvisor([look, look])


async def test_two_loops_in_one_chain_are_warned_of() -> None:
    with pytest.warns(AdvisorOrderWarning, match="`second`"):
        AdvisorChain(ScriptedModel("a"), [ToolCallingAdvisor([look]), ToolCallingAdvisor([], name="second")])
