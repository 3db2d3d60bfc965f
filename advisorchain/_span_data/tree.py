"""The spans of a trace as a tree, and how much of the time was each one's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData

__all__ = ["Node", "TraceTree", "trees"]

_MODEL_CALLS: Final = ("chat", "generate_content", "text_completion")


@dataclass(eq=False, slots=True)
class Node:
    """A span with those nested in it, by the time they began.

    Attributes:
        span: None stands for one that others name as their parent and that is not there.
        own: seconds that were the span's own, without those of what is nested in it.
        uncovered: seconds in which nothing that is nested in it ran. More than `own` where an advisor or a model had given a
            chunk and waited for the next pull; less where it worked on chunks while the rest of the chain waited.
    """

    span: SpanData | None
    children: list[Node] = field(default_factory=list)
    own: float = 0.0
    uncovered: float = 0.0


class TraceTree:
    """One trace.

    Attributes:
        id: the trace's.
        roots: what is nested in nothing.
        spans: all of it, by the time they began.
        start, end: of the whole, in nanoseconds since 1970.
        reader: seconds in which those who read its streams had a chunk in hand; those of a chain that was asked within
            another one are that one's own.
    """

    def __init__(self, id: str, spans: Iterable[SpanData]) -> None:
        self.id: Final = id
        once = {span.span_id: span for span in spans}  # an exporter that tries again may send one twice
        self.spans: Final = sorted(once.values(), key=lambda span: span.start)
        self.start: Final = min((span.start for span in self.spans), default=0)
        self.end: Final = max((span.end for span in self.spans), default=0)
        self.roots: Final = _nested(self.spans)
        self.reader = 0.0
        self._measure()

    def _measure(self) -> None:
        waiting = [(root, False) for root in self.roots]
        while waiting:
            node, inside = waiting.pop()
            if node.span is not None:
                node.uncovered = node.span.seconds - _covered(node.span, node.children)
                node.own = _own(node, node.span, inside=inside)
                if not inside:
                    self.reader += _read([node])
                    inside = node.span.attributes.get(names.KIND) == "chain"
            waiting += [(child, inside) for child in node.children]

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


def _own(node: Node, span: SpanData, *, inside: bool) -> float:
    """What an advisor or a model call says of itself, or else what is left, without what ran in it and has spans too.

    `inside`: it is in a chain, and is the reader of those that are asked within it.
    """
    if (own := _told(span, names.ADVISOR_SELF_DURATION)) is not None:
        others = _inside(span, node.children)
        return max(0.0, own - _busy(span, others) + _covered(span, _rest_beneath(others)))
    if (awaited := _told(span, names.AWAITED_DURATION)) is not None:
        return max(0.0, min(node.uncovered, awaited - _busy(span, node.children)))
    return min(span.seconds, node.uncovered + _read(node.children)) if inside else node.uncovered


def _told(span: SpanData, name: str) -> float | None:
    """Seconds that a span tells; never more than it took, whoever wrote it."""
    seconds = span.attributes.get(name)
    return max(0.0, min(span.seconds, seconds)) if isinstance(seconds, int | float) else None


def _busy(span: SpanData, nodes: Sequence[Node]) -> float:
    """Seconds of `span` in which `nodes` ran, without those in which chains among them waited for who reads them."""
    return max(0.0, _covered(span, nodes) - _read(nodes))


def _read(nodes: Iterable[Node]) -> float:
    """Seconds in which those who read these chains had a chunk in hand."""
    return sum(_told(node.span, names.READER_DURATION) or 0.0 for node in nodes if node.span is not None)


def _inside(advisor: SpanData, children: Sequence[Node]) -> list[Node]:
    """Of what is nested in an advisor, what is not the rest of the chain itself."""
    inside = [child for child in children if not _is_rest(child)]
    index, length = (advisor.attributes.get(name) for name in (names.ADVISOR_INDEX, names.CHAIN_LENGTH))
    innermost = isinstance(index, int) and isinstance(length, int) and index == length - 1
    if innermost and len(inside) == len(children):  # model calls have no spans of ours: any other may be part of one
        known = (names.OPERATION, names.KIND)
        return [child for child in inside if child.span is not None and any(name in child.span.attributes for name in known)]
    return inside


def _rest_beneath(inside: Iterable[Node]) -> list[Node]:
    """The rest of the chain where an advisor asked it within a span that it opened itself."""
    found: list[Node] = []
    waiting = list(inside)
    while waiting:
        node = waiting.pop()
        if node.span is None or node.span.attributes.get(names.KIND) == "chain":
            continue  # another chain, of which this advisor waited for the answer
        for child in node.children:
            (found if _is_rest(child) else waiting).append(child)
    return found


def _is_rest(node: Node) -> bool:
    told = {} if node.span is None else node.span.attributes
    return told.get(names.KIND) == "advisor" or told.get(names.OPERATION) in _MODEL_CALLS


def _covered(span: SpanData, nodes: Iterable[Node]) -> float:
    """Seconds of `span` in which at least one of `nodes` ran."""
    covered, until = 0, span.start
    for start, end in sorted((node.span.start, node.span.end) for node in nodes if node.span is not None):
        start, end = max(start, until), min(end, span.end)
        if end > start:
            covered += end - start
            until = end
    return covered / 1e9
