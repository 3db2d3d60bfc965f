"""The advisors of a chain as a table of plain text, for terminals, logs and docstrings."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

from advisorchain._explain.rows import AdvisorRow, printable

__all__ = ["HEAD", "NUMBERS", "cells", "notes", "text_table"]

HEAD: Final = ("#", "order", "name", "type", "hooks", "sees", "stream")
NUMBERS: Final = (0, 1)  # the columns that are set to the right


def cells(row: AdvisorRow) -> tuple[str, ...]:
    """One advisor, column by column."""
    told = (str(row.index), str(row.order), row.name, row.type, ", ".join(row.hooks), row.sees, ", ".join(row.to_stream))
    return tuple(map(printable, told))


def notes(rows: Sequence[AdvisorRow]) -> list[str]:
    """What the places of advisors mean for them, a line each."""
    told = [(row.name, f"asks the rest again: {row.repeats} by {row.repeats}") for row in rows if row.repeats]
    told += [(row.name, row.note) for row in rows if row.note]
    return [printable(f"{name}: {note}") for name, note in told]


def text_table(rows: Sequence[AdvisorRow]) -> str:
    """A line an advisor under a line of headings, outermost first; then the notes."""
    lines = [HEAD, *map(cells, rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    drawn = ["  ".join(_set(place, *pair) for place, pair in enumerate(zip(line, widths, strict=True))) for line in lines]
    return "\n".join([*(line.rstrip() for line in drawn), *notes(rows)])


def _set(place: int, cell: str, width: int) -> str:
    blank = " " * (width - _width(cell))
    return blank + cell if place in NUMBERS else cell + blank


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
