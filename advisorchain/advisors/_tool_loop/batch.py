"""The tools that one answer asks for, run together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from anyio import Semaphore, create_task_group, current_effective_deadline, current_time

from advisorchain.advisors._tool_loop.failures import cancellation_in, ends_turn, error_result, failure
from advisorchain.advisors._tool_loop.limits import Breach, Counts
from advisorchain.advisors._tool_loop.nesting import deeper
from advisorchain.advisors._tool_loop.running import run_tool, sendable
from advisorchain.advisors._tool_loop.settings import Bounds
from advisorchain.errors import ToolArgumentsError
from advisorchain.exchange import ChatResponse
from advisorchain.messages import ToolCall, ToolMessage
from advisorchain.tools.base import Tool
from advisorchain.tools.context import ToolContext

__all__ = ["Batch"]


class Batch:
    """The calls of one answer, and what becomes of them.

    Args:
        response: the answer.
        tools: what can be run, by name.
        context_of: makes what a tool may ask of its call.
        bounds: what the running is held to.
        counts: of the turn; the calls of this answer are added.
        seconds: what the tools of the turn's earlier answers have taken.
        outside: names of tools that the application runs itself.

    Attributes:
        response: the answer, its calls made so that they can be sent back.
        calls: these calls.
        results: by call id.
        waiting: the calls that wait for a person's yes.
        breach: the limit that was reached.
        ended: the results without those of calls that a limit left out.
        seconds: what the tools of the turn have taken, where it is limited.
    """

    def __init__(
        self,
        response: ChatResponse,
        tools: Mapping[str, Tool],
        context_of: Callable[[ToolCall], ToolContext],
        bounds: Bounds,
        counts: Counts,
        *,
        seconds: float = 0.0,
        outside: Collection[str] = (),
    ) -> None:
        asked = response.message.tool_calls
        self.calls = sendable(asked)
        if self.calls != asked:
            response = response.replace(message=replace(response.message, tool_calls=self.calls))
        self.response = response
        self.results: dict[str, ToolMessage] = {}
        self.waiting: list[ToolCall] = []
        self.breach: Breach | None = None
        self.ended: tuple[ToolMessage, ...] = ()
        self.seconds = seconds
        self._asked = {call.id: was for call, was in zip(self.calls, asked, strict=True)}
        self._to_run: list[ToolCall] | None = None
        self._tools = tools
        self._context_of = context_of
        self._bounds = bounds
        self._counts = counts
        self._outside = outside

    def resume(self, results: Sequence[ToolMessage]) -> None:
        """Go on where each call was counted and decided on; these have their result."""
        self.results = {result.tool_call_id: result for result in results}
        self._to_run = [call for call in self.calls if call.id not in self.results]

    @property
    def in_order(self) -> tuple[ToolMessage, ...]:
        """The results that are there, in the order of the calls."""
        return tuple(self.results[call.id] for call in self.calls if call.id in self.results)

    @property
    def returns_direct(self) -> bool:
        """Whether each of the tools gives the answer itself."""
        tools = [self._tools.get(call.name) for call in self.calls]
        return all(tool is not None and tool.return_direct for tool in tools)

    async def run(self) -> None:
        """Run what may run. Then each call has its result, but for those that wait, and those that wait for these.

        Raises:
            Exception: what a tool raised, where that is to end the turn; the other tools were stopped before.
        """
        if self._to_run is None:
            self._to_run = self._admitted()
        for stage in self._stages(self._to_run):
            ready = [call for call in stage if call not in self.waiting]
            await self._run_in_time(ready)
            if len(ready) < len(stage) and self.breach is None:
                return  # what stands behind a tool that is to run alone may rest on it
        self.ended = self.in_order
        if self.breach is not None:
            self._give_up_the_rest()
        else:
            ended = [(call, self.results[call.id]) for call in self.calls]
            self.breach = self._counts.add_failures(ended, self._bounds.limits)

    def _admitted(self) -> list[ToolCall]:
        """Count the calls, answer those that nothing can be done with, and find those that wait for a yes."""
        admitted = []
        for call in self.calls:
            self.breach = self._counts.add_call(call.name, self._bounds.limits)
            if self.breach is not None:
                break
            if (wrong := self._wrong(call)) is not None:
                self.results[call.id] = error_result(call, wrong)
                continue
            if self._needs_approval(call):
                self.waiting.append(call)
            if call.id not in self.results:
                admitted.append(call)
        return admitted

    def _wrong(self, call: ToolCall) -> str | None:
        """Why nothing can be done with a call, for the model to act on."""
        was = self._asked[call.id]
        tool = self._tools.get(was.name)
        if tool is None and was.name in self._outside:
            return f"tool `{was.name}` cannot be asked for together with others; ask for it alone"
        if tool is None:
            there = ", ".join(f"`{name}`" for name in self._tools) or "none"
            return f"there is no tool `{_short(was.name)}`; there are: {there}"
        if was.arguments == call.arguments or was.arguments.strip() in ("", "null"):
            return None
        try:
            tool.values(was.arguments)  # a tool that reads them itself says better what is wrong
        except ToolArgumentsError as error:
            return str(error)
        except Exception:  # it is to read what is no JSON object, and stumbles over it
            pass
        try:
            was.parsed()
        except ToolArgumentsError as error:
            return str(error)
        return None

    def _needs_approval(self, call: ToolCall) -> bool:
        tool = self._tools[call.name]
        if tool.needs_approval is False:
            return False
        try:
            return tool.asks_approval(call.arguments, self._context_of(call))
        except ToolArgumentsError as error:
            self.results[call.id] = error_result(call, str(error))
        except Exception as error:
            if self._bounds.raises:
                raise _noted(error, call) from None
            self.results[call.id] = failure(call, error)
        return False

    def _stages(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """The calls that may run at the same time together, each sequential one alone."""
        stages: list[list[ToolCall]] = []
        alone = True
        for call in calls:
            sequential = self._tools[call.name].sequential
            if sequential or alone:
                stages.append([])
            stages[-1].append(call)
            alone = sequential
        return stages

    async def _run_in_time(self, calls: Sequence[ToolCall]) -> None:
        total = self._bounds.total_timeout
        if total is None:
            await self._run_together(calls, None)
            return
        started = current_time()
        await self._run_together(calls, total - self.seconds)
        self.seconds += current_time() - started

    async def _run_together(self, calls: Sequence[ToolCall], left: float | None) -> None:
        """Run calls at the same time, each in a task of its own, so with context variables of its own."""
        slots = Semaphore(self._bounds.at_once, fast_acquire=True)
        raised: list[BaseException] = []

        async def run(call: ToolCall) -> None:
            deeper()
            tool = self._tools[call.name]
            timeout = self._bounds.timeout if tool.timeout is None else tool.timeout
            try:
                self.results[call.id] = await run_tool(tool, call, self._context_of(call), timeout=timeout, left=left)
            except BaseException as error:
                if current_effective_deadline() == -inf and (cancellation := cancellation_in(error)) is not None:
                    raise cancellation from None
                if ends_turn(error, raises=self._bounds.raises):
                    raised.append(_noted(error, call))
                    group.cancel_scope.cancel()
                else:
                    self.results[call.id] = failure(call, error)
            finally:
                slots.release()

        async with create_task_group() as group:
            for call in calls:
                await slots.acquire()
                group.start_soon(run, call)
        if raised:
            raise raised[0]

    def _give_up_the_rest(self) -> None:
        self.waiting = []
        for call in self.calls:
            if call.id not in self.results:
                self.results[call.id] = error_result(
                    call, f"tool `{call.name}` was not run: a limit of this turn is reached"
                )


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"


def _noted(error: BaseException, call: ToolCall) -> BaseException:
    note = f"in tool `{call.name}` (call `{call.id}`)"
    if note not in getattr(error, "__notes__", ()):  # a tool may raise one object more than once
        error.add_note(note)
    return error
