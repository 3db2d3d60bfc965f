"""How a notebook shows a chain: the picture, and beneath it the table, folded in."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from advisorchain._explain.rows import AdvisorRow
from advisorchain._explain.text_table import HEAD, cells, notes

__all__ = ["html"]


def html(picture: str, rows: Sequence[AdvisorRow]) -> str:
    """A fragment of HTML."""
    if not rows:
        return picture
    body = "".join(_line("td", cells(row)) for row in rows)
    told = "".join(f"<div>{escape(note)}</div>" for note in notes(rows))
    table = f"<table><thead>{_line('th', HEAD)}</thead><tbody>{body}</tbody></table>"
    return f"<div>{picture}<details><summary>The same as a table</summary>{table}{told}</details></div>"


def _line(tag: str, row: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
