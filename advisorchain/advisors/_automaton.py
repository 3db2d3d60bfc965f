"""What of a text could still become a match, whatever follows: patterns as an automaton, for holding back alone.

It may read more than the patterns do (it ignores assertions and takes any text for a backreference), never less. So a
construct that is not understood holds text back until the message ends; it never gives a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

# Private, but the only parser of the language that `re` speaks; what it gives is used for holding back alone.
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

__all__ = ["State", "automaton", "least_width", "looks_behind"]

_MOST_STATES: Final = (
    2000  # where counted repeats would make more, they are read as uncounted: more is held, nothing is missed
)

_REPEATS: Final = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}
_CHARACTERS: Final = {_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN}
_ASSERTS: Final = {_constants.ASSERT, _constants.ASSERT_NOT}
_LOOK_BACK: Final = {_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING, _constants.AT_BEGINNING_LINE}


class State:
    """A place in the automaton: it reads one character, or (`reads` is False) is at once at all of `then`."""

    __slots__ = ("_ahead", "reads", "takes", "then")

    def __init__(self, *then: State, takes: Callable[[str], bool] | None = None, reads: bool = False) -> None:
        self.then = list(then)
        self.takes = takes  # None: any character
        self.reads = reads
        self._ahead: tuple[State, ...] | None = None

    def ahead(self) -> tuple[State, ...]:
        """The reading states that are reached without reading."""
        if self._ahead is None:
            found, seen, open_ = list[State](), set[State](), [self]
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

    def all(self) -> set[State]:
        """The reading states that can be reached, however."""
        found, open_ = set[State](), list(self.ahead())
        while open_:
            state = open_.pop()
            if state not in found:
                found.add(state)
                open_ += state.then[0].ahead()
        return found

    def after(self, character: str) -> tuple[State, ...]:
        """The reading states behind this one, once it has read a character."""
        return self.then[0].ahead() if self.takes is None or self.takes(character) else ()


class _Builder:
    """Makes an automaton of what `re` has parsed."""

    def __init__(self, tree: Any) -> None:
        self._groups = tree.state.groupwidths
        self._made = 0
        self._end = State()

    def state(self, *then: State, takes: Callable[[str], bool] | None = None, reads: bool = False) -> State:
        self._made += 1
        return State(*then, takes=takes, reads=reads)

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int, then: State) -> State:
        for operation, argument in reversed(list(items)):
            then = self._one(operation, argument, flags, then)
        return then

    def _one(self, operation: Any, argument: Any, flags: int, then: State) -> State:
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

    def _any(self, then: State) -> State:
        return self.state(then, reads=True)

    def _looks_ahead(self, place: Any, flags: int, then: State) -> State:
        """`$` looks at two characters, a newline and whether it is the last; with MULTILINE, and all others, at one."""
        one = self._any(self._end)
        two = place is _constants.AT_END and not flags & re.MULTILINE
        return self.state(self._any(one) if two else one, then)

    def _assertion(self, direction: int, items: Any, flags: int, then: State) -> State:
        if direction > 0:
            return self.state(self.sequence(items, flags, self._end), then)
        if _any_operation(items, _ASSERTS):  # a look ahead from within a look behind
            return self._repeat(0, _constants.MAXREPEAT, self._any, then)
        return self._looks_ahead(_constants.AT_END, 0, then) if _any_operation(items, {_constants.AT}) else then

    def _repeat(self, least: int, most: int, one: Callable[[State], State], then: State) -> State:
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
    return any(items is one for one in wanted)  # the numbers of operations are those of categories and places too


def _one_character(operation: Any, argument: Any, flags: int) -> Callable[[str], bool]:
    return _predicate(operation, tuple(argument) if isinstance(argument, list) else argument, flags)


@lru_cache(maxsize=1000)  # patterns with a counted repeat ask for the same one again and again
def _predicate(operation: Any, argument: Any, flags: int) -> Callable[[str], bool]:
    state = _parser.State()
    state.flags = flags
    items = [(operation, list(argument) if isinstance(argument, tuple) else argument)]
    match = _compiler.compile(_parser.SubPattern(state, items), flags).match
    return lru_cache(maxsize=4000)(lambda character: match(character) is not None)  # asked for every character of a stream


def _parsed(pattern: re.Pattern[str]) -> Any:
    return _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


def automaton(pattern: re.Pattern[str]) -> State:
    """Where the automaton of a pattern begins."""
    tree = _parsed(pattern)
    return _Builder(tree).sequence(tree, pattern.flags, State())


def least_width(pattern: re.Pattern[str]) -> int:
    """How many characters a match has at least."""
    return int(_parsed(pattern).getwidth()[0])


def looks_behind(pattern: re.Pattern[str]) -> int:
    """How many characters in front of a place may decide whether a match begins there.

    That is what its look behinds have, one in the other, and one more for what looks at a border.
    """
    return _behind(_parsed(pattern)) + 1


def _behind(items: Any) -> int:
    if not isinstance(items, _parser.SubPattern | list | tuple):
        return 0
    within = sum(map(_behind, items))
    if isinstance(items, tuple) and len(items) == 2 and isinstance(items[0], _constants._NamedIntConstant):
        operation, argument = items
        if operation in _ASSERTS and argument[0] < 0:
            return within + int(argument[1].getwidth()[1])
    return within
