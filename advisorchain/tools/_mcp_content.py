"""What an MCP server sends, as the values of this library: tools' definitions, and what a call gave back."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcp_types import Tool as ServerTool

from advisorchain.errors import AdvisorContractError, InvalidInputError, ToolError
from advisorchain.messages import AudioPart, FilePart, ImagePart, Part, TextPart
from advisorchain.options import ToolDefinition
from advisorchain.tools.base import sendable_name
from advisorchain.tools.results import ToolResult, result_of

__all__ = ["definition_of", "names_of", "result_from"]

_MOST: Final = 300  # characters of an error: a deep schema has a long path


def names_of(tools: Iterable[ServerTool]) -> dict[str, ServerTool]:
    """The tools by names that providers take: other characters become `_`, and what is then equal gets a number."""
    named: dict[str, ServerTool] = {}
    for tool in tools:
        name = wanted = sendable_name(tool.name)
        number = 1
        while name in named:
            number += 1
            name = f"{wanted[: 63 - len(str(number))]}_{number}"
        named[name] = tool
    return named


def definition_of(name: str, tool: ServerTool) -> ToolDefinition:
    """A tool, as the model is told of it.

    Raises:
        ToolError: its server says what no model can be told.
    """
    schema = {"properties": {}, **tool.input_schema, "type": "object"}
    schema.pop("$schema", None)  # says nothing to a model, and not every provider takes it
    try:
        return ToolDefinition(name, tool.description or tool.title or "", schema)
    except InvalidInputError as error:
        told = f"tool `{name}` of an MCP server cannot be told to a model: {error}"
        raise ToolError(told if len(told) <= _MOST else f"{told[:_MOST]}… (cut)") from None


def result_from(name: str, result: CallToolResult) -> ToolResult:
    """What a call gave back.

    Raises:
        ToolError: the tool failed, with what it says, or it sent what cannot be given to a model.
    """
    try:
        parts = [_part(block) for block in result.content]
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        if result.is_error:
            raise ToolError("\n".join(texts) or "it gives no reason")
        content = "\n".join(texts) if len(texts) == len(parts) else tuple(parts)
        if not parts and result.structured_content is not None:
            return result_of(name, result.structured_content)
        return result_of(name, ToolResult(content, result.structured_content))
    except (ValueError, AdvisorContractError) as error:  # bad base64, half a character, too long
        raise ToolError(f"its server sent a result that cannot be given to a model: {error}") from None


def _part(block: Any) -> Part:
    match block:
        case TextContent():
            return TextPart(block.text)
        case ImageContent():
            return ImagePart(data=b64decode(block.data, validate=True), media_type=block.mime_type)
        case AudioContent():
            return AudioPart(data=b64decode(block.data, validate=True), media_type=block.mime_type)
        case ResourceLink():
            told = [block.title or block.name, block.uri, block.mime_type, block.description]
            return TextPart(" · ".join(text for text in told if text))
        case EmbeddedResource():
            return _resource(block)
    raise ToolError(f"its server sent a {getattr(block, 'type', 'block')}, which nobody here knows")


def _resource(block: EmbeddedResource) -> Part:
    resource = block.resource
    if not isinstance(resource, BlobResourceContents):
        return TextPart(resource.text)
    data, media_type = b64decode(resource.blob, validate=True), resource.mime_type or "application/octet-stream"
    if media_type.startswith("image/"):
        return ImagePart(data=data, media_type=media_type)
    if media_type.startswith("audio/"):
        return AudioPart(data=data, media_type=media_type)
    return FilePart(data=data, media_type=media_type, name=resource.uri.rpartition("/")[2] or None)
