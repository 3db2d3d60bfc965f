"""The tool loop: the model asks for tools, they are run, and it is asked again with their results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, Literal

from advisorchain._checked import checked_one_of, checked_seconds, checked_whole
from advisorchain.advisor import TOOL_CALLING_ORDER, AroundAdvisor, Next, StreamItem
from advisorchain.advisors._tool_loop.limits import CALLS_PER_TOOL, PerTool, checked_limits
from advisorchain.advisors._tool_loop.offer import offered
from advisorchain.advisors._tool_loop.pause import Resumed, ToolPause
from advisorchain.advisors._tool_loop.rounds import ToolTurn
from advisorchain.advisors._tool_loop.settings import Bounds, LoopSettings
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse
from advisorchain.tools import Tool, checked_tools
from advisorchain.tools.base import digest_of

__all__ = ["Resumed", "ToolCallingAdvisor", "ToolPause", "offer_tools"]


class ToolCallingAdvisor(AroundAdvisor):
    """Runs the tools that the model asks for and asks it again with their results, until it asks for no more.

    A round is one answer of the model and the tools that it asks for. These run at the same time, in tasks of their own, and
    their results go into the prompt in the order of the calls. A request that has no tools passes as it is.

    What the model is told in place of a result, marked as an error: that there is no such tool, that the arguments are no
    JSON or do not fit, what the tool raised (its type and text, not its trace, and no folders of this machine), or that its
    time ran out. A call whose arguments are no JSON object stands in prompt and turn with `{}`, and one of a name that
    providers refuse with `_` for what they refuse, so that both can be sent back.

    The response has the final message, in `earlier` the rounds before it, the usage of all rounds, and the context that the
    last one left. In a stream the text of every round passes, calls are shown as they come, results when all tools of the
    answer have ended, and a chunk with boundary "round" begins the next message. The finish reason is the model's, or:

    - "return_direct": each tool of an answer is a `return_direct` one and none failed; their results are the answer.
    - "tool_limit": tools were called too often, or failed too often in the same way. The message says so, and
      `metadata["tool_results"]` has the results of the answer that went too far; what was not run is told as an error.
    - "paused": a tool needs a person's yes. The other tools of the answer have run, and `response.pause` goes on: see
      `ToolPause.resume`.

    A tool that the request's `options.tools` tell of and this advisor does not have is the application's: an answer that
    asks for such tools only is the last one. A `tool_choice` that forces a tool holds for the first answer.

    Memory further out, its default place, sees one answer a turn: it stores the question and the final message, with
    `remember="turn"` also the rounds; nothing of a paused turn before it has ended, and nothing of one that failed. Memory
    further in sees each round: it stores the whole turn with its last answer, and nothing when there is none, as with
    "return_direct" and "tool_limit".

    Cancelling, and leaving a stream, stop the tools that run and wait for them. The thread of a plain function cannot be
    stopped: when its time runs out, or the turn is cancelled, it is left to itself. Without any limit on its time
    (`timeout=None`) it is waited for.

    Args:
        tools: functions, or what `@tool` made of them.
        max_rounds: how often the model may be asked in one turn; the last answer may ask for `return_direct` tools only.
            25 lies between the defaults of OpenAI's Agents SDK (10) and of pydantic-ai (50).
        max_concurrency: how many tools may run at the same time; one that is `sequential` always runs alone, after those
            before it and before those behind it.
        timeout: seconds for a tool that has no `timeout` of its own; None: any. 60 as in MCP's TypeScript SDK.
        total_timeout: seconds for all tools of a turn, without the time of the model; None: any. A tool that is
            stopped by it is told to the model; answers that ask for tools once they are used up reach a limit, as below.
        max_calls: how many calls one turn may have, 150 as in Spring AI 2; None: any.
        max_calls_per_tool: how many of one tool, 40 as there; None: any. Or by the names of tools; then others have 40.
        max_repeats: how often a call with the same arguments may fail with the same error; None: any.
        on_limit: whether these end the turn with an "answer", or "raise" a LimitExceededError.
        on_error: "tell" the model what a tool raised, or "raise" it; the other tools are stopped before. What the model did
            wrong, and time that ran out, it is told either way. (Python makes a RuntimeError of a StopAsyncIteration that
            leaves a stream, and of a StopIteration.)
        name: unique in the chain.
        order: inside memory by default.

    Raises:
        ConfigurationError: an argument that cannot work, something that is no tool, or two tools of one name.
        LimitExceededError: `max_rounds` was reached; no tool of the last answer has run.
    """

    runs_tools = True  # so a retry around it would run them again, and a fallback would answer without them
    repeats = "round"
    to_stream = "change"

    def __init__(
        self,
        tools: Iterable[Any] = (),
        *,
        max_rounds: int = 25,
        max_concurrency: int = 8,
        timeout: float | None = 60.0,
        total_timeout: float | None = None,
        max_calls: int | None = 150,
        max_calls_per_tool: PerTool = CALLS_PER_TOOL,
        max_repeats: int | None = 3,
        on_limit: Literal["answer", "raise"] = "answer",
        on_error: Literal["tell", "raise"] = "tell",
        name: str = "tools",
        order: int = TOOL_CALLING_ORDER,
    ) -> None:
        self.tools: Final[tuple[Tool, ...]] = checked_tools(tools)
        self.name = name
        self.order = order
        self._digest: str | None = None
        bounds = Bounds(
            at_once=checked_whole("max_concurrency", max_concurrency),
            timeout=None if timeout is None else checked_seconds("timeout", timeout),
            total_timeout=None if total_timeout is None else checked_seconds("total_timeout", total_timeout),
            limits=checked_limits(max_calls_per_tool, max_calls, max_repeats),
            raises=checked_one_of("on_error", on_error, ("tell", "raise")) == "raise",
        )
        self._settings: Final = LoopSettings(
            name=name,
            tools={tool.name: tool for tool in self.tools},
            options=ChatOptions(tools=tuple(tool.definition for tool in self.tools)),
            max_rounds=checked_whole("max_rounds", max_rounds),
            answers=checked_one_of("on_limit", on_limit, ("answer", "raise")) == "answer",
            bounds=bounds,
        )

    def answers_depend_on(self) -> str:
        """Its tools, for a cache's key."""
        if self._digest is None:
            self._digest = digest_of(self.tools)
        return self._digest

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Ask, run the tools, and ask again."""
        turn = ToolTurn.begun(self._settings, request)
        if turn is None:
            async with aclosing(next(request)) as items:
                async for item in items:
                    yield item
            return
        for chunk in turn.so_far():
            yield chunk
        batch = turn.batch
        while True:
            if batch is None:
                async with aclosing(next(turn.request)) as items:
                    async for item in items:
                        if isinstance(item, ChatChunk):
                            yield item
                        else:
                            response = item
                batch = turn.batch_of(response)
                if batch is None:
                    yield turn.answered(response)
                    return
            await batch.run()
            for result in batch.in_order:
                yield ChatChunk(tool_result=result)
            ending = turn.after(batch)
            if ending is not None:
                yield ending.chunk
                yield ending.response
                return
            yield ChatChunk(boundary="round")
            batch = None

    async def advise_call(
        self, request: ChatRequest, next: Callable[[ChatRequest], Awaitable[ChatResponse]]
    ) -> ChatResponse:
        """As `around`, for a call."""
        turn = ToolTurn.begun(self._settings, request)
        if turn is None:
            return await next(request)
        batch = turn.batch
        while True:
            if batch is None:
                response = await next(turn.request)
                batch = turn.batch_of(response)
                if batch is None:
                    return turn.answered(response)
            await batch.run()
            ending = turn.after(batch)
            if ending is not None:
                return ending.response
            batch = None


def offer_tools(request: ChatRequest, *tools: Any, loop: str = "tools") -> ChatRequest:
    """The request with tools for this turn alone, beside those of its loop: for an advisor further out than the loop.

    Args:
        request: what the advisor passes on.
        tools: functions, or what `@tool` made of them.
        loop: the name of the ToolCallingAdvisor.

    Raises:
        ConfigurationError: something that is no tool, or two of one name.
    """
    return offered(request, tools, loop=loop)
