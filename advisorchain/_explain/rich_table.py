"""The same table for a terminal that shows colours, by rich, which whoever prints it there has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from advisorchain._explain.rows import AdvisorRow
from advisorchain._explain.text_table import HEAD, NUMBERS, cells, notes

__all__ = ["rich_table"]

_STYLES: Final = ("dim", "cyan", "bold", "dim", "", "", "")
_LEAST: Final = (None, None, None, 8, 12, 10, 9)  # columns of the terminal: room for the longest word


def rich_table(title: str, rows: Sequence[AdvisorRow]) -> Group:
    """A line an advisor, outermost first; then the notes."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, (head, style, least) in enumerate(zip(HEAD, _STYLES, _LEAST, strict=True)):
        justify: Literal["left", "right"] = "right" if place in NUMBERS else "left"
        whole = place < 3  # a number or a name that is wrapped cannot be read; a type can, when it is cut
        how: Literal["ellipsis", "fold"] = "ellipsis" if place == 3 else "fold"
        table.add_column(head, style=style, justify=justify, no_wrap=whole, overflow=how, min_width=least)
    for row in rows:
        table.add_row(*map(Text, cells(row)))  # as Text: a name is no markup
    return Group(table, *(Text(note, style="dim") for note in notes(rows)))
