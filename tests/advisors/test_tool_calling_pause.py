"""Approval: a turn that waits for a person, is stored as JSON, and goes on anywhere."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisor import CHAT_MEMORY_ORDER, TOOL_CALLING_ORDER, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor, ReReadingAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor, ToolPause, offer_tools
from advisorchain.aggregate import fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import ConfigurationError, InvalidInputError, LimitExceededError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, ImagePart, ToolCall, ToolMessage, Usage, UserMessage
from advisorchain.testing import ScriptedModel
from advisorchain.tools import ToolContext, tool

from .._asking import MODES, Mode, ask, stored, texts
from ..cases._stores import TWO_KINDS, Store, opened
from ._tool_scripts import Runs, asks, looping, results_of

both = pytest.mark.parametrize("mode", MODES)
U, A = UserMessage, AssistantMessage
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=TWO_KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


class Desk:
    """Tools of which some need a yes; `paid` has the arguments with which `pay` ran."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.paid: list[int] = []

        @tool(needs_approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.tools = [self.runs.giving("look"), pay, self.runs.giving("delete", needs_approval=True)]


def pay(call_id: str, amount: int) -> tuple[str, str, str]:
    return call_id, "pay", json.dumps({"amount": amount})


def paused(response: ChatResponse) -> ToolPause:
    """Its pause, by way of JSON."""
    assert response.finish_reason == "paused"
    assert response.pause is not None
    pause = ToolPause.load(response.pause.dump())
    assert pause == response.pause
    return pause


# -- pausing and going on


@both
@pytest.mark.parametrize("later", MODES)
@pytest.mark.parametrize("place", ["outside", "outside, turns", "inside", "none"])
async def test_a_turn_waits_and_goes_on_in_another_chain(mode: Mode, later: Mode, place: str, store: Store) -> None:
    memory = ChatMemory(repository=store.repository)
    remembering = {
        "outside": [MessageChatMemoryAdvisor(memory)],
        "outside, turns": [MessageChatMemoryAdvisor(memory, remember="turn")],
        "inside": [MessageChatMemoryAdvisor(memory, order=TOOL_CALLING_ORDER + 1)],
        "none": [],
    }[place]
    before = [U("u0"), A("a0")]
    await memory.add("c", before)
    desk, seen = Desk(), list[ChatChunk]()
    script = [asks("look", text="First. ", usage=Usage(1, 1)), asks(("l", "look"), pay("p", 5), text="May I? ")]
    chain, model = looping(desk.tools, *script, advisors=remembering)
    response = await ask(mode, chain, "Pay!", seen, conversation_id="c", system="s", options=ChatOptions(seed=7))
    assert response.message == A("May I? ", tool_calls=(ToolCall("l", "look"), ToolCall(*pay("p", 5))))
    assert [chunk.finish_reason for chunk in seen if chunk.finish_reason] == (
        ["tool_calls", "tool_calls", "paused"] if mode == "stream" else []
    )
    assert (desk.runs.names, desk.paid) == (["look", "look"], [])
    assert await stored(memory) == before
    pause = paused(response)
    assert pause.open_calls == (ToolCall(*pay("p", 5)),)
    assert texts(pause.turn) == ["First. ", "ok", "May I? ", "ok"]

    other = Desk()
    chain, model = looping(other.tools, "Done.", advisors=remembering)
    seen.clear()
    response = await go_on(later, chain, pause.resume(approve=["p"]), seen)
    assert (other.runs.names, other.paid) == ([], [5])  # what had finished did not run again
    history = [] if place == "none" else before
    rounds = [
        A("First. ", tool_calls=(ToolCall("k1", "look"),)),
        ToolMessage("ok", tool_call_id="k1", name="look"),
        A("May I? ", tool_calls=(ToolCall("l", "look"), ToolCall(*pay("p", 5)))),
        ToolMessage("ok", tool_call_id="l", name="look"),
        ToolMessage("paid 5", tool_call_id="p", name="pay"),
    ]
    (request,) = model.requests
    assert list(request.messages[1:]) == [*history, U("Pay!"), *rounds]
    assert request.messages[0].text == "s"
    assert (request.round, request.made, request.options.seed, request.new) == (3, 5, 7, (U("Pay!"),))
    assert response.turn == (*rounds, A("Done."))
    assert (response.finish_reason, response.usage, response.pause) == ("stop", Usage(1, 1), None)
    kept = {"none": [], "outside": [U("Pay!"), A("Done.")]}.get(place, [U("Pay!"), *rounds, A("Done.")])
    assert await stored(memory) == [*before, *kept]
    if later == "stream":
        folded = fold_chunks(seen)
        assert (folded.earlier, folded.message) == (response.earlier, response.message)
        assert "".join(chunk.text for chunk in seen) == "First. May I? Done."


async def go_on(mode: Mode, chain: AdvisorChain, resumed: Mapping[str, Any], *seen: list[ChatChunk], **more: Any) -> Any:
    arguments = {**resumed, **more}
    return await ask(mode, chain, arguments.pop("prompt"), *seen, **arguments)


@both
async def test_denied_and_changed_calls(mode: Mode) -> None:
    desk = Desk()
    chain, model = looping(desk.tools, asks(pay("p", 5), "delete", ("d", "delete")), "Done.")
    pause = paused(await ask(mode, chain, "q"))
    resumed = pause.resume(change={"p": {"amount": 3}}, deny={"k2": "we need it", "d": ""})
    response = await go_on(mode, chain, resumed)
    assert (desk.paid, desk.runs.names) == ([3], [])
    asked, changed, denied, plain = response.earlier
    assert isinstance(asked, AssistantMessage)
    assert [call.arguments for call in asked.tool_calls] == ['{"amount": 3}', "{}", "{}"]
    assert changed.text == "paid 3"
    assert denied == ToolMessage(
        "a person did not allow this call of tool `delete`, and it was not run: we need it",
        tool_call_id="k2", name="delete", is_error=True,
    )  # fmt: skip
    assert plain.text == "a person did not allow this call of tool `delete`, and it was not run"
    assert model.prompts[1][-4:] == response.earlier


@both
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"amount": "many"}, "`change` for call `p`: the arguments for `pay` do not fit: `amount`: Input should be a valid"),
        ({"amuont": 1}, "`change` for call `p`: the arguments for `pay` do not fit: `amount`: Field required; an unknown"),
        ({}, "`change` for call `p`: the arguments for `pay` do not fit: `amount`: Field required"),
    ],
    ids=["type", "name", "none"],
)
async def test_changed_arguments_that_do_not_fit_are_refused_before_anything_runs(
    mode: Mode, change: dict[str, Any], told: str
) -> None:
    memory, desk = ChatMemory(), Desk()
    script = [asks(pay("p", 5), ("d", "delete")), "Done."]
    chain, model = looping(desk.tools, *script, advisors=[MessageChatMemoryAdvisor(memory)])
    pause = paused(await ask(mode, chain, "q", conversation_id="c"))
    with pytest.raises(InvalidInputError, match=told):
        await go_on(mode, chain, pause.resume(change={"p": change}, approve=["d"]))
    assert (desk.paid, desk.runs.names, len(model.requests), await stored(memory)) == ([], [], 1, [])
    await go_on(mode, chain, pause.resume(change={"p": {"amount": 3}}, approve=["d"]))
    assert (desk.paid, desk.runs.names) == ([3], ["delete"])
    assert texts(await stored(memory)) == ["q", "Done."]


@both
async def test_a_turn_may_wait_more_than_once(mode: Mode) -> None:
    desk = Desk()
    chain, _ = looping(desk.tools, asks(pay("p1", 1)), asks(pay("p2", 2), "look"), "Done.", max_calls_per_tool={"pay": 2})
    first = paused(await ask(mode, chain, "q"))
    second = paused(await go_on(mode, chain, first.resume(approve=["p1"])))
    assert (second.round, second.calls) == (2, {"pay": 2, "look": 1})
    response = await go_on(mode, chain, second.resume(approve=("p2",)))
    assert texts(response.turn) == ["", "paid 1", "", "paid 2", "ok", "Done."]
    assert (desk.paid, desk.runs.names) == ([1, 2], ["look"])


@both
async def test_limits_count_on_after_a_pause(mode: Mode) -> None:
    desk = Desk()
    script = [asks(pay("p1", 1)), asks(pay("p2", 2))]
    chain, _ = looping(desk.tools, *script, max_calls_per_tool={"pay": 1}, on_limit="raise")
    pause = paused(await ask(mode, chain, "q"))
    with pytest.raises(LimitExceededError, match="`pay`"):
        await go_on(mode, chain, pause.resume(approve=["p1"]))
    chain, _ = looping(desk.tools, *script, max_rounds=2)
    pause = paused(await ask(mode, chain, "q"))
    with pytest.raises(LimitExceededError, match="`max_rounds` of 2"):
        await go_on(mode, chain, pause.resume(approve=["p1"]))
    assert desk.paid == [1, 1]


@both
async def test_failures_count_on_after_a_pause(mode: Mode) -> None:
    fails = Runs().giving("fails", ValueError("no"), needs_approval=True)
    chain, _ = looping([fails], asks("fails"), asks("fails"), max_repeats=2)
    second = paused(await go_on(mode, chain, paused(await ask(mode, chain, "q")).resume(approve=["k1"])))
    assert second.failures == (("fails", "{}", "tool `fails` failed: ValueError: no", 1),)
    response = await go_on(mode, chain, second.resume(approve=["k1"]))
    assert response.finish_reason == "tool_limit"


@both
async def test_what_stands_behind_a_sequential_call_that_waits_waits_too(mode: Mode) -> None:
    runs = Runs()
    tools = [
        *runs.several("a", "z"),
        runs.giving("asks", sequential=True, needs_approval=True),
        runs.giving("s", sequential=True),
    ]
    chain, model = looping(tools, asks("a", "asks", "s", "z"), "Done.")
    pause = paused(await ask(mode, chain, "q"))
    assert (runs.names, [call.name for call in pause.open_calls]) == (["a"], ["asks"])
    await go_on(mode, chain, pause.resume(approve=["k2"]))
    assert runs.names == ["a", "asks", "s", "z"]
    assert texts(model.prompts[1][-4:]) == ["ok"] * 4


@both
async def test_what_nobody_was_asked_about_waits_when_its_tool_needs_a_yes_by_now(mode: Mode) -> None:
    runs = Runs()
    wary = [runs.giving("ask", needs_approval=True), runs.giving("wipe", sequential=True)]
    chain, _ = looping(wary, asks("ask", "wipe"))
    pause = paused(await ask(mode, chain, "q"))
    assert [call.name for call in pause.open_calls] == ["ask"]
    warier = [runs.giving("ask", needs_approval=True), runs.giving("wipe", sequential=True, needs_approval=True)]
    chain, _ = looping(warier, "Done.")
    again = paused(await go_on(mode, chain, pause.resume(deny=pause.waiting)))
    assert [call.name for call in again.open_calls] == ["wipe"]
    assert [result.is_error for result in again.results] == [True]
    assert runs.names == []
    assert (await go_on(mode, chain, again.resume(approve=again.waiting))).text == "Done."
    assert runs.names == ["wipe"]


@both
async def test_a_call_that_somebody_took_out_of_those_that_wait_still_waits(mode: Mode) -> None:
    desk = Desk()
    chain, _ = looping(desk.tools, asks(pay("p1", 1), pay("p2", 2)), "Done.")
    told = json.loads(paused(await ask(mode, chain, "q")).dump())
    told["waiting"].remove("p1")
    again = paused(await go_on(mode, chain, ToolPause.load(json.dumps(told)).resume(deny=["p2"])))
    assert again.waiting == ("p1",)
    assert desk.paid == []
    assert (await go_on(mode, chain, again.resume(approve=["p1"]))).text == "Done."
    assert desk.paid == [1]


@both
async def test_bad_arguments_and_a_limit_are_told_without_asking_a_person(mode: Mode) -> None:
    desk = Desk()
    chain, _ = looping(desk.tools, asks(("p", "pay", "{")), "Done.")
    assert results_of(await ask(mode, chain, "q"))[0].is_error
    chain, _ = looping(desk.tools, asks(pay("p", 1), "look", "look"), max_calls=2)
    response = await ask(mode, chain, "q")
    assert (response.finish_reason, desk.paid, desk.runs.names) == ("tool_limit", [], ["look"])
    assert [result.tool_call_id for result in response.metadata["tool_results"]] == ["k2"]


@both
async def test_a_function_decides_which_calls_need_a_yes(mode: Mode) -> None:
    paid: list[int] = []

    def over(arguments: Mapping[str, Any], context: ToolContext) -> bool:
        return bool(arguments["amount"] > context.context["free"])

    @tool(needs_approval=over)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    calls = [(f"p{amount}", "pay", json.dumps({"amount": amount})) for amount in (1, 9)]
    chain, _ = looping([pay], asks(*calls, ("bad", "pay", '{"amount":"x"}')), "Done.")
    pause = paused(await ask(mode, chain, "q", context={"free": 5}))
    assert (paid, pause.waiting) == ([1], ("p9",))
    bad = next(result for result in pause.results if result.tool_call_id == "bad")
    assert bad.is_error
    await go_on(mode, chain, pause.resume(approve=["p9"]), context={"free": 0})
    assert paid == [1, 9]
    chain, _ = looping([pay], asks(calls[0]), "Done.")
    (failed,) = results_of(await ask(mode, chain, "q"))  # the context has no `free`
    assert failed.text == "tool `pay` failed: KeyError: 'free'"
    chain, _ = looping([pay], asks(calls[0]), on_error="raise")
    with pytest.raises(KeyError, match="free"):
        await ask(mode, chain, "q")


@both
async def test_an_edit_of_a_text_further_out_is_in_the_resumed_turn_as_well(mode: Mode) -> None:
    class Upper:
        def feed(self, text: str) -> str:
            return text.upper()

        def flush(self) -> str:
            return ""

    class Shout(BaseAdvisor):
        order = CHAT_MEMORY_ORDER

        def transform(self, request: ChatRequest) -> Upper:
            return Upper()

    desk = Desk()
    chain, model = looping(desk.tools, asks(pay("p", 1), text="may i?"), "done.", advisors=[Shout()])
    response = await ask(mode, chain, "q")
    assert response.text == "MAY I?"
    response = await go_on(mode, chain, paused(response).resume(approve=["p"]))
    assert texts(response.turn) == ["MAY I?", "paid 1", "DONE."]
    assert texts(model.prompts[1]) == ["q", "may i?", "paid 1"]


class Rewriting(BaseAdvisor):
    """Changes question and options, and writes down what it was given."""

    def __init__(self, order: int) -> None:
        self.name = "rewriting"
        self.order = order
        self.given: list[tuple[list[str], int | None]] = []

    def before(self, request: ChatRequest) -> ChatRequest:
        self.given.append((texts(request.new), request.options.seed))
        *earlier, question = request.messages
        again = UserMessage(f"{question.text} {question.text}")
        options = replace(request.options, seed=(request.options.seed or 0) + 1)
        return request.replace(messages=(*earlier, again), options=options)


@both
@pytest.mark.parametrize("place", [CHAT_MEMORY_ORDER - 1, TOOL_CALLING_ORDER - 1])
@pytest.mark.parametrize("fresh", [False, True], ids=["with history", "the first turn"])
async def test_what_changes_the_question_further_out_does_so_once(mode: Mode, place: int, fresh: bool) -> None:
    memory, desk, rewriting = ChatMemory(), Desk(), Rewriting(place)
    if not fresh:
        await memory.add("c", [U("u0"), A("a0")])
    script = [asks(pay("p1", 1)), asks(pay("p2", 2)), "Done.", "fine"]
    chain, model = looping(desk.tools, *script, advisors=[MessageChatMemoryAdvisor(memory), rewriting])
    asked = ChatOptions(seed=7)
    first = paused(await ask(mode, chain, "q", conversation_id="c", system="s", options=asked))
    assert (texts(first.prompt), first.options) == (["s", "q"], asked)
    second = paused(await go_on(mode, chain, first.resume(approve=["p1"])))
    await go_on(mode, chain, second.resume(approve=["p2"]))
    history = [] if fresh else ["u0", "a0"]
    assert rewriting.given == [(["q"], 7)] * 3
    assert [texts(request.messages)[1 : 2 + len(history)] for request in model.requests] == [[*history, "q q"]] * 3
    assert [request.options.seed for request in model.requests] == [8] * 3
    inside_memory = place > CHAT_MEMORY_ORDER
    assert texts(await stored(memory)) == [*history, "q" if inside_memory else "q q", "Done."]


@both
async def test_a_question_that_is_read_twice_is_kept_once(mode: Mode) -> None:
    memory, desk = ChatMemory(), Desk()
    advisors = [MessageChatMemoryAdvisor(memory), ReReadingAdvisor()]
    chain, model = looping(desk.tools, asks(pay("p", 1)), "Done.", advisors=advisors)
    pause = paused(await ask(mode, chain, "q", conversation_id="c"))
    await go_on(mode, chain, pause.resume(approve=["p"]))
    assert texts(await stored(memory)) == ["q", "Done."]
    assert [prompt[0].text for prompt in model.prompts] == ["q\nRead the question again: q"] * 2


async def test_a_pause_of_a_version_that_did_not_keep_the_prompt_goes_on() -> None:
    memory, desk = ChatMemory(), Desk()
    await memory.add("c", [U("u0"), A("a0")])
    chain, model = looping(desk.tools, asks(pay("p", 1)), "Done.", advisors=[MessageChatMemoryAdvisor(memory)])
    data = json.loads(paused(await chain.call("q", "c", "s")).dump())
    del data["prompt"]
    resumed = ToolPause.load(json.dumps(data)).resume(approve=["p"])
    assert texts(resumed["prompt"]) == ["q"]
    await chain.call(**resumed)
    assert texts(await stored(memory)) == ["u0", "a0", "q", "Done."]
    assert texts(model.prompts[1]) == ["s", "u0", "a0", "q", "", "paid 1"]


async def test_a_resumed_stream_that_is_left_early_has_a_partial_turn() -> None:
    memory = ChatMemory()
    desk = Desk()
    remembering = MessageChatMemoryAdvisor(memory, remember="turn")
    chain, model = looping(desk.tools, asks(pay("p", 1), text="May I?"), ["It", " is"], "fine", advisors=[remembering])
    pause = paused(await chain.call("q", "c"))
    async with chain.stream(**pause.resume(approve=["p"])) as stream:
        async for chunk in stream:
            if chunk.text == "It":
                break
    assert texts(await stored(memory)) == ["q", "May I?", "paid 1", "It"]
    await chain.call("next", "c")
    assert texts(model.prompts[-1]) == ["q", "May I?", "paid 1", "It", "next"]


@both
async def test_a_tool_that_was_offered_for_the_turn_is_needed_again(mode: Mode) -> None:
    runs = Runs()
    extra = runs.giving("extra", needs_approval=True)

    class Offering(BaseAdvisor):
        order = CHAT_MEMORY_ORDER

        def before(self, request: ChatRequest) -> ChatRequest:
            return offer_tools(request, extra)

    chain, _ = looping([], asks("extra"), "Done.", advisors=[Offering()])
    pause = paused(await ask(mode, chain, "q"))
    with pytest.raises(ConfigurationError, match="no tool `extra`"):
        await go_on(mode, chain.without("Offering"), pause.resume(approve=["k1"]))
    assert (await go_on(mode, chain, pause.resume(approve=["k1"]))).text == "Done."
    assert runs.names == ["extra"]


@both
async def test_what_waits_behind_needs_its_tool_too_and_what_was_denied_does_not(mode: Mode) -> None:
    runs = Runs()
    first, behind = runs.giving("asks", needs_approval=True), runs.giving("s", sequential=True)
    chain, _ = looping([first, behind], asks("asks", "s"))
    pause = paused(await ask(mode, chain, "q"))
    chain, _ = looping([first], "Done.")
    with pytest.raises(ConfigurationError, match="no tool `s`"):
        await go_on(mode, chain, pause.resume(approve=["k1"]))
    assert runs.names == []
    chain, _ = looping([behind], "Done.")
    assert (await go_on(mode, chain, pause.resume(deny=["k1"]))).text == "Done."
    assert runs.names == ["s"]


@both
async def test_a_client_goes_on_too(mode: Mode) -> None:
    desk, memory = Desk(), ChatMemory()
    model = ScriptedModel("a0", asks(pay("p", 1)), "Done.", "later")
    settings: Any = {"system": "Be careful.", "memory": memory, "advisors": [ToolCallingAdvisor(desk.tools)]}
    client = ChatClient(model, **settings)
    await client.call("u0", conversation_id="c")
    pause = paused(await client.call("q", conversation_id="c", options=ChatOptions(seed=1)))
    resumed = pause.resume(approve=["p"])
    if mode == "call":
        response = await client.call(**resumed)
    else:
        async with client.stream(**resumed) as stream:
            async for _ in stream:
                pass
        response = stream.response
    assert response.text == "Done."
    assert texts(model.prompts[2]) == ["Be careful.", "u0", "a0", "q", "", "paid 1"]
    assert model.requests[2].options.seed == 1
    assert texts(await stored(memory)) == ["u0", "a0", "q", "Done."]


@both
@pytest.mark.parametrize("turn", ["regenerate", "edit"])
async def test_a_turn_that_is_to_replace_the_last_one_goes_on_as_an_edit(mode: Mode, turn: Any) -> None:
    desk, memory = Desk(), ChatMemory()
    await memory.add("c", [U("q"), A("old")])
    model = ScriptedModel(asks(pay("p", 1)), "new")
    client = ChatClient(model, memory=memory, tools=desk.tools)
    asked = {} if turn == "regenerate" else {"prompt": "q2"}
    pause = paused(await client.call(**asked, conversation_id="c", turn=turn))
    assert texts(await stored(memory)) == ["q", "old"]
    resumed: Any = pause.resume(approve=["p"])
    if mode == "call":
        await client.call(**resumed, turn="edit")
    else:
        async with client.stream(**resumed, turn="edit") as stream:
            async for _ in stream:
                pass
    assert texts(await stored(memory)) == ["q" if turn == "regenerate" else "q2", "new"]


# -- deciding


async def _pause_of(*calls: Any) -> ToolPause:
    chain, _ = looping(Desk().tools, asks(*calls))
    return paused(await chain.call("q"))


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ({}, "no decision on call `p`, `d`"),
        ({"approve": ["p"]}, "no decision on call `d`"),
        ({"approve": ["p", "d"], "deny": ["p"]}, "two decisions on call `p`"),
        ({"approve": ["p", "p", "d"]}, "two decisions on call `p`"),
        ({"approve": ["p", "d", "l"]}, "call `l` does not wait for a yes; those that do: `p`, `d`"),
        ({"approve": "pd"}, "`approve` is a str"),
        ({"deny": 1}, "`deny` is an int"),
        ({"approve": ["p"], "change": {"d": "x"}}, "`change` for call `d` is a str"),
        ({"approve": ["p"], "change": {"d": {"a": float("nan")}}}, "`change` for call `d` is not JSON"),
        ({"approve": ["p"], "change": {"d": {"a": object()}}}, "`change` for call `d` is not JSON"),
        ({"approve": ["p"], "change": {"d": {"a": "\ud83d"}}}, "`change` for call `d` is not JSON: .*half of a character"),
        ({"approve": ["p"], "change": {"d": {"a": 10**5000}}}, "`change` for call `d` is not JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_each_open_call_needs_one_decision(decision: Any, told: str) -> None:
    pause = await _pause_of(("l", "look"), pay("p", 1), ("d", "delete"))
    with pytest.raises(InvalidInputError, match=told):
        pause.resume(**decision)


async def test_a_pause_is_a_value() -> None:
    pause = await _pause_of(("l", "look"), pay("p", 1))
    assert pickle.loads(pickle.dumps(pause)) == pause == copy.deepcopy(pause)
    response = ChatResponse("x", "paused", pause=pause)
    assert pickle.loads(pickle.dumps(response)).pause == pause
    assert response.replace(finish_reason="stop").pause == pause
    assert response.replace(pause=None).pause is None


async def test_a_chain_without_the_loop_refuses_to_go_on() -> None:
    pause = await _pause_of(pay("p", 1))
    model = ScriptedModel("never")
    chain = AdvisorChain(model, [ToolCallingAdvisor(Desk().tools, name="others")])
    with pytest.raises(ConfigurationError, match="no advisor `tools`"):
        await chain.call(**pause.resume(approve=["p"]))
    assert model.requests == []


@pytest.mark.parametrize("change", [{"waiting": []}, {"waiting": ["l"]}, {"waiting": ["x"]}, {"format": 2}, {"round": "x"}])
async def test_tool_035_a_pause_without_an_open_call_cannot_be_loaded(change: Any) -> None:
    pause = await _pause_of(("l", "look"), pay("p", 1))
    data = json.loads(pause.dump())
    with pytest.raises(InvalidInputError, match="`pause` cannot be made"):
        ToolPause.load(json.dumps({**data, **change}))
    assert ToolPause.load(json.dumps({**data, "of a later version": 1})) == pause
    with pytest.raises(InvalidInputError, match="`pause`"):
        ToolPause.load("nonsense")


@pytest.mark.parametrize(
    "change",
    [
        {"waiting": ["k1", "k1"]},
        {"round": 0},
        {"recalled": -1},
        {"recalled": 99},
        {"seconds": -1.0},
        {"seconds": "inf"},
        {"calls": {"pay": -1}},
        {"failures": [["pay", "{}", "no", -1]]},
    ],
    ids=str,
)
async def test_a_pause_whose_counts_somebody_changed_cannot_be_loaded(change: Any) -> None:
    data = json.loads((await _pause_of(pay("k1", 1))).dump())
    assert ToolPause.load(json.dumps(data)).waiting == ("k1",)
    with pytest.raises(InvalidInputError, match="`pause` cannot be made"):
        ToolPause.load(json.dumps({**data, **change}))


@both
async def test_approved_arguments_that_fit_no_more_are_refused_before_anything_runs(mode: Mode) -> None:
    runs: list[str] = []

    @tool(name="pay")
    async def pays_otherwise(amount: int, currency: str) -> str:
        """Pay."""
        runs.append(currency)
        return "paid"

    pause = await _pause_of(pay("p", 1))
    chain, model = looping([pays_otherwise], "done")
    with pytest.raises(InvalidInputError, match=r"deny or change call `p`: .*`currency`: Field required"):
        await go_on(mode, chain, pause.resume(approve=["p"]))
    assert (runs, model.requests) == ([], [])
    await go_on(mode, chain, pause.resume(change={"p": {"amount": 1, "currency": "EUR"}}))
    assert runs == ["EUR"]


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=50, deadline=None)
@given(question=_TEXT.filter(str.strip), said=_TEXT, word=_TEXT, picture=st.binary(max_size=4))
async def test_what_is_dumped_is_loaded(question: str, said: str, word: str, picture: bytes) -> None:
    @tool(needs_approval=True)
    async def echo(word: str) -> str:
        """Say a word."""
        return word

    chain, model = looping([echo], asks(("k", "echo", json.dumps({"word": word})), text=said), "done")
    prompt = UserMessage((ImagePart(data=picture, media_type="image/png"),))
    pause = paused(await chain.call([UserMessage(question), AssistantMessage("a"), prompt]))
    response = await chain.call(**pause.resume(approve=["k"]))
    assert model.prompts[1][:3] == (UserMessage(question), AssistantMessage("a"), prompt)
    assert response.earlier[1].text == word


# -- another process


def _worker(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tests.advisors._pausing_worker", *map(str, arguments)]


def test_a_turn_survives_that_its_process_is_killed(tmp_path: Path) -> None:
    store, log = tmp_path / "chat.db", tmp_path / "log"
    with subprocess.Popen(_worker("ask", store, log), stdout=subprocess.PIPE, cwd=ROOT) as asking_process:
        assert asking_process.stdout is not None
        pause = asking_process.stdout.readline()
        os.kill(asking_process.pid, signal.SIGKILL)
    assert log.read_text() == "look\n"
    ran = subprocess.run(_worker("resume", store, log, "k2", "k3"), input=pause, capture_output=True, cwd=ROOT, check=True)
    answer, *lines = ran.stdout.decode().splitlines()
    messages = [json.loads(line) for line in lines]
    assert (answer, log.read_text()) == ("Paid.", "look\npay\n")  # approved: once; denied: never; finished: not again
    said = [message["content"] for message in messages]
    denied = "a person did not allow this call of tool `delete`, and it was not run: keep it"
    turn = ["Clean up.", "May I?", "look done", "pay done", denied]
    assert said == ["Be careful.", *turn, *turn, "Paid."]  # the prompt, then what is stored
