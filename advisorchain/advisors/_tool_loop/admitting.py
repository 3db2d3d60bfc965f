"""What becomes of the calls of one answer before any of them runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from advisorchain.advisors._tool_loop.failures import error_result, failure, noted
from advisorchain.advisors._tool_loop.limits import Breach, Counts
from advisorchain.advisors._tool_loop.settings import Bounds
from advisorchain.errors import ToolArgumentsError
from advisorchain.messages import ToolCall, ToolMessage
from advisorchain.tools.base import Tool
from advisorchain.tools.context import ToolContext

__all__ = ["Admitted", "Means", "admit", "admit_open"]

_Verdict: TypeAlias = ToolMessage | Literal["runs", "waits"]


@dataclass(frozen=True, slots=True)
class Means:
    """What the calls of an answer are run with.

    Attributes:
        tools: what can be run, by name.
        outside: names of tools that the application runs itself.
        context_of: makes what a tool may ask of its call.
        bounds: what the running is held to.
        counts: of the turn.
    """

    tools: Mapping[str, Tool]
    outside: Collection[str]
    context_of: Callable[[ToolCall], ToolContext]
    bounds: Bounds
    counts: Counts


@dataclass(slots=True)
class Admitted:
    """What was decided on the calls.

    Attributes:
        to_run: those that are run, now or after a person's yes.
        waiting: those among them that wait for it.
        results: of the others, by call id.
        breach: the limit that was reached; the calls from there on are in none of these.
    """

    to_run: list[ToolCall] = field(default_factory=list)
    waiting: list[ToolCall] = field(default_factory=list)
    results: dict[str, ToolMessage] = field(default_factory=dict)
    breach: Breach | None = None


def admit(asked: Sequence[ToolCall], calls: Sequence[ToolCall], means: Means) -> Admitted:
    """Count the calls, answer those that nothing can be done with, and find those that wait for a yes.

    Args:
        asked: the calls as the model wrote them.
        calls: the same as they are sent back.
        means: what they are to be run with.

    Raises:
        Exception: what a `needs_approval` function raised, where errors of tools end the turn.
    """
    admitted = Admitted()
    for was, call in zip(asked, calls, strict=True):
        admitted.breach = means.counts.add_call(call.name, means.bounds.limits)
        if admitted.breach is not None:
            break
        wrong = _wrong(was, call, means)
        _take(admitted, call, _approval(call, means) if wrong is None else error_result(call, wrong))
    return admitted


def admit_open(
    calls: Sequence[ToolCall], decided: Collection[str], results: Mapping[str, ToolMessage], means: Means
) -> Admitted:
    """The calls of a turn that goes on. They were counted before; one that nobody was asked about may need a yes by now.

    Args:
        calls: those of the answer that waited.
        decided: the ids of those that a person was asked about.
        results: what is there already, by call id.
        means: what the others are to be run with.

    Raises:
        Exception: as from `admit`.
    """
    admitted = Admitted(results=dict(results))
    for call in calls:
        if call.id not in results:
            _take(admitted, call, "runs" if call.id in decided else _approval(call, means))
    return admitted


def _take(admitted: Admitted, call: ToolCall, verdict: _Verdict) -> None:
    if isinstance(verdict, ToolMessage):
        admitted.results[call.id] = verdict
        return
    admitted.to_run.append(call)
    if verdict == "waits":
        admitted.waiting.append(call)


def _approval(call: ToolCall, means: Means) -> _Verdict:
    """Whether a call that can be run waits for a yes; a result where that cannot be said."""
    tool = means.tools[call.name]
    if tool.needs_approval is False:
        return "runs"
    try:
        return "waits" if tool.asks_approval(call.arguments, means.context_of(call)) else "runs"
    except ToolArgumentsError as error:
        return error_result(call, str(error))
    except Exception as error:
        if means.bounds.raises:
            raise noted(error, call) from None
        return failure(call, error)


def _wrong(was: ToolCall, call: ToolCall, means: Means) -> str | None:
    """Why nothing can be done with a call, for the model to act on."""
    tool = means.tools.get(was.name)
    if tool is None and was.name in means.outside:
        return f"tool `{was.name}` cannot be asked for together with others; ask for it alone"
    if tool is None:
        there = ", ".join(f"`{name}`" for name in means.tools) or "none"
        return f"there is no tool `{_short(was.name)}`; there are: {there}"
    if was.arguments == call.arguments or was.arguments.strip() in ("", "null"):
        return None
    for read in (partial(tool.values, was.arguments), was.parsed):  # a tool that reads them itself says better what is wrong
        try:
            read()
        except ToolArgumentsError as error:
            return str(error)
        except Exception:  # it is to read what is no JSON object, and stumbles over it
            continue
    return None


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"
