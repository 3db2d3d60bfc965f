"""Finds matches in text that comes in pieces, as a search of the whole text would, and holds back no more than it must.

The finding is done by `re`. What this module adds is when a start is decided: once no way through the pattern from that
start could read on at the end of the text, more text cannot change what `re` says about it. For that, the patterns become
one automaton, which may read more than they do (it ignores assertions and takes any text for a backreference), never less.
So a construct that is not understood holds text back until the message ends; it never gives a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

# Private, but the only parser of the language that `re` speaks; what it gives is used for holding back alone.
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

from advisorchain.errors import ConfigurationError, kind_of

__all__ = ["Found", "HeldSearch", "Searched", "checked_pattern"]

_MOST_STATES: Final = (
    2000  # where counted repeats would make more, they are read as uncounted: more is held, nothing is missed
)

_REPEATS: Final = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}
_CHARACTERS: Final = {_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN}
_ASSERTS: Final = {_constants.ASSERT, _constants.ASSERT_NOT}
_LOOK_BACK: Final = {_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING, _constants.AT_BEGINNING_LINE}


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
    if _parsed(compiled).getwidth()[0] == 0:
        raise ConfigurationError(f"{place} can match an empty text; look for an empty alternative, a `*` or a `?`")
    return compiled


class Found(NamedTuple):
    """A match: which of the patterns, and where."""

    which: int
    start: int
    end: int


class _State:
    """A place in the automaton: it reads one character, or (`reads` is False) is at once at all of `then`."""

    __slots__ = ("_ahead", "reads", "takes", "then")

    def __init__(self, *then: _State, takes: Callable[[str], object] | None = None, reads: bool = False) -> None:
        self.then = list(then)
        self.takes = takes  # None: any character
        self.reads = reads
        self._ahead: tuple[_State, ...] | None = None

    def ahead(self) -> tuple[_State, ...]:
        """The reading states that are reached without reading."""
        if self._ahead is None:
            found, seen, open_ = list[_State](), set[_State](), [self]
            while open_:
                state = open_.pop()
                if state in seen:
                    continue
                seen.add(state)
                if state.reads:
                    found.append(state)
                else:
                    open_ += state.then
            self._ahead = tuple(found)
        return self._ahead

    def after(self, character: str) -> tuple[_State, ...]:
        """The reading states behind this one, once it has read a character."""
        return self.then[0].ahead() if self.takes is None or self.takes(character) else ()


class _Builder:
    """Makes an automaton of what `re` has parsed."""

    def __init__(self, tree: Any) -> None:
        self._groups = tree.state.groupwidths
        self._made = 0
        self._end = _State()

    def state(self, *then: _State, takes: Callable[[str], object] | None = None, reads: bool = False) -> _State:
        self._made += 1
        return _State(*then, takes=takes, reads=reads)

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int, then: _State) -> _State:
        for operation, argument in reversed(list(items)):
            then = self._one(operation, argument, flags, then)
        return then

    def _one(self, operation: Any, argument: Any, flags: int, then: _State) -> _State:
        if operation in _CHARACTERS:
            return self.state(then, takes=_one_character(operation, argument, flags), reads=True)
        if operation in _REPEATS:
            least, most, items = argument
            return self._repeat(least, most, lambda after: self.sequence(items, flags, after), then)
        if operation is _constants.BRANCH:
            return self.state(*(self.sequence(items, flags, then) for items in argument[1]))
        if operation is _constants.SUBPATTERN:
            _, added, removed, items = argument
            return self.sequence(items, (flags | added) & ~removed, then)
        if operation is _constants.ATOMIC_GROUP:
            return self.sequence(argument, flags, then)
        if operation in _ASSERTS:
            return self._assertion(argument[0], argument[1], flags, then)
        if operation is _constants.AT:
            return then if argument in _LOOK_BACK else self._looks_ahead(argument, flags, then)
        if operation is _constants.GROUPREF:
            return self._repeat(0, self._groups[argument][1], self._any, then)
        if operation is _constants.GROUPREF_EXISTS:
            _, yes, no = argument
            return self.state(self.sequence(yes, flags, then), self.sequence(no or (), flags, then))
        return self._repeat(0, _constants.MAXREPEAT, self._any, then)

    def _any(self, then: _State) -> _State:
        return self.state(then, reads=True)

    def _looks_ahead(self, place: Any, flags: int, then: _State) -> _State:
        """`$` looks at two characters, a newline and whether it is the last; with MULTILINE, and all others, at one."""
        one = self._any(self._end)
        two = place is _constants.AT_END and not flags & re.MULTILINE
        return self.state(self._any(one) if two else one, then)

    def _assertion(self, direction: int, items: Any, flags: int, then: _State) -> _State:
        if direction > 0:
            return self.state(self.sequence(items, flags, self._end), then)
        if _any_operation(items, _ASSERTS):  # a look ahead from within a look behind
            return self._repeat(0, _constants.MAXREPEAT, self._any, then)
        return self._looks_ahead(_constants.AT_END, 0, then) if _any_operation(items, {_constants.AT}) else then

    def _repeat(self, least: int, most: int, one: Callable[[_State], _State], then: _State) -> _State:
        before = self._made
        one(self._end)
        cost = (self._made - before) * (least if most >= _constants.MAXREPEAT else most)
        if before + cost > _MOST_STATES:
            least, most = 0, _constants.MAXREPEAT
        if most >= _constants.MAXREPEAT:
            loop = self.state()
            loop.then += [one(loop), then]
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self.state(one(then), end)
        for _ in range(least):
            then = one(then)
        return then


def _any_operation(items: Any, wanted: set[Any]) -> bool:
    """Whether one of these operations stands anywhere in a parsed pattern."""
    if isinstance(items, _parser.SubPattern | list | tuple):
        return any(_any_operation(item, wanted) for item in items)
    return items in wanted if isinstance(items, _constants._NamedIntConstant) else False


def _one_character(operation: Any, argument: Any, flags: int) -> Callable[[str], object]:
    state = _parser.State()
    state.flags = flags
    return _compiler.compile(_parser.SubPattern(state, [(operation, argument)]), flags).match  # type: ignore[no-any-return]


class Searched:
    """What is searched for; one object serves any number of texts.

    Args:
        patterns: of matches that begin at one place, that of the first pattern counts. A match of nothing counts as none.
        valid: for a pattern, what else a match has to be; None: nothing.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]], valid: Sequence[Callable[[str], bool] | None] = ()) -> None:
        self._patterns = tuple(zip(patterns, valid or [None] * len(patterns), strict=True))
        self.start: Final = _State(*(_automaton(pattern) for pattern in patterns))
        self._begun: dict[str, tuple[_State, ...]] = {}

    def begun(self, character: str) -> tuple[_State, ...]:
        """The states after a first character."""
        states = self._begun.get(character)
        if states is None:
            states = tuple(after for state in self.start.ahead() for after in state.after(character))
            self._begun[character] = states
        return states

    def first(self, text: str, start: int, limit: int) -> Found | None:
        """The first match that begins at or behind `start` and before `limit`."""
        best: Found | None = None
        for which, (pattern, valid) in enumerate(self._patterns):
            match = pattern.search(text, start)
            while match is not None and match.start() < limit:
                if match.end() > match.start() and (valid is None or valid(match.group())):
                    best, limit = Found(which, *match.span()), match.start()
                    break
                match = pattern.search(text, match.start() + 1)
        return best

    def all(self, text: str) -> list[Found]:
        """All matches in a whole text."""
        return HeldSearch(self).feed(text, last=True)


def _parsed(pattern: re.Pattern[str]) -> Any:
    return _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def _automaton(pattern: re.Pattern[str]) -> _State:
    tree = _parsed(pattern)
    return _Builder(tree).sequence(tree, pattern.flags, _State())


class HeldSearch:
    """The search in one text.

    Attributes:
        text: what has come.
        decided: up to where it is known what is a match and what is none; what lies behind has to be held back.
    """

    __slots__ = ("_read", "_searched", "_states", "decided", "text")

    def __init__(self, searched: Searched) -> None:
        self.text = ""
        self.decided = 0
        self._searched = searched
        self._read = 0
        self._states: dict[_State, int] = {}  # where the automaton is, with the first start that leads there; earliest first

    def feed(self, piece: str, *, last: bool = False) -> list[Found]:
        """Take the next piece; gives the matches that are decided now, in order. With `last`, all are."""
        self.text += piece
        found: list[Found] = []
        while True:
            limit = len(self.text) if last else self._undecided()
            match = self._searched.first(self.text, self.decided, limit) if limit > self.decided else None
            if match is None:
                self.decided = limit
                return found
            found.append(match)
            self.decided = self._read = match.end
            self._states = {}

    def _undecided(self) -> int:
        """The first start about which more text could still change something."""
        states = self._states
        for place in range(self._read, len(self.text)):
            character = self.text[place]
            moved: dict[_State, int] = {}
            for state, start in states.items():
                for after in state.after(character):
                    moved.setdefault(after, start)
            for after in self._searched.begun(character):
                moved.setdefault(after, place)
            states = moved
        self._read, self._states = len(self.text), states
        return next(iter(states.values()), len(self.text))
