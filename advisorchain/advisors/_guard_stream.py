"""An answer that is shown only as far as it has been judged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from advisorchain.advisors._attempts import ShownMessages
from advisorchain.advisors._guard_rules import JudgedText, Reason, Rules
from advisorchain.aggregate import fold_chunks
from advisorchain.exchange import ChatChunk, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, RefusalPart, ToolCall

__all__ = ["GuardedAnswer"]

_ESCAPES: Final = re.compile(
    r"""(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))+"""
)  # of a JSON string; a letter may take two of them


class GuardedAnswer:
    """The answer to one request, message by message.

    Text, reasoning and the model's own refusal are judged as they come. All else of a message that could tell of it (tool
    calls, metadata, the finish reason) waits until the message has ended.

    Args:
        rules: what it is judged by.
        typed: the text is JSON, and is judged as its reader will read it, too. The rules then have to hold all of it.

    Attributes:
        reason: why it is refused; None: it is not, so far.
    """

    def __init__(self, rules: Rules, *, typed: bool = False) -> None:
        self.reason: Reason | None = None
        self._rules = rules
        self._typed = typed
        self._shown = ShownMessages()
        self._seen = False
        self._harmless: set[str] = set()
        self._begin_message()

    def _begin_message(self) -> None:
        self._texts = tuple(JudgedText(self._rules) for _ in range(3))
        self._calls: list[ToolCallChunk] = []
        self._metadata: dict[str, Any] = {}
        self._finish_reason: str | None = None

    async def take(self, chunk: ChatChunk) -> list[ChatChunk]:
        """What may be shown now that this chunk has come; nothing once there is a reason to refuse."""
        shown: list[ChatChunk] = []
        if chunk.boundary == "round":
            shown = await self._pass(ChatChunk(), last=True)
        if self.reason is None:
            if chunk.boundary is not None:
                self._begin_message()
            shown += await self._pass(chunk, last=chunk.tool_result is not None)
        if self.reason is not None:
            return []
        for each in shown:  # what is refused begins no message for a reader
            self._shown.add(each)
            self._seen = self._seen or each.shows
        return shown

    def withdrawn(self, refusal: str) -> ChatChunk:
        """The refusal, in place of what a reader has seen."""
        if not self._seen:
            return ChatChunk(refusal, finish_reason="content_filter")
        return ChatChunk(refusal, finish_reason="content_filter", boundary="attempt", withdraws=self._shown.count)

    async def end(self, response: ChatResponse) -> list[ChatChunk]:
        """What is left to be shown. Whatever the response holds that has not come in chunks is judged too."""
        shown = await self._pass(ChatChunk(), last=True)
        for message in response.turn:
            if isinstance(message, AssistantMessage) and self.reason is None:
                texts = [*_texts_of(message), *self._read(message.text)]
                await self._judge([text for text in texts if text not in self._harmless])
        return shown if self.reason is None else []

    async def _pass(self, chunk: ChatChunk, *, last: bool) -> list[ChatChunk]:
        self._calls += chunk.tool_calls
        self._keep_metadata(chunk)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        pieces = []
        for judged, piece in zip(self._texts, (chunk.text, chunk.reasoning, chunk.refusal), strict=True):
            pieces.append(await judged.take(piece or "", last=last))
            self.reason = self.reason or judged.reason
        calls, metadata, finish_reason = await self._rest() if last and self.reason is None else ((), None, None)
        text, reasoning, refusal = pieces
        passed = ChatChunk(
            text,
            reasoning=reasoning or None,
            refusal=refusal or None,
            tool_calls=calls,
            tool_result=chunk.tool_result,
            finish_reason=finish_reason,
            usage=chunk.usage,
            metadata=metadata,
            boundary=chunk.boundary,
            withdraws=chunk.withdraws,
        )
        return [passed] if text or not passed.plain else []

    def _keep_metadata(self, chunk: ChatChunk) -> None:
        if chunk.metadata:
            message = {**self._metadata.get("message", {}), **chunk.metadata.get("message", {})}
            self._metadata.update({key: value for key, value in chunk.metadata.items() if value is not None})
            if message:
                self._metadata["message"] = message

    async def _rest(self) -> tuple[tuple[ToolCallChunk, ...], dict[str, Any] | None, str | None]:
        calls, metadata, finish_reason = self._calls, self._metadata, self._finish_reason
        self._calls, self._metadata, self._finish_reason = [], {}, None
        if calls:
            folded = fold_chunks([ChatChunk(tool_calls=tuple(calls))])
            await self._judge(_arguments(call) for call in folded.message.tool_calls)
        await self._judge(self._read(self._texts[0].text))
        self._harmless |= {judged.text for judged in self._texts}
        return tuple(calls), metadata or None, finish_reason

    def _read(self, text: str) -> list[str]:
        """A typed answer's text with its escapes read, where it has any; also of JSON in a code fence, or cut off."""
        return [_ESCAPES.sub(_letters, text)] if self._typed and _ESCAPES.search(text) else []

    async def _judge(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.reason = self.reason or await self._rules.reason(text)
            self._harmless.add(text)


def _texts_of(message: AssistantMessage) -> list[str]:
    parts = message.content if isinstance(message.content, tuple) else ()
    refusals = [part.refusal for part in parts if isinstance(part, RefusalPart)]
    texts = [message.text, message.reasoning or "", message.refusal or "", *refusals]
    return [text for text in (*texts, *map(_arguments, message.tool_calls)) if text]


def _letters(escapes: re.Match[str]) -> str:
    letters: str = json.loads(f'"{escapes[0]}"')
    return letters


def _arguments(call: ToolCall) -> str:
    """A call's arguments as the tool will read them: JSON may spell any letter in another way."""
    try:
        return json.dumps(json.loads(call.arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return call.arguments
