"""How deep tools stand in each other: one may ask a chain whose tools ask chains in turn, the same one even."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from advisorchain.errors import LimitExceededError

__all__ = ["check_depth", "deeper", "is_too_deep"]

# Agents that are tools of agents are nested two or three deep. Without a limit, tools that ask for themselves would go on
# until the memory, or the money, is used up.
_DEEPEST: Final = 10
_NOTE: Final = "each of the turns in which it happened has ended"
_depth: Final[ContextVar[int]] = ContextVar("advisorchain.tools.depth", default=0)


def deeper() -> None:
    """A tool runs from now on, in this task."""
    _depth.set(_depth.get() + 1)


def check_depth(loop: str) -> None:
    """Let a turn begin in which tools may run.

    Raises:
        LimitExceededError: it is asked by a tool of a turn that is asked by a tool, and so on, more than ten deep.
    """
    if _depth.get() >= _DEEPEST:
        error = LimitExceededError(
            f"tools asked chains whose tools asked chains, {_DEEPEST} deep; give the inner ones other tools, or an end "
            f"(advisor `{loop}`)"
        )
        error.add_note(_NOTE)
        raise error


def is_too_deep(error: BaseException) -> bool:
    """Whether it is that error. Told to a model it would be tried again, on every level."""
    return isinstance(error, LimitExceededError) and _NOTE in getattr(error, "__notes__", ())
