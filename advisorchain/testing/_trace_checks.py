"""What the spans of one run of a chain have to be, and how they are drawn where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import Node

__all__ = ["Row", "advisors_of", "found_lines", "kind_of_span", "promised_lines", "run_problems"]

_OUTCOMES: Final = ("ok", "error", "cancelled", "closed")
_SCOPES: Final = ("advisorchain", "")


class Row(Protocol):
    """What is needed of a row of `describe()`."""

    @property
    def index(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def name(self) -> str: ...


def kind_of_span(node: Node) -> str:
    """Whether it is the span of our "chain", "advisor" or "model"; "" for any other."""
    if node.span is None:
        return ""
    told = node.span.attributes
    if told.get(names.OPERATION) == names.CHAT and node.span.scope in _SCOPES:
        return "model"
    kind = told.get(names.KIND)
    return kind if kind in ("chain", "advisor") else ""


def run_problems(run: Node, rows: Sequence[Row], outcome: str | None) -> list[str]:
    """What is wrong with one run, whose outermost span this is."""
    span = run.span
    assert span is not None
    problems = [
        *_differing(span, names.CHAIN_ADVISORS, tuple(row.name for row in rows)),
        *_differing(span, names.CHAIN_ORDERS, tuple(row.order for row in rows)),
        *(_differing(span, names.OUTCOME, outcome) if outcome is not None else ()),
    ]
    has_model = any(kind_of_span(node) == "model" for node, _ in _within(run))
    entered = list(_inner(run, "advisor")) if rows else []
    if rows and len(entered) != 1 and (entered or _ended(span) == "ok"):
        problems.append(f"`{span.name}` entered {len(entered)} advisors, not the outermost one alone")
    if not rows and _ended(span) == "ok" and has_model and len(list(_inner(run, "model"))) != 1:
        problems.append(f"`{span.name}` has no advisors, and is to ask the model once")
    for child in entered:
        problems += _entry_problems(child, span, 0, rows, has_model=has_model)
    return problems


def _entry_problems(node: Node, outer: SpanData, index: int, rows: Sequence[Row], *, has_model: bool) -> Iterator[str]:
    span = node.span
    assert span is not None
    if index == len(rows):
        yield f"`{span.name}` is in the innermost advisor"
        return
    row = rows[index]
    yield from _differing(span, names.ADVISOR_NAME, row.name)
    yield from _differing(span, names.ADVISOR_ORDER, row.order)
    yield from _differing(span, names.ADVISOR_INDEX, row.index)
    yield from _differing(span, names.CHAIN_LENGTH, len(rows))
    if _ended(span) not in _OUTCOMES:
        yield f"`{span.name}` has no outcome"
    if span.start < outer.start or span.end > outer.end:
        yield f"`{span.name}` begins before `{outer.name}`, or ends after it"
    entered = list(_inner(node, "advisor"))
    asked = list(_inner(node, "model")) if index == len(rows) - 1 else entered
    yield from _times_problems(span, asked, "model" if asked is not entered else "next", known=has_model or asked is entered)
    yield from _round_problems(span, asked)
    for child in entered:
        yield from _entry_problems(child, span, index + 1, rows, has_model=has_model)


def _times_problems(span: SpanData, asked: Sequence[Node], what: str, *, known: bool) -> Iterator[str]:
    """It asked as often as it says; one that did not end well may have been stopped on its way."""
    times = span.attributes.get(names.ADVISOR_NEXT_CALLS)
    if not known or not isinstance(times, int):
        return
    if len(asked) > times or (_ended(span) == "ok" and len(asked) < times):
        inner = "the model" if what == "model" else "the advisor in it"
        yield f"`{span.name}` asked {times} times, and {inner} has {len(asked)} spans in it"


def _round_problems(span: SpanData, asked: Sequence[Node]) -> Iterator[str]:
    """Rounds go on in time; only what asks again begins new ones; and attempts are counted in each."""
    own = span.attributes.get(names.ROUND, 0)
    rounds = [_number(node, names.ROUND, 0) for node in asked]
    if rounds != sorted(rounds):
        yield f"what is in `{span.name}` is of rounds {_listed(rounds)}: not in the order in which it began"
    if own and len(asked) == 1 and rounds != [own]:
        yield f"`{span.name}` is of round {own}, and what is in it of round {rounds[0]}"
    for number in sorted(set(rounds)) if len(asked) > 1 else ():
        attempts = sorted(
            _number(node, names.ADVISOR_ATTEMPT, _number(node, names.ATTEMPT, 1))
            for node in asked
            if _number(node, names.ROUND, 0) == number
        )
        if attempts != list(range(1, len(attempts) + 1)):
            of = f" of round {number}" if number else ""
            yield f"what is in `{span.name}`{of} counts its attempts {_listed(attempts)}"


def _number(node: Node, name: str, otherwise: int) -> int:
    value = None if node.span is None else node.span.attributes.get(name)
    return value if isinstance(value, int) else otherwise


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _differing(span: SpanData, name: str, expected: Any) -> Iterator[str]:
    found = span.attributes.get(name)
    if isinstance(found, list):
        found = tuple(found)
    if found != expected:
        yield f"`{span.name}`: `{name}` is {found!r}, not {expected!r}"


def _ended(span: SpanData) -> str:
    return str(span.attributes.get(names.ADVISOR_OUTCOME, span.attributes.get(names.OUTCOME, "")))


def _within(run: Node) -> Iterator[tuple[Node, int]]:
    """What is in a run, and how deep, without what is in another chain's run in it; by the time it began."""
    waiting = [(child, 1) for child in reversed(run.children)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        if kind_of_span(node) != "chain":
            waiting += [(child, depth + 1) for child in reversed(node.children)]


def _inner(node: Node, kind: str) -> Iterator[Node]:
    """The next spans of this kind inwards: through those of others, not through an advisor's or another chain's."""
    waiting = list(reversed(node.children))
    while waiting:
        child = waiting.pop()
        found = kind_of_span(child)
        if found == kind:
            yield child
        elif found in ("", "model"):
            waiting += reversed(child.children)


def advisors_of(run: Node) -> list[SpanData]:
    """The entries of the advisors of a run, by the time they began."""
    spans = [node.span for node, _ in _within(run) if node.span is not None and kind_of_span(node) == "advisor"]
    return sorted(spans, key=lambda span: span.start)


# -- both trees


def promised_lines(chain: str, rows: Sequence[Row]) -> list[str]:
    """The onion that `describe()` tells of."""
    lines = [f"chain {chain}"]
    lines += [f"{'  ' * place}advisor {row.name}  index {row.index}, order {row.order}" for place, row in enumerate(rows, 1)]
    return [*lines, "  " * (len(rows) + 1) + "the model"]


def found_lines(run: Node) -> list[str]:
    """What was recorded."""
    return [_line(run, 0), *(_line(node, depth) for node, depth in _within(run))]


def _line(node: Node, depth: int) -> str:
    if node.span is None:
        return "  " * depth + "(a span that is not among these)"
    told = node.span.attributes
    shown = {
        "index": told.get(names.ADVISOR_INDEX),
        "order": told.get(names.ADVISOR_ORDER),
        "round": told.get(names.ROUND),
        "attempt": told.get(names.ADVISOR_ATTEMPT, told.get(names.ATTEMPT)),
        "next calls": told.get(names.ADVISOR_NEXT_CALLS),
    }
    parts = [f"{word} {value}" for word, value in shown.items() if value is not None]
    return f"{'  ' * depth}{node.span.name}  {', '.join([*parts, _ended(node.span)])}".rstrip()
