"""Chunks become one response here, and nowhere else.

A fold keeps strings, not chunks: a long stream costs little more than its text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisorchain.errors import ModelResponseError
from advisorchain.exchange import NO_CONTEXT, ChatChunk, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, Part, TextPart, ToolCall, ToolMessage, Usage

__all__ = ["Fold", "as_chunk", "carrying", "fold_chunks", "merged_context"]


class _Call:
    """One tool call while its pieces come in."""

    __slots__ = ("arguments", "id", "index", "made_id", "name", "repeats")

    def __init__(self, piece: ToolCallChunk) -> None:
        self.index = piece.index
        self.id = ""
        self.made_id = ""  # in place of one that is missing or taken
        self.name = ""
        self.repeats = False  # some providers tell the name on every piece: it is not doubled
        self.arguments: list[str] = []
        self.add(piece)

    def add(self, piece: ToolCallChunk) -> None:
        self.id = self.id or piece.id or ""
        self.repeats = self.repeats or bool(self.name and piece.name)
        self.name = self.name or piece.name or ""
        if piece.arguments:
            self.arguments.append(piece.arguments)

    def takes(self, piece: ToolCallChunk) -> bool:
        """Whether a piece at the same place continues this call, and does not begin another one."""
        if piece.id and self.id:
            return piece.id == self.id
        if not (piece.name and self.name):
            return True
        # a name again and nothing else: no call begins so where names are repeated, or where calls have ids
        may_end = bool(self.repeats or self.id) and not (piece.arguments or "").strip()
        return piece.name == self.name and (may_end or not self._is_whole())

    def _is_whole(self) -> bool:
        last = next((piece for piece in reversed(self.arguments) if not piece.isspace()), "")
        if not last.rstrip().endswith("}"):  # most are not: the whole text is not to be parsed for each piece
            return False
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False


class _MessageFold:
    """One message while its chunks come in."""

    __slots__ = ("calls", "extras", "finish_reason", "reasoning", "refusal", "results", "text", "told", "usage")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.calls: list[_Call] = []
        self.results: list[ToolMessage] = []
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.extras: dict[str, Any] = {}  # the message's own
        self.told: dict[str, Any] = {}  # the response's: it does not count any more when this message is withdrawn

    def add_call(self, piece: ToolCallChunk) -> None:
        call = self._open_call(piece)
        if call is not None:
            call.add(piece)
        elif piece.id or piece.name or piece.arguments:
            self.calls.append(_Call(piece))

    def _open_call(self, piece: ToolCallChunk) -> _Call | None:
        """The call that a piece belongs to: by index and id, as far as they are told; without either it is the newest."""
        candidates = self.calls
        if piece.index is not None:
            candidates = [call for call in candidates if call.index == piece.index]
        if piece.id and (piece.index is None or any(call.id == piece.id for call in candidates)):
            candidates = [call for call in candidates if call.id == piece.id]
        return candidates[-1] if candidates and candidates[-1].takes(piece) else None

    def tool_calls(self) -> tuple[ToolCall, ...]:
        made: dict[str, ToolCall] = {}
        for call in self.calls:
            if not call.name:
                raise ModelResponseError(f"the model asked for a tool without naming it (call `{call.id or '?'}`)")
            call_id = call.id
            if not call_id or call_id in made:
                call_id = call.made_id = call.made_id or f"call_{secrets.token_hex(8)}"
            made[call_id] = ToolCall(call_id, call.name, "".join(call.arguments) or "{}")
        return tuple(made.values())

    def message(self, *, text: str | None = None, partial: bool = False) -> AssistantMessage:
        return AssistantMessage(
            "".join(self.text) if text is None else text,
            reasoning="".join(self.reasoning) or None,
            refusal="".join(self.refusal) or None,
            tool_calls=() if partial else self.tool_calls(),
            partial=partial,
            metadata=self.extras,
        )


class Fold:
    """Takes the chunks of an answer one by one; gives the response, or what there is of it so far.

    Attributes:
        text: the text pieces of the message that is coming in. A plain chunk may be added by appending its text here.
    """

    __slots__ = ("_earlier", "_message", "_seen", "text")

    def __init__(self) -> None:
        self._message = _MessageFold()
        self.text = self._message.text
        self._earlier: list[_MessageFold] = []
        self._seen = False

    @property
    def empty(self) -> bool:
        """Whether no chunk has come."""
        return not self._seen and not self.text

    def add(self, chunk: ChatChunk) -> None:
        """Take the next chunk. `text` is another list after one with a boundary."""
        self._seen = True
        if chunk.boundary is not None:
            self._begin_message(chunk)
        message = self._message
        if chunk.text:
            message.text.append(chunk.text)
        if chunk.reasoning:
            message.reasoning.append(chunk.reasoning)
        if chunk.refusal:
            message.refusal.append(chunk.refusal)
        for piece in chunk.tool_calls:
            message.add_call(piece)
        if chunk.tool_result is not None:
            message.results.append(chunk.tool_result)
        message.finish_reason = chunk.finish_reason or message.finish_reason
        if chunk.usage is not None:
            message.usage = chunk.usage if message.usage is None else message.usage.updated(chunk.usage)
        if chunk.metadata:
            told = {key: value for key, value in chunk.metadata.items() if value is not None}
            message.extras.update(told.pop("message", {}))
            message.told.update(told)

    def _begin_message(self, chunk: ChatChunk) -> None:
        self._earlier.append(self._message)
        if chunk.boundary == "attempt":
            del self._earlier[max(0, len(self._earlier) - chunk.withdraws) :]
        self._message = _MessageFold()
        self.text = self._message.text

    def texts(self) -> list[str]:
        """The text of each message that was streamed, the last one last."""
        return ["".join(message.text) for message in (*self._earlier, self._message)]

    def response(self) -> ChatResponse:
        """The whole response.

        Raises:
            ModelResponseError: a tool was asked for without its name.
        """
        return self._made(self._message.message(), self._finished())

    def partial(self, texts: Sequence[str] | None = None) -> ChatResponse | None:
        """What there is so far, marked as partial and without calls that have no results; None: nothing was to be seen.

        Args:
            texts: the text of each message, where something has changed it on its way.
        """
        current, earlier = self._message, self._finished(texts)
        message = current.message(text=texts[-1] if texts else None, partial=True)
        if current.results:  # its tools have run: it is a finished round, and the next message has not begun
            answered = {result.tool_call_id for result in current.results}
            calls = tuple(call for call in current.tool_calls() if call.id in answered)
            earlier = (*earlier, replace(message, partial=False, tool_calls=calls), *current.results)
            message = AssistantMessage(partial=True)
        if message.is_blank and not message.reasoning and not earlier:
            return None
        return self._made(message, earlier)

    def _finished(self, texts: Sequence[str] | None = None) -> tuple[AssistantMessage | ToolMessage, ...]:
        turn: list[AssistantMessage | ToolMessage] = []
        for place, message in enumerate(self._earlier):
            turn += [message.message(text=texts[place] if texts else None), *message.results]
        return tuple(turn)

    def _made(self, message: AssistantMessage, earlier: tuple[AssistantMessage | ToolMessage, ...]) -> ChatResponse:
        messages = (*self._earlier, self._message)
        metadata = {key: value for each in messages for key, value in each.told.items()}
        usages = [each.usage for each in messages if each.usage is not None]
        return ChatResponse(
            message,
            finish_reason=self._message.finish_reason,
            usage=sum(usages[1:], usages[0]) if usages else None,
            model=metadata.pop("model", None),
            id=metadata.pop("id", None),
            earlier=earlier,
            metadata=metadata or NO_CONTEXT,
        )


def fold_chunks(chunks: Iterable[ChatChunk]) -> ChatResponse:
    """The response that these chunks make."""
    fold = Fold()
    for chunk in chunks:
        fold.add(chunk)
    return fold.response()


def as_chunk(response: ChatResponse) -> ChatChunk:
    """A response's final message as one chunk."""
    message = response.message
    pieces = (ToolCallChunk(place, call.id, call.name, call.arguments) for place, call in enumerate(message.tool_calls))
    return ChatChunk(
        message.text,
        reasoning=message.reasoning,
        refusal=message.refusal,
        tool_calls=tuple(pieces),
        finish_reason=response.finish_reason,
        usage=response.usage,
        metadata={"message": message.metadata} if message.metadata else None,
    )


def carrying(response: ChatResponse, texts: Sequence[str]) -> ChatResponse:
    """`response` with these texts in its assistant messages.

    The last text belongs to the final message, the one before to the last assistant message of `earlier`, and so on.
    """
    turn = list(response.turn)
    places = [place for place, message in enumerate(turn) if isinstance(message, AssistantMessage)]
    for place, text in zip(reversed(places), reversed(texts), strict=False):
        message = turn[place]
        if isinstance(message, AssistantMessage) and message.text != text:
            turn[place] = _with_text(message, text)
    *earlier, final = turn
    if final is response.message and tuple(earlier) == response.earlier:
        return response
    return response.replace(message=final if isinstance(final, AssistantMessage) else ..., earlier=tuple(earlier))


def _with_text(message: AssistantMessage, text: str) -> AssistantMessage:
    if isinstance(message.content, str):
        return replace(message, content=text)
    others: list[Part] = [part for part in message.content if not isinstance(part, TextPart)]
    return replace(message, content=(TextPart(text), *others))


def merged_context(under: Mapping[str, Any], response: ChatResponse) -> ChatResponse:
    """`response` with the entries of `under` that it does not have itself."""
    if response.context is under or not under:
        return response
    return response.replace(context={**under, **response.context} if response.context else under)
