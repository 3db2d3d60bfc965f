"""What advisors tell of themselves, so that one further out can warn of an order that cannot be meant.

A mark is an attribute that is True. The ready advisors have:

    keeps_answers    stores what passes: memory, cache
    hides_content    a model further in does not see what it hides: redaction
    judges_answers   an answer that does not pass is not given: typed answers
    runs_tools       has effects beyond the answer: the tool loop
    counts_calls     each request uses up some of a budget: usage limit
    asks_others      asks other models when the rest fails: fallback
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

__all__ = ["above", "mark_of", "marked"]


def mark_of(advisor: Any, marks: Iterable[str]) -> str | None:
    """The first of these marks that an advisor has."""
    return next((mark for mark in marks if getattr(advisor, mark, False)), None)


def marked(advisors: Iterable[Any], marks: Collection[str]) -> list[Any]:
    """Those of the advisors that have one of these marks."""
    return [advisor for advisor in advisors if mark_of(advisor, marks) is not None]


def above(advisor: Any) -> str:
    """What to do about an advisor that is further in and should not be."""
    return f"give this one an `order` above {advisor.order}"
