"""JSON Schemas that providers' strict modes accept, as far as a type allows it.

The rules are those of OpenAI's strict mode, the narrowest: the root is an object; every object is closed and asks for all of
its properties; no `default`; no `oneOf`; nothing beside a `$ref`. Keywords that it does not know are told in the
description, where the model reads them. What cannot be said so (an object with free keys, a tuple) is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["field_names", "strict_schema"]

_UNKNOWN_THERE: Final = (
    "contains",
    "maxContains",
    "maxLength",
    "maxProperties",
    "minContains",
    "minLength",
    "minProperties",
    "propertyNames",
    "uniqueItems",
)
_FORMATS: Final = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")
_DEFINED: Final = "#/$defs/"


def strict_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """`schema` by those rules, and whether it had to be wrapped as the property `value` of an object."""
    definitions: dict[str, Any] = schema.get("$defs", {})
    root = {key: value for key, value in schema.items() if key != "$defs"}
    if "$ref" in root:
        root = {**definitions[root["$ref"].removeprefix(_DEFINED)], **root}
        del root["$ref"]
    wrapped = root.get("type") != "object"
    if wrapped:
        root = {"type": "object", "properties": {"value": root}}
    made = _strict(root, definitions)
    if definitions:
        made["$defs"] = {name: _strict(each, definitions) for name, each in definitions.items()}
    return made, wrapped


def field_names(schema: Any) -> Iterator[str]:
    """The names of all properties in a schema."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for each in schema.values():
            yield from field_names(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from field_names(each)


def _strict(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...] = ()) -> Any:
    if not isinstance(schema, dict):  # true, false
        return schema
    made = {key: value for key, value in schema.items() if key not in ("default", "discriminator")}
    if "$ref" in made:
        return _alone(made, definitions, inside)
    _tell_what_is_unknown_there(made)
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if "properties" in made:
        made["properties"] = {name: _strict(each, definitions, inside) for name, each in made["properties"].items()}
    if made.get("type") == "object" and ("properties" in made or "additionalProperties" not in made):  # free keys stay free
        made |= {"required": list(made.setdefault("properties", {})), "additionalProperties": False}
    for key in ("items", "additionalProperties"):
        if key in made:
            made[key] = _strict(made[key], definitions, inside)
    for key in ("anyOf", "allOf", "prefixItems"):
        if key in made:
            made[key] = [_strict(each, definitions, inside) for each in made[key]]
    return made


def _alone(schema: dict[str, Any], definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """A reference without siblings: with some, what it refers to stands in its place, once on the way down."""
    name = schema["$ref"].removeprefix(_DEFINED)
    if len(schema) == 1 or name in inside or name not in definitions:
        return {"$ref": schema["$ref"]}
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return _strict({**definitions[name], **beside}, definitions, (*inside, name))


def _tell_what_is_unknown_there(schema: dict[str, Any]) -> None:
    strange = ("format",) if schema.get("format") not in (None, *_FORMATS) else ()
    told = [key for key in (*_UNKNOWN_THERE, *strange) if key in schema]
    if told:
        rules = ", ".join(f"{key}: {json.dumps(schema.pop(key), ensure_ascii=False)}" for key in told)
        schema["description"] = f"{schema.get('description', '')} ({rules})".strip()
