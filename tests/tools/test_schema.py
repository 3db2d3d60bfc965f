"""Signatures as JSON Schema, arguments as values."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from advisorchain.errors import ConfigurationError, ToolArgumentsError
from advisorchain.tools import Tool, ToolContext, as_tool, tool

if TYPE_CHECKING:
    from decimal import Decimal

CONTEXT = ToolContext(tool_name="t")


class Unit(enum.Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(BaseModel):
    name: str
    height: float = 0


@dataclasses.dataclass
class Box:
    width: int


class Range(TypedDict):
    low: int


def properties(made: Tool) -> Any:
    return made.definition.parameters["properties"]


async def ran(function: Any, arguments: str) -> Any:
    return (await as_tool(function).run(arguments, CONTEXT)).structured


def test_each_kind_of_type_is_told_as_pydantic_tells_it() -> None:
    @tool
    def search(
        text: str,
        place: Place,
        box: Box,
        range: Range,
        unit: Unit,
        order: Literal["asc", "desc"] = "asc",
        limit: Annotated[int, Field(gt=0, description="at most")] = 10,
        near: Place | None = None,
        old: Optional[int] = None,  # noqa: UP045
    ) -> None: ...

    shown = properties(search)
    assert shown["text"] == {"type": "string"}
    assert shown["order"] == {"type": "string", "enum": ["asc", "desc"], "default": "asc"}
    assert shown["limit"] == {"type": "integer", "exclusiveMinimum": 0, "default": 10, "description": "at most"}
    assert shown["near"] == {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None}
    assert shown["old"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    parameters = search.definition.parameters
    assert parameters["required"] == ["text", "place", "box", "range", "unit"]
    assert set(parameters["$defs"]) == {"Place", "Box", "Range", "Unit"}
    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False
    assert "title" not in parameters


async def test_arguments_become_values_of_these_types() -> None:
    seen: list[Any] = []

    def look(place: Place, box: Box, range: Range, unit: Unit, data: bytes, sizes: set[int], at: int | str) -> None:
        seen.extend((place, box, range, unit, data, sizes, at))

    given = {
        "place": {"name": "Oslo"},
        "box": {"width": "2"},
        "range": {"low": 1},
        "unit": "f",
        "data": "AP8=",
        "sizes": [1, 1],
        "at": "7",
    }
    await ran(look, json.dumps(given))
    assert seen == [Place(name="Oslo"), Box(2), {"low": 1}, Unit.FAHRENHEIT, b"\x00\xff", {1}, "7"]


async def test_arguments_are_read_in_the_lax_mode() -> None:
    def add(a: int, b: float, yes: bool) -> Any:
        return [a, b, yes]

    assert await ran(add, '{"a": "3", "b": "0.5", "yes": "true"}') == [3, 0.5, True]


def test_a_type_that_is_only_known_where_the_function_stands_is_found() -> None:
    class Local(BaseModel):
        x: int

    class Shop:
        class Item(BaseModel):
            y: int

        @tool
        def buy(self, item: Item, local: Local) -> None: ...

    @tool
    def take(local: Local) -> None: ...

    assert set(Shop().buy.definition.parameters["$defs"]) == {"Item", "Local"}
    assert set(take.definition.parameters["$defs"]) == {"Local"}


def test_an_annotation_that_cannot_be_resolved_is_told_when_the_tool_is_made() -> None:
    def pay(amount: Decimal) -> None: ...

    with pytest.raises(
        ConfigurationError, match=r"`amount` of tool `pay` cannot be resolved: name 'Decimal'.*TYPE_CHECKING"
    ):
        tool(pay)


def test_the_result_needs_no_annotation_that_can_be_resolved() -> None:
    def pay(amount: int) -> Decimal: ...

    assert properties(tool(pay)) == {"amount": {"type": "integer"}}


def no_annotation(x) -> None: ...


def star(*names: str) -> None: ...


def stars(**names: str) -> None: ...


class Connection: ...


def of_the_application(text: str, connection: Connection) -> None: ...


def not_for_providers(größe: int) -> None: ...


def one_alias(a: Annotated[int, Field(alias="n")], b: Annotated[int, Field(alias="n")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_annotation, "`x` of tool `no_annotation` has no annotation"),
        (star, r"tool `star` takes `\*names"),
        (stars, r"tool `stars` takes `\*\*names"),
        (of_the_application, "parameter `connection` of tool `of_the_application` has a type that a model cannot give"),
        (not_for_providers, "`größe` of tool `not_for_providers` has a name that providers refuse"),
        (one_alias, "two parameters of tool `one_alias` have one alias"),
        (max, "tool `max` has no signature"),
    ],
)
def test_a_signature_that_no_model_can_fill_is_refused(function: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        tool(function)


async def test_any_name_may_be_a_parameter() -> None:
    def odd(model_config: int, _hidden: int, copy: int, schema: int, self: int, json: int = 6) -> Any:
        return [model_config, _hidden, copy, schema, self, json]

    assert await ran(odd, '{"model_config": 1, "_hidden": 2, "copy": 3, "schema": 4, "self": 5}') == [1, 2, 3, 4, 5, 6]


async def test_positional_only_and_keyword_only_parameters() -> None:
    def mixed(a: int, /, b: int = 2, *, c: int, d: int = 4) -> Any:
        return [a, b, c, d]

    assert list(properties(tool(mixed))) == ["a", "b", "c", "d"]
    assert await ran(mixed, '{"a": 1, "c": 3}') == [1, 2, 3, 4]


async def test_an_alias_is_what_the_model_calls_it() -> None:
    def between(from_: Annotated[int, Field(alias="from")], to: int = Field(5, le=9, description="the end")) -> Any:
        return [from_, to]

    made = tool(between)
    assert properties(made)["to"] == {"type": "integer", "maximum": 9, "default": 5, "description": "the end"}
    assert await ran(made, '{"from": 1}') == [1, 5]
    assert made.values('{"from": 1}') == {"from_": 1, "to": 5}


async def test_a_default_is_each_time_as_it_was_written() -> None:
    def collect(x: int, into: list[int] = []) -> Any:  # noqa: B006
        into.append(x)
        return into

    assert await ran(collect, '{"x": 1}') == [1]
    assert await ran(collect, '{"x": 2}') == [2]


async def test_what_a_partial_has_fixed_is_hidden_from_the_model() -> None:
    def look(user: int, text: str, limit: int = 3) -> Any:
        """Look it up."""
        return [user, text, limit]

    mine = tool(functools.partial(look, 7))
    assert list(properties(mine)) == ["text", "limit"]
    assert (mine.name, mine.definition.description) == ("look", "Look it up.")
    assert await ran(mine, '{"text": "a"}') == [7, "a", 3]
    limited = tool(functools.partial(look, text="b", user=1))
    assert list(properties(limited)) == ["limit"]
    assert await ran(limited, '{"limit": 9}') == [1, "b", 9]
    with pytest.raises(ToolArgumentsError, match="unknown argument"):
        await ran(limited, '{"user": 2}')


def test_strict_asks_for_every_argument_and_has_no_defaults() -> None:
    def look(text: str, limit: int = 3) -> None: ...

    strict, plain = tool(look, strict=True).definition, tool(look).definition
    assert strict.strict is True
    assert strict.parameters["required"] == ["text", "limit"]
    assert strict.parameters["properties"]["limit"] == {"type": "integer"}
    assert plain.strict is None
    assert plain.parameters["required"] == ["text"]


def test_no_parameters_are_an_object_without_any() -> None:
    def now() -> None: ...

    assert tool(now).definition.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


GOOGLE = """Find flights.

    Only direct ones.

    Args:
        city: Where to,
            in English.
        days (int): How many.
        ctx: Not for the model.

    Returns:
        A list.
    """
NUMPY = """Find flights.

    Only direct ones.

    Parameters
    ----------
    city : str
        Where to,
        in English.
    days : int
        How many.

    Returns
    -------
    list
        A list.
    """
REST = """Find flights.

    Only direct ones.

    :param city: Where to,
        in English.
    :param int days: How many.
    :returns: A list.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_docstrings_of_each_style_describe_tool_and_arguments(docstring: str) -> None:
    def flights(city: str, days: int, limit: int, ctx: ToolContext) -> None: ...

    flights.__doc__ = docstring
    made = tool(flights)
    assert made.definition.description == "Find flights.\n\nOnly direct ones."
    assert properties(made)["city"]["description"] == "Where to,\nin English."
    assert properties(made)["days"]["description"] == "How many."
    assert "description" not in properties(made)["limit"]


def test_one_section_of_numpys_style_may_describe_several_arguments() -> None:
    def area(x: int, y: int) -> None:
        """Measure.

        Parameters
        ----------
        x, y : int
            in metres
        """

    assert {name: each["description"] for name, each in properties(tool(area)).items()} == {
        "x": "in metres",
        "y": "in metres",
    }


def test_what_the_annotation_says_goes_before_the_docstring() -> None:
    def look(text: Annotated[str, Field(description="mine")]) -> None:
        """Look.

        Args:
            text: the docstring's
        """

    assert properties(tool(look))["text"]["description"] == "mine"


@pytest.mark.parametrize("docstring", [None, "", "  ", "Say: hello", "Args:\n    :::", "-----\n-----", ":param:\n:x y z:"])
def test_no_docstring_is_an_error(docstring: str | None) -> None:
    def look(text: str) -> None: ...

    look.__doc__ = docstring
    assert properties(tool(look))["text"]["type"] == "string"


def test_a_docstring_that_the_parser_fails_on_is_told_as_it_is() -> None:
    def look(text: str) -> None: ...

    look.__doc__ = "Attributes:\n: \n    :param a b c d e: f"  # an IndexError in docstring-parser 0.18
    assert tool(look).definition.description == look.__doc__


@given(st.text())
def test_whatever_a_docstring_holds_a_tool_is_made(docstring: str) -> None:
    def look(text: str) -> None: ...

    look.__doc__ = docstring
    assert tool(look).name == "look"


BROKEN = "{" * 250_000 + "x" * 250_000


def forecast(city: str, days: int = 1, kind: Literal["short", "long"] = "short") -> Any:
    return [city, days, kind]


@pytest.mark.parametrize("arguments", ["null", "", "  \n", " null "])
async def test_tool_052_B063_null_and_blank_are_no_arguments(arguments: str) -> None:
    def now(zone: str = "utc") -> Any:
        return zone + "!"

    assert (await tool(now).run(arguments, CONTEXT)).content == "utc!"
    with pytest.raises(ToolArgumentsError, match="`city`: Field required"):
        await tool(forecast).run(arguments, CONTEXT)


@pytest.mark.parametrize(
    "arguments", ["[1]", '"x"', "5", "true", "NaN", "{", '{"city": "Os', BROKEN, "[" * 100_000], ids=lambda text: text[:9]
)
async def test_B062_B063_what_is_no_json_object_is_a_short_error_for_the_model(arguments: str) -> None:
    with pytest.raises(ToolArgumentsError, match=r"^the arguments for `forecast` are not one JSON object: ") as caught:
        await tool(forecast).run(arguments, CONTEXT)
    assert len(str(caught.value)) < 300
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_B062_wrong_arguments_are_told_by_field_and_never_by_value() -> None:
    given = {"city": {"secret": 1}, "days": "secret", "kind": "secret", "secret": 1}
    with pytest.raises(ToolArgumentsError) as caught:
        await tool(forecast).run(json.dumps(given), CONTEXT)
    said = str(caught.value)
    assert "`city`: Input should be a valid string" in said
    assert "`days`: Input should be a valid integer" in said
    assert "`kind`: Input should be 'short' or 'long'" in said
    assert "an unknown argument; it takes `city`, `days`, `kind`" in said
    assert "secret" not in said
    assert "http" not in said


async def test_a_wrong_item_is_told_by_its_path_and_of_many_only_the_first() -> None:
    def add(points: list[Box], free: dict[str, int] | None = None) -> None: ...

    with pytest.raises(ToolArgumentsError, match=r"`points.1.width`: Input should be a valid integer.*`free.*\*`:"):
        await ran(add, '{"points": [{"width": 1}, {"width": "x"}], "free": {"secret": "x"}}')
    with pytest.raises(ToolArgumentsError, match="and 490 more") as caught:
        await ran(add, json.dumps({"points": [{"width": "x"}] * 500}))
    assert len(str(caught.value)) < 3500


async def test_a_wrong_tag_of_a_union_is_not_shown() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    with pytest.raises(ToolArgumentsError, match="its 'kind' is none of 'cat', 'dog'") as caught:
        await ran(feed, '{"pet": {"kind": "secret"}}')
    assert "secret" not in str(caught.value)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=4).map(json.dumps))
def test_B062_whatever_comes_is_read_or_is_this_error(arguments: str) -> None:
    try:
        values = tool(forecast).values(arguments)
    except ToolArgumentsError:
        return
    assert set(values) == {"city", "days", "kind"}


async def test_the_context_is_filled_in_and_not_told() -> None:
    seen: list[Any] = []

    def with_it(ctx: ToolContext, text: str) -> None:
        seen.append(ctx)

    def perhaps(text: str, *, ctx: ToolContext | None = None) -> None:
        seen.append(ctx)

    def annotated(text: str, ctx: Annotated[Optional[ToolContext], "the call"]) -> None:  # noqa: UP045
        seen.append(ctx)

    for function in (with_it, perhaps, annotated):
        made = tool(function)
        assert list(properties(made)) == ["text"]
        await made.run('{"text": "x"}', CONTEXT)
    assert seen == [CONTEXT] * 3
    with pytest.raises(ToolArgumentsError, match="unknown argument"):
        await ran(perhaps, '{"text": "x", "ctx": null}')
