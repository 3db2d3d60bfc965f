"""How often tools may be called in one turn, and what is said when they were called too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from advisorchain._checked import checked_whole
from advisorchain.errors import ConfigurationError, LimitExceededError, kind_of
from advisorchain.messages import ToolCall, ToolMessage

__all__ = ["CALLS_PER_TOOL", "Breach", "CallLimits", "Counts", "PerTool", "checked_limits"]

PerTool: TypeAlias = int | Mapping[str, int | None] | None

CALLS_PER_TOOL: Final = 40  # as in Spring AI 2


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits on calls. None: no limit.

    Attributes:
        by_name: of single tools.
        per_tool: of each of the other tools.
        total: of all tools together.
        repeats: how often one call may fail in the same way.
    """

    by_name: Mapping[str, int | None]
    per_tool: int | None
    total: int | None
    repeats: int | None

    def of(self, tool: str) -> int | None:
        """How often this tool may be called in one turn."""
        return self.by_name.get(tool, self.per_tool)


def checked_limits(per_tool: object, total: object, repeats: object) -> CallLimits:
    """The limits of these settings.

    Raises:
        ConfigurationError: one of them is no number of calls.
    """
    by_name: dict[str, int | None] = {}
    if isinstance(per_tool, Mapping):
        for tool, limit in per_tool.items():
            if not isinstance(tool, str):
                raise ConfigurationError(f"`max_calls_per_tool` has a key that is {kind_of(tool)}; give names of tools")
            by_name[tool] = _checked(f"max_calls_per_tool[{tool!r}]", limit)
        per_tool = CALLS_PER_TOOL
    return CallLimits(
        by_name, _checked("max_calls_per_tool", per_tool), _checked("max_calls", total), _checked("max_repeats", repeats)
    )


def _checked(name: str, value: Any) -> int | None:
    return None if value is None else checked_whole(name, value)


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was reached, and by which tool."""

    setting: str
    limit: float
    tool: str

    @property
    def answer(self) -> str:
        """What the turn ends with in place of an answer."""
        return f"The answer ends here: {self._told}."

    def error(self, advisor: str) -> LimitExceededError:
        """What is raised, where limits raise."""
        return LimitExceededError(f"`{self.setting}` of {self.limit:g} is reached: {self._told} (advisor `{advisor}`)")

    @property
    def _told(self) -> str:
        if self.setting == "max_repeats":
            return f"tool `{self.tool}` failed in the same way as often as the limit allows, {self.limit:g} times"
        if self.setting == "total_timeout":
            return f"tool `{self.tool}` was to run, and the {self.limit:g} seconds for all tools of one turn are used up"
        of = f"tool `{self.tool}`" if self.setting == "max_calls_per_tool" else "all tools"
        return f"tool `{self.tool}` was to run once more, and the limit for calls of {of} in one turn is {self.limit:g}"


@dataclass(slots=True)
class Counts:
    """How often tools were called in one turn, and how often they failed in the same way.

    Attributes:
        calls: by tool.
        failures: by a call's name, its arguments and the error.
    """

    calls: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, calls: Mapping[str, int], failed: Iterable[tuple[str, str, str, int]]) -> Counts:
        """The counts of a turn that was paused, made of what was kept of them."""
        return cls(Counter(calls), Counter({(tool, arguments, text): times for tool, arguments, text, times in failed}))

    @property
    def failed(self) -> tuple[tuple[str, str, str, int], ...]:
        """The failures, to be kept: JSON has no keys of several parts."""
        return tuple((*failure, times) for failure, times in self.failures.items())

    def add_call(self, tool: str, limits: CallLimits) -> Breach | None:
        """Count a call, unless it is one too many."""
        own = limits.of(tool)
        if own is not None and self.calls[tool] >= own:
            return Breach("max_calls_per_tool", own, tool)
        if limits.total is not None and self.calls.total() >= limits.total:
            return Breach("max_calls", limits.total, tool)
        self.calls[tool] += 1
        return None

    def add_failures(self, ended: Iterable[tuple[ToolCall, ToolMessage]], limits: CallLimits) -> Breach | None:
        """Count what failed in one round; in the same way several times at once is once."""
        failed = {(call.name, call.arguments, result.text) for call, result in ended if result.is_error}
        self.failures.update(failed)
        for failure in sorted(failed):
            if limits.repeats is not None and self.failures[failure] >= limits.repeats:
                return Breach("max_repeats", limits.repeats, failure[0])
        return None
