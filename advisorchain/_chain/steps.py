"""Advisors, compiled: which hooks there are, which of them are async, and what they may give back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor
from advisorchain.errors import AdvisorContractError, ConfigurationError, dropped, kind_of
from advisorchain.exchange import ChatResponse
from advisorchain.model import is_async

__all__ = ["AROUNDS", "HOOKS", "Step", "compile_advisors", "seen_inside"]

HOOKS: Final = ("before", "transform", "after", "done")
AROUNDS: Final = ("around", "advise_call", "advise_stream")


class Step:
    """One advisor of a chain, at its place.

    Hooks that an advisor does not override are None, so that a frame need not call them.
    """

    __slots__ = (
        "advise_call",
        "advise_stream",
        "advisor",
        "after",
        "after_async",
        "around",
        "before",
        "before_async",
        "done",
        "done_async",
        "index",
        "name",
        "order",
        "transform",
    )

    advisor: Any
    before: Callable[..., Any] | None
    transform: Callable[..., Any] | None
    after: Callable[..., Any] | None
    done: Callable[..., Any] | None
    around: Callable[..., Any] | None
    advise_call: Callable[..., Any] | None
    advise_stream: Callable[..., Any] | None

    def __init__(self, advisor: Any) -> None:
        self.advisor = advisor
        self.name: str = _checked_name(advisor)
        self.order: int = _checked_order(self.name, advisor)
        self.index = -1
        for name in (*HOOKS, *AROUNDS):
            setattr(self, name, _own(advisor, name))
        self.before_async = is_async(self.before)
        self.after_async = is_async(self.after)
        self.done_async = is_async(self.done)
        _check_kind(self)

    def copy(self) -> Step:
        """Another step with the same values."""
        copy = Step.__new__(Step)
        for name in Step.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy

    @property
    def hooks(self) -> tuple[str, ...]:
        """The names of what the advisor defines."""
        return tuple(name for name in (*HOOKS, *AROUNDS) if getattr(self, name) is not None)

    @property
    def is_around(self) -> bool:
        """Whether the advisor itself asks the rest of the chain."""
        return any(getattr(self, name) is not None for name in AROUNDS)

    def runs(self, frame: FrameType) -> bool:
        """Whether a frame on a traceback is this advisor's around advice."""
        for name in AROUNDS:
            function = getattr(self, name)
            code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None) if function else None
            if code is frame.f_code:
                owner = getattr(function, "__self__", None)
                return owner is None or frame.f_locals.get(code.co_varnames[0]) is owner
        return False

    def short_circuit(self, result: object) -> ChatResponse:
        """What `before` gave back in place of a request: a response."""
        if isinstance(result, ChatResponse):
            return result
        raise self._wrong("before", result, "the request, a changed copy, or a ChatResponse")

    def changed(self, result: object) -> ChatResponse:
        """What `after` gave back."""
        if isinstance(result, ChatResponse):
            return result
        raise self._wrong("after", result, "the response or a changed copy")

    def finished(self, result: object) -> None:
        """What `done` gave back: nothing that anybody would have to await."""
        if inspect.isawaitable(result):
            raise self._wrong("done", result, "nothing")

    def checked_transform(self, transform: Any) -> Any:
        """What `transform` gave back: something with `feed` and `flush`."""
        if callable(getattr(transform, "feed", None)) and callable(getattr(transform, "flush", None)):
            return transform
        raise self._wrong("transform", transform, "an object with feed(text) and flush(), or None")

    def flushed(self, transform: Any, text: str) -> str:
        """A last piece of text, fed to a transform, and what it has held."""
        left = self.checked_text(transform.feed(text)) if text else ""
        return left + self.checked_text(transform.flush())

    def checked_text(self, text: object) -> str:
        """What a transform gave back: text."""
        if isinstance(text, str):
            return text
        raise self._wrong("transform", text, "text from feed() and flush()")

    def _wrong(self, hook: str, result: object, wanted: str) -> AdvisorContractError:
        found = dropped(result)
        if inspect.iscoroutine(result):
            found = "a coroutine (make the hook itself `async def`)"
        return AdvisorContractError(f"`{hook}` of advisor `{self.name}` returned {found}; return {wanted}")


def _own(advisor: Any, name: str) -> Any:
    """A hook that the advisor defines itself; None for one that it merely inherits from our base classes."""
    hook = getattr(advisor, name, None)
    base = getattr(BaseAdvisor, name, None) or getattr(AroundAdvisor, name, None)
    if hook is None or (base is not None and getattr(hook, "__func__", None) is base):
        return None
    if not callable(hook):
        raise ConfigurationError(f"`{name}` of advisor `{_checked_name(advisor)}` is not callable")
    return hook


def _checked_name(advisor: Any) -> str:
    name = getattr(advisor, "name", None)
    if isinstance(advisor, type) or not isinstance(name, str):
        raise ConfigurationError(
            f"`advisors`: {kind_of(advisor)} is no advisor; an advisor has a `name`, an `order` and hooks"
        )
    if not name.strip():
        raise ConfigurationError(f"`advisors`: the `name` of {kind_of(advisor)} is blank")
    return name


def _checked_order(name: str, advisor: Any) -> int:
    order = getattr(advisor, "order", None)
    if not isinstance(order, int) or isinstance(order, bool):
        raise ConfigurationError(f"`order` of advisor `{name}` is {kind_of(order)}; give a whole number")
    if not HIGHEST_PRECEDENCE <= order <= LOWEST_PRECEDENCE:
        raise ConfigurationError(
            f"`order` of advisor `{name}` is {order}; the range is {HIGHEST_PRECEDENCE} to {LOWEST_PRECEDENCE}"
        )
    return int(order)


def _check_kind(step: Step) -> None:
    found = step.hooks
    if not found and (not isinstance(step.advisor, BaseAdvisor) or _public_methods(step.advisor)):
        wanted = ", ".join((*HOOKS, *AROUNDS))  # a misspelt hook would go unnoticed for long
        raise ConfigurationError(f"advisor `{step.name}` does nothing; define one of {wanted}")
    if step.is_around and any(name in HOOKS for name in found):
        mixed = ", ".join(f"`{name}`" for name in found)
        raise ConfigurationError(f"advisor `{step.name}` mixes hooks with around advice ({mixed}); make it two advisors")
    if step.around is not None and step.advise_stream is not None:
        raise ConfigurationError(f"advisor `{step.name}` has both `around` and `advise_stream`; keep one")
    if is_async(step.transform):
        raise ConfigurationError(f"`transform` of advisor `{step.name}` is async; write a plain `def`")
    if step.advise_call is not None and not is_async(step.advise_call):
        raise ConfigurationError(f"`advise_call` of advisor `{step.name}` is not async; write `async def`")
    for name in ("around", "advise_stream"):
        if is_async(getattr(step, name)):
            raise ConfigurationError(
                f"`{name}` of advisor `{step.name}` is a coroutine function; make it an async generator"
            )


def _public_methods(advisor: Any) -> bool:
    kinds = (kind for kind in type(advisor).__mro__ if kind.__module__ not in (BaseAdvisor.__module__, "builtins"))
    return any(not name.startswith("_") and callable(value) for kind in kinds for name, value in vars(kind).items())


def compile_advisors(advisors: object) -> tuple[Step, ...]:
    """The advisors as steps, outermost first; equal orders keep the order in which they were given.

    Raises:
        ConfigurationError: something is no advisor, mixes kinds, has no usable order, or two have one name.
    """
    if isinstance(advisors, str | bytes) or not hasattr(advisors, "__iter__"):
        raise ConfigurationError(f"`advisors` is {kind_of(advisors)}; give a list of advisors")
    steps = sorted((Step(advisor) for advisor in advisors), key=lambda step: step.order)
    names: set[str] = set()
    for index, step in enumerate(steps):
        step.index = index
        if step.name in names:
            raise ConfigurationError(f"`advisors`: two advisors are named `{step.name}`; set another `name` on one of them")
        names.add(step.name)
    return tuple(steps)


def seen_inside(outer: Iterable[Any]) -> str:
    """How much of an answer passes, each time, an advisor that stands inside these, outermost first.

    An advisor that asks the rest of the chain several times in one turn says what for, by a `repeats`, such as "round".
    """
    repeated = [what for advisor in outer if isinstance(what := getattr(advisor, "repeats", None), str)]
    return f"each {' of each '.join(reversed(repeated))}" if repeated else "the whole turn"
