"""What a tool raises: which of it ends the turn, and what the model is told of the rest."""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Iterator
from math import inf
from typing import Final

from anyio import current_effective_deadline, get_cancelled_exc_class

from advisorchain.advisors._tool_loop.nesting import is_too_deep
from advisorchain.errors import add_note
from advisorchain.messages import ToolCall, ToolMessage

__all__ = ["cancellation_of_turn", "ends_turn", "error_result", "failure", "noted"]

_MOST: Final = 2000  # characters of an error that a model is told: enough for a long message, nothing beside a prompt
_MOST_OF_GROUP: Final = 3  # errors of a group that it is told of
# A file's folders tell of the machine, and its name may help the model. The path of a URL is none, but for `file://`. Not
# found: what follows a blank in a folder's name, for nobody can tell it from a sentence that goes on.
_FOLDERS: Final = re.compile(r"(?<![\w:/.\\])(?:file://[\w.-]*/|[A-Za-z]:[/\\]+|\\{2,}|/)(?:[^\s/\\'\"`:;,<>|()]+[/\\]+)+")
_TRACE: Final = "Traceback (most recent call last)"


def cancellation_of_turn(error: BaseException) -> BaseException | None:
    """The cancellation that a tool's error is, or that a group of errors holds, where it is the turn's.

    A tool may have cancelled its own work only. When its task is to end, no time at all is left to it.
    """
    if current_effective_deadline() != -inf:
        return None
    return next((leaf for leaf in _leaves(error) if isinstance(leaf, get_cancelled_exc_class())), None)


def ends_turn(error: BaseException, *, raises: bool) -> bool:
    """Whether what a tool raised is to end the turn, when that was not cancelled.

    Ctrl-C always is, and so are other exceptions that are no errors. A tool that exits, as commands do that read their
    arguments wrong, has failed. So has one whose own work was cancelled, or that lets a generator's end escape: raised
    here, these would be taken for the turn's own cancellation or end. Tools that are nested too deep end all their turns.

    Args:
        error: what was raised.
        raises: whether errors of tools are to end the turn.
    """
    leaves = list(_leaves(error))
    # asyncio's also on trio: a plain function may run an event loop of its own
    stray = (GeneratorExit, CancelledError, get_cancelled_exc_class())
    if not all(isinstance(leaf, (Exception, SystemExit, *stray)) for leaf in leaves):
        return True
    if any(is_too_deep(leaf) for leaf in leaves):
        return True
    return raises and all(isinstance(leaf, Exception | SystemExit) for leaf in leaves)


def noted(error: BaseException, call: ToolCall) -> BaseException:
    """The error itself, with a note of the tool."""
    add_note(error, f"in tool `{call.name}` (call `{call.id}`)")
    return error


def failure(call: ToolCall, error: BaseException) -> ToolMessage:
    """The result of a tool that raised: its name, what kind of error and the error's own text; of a group the first ones."""
    leaves = list(_leaves(error))
    told = "; ".join(_said(leaf) for leaf in leaves[:_MOST_OF_GROUP])
    more = len(leaves) - _MOST_OF_GROUP
    return error_result(call, f"tool `{call.name}` failed: {told}{f'; and {more} more' if more > 0 else ''}")


def error_result(call: ToolCall, text: str) -> ToolMessage:
    """The result of a call that was not run to its end; the model is told why, without this machine's folders."""
    text = _FOLDERS.sub("…/", text).encode(errors="replace").decode()  # half a character cannot be sent
    if len(text) > _MOST:
        text = f"{text[:_MOST]}… (cut)"
    return ToolMessage(text, tool_call_id=call.id, name=call.name, is_error=True)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _leaves(each)


def _said(error: BaseException) -> str:
    try:
        said = str(error).partition(_TRACE)[0].strip()
    except Exception:  # a `__str__` of its own that fails
        said = ""
    kind = type(error).__name__
    return f"{kind}: {said}" if said else kind
