"""The span of one tool's run."""

from __future__ import annotations

from math import inf
from types import TracebackType

from anyio import current_effective_deadline

from advisorchain._run import status_of
from advisorchain.messages import ToolCall
from advisorchain.telemetry import Clock, carrying, current_context, end_span, start_span, tracer_in

__all__ = ["ToolSpan"]


class ToolSpan:
    """Current while a tool runs, beneath the advisor that runs it. Without a tracer it is nothing.

    It says which tool, for which call, and how that ended; nothing of arguments and results. Entered in the task of the run.
    """

    __slots__ = ("_call", "_clock", "_error", "_running")

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self._clock: Clock | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> ToolSpan:
        parent = current_context()
        tracer = tracer_in(parent)
        if tracer is not None:
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": self._call.name,
                "gen_ai.tool.call.id": self._call.id or None,
                "gen_ai.tool.type": "function",
            }
            # what the tool asks of another chain is recorded by that chain's own telemetry, or not at all
            parent = carrying(parent, None)
            self._clock = start_span(tracer, f"execute_tool {self._call.name}", parent, attributes)
            self._running = self._clock.running()
            self._running.__enter__()
        return self

    def fail(self, error: Exception) -> None:
        """The run failed, of which the model is told in a result."""
        self._error = error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._clock is None:
            return
        self._running.__exit__(kind, error, trace)
        status = "ok" if self._error is None else "error"
        if error is not None:
            self._error, status = error, status_of(error, "cancelled")
            if status == "cancelled" and not isinstance(error, GeneratorExit) and current_effective_deadline() != -inf:
                status = "error"  # not we were cancelled, but what the tool waited for
        end_span(self._clock, {"advisorchain.outcome": status}, self._error if status == "error" else None)
