"""The onion as a Mermaid flowchart, which GitHub, GitLab, notebooks and wikis draw: boxes in boxes, with the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from advisorchain._explain.onion_path import Moment
from advisorchain._explain.rows import AdvisorRow, printable

__all__ = ["mermaid"]

# All of ASCII but letters, digits and some that mean nothing; of these such as would begin a list.
_SPECIAL: Final = re.compile(r"(?!\w)[!-~](?<![-_.,()+])|[-.+)](?= )")


def mermaid(model: str, rows: Sequence[AdvisorRow], moments: Sequence[Moment], *, stream: bool) -> str:
    """A flowchart: the request inwards from the top to the model, and the answer outwards to the bottom.

    Args:
        model: its name.
        rows: the advisors, outermost first.
        moments: their way, as `path` gives it.
        stream: chunks have a line of their own then.
    """
    boxes = _boxes(model, rows, moments, 0)
    ends = ["chunks", "response"] if stream else ["response"]
    lines = ['request(["request"])', *boxes, *(f'{end}(["{end}"])' for end in ends), *_edges(rows, moments, stream)]
    return "\n".join(["flowchart TB", *("  " + line for line in lines)]) + "\n"


def _boxes(model: str, rows: Sequence[AdvisorRow], moments: Sequence[Moment], index: int) -> Iterator[str]:
    """The advisor at `index` with all that is inside of it; inside of the last, the model."""
    if index == len(rows):
        number = next(moment.number for moment in moments if moment.way == "model")
        yield f'model[["{number} model: {_quoted(model)}"]]'
        return
    row = rows[index]
    yield f'subgraph a{index}[" "]'  # its name stands in a node: the arrows would run through a title
    yield f'  in{index}["{_label(row, moments)}"]'
    for moment in moments:
        if moment.index == index and moment.way != "in":
            yield f'  m{moment.number}["{moment.number} {moment.hook} · {_quoted(row.name)}"]'
    for line in _boxes(model, rows, moments, index + 1):
        yield f"  {line}"
    yield "end"


def _label(row: AdvisorRow, moments: Sequence[Moment]) -> str:
    """The name and the order, what it repeats, and the hook on the way in, if there is one: the request passes all."""
    lines = [row.name, f"order {row.order}"]
    if row.repeats:
        lines.append(f"{row.repeats} by {row.repeats}")
    lines += [f"{moment.number} {moment.hook}" for moment in moments if (moment.index, moment.way) == (row.index, "in")]
    return "<br/>".join(map(_quoted, lines))


def _edges(rows: Sequence[AdvisorRow], moments: Sequence[Moment], stream: bool) -> Iterator[str]:
    """Arrows: the request's, those of the chunks, which are dotted, and the response's."""
    ways = {way: [f"m{moment.number}" for moment in moments if moment.way == way] for way in ("chunks", "out")}
    lines = [("-->", ["request", *(f"in{row.index}" for row in rows), "model"])]
    if stream:
        lines.append(("-.->", ["model", *ways["chunks"], "chunks"]))
    lines.append(("-->", ["model", *ways["out"], "response"]))
    for arrow, nodes in lines:
        yield from (f"{one} {arrow} {other}" for one, other in pairwise(nodes))


def _quoted(text: str) -> str:
    """A text that stands for itself between quotation marks: what could mean something is told by its number."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", printable(text))
