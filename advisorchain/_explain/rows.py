"""What each advisor of a chain is at its place, as data: the one source of tables, pictures, rules and comparisons."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from advisorchain._chain.steps import Step, seen_inside
from advisorchain.marks import StreamEffect

__all__ = ["AdvisorRow", "described", "effects", "may_answer", "printable"]

_WORDS: Final[tuple[StreamEffect, ...]] = get_args(StreamEffect)
_EFFECTS: Final[tuple[StreamEffect, ...]] = _WORDS[1:]
_A_REQUEST: Final = re.compile(r"(?:\w+\.)*ChatRequest")
# Controls, but for what ends a line or a cell; lone surrogates, and what is no character; and what is not seen, some of
# which turns a line around. What joins letters and emojis stays (U+200C, U+200D), and so do signs of Arabic that are seen.
_STEERS: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e007f"
)
_UNSHOWN: Final = re.compile(f"[{_STEERS}]")
_UNSHOWN_IN_LINE: Final = re.compile(f"[\t\n{_STEERS}]")


@dataclass(frozen=True, slots=True)
class AdvisorRow:
    """One advisor of a chain, as `describe()` tells it.

    Attributes:
        index: its place; 0 is outermost.
        order, name: its own.
        type: of its class.
        hooks: what it defines.
        sees: how much of an answer passes it each time: "the whole turn"; inside a tool loop "each round".
        note: what this place means for it, where it has something to say, as memory has.
        repeats: what it asks the rest of the chain once for, such as "round"; "" when it does not say that it asks again.
        to_stream: what it may do to the chunks of a stream: "change" them (alter, add, drop), "hold back" text until there
            is more, "cut short" (answer in place of the rest, or end it early); or no more than "observe".
    """

    index: int
    order: int
    name: str
    type: str
    hooks: tuple[str, ...]
    sees: str = "the whole turn"
    note: str = ""
    repeats: str = ""
    to_stream: tuple[StreamEffect, ...] = ("observe",)


def described(steps: Sequence[Step]) -> tuple[AdvisorRow, ...]:
    """The rows of a chain, outermost first."""
    advisors = tuple(step.advisor for step in steps)
    return tuple(_row(step, advisors[: step.index]) for step in steps)


def _row(step: Step, outer: tuple[Any, ...]) -> AdvisorRow:
    placed, repeats = getattr(step.advisor, "placed", None), getattr(step.advisor, "repeats", None)
    return AdvisorRow(
        index=step.index,
        order=step.order,
        name=step.name,
        type=type(step.advisor).__qualname__,
        hooks=step.hooks,
        sees=seen_inside(outer),
        note=(placed(outer) if callable(placed) else None) or "",
        repeats=repeats if isinstance(repeats, str) else "",
        to_stream=effects(step),
    )


def effects(step: Step) -> tuple[StreamEffect, ...]:
    """What an advisor may do to a stream: all that its hooks allow, or of that no more than its `to_stream` says."""
    possible = _possible(step)
    declared = _declared(getattr(step.advisor, "to_stream", None))
    if declared is not None:
        possible = {effect for effect in possible if effect in declared}
    elif not step.is_around and may_answer(step) is False:
        possible.discard("cut short")
    if step.advise_call is not None and not _streams(step):
        possible.add("hold back")  # whatever it says: a stream gets its answer as one chunk
    return tuple(effect for effect in _EFFECTS if effect in possible) or ("observe",)


def _possible(step: Step) -> set[StreamEffect]:
    if step.is_around:
        return set(_EFFECTS)
    possible: set[StreamEffect] = set()
    if step.before is not None:
        possible.add("cut short")
    if step.transform is not None:
        possible |= {"change", "hold back"}
    return possible  # `after` and `done` come when all was shown


def _streams(step: Step) -> bool:
    return step.around is not None or step.advise_stream is not None


def _declared(told: object) -> Collection[str] | None:
    """What an advisor's `to_stream` says; None: nothing, or it means something else."""
    words = (told,) if isinstance(told, str) else told
    if not isinstance(words, tuple | list | set | frozenset) or not words:
        return None
    return words if all(isinstance(word, str) and word in _WORDS for word in words) else None


def may_answer(step: Step) -> bool | None:
    """Whether `before` may answer at once, as its annotation has it: `-> ChatRequest` may not. None: it does not say."""
    try:
        told = getattr(step.before, "__annotations__", {}).get("return")
    except Exception:  # a name that is not there, where annotations are evaluated late
        return None
    text = told if isinstance(told, str) else told.__name__ if isinstance(told, type) else str(told)
    if "ChatResponse" in text:
        return True
    return False if _A_REQUEST.fullmatch(text.strip("\"' ")) else None


def printable(text: str, *, breaks: bool = False) -> str:
    """`text` on one line of whatever shows it, with `�` for what steers a terminal, is not seen, or is no character.

    With `breaks`, line breaks and tabs stay.
    """
    return (_UNSHOWN if breaks else _UNSHOWN_IN_LINE).sub("�", text)
