"""Templates: slots and all other braces, values put in once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import ConfigurationError, InvalidInputError
from advisorchain.prompt_template import PromptTemplate


def test_B054_values_are_put_in_once_and_not_scanned_again() -> None:
    template = PromptTemplate("Use {context}. Reply as {schema}.")
    values = {"context": "see {schema} and {x}", "schema": '{"type":"object"}'}
    assert template.render(**values) == 'Use see {schema} and {x}. Reply as {"type":"object"}.'


@pytest.mark.parametrize("text", ['{"a": {"b": 1}}', "{0}", "{user.name}", "{a b}", "{}", "{ x }", "{x!r}", "{x:>3}", "}{"])
def test_other_braces_are_text(text: str) -> None:
    template = PromptTemplate(text)
    assert template.names == ()
    assert template.render() == text


def test_names_come_once_each_in_their_order() -> None:
    template = PromptTemplate("{b} {a} {b} {größe} {self}")
    assert template.names == ("b", "a", "größe", "self")
    assert template.render(a=1, b="x", größe=0.5, self="me") == "x 1 x 0.5 me"
    assert repr(template) == "PromptTemplate('{b} {a} {b} {größe} {self}')"


def test_a_value_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidInputError, match="no value for `a`, `c`"):
        PromptTemplate("{a} {b} {c}").render(b="x")


def test_a_value_without_a_slot_is_named() -> None:
    with pytest.raises(InvalidInputError, match="no slot `c`; its slots: `a`"):
        PromptTemplate("{a}").render(a="x", c="y")


@pytest.mark.parametrize("value", [None, True, {"secret": 1}, ["secret"]])
def test_a_value_that_is_no_text_is_refused_and_not_shown(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"slot `a` is .*; give a text") as raised:
        PromptTemplate("{a}").render(a=value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "  ", None, 5])
def test_a_template_of_nothing_is_refused(text: object) -> None:
    with pytest.raises(ConfigurationError, match="`text` is"):
        PromptTemplate(text)


@given(st.lists(st.tuples(st.text(alphabet="ab{}$% "), st.sampled_from(["x", "y"])), min_size=1), st.text(), st.text())
def test_any_text_around_slots_and_any_value_stay(parts: list[tuple[str, str]], x: str, y: str) -> None:
    safe = [(before.replace("{", "{ "), name) for before, name in parts]
    text = "".join(before + "{" + name + "}" for before, name in safe)
    values = {name: value for name, value in {"x": x, "y": y}.items() if any(name == used for _, used in safe)}
    assert PromptTemplate(text).render(**values) == "".join(before + values[name] for before, name in safe)
