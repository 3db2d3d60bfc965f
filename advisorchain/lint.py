"""Whether the advisors of a chain stand in an order that does what they are there for.

Building a chain warns (`AdvisorOrderWarning`) of what the rules find; `chain.lint()` gives it as data, the hints too, which
are told nowhere else: such an order may well be meant. A warning begins with its rule's name, so one rule is silenced by
`warnings.filterwarnings("ignore", "guard-outside-memory", AdvisorOrderWarning)`, and all of them are made errors by
`warnings.simplefilter("error", AdvisorOrderWarning)`.

| rule | what goes wrong | cure |
|---|---|---|
| guard-outside-memory | what a guard or typed answers refuse has been stored by then | a higher `order` for the guard |
| guard-outside-cache | what they refuse has been cached by then | likewise |
| guard-behind-transform | text is changed further out than the guard that judged it | a lower `order` for the guard |
| changed-prompt-kept | a memory or cache keeps what was made of the prompt, such as placeholders | a higher `order` |
| cache-outside-memory | an answer from the cache is not remembered | a higher `order` for the cache |
| cache-outside-toolsets | tools that are offered further in are not in the cache's key | likewise |
| retry-outside-memory | each attempt begins the turn anew | a higher `order` for the retry |
| retry-outside-tools | each attempt runs tools again that have run | likewise |
| limit-inside-retry | each attempt uses up the user's budget | likewise |
| retry-outside-fallback | attempts multiply by the number of models | likewise |
| fallback-passes-by | other models are asked past what is further in | a higher `order`, or a chain with its own for each |
| two-tool-loops | each runs the tools of the other's answers | one loop with all tools |
| toolset-without-loop | nobody runs the tools that are offered | a loop further in |
| memory-in-loop | the memory's policy, store or rule does not fit rounds | an `order` below the loop's, or other settings |
| misplaced | what an advisor's own `misplaced` says | as it says |
| skipped-observer (hint) | an advisor that is to see every turn misses what is answered further out | a lower `order` |
| equal-orders (hint) | which of two is further out follows from the sequence in which they were given | orders that differ |
| serves-calls-only (hint) | a stream through it is one chunk, at the end | `advise_stream` or `around`, too |

The rules know advisors by what these say of themselves: the marks of `advisorchain.marks.Judged`. Set them on yours.
A memory policy or repository of yours that leaves out tool messages says so by `keeps_tool_messages = False`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from advisorchain._chain.steps import Step
from advisorchain._checked import checked_list
from advisorchain._lint.order_rules import BOOK
from advisorchain._lint.rule_book import Finding, Level, Rule
from advisorchain._warned import warned
from advisorchain.errors import AdvisorOrderWarning, InvalidInputError

__all__ = ["Finding", "Rule", "findings", "rules", "warn"]

_AT_BUILD: Final[tuple[Level, ...]] = ("warning",)
_ALL: Final[tuple[Level, ...]] = ("warning", "hint")


def rules() -> tuple[Rule, ...]:
    """All rules, in the order of the table."""
    return tuple(BOOK.rules)


def findings(steps: Sequence[Step], ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """What all rules find in a chain, but for those that are ignored: `chain.lint()`.

    Raises:
        InvalidInputError: `ignore` has something that is no rule.
    """
    ignore = checked_list("ignore", ignore, "rules' names")
    known = [rule.name for rule in rules()]
    if unknown := [name for name in ignore if name not in known]:
        raise InvalidInputError(f"`ignore` has `{unknown[0]}`, which is no rule; the rules: {', '.join(known)}")
    return tuple(BOOK.found(steps, _ALL, ignore))


def warn(steps: Sequence[Step]) -> None:
    """Warn of what the rules find that are no hints, where the chain is built: at the first line that is not ours."""
    for each in BOOK.found(steps, _AT_BUILD):
        warned(str(each), AdvisorOrderWarning)
