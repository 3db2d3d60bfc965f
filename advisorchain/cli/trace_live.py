"""Traces as they come in: what has ended is written and stays, what has not is drawn beneath until it has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import TraceTree
from advisorchain.cli.interrupts import Interrupts
from advisorchain.cli.text import one_line, tell
from advisorchain.cli.trace_slowest import SpentSoFar
from advisorchain.testing.otlp import OtlpReceiver

if TYPE_CHECKING:
    from advisorchain.cli.trace import Paper

__all__ = ["watch"]

_TICK: Final = 0.1  # seconds
_QUIET: Final = 0.3  # after which a trace that has its root is taken to have come
_GIVEN_UP: Final = 60.0  # after which one that has none is shown without
_KEPT: Final = 200
_RUNNING: Final = "(has not ended yet, or is not sent)"


class _Coming:
    """A trace of which spans come in."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.spans: list[SpanData] = []
        self.last = 0.0
        self.taken = False
        self._tree: TraceTree | None = None

    def add(self, span: SpanData, now: float) -> None:
        self.spans.append(span)
        self.last, self.taken, self._tree = now, False, None

    @property
    def tree(self) -> TraceTree:
        if self._tree is None:
            self._tree = TraceTree(self.id, self.spans)
        return self._tree


class Arrivals:
    """Sorts spans into traces, and says which of them have come.

    Args:
        id: with what the ids of traces begin that are wanted; None: all.
        every: also traces without a chain.
    """

    def __init__(self, id: str | None = None, *, every: bool = True) -> None:
        self._id = (id or "").strip().lower()
        self._every = every
        self._traces: dict[str, _Coming] = {}  # the one that spoke last is last

    def add(self, spans: list[SpanData], now: float) -> None:
        """Spans have come. A trace that was taken before will be taken once more."""
        for span in spans:
            if span.trace_id.startswith(self._id):
                coming = self._traces.pop(span.trace_id, None) or _Coming(span.trace_id)
                self._traces[span.trace_id] = coming
                coming.add(span, now)

    def take(self, now: float, *, whole: bool = True) -> list[TraceTree]:
        """Those that have come since the last time; with `whole=False` also those of which more is expected."""
        surplus = len(self._traces) - _KEPT
        taken = []
        for place, coming in enumerate(list(self._traces.values())):
            if not coming.taken and (not whole or place < surplus or self._has_come(coming, now)):
                coming.taken = True
                if self._every or coming.tree.has_chain:
                    taken.append(coming.tree)
            if coming.taken and place < surplus:
                del self._traces[coming.id]
        return sorted(taken, key=lambda tree: tree.start)

    def _has_come(self, coming: _Coming, now: float) -> bool:
        quiet = now - coming.last
        return quiet >= _GIVEN_UP or (quiet >= _QUIET and coming.tree.complete)

    def running(self) -> list[TraceTree]:
        """Those of which more is expected."""
        return [coming.tree for coming in self._traces.values() if not coming.taken]


def watch(receiver: OtlpReceiver, paper: Paper, id: str | None, *, every: bool) -> None:
    """Show what comes in until Ctrl-C; then, of several traces, where the time of all of them went."""
    arrivals, spent = Arrivals(id, every=every), SpentSoFar()
    with Interrupts() as interrupts, _beneath(paper) as show:
        while not interrupts.forget():
            _tell_refusals(receiver)
            if spans := receiver.drain():
                arrivals.add(spans, time.monotonic())
            ended = arrivals.take(time.monotonic())
            if show is not None and (spans or ended):
                show.update(_drawing(arrivals.running(), paper), refresh=True)
            for tree in ended:
                paper.write(tree, with_slowest=True)
                spent.add(tree)
            time.sleep(_TICK)
    arrivals.add(receiver.drain(), time.monotonic())
    for tree in arrivals.take(time.monotonic(), whole=False):
        paper.write(tree, with_slowest=True)
        spent.add(tree)
    total = spent.total()
    if total.traces > 1:  # of one it was told beneath it
        paper.line(Text(total.slowest(), "bold"))


@contextmanager
def _beneath(paper: Paper) -> Iterator[Live | None]:
    """What is drawn anew beneath all that is written; None where nothing can be drawn anew."""
    if not paper.console.is_terminal or paper.console.is_dumb_terminal:
        yield None
        return
    with Live(console=paper.console, auto_refresh=False, transient=True) as live:
        yield live


def _drawing(running: list[TraceTree], paper: Paper) -> Group:
    """The traces that have not ended, as many lines as there is room for."""
    lines: list[Text] = [line for tree in running for line in (*paper.lines(tree, _RUNNING), Text())]
    return Group(*lines[-max(1, paper.console.height - 2) :])


def _tell_refusals(receiver: OtlpReceiver) -> None:
    while receiver.refusals:
        tell(f"advisorchain: not taken: {one_line(receiver.refusals.popleft())}")
