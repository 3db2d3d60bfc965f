"""What both of OpenAI's APIs have alike: tools, the form of the answer, what a host wants back with a message, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from advisorchain.errors import InvalidInputError
from advisorchain.messages import AssistantMessage, Usage
from advisorchain.options import ChatOptions, OutputSchema, ToolDefinition

__all__ = ["check_extra", "extras_for", "extras_of", "schema_dict", "tool_choice", "tool_dict", "usage_of"]

_KEY: Final = "openai"  # in a message's metadata
_MODES: Final = ("auto", "none", "required")


def tool_dict(tool: ToolDefinition) -> dict[str, Any]:
    """A tool; `strict` only where it is told."""
    made = {
        "name": tool.name,
        "description": tool.description or None,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        "strict": tool.strict,
    }
    return {name: value for name, value in made.items() if value is not None}


def tool_choice(options: ChatOptions) -> tuple[str | None, str | None]:
    """The mode, or the name of the tool that has to be used. Without tools there is nothing to choose."""
    choice = options.tool_choice
    if choice in _MODES:
        return (choice if options.tools or choice == "required" else None), None
    return None, choice


def schema_dict(output: OutputSchema) -> dict[str, Any]:
    """The form of the answer. Strict where the schema keeps the rules of OpenAI's strict mode, which refuses others."""
    made = {"name": output.name, "schema": output.schema, "strict": _is_strict(output.schema)}
    return {**made, **({"description": output.description} if output.description else {})}


def _is_strict(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(_is_strict(each) for each in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", ())):
            return False
    return "default" not in schema and all(_is_strict(each) for each in schema.values())


def check_extra(extra: Mapping[str, Any]) -> None:
    """Refuse what would change the form of the answer into one that is not read.

    Raises:
        InvalidInputError: one of them is there.
    """
    if extra.get("n", 1) != 1:
        raise InvalidInputError("`options.extra` has `n`, but one answer is read; leave it out, and ask several times")
    if "audio" in (extra.get("modalities") or ()):
        raise InvalidInputError("`options.extra` asks for sound (`modalities`), but text is read; leave it out")
    for name, instead in (("stream", "`call` or `stream`"), ("background", "a task of your own")):
        if name in extra:
            raise InvalidInputError(f"`options.extra` has `{name}`; leave it out, and use {instead}")


def extras_for(host: str, extras: Mapping[str, Any]) -> dict[str, Any]:
    """A chunk's metadata for what has to be sent back to this host with the message."""
    return {"message": {_KEY: {"host": host, **extras}}} if extras else {}


def extras_of(message: AssistantMessage, host: str) -> Mapping[str, Any]:
    """What has to be sent back with a message; nothing, if it came from another host, which others do not understand."""
    extras = message.metadata.get(_KEY)
    return extras if isinstance(extras, Mapping) and extras.get("host") == host else {}


def usage_of(report: Mapping[str, Any] | None, sent: str, answered: str) -> Usage | None:
    """The usage that an answer reports; `sent` and `answered` are what the API calls the two sides."""
    if not report:
        return None
    of_sent, of_answered = (report.get(f"{side}_tokens_details") or {} for side in (sent, answered))
    return Usage(
        _count(report, f"{sent}_tokens"),
        _count(report, f"{answered}_tokens"),
        _count(report, "total_tokens"),
        cached_tokens=_count(of_sent, "cached_tokens"),
        cache_write_tokens=_count(of_sent, "cache_write_tokens"),
        reasoning_tokens=_count(of_answered, "reasoning_tokens"),
    )


def _count(report: Mapping[str, Any], name: str) -> int | None:
    """A number of tokens in a report; None: it is not there."""
    number = report.get(name)
    return int(number) if isinstance(number, int | float) and number >= 0 else None
