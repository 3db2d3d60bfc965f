"""The rules of `advisorchain.lint`, which has them as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from advisorchain._explain.rows import effects, may_answer
from advisorchain._lint.rule_book import Chain, Finding, Has, Placed, Rule, RuleBook, above, below, names_of, told

__all__ = ["BOOK"]

BOOK: Final = RuleBook()

# What of a chain should hold for the other models of a fallback, too: they are asked through nothing that is further in.
_FOR_ALL: Final = ("keeps_answers", "hides_content", "judges_answers", "refuses_answers", "runs_tools")

_STORE: Final = Has("keeps_answers", without="answers_at_once")
_CACHE: Final = Has("keeps_answers", also="answers_at_once")
_LOOP: Final = Has("runs_tools", also="repeats")
_JUDGE: Final = Has("judges_answers", "refuses_answers")
_RETRY: Final = Has("retries")

BOOK.around(
    "guard-outside-memory",
    _JUDGE,
    _STORE,
    "what it refuses has been kept by then: {} stands further in",
    "a guard, or typed answers, around a memory: an answer is stored before it is refused, and recalled in the next turn",
    "give the guard the higher `order`",
)
BOOK.around(
    "guard-outside-cache",
    _JUDGE,
    _CACHE,
    "what it refuses has been kept by then, and is given again and again: {} stands further in",
    "a guard, or typed answers, around a cache: an answer is cached before it is refused, and refused whenever it is found",
    "give the guard the higher `order`",
)


@BOOK.rule(
    "guard-behind-transform",
    "an advisor outside of a guard changes the text that the guard has passed: what a reader sees was not judged",
    "give the guard an `order` below that of the one that transforms",
    ["refuses_answers"],
)
def _guard_behind_transform(rule: Rule, chain: Chain) -> Iterator[Finding]:
    changing = [each for each in chain if _transforms(each)]
    for guard in chain:
        if "refuses_answers" in guard.marks:
            outer = [each for each in changing if each.step.index < guard.step.index]
            if outer:
                problem = f"what {names_of(outer)}, further out, makes of an answer is not judged"
                others = tuple(each.name for each in outer)
                yield Finding(rule.name, rule.level, guard.name, others, problem, below(outer, guard))


def _transforms(each: Placed) -> bool:
    """Whether it may change an answer's text. What redaction puts back, its user had said."""
    return each.step.transform is not None and "hides_content" not in each.marks and "change" in effects(each.step)


BOOK.around(
    "changed-prompt-kept",
    Has("changes_prompt"),
    Has("keeps_answers"),
    "{}, which is further in, keeps {what}",
    "an advisor that changes what the model is sent, around a memory or cache: not what was said is kept, but what was sent",
    "give the one that changes it the higher `order`",
)
BOOK.around(
    "cache-outside-memory",
    _CACHE,
    _STORE,
    "{}, which is further in, is left out when there is an answer",
    "a cache around a memory: an answer from the cache is not remembered, and the history is not in its key",
    "give the cache the higher `order`",
)
BOOK.around(
    "cache-outside-toolsets",
    _CACHE,
    Has("offers_tools"),
    "an answer that was made with other tools of {}, which is further in, is given too",
    "a cache around an advisor that offers tools: they are not in its key",
    "give the cache the higher `order`",
)
BOOK.around(
    "retry-outside-memory",
    _RETRY,
    Has("keeps_answers"),
    "each attempt goes through {} again, from the start of the turn",
    "a retry around a memory or cache: each attempt begins a turn anew, and reads the history once more",
    "give the retry the higher `order`",
)
BOOK.around(
    "retry-outside-tools",
    _RETRY,
    Has("runs_tools"),
    "each attempt runs the tools of {} again",
    "a retry around the tool loop: when a later round fails, tools that have run run once more",
    "give the retry the higher `order`",
)
BOOK.around(
    "limit-inside-retry",
    _RETRY,
    Has("counts_calls"),
    "each attempt is a call in the budget of {}",
    "a limit on usage inside a retry: failures of the model use up the user's budget",
    "give the retry the higher `order`",
)
BOOK.around(
    "retry-outside-fallback",
    _RETRY,
    Has("asks_others"),
    "each attempt asks all models of {} again",
    "a retry around a fallback: attempts multiply by the number of models",
    "give the retry the higher `order`",
)


@BOOK.rule(
    "fallback-passes-by",
    "a fallback around what should hold for its other models, too: they are asked through nothing that is further in",
    "give the fallback the higher `order`, or each other model a chain with its own",
    ["asks_others"],
    _FOR_ALL,
)
def _fallback_passes_by(rule: Rule, chain: Chain) -> Iterator[Finding]:
    for place, each in enumerate(chain):
        if "asks_others" not in each.marks:
            continue
        passed_by = [other for other in chain[place + 1 :] if not _have_their_own(each.advisor, other)]
        if passed_by:
            hiding = names_of([other for other in passed_by if "hides_content" in other.marks])
            seen = f", and see what {hiding} hides" if hiding else ""
            problem = f"the other models are not asked through {names_of(passed_by)} (further in){seen}"
            others = tuple(other.name for other in passed_by)
            yield Finding(rule.name, rule.level, each.name, others, problem, above(passed_by, each))


def _have_their_own(fallback: Any, other: Placed) -> bool:
    """Whether each other model's chain does, too, what this advisor does; or it is nothing that has to hold for all."""
    mark = next((mark for mark in _FOR_ALL if mark in other.marks), None)
    if mark is None:
        return True
    chains = getattr(fallback, "chains", None)
    if not isinstance(chains, tuple | list):
        return False
    chains = [getattr(chain, "advisors", ()) for chain in chains]
    return bool(chains) and all(any(told(inner, mark) for inner in advisors) for advisors in chains)


BOOK.around(
    "two-tool-loops",
    _LOOP,
    _LOOP,
    "{}, which is further in, is a tool loop too",
    "two tool loops: each runs the tools that answers to the other one ask for",
    "give one of them all tools",
    by_order=False,
)


@BOOK.rule(
    "toolset-without-loop",
    "an advisor offers tools, and the loop that would run them is not further in",
    "add a ToolCallingAdvisor, or name yours",
    ["offers_tools"],
)
def _toolset_without_loop(rule: Rule, chain: Chain) -> Iterator[Finding]:
    for place, each in enumerate(chain):
        loop = each.marks.get("offers_tools")
        if isinstance(loop, str) and all(other.name != loop for other in chain[place + 1 :]):
            problem = f"no tool loop `{loop}` is further in"
            cure = "add ToolCallingAdvisor(), or give its name as `loop`"
            yield Finding(rule.name, rule.level, each.name, (), problem, cure)


@BOOK.rule(
    "memory-in-loop",
    "a memory inside the tool loop, where each round is a turn to it, with a policy, store or rule that does not fit that",
    "give the memory an `order` below that of the loop, or the settings that its warning names",
    ["repeats"],
    ["unfit_in_loop"],
)
def _memory_in_loop(rule: Rule, chain: Chain) -> Iterator[Finding]:
    loops: list[Placed] = []
    for each in chain:
        unfit = each.marks.get("unfit_in_loop")
        if loops and unfit is not None and (why := unfit()):
            names = tuple(loop.name for loop in loops)
            yield Finding(rule.name, rule.level, each.name, names, str(why), f"{below(loops, each)}, or other settings")
        if each.marks.get("repeats") == "round":
            loops.append(each)


@BOOK.rule(
    "misplaced",
    "an advisor's own `misplaced(inner)` says so",
    "as it says",
    ["misplaced"],
)
def _misplaced(rule: Rule, chain: Chain) -> Iterator[Finding]:
    for place, each in enumerate(chain):
        misplaced = each.marks.get("misplaced")
        if misplaced is not None and (why := misplaced(tuple(other.advisor for other in chain[place + 1 :]))):
            yield Finding(rule.name, rule.level, each.name, (), str(why))


@BOOK.rule(
    "skipped-observer",
    "an advisor that is there to see every turn stands inside one that may answer at once, and misses what that one answers",
    "give it a lower `order`, or stand another one of it further out",
    level="hint",
)
def _skipped_observer(rule: Rule, chain: Chain) -> Iterator[Finding]:
    for place, each in enumerate(chain):
        if not _observes(each):
            continue
        outer = chain[:place]
        skipping = [other for other in outer if _answers_at_once(other)]
        if skipping and all(type(other.advisor) is not type(each.advisor) for other in outer):
            problem = f"it does not see what {names_of(skipping)}, further out, answers at once"
            cure = f"{below(skipping, each)}, or stand another one there"
            yield Finding(rule.name, rule.level, each.name, tuple(other.name for other in skipping), problem, cure)


def _observes(each: Placed) -> bool:
    return each.step.hooks == ("done",) or "observes" in each.marks


def _answers_at_once(each: Placed) -> bool:
    return "answers_at_once" in each.marks or (each.step.before is not None and may_answer(each.step) is True)


@BOOK.rule(
    "equal-orders",
    "advisors of one `order`: which is further out follows from the sequence in which they were given",
    "give each an `order` of its own",
    level="hint",
)
def _equal_orders(rule: Rule, chain: Chain) -> Iterator[Finding]:
    by_order: dict[int, list[Placed]] = {}
    for each in chain:
        if each.step.hooks and not _observes(each):
            by_order.setdefault(each.order, []).append(each)
    for order, (first, *others) in by_order.items():
        if others:
            problem = f"its `order` {order} is that of {names_of(others)} too: the sequence in which they were given decides"
            names = tuple(other.name for other in others)
            yield Finding(rule.name, rule.level, first.name, names, problem, "give each an `order` of its own")


@BOOK.rule(
    "serves-calls-only",
    "an advisor with `advise_call` alone: a stream through it is one chunk, at the end",
    "write `advise_stream` or `around`, too",
    level="hint",
)
def _serves_calls_only(rule: Rule, chain: Chain) -> Iterator[Finding]:
    for each in chain:
        if each.step.hooks == ("advise_call",):
            problem = "it serves calls only: a stream through it is one chunk, at the end"
            yield Finding(rule.name, rule.level, each.name, (), problem, "write `advise_stream` or `around`, too")
