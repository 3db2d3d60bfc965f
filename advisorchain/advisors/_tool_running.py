"""One call of a tool: how it is run, what the model is told when it fails, and how it is sent back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Final

from anyio import move_on_after

from advisorchain.advisors._tool_span import ToolSpan
from advisorchain.errors import ToolArgumentsError
from advisorchain.messages import ToolCall, ToolMessage
from advisorchain.tools.base import Tool
from advisorchain.tools.context import ToolContext

__all__ = ["error_result", "failure", "run_tool", "sendable"]

_MOST: Final = 2000  # characters of an error that a model is told: enough for a long message, nothing beside a prompt
# A file's folders tell of the machine, and its name may help the model. The path of a URL is none.
_FOLDERS: Final = re.compile(r"(?<![\w:/.\\])(?:[A-Za-z]:\\|/)(?:[^\s/\\'\"`:;,<>|()]+[/\\])+")
_TRACE: Final = "Traceback (most recent call last)"


async def run_tool(
    tool: Tool, call: ToolCall, context: ToolContext, *, timeout: float | None, left: float | None
) -> ToolMessage:
    """Run one call. This is the only place where a tool runs.

    Args:
        tool: what runs.
        call: what the model asked for.
        context: what the tool may ask of the call.
        timeout: seconds that this run may take; None: any.
        left: seconds that are left for all tools of the turn; None: any.

    Raises:
        Exception: what the tool raises, as it is. Arguments that do not fit and time that runs out are told in the result.
    """
    if left is not None and left <= 0:
        return _out_of_time(call)
    with ToolSpan(call) as span:
        with move_on_after(min((limit for limit in (timeout, left) if limit is not None), default=None)):
            try:
                result = await tool.run(call.arguments, context)
            except ToolArgumentsError as error:
                span.fail(error)
                return error_result(call, str(error))
            return ToolMessage(result.content, tool_call_id=call.id, name=call.name, structured=result.structured)
        span.fail(TimeoutError())
    if timeout is not None and (left is None or timeout <= left):
        return error_result(call, f"tool `{call.name}` did not end within {timeout:g} seconds, and was stopped")
    return _out_of_time(call)


def _out_of_time(call: ToolCall) -> ToolMessage:
    return error_result(call, f"tool `{call.name}` was stopped: the time for all tools of this turn is used up")


def sendable(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls as a provider takes them back: each has an id of its own, and arguments that are a JSON object."""
    made: dict[str, ToolCall] = {}
    for call in calls:
        call_id = call.id if call.id not in made else f"call_{token_hex(8)}"
        try:
            arguments = call.arguments if call.parsed() else "{}"  # `null` and a blank text are none too
        except ToolArgumentsError:
            arguments = "{}"
        changed = call_id != call.id or arguments != call.arguments
        made[call_id] = replace(call, id=call_id, arguments=arguments) if changed else call
    return tuple(made.values())


def failure(call: ToolCall, error: BaseException) -> ToolMessage:
    """The result of a tool that raised: its name, what kind of error and the error's own text."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    try:
        said = str(error).partition(_TRACE)[0].strip()
    except Exception:  # a `__str__` of its own that fails
        said = ""
    kind = type(error).__name__
    return error_result(call, f"tool `{call.name}` failed: {f'{kind}: {said}' if said else kind}")


def error_result(call: ToolCall, text: str) -> ToolMessage:
    """The result of a call that was not run to its end; the model is told why, without this machine's folders."""
    text = _FOLDERS.sub("…/", text).encode(errors="replace").decode()  # half a character cannot be sent
    if len(text) > _MOST:
        text = f"{text[:_MOST]}… (cut)"
    return ToolMessage(text, tool_call_id=call.id, name=call.name, is_error=True)
