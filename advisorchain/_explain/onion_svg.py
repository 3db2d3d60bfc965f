"""The onion as an SVG picture, without any library: boxes in boxes, the request's way down, the answer's way up."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final
from xml.sax.saxutils import escape

from advisorchain._explain.onion_path import Moment
from advisorchain._explain.rows import AdvisorRow, printable

__all__ = ["svg"]

# All lengths are in pixels.
_WIDTH: Final = 960
_MARGIN: Final = 16
_STEP: Final = 14  # by how much a box is narrower than the one around it, on each side; less where there are many
_STEPS: Final = 98  # and all of them together
_TOP: Final = 84  # where the outermost box begins
_BAND: Final = 66  # of one advisor
_HOOK: Final = 22
_GAP: Final = 10  # between the bottoms of two boxes
_MODEL: Final = 46
_TEXT: Final = 256  # where an advisor's name begins
_LANES: Final = {"in": 178, "chunks": 664, "out": 782}  # the middle of each
_LANE: Final = 112
_LETTER: Final = {12: 0.55, 14: 0.62}  # how wide one is at most, on the whole, in parts of its size; 14 is bold
_CAPTIONS: Final = {"in": "request", "chunks": "chunks", "out": "response"}

# Colours: those of a light page, as attributes, which every viewer knows; where the reader prefers a dark one, rules put
# others in their place. It has its own ground, so that it can be read on any page, which may hold it inline: hence "ac-".
_LIGHT: Final = {
    "ground": "#ffffff", "name": "#1f2328", "told": "#59636e", "box": "#0969da",
    "in": "#0969da", "chunks": "#1a7f37", "out": "#8250df",
}  # fmt: skip
_DARK: Final = {
    "ground": "#0d1117", "name": "#e6edf3", "told": "#9198a1", "box": "#4493f8",
    "in": "#58a6ff", "chunks": "#3fb950", "out": "#bc8cff",
}  # fmt: skip
_RULES: Final = "".join(f".ac-f-{name}{{fill:{colour}}}.ac-s-{name}{{stroke:{colour}}}" for name, colour in _DARK.items())
_STYLE: Final = f"@media(prefers-color-scheme:dark){{{_RULES}}}"
_FONT: Final = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


def _painted(fill: str | None = None, stroke: str | None = None) -> str:
    """The attributes for a filling and a line of these colours."""
    classes = [f"ac-{kind}-{name}" for kind, name in (("f", fill), ("s", stroke)) if name is not None]
    line = "" if stroke is None else f' stroke="{_LIGHT[stroke]}"'
    return f'class="{" ".join(classes)}" fill="{"none" if fill is None else _LIGHT[fill]}"{line}'


def svg(chain: str, model: str, rows: Sequence[AdvisorRow], moments: Sequence[Moment], *, stream: bool) -> str:
    """A picture of these moments.

    Args:
        chain: its name.
        model: that of the model.
        rows: the advisors, outermost first.
        moments: their way, as `path` gives it.
        stream: chunks have a lane of their own then.
    """
    return "\n".join(_Picture(chain, model, rows, moments, stream).drawn()) + "\n"


class _Picture:
    def __init__(self, chain: str, model: str, rows: Sequence[AdvisorRow], moments: Sequence[Moment], stream: bool) -> None:
        self._title = f"{'A stream' if stream else 'A call'} through the chain “{chain}”"
        self._model = model
        self._rows = rows
        self._moments = moments
        self._lanes = ("in", "chunks", "out") if stream else ("in", "out")
        self._stream = stream
        self._tops = [_TOP]  # of each advisor's band, and of the model
        for row in rows:
            self._tops.append(self._tops[-1] + max(_BAND, 16 + _HOOK * self._most_hooks(row)))
        self._bottom = self._tops[-1] + _MODEL + 2 * _GAP  # of the innermost box
        self._shade = round(min(0.06, 0.3 / max(1, len(rows))), 4)  # they add up: the deeper, the darker
        self._height = self._bottom + _GAP * max(0, len(rows) - 1) + _MARGIN

    def _most_hooks(self, row: AdvisorRow) -> int:
        ways = [moment.way for moment in self._moments if moment.index == row.index]
        return max(map(ways.count, ways), default=0)

    def drawn(self) -> Iterator[str]:
        """Line by line."""
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {self._height}" width="{_WIDTH}"'
            f' height="{self._height}" font-family="{_FONT}" font-size="12" style="max-width:100%;height:auto">'
        )
        yield f"<title>{_escaped(self._title)}</title>"
        yield f"<style>{_STYLE}</style>"
        yield f'<rect {_painted("ground")} width="{_WIDTH}" height="{self._height}" rx="8"/>'
        yield _text(_MARGIN, 28, "name", self._title, _WIDTH - 2 * _MARGIN, size=14)
        for row, top in zip(self._rows, self._tops, strict=False):
            yield self._box(row, top)
        for way in self._lanes:
            yield from self._lane(way)
        yield from self._drawn_model()
        for row, top in zip(self._rows, self._tops, strict=False):
            yield from self._told(row, top)
            yield from self._hooks(row, top)
        yield "</svg>"

    def _box(self, row: AdvisorRow, top: int) -> str:
        step = min(_STEP, _STEPS / max(1, len(self._rows) - 1))
        left = _MARGIN + step * row.index
        bottom = self._bottom + _GAP * (len(self._rows) - 1 - row.index)
        place = f'x="{left:g}" y="{top}" width="{_WIDTH - 2 * left:g}" height="{bottom - top}"'
        return f'<rect {_painted("box", "box")} fill-opacity="{self._shade:g}" stroke-opacity=".5" {place} rx="8"/>'

    def _lane(self, way: str) -> Iterator[str]:
        middle, head, model = _LANES[way], _TOP - 18, self._tops[-1] + _GAP
        yield _text(middle, head - 12, way, _CAPTIONS[way], _LANE, middle=True)
        ends = (head - 4, model - 1) if way == "in" else (model, head - 3)
        dashes = ' stroke-dasharray="5 4"' if way == "chunks" else ""
        yield f'<path {_painted(stroke=way)} stroke-width="1.5"{dashes} d="M{middle} {ends[0]}V{ends[1]}"/>'
        tip = -6 if way == "in" else 6
        yield f'<path {_painted(way)} d="M{middle} {ends[1]}l-4.5 {tip}h9z"/>'

    def _drawn_model(self) -> Iterator[str]:
        top, left = self._tops[-1] + _GAP, _LANES["in"] - _LANE // 2
        width = _LANES["out"] + _LANE // 2 - left
        place = f'x="{left}" y="{top}" width="{width}" height="{_MODEL}" rx="6"'
        yield f"<rect {_painted('ground')} {place}/>"
        yield f'<rect {_painted("box", "box")} fill-opacity=".06" stroke-opacity=".5" {place}/>'
        number = next(moment.number for moment in self._moments if moment.way == "model")
        yield _text(left + width // 2, top + 28, "name", f"{number} · {self._model}", width - 20, middle=True, size=14)

    def _told(self, row: AdvisorRow, top: int) -> Iterator[str]:
        room = _LANES["chunks" if self._stream else "out"] - _LANE // 2 - 8 - _TEXT
        again = f" ↻ {row.repeats} by {row.repeats}" if row.repeats else ""
        sees = f"sees {row.sees}" if row.sees != AdvisorRow.__dataclass_fields__["sees"].default else ""
        may = f"stream: {', '.join(row.to_stream)}" if self._stream else ""
        yield _text(_TEXT, top + 22, "name", f"{row.name}{again}", room, size=14)
        yield _text(_TEXT, top + 39, "told", f"order {row.order}".replace("-", "−") + f" · {row.type}", room)
        if told := " · ".join(filter(None, (may, sees))):
            yield _text(_TEXT, top + 55, "told", told, room)

    def _hooks(self, row: AdvisorRow, top: int) -> Iterator[str]:
        bottom = self._tops[row.index + 1]
        for way in self._lanes:
            hooks = [moment for moment in self._moments if moment.index == row.index and moment.way == way]
            start = (top + bottom + _HOOK * len(hooks)) // 2  # upwards from here: what comes first is the lowest
            for place, moment in enumerate(hooks, 1):
                y, left = start - _HOOK * place + 2, _LANES[way] - _LANE // 2
                place_here = f'x="{left}" y="{y}" width="{_LANE}" height="{_HOOK - 4}" rx="9"'
                yield f'<rect {_painted("ground", way)} stroke-width="1.2" {place_here}/>'
                label = f"{moment.number} {moment.hook}"
                yield _text(_LANES[way], y + 13, way, label, _LANE, middle=True)


def _text(x: int, y: int, colour: str, text: str, room: float, *, middle: bool = False, size: int = 12) -> str:
    """A line of text, cut to the room that there is; whoever points at it is shown all."""
    text = printable(text)
    shown = _fitting(text, room, size)
    how = _painted(colour) + (' text-anchor="middle"' if middle else "")
    how += ' font-size="14" font-weight="600"' if size == 14 else ""
    whole = f"<title>{_escaped(text)}</title>" if shown != text else ""
    return f'<text {how} x="{x}" y="{y}">{_escaped(shown)}{whole}</text>'


def _fitting(text: str, room: float, size: int) -> str:
    """`text`, or its beginning with an ellipsis. Which font the reader has is not known: widths are those of a wide one."""
    widths = [size * (1.05 if unicodedata.east_asian_width(c) in "WF" else _LETTER[size]) for c in text]
    if sum(widths) <= room:
        return text
    kept = bisect_right(list(accumulate(widths)), room - size * 0.9)
    return text[:kept] + "…"


def _escaped(text: str) -> str:
    return escape(printable(text))
