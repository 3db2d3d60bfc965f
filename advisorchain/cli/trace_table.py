"""A trace as lines of text: the tree of its spans, where in the whole time each lay, and where the time went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import Node, TraceTree
from advisorchain.cli.text import one_line
from advisorchain.cli.trace_slowest import Spent, seconds

__all__ = ["MISSING", "drawn", "plain_symbols"]

MISSING: Final = "(a span that is not among these)"

_GUIDE: Final = "│├└ "
_SHORT: Final = 12  # columns that a name has at least
_DEEP: Final = 300  # of a guide, more is not shown anyway
_LONG: Final = 24  # characters of a number, which a stranger may have made a text
_NAME: Final = 0.33  # of the width, which it has before other columns go
_BAR: Final = (8, 40)
_ENDED: Final = 24  # columns of an outcome, where there is no more room than that
_GAP: Final = 2
_HEAD: Final = ("span", "order", "", "time", "self", "first", "chunks", "tokens", "outcome")
_NAME_AT, _ORDER_AT, _BAR_AT, _OUTCOME_AT = 0, 1, 2, 8
_TO_THE_LEFT: Final = (_NAME_AT, _BAR_AT, _OUTCOME_AT)
# What goes first where there is no room: a column, and how wide it may still be; 0: it is left out.
_GIVE: Final = ((6, 0), (5, 0), (7, 0), (_OUTCOME_AT, 14), (_ORDER_AT, 0), (_BAR_AT, 0), (_OUTCOME_AT, 9), (3, 0))
_SYMBOLS: Final = str.maketrans({"│": "|", "├": "+", "└": "`", "─": "-", "█": "#", "◀": "<", "…": "~", "→": ">", "�": "?"})
_STYLES: Final = {"ok": "green", "error": "bold red", "cancelled": "yellow", "closed": "yellow"}
_SLOW: Final = "bold magenta"


def plain_symbols(text: str) -> str:
    """`text` for a terminal or file that has only ASCII."""
    return text.translate(_SYMBOLS)


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[str, ...]  # the bar's is blank
    styles: tuple[str, ...]
    node: Node | None = None


def drawn(trace: TraceTree, width: int = 80, missing: str = MISSING) -> list[Text]:
    """A line a span under a line of headings, in columns. Without spans there are no lines.

    Args:
        trace: what is to be drawn.
        width: how many columns a line may take, but never fewer than the numbers and a short name need.
        missing: what stands for a parent that is not there.
    """
    slow = _slow(trace)
    rows = [_row(node, guide, node in slow, missing) for node, guide in _walk(trace)]
    if not rows:
        return []
    head = _Row(_HEAD, ("dim",) * len(_HEAD))
    places, widths = _room([head, *rows], width)
    return [_line(row, places, widths, trace) for row in (head, *rows)]


def _slow(trace: TraceTree) -> set[Node]:
    """What is marked: the longest entries of those spans that together had most of the time."""
    ranked = Spent.of(trace).ranked()
    if not ranked or ranked[0][1] <= 0:
        return set()
    enough = max(ranked[0][1] / 2, trace.seconds / 10)
    marked = {name for (name, _), own, _ in ranked if own >= enough}
    longest: dict[str, float] = {}
    nodes = [(node, node.span.name) for node in trace.walk() if node.span is not None and node.span.name in marked]
    for node, name in nodes:
        longest[name] = max(longest.get(name, 0.0), node.own)
    return {node for node, name in nodes if node.own >= longest[name] / 2}


def _walk(trace: TraceTree) -> Iterator[tuple[Node, str]]:
    """Each node with the guide in front of its name."""
    waiting = [(root, "", "") for root in reversed(trace.roots)]
    while waiting:
        node, first, rest = waiting.pop()
        yield node, first
        for child in reversed(node.children):
            last = child is node.children[-1]
            rest = rest[-_DEEP:]
            waiting.append((child, rest + ("└ " if last else "├ "), rest + ("  " if last else "│ ")))


def _row(node: Node, guide: str, slow: bool, missing: str) -> _Row:
    if node.span is None:
        return _Row((guide + missing, *("",) * 8), ("dim",) * 9)
    told = node.span.attributes
    outcome = _outcome(node.span)
    ended = _STYLES.get(outcome.partition(" ")[0].rstrip(","), "")
    strong = _SLOW if slow else ""
    name = strong or (ended if outcome.startswith("error") else "")
    cells = (
        guide + one_line(node.span.name) + _entry(told),
        _text(told.get(names.ADVISOR_ORDER)),
        "",
        seconds(node.span.seconds),
        seconds(node.own) + (" ◀" if slow else "  "),
        _first(told),
        _chunks(told),
        _tokens(told),
        outcome,
    )
    return _Row(cells, (name, "", strong, "", strong, "", "", "", ended), node)


def _entry(told: Any) -> str:
    attempt = told.get(names.ADVISOR_ATTEMPT, told.get(names.ATTEMPT))
    numbers = (("round", told.get(names.ROUND)), ("attempt", attempt))
    parts = [f"{word} {_text(number)}" for word, number in numbers if number]
    return f" ({', '.join(parts)})" if parts else ""


def _text(value: Any) -> str:
    return "" if value is None else _cut(one_line(str(value)), _LONG)


def _first(told: Any) -> str:
    first = told.get(names.TIME_TO_FIRST_CHUNK, told.get(names.RESPONSE_TIME_TO_FIRST_CHUNK))
    return seconds(first) if isinstance(first, int | float) else ""


def _chunks(told: Any) -> str:
    came, left = told.get(names.CHUNKS_IN), told.get(names.CHUNKS_OUT)
    return _text(left) if came is None or came == left else f"{_text(came)}→{_text(left)}"


def _tokens(told: Any) -> str:
    asked, answered = told.get(names.INPUT_TOKENS), told.get(names.OUTPUT_TOKENS)
    return "" if asked is None and answered is None else f"{_text(asked) or '?'}→{_text(answered) or '?'}"


def _outcome(span: SpanData) -> str:
    told = span.attributes
    word = _text(told.get(names.ADVISOR_OUTCOME, told.get(names.OUTCOME)))
    error = one_line(str(told.get(names.ERROR_TYPE, "")))
    if not word:
        word = "error" if error or span.status == "error" else ""
    if word == "ok" and told.get(names.ADVISOR_NEXT_CALLS) == 0:
        return "ok, short circuit"
    return f"{word} {error}".strip()


# -- columns


def _room(rows: Sequence[_Row], width: int) -> tuple[list[int], list[int]]:
    """Which columns there is room for, and how wide each is."""
    needed = [max(cell_len(row.cells[place]) for row in rows) for place in range(len(_HEAD))]
    places = [
        place
        for place in range(len(_HEAD))
        if place in (_NAME_AT, _BAR_AT) or any(row.cells[place].strip() for row in rows[1:])
    ]
    needed[_BAR_AT] = _BAR[0]
    needed[_OUTCOME_AT] = min(needed[_OUTCOME_AT], _ENDED)
    for place, kept in (*_GIVE, (_NAME_AT, 0)):
        room = width - sum(needed[other] + _GAP for other in places if other != _NAME_AT)
        if room >= min(needed[_NAME_AT], int(_NAME * width)) or place == _NAME_AT:
            break
        needed[place] = min(needed[place], kept)
        places = [other for other in places if other != place or kept]
    needed[_NAME_AT] = max(_SHORT, min(needed[_NAME_AT], room))
    spare = max(0, room - needed[_NAME_AT])
    if _BAR_AT in places:
        needed[_BAR_AT] = min(_BAR[1], _BAR[0] + spare)
        spare -= needed[_BAR_AT] - _BAR[0]
    needed[_OUTCOME_AT] += spare
    return places, needed


def _line(row: _Row, places: Sequence[int], widths: Sequence[int], trace: TraceTree) -> Text:
    line = Text(no_wrap=True)
    for place in places:
        room = widths[place]
        text = row.cells[place]
        if place == _BAR_AT:
            text = _scale(trace, room) if row.cells is _HEAD else _bar(row.node, trace, room)
        elif place == _NAME_AT:
            text = _fitting(text, room)
        else:
            text = _cut(text, room)
            text = set_cell_size(text, room) if place in _TO_THE_LEFT else " " * (room - cell_len(text)) + text
        line.append(text, row.styles[place])
        line.append(" " * _GAP)
    line.rstrip()
    return line


def _scale(trace: TraceTree, room: int) -> str:
    whole = seconds(trace.seconds)
    return f"0{whole.rjust(room - 1)}" if room > cell_len(whole) + 1 else set_cell_size("", room)


def _bar(node: Node | None, trace: TraceTree, room: int) -> str:
    """Where in the whole time a span lay: thick where the time was its own, thin where it was that of what is in it.

    What it did of its own while something in it ran, such as with a chunk while the model waited, is thick too: as many
    cells as it took, spread over those, since nobody recorded when it was.
    """
    whole = trace.end - trace.start
    if node is None or node.span is None or whole <= 0:
        return " " * room
    span = node.span
    first = min(room - 1, (span.start - trace.start) * room // whole)
    end = max(first + 1, min(room, ceil((span.end - trace.start) * room / whole)))
    inner = [(child.span.start, child.span.end) for child in node.children if child.span is not None]
    own = node.own >= node.uncovered / 2  # of a stream's advisor, which mostly waited for its reader, it is not
    middles = [trace.start + (2 * cell + 1) * whole // (2 * room) for cell in range(first, end)]
    covered = [any(start <= middle < until for start, until in inner) for middle in middles]
    among = _spread(sum(covered), round((node.own - node.uncovered) * 1e9 * room / whole))
    thick = [next(among) if inside else own for inside in covered]
    return " " * first + "".join("█" if cell else "─" for cell in thick) + " " * (room - end)


def _spread(cells: int, thick: int) -> Iterator[bool]:
    """Which of so many cells are thick, evenly; none for a number below 0."""
    thick = max(0, min(cells, thick))
    return ((cell + 1) * thick // cells > cell * thick // cells for cell in range(cells))


def _fitting(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    guide = len(name) - len(name.lstrip(_GUIDE))
    if guide > width // 2:  # so deep that the guide would push the name out
        name = "…" + name[guide - width // 2 + 1 :]
    return set_cell_size(_cut(name, width), width)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
