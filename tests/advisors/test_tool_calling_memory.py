"""Memory outside and inside of the tool loop: what each position sees, and what it stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from advisorchain.advisor import TOOL_CALLING_ORDER
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import LimitExceededError
from advisorchain.memory import ChatMemory, MessageWindow
from advisorchain.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from advisorchain.testing import ScriptedModel

from .._asking import MODES, Mode, ask, stored, texts
from ..cases._stores import EACH_KIND, Store, opened
from ._tool_scripts import Runs, asks, endless, looping

both = pytest.mark.parametrize("mode", MODES)
PLACES = pytest.mark.parametrize("place", ["outside", "outside, turns", "inside"])
U, A = UserMessage, AssistantMessage


@pytest.fixture(params=EACH_KIND)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    place = opened(request.param, tmp_path)
    yield place
    await place.aclose()


def placed(place: str, store: Store, window: int = 20) -> MessageChatMemoryAdvisor:
    memory = ChatMemory(MessageWindow(window), store.repository)
    if place == "inside":
        return MessageChatMemoryAdvisor(memory, order=TOOL_CALLING_ORDER + 100)
    return MessageChatMemoryAdvisor(memory, remember="turn" if "turns" in place else "answer")


def round_of(call_id: str, text: str = "", result: str = "12C") -> list[Message]:
    call = ToolCall(call_id, "weather", '{"city":"Oslo"}')
    return [A(text, tool_calls=(call,)), ToolMessage(result, tool_call_id=call_id, name="weather")]


def weather(place: str, store: Store, *script: Any, **settings: Any) -> tuple[AdvisorChain, ScriptedModel, ChatMemory]:
    memory = placed(place, store)

    def weather(city: str) -> str:
        """The weather in a city."""
        return "12C"

    chain, model = looping([weather], *script, advisors=[memory], **settings)
    return chain, model, memory.chat_memory


def oslo(call_id: str, text: str = "") -> Any:
    return asks((call_id, "weather", '{"city":"Oslo"}'), text=text)


@both
@PLACES
async def test_mem_026_what_each_position_stores_and_sends(mode: Mode, place: str, store: Store) -> None:
    script = [oslo("k1", "I look."), oslo("k2"), "12 degrees", oslo("k3"), "still 12"]
    chain, model, memory = weather(place, store, *script)
    for question in ("Oslo?", "And now?"):
        await ask(mode, chain, question, conversation_id="c", system="Be brief.")
    one = [U("Oslo?"), *round_of("k1", "I look."), *round_of("k2"), A("12 degrees")]
    two = [U("And now?"), *round_of("k3"), A("still 12")]
    if place == "outside":
        one, two = [one[0], one[-1]], [two[0], two[-1]]
    assert await stored(memory) == [*one, *two]
    assert list(model.prompts[3][1:]) == [*one, U("And now?")]
    assert list(model.prompts[4][1:]) == [*one, U("And now?"), *round_of("k3")]  # history once, in each round
    assert [request.recalled for request in model.requests] == [0, 0, 0, len(one), len(one)]
    assert all(request.new == (U("And now?"),) for request in model.requests[3:])


@both
@PLACES
async def test_a_window_smaller_than_the_turn_sends_valid_prompts(mode: Mode, place: str, store: Store) -> None:
    memory = placed(place, store, window=4)
    script = [asks("a", "b"), asks("a"), "one", asks("b"), "two"]
    chain, model = looping(Runs().several("a", "b"), *script, advisors=[memory])
    for question in ("q1", "q2"):
        await ask(mode, chain, question, conversation_id="c")
    assert len(model.requests) == 5  # the strict model took them all
    assert texts(model.prompts[4])[-3:] == ["q2", "", "ok"]


@both
@PLACES
async def test_B071_a_limit_on_rounds_leaves_nothing_and_the_next_turn_works(mode: Mode, place: str, store: Store) -> None:
    memory = placed(place, store)
    chain, model = looping([Runs().giving("spin")], *[endless("spin")] * 3, "fine", advisors=[memory], max_rounds=3)
    with pytest.raises(LimitExceededError):
        await ask(mode, chain, "q1", conversation_id="c")
    assert await stored(memory.chat_memory) == []
    await ask(mode, chain, "q2", conversation_id="c")
    assert model.prompts[3] == (U("q2"),)


@both
@PLACES
async def test_B071_a_limit_on_calls_leaves_no_dangling_call(mode: Mode, place: str, store: Store) -> None:
    memory = placed(place, store)
    chain, model = looping([Runs().giving("a")], asks("a", "a"), "fine", advisors=[memory], max_calls=1)
    response = await ask(mode, chain, "q1", conversation_id="c")
    kept = {
        "outside": [U("q1"), response.message],
        "outside, turns": [U("q1"), *response.turn],
        "inside": [],  # it has seen no last answer
    }[place]
    assert await stored(memory.chat_memory) == kept
    await ask(mode, chain, "q2", conversation_id="c")
    assert list(model.prompts[1]) == [*kept, U("q2")]


@both
@PLACES
async def test_return_direct_is_stored_outside(mode: Mode, place: str, store: Store) -> None:
    memory = placed(place, store)
    chain, model = looping([Runs().giving("a", "data", return_direct=True)], asks("a"), "fine", advisors=[memory])
    response = await ask(mode, chain, "q1", conversation_id="c")
    kept = {"outside": [U("q1"), A("data")], "outside, turns": [U("q1"), *response.turn], "inside": []}[place]
    assert await stored(memory.chat_memory) == kept
    await ask(mode, chain, "q2", conversation_id="c")
    assert list(model.prompts[1]) == [*kept, U("q2")]


@both
@PLACES
async def test_arguments_that_are_no_json_do_not_cost_the_turn_its_place(mode: Mode, place: str, store: Store) -> None:
    chain, model, memory = weather(place, store, asks(("k1", "weather", '{"city')), "sorry", "fine")
    await ask(mode, chain, "q1", conversation_id="c")
    expected = await stored(memory)
    assert len(expected) == (2 if place == "outside" else 4)
    await ask(mode, chain, "q2", conversation_id="c")
    assert list(model.prompts[2]) == [*expected, U("q2")]


@PLACES
async def test_B071_closed_during_round_two(place: str, store: Store) -> None:
    chain, model, memory = weather(place, store, oslo("k1", "I look."), ["It is", " cold"], "fine")
    async with chain.stream("q1", conversation_id="c") as stream:
        async for chunk in stream:
            if chunk.text == "It is":
                break
    cut = A("It is", partial=True)
    kept = {
        "outside": [U("q1"), cut],
        "outside, turns": [U("q1"), *round_of("k1", "I look."), cut],
        "inside": [U("q1"), *round_of("k1", "I look."), cut],
    }[place]
    assert await stored(memory) == kept
    await ask("stream", chain, "q2", conversation_id="c")
    assert texts(model.prompts[-1]) == [*texts(kept), "q2"]


@both
@PLACES
async def test_cancelled_while_tools_run(mode: Mode, place: str, store: Store) -> None:
    memory, begun = placed(place, store), anyio.Event()

    async def wait() -> str:
        begun.set()
        await anyio.sleep_forever()
        return "never"

    chain, model = looping([Runs().giving("a", wait)], asks("a", text="I look."), "fine", advisors=[memory])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: ask(mode, chain, "q1", conversation_id="c"))
        await begun.wait()
        group.cancel_scope.cancel()
    seen = mode == "stream" and place != "inside"
    assert await stored(memory.chat_memory) == ([U("q1"), A("I look.", partial=True)] if seen else [])
    await ask(mode, chain, "q2", conversation_id="c")
    assert texts(model.prompts[1])[-1] == "q2"
