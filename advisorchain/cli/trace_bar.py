"""Where in the whole time of a trace a span lay, as a bar of text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from math import ceil

from rich.cells import cell_len

from advisorchain._span_data.own_time import stretches
from advisorchain._span_data.tree import Node, TraceTree
from advisorchain.cli.trace_slowest import seconds

__all__ = ["bar", "scale"]


def scale(trace: TraceTree, room: int) -> str:
    """What stands above the bars: 0, and how long all of it took."""
    whole = seconds(trace.seconds)
    return f"0{whole.rjust(room - 1)}" if room > cell_len(whole) + 1 else " " * room


def bar(node: Node | None, trace: TraceTree, room: int) -> str:
    """Thick where the time was the span's own, thin where it was that of what is in it.

    What it did of its own while something in it ran, such as with a chunk while the model waited, is thick too: as many
    cells as it took, spread over those, since nobody recorded when it was.
    """
    whole = trace.end - trace.start
    if node is None or node.span is None or whole <= 0:
        return " " * room
    first = min(room - 1, (node.span.start - trace.start) * room // whole)
    end = max(first + 1, min(room, ceil((node.span.end - trace.start) * room / whole)))
    inner = stretches(node.span, node.children)
    own = node.own >= node.uncovered / 2  # of a stream's advisor, which mostly waited for its reader, it is not
    covered = [_lies_in(inner, trace.start + (2 * cell + 1) * whole // (2 * room)) for cell in range(first, end)]
    among = _spread(sum(covered), round((node.own - node.uncovered) * 1e9 * room / whole))
    thick = [next(among) if inside else own for inside in covered]
    return " " * first + "".join("█" if cell else "─" for cell in thick) + " " * (room - end)


def _lies_in(stretches: list[tuple[int, int]], moment: int) -> bool:
    place = bisect_right(stretches, moment, key=lambda stretch: stretch[0])
    return place > 0 and moment < stretches[place - 1][1]


def _spread(cells: int, thick: int) -> Iterator[bool]:
    """Which of so many cells are thick, evenly; none for a number below 0."""
    thick = max(0, min(cells, thick))
    return ((cell + 1) * thick // cells > cell * thick // cells for cell in range(cells))
