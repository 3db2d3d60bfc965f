"""What an advisor may say of itself: attributes and methods that none has to have. Set on yours those that are true of it.

    class Audit(BaseAdvisor):
        observes = True
        to_stream = "observe"

Nobody inherits from the classes here: a chain asks each advisor for these names.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Judged", "Keyed", "Shown", "StreamEffect"]

StreamEffect: TypeAlias = Literal["observe", "change", "hold back", "cut short"]


class Shown(Protocol):
    """For `describe()`, pictures of a chain, and traces.

    Attributes:
        repeats: what it asks the rest of the chain once for, in a word: "round", "attempt".
        to_stream: what of all that its hooks allow it does to a stream, one or some of these words. A `before` that is
            annotated `-> ChatRequest` never cuts short.
        span_kind: what traces show it as, in OpenInference's words, such as "GUARDRAIL" or "RETRIEVER".
        continues: the traceparent of a trace that this turn goes on with; the chain's span has a link to it.
    """

    repeats: str
    to_stream: StreamEffect | tuple[StreamEffect, ...]
    span_kind: str
    continues: str | None

    def placed(self, outer: tuple[Any, ...]) -> str | None:
        """What its place inside these advisors, outermost first, means for it."""
        ...


class Judged(Protocol):
    """For the rules of `advisorchain.lint`, which know advisors by these marks alone.

    Attributes:
        keeps_answers: stores what passes: memory, cache.
        answers_at_once: may answer without the rest: cache, a guard of questions. (A `before` that is annotated to return a
            ChatResponse says so already.)
        refuses_answers: may give another answer in place of one: a guard of answers.
        judges_answers: an answer that does not pass is asked for again, or is an error: typed answers.
        changes_prompt: the model is sent something else than was said: retrieval, re-reading; a text: what, such as
            "placeholders".
        hides_content: a model further in does not see what it hides: redaction.
        retries: asks the rest of the chain again after an error.
        asks_others: asks other models when the rest fails: fallback; `chains`, where they have any of their own.
        runs_tools: has effects beyond the answer: the tool loop, whose `repeats` is "round".
        repeats: see `Shown`.
        offers_tools: gives the loop tools that may differ from request to request; a text: that loop's name.
        counts_calls: each request uses up some of a budget: usage limit.
        observes: changes nothing, and is there to see every turn: a log. (One with nothing but `done` is known to be.)
    """

    keeps_answers: bool
    answers_at_once: bool
    refuses_answers: bool
    judges_answers: bool
    changes_prompt: bool | str
    hides_content: bool
    retries: bool
    asks_others: bool
    runs_tools: bool
    repeats: str
    offers_tools: bool | str
    counts_calls: bool
    observes: bool

    def misplaced(self, inner: tuple[Any, ...]) -> str | None:
        """What is wrong with its place around these advisors, outermost first, and what to do; None: nothing.

        It is asked when a chain is built, and may raise a ConfigurationError there: such a chain cannot work.
        """
        ...

    def unfit_in_loop(self) -> str | None:
        """What of its settings does not fit a place where each round of a tool loop passes by itself."""
        ...


class Keyed(Protocol):
    """For a cache's key. A value in a request's `local` may have these, too.

    Attributes:
        resumes: the request goes on with a turn that was paused, and its answer is none to the same words in another turn.
    """

    resumes: bool

    def answers_depend_on(self) -> str:
        """A text that differs when answers to one and the same request may differ: the tools that it offers."""
        ...
