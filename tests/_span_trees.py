"""Spans made by hand, for tests of what reads them."""

from __future__ import annotations

from typing import Any

from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import Node, TraceTree

MS = 1_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(id: str, parent: str | None, start: float, end: float, name: str = "", **told: Any) -> SpanData:
    """A span of so many milliseconds; attributes are given with `__` for a point."""
    return SpanData(
        name=name or id,
        trace_id=TRACE,
        span_id=id,
        parent_id=parent,
        start=int(start * MS),
        end=int(end * MS),
        attributes={key.replace("__", "."): value for key, value in told.items()},
    )


def advisor(id: str, parent: str | None, start: float, end: float, own: float, index: int, length: int = 2) -> SpanData:
    """An advisor's span, `own` milliseconds of which it says were its own."""
    told = {"kind": "advisor", "advisor.name": id, "advisor.order": index, "advisor.index": index, "chain.length": length}
    told |= {"advisor.self_duration": own / 1000, "advisor.outcome": "ok", "advisor.next_calls": 1}
    return span(id, parent, start, end, f"advisor {id}", **{f"advisorchain.{key}": value for key, value in told.items()})


def tree(*spans: SpanData) -> TraceTree:
    return TraceTree(TRACE, spans)


def own_ms(trace: TraceTree) -> dict[str, float]:
    """The own time of each span, in milliseconds."""
    return {node.span.span_id: round(node.own * 1000, 3) for node in trace.walk() if node.span is not None}


def shape(nodes: list[Node]) -> Any:
    """Ids nested as the nodes are; None for a span that is missing."""
    return [(node.span.span_id if node.span else None, shape(node.children)) for node in nodes]
