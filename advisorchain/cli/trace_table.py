"""A trace as lines of text: the tree of its spans, where in the whole time each lay, and where the time went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import Node, TraceTree
from advisorchain.cli.text import one_line
from advisorchain.cli.trace_bar import bar, scale
from advisorchain.cli.trace_slowest import Spent, seconds

__all__ = ["MISSING", "drawn", "plain_symbols"]

MISSING: Final = "(a span that is not among these)"

_GUIDE: Final = "│├└ "
_SHORT: Final = 12  # columns that a name has at least
_DEEP: Final = 300  # of a guide, more is not shown anyway
_LONG: Final = 24  # characters of a number, which a stranger may have made a text
_ENDED: Final = 24  # columns of an outcome, where there is no more room than that
_BARS: Final = (8, 40)  # columns that a bar has at least, and at most
_SHARE: Final = 0.33  # of the width, which names have before other columns go
_GAP: Final = 2
_SYMBOLS: Final = str.maketrans({"│": "|", "├": "+", "└": "`", "─": "-", "█": "#", "◀": "<", "…": "~", "→": ">", "�": "?"})
_STYLES: Final = {"ok": "green", "error": "bold red", "cancelled": "yellow", "closed": "yellow"}
_SLOW: Final = "bold magenta"


def plain_symbols(text: str) -> str:
    """`text` for a terminal or file that has only ASCII."""
    return text.translate(_SYMBOLS)


@dataclass(frozen=True, eq=False, slots=True)
class _Column:
    head: str
    to_the_left: bool = False


_NAME: Final = _Column("span", to_the_left=True)
_ORDER: Final = _Column("order")
_BAR: Final = _Column("", to_the_left=True)
_TIME: Final = _Column("time")
_SELF: Final = _Column("self")
_FIRST: Final = _Column("first")
_CHUNKS: Final = _Column("chunks")
_TOKENS: Final = _Column("tokens")
_OUTCOME: Final = _Column("outcome", to_the_left=True)
_COLUMNS: Final = (_NAME, _ORDER, _BAR, _TIME, _SELF, _FIRST, _CHUNKS, _TOKENS, _OUTCOME)
_GIVE: Final = (  # room to names, one after the other: a column, and how wide it may still be; 0: it is left out
    (_CHUNKS, 0),
    (_FIRST, 0),
    (_TOKENS, 0),
    (_OUTCOME, 14),
    (_ORDER, 0),
    (_BAR, 0),
    (_OUTCOME, 9),
    (_TIME, 0),
)


@dataclass(frozen=True, slots=True)
class _Row:
    cells: dict[_Column, str]  # without the bar, which is drawn when its width is known
    styles: dict[_Column, str]
    node: Node | None = None


_HEAD: Final = _Row({column: column.head for column in _COLUMNS}, dict.fromkeys(_COLUMNS, "dim"))


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
    widths = _room(rows, width)
    return [_line(row, widths, trace) for row in (_HEAD, *rows)]


def _slow(trace: TraceTree) -> set[Node]:
    """What is marked: the longest entries of those spans that together had most of the time."""
    ranked = Spent.of(trace).ranked()
    if not ranked or ranked[0][1].seconds <= 0:
        return set()
    enough = max(ranked[0][1].seconds / 2, trace.seconds / 10)
    marked = {name for (name, _), own in ranked if own.seconds >= enough}
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
        return _Row({_NAME: guide + missing}, {_NAME: "dim"})
    told = node.span.attributes
    outcome = _outcome(node.span)
    ended = _STYLES.get(outcome.partition(" ")[0].rstrip(","), "")
    cells = {
        _NAME: guide + one_line(node.span.name) + _entry(told),
        _ORDER: _text(told.get(names.ADVISOR_ORDER)),
        _TIME: seconds(node.worked),
        _SELF: seconds(node.own) + (" ◀" if slow else "  "),
        _FIRST: _first(told),
        _CHUNKS: _chunks(told),
        _TOKENS: _tokens(told),
        _OUTCOME: outcome,
    }
    styles = {_OUTCOME: ended, _NAME: ended if outcome.startswith("error") else ""}
    return _Row(cells, styles | (dict.fromkeys((_NAME, _BAR, _SELF), _SLOW) if slow else {}), node)


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
    hook = told.get(names.ADVISOR_FAILED_HOOK)
    return f"{word} {error}".strip() + ("" if hook is None else f" in {_text(hook)}")


# -- columns


def _room(rows: Sequence[_Row], width: int) -> dict[_Column, int]:
    """How wide each column is, without those that are empty, or for which there is no room."""
    widths = {column: _needed(column, rows) for column in _COLUMNS}
    widths = {column: needed for column, needed in widths.items() if needed or column is _NAME}
    for column, kept in _GIVE:
        if _left(widths, width) >= min(widths[_NAME], int(_SHARE * width)):
            break
        if column in widths:
            widths[column] = min(widths[column], kept)
        if not kept:
            widths.pop(column, None)
    spare = _left(widths, width)
    widths[_NAME] = max(_SHORT, min(widths[_NAME], spare))
    spare = max(0, spare - widths[_NAME])
    if _BAR in widths:
        wider = min(spare, _BARS[1] - _BARS[0])
        widths[_BAR] += wider
        spare -= wider
    if _OUTCOME in widths:
        widths[_OUTCOME] += spare
    return widths


def _needed(column: _Column, rows: Sequence[_Row]) -> int:
    """How wide a column is to be; 0: there is nothing in it."""
    if column is _BAR:
        return _BARS[0]
    cells = [row.cells.get(column, "") for row in rows]
    needed = max(map(cell_len, (column.head, *cells))) if any(map(str.strip, cells)) else 0
    return min(needed, _ENDED) if column is _OUTCOME else needed


def _left(widths: dict[_Column, int], width: int) -> int:
    """What the other columns leave for names."""
    return width - sum(needed + _GAP for column, needed in widths.items() if column is not _NAME)


def _line(row: _Row, widths: dict[_Column, int], trace: TraceTree) -> Text:
    line = Text(no_wrap=True)
    for column, room in widths.items():
        line.append(_set(row, column, room, trace), row.styles.get(column, ""))
        line.append(" " * _GAP)
    line.rstrip()
    return line


def _set(row: _Row, column: _Column, room: int, trace: TraceTree) -> str:
    if column is _BAR:
        return scale(trace, room) if row is _HEAD else bar(row.node, trace, room)
    text = row.cells.get(column, "")
    if column is _NAME:
        return _fitting(text, room)
    text = _cut(text, room)
    return set_cell_size(text, room) if column.to_the_left else " " * (room - cell_len(text)) + text


def _fitting(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    guide = len(name) - len(name.lstrip(_GUIDE))
    if guide > width // 2:  # so deep that the guide would push the name out
        name = "…" + name[guide - width // 2 + 1 :]
    return set_cell_size(_cut(name, width), width)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
