"""The spans of one answer as an indented tree: who stood around whom, in which order, for how long, and how it ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.cells import cell_len, set_cell_size

from advisorchain.cli.text import one_line
from advisorchain.telemetry import Telemetry

__all__ = ["TraceView", "tree_lines"]

_GUIDE = "│├└─ "
_SHORT = 12
_HEAD = ("span", "order", "time", "self", "outcome")


class TraceView:
    """Records the spans of a chain, in this process alone, and shows them after each answer."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.telemetry = Telemetry(tracer_provider=provider)

    def take(self) -> list[str]:
        """The lines of what was recorded since the last time."""
        spans = self._spans.get_finished_spans()
        self._spans.clear()
        return tree_lines(spans, shutil.get_terminal_size(fallback=(80, 24)).columns)


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    order: str
    time: str
    own: str
    outcome: str

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        return self.name, self.order, self.time, self.own, self.outcome


def tree_lines(spans: Iterable[ReadableSpan], width: int = 80) -> list[str]:
    """A line a span under a line of headings, in columns. Without spans there are no lines.

    Args:
        spans: ended spans, in any sequence.
        width: how many columns a line may take, but never fewer than the numbers and a short name need.
    """
    children: dict[int | None, list[ReadableSpan]] = {}
    by_id = {span.context.span_id: span for span in spans if span.context is not None}
    for span in by_id.values():
        parent = span.parent.span_id if span.parent is not None and span.parent.span_id in by_id else None
        children.setdefault(parent, []).append(span)
    rows = [row for root in _in_time(children.get(None, ())) for row in _rows(root, children, "", "")]
    return _columns([_HEAD, *(row.cells for row in rows)], width) if rows else []


def _in_time(spans: Iterable[ReadableSpan]) -> list[ReadableSpan]:
    return sorted(spans, key=lambda span: span.start_time or 0)


def _rows(span: ReadableSpan, children: dict[int | None, list[ReadableSpan]], first: str, rest: str) -> list[_Row]:
    rows = [_row(span, first)]
    inner = _in_time(children.get(span.context.span_id if span.context else None, ()))
    for place, child in enumerate(inner, start=1):
        branch, below = ("└─ ", "   ") if place == len(inner) else ("├─ ", "│  ")
        rows += _rows(child, children, rest + branch, rest + below)
    return rows


def _row(span: ReadableSpan, guide: str) -> _Row:
    told = span.attributes or {}
    own = told.get("advisorchain.advisor.self_duration")
    return _Row(
        guide + one_line(span.name),
        str(told.get("advisorchain.advisor.order", "")),
        _seconds(((span.end_time or 0) - (span.start_time or 0)) / 1e9),
        _seconds(own) if isinstance(own, float) else "",
        str(told.get("advisorchain.advisor.outcome") or told.get("advisorchain.outcome") or ""),
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _columns(rows: Sequence[tuple[str, str, str, str, str]], width: int) -> list[str]:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    name_width = max(_SHORT, min(widths[0], width - sum(widths[1:]) - 2 * len(widths[1:])))
    lines = []
    for name, *numbers, outcome in rows:
        right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:4], strict=True)]
        cells = [_fitting(name, name_width), *right, outcome]
        lines.append("  ".join(cells).rstrip())
    return lines


def _fitting(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    guide = len(name) - len(name.lstrip(_GUIDE))
    if guide > width // 2:  # so deep that the guide would push the name out
        name = "…" + name[guide - width // 2 + 1 :]
    return set_cell_size(name, width) if cell_len(name) <= width else set_cell_size(name, width - 1) + "…"
