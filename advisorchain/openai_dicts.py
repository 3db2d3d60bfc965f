"""Messages to and from dicts in the form of OpenAI's chat completions, which many tools and servers speak.

    from_dicts([{"role": "user", "content": "hi"}])     # -> (UserMessage("hi"),)
    to_dicts([UserMessage("hi")])                       # -> [{"role": "user", "content": "hi"}]

The form carries role, name, content, refusal, tool calls and the id of a call. It has no place for reasoning, metadata, the
partial mark, a tool's structured result and its error mark: `to_dicts` leaves them out.
"""

from __future__ import annotations

import binascii
import mimetypes
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import unquote_to_bytes

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

_AUDIO_FORMATS: Final = {"audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3"}  # others are named as their subtype
_Detail: TypeAlias = Literal["auto", "low", "high"] | None
_UNKNOWN_BYTES: Final = "application/octet-stream"


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


def data_url(data: bytes, media_type: str | None, name: str | None = None) -> str:
    """Bytes as a `data:` URL; a media type that is not told is guessed from the file's name."""
    kind = media_type or mimetypes.guess_type(name or "")[0] or _UNKNOWN_BYTES
    return f"data:{kind};base64,{b64encode(data).decode()}"


def audio_format(media_type: str | None) -> str:
    """What the form calls a sound's media type: "wav" for "audio/wav", "mp3" for "audio/mpeg"."""
    kind = (media_type or "").partition(";")[0].strip().lower()
    return _AUDIO_FORMATS.get(kind) or kind.partition("/")[2]


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
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.refusal}
    if isinstance(part, ImagePart):
        image = {"url": part.url if part.data is None else data_url(part.data, part.media_type)}
        return {"type": "image_url", "image_url": {**image, **({"detail": part.detail} if part.detail else {})}}
    if isinstance(part, AudioPart):
        data, media_type = _sound(part, path)
        return {"type": "input_audio", "input_audio": {"data": b64encode(data).decode(), "format": audio_format(media_type)}}
    return {"type": "file", "file": _file_as_dict(part, path)}


def _sound(part: AudioPart, path: str) -> tuple[bytes, str | None]:
    if part.data is not None:
        return part.data, part.media_type
    if part.url is not None and _is_data_url(part.url):
        return _read_data_url(part.url, path)
    raise MessageError(f"`{path}` is sound by URL, which OpenAI's form does not carry; give its bytes (`data`)")


def _file_as_dict(part: FilePart, path: str) -> dict[str, Any]:
    name = {"filename": part.name} if part.name is not None else {}
    if part.file_id is not None:
        return {"file_id": part.file_id, **name}
    if part.data is not None:
        return {"file_data": data_url(part.data, part.media_type, part.name), **name}
    if part.url is not None and _is_data_url(part.url):
        return {"file_data": part.url, **name}
    raise MessageError(f"`{path}` is a file by URL, which OpenAI's form does not carry; give its bytes (`data`)")


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
    if not _is_data_url(url):
        return ImagePart(url, detail=detail)
    data, media_type = _read_data_url(url, f"{path}.url")
    return ImagePart(data=data, media_type=media_type, detail=detail)


def _audio_part(value: object, path: str) -> Part:
    audio = _mapping(value, path)
    name = _text(audio.get("format"), f"{path}.format", blank=False)
    data = _base64(_text(audio.get("data"), f"{path}.data"), f"{path}.data")
    return AudioPart(data=data, media_type="audio/mpeg" if name == "mp3" else f"audio/{name}")


def _file_part(value: object, path: str) -> Part:
    file = _mapping(value, path)
    name = _optional(file.get("filename"), f"{path}.filename")
    if (file_id := _optional(file.get("file_id"), f"{path}.file_id")) is not None:
        return FilePart(file_id=file_id, name=name)
    text, place = _text(file.get("file_data"), f"{path}.file_data"), f"{path}.file_data"
    data, media_type = _read_data_url(text, place) if _is_data_url(text) else (_base64(text, place), None)
    return FilePart(data=data, name=name, media_type=media_type)


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


def _is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


def _read_data_url(url: str, path: str) -> tuple[bytes, str]:
    head, comma, payload = url[5:].partition(",")
    if not comma:
        raise MessageError(f"`{path}` is a `data:` URL without data")
    media_type, marker, _ = head.rpartition(";base64")
    if not marker:
        return unquote_to_bytes(payload), head or "text/plain"
    return _base64(payload, path), media_type or "text/plain"


def _base64(text: str, path: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MessageError(f"`{path}` is not base64") from None
