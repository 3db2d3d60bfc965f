"""What a running tool may ask of the call that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from advisorchain.errors import ConfigurationError
from advisorchain.exchange import NO_CONTEXT

__all__ = ["ToolContext"]


class ToolContext:
    """What a running tool may ask of the call that it runs in.

    A parameter that is annotated with it is filled in when the tool runs; the model is not told of it. It is for that run
    alone: never stored, logged or traced, and no part of a result.

    Attributes:
        tool_name: what the model called the tool.
        call_id: the id of the model's call, to which the result goes.
        conversation_id: as on the request; None where there is none.
        context: the request's read-only mapping, in which the application hands its own objects to its tools.
        round: the round of the tool loop that asked for the call; the first is 1.
    """

    __slots__ = ("_adding", "call_id", "context", "conversation_id", "round", "tool_name")

    def __init__(
        self,
        *,
        tool_name: str,
        call_id: str = "",
        conversation_id: str | None = None,
        context: Mapping[str, Any] = NO_CONTEXT,
        round: int = 1,
        adding: Callable[[tuple[Any, ...]], None] | None = None,
    ) -> None:
        self.tool_name: Final = tool_name
        self.call_id: Final = call_id
        self.conversation_id: Final = conversation_id
        self.context: Final = context
        self.round: Final = round
        self._adding: Final = adding

    def add_tools(self, *tools: Any) -> None:
        """Offer more tools to the model, from the next round of this turn on. May be called from a worker thread.

        Args:
            tools: functions, or what `@tool` made of them.

        Raises:
            ConfigurationError: something that is no tool, a name that is taken, or no loop to add it to.
        """
        if self._adding is None:
            raise ConfigurationError(f"tool `{self.tool_name}` runs outside a tool loop; there is nothing to add tools to")
        self._adding(tools)

    def __repr__(self) -> str:
        return f"<ToolContext of {self.tool_name}>"
