"""What a client asks for: the JSON of a chat completion, as messages and options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from starlette.exceptions import HTTPException

from advisorchain.errors import InvalidInputError, kind_of
from advisorchain.exchange import checked_conversation_id
from advisorchain.messages import Message
from advisorchain.openai_dicts import from_dicts
from advisorchain.options import ChatOptions, OutputSchema, ToolDefinition

__all__ = ["Asked", "read_asked"]

# Sampling goes to the options under its own name.
_SAMPLING: Final = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_READ: Final = frozenset(
    {
        *_SAMPLING,
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "stop"),
        *("tools", "tool_choice", "response_format", "metadata"),
    }
)
# These say nothing about the answer, only about OpenAI's own bookkeeping.
_IGNORED: Final = frozenset(
    {"user", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)
_INSTEAD: Final = {
    "conversation_id": "name it in `metadata.conversation_id`, or in the header `X-Conversation-Id`",
}
# Values that ask for nothing but what is done anyway.
_USUAL: Final = {"n": 1, "logprobs": False, "logit_bias": {}, "modalities": ["text"], "parallel_tool_calls": True}
# Of commas and opening brackets. Nothing else can run while JSON is read, in whatever thread: this many take 0.15 s at worst
# (nested lists) and 30 MB, where 20 MB of `[[[…]]]` took 4.5 s and 900 MB. Prose has one in 80 characters, code one in 55.
_MOST_VALUES: Final = 300_000


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a chat completion."""

    messages: tuple[Message, ...]
    options: ChatOptions
    conversation_id: str | None
    stream: bool
    include_usage: bool


def read_asked(body: bytes, *, header_id: bytes | None, model_name: str) -> Asked:
    """The request in a body. The conversation id is the header's, else `metadata.conversation_id`.

    Raises:
        InvalidInputError: it is none, or it asks for something that is not supported.
        HTTPException: 404, it asks for another model; 413, it holds too many values.
    """
    asked = _json_object(body)
    if asked.get("messages") is None:
        raise InvalidInputError("`messages` is missing; give a list with at least one")
    for name, value in asked.items():
        if not (name in _READ or name in _IGNORED or value is None or (name in _USUAL and value == _USUAL[name])):
            raise InvalidInputError(f"{_field(name)} is not supported; {_INSTEAD.get(name, 'leave it out')}")
    if asked.get("model") not in (None, model_name):
        raise HTTPException(404, f"there is no such model; the only one is `{model_name}`")
    if not asked["messages"]:
        raise InvalidInputError("`messages` is empty; give at least one")
    usage = _mapping(asked, "stream_options").get("include_usage")
    return Asked(
        messages=from_dicts(asked["messages"]),
        options=_options(asked),
        conversation_id=_conversation_id(asked, header_id),
        stream=_flag("stream", asked.get("stream")),
        include_usage=_flag("stream_options.include_usage", usage),
    )


def _json_object(body: bytes) -> dict[str, Any]:
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        raise HTTPException(413, f"the body holds more than {_MOST_VALUES} values")
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidInputError("the body is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidInputError(f"the body is {kind_of(value)}; send a JSON object")
    return value


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and infinity are not JSON")


def _field(name: str) -> str:
    """A field that nobody knows, by its name unless that is something that was said."""
    return f"`{name}`" if name.isidentifier() and len(name) <= 40 else "a field of the request"


def _flag(name: str, value: object) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidInputError(f"`{name}` is {kind_of(value)}; give true or false")


def _mapping(asked: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = asked.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise InvalidInputError(f"`{name}` is {kind_of(value)}; give an object")


def _conversation_id(asked: Mapping[str, Any], header_id: bytes | None) -> str | None:
    if header_id is not None:
        try:
            return checked_conversation_id(header_id.decode())
        except UnicodeDecodeError:
            raise InvalidInputError("the conversation id in the header is not UTF-8") from None
    told = _mapping(asked, "metadata").get("conversation_id")
    return None if told is None else checked_conversation_id(told)


def _options(asked: Mapping[str, Any]) -> ChatOptions:
    stop, most = asked.get("stop"), asked.get("max_completion_tokens")
    sampling: dict[str, Any] = {name: asked.get(name) for name in _SAMPLING}
    return ChatOptions(
        **sampling,
        max_tokens=asked.get("max_tokens") if most is None else most,
        stop=(stop,) if isinstance(stop, str) else stop or (),
        tools=_tools(asked.get("tools")),
        tool_choice=_tool_choice(asked.get("tool_choice")),
        output=_output(_mapping(asked, "response_format")),
    )


def _tools(tools: object) -> tuple[ToolDefinition, ...]:
    if not isinstance(tools, list | None):
        raise InvalidInputError(f"`tools` is {kind_of(tools)}; give a list")
    return tuple(_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools or ()))


def _tool(tool: object, path: str) -> ToolDefinition:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
        raise InvalidInputError(f'`{path}` is no function; give {{"type": "function", "function": {{…}}}}')
    told = tool["function"]
    return ToolDefinition(
        told.get("name"),
        told.get("description") or "",
        parameters=told.get("parameters") or {},
        strict=told.get("strict"),
    )


def _tool_choice(choice: Any) -> str | None:
    if choice in (None, "auto", "none", "required"):
        return None if choice is None else str(choice)
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        return str(function["name"])
    raise InvalidInputError('`tool_choice` is not supported; give "auto", "none", "required" or one function')


def _output(wanted: Mapping[str, Any]) -> OutputSchema | None:
    if wanted.get("type") in (None, "text"):
        return None
    told = wanted.get("json_schema")
    if wanted["type"] != "json_schema" or not isinstance(told, dict):
        raise InvalidInputError(
            '`response_format` is not supported; give type "text", or "json_schema" with a `json_schema`'
        )
    return OutputSchema(told.get("schema") or {}, told.get("name", ""), told.get("description"))
