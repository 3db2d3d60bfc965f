"""What tools return, as the model gets it."""

import dataclasses
import datetime
import decimal
import enum
import itertools
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from advisorchain import ImagePart, TextPart, ToolMessage
from advisorchain.errors import AdvisorContractError
from advisorchain.tools import ToolContext, ToolResult, tool
from advisorchain.tools.results import MAX_CHARACTERS, result_of

IMAGE = ImagePart(data=b"png", media_type="image/png")


class Kind(enum.Enum):
    A = "a"


class Point(BaseModel):
    x: int
    kind: Kind = Kind.A


@dataclasses.dataclass
class Box:
    points: list[Point]


def message_of(value: object) -> ToolMessage:
    """The tool message that a loop makes of it: it checks everything again."""
    result = result_of("t", value)
    return ToolMessage(result.content, tool_call_id="k1", name="t", structured=result.structured)


@pytest.mark.parametrize("text", ["12 degrees", "", "null", '{"a": 1}', "Zoë 🙂", "a\0b"])
def test_a_text_is_sent_as_it_is(text: str) -> None:
    message = message_of(text)
    assert message.content == text
    assert message.structured is None


def test_B067_dicts_and_lists_are_json_text() -> None:
    value = {"ok": True, "name": "Zoë", "none": None}
    message = message_of(value)
    assert json.loads(message.text) == value
    assert message.text == '{"ok":true,"name":"Zoë","none":null}'
    assert message.structured == value
    assert message_of([1, "é"]).content == '[1,"é"]'


def test_B068_none_is_null() -> None:
    assert result_of("t", None) == ToolResult("null", None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(x=1), {"x": 1, "kind": "a"}),
        (Box([Point(x=2)]), {"points": [{"x": 2, "kind": "a"}]}),
        ([Point(x=3)], [{"x": 3, "kind": "a"}]),
        (Kind.A, "a"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ((1, 2), [1, 2]),
        ([], []),
        (1.5, 1.5),
        (True, True),
        ([map(str, [1, 2])], [["1", "2"]]),
    ],
)
def test_other_values_are_json_by_pydantics_rules(value: object, expected: object) -> None:
    message = message_of(value)
    assert message.structured == expected
    assert json.loads(message.text) == expected


def test_B066_sets_bytes_and_keys_that_are_no_text() -> None:
    assert result_of("t", {1, 2}).structured == [1, 2]
    assert result_of("t", b"\x00\xff").content == '"AP8="'
    assert result_of("t", {1: "a", (2, 3): "b"}).content == '{"1":"a","2,3":"b"}'


@pytest.mark.parametrize("value", [[float("inf")], float("nan"), {"a": {"b": -float("inf")}}])
def test_B066_infinity_and_nan_are_an_error_since_they_are_no_json(value: object) -> None:
    with pytest.raises(AdvisorContractError, match=r"^tool `price` returned .*NaN and infinity are not JSON"):
        result_of("price", value)


def circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize("make", [circular, deep])
def test_B068_what_holds_itself_or_is_too_deep_is_an_error_that_names_the_tool(make: Any) -> None:
    with pytest.raises(
        AdvisorContractError, match=r"^tool `tree` returned a list that cannot be sent to a model: "
    ) as caught:
        result_of("tree", make())
    assert len(str(caught.value)) < 400


class Secret:
    def __repr__(self) -> str:
        return "hush"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Secret(), "a Secret that cannot be sent"),
        ({"a": [Secret()]}, "a dict that cannot be sent"),
        ("\ud800", "lone surrogate"),
        (["\ud800"], "lone surrogate"),
        ({"\ud800": 1}, "half of a character|lone surrogate"),
        ([10**5000], "4000 digits"),
        ("x" * (MAX_CHARACTERS + 1), "1000001 characters, the limit is 1000000"),
        (["x" * MAX_CHARACTERS], "1000004 characters"),
        ([IMAGE, 5], "`1` is an int"),
        (ToolResult(5), "its `content` is an int"),
        (ToolResult("x", Secret()), "a Secret is not JSON"),
        (ToolContext(tool_name="t", context={"a": "hush"}), "a ToolContext that cannot be sent"),
        ({"a": ToolContext(tool_name="t")}, "a dict that cannot be sent"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_json_form_is_an_error_without_the_value(value: object, said: str) -> None:
    with pytest.raises(AdvisorContractError, match=said) as caught:
        result_of("t", value)
    assert str(caught.value).startswith("tool `t` returned ")
    assert "hush" not in str(caught.value)


def test_a_coroutine_that_nobody_awaited_is_closed_and_named() -> None:
    async def later() -> None: ...

    with pytest.raises(AdvisorContractError, match="a coroutine"):
        result_of("t", later())


def test_parts_are_sent_as_parts_and_texts_may_stand_between() -> None:
    assert message_of(IMAGE).content == (IMAGE,)
    assert message_of([IMAGE, IMAGE]).content == (IMAGE, IMAGE)
    assert message_of(("see:", IMAGE)).content == (TextPart("see:"), IMAGE)


def test_a_tool_may_give_a_text_for_the_model_beside_data_for_the_program() -> None:
    message = message_of(ToolResult("2 rows", {"rows": [1, 2]}))
    assert message.content == "2 rows"
    assert message.structured == {"rows": [1, 2]}
    assert message_of(ToolResult([IMAGE])).content == (IMAGE,)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_B067_any_json_value_is_sent_as_json_text_of_it(value: object) -> None:
    message = message_of(value)
    assert json.loads(message.text) == value
    assert message.structured == value


@pytest.mark.parametrize("made", [lambda: itertools.count(), lambda: (each for each in "ab"), lambda: iter([1])])
async def test_an_iterator_is_refused_as_a_tool_that_yields_is(made: Callable[[], object]) -> None:
    @tool
    async def rows() -> object:
        return made()

    @tool
    def rows_in_a_thread() -> object:
        return made()

    for each in (rows, rows_in_a_thread):
        with pytest.raises(AdvisorContractError, match=f"^tool `{each.name}` yields; return a list, or one text$"):
            await each.run("{}", ToolContext(tool_name=each.name))


async def test_B066_a_tool_whose_result_cannot_be_sent_raises_by_its_name() -> None:
    @tool
    def numbers() -> list[float]:
        return [float("inf")]

    @tool
    async def later() -> object:
        return Secret()

    for made in (numbers, later):
        with pytest.raises(AdvisorContractError, match=f"^tool `{made.name}` returned"):
            await made.run("{}", ToolContext(tool_name=made.name))
