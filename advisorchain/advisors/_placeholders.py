"""What stands for what in one request of a redaction, in whole texts and in streamed ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from advisorchain.advisors._stream_search import Found, HeldSearch, Searched

__all__ = ["Kinds", "Placeholders"]


class Kinds:
    """What is looked for: the same for all requests.

    Attributes:
        names: of each pattern.
        searched: the patterns.
        placeholders: all that could be one.
    """

    def __init__(
        self, names: Sequence[str], patterns: Sequence[re.Pattern[str]], valid: Sequence[Callable[[str], bool] | None]
    ) -> None:
        self.names: Final = names
        self.searched: Final = Searched(patterns, valid)
        any_name = "|".join(map(re.escape, dict.fromkeys(names)))
        self.placeholders: Final = Searched([re.compile(rf"\[(?:{any_name})-[0-9]{{1,9}}\]")])


class Placeholders:
    """What stands for what in one request. It shows neither in a repr."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._given = dict.fromkeys(kinds.names, 0)  # the last number of each kind
        self._taken: set[str] = set()  # a placeholder that stands in the prompt already is text: it must not become a value
        self._of: dict[tuple[str, str], str] = {}
        self._originals: dict[str, str] = {}

    def keep_free(self, text: str) -> str:
        """`text` itself; no placeholder that stands in it will be given."""
        self._taken.update(text[start:end] for _, start, end in self._kinds.placeholders.each(text))
        return text

    def hide(self, text: str) -> str:
        """`text` with placeholders."""
        return _put(self._kinds.searched.each(text), self._placeholder, lambda start, end: text[start:end], 0, len(text))

    def show(self, text: str) -> str:
        """`text` with the originals."""
        return _put(self._kinds.placeholders.each(text), self._original, lambda start, end: text[start:end], 0, len(text))

    def hiding(self) -> _Replacing:
        """A transform that puts in placeholders."""
        return _Replacing(self._kinds.searched, self._placeholder)

    def restoring(self, *, in_json: bool) -> _Replacing | None:
        """A transform that puts in the originals, spelt as in a JSON string if `in_json`; None: there are none."""
        if not self._originals:
            return None
        return _Replacing(self._kinds.placeholders, self._original_in_json if in_json else self._original)

    def _placeholder(self, which: int, original: str) -> str:
        kind = self._kinds.names[which]
        placeholder = self._of.get((kind, original))
        while placeholder is None:
            self._given[kind] += 1
            made = f"[{kind}-{self._given[kind]}]"
            if made not in self._taken:
                placeholder = self._of[kind, original] = made
                self._originals[made] = original
        return placeholder

    def _original(self, which: int, placeholder: str) -> str:
        return self._originals.get(placeholder, placeholder)

    def _original_in_json(self, which: int, placeholder: str) -> str:
        return json.dumps(self._original(which, placeholder), ensure_ascii=False)[1:-1]


class _Replacing:
    """Replaces matches in what is streamed, message by message."""

    def __init__(self, searched: Searched, replacement: Callable[[int, str], str]) -> None:
        self._searched = searched
        self._replacement = replacement
        self._search = HeldSearch(searched)

    def feed(self, text: str) -> str:
        return self._take(text, last=False)

    def flush(self) -> str:
        rest = self._take("", last=True)
        self._search = HeldSearch(self._searched)
        return rest

    def _take(self, text: str, *, last: bool) -> str:
        search, start = self._search, self._search.decided
        found = search.feed(text, last=last)
        return _put(found, self._replacement, search.part, start, search.decided)


def _put(
    found: Iterable[Found],
    replacement: Callable[[int, str], str],
    part: Callable[[int, int], str],
    start: int,
    end: int,
) -> str:
    """The text from `start` to `end`, with a replacement in place of each match."""
    pieces: list[str] = []
    for which, first, behind in found:
        pieces += part(start, first), replacement(which, part(first, behind))
        start = behind
    return "".join((*pieces, part(start, end)))
