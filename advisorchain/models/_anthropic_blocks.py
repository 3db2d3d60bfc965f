"""Messages as Anthropic's content blocks, and what has to be kept of an answer so that it can be sent back unchanged.

An answer with thinking, a server's tool or citations has its blocks in `metadata["anthropic"]`, in their order and as they
came, with the host that they came from: they go back to no other. The text is not kept twice: a text block has the length of
its part in place of it, and a tool call has no input. So an advisor that changes the text (redaction) changes what is sent
back, too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from advisorchain._media import file_type, plain_type, with_bytes
from advisorchain.errors import InvalidInputError, kind_of
from advisorchain.messages import AssistantMessage, FilePart, ImagePart, Message, Part, RefusalPart, TextPart

__all__ = ["KEPT", "THINKING", "Block", "answer_blocks", "content_blocks", "kept_blocks"]

Block: TypeAlias = dict[str, Any]

KEPT: Final = "anthropic"  # the key in an answer's metadata
THINKING: Final = ("thinking", "redacted_thinking")
_PLAIN: Final = ("text", "tool_use")
_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")


def content_blocks(message: Message) -> list[Block]:
    """A message's content; blank text, which the API refuses, is left out.

    Raises:
        InvalidInputError: a part that the API does not take.
    """
    parts = (TextPart(message.content),) if isinstance(message.content, str) else message.content
    return [block for part in parts if (block := _block(part, message.role)) is not None]


def _block(part: Part, role: str) -> Block | None:
    part = with_bytes(part)
    if isinstance(part, TextPart | RefusalPart):
        text = part.text if isinstance(part, TextPart) else part.refusal
        return _text_block(text) if text.strip() else None
    if role in ("user", "tool"):
        if isinstance(part, ImagePart):
            return {"type": "image", "source": _image_source(part)}
        if isinstance(part, FilePart):
            document = {"type": "document", "source": _document_source(part)}
            return {**document, "title": part.name} if part.name else document
    raise InvalidInputError(f"a message of role `{role}` holds {kind_of(part)}, which Anthropic's API does not take")


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def _image_source(image: ImagePart) -> dict[str, str]:
    if image.data is None:
        return {"type": "url", "url": str(image.url)}
    media_type = plain_type(image.media_type)
    if media_type not in _IMAGES:
        raise InvalidInputError(f"an image is `{media_type}`; Anthropic's API takes {', '.join(_IMAGES)}")
    return {"type": "base64", "media_type": media_type, "data": b64encode(image.data).decode()}


def _document_source(file: FilePart) -> dict[str, str]:
    if file.file_id is not None:
        return {"type": "file", "file_id": file.file_id}
    if file.data is None:
        return {"type": "url", "url": str(file.url)}
    media_type = plain_type(file_type(file.media_type, file.name))
    if media_type == "application/pdf" or file.data.startswith(b"%PDF-"):
        return {"type": "base64", "media_type": "application/pdf", "data": b64encode(file.data).decode()}
    if not media_type.startswith("text/"):
        found = f"`{media_type}`" if media_type else "of no known type; say its `media_type`"
        raise InvalidInputError(f"a file is {found}; Anthropic's API takes application/pdf and text")
    try:
        return {"type": "text", "media_type": "text/plain", "data": file.data.decode()}
    except UnicodeDecodeError:
        raise InvalidInputError("a text file is not UTF-8; encode it so") from None


def kept_blocks(blocks: Sequence[Block]) -> list[Block] | None:
    """What is kept of an answer's blocks; None where text and tool calls are all that there is."""
    if all(block["type"] in _PLAIN and not block.get("citations") for block in blocks):
        return None
    kept = []
    for block in blocks:
        hidden = {"text": "text", "tool_use": "input"}.get(block["type"])
        rest = {key: value for key, value in block.items() if key != hidden}
        kept.append({**rest, "length": len(block["text"])} if block["type"] == "text" else rest)
    return kept


def answer_blocks(message: AssistantMessage, calls: list[Block], *, host: str, thinking: bool) -> list[Block]:
    """An answer as it is sent back.

    Args:
        message: the answer.
        calls: its tool calls, as blocks.
        host: the server's.
        thinking: whether its thinking is sent with it.
    """
    told = message.metadata.get(KEPT)
    kept = told.get("blocks") if isinstance(told, Mapping) and told.get("host") == host else None
    if not isinstance(kept, list):
        said = content_blocks(message)
        if not said and message.refusal and message.refusal.strip():
            said = [_text_block(message.refusal)]
        return said + calls
    blocks: list[Block] = []
    texts, open_calls = _texts(message.text, kept), {call["id"]: call for call in calls}
    for block in kept:
        if block["type"] == "text":
            blocks += texts.pop(0)
        elif block["type"] == "tool_use":
            if (call := open_calls.pop(block["id"], None)) is not None:
                blocks.append({**block, **call})
        elif thinking or block["type"] not in THINKING:
            blocks.append(dict(block))
    return [*blocks, *(block for rest in texts for block in rest), *open_calls.values()]


def _texts(text: str, kept: Sequence[Mapping[str, Any]]) -> list[list[Block]]:
    """The text of each text block, as it was cut; all of it in the first where it was changed since. Blank: no block."""
    told = [block for block in kept if block["type"] == "text"]
    if sum(block["length"] for block in told) != len(text):
        told = [{"type": "text", "length": len(text)}, *({"type": "text", "length": 0} for _ in told[1:])]
    texts, begin = [], 0
    for block in told:
        piece = text[begin : begin + block["length"]]
        begin += block["length"]
        rest = {key: value for key, value in block.items() if key != "length"}
        texts.append([{**rest, "text": piece}] if piece.strip() else [])
    return texts
