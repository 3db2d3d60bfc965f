"""What differs between two chains, advisor by advisor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from typing import Any, Final, Self

from advisorchain._explain.rows import AdvisorRow, printable

__all__ = ["Change", "Difference"]

# Places shift with every advisor that comes or goes; what moved against the others is told as `moved`.
_COMPARED: Final = tuple(field.name for field in fields(AdvisorRow) if field.name not in ("index", "name"))
_WORDS: Final = {"to_stream": "stream"}


@dataclass(frozen=True, slots=True)
class Change:
    """One value of an advisor that is in both chains."""

    advisor: str
    what: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """What is otherwise in another chain. It is true when there is anything; printed, it has a line for each.

    Attributes:
        removed: the advisors of the first chain that the other one has not.
        added: those that it has, and the first one has not.
        moved: the names of advisors that stand on another side of some that are in both.
        changed: values of advisors that are others, such as an `order`.
        model: the names of the two models, where they differ.
    """

    removed: tuple[AdvisorRow, ...] = ()
    added: tuple[AdvisorRow, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()
    model: tuple[str, str] | None = None

    @classmethod
    def between(cls, one: tuple[str, Sequence[AdvisorRow]], other: tuple[str, Sequence[AdvisorRow]]) -> Self:
        """From one chain to another: each the name of its model, and its rows."""
        before, after = ({row.name: row for row in rows} for _, rows in (one, other))
        both = [name for name in before if name in after]
        changes = [
            Change(name, what, getattr(before[name], what), getattr(after[name], what))
            for name in both
            for what in _COMPARED
            if getattr(before[name], what) != getattr(after[name], what)
        ]
        return cls(
            removed=tuple(row for name, row in before.items() if name not in after),
            added=tuple(row for name, row in after.items() if name not in before),
            moved=_moved(both, [name for name in after if name in before]),
            changed=tuple(changes),
            model=(one[0], other[0]) if one[0] != other[0] else None,
        )

    def __bool__(self) -> bool:
        return any((self.removed, self.added, self.moved, self.changed, self.model))

    def __str__(self) -> str:
        lines = [f"- {_told(row)}" for row in self.removed] + [f"+ {_told(row)}" for row in self.added]
        lines += [f"~ {name}: stands elsewhere among the others" for name in self.moved]
        for change in self.changed:
            what = _WORDS.get(change.what, change.what)
            lines.append(f"~ {change.advisor}: {what} {_shown(change.before)} → {_shown(change.after)}")
        if self.model is not None:
            lines.append("~ the model: {} → {}".format(*self.model))
        return "\n".join(map(printable, lines)) or "no difference"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "removed": [row.name for row in self.removed],
            "added": [row.name for row in self.added],
            "moved": list(self.moved),
            "changed": [{name: _plain(getattr(change, name)) for name in Change.__slots__} for change in self.changed],
            "model": None if self.model is None else list(self.model),
        }


def _moved(one: list[str], other: list[str]) -> tuple[str, ...]:
    """Whose place among the others is another one: all but a longest sequence that is common to both."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    kept = {name for block in blocks for name in one[block.a : block.a + block.size]}
    return tuple(name for name in one if name not in kept)


def _told(row: AdvisorRow) -> str:
    return f"{row.name}: order {row.order}, {row.type}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        value = ", ".join(value)
    return str(value) if value != "" else "none"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
