"""What the rules of `advisorchain.lint` are made of: what advisors say of themselves, and who stands around whom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from advisorchain._chain.steps import Step
from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE
from advisorchain.marks import Judged

__all__ = ["Chain", "Finding", "Has", "Level", "Placed", "Rule", "RuleBook", "above", "below", "names_of", "told"]

Level: TypeAlias = Literal["warning", "hint"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that an order of advisors can be wrong in.

    Attributes:
        name: by which it is told, filtered and ignored.
        level: "warning": told when a chain is built, as an AdvisorOrderWarning; "hint": by `lint` alone, since the order may
            well be meant.
        reason: what goes wrong.
        cure: what to do.
    """

    name: str
    level: Level
    reason: str
    cure: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has found in a chain. `str()` of it is the text of the warning.

    Attributes:
        rule, level: of the Rule.
        advisor: the name of the one that stands wrong.
        others: the names of those that it stands wrong to.
        problem: what goes wrong here.
        cure: what to do here; "" where the problem says it.
    """

    rule: str
    level: Level
    advisor: str
    others: tuple[str, ...]
    problem: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: advisor `{self.advisor}`: {self.problem}" + (f"; {self.cure}" if self.cure else "")


_METHODS: Final = tuple(name for name in vars(Judged) if not name.startswith("_"))
_MARKS: Final = (*_METHODS, *Judged.__annotations__)


class Placed:
    """One advisor of a chain, and what it says of itself."""

    __slots__ = ("advisor", "marks", "name", "order", "step")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.name = step.name
        self.order = step.order
        self.advisor: Any = step.advisor
        self.marks = {mark: value for mark in _MARKS if (value := told(step.advisor, mark)) is not None}


def told(advisor: Any, mark: str) -> Any:
    """What an advisor says by a mark: True, a text, a method; None: nothing, or it means something else by that name."""
    value = getattr(advisor, mark, None)
    if value is None:
        return None
    meant = callable(value) if mark in _METHODS else value is True or (isinstance(value, str) and value)
    return value if meant else None


Chain: TypeAlias = Sequence[Placed]
Check: TypeAlias = Callable[[Rule, Chain], Iterator[Finding]]


class Has:
    """Whether an advisor has one of these marks, and of others none."""

    def __init__(self, *marks: str, also: str | None = None, without: str | None = None) -> None:
        self.marks: Final = marks
        self._also: Final = also
        self._without: Final = without

    def __call__(self, each: Placed) -> bool:
        """Ask it."""
        if self._without in each.marks or (self._also is not None and self._also not in each.marks):
            return False
        return any(mark in each.marks for mark in self.marks)


class RuleBook:
    """Rules, in the order in which they are told."""

    def __init__(self) -> None:
        self.rules: Final[list[Rule]] = []
        self._checks: Final[list[tuple[Rule, tuple[Collection[str], ...], Check]]] = []

    def rule(
        self, name: str, reason: str, cure: str, *needs: Collection[str], level: Level = "warning"
    ) -> Callable[[Check], Check]:
        """Add a rule.

        It is not asked of a chain where nobody has one of the marks `needs`; with two of these, where nobody who has one of
        the first stands outside of somebody who has one of the second. So a chain in order costs next to nothing.
        """

        def add(check: Check) -> Check:
            rule = Rule(name, level, reason, cure)
            self.rules.append(rule)
            self._checks.append((rule, needs, check))
            return check

        return add

    def around(
        self, name: str, outer: Has, inner: Has, problem: str, reason: str, cure: str, *, by_order: bool = True
    ) -> None:
        """Add a rule on one who stands outside of others, and should stand inside: `{}` in `problem` are these.

        `{what}` is what the outer one says by its `changes_prompt`. Without `by_order` another order is no cure.
        """

        def check(rule: Rule, chain: Chain) -> Iterator[Finding]:
            for place, each in enumerate(chain):
                if outer(each) and (wrong := [other for other in chain[place + 1 :] if inner(other)]):
                    others = tuple(other.name for other in wrong)
                    said = each.marks.get("changes_prompt")
                    what = said if isinstance(said, str) else "what it makes of the prompt"
                    problem_here = problem.format(names_of(wrong), what=what)
                    cure_here = above(wrong, each) if by_order else cure
                    yield Finding(rule.name, rule.level, each.name, others, problem_here, cure_here)

        self.rule(name, reason, cure, outer.marks, inner.marks)(check)

    def found(self, steps: Sequence[Step], levels: Collection[Level], ignore: Collection[str] = ()) -> Iterator[Finding]:
        """What the rules of these levels find in a chain, but for those that are ignored."""
        chain = [Placed(step) for step in steps]
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for place, each in enumerate(chain):
            for mark in each.marks:
                first.setdefault(mark, place)
                last[mark] = place
        for rule, needs, check in self._checks:
            if rule.level in levels and rule.name not in ignore and _may_find(needs, first, last):
                yield from check(rule, chain)


def _may_find(needs: tuple[Collection[str], ...], first: dict[str, int], last: dict[str, int]) -> bool:
    if not needs:
        return True
    outer = min((first[mark] for mark in needs[0] if mark in first), default=None)
    if outer is None or len(needs) == 1:
        return outer is not None
    return outer < max((last[mark] for mark in needs[1] if mark in last), default=-1)


def names_of(advisors: Sequence[Placed]) -> str:
    """The names of advisors, for a message."""
    return ", ".join(f"`{each.name}`" for each in advisors)


def above(inner: Sequence[Placed], each: Placed) -> str:
    """The cure where one stands outside of these, the outermost first: an order above that of the last is above all."""
    if inner[-1].order < LOWEST_PRECEDENCE:
        return f"give this one an `order` above {inner[-1].order}"
    return f"give {names_of(inner)} an `order` below {each.order}"


def below(outer: Sequence[Placed], each: Placed) -> str:
    """The cure where one stands inside of these: an order below that of the first is below all."""
    if outer[0].order > HIGHEST_PRECEDENCE:
        return f"give this one an `order` below {outer[0].order}"
    return f"give {names_of(outer)} an `order` above {each.order}"
