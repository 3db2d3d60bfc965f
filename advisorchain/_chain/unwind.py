"""How what was begun is ended, when a call or a stream did not come to its end: closed beneath, then each `done`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from anyio import current_effective_deadline

from advisorchain._chain.progress import Progress
from advisorchain._chain.run import Run, is_cancellation
from advisorchain._chain.sources import Opening
from advisorchain._chain.steps import Step
from advisorchain._telemetry.log import close_failed, done_failed
from advisorchain.advisor import Outcome
from advisorchain.errors import Note, add_note
from advisorchain.exchange import ChatRequest, ChatResponse

__all__ = ["closed", "is_noted", "note", "unwind"]

_NOTE: Final = "in advisor `"


def note(error: BaseException, step: Step) -> None:
    """Tell in a note on an error in which advisor it arose, once."""
    if isinstance(error, Exception):
        add_note(error, f"{_NOTE}{step.name}`, order {step.order}")


def is_noted(error: BaseException) -> bool:
    """Whether an error tells already in which advisor it arose."""
    return any(isinstance(told, Note) and told.startswith(_NOTE) for told in getattr(error, "__notes__", ()))


async def closed(opening: Opening, run: Run) -> BaseException | None:
    """Close what lies beneath, within the run's grace; gives back what failed."""
    try:
        with run.shielded():
            await opening.aclose()
    except BaseException as failure:
        return failure
    return None


async def unwind(
    steps: Sequence[Step],
    passed: Sequence[ChatRequest],
    place: int,
    status: Literal["error", "cancelled", "closed"],
    error: BaseException,
    progress: Progress | None,
    run: Run,
    failure: BaseException | None = None,
) -> None:
    """Run `done` of every advisor from `place` outwards, whatever one of them raises.

    What was raised becomes a note on the error that is under way, is raised at the end when the reader closed the stream,
    and is logged when the task was cancelled. A cancellation that arrives meanwhile is raised at the end.
    """
    if failure is not None:
        failure = _kept(None, failure, None, status, error)
    for at in range(place, -1, -1):
        step = steps[at]
        if step.done is None:
            continue
        shield = status != "error" or _is_cancelled(failure)
        partial, unmade = _seen(progress, at)
        if unmade is not None and failure is None and status != "error":
            failure = _kept(None, unmade, step, status, error)
        try:
            outcome = Outcome(status, partial, error if status == "error" else None)
            await _finish(step, passed[at], outcome, run if shield else None)
        except BaseException as late:
            note(late, step)
            failure = _kept(failure, late, step, status, error)
    if failure is not None:
        raise failure


def _is_cancelled(failure: BaseException | None) -> bool:
    """Whether a cancellation came while an error was under way, or before it: the model made an error of it."""
    return current_effective_deadline() == -math.inf or (failure is not None and is_cancellation(failure))


def _seen(progress: Progress | None, place: int) -> tuple[ChatResponse | None, Exception | None]:
    """What had left an advisor, or why that makes no message: `done` is to run all the same."""
    try:
        return (progress.partial(place) if progress is not None else None), None
    except Exception as unmade:
        return None, unmade


async def _finish(step: Step, request: ChatRequest, outcome: Outcome, shield: Run | None) -> None:
    assert step.done is not None
    result = step.done(request, outcome)
    if step.done_async and shield is None:
        result = await result
    elif step.done_async and shield is not None:
        with shield.shielded() as scope:
            result = await result
        if scope.cancelled_caught:
            done_failed(step.name, step.order, TimeoutError(f"`grace` of {shield.grace} seconds ran out"))
            return
    if result is not None:
        step.finished(result)


def _kept(
    failure: BaseException | None, late: BaseException, step: Step | None, status: str, error: BaseException
) -> BaseException | None:
    """What of a late failure is to be raised at the end, beside or in place of an earlier one."""
    if is_cancellation(late):
        return late if status != "cancelled" else failure
    if not isinstance(late, Exception):  # Ctrl-C, or the end of the process: nobody may keep it
        return late
    what = f"`done` of advisor `{step.name}`" if step is not None else "closing the stream beneath"
    if status == "closed":
        if failure is None:
            return late
        add_note(failure, f"{what} failed too: {type(late).__name__}")
    elif status == "error":
        add_note(error, f"{what} failed too: {type(late).__name__}")
    else:
        close_failed(late) if step is None else done_failed(step.name, step.order, late)
    return failure
