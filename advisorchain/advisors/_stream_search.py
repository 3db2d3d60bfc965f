"""Finds matches in text that comes in pieces, as a search of the whole text would, and holds back no more than it must.

The finding is done by `re`. What this module adds is when a start is decided: once no way through the pattern from that
start could read on at the end of the text, more text cannot change what `re` says about it. A whole text needs none of this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from advisorchain.advisors._automaton import State, automaton, least_width, looks_behind
from advisorchain.errors import ConfigurationError, kind_of

__all__ = ["Found", "HeldSearch", "Searched", "checked_pattern"]


def checked_pattern(place: str, pattern: object) -> re.Pattern[str]:
    """A pattern, compiled.

    Raises:
        ConfigurationError: it is none, cannot be compiled, or matches an empty text.
    """
    source = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(source, str):
        raise ConfigurationError(f"{place} is {kind_of(pattern)}; give a regular expression for text")
    try:
        compiled: re.Pattern[str] = re.compile(pattern)  # type: ignore[call-overload]
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(f"{place} is no regular expression: {error}") from None
    if least_width(compiled) == 0:
        raise ConfigurationError(f"{place} can match an empty text; look for an empty alternative, a `*` or a `?`")
    return compiled


class Found(NamedTuple):
    """A match: which of the patterns, and where."""

    which: int
    start: int
    end: int


class Searched:
    """What is searched for; one object serves any number of texts.

    Args:
        patterns: of matches that begin at one place, that of the first pattern counts. A match of nothing counts as none.
        valid: for a pattern, what else a match has to be; None: nothing.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]], valid: Sequence[Callable[[str], bool] | None] = ()) -> None:
        self._patterns = tuple(zip(patterns, valid or [None] * len(patterns), strict=True))
        self._begun: dict[str, tuple[State, ...]] = {}
        self._goes_on: dict[str, bool] = {}

    @cached_property
    def start(self) -> State:
        """Where the automaton begins: of all patterns at once. A whole text does without it."""
        return State(*(automaton(pattern) for pattern, _ in self._patterns))

    @cached_property
    def context(self) -> int:
        """How many characters in front of a place may decide whether a match begins there."""
        return max((looks_behind(pattern) for pattern, _ in self._patterns), default=1)

    @cached_property
    def _going_on(self) -> set[Callable[[str], bool] | None]:
        """What those states take behind which there is another one."""
        return {state.takes for state in self.start.all() if state.then[0].ahead()}

    def begun(self, character: str) -> tuple[State, ...]:
        """The states after a first character."""
        states = self._begun.get(character)
        if states is None:
            states = tuple(after for state in self.start.ahead() for after in state.after(character))
            self._begun[character] = states
        return states

    def goes_on(self, character: str) -> bool:
        """Whether anything can still be open behind this character, whatever came before it."""
        goes_on = self._goes_on.get(character)
        if goes_on is None:
            goes_on = any(takes is None or takes(character) for takes in self._going_on)
            self._goes_on[character] = goes_on
        return goes_on

    def each(self, text: str, start: int = 0) -> Iterator[Found]:
        """The matches in a text from `start` on, in order. Every pattern reads the text once."""
        upcoming = [self._next(which, text, start) for which in range(len(self._patterns))]
        while coming := [found for found in upcoming if found is not None]:
            best = min(coming, key=lambda found: (found.start, found.which))
            yield best
            for found in coming:
                if found.start < best.end:
                    upcoming[found.which] = self._next(found.which, text, best.end)

    def _next(self, which: int, text: str, start: int) -> Found | None:
        pattern, valid = self._patterns[which]
        match = pattern.search(text, start)
        while match is not None and match.start() < len(text):
            if match.end() > match.start() and (valid is None or valid(match.group())):
                return Found(which, *match.span())
            match = pattern.search(text, match.start() + 1)
        return None


class HeldSearch:
    """The search in one text.

    It keeps what is not decided yet, and as much in front of it as a pattern looks back; so a long stream costs no more for
    each of its pieces than a short one.

    Attributes:
        decided: up to where it is known what is a match and what is none; what lies behind has to be held back.
    """

    __slots__ = ("_base", "_length", "_pieces", "_searched", "_states", "_window", "decided")

    def __init__(self, searched: Searched) -> None:
        self.decided = 0
        self._searched = searched
        self._length = 0
        self._base = 0  # where in the text the window begins
        self._window = ""
        self._pieces: list[str] = []  # what lies behind the window; it is only joined when something can be decided
        self._states: dict[State, int] = {}  # where the automaton is, with the first start that leads there; earliest first

    def feed(self, piece: str, *, last: bool = False) -> list[Found]:
        """Take the next piece; gives the matches that are decided now, in order. With `last`, all are."""
        self._pieces.append(piece)
        place, self._length = self._length, self._length + len(piece)
        if last:
            self._states, limit = {}, self._length
        else:
            limit = self._undecided(piece, place)
        if limit <= self.decided:
            return []
        self._widen()
        found: list[Found] = []
        for which, start, end in self._searched.each(self._window, self.decided - self._base):
            if self._base + start >= limit:
                break
            found.append(Found(which, self._base + start, self._base + end))
            self.decided = self._base + end
            if self.decided > limit:  # what was undecided is within a match, and what begins behind it was not followed
                self._states = {}
                limit = self._undecided(self._window[end:], self.decided)
        self.decided = limit
        return found

    def part(self, start: int, end: int) -> str:
        """The text between two places, neither in front of what was decided before the newest piece."""
        return self._window[start - self._base : end - self._base]

    def _widen(self) -> None:
        cut = max(0, self.decided - self._searched.context - self._base)
        self._window = self._window[cut:] + "".join(self._pieces)
        self._base += cut
        self._pieces = []

    def _undecided(self, piece: str, place: int) -> int:
        """The first start about which more text could still change something, once the piece at `place` was followed."""
        searched, states, first = self._searched, self._states, 0
        for at in range(len(piece) - 1, -1, -1):  # most texts have blanks, and most patterns none: few are to be followed
            if not searched.goes_on(piece[at]):
                states, first = {}, at + 1
                break
        for at in range(first, len(piece)):
            character = piece[at]
            moved: dict[State, int] = {}
            for state, start in states.items():
                for after in state.after(character):
                    moved.setdefault(after, start)
            for after in searched.begun(character):
                moved.setdefault(after, place + at)
            states = moved
        self._states = states
        return next(iter(states.values()), place + len(piece))
