"""Types as the form of an answer: their schema, answers as values, and answers that are still coming in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from advisorchain import AssistantMessage, ChatChunk, ChatResponse
from advisorchain.errors import ConfigurationError, ModelResponseError, OutputValidationError
from advisorchain.options import OutputSchema
from advisorchain.output import OutputType


class Address(BaseModel):
    """Where somebody lives."""

    street: str = Field(min_length=2, description="with the number")


class Person(BaseModel):
    name: str
    age: int = Field(default=3, ge=0)
    home: Address = Field(description="the first one")
    title: str | None = None


class Node(BaseModel):
    value: int
    children: list[Node] = []
    twin: Node | None = Field(None, description="the other one")


class Ring(BaseModel):
    next: Ring = Field(description="the one behind")


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@dataclass
class Point:
    x: int
    y: int


class Options(TypedDict, total=False):
    loud: bool


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        for each in schema.get(key, {}).values():
            yield from nodes(each)
    for key in ("items", "additionalProperties"):
        yield from nodes(schema.get(key))
    for each in schema.get("anyOf", ()):
        yield from nodes(each)


def plain(output_type: OutputType[Any]) -> Any:
    return json.loads(json.dumps(output_type.schema.schema))


# ---- the schema


@pytest.mark.parametrize(
    "type_",
    [Person, Node, Ring, Point, Options, list[Person], Pet, Cat | Dog | None, Literal["a", "b"], int, str, date, set[int]],
    ids=str,
)
def test_strict_modes_can_take_the_schema(type_: Any) -> None:
    schema = plain(OutputType(type_))
    assert schema["type"] == "object"
    for node in nodes(schema):
        assert not node.keys() & {"default", "oneOf", "discriminator", "minLength", "uniqueItems"}
        assert "$ref" not in node or len(node) == 1
        if "$ref" in node:
            assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])


def test_what_strict_modes_do_not_know_is_told_in_the_description() -> None:
    street = plain(OutputType(Address))["properties"]["street"]
    assert street == {"type": "string", "description": "with the number (minLength: 2)"}
    assert plain(OutputType(bytes))["properties"]["value"]["description"] == '(format: "binary")'


def test_a_reference_with_words_of_its_own_is_put_in_its_place() -> None:
    home = plain(OutputType(Person))["properties"]["home"]
    assert home["description"] == "the first one"
    assert list(home["properties"]) == ["street"]
    ring = plain(OutputType(Ring))  # once, not for ever
    assert ring["properties"]["next"]["properties"]["next"] == {"$ref": "#/$defs/Ring"}


def test_a_property_may_be_called_as_a_keyword_is() -> None:
    class Odd(BaseModel):
        default: int = 1
        properties: str
        title: str

    assert list(plain(OutputType(Odd))["properties"]) == ["default", "properties", "title"]


def test_free_keys_stay_free() -> None:
    assert plain(OutputType(dict[str, int])) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert OutputType(dict[str, int]).parse(ChatResponse('{"a": 1}')) == {"a": 1}


@pytest.mark.parametrize(
    ("type_", "name"), [(Person, "Person"), (list[int], "answer"), (Pet, "answer"), (int, "int")], ids=str
)
def test_the_name_is_that_of_the_class(type_: Any, name: str) -> None:
    assert OutputType(type_).schema.name == name
    assert OutputType(type_, name="mine").schema == OutputSchema(plain(OutputType(type_)), name="mine")


@pytest.mark.parametrize(
    "type_", [None, 5, "Nowhere", type, print, lambda: 1, Point(1, 2)], ids=lambda type_: getattr(type_, "__name__", None)
)
def test_what_is_no_type_is_refused(type_: Any) -> None:
    with pytest.raises(ConfigurationError, match="`type_` is "):
        OutputType(type_)


def test_a_name_that_providers_refuse_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"`Person` cannot be asked for: .*`name`"):
        OutputType(Person, name="a person")


# ---- whole answers

BO = '{"name": "Bo", "home": {"street": "Elm 1"}}'


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Person, BO, Person(name="Bo", home=Address(street="Elm 1"))),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Options, "{}", {}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (Pet, '{"value": {"kind": "dog"}}', Dog(kind="dog")),
        (Literal["a", "b"], '{"value": "b"}', "b"),
        (int | None, '{"value": null}', None),
        (date, '{"value": "2026-01-02"}', date(2026, 1, 2)),
    ],
    ids=str,
)
def test_an_answer_is_a_value_of_its_type(type_: Any, text: str, value: Any) -> None:
    assert OutputType(type_).parse(ChatResponse(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        f"\n {BO}\n",
        f"```json\n{BO}\n```",
        f"```\n{BO}```\n",
        f"<think>Perhaps {{}}?</think>\n\n{BO}",
        f"<think>\n</think>```json\n{BO}\n```",
    ],
)
def test_what_is_forgiven(text: str) -> None:
    assert OutputType(Person).parse(ChatResponse(text)).name == "Bo"


def test_a_fence_inside_a_text_stays() -> None:
    text = json.dumps({"value": "```py\n1\n```"})
    assert OutputType(str).parse(ChatResponse(f"```json\n{text}\n```")) == "```py\n1\n```"


@pytest.mark.parametrize(
    ("text", "said", "problem"),
    [
        ("", "the answer is empty", "the answer is empty"),
        ("secret words", "no JSON object of that form", "Invalid JSON"),
        (f"{BO} That is Bo.", "no JSON object of that form", "trailing characters"),
        ('["secret"]', "no JSON object of that form", "an object"),
        ('{"name": "Bo"}', "does not fit at `home`", "`home`: Field required"),
        ('{"name": 1, "home": {"street": "x"}}', "at `name`, `home.street`", "`home.street`: String should have"),
        ('{"name": "secret", "home": {"street": ', "no JSON object of that form", "Invalid JSON: EOF"),
    ],
)
def test_what_does_not_fit_is_told_by_field_and_without_values(text: str, said: str, problem: str) -> None:
    with pytest.raises(OutputValidationError, match=r"^no `Person`: ") as caught:
        OutputType(Person).parse(response := ChatResponse(text))
    assert said in str(caught.value)
    assert problem in caught.value.problem
    assert caught.value.response is response
    assert "secret" not in f"{caught.value}{caught.value.__cause__}"
    assert isinstance(caught.value, ModelResponseError | ValueError)


def test_a_key_that_the_model_made_up_is_not_shown_by_the_message() -> None:
    with pytest.raises(OutputValidationError, match=r"at `\*`$") as caught:
        OutputType(dict[str, int]).parse(ChatResponse('{"secret": "x"}'))
    assert "`secret`: Input should be a valid integer" in caught.value.problem


def test_only_the_first_problems_are_told() -> None:
    with pytest.raises(OutputValidationError) as caught:
        OutputType(list[int]).parse(ChatResponse(json.dumps({"value": ["x"] * 1000})))
    assert caught.value.problem.count("\n") == 9


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (ChatResponse(AssistantMessage(refusal="I will not.")), "the model refused to answer"),
        (ChatResponse("No.", finish_reason="content_filter"), "the model refused to answer"),
        (ChatResponse('{"name": "B', finish_reason="length"), "raise `max_tokens`"),
    ],
)
def test_why_an_answer_does_not_fit_is_told(response: ChatResponse, said: str) -> None:
    with pytest.raises(OutputValidationError, match=said):
        OutputType(Person).parse(response)


def test_an_answer_that_fits_is_taken_though_it_was_cut_off() -> None:
    assert OutputType(Person).parse(ChatResponse(BO, finish_reason="length")).name == "Bo"


# ---- answers that are still coming in

ANY = OutputType(dict[str, Any])
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
_texts = st.builds(
    lambda value, ascii_, indent, around: around[0] + json.dumps(value, ensure_ascii=ascii_, indent=indent) + around[1],
    st.dictionaries(st.text(), _values, max_size=5),
    st.booleans(),
    st.sampled_from([None, 2]),
    st.sampled_from([("", ""), (" \n", "\n"), ("```json\n", "\n```"), ("<think>{}</think>\n", "")]),
)


def has_grown(before: Any, after: Any) -> bool:
    """Whether `after` holds all that `before` held, and perhaps more."""
    if isinstance(before, str):
        return isinstance(after, str) and after.startswith(before)
    if isinstance(before, list):
        return isinstance(after, list) and len(after) >= len(before) and all(map(has_grown, before, after))
    if isinstance(before, dict):
        return isinstance(after, dict) and all(key in after and has_grown(item, after[key]) for key, item in before.items())
    return type(before) is type(after) and before == after


@settings(max_examples=60, deadline=None)
@given(_texts)
def test_while_the_text_grows_so_does_the_value(text: str) -> None:
    before: Any = {}
    for end in range(len(text) + 1):
        value = ANY.parse_partial(text[:end])
        if value is not None:
            assert has_grown(before, value), text[:end]
            before = value
        else:
            assert before == {}
    assert before == ANY.parse(ChatResponse(text))


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_no_text_is_too_odd_to_read(text: str) -> None:
    assert isinstance(OutputType(int).parse_partial(text) or {}, dict | int)


def test_texts_are_there_as_they_grow_numbers_when_they_are_complete() -> None:
    assert ANY.parse_partial('{"name": "B') == {"name": "B"}
    assert ANY.parse_partial('{"age": 1') == {}
    assert ANY.parse_partial('{"age": 12,') == {"age": 12}
    assert ANY.parse_partial("") is None
    assert ANY.parse_partial("[1]") is None


def test_what_was_wrapped_is_given_without_the_wrapping() -> None:
    assert OutputType(list[int]).parse_partial('{"value": [1, 2, 3') == [1, 2]
    assert OutputType(list[int]).parse_partial("{") is None


def test_a_stream_gives_the_answer_whenever_there_is_more_of_it() -> None:
    partial = OutputType(Person).partial()
    pieces = ['{"na', 'me": "B', 'o"', ", ", '"age": 1', "2}"]
    grown = [partial.add(ChatChunk(piece)) for piece in pieces]
    assert grown == [{}, {"name": "B"}, {"name": "Bo"}, None, None, {"name": "Bo", "age": 12}]


def test_an_attempt_that_is_withdrawn_begins_anew() -> None:
    partial = ANY.partial()
    assert partial.add(ChatChunk('{"a": "x"')) == {"a": "x"}
    assert partial.add(ChatChunk('{"b": 1}', boundary="attempt", withdraws=1)) == {"b": 1}


def test_reading_a_long_stream_costs_as_much_as_a_few_dozen_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(text: str) -> Any:
        nonlocal read
        read += len(text)
        return OutputType.parse_partial(ANY, text)

    partial = ANY.partial()
    monkeypatch.setattr(ANY, "parse_partial", counted, raising=False)
    text = json.dumps({"a": "x" * 20_000})
    shown = [partial.add(ChatChunk(letter)) for letter in text]
    assert read <= 66 * len(text)
    told = [value for value in shown if value is not None]
    assert len(told) > 200
    assert partial.add(ChatChunk(" ", finish_reason="stop")) in (None, {"a": "x" * 20_000})


def test_a_type_shows_its_name() -> None:
    assert repr(OutputType(Person)) == "OutputType(Person)"
    assert repr(OutputType(list[int])) == "OutputType(list[int])"
