"""Whose own time it was: the sums over the spans of one trace, of several, or of all that a receiver has shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from advisorchain import conventions as names
from advisorchain._span_data.own_time import in_hooks
from advisorchain._span_data.tree import TraceTree
from advisorchain.cli.text import one_line

__all__ = ["Spent", "SpentSoFar", "seconds", "slowest"]

_Key: TypeAlias = tuple[str, str]  # of a span: its name, and that of the advisor in which it ran where it is none itself
_LATE: Final = 200  # traces of which more may come


def seconds(seconds: float) -> str:
    """A length of time, for people."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def slowest(traces: Iterable[TraceTree]) -> str:
    """Whose own time most of the time was, and how much was that of the readers; blank, if no time has passed."""
    spent = Spent()
    for trace in traces:
        spent.add(Spent.of(trace))
    return spent.slowest()


@dataclass(slots=True)
class Own:
    """The own time of spans of one name.

    Attributes:
        seconds: of all of them.
        count: how many they are.
        hooks: of an advisor, seconds that were certainly those of one hook.
    """

    seconds: float = 0.0
    count: int = 0
    hooks: dict[str, float] = field(default_factory=dict)

    def add(self, other: Own) -> None:
        """Add that of others."""
        self.seconds += other.seconds
        self.count += other.count
        for hook, part in other.hooks.items():
            self.hooks[hook] = self.hooks.get(hook, 0.0) + part

    @property
    def hook(self) -> str | None:
        """The hook that had over half of it; None: no hook had, or nobody told."""
        return next((hook for hook, part in self.hooks.items() if part > self.seconds / 2), None)


@dataclass(slots=True)
class Spent:
    """Where the time of some traces went.

    Attributes:
        traces: how many they are.
        seconds: of all of them.
        reader: seconds that were those of who reads their streams.
        own: for each name of spans, what was their own.
    """

    traces: int = 0
    seconds: float = 0.0
    reader: float = 0.0
    own: dict[_Key, Own] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: TraceTree) -> Spent:
        """Where that of one trace went."""
        spent = cls(1, trace.seconds, trace.reader)
        waiting = [(root, "") for root in trace.roots]
        while waiting:
            node, advisor = waiting.pop()
            if node.span is not None:
                told = node.span.attributes
                kind = told.get(names.KIND)
                ours = kind is not None or told.get(names.OPERATION) == names.CHAT
                spent._add((node.span.name, "" if ours else advisor), Own(node.own, 1, in_hooks(node)))
                advisor = node.span.name if kind == "advisor" else "" if kind == "chain" else advisor
            waiting += [(child, advisor) for child in node.children]
        return spent

    def add(self, other: Spent) -> None:
        """Add that of other traces."""
        self.traces += other.traces
        self.seconds += other.seconds
        self.reader += other.reader
        for key, own in other.own.items():
            self._add(key, own)

    def _add(self, key: _Key, own: Own) -> None:
        self.own.setdefault(key, Own()).add(own)

    def ranked(self) -> list[tuple[_Key, Own]]:
        """Names and what was their own; those with the most seconds first."""
        return sorted(self.own.items(), key=lambda item: -item[1].seconds)

    def slowest(self) -> str:
        """As the function `slowest`."""
        whole = self.seconds
        told: list[str] = []
        for key, own in self.ranked()[:3]:
            if own.seconds >= whole / 10 and own.seconds > 0:
                told.append(_told(key, own, whole, of_whole=not told))
        among = f" in {self.traces} traces" if self.traces > 1 else ""
        line = [f"slowest{among}: {'; then '.join(told)}"] if told else []
        return "; ".join([*line, *_of_reader(self.reader, whole)])


class SpentSoFar:
    """That of traces which are shown one after the other, and some once more, when more of them has come."""

    def __init__(self) -> None:
        self._late: dict[str, Spent] = {}
        self._done = Spent()

    def add(self, trace: TraceTree) -> None:
        """A trace was shown; what it was when it was shown before does not count."""
        self._late.pop(trace.id, None)
        self._late[trace.id] = Spent.of(trace)
        if len(self._late) > _LATE:
            self._done.add(self._late.pop(next(iter(self._late))))

    def total(self) -> Spent:
        """That of all of them."""
        spent = Spent()
        for one in (self._done, *self._late.values()):
            spent.add(one)
        return spent


def _told(key: _Key, own: Own, whole: float, *, of_whole: bool) -> str:
    name, advisor = key
    parts = [f"{own.seconds / whole:.0%}"] if own.seconds <= whole * 1.001 else []  # more than all, where some ran at once
    parts += [f"{own.count} times"] if own.count > 1 else []
    within = f" in `{one_line(advisor)}`" if advisor else ""
    of = f" of {seconds(whole)} its own" if of_whole else ""
    more = f" ({', '.join(parts)})" if parts else ""
    hook = "" if own.hook is None else f", {seconds(own.hooks[own.hook])} in `{own.hook}`"
    return f"`{one_line(name)}`{within}, {seconds(own.seconds)}{of}{more}{hook}"


def _of_reader(read: float, whole: float) -> list[str]:
    """The time of whoever reads the answers chunk by chunk, which is nobody's in the chain; none, where it was short."""
    if read <= 0 or read < whole / 10:
        return []
    return [f"the reader: {seconds(read)} ({read / whole:.0%})" if read <= whole * 1.001 else f"the reader: {seconds(read)}"]
