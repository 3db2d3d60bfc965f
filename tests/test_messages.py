"""Messages are values: exact through JSON, frozen through and through, and silent about their content in errors."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import advisorchain.messages as messages_module
from advisorchain.errors import InvalidInputError, MessageError, ToolArgumentsError
from advisorchain.messages import (
    MESSAGE_TYPES,
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    dump_message,
    load_message,
    to_messages,
)

U, A, S = UserMessage, AssistantMessage, SystemMessage

# --- all messages -----------------------------------------------------------------------------------------------------

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "a\0b", "👩‍👩‍👧", "\u2028", "é"]
)
numbers = (
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1, 1.0, True, -0.0])
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
metadata = st.dictionaries(text, json_values, max_size=3)
names = st.none() | text
data = st.binary(max_size=12)

parts = st.one_of(
    st.builds(TextPart, text=text),
    st.builds(ImagePart, url=text, detail=st.sampled_from([None, "auto", "low", "high"])),
    st.builds(ImagePart, data=data, media_type=text),
    st.builds(AudioPart, data=data, media_type=text),
    st.builds(FilePart, data=data, name=names, media_type=names),
    st.builds(FilePart, file_id=text),
    st.builds(RefusalPart, refusal=text),
)
content = text | st.lists(parts, min_size=1, max_size=3).map(tuple)
tool_calls = st.lists(st.builds(ToolCall, id=text.filter(bool), name=text, arguments=text), max_size=3).map(tuple)

messages = st.one_of(
    st.builds(SystemMessage, content=content, name=names, metadata=metadata),
    st.builds(UserMessage, content=content, name=names, metadata=metadata),
    st.builds(
        AssistantMessage, content=content, reasoning=names, refusal=names, tool_calls=tool_calls, partial=st.booleans(),
        name=names, metadata=metadata,
    ),
    st.builds(
        ToolMessage, content=content, tool_call_id=text.filter(bool), name=names, structured=json_values,
        is_error=st.booleans(), metadata=metadata,
    ),
)  # fmt: skip


def exact(value: Any) -> Any:
    """`value` in a form in which 1, 1.0 and True differ, and 0.0 and -0.0."""
    if is_dataclass(value):
        return (type(value).__name__, {field.name: exact(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, Mapping):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    return (type(value).__name__, repr(value))


@settings(deadline=None)
@given(messages)
def test_a_message_comes_back_from_json_exactly(message: Message) -> None:
    dumped = dump_message(message)
    for form in (dumped, dumped.encode(), json.loads(dumped)):
        loaded = load_message(form)
        assert loaded == message
        assert exact(loaded) == exact(message)
    assert dump_message(load_message(dumped)) == dumped


def with_future_fields(value: Any, *, free: bool = False) -> Any:
    """JSON of a message as later code might write it; `metadata` and `structured` are free form and stay."""
    if isinstance(value, list):
        return [with_future_fields(item, free=free) for item in value]
    if not isinstance(value, dict) or free:
        return value
    own = {key: with_future_fields(item, free=key in ("metadata", "structured")) for key, item in value.items()}
    return {**own, "future": {"nested": [1]}, "role_": "x"}


@settings(deadline=None)
@given(messages)
def test_unknown_future_fields_are_passed_over(message: Message) -> None:
    later = with_future_fields(json.loads(dump_message(message)))
    assert "future" in later
    assert load_message(json.dumps(later)) == message
    assert load_message(later) == message


@settings(deadline=None)
@given(messages)
def test_a_message_survives_pickling_and_copying(message: Message) -> None:
    for other in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message), replace(message)):
        assert other == message
        assert type(other) is type(message)
        assert exact(other) == exact(message)
        assert_frozen(other)


@settings(deadline=None)
@given(messages, messages)
def test_equal_messages_have_one_hash_and_one_json(one: Message, other: Message) -> None:
    again = load_message(dump_message(one))
    assert hash(again) == hash(one)
    assert {one, again} == {one}
    if dump_message(one) == dump_message(other):
        assert one == other
    if type(one) is not type(other):
        assert one != other


# --- frozen -----------------------------------------------------------------------------------------------------------

_CHANGES: dict[type, list[Callable[[Any], object]]] = {
    dict: [
        lambda d: d.__setitem__("k", 1), lambda d: d.__delitem__(next(iter(d), "k")), lambda d: d.update(k=1),
        lambda d: d.setdefault("k", 1), lambda d: d.pop("k", None), lambda d: d.popitem(), lambda d: d.clear(),
        lambda d: d.__ior__({"k": 1}),
    ],
    list: [
        lambda v: v.append(1), lambda v: v.extend([1]), lambda v: v.insert(0, 1), lambda v: v.__setitem__(slice(0, 0), [1]),
        lambda v: v.__delitem__(slice(0, 1)), lambda v: v.pop(), lambda v: v.remove(None), lambda v: v.clear(),
        lambda v: v.sort(), lambda v: v.reverse(), lambda v: v.__iadd__([1]), lambda v: v.__imul__(2),
    ],
}  # fmt: skip


def assert_frozen(value: Any) -> None:
    """Nothing in `value` can be changed, however deep it lies."""
    if is_dataclass(value):
        for field in fields(value):
            with pytest.raises(AttributeError):
                setattr(value, field.name, None)
            with pytest.raises(AttributeError):
                delattr(value, field.name)
            assert_frozen(getattr(value, field.name))
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, "another", 1)  # noqa: B010
    elif isinstance(value, dict | list):
        for change in _CHANGES[dict if isinstance(value, dict) else list]:
            with pytest.raises(TypeError, match="make a new message"):
                change(value)
        for item in value.values() if isinstance(value, dict) else value:
            assert_frozen(item)
    elif isinstance(value, tuple):
        for item in value:
            assert_frozen(item)
    else:
        assert value is None or isinstance(value, str | bytes | int | float)


@settings(deadline=None)
@given(messages)
def test_nothing_in_a_message_can_be_changed(message: Message) -> None:
    before = exact(message)
    assert_frozen(message)
    assert exact(message) == before


def test_a_message_does_not_follow_what_it_was_made_of() -> None:
    inner, listed = {"a": [1]}, [TextPart("a")]
    message = U(listed, metadata={"inner": inner})
    inner["a"].append(2)
    listed.append(TextPart("b"))
    assert message == U((TextPart("a"),), metadata={"inner": {"a": [1]}})
    assert dict(message.metadata) == {"inner": {"a": [1]}}


# --- equality ---------------------------------------------------------------------------------------------------------

FULL = A(
    "a", reasoning="r", refusal="x", tool_calls=(ToolCall("k", "f", "{}"),), partial=True, name="n", metadata={"k": [1]}
)


@pytest.mark.parametrize(
    "change",
    [
        {"content": "b"}, {"content": (TextPart("a"),)}, {"reasoning": None}, {"refusal": None}, {"tool_calls": ()},
        {"tool_calls": (ToolCall("k", "f", "{ }"),)}, {"partial": False}, {"name": None}, {"metadata": {"k": [2]}},
    ],
    ids=str,
)  # fmt: skip
def test_every_field_counts(change: dict[str, Any]) -> None:
    assert replace(FULL) == FULL
    assert replace(FULL, **change) != FULL


def test_messages_of_two_roles_are_never_equal() -> None:
    made = [S("a"), U("a"), A("a"), ToolMessage("a", tool_call_id="k")]
    assert [type(message) for message in made] == list(MESSAGE_TYPES)
    assert len(set(made)) == 4


# --- what is refused, and what the error says of it -------------------------------------------------------------------

untyped: Any = messages_module
CANARY = "canary-7c1f"
LONE = "\ud800"


def refused(make: Callable[[], object], error: type[Exception], *named: str) -> None:
    """It is refused, the error names the fields, and neither it nor its traceback shows the content."""
    with pytest.raises(error) as caught:
        make()
    message = str(caught.value)
    for name in named:
        assert f"`{name}" in message, message
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert CANARY not in shown, shown


class Odd:
    def __repr__(self) -> str:
        return CANARY


@pytest.mark.parametrize("kind", [S, U, A, lambda content, **more: ToolMessage(content, tool_call_id="k", **more)])
@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"content": LONE + CANARY}, "content"),
        ({"content": None}, "content"),
        ({"content": {CANARY}}, "content"),
        ({"content": b"canary-7c1f"}, "content"),
        ({"content": ()}, "content"),
        ({"content": [CANARY]}, "content"),
        ({"content": [TextPart("a"), {"type": CANARY}]}, "content"),
        ({"content": "a", "name": 7}, "name"),
        ({"content": "a", "name": LONE + CANARY}, "name"),
        ({"content": "a", "metadata": {"k": {CANARY}}}, "metadata"),
        ({"content": "a", "metadata": {"k": [1, Odd()]}}, "metadata"),
        ({"content": "a", "metadata": {"k": float("nan")}}, "metadata"),
        ({"content": "a", "metadata": {"k": float("-inf")}}, "metadata"),
        ({"content": "a", "metadata": {"k": LONE + CANARY}}, "metadata"),
        ({"content": "a", "metadata": {LONE + CANARY: 1}}, "metadata"),
        ({"content": "a", "metadata": {1: CANARY}}, "metadata"),
        ({"content": "a", "metadata": [CANARY]}, "metadata"),
        ({"content": "a", "metadata": CANARY}, "metadata"),
        ({"content": "a", "unknown": CANARY}, "unknown"),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_what_cannot_be_kept_is_refused_without_showing_it(kind: Any, given_: dict[str, Any], field: str) -> None:
    refused(lambda: kind(**given_), MessageError, field)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: untyped.ToolMessage(CANARY), ["tool_call_id"]),  # report B162
        (lambda: untyped.ToolMessage(CANARY, tool_call_id=""), ["tool_call_id"]),
        (lambda: untyped.ToolMessage(CANARY, tool_call_id="k", structured={1, 2}), ["structured"]),
        (lambda: untyped.ToolMessage(CANARY, tool_call_id="k", is_error="yes"), ["is_error"]),
        (lambda: untyped.AssistantMessage(CANARY, tool_calls=[{"id": CANARY}]), ["tool_calls"]),
        (lambda: untyped.AssistantMessage(CANARY, partial=1), ["partial"]),
        (lambda: untyped.AssistantMessage(CANARY, role="user"), ["role"]),
        (lambda: untyped.ToolCall("", CANARY), ["id"]),
        (lambda: untyped.ToolCall("k", CANARY, {"a": CANARY}), ["arguments"]),
        (lambda: untyped.ToolCall("k", "f", LONE + CANARY), ["arguments"]),
        (lambda: untyped.ImagePart(), ["url"]),
        (lambda: untyped.ImagePart(CANARY, data=b"x", media_type="image/png"), ["data"]),
        (lambda: untyped.ImagePart(data=CANARY.encode()), ["media_type"]),
        (lambda: untyped.ImagePart(data=CANARY, media_type="image/png"), ["data"]),
        (lambda: untyped.AudioPart(data=CANARY.encode()), ["media_type"]),
        (lambda: untyped.FilePart(CANARY, file_id=CANARY), ["file_id"]),
        (lambda: untyped.TextPart(LONE + CANARY), ["text"]),
        (lambda: untyped.Usage(-1), ["input_tokens"]),
        (lambda: untyped.Usage("3"), ["input_tokens"]),
        (lambda: untyped.Usage(1.5), ["input_tokens"]),
        (lambda: untyped.Usage(True), ["input_tokens"]),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_B162_values_of_the_wrong_kind_are_refused_by_name(make: Callable[[], object], named: list[str]) -> None:
    refused(make, MessageError, *named)


@pytest.mark.parametrize(
    "stored",
    [
        "", CANARY, b"\xff", "null", "[]", f'"{CANARY}"', "{}",
        json.dumps({"role": CANARY, "content": CANARY}), {"role": "user"}, {"role": CANARY, "content": "x"},
        {"role": "user", "content": [{"type": CANARY, "text": CANARY}]}, {"role": "user", "content": [{"text": CANARY}]},
        {"role": "user", "content": {"a": CANARY}}, {"role": "user", "content": {CANARY}},
        {"role": "tool", "content": CANARY}, {"role": "assistant", "tool_calls": [{"id": CANARY}]},
        {"role": "user", "content": "x", "metadata": {"k": float("nan")}}, {"role": "user", "content": LONE + CANARY},
        '{"role":"user","content":"\\ud800"}', '{"role":"user","content":"' + LONE + '"}',
        {"role": "user", "content": Odd()}, {"role": "user", "content": [{"type": "image", "data": f"{CANARY}!"}]},
        '{"role":"user","content":"x","metadata":' + '{"a":' * 300 + "1" + "}" * 301,
    ],
    ids=lambda value: ascii(value)[:60],
)  # fmt: skip
def test_what_is_no_stored_message_is_a_clear_error(stored: Any) -> None:
    refused(lambda: load_message(stored), MessageError, "message")


@pytest.mark.parametrize("depth", [1, 99])
def test_what_can_be_made_can_also_be_loaded(depth: int) -> None:
    nested: Any = 1
    for place in range(depth):
        nested = [nested] if place % 2 else {"k": nested}
    message = U("x", metadata={"k": nested})
    assert load_message(dump_message(message)) == message


@pytest.mark.parametrize("number", [2**64, -(10**3900), 1e308, -0.0])
def test_numbers_come_back_as_they_were(number: float) -> None:
    assert repr(load_message(dump_message(U("x", metadata={"k": number}))).metadata["k"]) == repr(number)


def test_a_number_that_could_not_be_loaded_is_refused() -> None:
    for number in (10**4300, -(10**5000)):
        refused(lambda number=number: U("x", metadata={"k": [number]}), MessageError, "metadata")


def test_what_is_nested_too_deep_is_refused() -> None:
    nested: Any = CANARY
    for _ in range(150):
        nested = [nested]
    refused(lambda: U("x", metadata={"k": nested}), MessageError, "metadata")


@pytest.mark.parametrize(
    ("stored", "path"),
    [
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "content.0.text"),
        ({"role": "user", "content": [{"type": "odd"}]}, "content.0"),
        ({"role": "assistant", "tool_calls": [{"id": "k"}]}, "tool_calls.0.name"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "user", "content": 7}, "content"),
    ],
    ids=str,
)
def test_the_error_names_the_place(stored: dict[str, Any], path: str) -> None:
    refused(lambda: load_message(stored), MessageError, f"{path}`")


# --- prompts ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_a_text_a_message_or_messages() -> None:
    assert to_messages("hi") == to_messages(U("hi")) == to_messages([U("hi")]) == to_messages(iter([U("hi")])) == (U("hi"),)


@pytest.mark.parametrize(
    "prompt", ["", "  ", None, 7, [], {}, {"role": "user"}, [U("a"), "b"], [None], b"hi", [{"role": CANARY}]]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    refused(lambda: to_messages(prompt), InvalidInputError)


# --- what a message tells of itself -----------------------------------------------------------------------------------


def test_text_is_that_of_the_text_parts() -> None:
    assert U((TextPart("a"), ImagePart("http://x.test/i"), TextPart("b"))).text == "ab"
    assert A((RefusalPart("no"),)).text == ""


@pytest.mark.parametrize(
    ("message", "blank"),
    [
        (A(), True), (A(" \n"), True), (A("", reasoning="hm"), True), (A((TextPart(" "),)), True),
        (A("a"), False), (A("", refusal="no"), False), (A("", tool_calls=(ToolCall("k", "f"),)), False),
        (A((ImagePart("http://x.test/i"),)), False), (A((RefusalPart("no"),)), False),
    ],
    ids=str,
)  # fmt: skip
def test_a_blank_answer_is_one_that_providers_refuse(message: AssistantMessage, blank: bool) -> None:
    assert message.is_blank is blank


@pytest.mark.parametrize(
    ("arguments", "parsed"), [("{}", {}), ("", {}), (" \n", {}), ("null", {}), ('{"a": {"b": [1.0]}}', {"a": {"b": [1.0]}})]
)
def test_arguments_are_parsed(arguments: str, parsed: dict[str, Any]) -> None:
    assert ToolCall("k", "f", arguments).parsed() == parsed


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "5", "true", '{"a":1}{"b":2}', '{"canary-7c1f', "[" * 100_000])
def test_arguments_that_are_no_object_are_refused_by_name(arguments: str) -> None:
    refused(ToolCall("k7", "look", arguments).parsed, ToolArgumentsError, "look", "k7")


# --- usage ------------------------------------------------------------------------------------------------------------

counter = st.none() | st.integers(0, 1000)
usages = st.builds(Usage, counter, counter, cached_tokens=counter, reasoning_tokens=counter)


def test_a_total_that_is_not_told_is_the_sum() -> None:
    assert Usage(12, 5) == Usage(12, 5, 17)
    assert Usage(12, 5, 20).total_tokens == 20
    assert (Usage(12).total_tokens, Usage().total_tokens) == (None, None)


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        (Usage(10, 20, 30), Usage(1, 2, 3), Usage(11, 22, 33)),
        (Usage(10, 2, cached_tokens=4), Usage(20, 3), Usage(30, 5, cached_tokens=4)),
        (Usage(10, 2), Usage(), Usage(10, 2)),
        (Usage(10, 2), Usage(3), Usage(13, 2, 15)),
        (Usage(10, 2, 20), Usage(3), Usage(13, 2, 23)),
        (Usage(None, None, 7), Usage(1, 1), Usage(1, 1, 9)),
        (Usage(), Usage(), Usage()),
    ],
    ids=str,
)
def test_usages_are_added_counter_by_counter(one: Usage, other: Usage, total: Usage) -> None:
    assert one + other == other + one == total


@settings(deadline=None)
@given(usages, usages, usages)
def test_addition_does_not_depend_on_order(one: Usage, two: Usage, three: Usage) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == Usage() + one


@settings(deadline=None)
@given(usages, usages)
def test_a_later_report_never_erases_and_never_adds(first: Usage, later: Usage) -> None:
    known = first.updated(later)
    for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
        mine, theirs = getattr(first, name), getattr(later, name)
        assert getattr(known, name) == (theirs or mine if mine is not None else theirs)
    assert known.updated(known) == known
