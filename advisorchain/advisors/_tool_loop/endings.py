"""What a turn of the tool loop shows and answers, beside the answers of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisorchain.exchange import Boundary, ChatChunk, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, Part, TextPart, ToolMessage

__all__ = ["Ending", "content_of", "shown_again"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends between two answers of the model: what a stream still shows, and the response."""

    chunk: ChatChunk
    response: ChatResponse


def content_of(results: tuple[ToolMessage, ...]) -> str | tuple[Part, ...]:
    """What several tools gave back, as one answer: texts on lines of their own."""
    if all(isinstance(result.content, str) for result in results):
        return "\n".join(result.text for result in results)
    parts: list[Part] = []
    for result in results:
        parts += [TextPart(result.content)] if isinstance(result.content, str) else result.content
    return tuple(parts)


def shown_again(turn: Iterable[AssistantMessage | ToolMessage]) -> Iterator[ChatChunk]:
    """Messages that were streamed before, a chunk for each."""
    boundary: Boundary | None = None
    for message in turn:
        if isinstance(message, ToolMessage):
            yield ChatChunk(tool_result=message)
        else:
            yield _as_chunk(message, boundary)
            boundary = "round"


def _as_chunk(message: AssistantMessage, boundary: Boundary | None) -> ChatChunk:
    calls = (ToolCallChunk(place, call.id, call.name, call.arguments) for place, call in enumerate(message.tool_calls))
    return ChatChunk(
        message.text,
        reasoning=message.reasoning,
        refusal=message.refusal,
        tool_calls=tuple(calls),
        metadata={"message": message.metadata} if message.metadata else None,
        boundary=boundary,
    )
