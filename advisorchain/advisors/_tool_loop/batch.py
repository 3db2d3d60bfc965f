"""The tools that one answer asks for, run together."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import Semaphore, create_task_group, current_time
from anyio.lowlevel import checkpoint_if_cancelled

from advisorchain.advisors._tool_loop.admitting import Admitted, Means
from advisorchain.advisors._tool_loop.failures import cancellation_of_turn, ends_turn, error_result, failure, noted
from advisorchain.advisors._tool_loop.limits import Breach
from advisorchain.advisors._tool_loop.nesting import deeper
from advisorchain.advisors._tool_loop.running import run_tool
from advisorchain.exchange import ChatResponse
from advisorchain.messages import ToolCall, ToolMessage

__all__ = ["Batch"]


class Batch:
    """The calls of one answer, which run what may run.

    Args:
        response: the answer, its calls so that they can be sent back.
        means: what they are run with.
        admitted: what was decided on them.
        seconds: what the tools of the turn's earlier answers have taken.

    Attributes:
        response: the answer.
        calls: these calls.
        results: by call id.
        waiting: the calls that wait for a person's yes.
        breach: the limit that was reached.
        ended: the results without those of calls that a limit left out.
        seconds: what the tools of the turn have taken, where it is limited.
    """

    def __init__(self, response: ChatResponse, means: Means, admitted: Admitted, seconds: float) -> None:
        self.response = response
        self.calls = response.message.tool_calls
        self.results = admitted.results
        self.waiting = admitted.waiting
        self.breach = admitted.breach
        self.ended: tuple[ToolMessage, ...] = ()
        self.seconds = seconds
        self._to_run = admitted.to_run
        self._means = means

    @property
    def in_order(self) -> tuple[ToolMessage, ...]:
        """The results that are there, in the order of the calls."""
        return tuple(self.results[call.id] for call in self.calls if call.id in self.results)

    async def run(self) -> None:
        """Run what may run. Then each call has its result, but for those that wait, and those that wait for these.

        Raises:
            Exception: what a tool raised, where that is to end the turn; the other tools were stopped before.
        """
        used_up = self._time_used_up
        for stage in self._stages():
            ready = [call for call in stage if call not in self.waiting]
            await self._run_in_time(ready)
            if len(ready) < len(stage) and self.breach is None:
                return  # what stands behind a tool that is to run alone may rest on it
        self.ended = self.in_order
        if self.breach is not None:
            self._give_up_the_rest()
        else:
            ended = [(call, self.results[call.id]) for call in self.calls]
            self.breach = self._means.counts.add_failures(ended, self._means.bounds.limits)
            if used_up is not None and self._to_run:  # none of them was begun
                self.breach = Breach("total_timeout", used_up, self._to_run[0].name)

    @property
    def _time_used_up(self) -> float | None:
        """The seconds for all tools of the turn, when they have run; None: there is time, or no limit."""
        total = self._means.bounds.total_timeout
        return total if total is not None and self.seconds >= total else None

    def _stages(self) -> list[list[ToolCall]]:
        """The calls that may run at the same time together, each sequential one alone."""
        stages: list[list[ToolCall]] = []
        alone = True
        for call in self._to_run:
            sequential = self._means.tools[call.name].sequential
            if sequential or alone:
                stages.append([])
            stages[-1].append(call)
            alone = sequential
        return stages

    async def _run_in_time(self, calls: Sequence[ToolCall]) -> None:
        total = self._means.bounds.total_timeout
        if total is None:
            await self._run_together(calls, None)
            return
        started = current_time()
        await self._run_together(calls, total - self.seconds)
        self.seconds += current_time() - started

    async def _run_together(self, calls: Sequence[ToolCall], left: float | None) -> None:
        """Run calls at the same time, each in a task of its own, so with context variables of its own."""
        tools, bounds = self._means.tools, self._means.bounds
        slots = Semaphore(bounds.at_once, fast_acquire=True)
        raised: list[BaseException] = []

        async def run(call: ToolCall) -> None:
            deeper()
            tool = tools[call.name]
            timeout = bounds.timeout if tool.timeout is None else tool.timeout
            context = self._means.context_of(call)
            try:
                self.results[call.id] = await run_tool(tool, call, context, timeout=timeout, left=left)
            except BaseException as error:
                if (cancellation := cancellation_of_turn(error)) is not None:
                    raise cancellation from None
                if ends_turn(error, raises=bounds.raises):
                    raised.append(noted(error, call))
                    group.cancel_scope.cancel()
                else:
                    self.results[call.id] = failure(call, error)
            finally:
                slots.release()

        async with create_task_group() as group:
            for call in calls:
                await slots.acquire()
                group.start_soon(run, call)
        await checkpoint_if_cancelled()  # a tool may have made an error of its own of the turn's cancellation
        if raised:
            raise raised[0]

    def _give_up_the_rest(self) -> None:
        self.waiting = []
        for call in self.calls:
            if call.id not in self.results:
                self.results[call.id] = error_result(
                    call, f"tool `{call.name}` was not run: a limit of this turn is reached"
                )
