"""What a guard looks for, and a text that leaves only as far as it has been judged."""

from __future__ import annotations

import inspect
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from advisorchain.advisors._stream_search import HeldSearch, Searched
from advisorchain.errors import AdvisorContractError, dropped

__all__ = ["Hold", "Judge", "JudgedText", "Reason", "Rules"]

Verdict: TypeAlias = bool | str | None
Judge: TypeAlias = Callable[[str], Verdict | Awaitable[Verdict]]
Hold: TypeAlias = Literal["match", "sentence", "paragraph", "all"]

_ENDS: Final = {  # where a unit ends; the space behind it belongs to it
    "paragraph": Searched([re.compile(r"\n[^\S\n]*\n\s*")]),
    "sentence": Searched([re.compile(r"""[.!?…]+["'”’»)\]]*\s+|[。！？]+\s*|\n\s*""")]),
}


class Reason(NamedTuple):
    """Why something is refused: what found it, and what that says about it, which may tell of the content."""

    by: Literal["words", "patterns", "judge"]
    told: str


class Rules:
    """Words, patterns and a judge. The three are asked in this order."""

    def __init__(self, words: Iterable[str], patterns: Iterable[re.Pattern[str]], judge: Judge | None, hold: Hold) -> None:
        forms = {unicodedata.normalize(form, word).casefold() for word in words for form in ("NFC", "NFD")}
        patterns = list(patterns)
        self.words: Final = Searched([re.compile("|".join(map(re.escape, sorted(forms))))]) if forms else None
        self.patterns: Final = Searched(patterns) if patterns else None
        self.judge: Final = judge
        self.in_units: Final = hold != "match"
        self.ends: Final = _ENDS.get(hold)  # None: the end of the text is that of the only unit

    async def reason(self, text: str) -> Reason | None:
        """Why a whole text is refused; None: it is not."""
        judged = JudgedText(self)
        await judged.take(text, last=True)
        return judged.reason

    async def verdict(self, text: str) -> Reason | None:
        """What the judge says about a text; nothing, where there is none."""
        verdict = None if self.judge is None else self.judge(text)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is None or isinstance(verdict, bool | str):
            return Reason("judge", "judge" if verdict is True else verdict) if verdict else None
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


class _Waiting:
    """The end of a text that comes in pieces, which are joined only when some of them leave."""

    __slots__ = ("_pieces", "_start", "length")

    def __init__(self) -> None:
        self.length = self._start = 0
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self.length += len(piece)

    def until(self, place: int) -> str:
        """What lies in front of a place of the text, and has not left yet."""
        if place <= self._start:
            return ""
        waiting, leaving = "".join(self._pieces), place - self._start
        self._pieces, self._start = [waiting[leaving:]], place
        return waiting[:leaving]


class JudgedText:
    """One text that comes in pieces.

    Attributes:
        reason: why it is refused; None: it is not, so far.
    """

    __slots__ = ("_ended", "_patterns", "_pieces", "_rules", "_unit", "_units", "_unshown", "_words", "reason")

    def __init__(self, rules: Rules) -> None:
        self.reason: Reason | None = None
        self._rules = rules
        self._words = _Folded(rules.words) if rules.words is not None else None
        self._patterns = HeldSearch(rules.patterns) if rules.patterns is not None else None
        self._units = HeldSearch(rules.ends) if rules.ends is not None else None
        self._unit, self._unshown = _Waiting(), _Waiting()
        self._ended = 0  # where the last whole unit ends
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """What has come."""
        return "".join(self._pieces)

    async def take(self, piece: str, *, last: bool = False) -> str:
        """Take the next piece; gives what may be shown now."""
        if not (piece or last):
            return ""
        self._pieces.append(piece)
        self._unshown.add(piece)
        safe = self._unshown.length
        if self._words is not None:
            self.reason = Reason("words", "words") if self._words.feed(piece, last) else None
            safe = min(safe, self._words.decided)
        if self._patterns is not None and self.reason is None:
            self.reason = Reason("patterns", "patterns") if self._patterns.feed(piece, last=last) else None
            safe = min(safe, self._patterns.decided)
        if self._rules.in_units and self.reason is None:
            await self._judge(piece, last)
            safe = min(safe, self._ended)
        return self._unshown.until(safe) if self.reason is None else ""

    async def _judge(self, piece: str, last: bool) -> None:
        self._unit.add(piece)
        ends = [found.end for found in self._units.feed(piece, last=last)] if self._units is not None else []
        for end in [*ends, self._unit.length] if last else ends:
            unit, self._ended = self._unit.until(end), end
            if unit.strip() and self.reason is None:
                self.reason = await self._rules.verdict(unit)
