"""Case data becomes our values. Every key must be taken: one that nobody asks for fails the case."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import advisorchain.advisor as advisor_module
from advisorchain.exchange import ChatChunk, ChatResponse, ToolCallChunk
from advisorchain.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

_MISSING: Any = object()
_SHORT = {"u": UserMessage, "a": AssistantMessage, "s": SystemMessage}

# what providers and upstream call the counters, and what we call them
_COUNTERS = {
    "prompt": "input_tokens",
    "input": "input_tokens",
    "prompt_tokens": "input_tokens",
    "input_tokens": "input_tokens",
    "completion": "output_tokens",
    "output": "output_tokens",
    "completion_tokens": "output_tokens",
    "output_tokens": "output_tokens",
    "total": "total_tokens",
    "total_tokens": "total_tokens",
    "cached": "cached_tokens",
    "cached_tokens": "cached_tokens",
    "reasoning": "reasoning_tokens",
    "reasoning_tokens": "reasoning_tokens",
}


class UnknownInCaseError(AssertionError):
    """The runner does not know an operation or a key, so it cannot say that the case holds."""


class Fields:
    """A dict of a case whose keys are taken one by one; leaving with one that was not taken fails the case."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise UnknownInCaseError(f"{where} is a {type(data).__name__}, not an object")
        self._left = dict(data)
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str, default: Any = _MISSING) -> Any:
        value = self._left.pop(key, default)
        if value is _MISSING:
            raise UnknownInCaseError(f"{self.where} has no `{key}`")
        return value

    def put(self, more: Mapping[str, Any]) -> None:
        self._left.update(more)

    def take_matching(self, pattern: str) -> list[tuple[re.Match[str], Any]]:
        found = [(match, key) for key in self._left if (match := re.fullmatch(pattern, key))]
        return [(match, self._left.pop(key)) for match, key in found]

    def end(self) -> None:
        if self._left:
            raise UnknownInCaseError(f"{self.where}: unknown {', '.join(f'`{key}`' for key in self._left)}")

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.end()


def messages_of(data: Any) -> Any:
    """A list of messages; what is no list, and a null in a list, stays as it is, for the library to refuse."""
    if not isinstance(data, Sequence) or isinstance(data, str):
        return data
    return [message for item in data for message in ([None] if item is None else _several(item))]


def message_of(data: Any) -> Any:
    """One message; null stays null."""
    if data is None:
        return None
    (message,) = _several(data)
    return message


def _several(data: Any) -> list[Message]:
    """The messages that one of a case stands for: upstream has several tool results in one."""
    if isinstance(data, str):
        return [_SHORT.get(data[:1], UserMessage)(data)]
    with Fields(data, "message") as fields:
        if "responses" not in fields:
            return [_message(fields)]
        role, metadata = fields.take("role", "tool"), fields.take("metadata", None) or {}
        assert role == "tool", f"`responses` in a message of role {role}"
        assert not fields.take("text", ""), "a message with `responses` has no text beside theirs"
        return [
            _message(Fields({"role": role, "metadata": metadata, **one}, "response")) for one in fields.take("responses")
        ]


def _message(fields: Fields) -> Message:
    role = fields.take("role", "user")
    text = fields.take("text", None) if "text" in fields else fields.take("content", "")
    more: dict[str, Any] = {"metadata": fields.take("metadata", None) or {}, "name": fields.take("name", None)}
    media = fields.take("media", None) or ()
    if role == "assistant":
        more["tool_calls"] = tuple(_tool_call(call) for call in fields.take("tool_calls", None) or ())
        more["reasoning"], more["refusal"] = fields.take("reasoning", None), fields.take("refusal", None)
        text = "" if text is None else text
    if role == "tool":
        more["tool_call_id"] = fields.take("tool_call_id", None)
        more["is_error"] = fields.take("is_error", False)
    fields.end()
    content = (*([TextPart(text)] if text else []), *(_part(item) for item in media)) if media else text
    types: dict[str, Any] = {
        "system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage,
    }  # fmt: skip
    if role not in types:
        raise UnknownInCaseError(f"message: unknown role `{role}`")
    return types[role](content, **more)


def _tool_call(data: Any) -> ToolCall:
    with Fields(data, "tool call") as fields:
        return ToolCall(fields.take("id"), fields.take("name", "f"), fields.take("arguments", "{}"))


def _part(data: Any) -> Part:
    with Fields(data, "media") as fields:
        mime, name, encoded = fields.take("mime", None), fields.take("name", None), fields.take("data_base64", None)
        data = None if encoded is None else base64.b64decode(encoded, validate=True)
        where: dict[str, Any] = {"url": fields.take("uri", None), "data": data, "media_type": mime}
        kind = (mime or "").partition("/")[0]
        if kind in ("image", "audio") and name is None:
            return ImagePart(**where) if kind == "image" else AudioPart(**where)
        return FilePart(**where, name=name)


def usage_of(data: Any) -> Usage | None:
    """A triple of prompt, completion and total, or an object."""
    if data is None:
        return None
    if isinstance(data, Mapping):
        unknown = [key for key in data if key not in _COUNTERS]
        if unknown:
            raise UnknownInCaseError(f"usage: unknown `{unknown[0]}`")
        return Usage(**{_COUNTERS[key]: value for key, value in data.items()})
    prompt, completion, total = data
    return Usage(prompt, completion, total)


def chunks_of(data: Iterable[Any]) -> list[ChatChunk]:
    return [chunk_of(item) for item in data]


def chunk_of(data: Any) -> ChatChunk:
    if isinstance(data, str):
        return ChatChunk(data)
    with Fields(data, "chunk") as fields:
        _merge_generation(fields)
        metadata = dict(fields.take("metadata", None) or {})
        beside = {key: fields.take(key) for key in ("rate_limit", "id", "model") if key in fields}
        text, reasoning = fields.take("text", None), fields.take("reasoning", None)
        if metadata.pop("isThought", False):  # as this vendor's adapter would map it
            text, reasoning = None, (reasoning or "") + (text or "")
        return ChatChunk(
            text or "",
            reasoning=reasoning,
            refusal=fields.take("refusal", None),
            tool_calls=tuple(_piece(item) for item in fields.take("tool_calls", None) or ()),
            finish_reason=fields.take("finish_reason", None),
            usage=usage_of(fields.take("usage", None)),
            metadata={**metadata, **beside} or None,
        )


def _merge_generation(fields: Fields) -> None:
    """`generations` with none is a chunk without a choice; of several there is no such thing here."""
    without_choice = fields.take("no_choice", False)
    generations = fields.take("generations", None)
    if without_choice or generations == []:
        assert "text" not in fields, "a chunk without a choice has no text"
    elif generations is not None:
        fields.put(the_only(generations))


def the_only(generations: Sequence[Any]) -> Mapping[str, Any]:
    """The one generation; the library refuses several in its own words."""
    if len(generations) > 1:
        ChatResponse(generations)
    only = generations[0]
    return {"text": only} if isinstance(only, str) else only


def _piece(data: Any) -> ToolCallChunk:
    with Fields(data, "tool call piece") as fields:
        return ToolCallChunk(*(fields.take(key, None) for key in ("index", "id", "name", "arguments")))


def number_of(value: Any) -> Any:
    """`HIGHEST_PRECEDENCE+200` is arithmetic; anything else stays what it is."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([A-Z_]+)\s*(?:([+-])\s*(\d+))?\s*", value)
    if match is None or not hasattr(advisor_module, match[1]):
        raise UnknownInCaseError(f"`{value}` is no order")
    return getattr(advisor_module, match[1]) + int(f"{match[2]}{match[3]}" if match[2] else 0)
