"""Messages to and from dicts in the form of OpenAI's chat completions, which many tools and servers speak.

    from_dicts([{"role": "user", "content": "hi"}])     # -> (UserMessage("hi"),)
    to_dicts([UserMessage("hi")])                       # -> [{"role": "user", "content": "hi"}]

The form carries role, name, content, refusal, tool calls and the id of a call. It has no place for reasoning, metadata, the
partial mark, a tool's structured result and its error mark: `to_dicts` leaves them out.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from advisorchain._media import audio_format, audio_type, data_url, from_base64, with_bytes
from advisorchain._values import utf8
from advisorchain.errors import MessageError, kind_of
from advisorchain.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    checked_messages,
)

__all__ = ["from_dicts", "to_dicts"]

_Detail: TypeAlias = Literal["auto", "low", "high"] | None


def to_dicts(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """`messages` as dicts.

    Raises:
        MessageError: sound or a file by URL, for which the form has no place.
        InvalidInputError: something is no message.
    """
    return [_as_dict(message, f"messages[{place}]") for place, message in enumerate(checked_messages(tuple(messages)))]


def from_dicts(dicts: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Dicts as messages. Roles are system, developer (a system message), user, assistant and tool.

    `reasoning_content`, which some servers add to an answer, becomes the message's reasoning. Keys that say nothing about
    the message's content are ignored.

    Raises:
        MessageError: one of them is no such dict; the text names the place, never the value.
    """
    if isinstance(dicts, str | bytes | Mapping) or not isinstance(dicts, Iterable):
        raise MessageError(f"`messages` is {kind_of(dicts)}; give a list of dicts")
    return tuple(_from_dict(item, f"messages[{place}]") for place, item in enumerate(dicts))


# to dicts


def _as_dict(message: Message, path: str) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": _content_as_dict(message, f"{path}.content")}
    if message.name is not None:
        made["name"] = message.name
    if isinstance(message, ToolMessage):
        made["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        if message.refusal is not None:
            made["refusal"] = message.refusal
        if message.tool_calls:
            made["tool_calls"] = [_call_as_dict(call) for call in message.tool_calls]
    return made


def _content_as_dict(message: Message, path: str) -> Any:
    if not isinstance(message.content, str):
        return [_part_as_dict(part, f"{path}[{place}]") for place, part in enumerate(message.content)]
    if not message.content and isinstance(message, AssistantMessage) and (message.tool_calls or message.refusal):
        return None
    return message.content


def _call_as_dict(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _part_as_dict(part: Part, path: str) -> dict[str, Any]:
    part = with_bytes(part, path)
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.refusal}
    if isinstance(part, ImagePart):
        image = {"url": part.url if part.data is None else data_url(part.data, part.media_type)}
        return {"type": "image_url", "image_url": {**image, **({"detail": part.detail} if part.detail else {})}}
    if isinstance(part, AudioPart):
        data = b64encode(_bytes(part.data, path, "sound")).decode()
        return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format(part.media_type)}}
    return {"type": "file", "file": _file_as_dict(part, path)}


def _file_as_dict(part: FilePart, path: str) -> dict[str, Any]:
    name = {"filename": part.name} if part.name is not None else {}
    if part.file_id is not None:
        return {"file_id": part.file_id, **name}
    return {"file_data": data_url(_bytes(part.data, path, "a file"), part.media_type, part.name), **name}


def _bytes(data: bytes | None, path: str, what: str) -> bytes:
    if data is None:
        raise MessageError(f"`{path}` is {what} by URL, which OpenAI's form does not carry; give its bytes (`data`)")
    return data


# from dicts


def _from_dict(item: object, path: str) -> Message:
    if not isinstance(item, Mapping):
        raise MessageError(f"`{path}` is {kind_of(item)}; give a dict (of an SDK's object, `.model_dump()`)")
    role = item.get("role")
    read = _ROLES.get(role) if isinstance(role, str) else None
    if read is not None:
        return read(item, path)
    if role == "function":
        raise MessageError(f"`{path}.role` is `function`, of an old form; give role `tool` with a `tool_call_id`")
    raise MessageError(f"`{path}.role` is {_no_choice(role, _ROLES)}")


def _system(item: Mapping[str, Any], path: str) -> Message:
    return SystemMessage(_content(item, path), name=_name(item, path))


def _user(item: Mapping[str, Any], path: str) -> Message:
    return UserMessage(_content(item, path), name=_name(item, path))


def _tool(item: Mapping[str, Any], path: str) -> Message:
    call_id = _text(item.get("tool_call_id"), f"{path}.tool_call_id", blank=False)
    return ToolMessage(_content(item, path), tool_call_id=call_id, name=_name(item, path))


def _assistant(item: Mapping[str, Any], path: str) -> Message:
    for old, new in (("function_call", "`tool_calls`"), ("audio", "its transcript as `content`")):
        if item.get(old) is not None:
            raise MessageError(f"`{path}.{old}` cannot be carried; give {new}")
    calls = item.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise MessageError(f"`{path}.tool_calls` is {kind_of(calls)}; give a list of dicts")
    return AssistantMessage(
        _content(item, path) if item.get("content") else "",  # none beside tool calls or a refusal
        reasoning=_optional(item.get("reasoning_content"), f"{path}.reasoning_content"),
        refusal=_optional(item.get("refusal"), f"{path}.refusal"),
        tool_calls=tuple(_call(call, f"{path}.tool_calls[{place}]") for place, call in enumerate(calls)),
        name=_name(item, path),
    )


_ROLES: Final[dict[str, Callable[[Mapping[str, Any], str], Message]]] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}


def _call(item: object, path: str) -> ToolCall:
    call = _mapping(item, path)
    if call.get("type", "function") != "function":
        raise MessageError(f"`{path}.type` is {_no_choice(call.get('type'), ['function'])}")
    function = _mapping(call.get("function"), f"{path}.function")
    return ToolCall(
        _text(call.get("id"), f"{path}.id", blank=False),
        _text(function.get("name"), f"{path}.function.name"),
        _text(function.get("arguments"), f"{path}.function.arguments"),
    )


def _content(item: Mapping[str, Any], path: str) -> str | tuple[Part, ...]:
    content = item.get("content")
    if isinstance(content, list | tuple):
        if not content:
            raise MessageError(f"`{path}.content` is empty; give a text, or a list of parts")
        return tuple(_part(part, f"{path}.content[{place}]") for place, part in enumerate(content))
    if not isinstance(content, str):
        raise MessageError(f"`{path}.content` is {_found(content)}; give a text, or a list of parts")
    return _text(content, f"{path}.content")


def _part(item: object, path: str) -> Part:
    part = _mapping(item, path)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        raise MessageError(f"`{path}.type` is {_no_choice(kind, _PARTS)}")
    return _PARTS[kind](part.get(kind), f"{path}.{kind}")  # what a part holds stands under the name of its type


def _text_part(value: object, path: str) -> Part:
    return TextPart(_text(value, path))


def _refusal_part(value: object, path: str) -> Part:
    return RefusalPart(_text(value, path))


def _image_part(value: object, path: str) -> Part:
    image = {"url": value} if isinstance(value, str) else _mapping(value, path)  # the text alone is said, too
    url, detail = _text(image.get("url"), f"{path}.url", blank=False), cast(_Detail, image.get("detail"))
    if detail not in (None, "auto", "low", "high"):
        raise MessageError(f"`{path}.detail` is {_no_choice(detail, ['auto', 'low', 'high'])}")
    return with_bytes(ImagePart(url, detail=detail), f"{path}.url")


def _audio_part(value: object, path: str) -> Part:
    audio = _mapping(value, path)
    name = _text(audio.get("format"), f"{path}.format", blank=False)
    data = from_base64(_text(audio.get("data"), f"{path}.data"), f"{path}.data")
    return AudioPart(data=data, media_type=audio_type(name))


def _file_part(value: object, path: str) -> Part:
    file = _mapping(value, path)
    name = _optional(file.get("filename"), f"{path}.filename")
    if (file_id := _optional(file.get("file_id"), f"{path}.file_id")) is not None:
        return FilePart(file_id=file_id, name=name)
    text, place = _text(file.get("file_data"), f"{path}.file_data"), f"{path}.file_data"
    part = with_bytes(FilePart(text, name=name), place)
    return part if part.data is not None else FilePart(data=from_base64(text, place), name=name)


_PARTS: Final[dict[str, Callable[[object, str], Part]]] = {
    "text": _text_part,
    "image_url": _image_part,
    "input_audio": _audio_part,
    "file": _file_part,
    "refusal": _refusal_part,
}


# values


def _name(item: Mapping[str, Any], path: str) -> str | None:
    return _optional(item.get("name"), f"{path}.name")


def _optional(value: object, path: str) -> str | None:
    return None if value is None else _text(value, path)


def _text(value: object, path: str, *, blank: bool = True) -> str:
    if not isinstance(value, str):
        raise MessageError(f"`{path}` is {_found(value)}; give a text")
    if not value and not blank:
        raise MessageError(f"`{path}` is empty; give a text")
    try:
        return utf8(value)
    except ValueError as error:
        raise MessageError(f"`{path}`: {error}") from None


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise MessageError(f"`{path}` is {_found(value)}; give a dict")


def _found(value: object) -> str:
    return "missing" if value is None else kind_of(value)


def _no_choice(value: object, choices: Iterable[str]) -> str:
    told = ", ".join(f"`{choice}`" for choice in choices)
    return f"missing; give one of {told}" if value is None else f"none of {told}"
