"""Messages as the items of OpenAI's Responses API, which have no place for the name of who speaks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from advisorchain._media import audio_format, data_url, with_bytes
from advisorchain.errors import InvalidInputError
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
    ToolMessage,
)
from advisorchain.models._openai_options import extras_of

__all__ = ["BETWEEN", "message_items"]

BETWEEN: Final = "\n\n"  # stands in a text between several messages of one answer, and the paragraphs of its reasoning


def message_items(message: Message, host: str) -> list[dict[str, Any]]:
    """One message, or an answer with its calls, for the server at `host`."""
    if isinstance(message, AssistantMessage):
        return _answer_items(message, extras_of(message, host).get("items", ()))
    content = message.content if isinstance(message.content, str) else [_part(part) for part in message.content]
    if isinstance(message, ToolMessage):
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": content}]
    role = "system" if isinstance(message, SystemMessage) else "user"
    return [{"type": "message", "role": role, "content": content}]


def _answer_items(message: AssistantMessage, kept: Any) -> list[dict[str, Any]]:
    """An answer as the items that it was; what our message says now stands in them."""
    calls = {
        call.id: {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    }
    texts = _texts(message, [item["characters"] for item in kept if item["type"] == "message"])
    items: list[dict[str, Any]] = []
    for item in kept:
        if item["type"] == "message":
            items += _said(texts.pop(0), phase=item.get("phase"))
        elif item["type"] == "function_call":
            items += [call for call in [calls.pop(item["call_id"], None)] if call]
        else:
            items.append(dict(item))
    for text in texts:
        items += _said(text)
    if message.refusal:
        items.append({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": message.refusal}]})
    items += calls.values()
    while items and items[-1]["type"] == "reasoning":  # it is refused without what came of it
        items.pop()
    return items


def _texts(message: AssistantMessage, lengths: list[int]) -> list[str]:
    """The text of each message that the answer had; all of it in the last one, where it has been changed."""
    text = "".join(_plain(part) for part in message.content)
    if sum(lengths) + len(BETWEEN) * (len(lengths) - 1) != len(text):
        return [*[""] * (len(lengths) - 1), text]
    texts, begin = [], 0
    for length in lengths:
        texts.append(text[begin : begin + length])
        begin += length + len(BETWEEN)
    return texts


def _plain(part: str | Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, RefusalPart):
        return part.refusal
    raise InvalidInputError("an assistant message holds more than text, which OpenAI takes from users only")


def _said(text: str, phase: Any = None) -> list[dict[str, Any]]:
    made = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return [{**made, **({"phase": phase} if phase else {})}] if text else []


def _part(part: Part) -> dict[str, Any]:
    part = with_bytes(part)
    if isinstance(part, ImagePart):
        url = part.url if part.data is None else data_url(part.data, part.media_type)
        return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
    if isinstance(part, FilePart):
        name = {"filename": part.name} if part.name is not None else {}
        if part.data is not None:
            return {"type": "input_file", "file_data": data_url(part.data, part.media_type, part.name), **name}
        return {"type": "input_file", **({"file_id": part.file_id} if part.file_id else {"file_url": part.url}), **name}
    if isinstance(part, AudioPart):
        if part.data is None:
            raise InvalidInputError("a message holds sound by URL, which OpenAI does not take; give its bytes (`data`)")
        sound = {"data": b64encode(part.data).decode(), "format": audio_format(part.media_type)}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": "input_text", "text": _plain(part)}
