"""The way of a request inwards, and of the answer outwards: which hook is run as the how-manieth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from advisorchain._explain.rows import AdvisorRow

__all__ = ["MODEL", "Moment", "Way", "path"]

Way: TypeAlias = Literal["in", "model", "chunks", "out"]

MODEL: Final = "model"
_AROUND: Final = {
    False: ("advise_call", "around", "advise_stream"),  # which of its methods serves a call: the first that is there
    True: ("around", "advise_stream", "advise_call"),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of a request's way.

    Attributes:
        number: from 1.
        index: the advisor's place; None: the model.
        name: of the advisor; "model".
        hook: what is run; of the model "call" or "stream".
        way: "in", "model"; "chunks": for each chunk of a stream, until the last has passed; "out".
    """

    number: int
    index: int | None
    name: str
    hook: str
    way: Way


def path(rows: Sequence[AdvisorRow], *, stream: bool) -> tuple[Moment, ...]:
    """The moments of a call or of a stream, in order, when each advisor asks the rest of the chain once.

    In a call each advisor is left whole before the one around it. In a stream all chunks pass through all advisors first;
    then text that a transform still holds is flushed, and the response follows. What is inside of an advisor that serves
    calls only is called in a stream, too, and the answer is one chunk from there on.
    """
    called = next((row.index for row in rows if row.hooks == ("advise_call",)), len(rows)) + 1 if stream else 0
    streamed, rest = rows[:called], rows[called:]  # outside, and inside
    steps = [
        *_hooks_of(streamed, ("before",), "in", stream=True),
        *_hooks_of(rest, ("before",), "in", stream=False),
        (None, MODEL, "stream" if called > len(rows) else "call", "model"),
        *_hooks_of(rest[::-1], ("transform", "after", "done"), "out", stream=False),
        *_hooks_of(streamed[::-1], ("transform",), "chunks", stream=True),
        *_hooks_of(streamed[::-1], ("after", "done"), "out", stream=True),
    ]
    return tuple(Moment(number, *step) for number, step in enumerate(steps, 1))


def _hooks_of(
    rows: Sequence[AdvisorRow], wanted: Sequence[str], way: Way, *, stream: bool
) -> Iterator[tuple[int, str, str, Way]]:
    """Those of the wanted hooks that advisors have; of an around advisor the method that serves this mode, on each way."""
    for row in rows:
        around = next((hook for hook in _AROUND[stream] if hook in row.hooks), None)
        for hook in [around] if around else [hook for hook in wanted if hook in row.hooks]:
            yield row.index, row.name, hook, way
