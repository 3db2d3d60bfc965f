"""How an advisor further out than the tool loop gives it more for one turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from advisorchain.advisors._tool_loop.pause import LoopStart
from advisorchain.exchange import ChatRequest
from advisorchain.tools import checked_tools

__all__ = ["offered"]


def offered(
    request: ChatRequest,
    tools: Sequence[Any],
    *,
    loop: str,
    narrowing: Sequence[Callable[[ChatRequest], ChatRequest]] = (),
) -> ChatRequest:
    """The request with tools for this turn alone, beside those of its loop.

    Args:
        request: what the advisor passes on.
        tools: functions, or what `@tool` made of them.
        loop: the name of the ToolCallingAdvisor.
        narrowing: what the loop asks in each round which of the tools the model is told of.

    Raises:
        ConfigurationError: something that is no tool, or two of one name.
    """
    start = request.local.get(loop, LoopStart())
    start = replace(start, tools=(*start.tools, *checked_tools(tools)))
    if narrowing:
        start = replace(start, narrowing=(*start.narrowing, *narrowing))
    return request.replace(local={**request.local, loop: start})
