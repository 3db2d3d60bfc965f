"""The spans of a trace as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData
from advisorchain._span_data.own_time import measure

__all__ = ["Node", "TraceTree", "trees"]


@dataclass(eq=False, slots=True)
class Node:
    """A span with those nested in it, by the time they began.

    Attributes:
        span: None stands for one that others name as their parent and that is not there.
        own: seconds that were the span's own, without those of what is nested in it; see `own_time`.
        worked: seconds in which it or something nested in it was at work; of a stream that is less than the span took.
        uncovered: seconds in which nothing that is nested in it ran. More than `own` where an advisor or a model had given a
            chunk and waited for the next pull; less where it worked on chunks while the rest of the chain waited.
    """

    span: SpanData | None
    children: list[Node] = field(default_factory=list)
    own: float = 0.0
    worked: float = 0.0
    uncovered: float = 0.0


class TraceTree:
    """One trace. How its spans are nested is found out when somebody asks.

    Attributes:
        id: the trace's.
        spans: all of it, by the time they began.
        start, end: of the whole, in nanoseconds since 1970.
    """

    def __init__(self, id: str, spans: Iterable[SpanData]) -> None:
        self.id: Final = id
        once = {span.span_id: span for span in spans}  # an exporter that tries again may send one twice
        self.spans: Final = sorted(once.values(), key=lambda span: span.start)
        self.start: Final = min((span.start for span in self.spans), default=0)
        self.end: Final = max((span.end for span in self.spans), default=0)

    @property
    def roots(self) -> list[Node]:
        """What is nested in nothing."""
        return self._measured[0]

    @property
    def reader(self) -> float:
        """Seconds in which those who read its streams had a chunk in hand; those of a chain that was asked within another
        one are that one's own.
        """
        return self._measured[1]

    @cached_property
    def _measured(self) -> tuple[list[Node], float]:
        roots = _nested(self.spans)
        return roots, measure(roots)

    @property
    def seconds(self) -> float:
        """From the first beginning to the last end."""
        return max(0, self.end - self.start) / 1e9

    @property
    def complete(self) -> bool:
        """Whether there is a root, and no span whose parent in this process is missing."""
        return bool(self.roots) and all(root.span is not None for root in self.roots)

    @property
    def has_chain(self) -> bool:
        """Whether a chain of advisors ran in it."""
        return any(names.KIND in span.attributes for span in self.spans)

    def walk(self) -> Iterator[Node]:
        """Each node before those that are nested in it."""
        waiting = self.roots[::-1]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)


def trees(spans: Iterable[SpanData]) -> list[TraceTree]:
    """The traces that these spans are of, by the time they began."""
    traces: dict[str, list[SpanData]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    return sorted((TraceTree(trace, own) for trace, own in traces.items()), key=lambda trace: trace.start)


def _nested(spans: Sequence[SpanData]) -> list[Node]:
    nodes = {span.span_id: Node(span) for span in spans}
    missing: dict[str, Node] = {}
    roots: list[Node] = []
    for span in spans:
        parent = span.parent_id
        if parent is None or (parent not in nodes and span.remote_parent):
            roots.append(nodes[span.span_id])
        elif parent in nodes:
            nodes[parent].children.append(nodes[span.span_id])
        else:
            if parent not in missing:
                missing[parent] = Node(None)
                roots.append(missing[parent])
            missing[parent].children.append(nodes[span.span_id])
    return [*roots, *_freed_of_circles(nodes, roots)]


def _freed_of_circles(nodes: dict[str, Node], roots: list[Node]) -> list[Node]:
    """Roots for spans that say they are nested in each other: the first of them, out of its parent."""
    seen: set[int] = set()
    _see(roots, seen)
    freed = []
    for node in nodes.values():
        if id(node) not in seen and node.span is not None and node.span.parent_id is not None:
            nodes[node.span.parent_id].children.remove(node)
            freed.append(node)
            _see([node], seen)
    return freed


def _see(nodes: Iterable[Node], seen: set[int]) -> None:
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            waiting += node.children
