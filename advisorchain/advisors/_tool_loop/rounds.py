"""One turn of the tool loop: what it has made so far, what is asked next, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from advisorchain._telemetry.recorder import current_traceparent
from advisorchain.advisors._tool_loop.admitting import Means, admit, admit_open
from advisorchain.advisors._tool_loop.batch import Batch
from advisorchain.advisors._tool_loop.endings import Ending, content_of, shown_again
from advisorchain.advisors._tool_loop.limits import Counts
from advisorchain.advisors._tool_loop.nesting import check_depth
from advisorchain.advisors._tool_loop.pause import LoopStart, ToolPause
from advisorchain.advisors._tool_loop.running import sendable
from advisorchain.advisors._tool_loop.settings import LoopSettings
from advisorchain.errors import ConfigurationError, InvalidInputError, LimitExceededError, ToolArgumentsError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, Part, ToolCall, ToolMessage, Usage
from advisorchain.options import NO_OPTIONS
from advisorchain.tools import Tool, ToolContext, as_tool

__all__ = ["ToolTurn"]

_FIRST: Final = LoopStart()


class ToolTurn:
    """One turn.

    Attributes:
        batch: the calls to go on with, of a turn that was paused.
    """

    def __init__(self, settings: LoopSettings, request: ChatRequest, start: LoopStart) -> None:
        self.batch: Batch | None = None
        self._settings = settings
        self._base = request
        self._tools = settings.tools
        self._added: dict[str, Tool] = {}
        self._made: tuple[AssistantMessage | ToolMessage, ...] = ()
        self._round = 1
        self._usage: Usage | None = None
        self._context = request.context
        self._counts = Counts()
        self._seconds = 0.0
        self._narrowing = start.narrowing
        for tool in start.tools:
            self._add(tool)
        self._offer_added()
        self._options = self._with_tools()
        if start.pause is not None:
            self._go_on(start.pause, start)

    @classmethod
    def begun(cls, settings: LoopSettings, request: ChatRequest) -> ToolTurn | None:
        """A turn for this request; None: it has no tools.

        Raises:
            LimitExceededError: too many tools are in each other.
        """
        start = request.local.get(settings.name, _FIRST)
        if not (settings.tools or start.tools or start.pause or request.options.tools):
            return None
        check_depth(settings.name)
        return cls(settings, request, start)

    # -- asking

    @property
    def request(self) -> ChatRequest:
        """What is asked in this round."""
        base = self._base
        request = base.replace(
            messages=(*base.messages, *self._made),
            options=self._options,
            context=self._context,
            round=self._round,
            made=base.made + len(self._made),
        )
        for narrow in self._narrowing:
            request = narrow(request)
        return request

    def _with_tools(self) -> ChatOptions:
        options = self._base.options
        if options is NO_OPTIONS and self._tools is self._settings.tools:
            return self._settings.options
        told = {definition.name for definition in options.tools}
        more = [tool.definition for name, tool in self._tools.items() if name not in told]
        free = self._round > 1 and self._is_forced
        if not (more or free):
            return options
        return replace(options, tools=(*options.tools, *more), tool_choice=None if free else options.tool_choice)

    @property
    def _is_forced(self) -> bool:
        """Whether the model has to ask for a tool. It holds for the first answer: else there would be no last one."""
        return self._base.options.tool_choice not in (None, "auto", "none")

    @property
    def _outside(self) -> frozenset[str]:
        """The tools that the request tells of and nobody here can run: the application does."""
        return frozenset(definition.name for definition in self._base.options.tools) - self._tools.keys()

    # -- tools that come later

    def _add(self, tool: Any) -> None:
        made = as_tool(tool)
        known = self._tools.get(made.name) or self._added.setdefault(made.name, made)
        if not known.is_same(made):  # added once more is no harm
            raise ConfigurationError(f"`{made.name}` is the name of another tool already; give this one another")

    def _add_all(self, tools: tuple[Any, ...]) -> None:
        for tool in tools:
            self._add(tool)

    def _offer_added(self) -> None:
        if self._added:
            self._tools = {**self._tools, **self._added}
            self._added = {}

    def _context_of(self, call: ToolCall) -> ToolContext:
        return ToolContext(
            tool_name=call.name,
            call_id=call.id,
            conversation_id=self._base.conversation_id,
            context=self._context,
            round=self._round,
            adding=self._add_all,
        )

    # -- what was answered

    def batch_of(self, response: ChatResponse) -> Batch | None:
        """The tools that an answer asks for; None: it is the last one.

        Raises:
            LimitExceededError: there is no round left in which the model could see their results.
        """
        self._take(response)
        calls, means = response.message.tool_calls, self._means
        if not calls or response.pause is not None or all(call.name in means.outside for call in calls):
            return None
        if self._round >= self._settings.max_rounds and not self._returns_direct(calls):
            raise LimitExceededError(
                f"`max_rounds` of {self._settings.max_rounds} is reached, and the model still asks for tools, at last for "
                f"`{calls[-1].name}` (advisor `{self._settings.name}`)"
            )
        sent = sendable(calls)
        if sent != calls:
            response = response.replace(message=replace(response.message, tool_calls=sent))
        return Batch(response, means, admit(calls, sent, means), self._seconds)

    def _take(self, response: ChatResponse) -> None:
        self._context = response.context
        if response.usage is not None:
            self._usage = response.usage if self._usage is None else self._usage + response.usage

    @property
    def _means(self) -> Means:
        return Means(self._tools, self._outside, self._context_of, self._settings.bounds, self._counts)

    def _returns_direct(self, calls: Sequence[ToolCall]) -> bool:
        """Whether each of the tools gives the answer itself."""
        tools = [self._tools.get(call.name) for call in calls]
        return all(tool is not None and tool.return_direct for tool in tools)

    def answered(self, response: ChatResponse) -> ChatResponse:
        """The whole response, when this is the last answer."""
        if not self._made:
            return response
        return response.replace(earlier=(*self._made, *response.earlier), usage=self._usage)

    def after(self, batch: Batch) -> Ending | None:
        """What follows when the tools have run; None: the next round.

        Raises:
            LimitExceededError: tools were called too often, and that is to be an error.
        """
        self._seconds = batch.seconds
        if batch.waiting:
            return self._paused(batch)
        if batch.breach is not None:
            return self._stopped(batch)
        results = batch.in_order
        if self._returns_direct(batch.calls) and not any(result.is_error for result in results):
            return self._ending(batch, content_of(results), "return_direct")
        self._made = self._with_round(batch)
        self._round += 1
        if self._added or (self._round == 2 and self._is_forced):
            self._offer_added()
            self._options = self._with_tools()
        return None

    def _with_round(self, batch: Batch) -> tuple[AssistantMessage | ToolMessage, ...]:
        return (*self._made, *batch.response.turn, *batch.in_order)

    def _stopped(self, batch: Batch) -> Ending:
        assert batch.breach is not None
        if not self._settings.answers:
            raise batch.breach.error(self._settings.name)
        return self._ending(batch, batch.breach.answer, "tool_limit", tool_results=batch.ended)

    def _ending(self, batch: Batch, content: str | tuple[Part, ...], finish_reason: str, **metadata: Any) -> Ending:
        response = batch.response.replace(
            message=AssistantMessage(content),
            finish_reason=finish_reason,
            usage=self._usage,
            earlier=self._with_round(batch),
            metadata={**batch.response.metadata, **metadata},
        )
        return Ending(ChatChunk(response.text, boundary="round", finish_reason=finish_reason), response)

    # -- waiting for a person

    def _paused(self, batch: Batch) -> Ending:
        base, origin = self._base, self._base.origin
        earlier = (*self._made, *batch.response.earlier)
        pause = ToolPause(
            waiting=tuple(call.id for call in batch.waiting),
            message=batch.response.message,
            results=batch.in_order,
            earlier=earlier,
            messages=base.messages,
            recalled=base.recalled,
            conversation_id=base.conversation_id,
            options=origin.options,
            advisor=self._settings.name,
            round=self._round,
            usage=self._usage,
            calls=dict(self._counts.calls),
            failures=self._counts.failed,
            seconds=self._seconds,
            prompt=origin.messages,
            traceparent=current_traceparent(),
        )
        response = batch.response.replace(finish_reason="paused", usage=self._usage, earlier=earlier, pause=pause)
        return Ending(ChatChunk(finish_reason="paused"), response)

    def _go_on(self, pause: ToolPause, start: LoopStart) -> None:
        self._base = self._base.replace(messages=pause.messages, recalled=pause.recalled)
        self._made, self._round, self._usage = pause.earlier, pause.round, pause.usage
        self._counts, self._seconds = Counts.of(pause.calls, pause.failures), pause.seconds
        results = {result.tool_call_id: result for result in (*pause.results, *start.denied)}
        for call in pause.message.tool_calls:
            if call.id not in results:
                self._check_open(call, decided=call.id in pause.waiting, changed=call.id in start.changed)
        response, means = ChatResponse(pause.message, context=self._context), self._means
        admitted = admit_open(pause.message.tool_calls, pause.waiting, results, means)
        self.batch = Batch(response, means, admitted, self._seconds)
        self._options = self._with_tools()

    def _check_open(self, call: ToolCall, *, decided: bool, changed: bool) -> None:
        """That a call which a paused turn is to run can be run. Nothing has been, yet."""
        tool = self._tools.get(call.name)
        if tool is None:
            raise ConfigurationError(
                f"advisor `{self._settings.name}` has no tool `{call.name}`, which a paused turn is to run; give it one"
            )
        if decided:
            try:
                tool.values(call.arguments)
            except ToolArgumentsError as error:
                what = "`change` for" if changed else "deny or change"
                raise InvalidInputError(f"{what} call `{call.id}`: {error}") from None

    def so_far(self) -> Iterator[ChatChunk]:
        """What a paused turn had shown before: a stream that goes on begins with it. Results come when all are there."""
        if self.batch is None:
            return
        yield from shown_again((*self._made, self.batch.response.message))
