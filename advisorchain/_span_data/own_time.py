"""How much of the time was each span's own, and how much was it with what is nested in it.

Where spans lie does not tell it: the rest of a chain is nested in each advisor, and in a stream every span stays open while
others work on a chunk, or the reader has it. So a span's own time is, by the first of these rules that fits:

1. of an advisor, how long it says that its hooks ran, without what ran in them and has spans of its own;
2. of a model call in a stream, how long it says that the model was awaited, without what ran in it;
3. of any other, what nothing nested in it covers. Within a chain it is the reader of the streams that it asks, and works
   while it has their chunks in hand.

How long it worked is of a chain all but the time of its reader, of what says how long it was awaited just that, of any other
part of a stream its own time and that of all that is nested in it, and else all of the span.

A stream of 100 ms, whose reader had chunks in hand for 30 of them (thick: its own):

    span                 0                  100 ms   it tells                own   worked
    chain zoo            ──────────────────────────   reader_duration 30      0     70
    └ advisor outer      ██████████───█───█───█────   self_duration   40     40     70
      └ advisor inner      ────█────────────────      self_duration   20      5     30
        ├ GET                ████                                            15     15
        └ chat model              █────█───█────      awaited_duration 10    10     10
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData

if TYPE_CHECKING:
    from advisorchain._span_data.tree import Node

__all__ = ["in_hooks", "measure", "stretches"]

_MODEL_CALLS: Final = ("chat", "generate_content", "text_completion")


def measure(roots: Iterable[Node]) -> float:
    """Tell each node whose time it was; the seconds in which those who read the outermost chains had a chunk in hand."""
    reader = 0.0
    outer_first: list[tuple[Node, SpanData]] = []
    waiting = [(root, False) for root in roots]
    while waiting:
        node, within_chain = waiting.pop()
        if node.span is not None:
            outer_first.append((node, node.span))
            node.uncovered = node.span.seconds - _covered(node.span, node.children)
            node.own = _own(node, node.span, within_chain=within_chain)
            if not within_chain:
                reader += _read([node])
                within_chain = _kind(node) == "chain"
        waiting += [(child, within_chain) for child in node.children]
    for node, span in reversed(outer_first):
        node.worked = _worked(node, span)
    return reader


def _own(node: Node, span: SpanData, *, within_chain: bool) -> float:
    if _kind(node) == "advisor" and (own := _told(span, names.ADVISOR_SELF_DURATION)) is not None:
        operations = _own_operations(span, node.children)
        return max(0.0, own - _busy(span, operations) + _covered(span, _rest_beneath(operations)))
    if (awaited := _told(span, names.AWAITED_DURATION)) is not None:
        return max(0.0, min(node.uncovered, awaited - _busy(span, node.children)))
    return min(span.seconds, node.uncovered + _read(node.children)) if within_chain else node.uncovered


def _worked(node: Node, span: SpanData) -> float:
    """Never more than the span took, also where several things ran in it at once."""
    if _kind(node) == "chain":
        return span.seconds - _read([node])
    if (awaited := _told(span, names.AWAITED_DURATION)) is not None:
        return awaited
    if not span.attributes.get(names.STREAM) or _is_blind(node, span):
        return span.seconds
    return min(span.seconds, node.own + sum(child.worked for child in node.children))


def _is_blind(node: Node, span: SpanData) -> bool:
    """Whether an advisor asked the rest of the chain, of which there are no spans, such as a model call that has none."""
    if _kind(node) != "advisor" or span.attributes.get(names.ADVISOR_NEXT_CALLS) == 0:
        return False
    return not any(map(_is_rest, node.children)) and not _rest_beneath(node.children)


def in_hooks(node: Node) -> dict[str, float]:
    """Seconds of an advisor's own time that were certainly those of one hook.

    What ran in its hooks and has spans of its own may have run in any of them.
    """
    if node.span is None:
        return {}
    hooks = {hook: _told(node.span, name) or 0.0 for hook, name in names.HOOK_DURATIONS.items()}
    unknown = max(0.0, sum(hooks.values()) - node.own)
    return {hook: part - unknown for hook, part in hooks.items() if part > unknown}


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


def _own_operations(advisor: SpanData, children: Sequence[Node]) -> list[Node]:
    """Of what is nested in an advisor, what it did itself: all that is not the rest of the chain."""
    operations = [child for child in children if not _is_rest(child)]
    index, length = (advisor.attributes.get(name) for name in (names.ADVISOR_INDEX, names.CHAIN_LENGTH))
    innermost = isinstance(index, int) and isinstance(length, int) and index == length - 1
    if innermost and len(operations) == len(children):  # model calls have no spans of ours: any other may be part of one
        known = (names.OPERATION, names.KIND)
        return [node for node in operations if node.span is not None and any(name in node.span.attributes for name in known)]
    return operations


def _rest_beneath(operations: Iterable[Node]) -> list[Node]:
    """The rest of the chain where an advisor asked it within a span that it opened itself."""
    found: list[Node] = []
    waiting = list(operations)
    while waiting:
        node = waiting.pop()
        if node.span is None or _kind(node) == "chain":
            continue  # another chain, of which this advisor waited for the answer
        for child in node.children:
            (found if _is_rest(child) else waiting).append(child)
    return found


def _is_rest(node: Node) -> bool:
    told = {} if node.span is None else node.span.attributes
    return told.get(names.KIND) == "advisor" or told.get(names.OPERATION) in _MODEL_CALLS


def _kind(node: Node) -> object:
    return None if node.span is None else node.span.attributes.get(names.KIND)


def _covered(span: SpanData, nodes: Iterable[Node]) -> float:
    """Seconds of `span` in which at least one of `nodes` ran."""
    return sum(end - start for start, end in stretches(span, nodes)) / 1e9


def stretches(span: SpanData, nodes: Iterable[Node]) -> list[tuple[int, int]]:
    """When in `span` at least one of `nodes` ran: beginnings and ends, in time and apart from each other."""
    found: list[tuple[int, int]] = []
    until = span.start
    for start, end in sorted((node.span.start, node.span.end) for node in nodes if node.span is not None):
        start, end = max(start, until), min(end, span.end)
        if end > start:
            found.append((start, end))
            until = end
    return found
