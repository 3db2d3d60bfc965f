"""What the frames of one call or stream share, beside the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from anyio import CancelScope, current_time, get_cancelled_exc_class

if TYPE_CHECKING:
    from advisorchain._telemetry.trace import Trace

Left: TypeAlias = Literal["closed", "cancelled"]

__all__ = ["GRACE", "Left", "Run", "is_cancellation", "status_of"]

GRACE: Final = 5.0  # seconds


class Run:
    """One call or stream.

    Attributes:
        grace: seconds that closing and the `done`s may take, all together, after the reader left or the task was cancelled.
        trace: what records the run; None when nothing does.
        leaving: who ended a stream early, when it is known to be the task and not the reader.
    """

    __slots__ = ("_deadline", "grace", "leaving", "trace")

    def __init__(self, grace: float = GRACE, trace: Trace | None = None) -> None:
        self.grace = grace
        self.trace = trace
        self.leaving: Left = "closed"
        self._deadline: float | None = None

    def shielded(self) -> CancelScope:
        """A scope for finishing work: no cancellation from outside, and one deadline for all frames of the run."""
        if self._deadline is None:
            self._deadline = current_time() + self.grace
        return CancelScope(deadline=self._deadline, shield=True)


def is_cancellation(error: BaseException) -> bool:
    """Whether the running backend cancels tasks by this exception."""
    return isinstance(error, get_cancelled_exc_class())


def status_of(error: BaseException, leaving: Left) -> Literal["error", "cancelled", "closed"]:
    """The outcome that an exception means; `leaving` is what a closed generator means."""
    if isinstance(error, GeneratorExit):
        return leaving
    return "cancelled" if is_cancellation(error) else "error"
