"""The shapes of content that the GenAI conventions ask for (its JSON schemas of messages), checked without mercy."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

_STRICT = ConfigDict(extra="forbid", strict=True)


class _Text(BaseModel):
    """With `refusal`, a field of ours; the conventions allow more fields."""

    model_config = _STRICT
    type: Literal["text"]
    content: str
    refusal: Literal[True] = True


class _Reasoning(BaseModel):
    model_config = _STRICT
    type: Literal["reasoning"]
    content: str


class _ToolCall(BaseModel):
    model_config = _STRICT
    type: Literal["tool_call"]
    id: str
    name: str
    arguments: Any


class _ToolResponse(BaseModel):
    model_config = _STRICT
    type: Literal["tool_call_response"]
    id: str
    response: Any


_Modality = Literal["image", "audio", "video", "document"]


class _Blob(BaseModel):
    """With `size`, a field of ours; the conventions allow more fields."""

    model_config = _STRICT
    type: Literal["blob"]
    modality: _Modality
    mime_type: str | None = None
    content: Literal[""]
    size: int


class _Uri(BaseModel):
    model_config = _STRICT
    type: Literal["uri"]
    modality: _Modality
    mime_type: str | None = None
    uri: str


class _File(BaseModel):
    model_config = _STRICT
    type: Literal["file"]
    modality: _Modality
    mime_type: str | None = None
    file_id: str


_Part = Annotated[_Text | _Reasoning | _ToolCall | _ToolResponse | _Blob | _Uri | _File, Field(discriminator="type")]


class _Message(BaseModel):
    model_config = _STRICT
    role: Literal["system", "user", "assistant", "tool"]
    parts: list[_Part]
    name: str | None = None


class _Output(_Message):
    role: Literal["assistant"]
    finish_reason: Literal["stop", "length", "content_filter", "tool_call", "error"] | None = None


class _Tool(BaseModel):
    model_config = _STRICT
    type: Literal["function"]
    name: str
    description: str
    parameters: dict[str, Any] | None = None
    cut: int | None = None


_SHAPES: dict[str, TypeAdapter[Any]] = {
    "gen_ai.input.messages": TypeAdapter(list[_Message]),
    "gen_ai.output.messages": TypeAdapter(list[_Output]),
    "gen_ai.system_instructions": TypeAdapter(list[_Text]),
    "gen_ai.tool.definitions": TypeAdapter(list[_Tool]),
}


def checked(attributes: dict[str, Any]) -> dict[str, Any]:
    """The content of a span, parsed, when each of it has its shape."""
    found = {name: json.loads(attributes[name], parse_constant=_refuse) for name in _SHAPES if name in attributes}
    for name, value in found.items():
        _SHAPES[name].validate_python(value)
    return found


def check_structured(attributes: dict[str, Any]) -> None:
    """The content of an event, which is structured."""
    for name, shape in _SHAPES.items():
        if name in attributes:
            shape.validate_python(json.loads(json.dumps(attributes[name], allow_nan=False)))


def _refuse(text: str) -> Any:
    raise ValueError(text)
