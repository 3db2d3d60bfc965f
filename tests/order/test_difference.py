"""What differs between two chains."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import InvalidInputError
from advisorchain.explain import Change, Difference, explain
from advisorchain.memory import ChatMemory
from advisorchain.testing import RecordingAdvisor, ScriptedModel

from ._chains import chains


def chain_of(*advisors: Any, model: str = "scripted") -> AdvisorChain:
    return AdvisorChain(ScriptedModel(name=model), advisors)


def named(**orders: int) -> list[Any]:
    return [RecordingAdvisor(name, order) for name, order in orders.items()]


def test_what_came_went_moved_and_changed() -> None:
    one = chain_of(*named(a=1, b=2, c=3, d=4), MessageChatMemoryAdvisor(ChatMemory()))
    memory = MessageChatMemoryAdvisor(ChatMemory(), remember="turn")
    other = chain_of(*named(c=0, a=1, b=2, e=9), memory, ToolCallingAdvisor(), model="large")
    difference = one.explain().difference(other)
    assert difference
    assert [row.name for row in difference.removed] == ["d"]
    assert [row.name for row in difference.added] == ["tools", "e"]
    assert difference.moved == ("c",)
    assert Change("c", "order", 3, 0) in difference.changed
    assert difference.model == ("scripted", "large")
    assert str(difference).split("\n") == [
        "- d: order 4, RecordingAdvisor",
        "+ tools: order -2147483348, ToolCallingAdvisor",
        "+ e: order 9, RecordingAdvisor",
        "~ c: stands elsewhere among the others",
        "~ memory: note keeps the question and the final answer → keeps each turn with its tool rounds",
        "~ a: sees the whole turn → each round",
        "~ b: sees the whole turn → each round",
        "~ c: order 3 → 0",
        "~ c: sees the whole turn → each round",
        "~ the model: scripted → large",
    ]
    told = difference.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["moved"] == ["c"]


def test_hooks_and_effects_are_told_as_words() -> None:
    class Other(RecordingAdvisor):
        to_stream = "change"
        repeats = "sample"

    difference = explain(chain_of(RecordingAdvisor("a")), chain_of(Other("a")))
    assert [(change.what, change.before, change.after) for change in difference.changed] == [
        ("type", "RecordingAdvisor", Other.__qualname__),
        ("repeats", "", "sample"),
        ("to_stream", ("observe",), ("change",)),
    ]
    assert "~ a: repeats none → sample" in str(difference)
    assert "~ a: stream observe → change" in str(difference)
    assert difference.to_dict()["changed"][2] == {
        "advisor": "a",
        "what": "to_stream",
        "before": ["observe"],
        "after": ["change"],
    }


def test_the_place_alone_is_no_difference_but_the_sequence_is() -> None:
    """An advisor further out shifts all that are further in; that they have shifted says nothing."""
    assert not explain(chain_of(*named(a=1, b=2)), chain_of(*named(a=1, b=2)))
    assert explain(chain_of(*named(b=2)), chain_of(*named(a=1, b=2))).changed == ()
    equal = explain(chain_of(*named(a=1, b=1)), chain_of(*named(b=1, a=1)))
    assert len(equal.moved) == 1


@settings(deadline=None, max_examples=50)
@given(chains(), chains())
def test_any_two_chains(one: AdvisorChain, other: AdvisorChain) -> None:
    assert str(one.explain().difference(one)) == "no difference"
    there, back = explain(one, other), explain(other, one)
    assert bool(there) is bool(back)
    assert {row.name for row in there.added} == {row.name for row in back.removed}
    assert len(there.changed) == len(back.changed)
    assert isinstance(there, Difference)
    assert all(line[:2] in ("- ", "+ ", "~ ", "no") for line in str(there).split("\n"))
    json.dumps(there.to_dict())


def test_with_something_else_there_is_none() -> None:
    with pytest.raises(InvalidInputError, match="None cannot be explained"):
        chain_of().explain().difference(None)
