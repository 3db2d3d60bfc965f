"""What was said, in the shapes of the GenAI conventions: recorded only where an application asks for it.

Long texts are cut, and say how much is gone; of long conversations the newest messages are told. Of images, sound and files
there is the address, or else the size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias

from advisorchain import conventions as names
from advisorchain.exchange import ChatRequest, ChatResponse
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
)
from advisorchain.options import ToolDefinition

__all__ = ["Capture", "as_json"]

_Json: TypeAlias = dict[str, Any]

_TEXTS: Final = 16  # how many of the longest are told of a conversation
_FRAME: Final = 100  # characters that a message takes beside its text
_FINISH: Final = {"tool_calls": "tool_call", "function_call": "tool_call"}
_IN_FRONT_OF_HOST: Final = re.compile(r"(?<=://)[^/?#]*@")  # where a URL has its user and password
_LONGEST_INTEGER: Final = 18  # digits that fit into 64 bits for sure, which is all that events can carry


def as_json(value: Any) -> str:
    """JSON text that every exporter can encode."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace").decode()


class Capture:
    """Makes what is recorded of one call or stream.

    Args:
        limit: characters of a text that are kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit

    # -- a model call

    def asked(self, request: ChatRequest) -> _Json:
        """What a model is asked, structured."""
        told: _Json = {names.INPUT_MESSAGES: self._newest(_after_systems(request.messages))}
        if systems := _systems(request.messages):
            told[names.SYSTEM_INSTRUCTIONS] = [part for system in systems for part in self._parts(system.content)]
        if request.options.tools:
            told[names.TOOL_DEFINITIONS] = [self._definition(tool) for tool in request.options.tools]
        return told

    def answered(self, response: ChatResponse | None) -> _Json:
        """What it answered, structured; nothing, where nothing came."""
        if response is None:
            return {}
        said = self._message(response.message)
        if response.finish_reason:
            said["finish_reason"] = _FINISH.get(response.finish_reason, response.finish_reason)
        return {names.OUTPUT_MESSAGES: [said]}

    # -- a chain, an advisor, a tool

    def input_value(self, messages: Sequence[Message]) -> dict[str, str]:
        """What is new in what went in, for a person: the question as text, else all that came after an answer as JSON."""
        said = _after_systems(_after_answer(messages))
        if len(said) == 1 and said[0].role == "user" and isinstance(said[0].content, str):
            return {names.INPUT_VALUE: self.cut(said[0].content), names.INPUT_MIME_TYPE: "text/plain"}
        return {names.INPUT_VALUE: as_json(self._newest(said)), names.INPUT_MIME_TYPE: "application/json"}

    def output_value(self, response: ChatResponse | None) -> dict[str, str]:
        """What came out, for a person."""
        if response is None:
            return {}
        if response.text and not response.message.tool_calls:
            return {names.OUTPUT_VALUE: self.cut(response.text), names.OUTPUT_MIME_TYPE: "text/plain"}
        said = as_json(self._message(response.message))
        return {names.OUTPUT_VALUE: said, names.OUTPUT_MIME_TYPE: "application/json"}

    def cut(self, text: str) -> str:
        """A text, or its beginning and how much is gone."""
        if len(text) <= self._limit:
            return text
        return f"{text[: self._limit]}… [cut: {len(text) - self._limit} more characters]"

    def tool_result(self, result: ToolMessage) -> str:
        """What a tool gave back, as the model sees it: its text, or its parts as JSON."""
        content = result.content
        return self.cut(content) if isinstance(content, str) else as_json([self._part(part) for part in content])

    # -- pieces

    def _newest(self, messages: Sequence[Message]) -> list[_Json]:
        """The newest for which there is room; in front of them, how many are left out."""
        room, first = self._limit * _TEXTS, len(messages)
        while first and (room > 0 or first == len(messages)):
            first -= 1
            room -= self._size(messages[first])
        told = [self._message(message) for message in messages[first:]]
        if first:
            told.insert(0, {"role": "system", "parts": [_text(f"… [cut: {first} earlier messages]")]})
        return told

    def _size(self, message: Message) -> int:
        """About how many characters of it are told."""
        content = message.content
        texts = [content] if isinstance(content, str) else [getattr(part, "text", "") for part in content]
        if isinstance(message, AssistantMessage):
            texts += [message.reasoning or "", *(call.arguments for call in message.tool_calls)]
        return _FRAME * len(texts) + sum(min(len(text), self._limit) for text in texts)

    def _message(self, message: Message) -> _Json:
        told: _Json = {"role": message.role, "parts": self._all_parts(message)}
        if message.name is not None and not isinstance(message, ToolMessage):
            told["name"] = message.name
        return told

    def _all_parts(self, message: Message) -> list[_Json]:
        if isinstance(message, ToolMessage):
            return [self._result(message)]
        parts = self._parts(message.content)
        if isinstance(message, AssistantMessage):
            if message.reasoning:
                parts.insert(0, {"type": "reasoning", "content": self.cut(message.reasoning)})
            if message.refusal:
                parts.append(self._refusal(message.refusal))
            parts += [self._call(call) for call in message.tool_calls]
        return parts

    def _parts(self, content: str | tuple[Part, ...]) -> list[_Json]:
        if isinstance(content, str):
            return [_text(self.cut(content))] if content else []
        return [self._part(part) for part in content]

    def _part(self, part: Part) -> _Json:
        if isinstance(part, TextPart):
            return _text(self.cut(part.text))
        if isinstance(part, RefusalPart):
            return self._refusal(part.refusal)
        return self._media(part)

    def _refusal(self, text: str) -> _Json:
        return {"type": "text", "content": self.cut(text), "refusal": True}  # as text, or viewers show nothing

    def _media(self, part: ImagePart | AudioPart | FilePart) -> _Json:
        told: _Json = {"modality": _modality(part)}
        if part.media_type is not None:
            told["mime_type"] = part.media_type
        if isinstance(part, FilePart) and part.file_id is not None:
            return {"type": "file", **told, "file_id": part.file_id}
        if part.url is not None and not part.url.startswith("data:"):
            return {"type": "uri", **told, "uri": self.cut(_IN_FRONT_OF_HOST.sub("", part.url))}
        size = len(part.data) if part.data is not None else len(part.url or "")
        return {"type": "blob", **told, "content": "", "size": size}

    def _call(self, call: ToolCall) -> _Json:
        return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": self._arguments(call.arguments)}

    def _arguments(self, text: str) -> Any:
        """The arguments as JSON values, where that is what they are and nothing is to be cut."""
        if len(text) > self._limit:
            return self.cut(text)
        try:
            value = json.loads(text, parse_int=_small, parse_constant=_no_number)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            return text
        return value

    def _result(self, message: ToolMessage) -> _Json:
        content = message.content
        told = self.cut(content) if isinstance(content, str) else [self._part(part) for part in content]
        return {"type": "tool_call_response", "id": message.tool_call_id, "response": told}

    def _definition(self, tool: ToolDefinition) -> _Json:
        told = {"type": "function", "name": tool.name, "description": self.cut(tool.description)}
        schema = _plain(tool.parameters)
        if (size := len(as_json(schema))) > self._limit:
            return {**told, "cut": size}  # half a schema is none
        return {**told, "parameters": schema}


def _text(content: str) -> _Json:
    return {"type": "text", "content": content}


def _after_answer(messages: Sequence[Message]) -> Sequence[Message]:
    """What came after the last answer; of a prompt that ends with one, that."""
    first = max(0, len(messages) - 1)
    while first and not isinstance(messages[first - 1], AssistantMessage):
        first -= 1
    return messages[first:]


def _systems(messages: Sequence[Message]) -> list[Message]:
    return list(takewhile(lambda message: isinstance(message, SystemMessage), messages))


def _after_systems(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[len(_systems(messages)) :]


def _modality(part: ImagePart | AudioPart | FilePart) -> str:
    kind = (part.media_type or part.type).partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def _plain(value: Any) -> Any:
    """JSON values of ours, which are read-only, as dicts and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _small(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise ValueError("too large")
    return int(text)


def _no_number(text: str) -> Any:
    raise ValueError(text)
