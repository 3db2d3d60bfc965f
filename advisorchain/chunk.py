"""Pieces of a streamed answer, made for every token; `advisorchain.exchange` has them beside request and response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from advisorchain._values import check_kinds, short_repr
from advisorchain.errors import InvalidInputError, kind_of
from advisorchain.messages import ToolMessage, Usage

__all__ = ["Boundary", "ChatChunk", "ToolCallChunk"]

Boundary: TypeAlias = Literal["round", "attempt"]


@dataclass(slots=True)
class ToolCallChunk:
    """A piece of a tool call, as providers stream them: a place, an id, a name, some argument text; each may be missing."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


def _checked_piece(text: object) -> str:
    if isinstance(text, str):
        return "".join((text,))  # a subclass may have methods of its own
    raise InvalidInputError(f"`text` of a chunk is {kind_of(text)}; give a text, or leave it out")


_PIECE_KINDS: Final = {"index": int, "id": str, "name": str, "arguments": str}
_CHUNK_KINDS: Final = {
    "reasoning": str,
    "refusal": str,
    "tool_calls": tuple,
    "tool_result": ToolMessage,
    "finish_reason": str,
    "usage": Usage,
    "metadata": Mapping,
}


def _check_chunk(chunk: ChatChunk) -> None:
    check_kinds(chunk, _CHUNK_KINDS)
    if chunk.metadata and not isinstance(chunk.metadata.get("message", {}), Mapping):
        raise InvalidInputError(f"`metadata['message']` of a ChatChunk is {kind_of(chunk.metadata['message'])}; give a dict")
    if chunk.boundary not in (None, "round", "attempt"):
        raise InvalidInputError('`boundary` of a ChatChunk is neither "round" nor "attempt"')
    for piece in chunk.tool_calls:
        if not isinstance(piece, ToolCallChunk):
            raise InvalidInputError(f"`tool_calls` of a ChatChunk holds {kind_of(piece)}; give ToolCallChunks")
        check_kinds(piece, _PIECE_KINDS)


@dataclass(slots=True, init=False, repr=False)
class ChatChunk:
    """A piece of an answer. Most have text alone.

    Attributes:
        text, reasoning, refusal: pieces to be appended to what came before. None is not told, "" is an empty piece.
        tool_calls: pieces of tool calls.
        tool_result: what a tool gave back, while a loop runs.
        finish_reason: why the model stopped; on one chunk of a message.
        usage: what the provider reports; a later report takes the place of an earlier one, they are not added.
        metadata: what the provider tells beside the answer; `id` and `model` become the response's own, the entries of
            `message` the message's metadata: JSON that has to be sent back with it, such as a signature.
        boundary: "round": with this chunk a new message begins. "attempt": it begins in place of what no longer counts.
        withdraws: with boundary "attempt", how many messages back no longer count.
        plain: there is nothing but text.
    """

    text: str
    reasoning: str | None
    refusal: str | None
    tool_calls: tuple[ToolCallChunk, ...]
    tool_result: ToolMessage | None
    finish_reason: str | None
    usage: Usage | None
    metadata: Mapping[str, Any] | None
    boundary: Boundary | None
    withdraws: int
    plain: bool = field(repr=False, compare=False)

    def __init__(
        self,
        text: str = "",
        reasoning: str | None = None,
        refusal: str | None = None,
        tool_calls: tuple[ToolCallChunk, ...] = (),
        tool_result: ToolMessage | None = None,
        finish_reason: str | None = None,
        usage: Usage | None = None,
        metadata: Mapping[str, Any] | None = None,
        boundary: Boundary | None = None,
        withdraws: int = 0,
    ) -> None:
        self.text = text if text.__class__ is str else _checked_piece(text)
        self.reasoning = reasoning
        self.refusal = refusal
        self.tool_calls = tool_calls
        self.tool_result = tool_result
        self.finish_reason = finish_reason
        self.usage = usage
        self.metadata = metadata
        self.boundary = boundary
        self.withdraws = withdraws
        # kept, not asked for each time: every frame that a chunk passes wants to know it
        self.plain = not tool_calls and (
            reasoning is None
            and finish_reason is None
            and usage is None
            and metadata is None
            and refusal is None
            and boundary is None
            and tool_result is None
        )

        if not self.plain:
            _check_chunk(self)

    __repr__ = short_repr

    @property
    def shows(self) -> bool:
        """Whether a reader can see something of it: usage and metadata alone may come before an answer has begun."""
        if self.text or self.reasoning or self.refusal or self.tool_calls or self.finish_reason:
            return True
        return self.tool_result is not None or self.boundary is not None

    def replace(self, *, text: str) -> ChatChunk:
        """A copy with another text."""
        return ChatChunk(
            text,
            reasoning=self.reasoning,
            refusal=self.refusal,
            tool_calls=self.tool_calls,
            tool_result=self.tool_result,
            finish_reason=self.finish_reason,
            usage=self.usage,
            metadata=self.metadata,
            boundary=self.boundary,
            withdraws=self.withdraws,
        )
