"""Whatever a model asks for: prompts are valid, each call has its result, a stream is a call, what is stored can be sent."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisor import TOOL_CALLING_ORDER
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor, ToolPause
from advisorchain.aggregate import fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.errors import LimitExceededError
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import UserMessage
from advisorchain.testing import ScriptedModel
from advisorchain.testing.models import check_prompt

from .._asking import MODES, Mode, ask, asking, stored
from ._tool_scripts import Runs

_NAMES = ["a", "fails", "alone", "asks", "alone_asks", "direct", "unknown"]
_CALLS = st.lists(
    st.tuples(st.sampled_from(_NAMES), st.sampled_from(["{}", "", "null", "{", '{"x":1}'])), min_size=1, max_size=5
)
_TURNS = st.lists(_CALLS, max_size=4)
_LIMITS = st.fixed_dictionaries(
    {
        "max_rounds": st.integers(1, 6),
        "max_calls": st.sampled_from([None, 1, 3, 8]),
        "max_repeats": st.sampled_from([None, 1, 2]),
        "max_concurrency": st.integers(1, 3),
    }
)


def _tools(runs: Runs) -> list[Any]:
    return [
        runs.giving("a"),
        runs.giving("fails", ValueError("no")),
        runs.giving("alone", sequential=True),
        runs.giving("asks", needs_approval=True),
        runs.giving("alone_asks", sequential=True, needs_approval=True),
        runs.giving("direct", return_direct=True),
    ]


async def _to_the_end(mode: Mode, chain: AdvisorChain, deny: bool) -> tuple[ChatResponse, list[int]]:
    """The response, by way of as many pauses as there are; and how long the turn was at each."""
    seen: list[ChatChunk] = []
    pauses: list[int] = []
    response = await ask(mode, chain, "q", seen, conversation_id="c")
    while response.pause is not None:
        pause = ToolPause.load(response.pause.dump())
        pauses.append(len(pause.turn))
        ids = list(pause.waiting)
        arguments: Any = pause.resume(deny=ids[:1] if deny else [], approve=ids[1:] if deny else ids)
        seen.clear()
        response = await ask(mode, chain, arguments.pop("prompt"), seen, **arguments)
    if mode == "stream":
        folded = fold_chunks(seen)
        # a call whose arguments are no JSON object was shown as it came
        shown = [(type(message), message.text) for message in folded.turn]
        assert shown == [(type(message), message.text) for message in response.turn]
    return response, pauses


@settings(max_examples=60, deadline=None)
@given(turn=_TURNS, limits=_LIMITS, deny=st.booleans(), inside=st.booleans())
async def test_any_turn(turn: Any, limits: Any, deny: bool, inside: bool) -> None:
    ended = []
    for mode in MODES:
        script = [
            asking(*[(f"k{place}", *call) for place, call in enumerate(calls)], text=f"round {number} ")
            for number, calls in enumerate(turn)
        ]
        model, runs, memory = ScriptedModel(*script, "done"), Runs(), ChatMemory()
        order = {"order": TOOL_CALLING_ORDER + 1} if inside else {}
        remembering = MessageChatMemoryAdvisor(memory, remember="turn", **order)
        chain = AdvisorChain(model, [remembering, ToolCallingAdvisor(_tools(runs), **limits)])
        try:
            response, pauses = await _to_the_end(mode, chain, deny)
        except LimitExceededError as error:
            ended.append(("raised", str(error), sorted(runs.names)))
            assert await stored(memory) == []
            continue
        ended.append(("answered", response.replace(metadata={}), pauses, sorted(runs.names)))
        said = (UserMessage("q"), *response.turn)
        check_prompt(said)
        between = response.finish_reason in ("return_direct", "tool_limit")  # of which memory inside has seen no last answer
        assert await stored(memory) == ([] if inside and between else [*said])
        later = ScriptedModel("fine")
        await AdvisorChain(later, [remembering]).call("next", "c")  # the strict model takes what was stored
    assert ended[0] == ended[1]
