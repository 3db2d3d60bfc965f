"""What a guard looks for, and an answer that is shown only as far as it has been judged."""

from __future__ import annotations

import inspect
import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from advisorchain.advisors._held import HeldSearch, Searched
from advisorchain.aggregate import fold_chunks
from advisorchain.errors import AdvisorContractError, dropped
from advisorchain.exchange import ChatChunk, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, RefusalPart, ToolCall

__all__ = ["GuardedAnswer", "Hold", "Judge", "Rules"]

Verdict: TypeAlias = bool | str | None
Judge: TypeAlias = Callable[[str], Verdict | Awaitable[Verdict]]
Hold: TypeAlias = Literal["all", "paragraph", "sentence"]

_ENDS: Final = {  # where a unit ends; the space behind it belongs to it
    "paragraph": Searched([re.compile(r"\n[^\S\n]*\n\s*")]),
    "sentence": Searched([re.compile(r"""[.!?…]+["'”’»)\]]*\s+|[。！？]+\s*|\n\s*""")]),
}


class Rules:
    """Words, patterns and a judge. The three are asked in this order."""

    def __init__(self, words: Iterable[str], patterns: Iterable[re.Pattern[str]], judge: Judge | None, hold: Hold) -> None:
        forms = {unicodedata.normalize(form, word).casefold() for word in words for form in ("NFC", "NFD")}
        patterns = list(patterns)
        self.words: Final = Searched([re.compile("|".join(map(re.escape, sorted(forms))))]) if forms else None
        self.patterns: Final = Searched(patterns) if patterns else None
        self.judge: Final = judge
        self.ends: Final = _ENDS.get(hold)

    async def reason(self, text: str) -> str | None:
        """Why a whole text is refused; None: it is not."""
        judged = _JudgedText(self)
        await judged.take(text, last=True)
        return judged.reason

    async def verdict(self, text: str) -> str | None:
        """What the judge says about a text."""
        assert self.judge is not None
        verdict = self.judge(text)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is None or isinstance(verdict, bool | str):
            return "judge" if verdict is True else verdict or None
        raise AdvisorContractError(
            f"`judge` returned {dropped(verdict)}; return True or a reason to refuse, else False or None"
        )


class _Folded:
    """A text without its letter case, in which a word is searched for, and where its places lie in the text itself."""

    def __init__(self, words: Searched) -> None:
        self._search = HeldSearch(words)
        self._more: list[int] = []  # the places that letters take beyond their first, such as the second "s" of a folded "ß"
        self._length = 0

    def feed(self, piece: str, last: bool) -> bool:
        """Whether a word has been found."""
        folded = piece.casefold()
        if len(folded) != len(piece):
            for letters in map(str.casefold, piece):
                self._more += range(self._length + 1, self._length + len(letters))
                self._length += len(letters)
        else:
            self._length += len(folded)
        return bool(self._search.feed(folded, last=last))

    @property
    def decided(self) -> int:
        return self._search.decided - bisect_right(self._more, self._search.decided)


class _JudgedText:
    """One text that comes in pieces.

    Attributes:
        text: what has come.
        reason: why it is refused; None: it is not, so far.
    """

    __slots__ = ("_judged", "_patterns", "_rules", "_shown", "_units", "_words", "reason", "text")

    def __init__(self, rules: Rules) -> None:
        self.text = ""
        self.reason: str | None = None
        self._rules = rules
        self._words = _Folded(rules.words) if rules.words is not None else None
        self._patterns = HeldSearch(rules.patterns) if rules.patterns is not None else None
        self._units = HeldSearch(rules.ends) if rules.ends is not None else None
        self._judged = self._shown = 0

    async def take(self, piece: str, *, last: bool = False) -> str:
        """Take the next piece; gives what may be shown now."""
        if not (piece or last):
            return ""
        self.text += piece
        safe = len(self.text)
        if self._words is not None:
            self.reason = "words" if self._words.feed(piece, last) else None
            safe = min(safe, self._words.decided)
        if self._patterns is not None and self.reason is None:
            self.reason = "patterns" if self._patterns.feed(piece, last=last) else None
            safe = min(safe, self._patterns.decided)
        if self._rules.judge is not None and self.reason is None:
            await self._judge(piece, last)
            safe = min(safe, self._judged)
        if self.reason is not None:
            return ""
        shown, self._shown = self.text[self._shown : safe], safe
        return shown

    async def _judge(self, piece: str, last: bool) -> None:
        ends = [found.end for found in self._units.feed(piece, last=last)] if self._units is not None else []
        for end in [*ends, len(self.text)] if last else ends:
            unit, self._judged = self.text[self._judged : end], end
            if unit.strip() and self.reason is None:
                self.reason = await self._rules.verdict(unit)


class GuardedAnswer:
    """The answer to one request, message by message.

    Text, reasoning and the model's own refusal are judged as they come. All else of a message that could tell of it (tool
    calls, metadata, the finish reason) waits until the message has ended.

    Attributes:
        reason: why it is refused; None: it is not, so far.
    """

    def __init__(self, rules: Rules) -> None:
        self.reason: str | None = None
        self._rules = rules
        self._messages = 0
        self._seen = False
        self._harmless: set[str] = set()
        self._begin_message()

    @property
    def shown(self) -> int:
        """How many messages have been shown of it."""
        return self._messages if self._seen else 0

    def _begin_message(self) -> None:
        self._messages += 1
        self._texts = tuple(_JudgedText(self._rules) for _ in range(3))
        self._calls: tuple[ToolCallChunk, ...] = ()
        self._metadata: dict[str, Any] = {}
        self._finish_reason: str | None = None

    async def take(self, chunk: ChatChunk) -> list[ChatChunk]:
        """What may be shown now that this chunk has come; nothing once there is a reason to refuse."""
        shown: list[ChatChunk] = []
        if chunk.boundary == "round":
            shown = await self._pass(ChatChunk(), last=True)
        elif chunk.boundary == "attempt":
            self._messages = max(0, self._messages - chunk.withdraws)
        if self.reason is None:
            if chunk.boundary is not None:
                self._begin_message()
            shown += await self._pass(chunk, last=chunk.tool_result is not None)
        if self.reason is not None:
            return []
        self._seen = self._seen or bool(shown)
        return shown

    async def end(self, response: ChatResponse) -> list[ChatChunk]:
        """What is left to be shown. Whatever the response holds that has not come in chunks is judged too."""
        shown = await self._pass(ChatChunk(), last=True)
        for message in response.turn:
            if isinstance(message, AssistantMessage) and self.reason is None:
                await self._judge([text for text in _texts_of(message) if text not in self._harmless])
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
        self._calls, self._metadata, self._finish_reason = (), {}, None
        if calls:
            await self._judge(_arguments(call) for call in fold_chunks([ChatChunk(tool_calls=calls)]).message.tool_calls)
        self._harmless |= {judged.text for judged in self._texts}
        return calls, metadata or None, finish_reason

    async def _judge(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.reason = self.reason or await self._rules.reason(text)
            self._harmless.add(text)


def _texts_of(message: AssistantMessage) -> list[str]:
    parts = message.content if isinstance(message.content, tuple) else ()
    refusals = [part.refusal for part in parts if isinstance(part, RefusalPart)]
    texts = [message.text, message.reasoning or "", message.refusal or "", *refusals]
    return [text for text in (*texts, *map(_arguments, message.tool_calls)) if text]


def _arguments(call: ToolCall) -> str:
    """A call's arguments as the tool will read them: JSON may spell any letter in another way."""
    try:
        return json.dumps(json.loads(call.arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return call.arguments
