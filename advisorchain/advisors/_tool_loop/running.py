"""One call of a tool: how it is run, and how it is sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex

from anyio import move_on_after

from advisorchain.advisors._tool_loop.failures import error_result
from advisorchain.advisors._tool_loop.span import ToolSpan
from advisorchain.errors import ToolArgumentsError
from advisorchain.messages import ToolCall, ToolMessage
from advisorchain.tools.base import Tool, sendable_name
from advisorchain.tools.context import ToolContext

__all__ = ["run_tool", "sendable"]


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
    with ToolSpan(call, tool.definition) as span:
        with move_on_after(min((limit for limit in (timeout, left) if limit is not None), default=None)) as scope:
            try:
                result = await tool.run(call.arguments, context)
                told = ToolMessage(result.content, tool_call_id=call.id, name=call.name, structured=result.structured)
                return span.gave(told)
            except ToolArgumentsError as error:
                span.fail(error)
                return span.gave(error_result(call, str(error)))
            except Exception:
                if not scope.cancel_called:  # else it has made an error of its own of the end of its time
                    raise
        span.fail(TimeoutError())
    if timeout is not None and (left is None or timeout <= left):
        return error_result(call, f"tool `{call.name}` did not end within {timeout:g} seconds, and was stopped")
    return _out_of_time(call)


def _out_of_time(call: ToolCall) -> ToolMessage:
    return error_result(call, f"tool `{call.name}` was stopped: the time for all tools of this turn is used up")


def sendable(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls as a provider takes them back: each has an id of its own, a name, and arguments that are a JSON object."""
    made: dict[str, ToolCall] = {}
    for call in calls:
        call_id = call.id if call.id not in made else f"call_{token_hex(8)}"
        name = sendable_name(call.name)  # models think up names such as `functions.search`
        try:
            arguments = call.arguments if call.parsed() else "{}"  # `null` and a blank text are none too
        except ToolArgumentsError:
            arguments = "{}"
        changed = (call_id, name, arguments) != (call.id, call.name, call.arguments)
        made[call_id] = replace(call, id=call_id, name=name, arguments=arguments) if changed else call
    return tuple(made.values())
