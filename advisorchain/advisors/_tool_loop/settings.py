"""What holds for every turn of one tool loop."""

from __future__ import annotations

from dataclasses import dataclass

from advisorchain.advisors._tool_loop.limits import CallLimits
from advisorchain.options import ChatOptions
from advisorchain.tools.base import Tool

__all__ = ["Bounds", "LoopSettings"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the running of tools is held to.

    Attributes:
        at_once: how many tools may run at the same time.
        timeout: seconds for a tool that has no timeout of its own.
        total_timeout: seconds for all tools of a turn.
        limits: on calls.
        raises: whether what a tool raises ends the turn.
    """

    at_once: int
    timeout: float | None
    total_timeout: float | None
    limits: CallLimits
    raises: bool


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What holds for every turn of one loop.

    Attributes:
        name: the advisor's.
        tools: by name.
        options: a request's that has none, with these tools.
        max_rounds: how often the model may be asked.
        answers: whether the turn ends with an answer when tools were called too often.
        bounds: what the running of tools is held to.
    """

    name: str
    tools: dict[str, Tool]
    options: ChatOptions
    max_rounds: int
    answers: bool
    bounds: Bounds
