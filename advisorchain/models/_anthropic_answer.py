"""What Anthropic's Messages API answers: its events, or a whole message, as our chunks.

Why it stopped, in this library's words (others, such as `pause_turn`, stay as they are):

    end_turn, stop_sequence                      stop
    max_tokens, model_context_window_exceeded    length
    tool_use                                     tool_calls
    refusal                                      content_filter, with the explanation as the message's refusal
"""

from __future__ import annotations

import json
from typing import Any, Final

from anthropic import BaseModel
from anthropic.types import Message, RawContentBlockDelta, RawMessageStreamEvent

from advisorchain.exchange import ChatChunk, ToolCallChunk
from advisorchain.messages import Usage
from advisorchain.models._anthropic_blocks import KEPT, Block, kept_blocks
from advisorchain.models._provider import SurrogateJoiner

__all__ = ["AnswerReader"]

_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class AnswerReader:
    """Makes our chunks of one answer.

    What the vendor's SDK gives is not checked against its own types, so nonsense shows here, as an AttributeError,
    KeyError, TypeError or ValueError.

    Args:
        host: the server's, to which alone goes back what is kept of an answer.
    """

    def __init__(self, host: str) -> None:
        self.finished = False
        self._host = host
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[int, list[str]] = {}  # of the blocks that are coming in
        self._usage: dict[str, Any] = {}
        self._joiner = SurrogateJoiner()

    def read(self, event: RawMessageStreamEvent) -> ChatChunk | None:
        """A chunk, or None where the event tells nothing."""
        if event.type == "message_start":
            return self._started(event.message)
        if event.type == "content_block_start":
            return self._block_started(event.index, _told(event.content_block))
        if event.type == "content_block_delta":
            return self._more(event.index, event.delta)
        if event.type == "content_block_stop":
            return self._block_ended(event.index)
        if event.type == "message_delta":
            return self._ending(_told(event.delta), _told(event.usage))
        if event.type == "message_stop":
            return self._ended()
        return None

    def read_whole(self, message: Message) -> list[ChatChunk]:
        """The chunks of an answer that was not streamed."""
        chunks: list[ChatChunk | None] = [self._started(message)]
        for place, block in enumerate(message.content):
            chunks += [self._block_started(place, _told(block)), self._block_ended(place)]
        chunks += [self._ending(_told(message), {}), self._ended()]
        return [chunk for chunk in chunks if chunk is not None]

    def _started(self, message: Message) -> ChatChunk:
        self._usage = _told(message.usage)
        return ChatChunk(usage=_usage(self._usage), metadata={"id": message.id, "model": message.model})

    def _block_started(self, place: int, block: Block) -> ChatChunk | None:
        self._blocks[place] = block
        if block["type"] in ("text", "thinking"):
            said, block[block["type"]] = block[block["type"]], ""
            return self._said(place, self._joiner.feed(said))
        if block["type"] == "tool_use":
            arguments = _whole(json.dumps(block["input"], ensure_ascii=False)) if block["input"] else None
            return ChatChunk(tool_calls=(ToolCallChunk(place, block["id"], block["name"], arguments),))
        return None

    def _more(self, place: int, delta: RawContentBlockDelta) -> ChatChunk | None:
        if delta.type == "text_delta":
            return self._said(place, self._joiner.feed(delta.text))
        if delta.type == "thinking_delta":
            return self._said(place, self._joiner.feed(delta.thinking))
        if delta.type == "input_json_delta":
            return self._said(place, self._joiner.feed(delta.partial_json))
        block = self._blocks[place]
        if delta.type == "signature_delta":
            block["signature"] = delta.signature
        elif delta.type == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), _told(delta.citation)]
        return None

    def _said(self, place: int, piece: str) -> ChatChunk | None:
        """A piece of what a block says: its text, its thinking, or the input of its tool."""
        kind = self._blocks[place]["type"]
        if not piece:
            return None
        if kind == "tool_use":
            return ChatChunk(tool_calls=(ToolCallChunk(place, arguments=piece),))
        self._pieces.setdefault(place, []).append(piece)
        if kind == "text":
            return ChatChunk(piece)
        return ChatChunk(reasoning=piece) if kind == "thinking" else None

    def _block_ended(self, place: int) -> ChatChunk | None:
        chunk = self._said(place, self._joiner.flush())
        block, said = self._blocks[place], "".join(self._pieces.pop(place, ()))
        if said and block["type"] in ("text", "thinking"):
            block[block["type"]] = said
        elif said:  # a server's tool: what it is asked, as JSON
            block["input"] = json.loads(said)
        return chunk

    def _ending(self, told: dict[str, Any], usage: dict[str, Any]) -> ChatChunk:
        self._usage.update({name: count for name, count in usage.items() if count is not None})
        reason: Any = told.get("stop_reason")
        details = told.get("stop_details") or {}
        return ChatChunk(
            refusal=details.get("explanation"),
            finish_reason=_REASONS.get(reason, reason),
            usage=_usage(self._usage),
            metadata={"stop_sequence": told.get("stop_sequence"), "refusal_category": details.get("category")},
        )

    def _ended(self) -> ChatChunk | None:
        self.finished = True
        kept = kept_blocks([self._blocks[place] for place in sorted(self._blocks)])
        return None if kept is None else ChatChunk(metadata={"message": {KEPT: {"host": self._host, "blocks": kept}}})


def _whole(text: str) -> str:
    joiner = SurrogateJoiner()
    return joiner.feed(text) + joiner.flush()


def _told(value: BaseModel | None) -> dict[str, Any]:
    return {} if value is None else value.to_dict(warnings=False)


def _usage(told: dict[str, Any]) -> Usage:
    """The API counts what was written to the cache and read from it beside the other tokens of the input."""
    read, written, asked = (told.get(f"{kind}input_tokens") for kind in ("cache_read_", "cache_creation_", ""))
    return Usage(
        None if asked is None else asked + (read or 0) + (written or 0),
        told.get("output_tokens"),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=(told.get("output_tokens_details") or {}).get("thinking_tokens"),
    )
