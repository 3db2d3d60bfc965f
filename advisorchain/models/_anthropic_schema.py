"""JSON Schemas to which Anthropic's API can hold a model: in its structured output and in strict tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from anthropic import transform_schema

__all__ = ["held_schema"]

_DEFINED: Final = "#/$defs/"


def held_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """`schema` as the API takes it, by the SDK's own translation: limits of numbers and lengths go into descriptions.

    None where the API has no such mode: it closes every object, so that one with keys of any name would always be empty,
    and it refuses references in a circle.
    """
    if _is_open(schema) or _is_circular(schema):
        return None
    try:
        return transform_schema(dict(schema))
    except (AssertionError, AttributeError, TypeError, ValueError):  # a schema that the translation does not know
        return None


def _is_open(schema: object) -> bool:
    if isinstance(schema, Mapping):
        free = schema.get("type") == "object" and not schema.get("properties")
        return (free and schema.get("additionalProperties") is not False) or any(map(_is_open, schema.values()))
    return isinstance(schema, list) and any(map(_is_open, schema))


def _is_circular(schema: Mapping[str, Any]) -> bool:
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    for name in definitions:
        seen: set[str] = set()
        waiting = list(_references(definitions[name]))
        while waiting:
            reference = waiting.pop().removeprefix(_DEFINED)
            if reference == name or reference not in definitions:
                return True
            if reference not in seen:
                seen.add(reference)
                waiting += _references(definitions[reference])
    return False


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)
