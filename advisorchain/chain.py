"""The chain: advisors in their order around a model. Built once, never changed, never used up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from advisorchain._chain.frames import Frame, build_frames, note_advisor
from advisorchain._chain.run import GRACE, Run
from advisorchain._chain.sources import Opened
from advisorchain._chain.steps import Step, compile_advisors
from advisorchain._chain.stream import ChatStream, logged, logged_call, timed, timed_call
from advisorchain._checked import checked_list, checked_seconds, checked_timeout
from advisorchain._explain.rows import AdvisorRow, described
from advisorchain._telemetry.labels import ChainLabels
from advisorchain._telemetry.log import ChainLog
from advisorchain._telemetry.providers import wanted
from advisorchain._telemetry.recorder import Recorder
from advisorchain._telemetry.trace import Trace
from advisorchain.advisor import AdvisorLike
from advisorchain.aggregate import merged_context
from advisorchain.errors import (
    AdvisorContractError,
    ConfigurationError,
    UnknownAdvisorError,
    dropped,
    kind_of,
)
from advisorchain.exchange import ChatOptions, ChatRequest, ChatResponse, asked
from advisorchain.messages import Prompt, SystemMessage
from advisorchain.model import ModelLike, as_model
from advisorchain.telemetry import SHARED, Telemetry

if TYPE_CHECKING:
    from advisorchain.explain import Explanation
    from advisorchain.lint import Finding

__all__ = ["AdvisorChain", "AdvisorRow", "ChatStream", "Prompt"]


class AdvisorChain:
    """Advisors around a model.

    Args:
        model: a chat model, an async function or an async generator function (see `advisorchain.model`).
        advisors: in any sequence; a lower `order` is further out, equal orders keep the sequence.
        name: what the chain is called in traces.
        telemetry: what is told to whom; by default what `set_telemetry` says. None builds a chain without.
        grace: seconds that closing and the advisors' `done` may take, all together, after a stream was left early or the
            task was cancelled.

    Raises:
        ConfigurationError: something is no model or no advisor, two advisors have one name, an order is out of range.
        InvalidInputError: `grace` is no time.
    """

    def __init__(
        self,
        model: ModelLike,
        advisors: Iterable[AdvisorLike] = (),
        *,
        name: str = "chain",
        telemetry: Telemetry | None = SHARED,
        grace: float = GRACE,
    ) -> None:
        if isinstance(model, AdvisorChain):
            raise ConfigurationError("`model` is a chain; give its model, and its advisors beside yours")
        if telemetry is not None and not isinstance(telemetry, Telemetry):
            raise ConfigurationError(f"`telemetry` is {kind_of(telemetry)}; give Telemetry(…), or None for none")
        self._model = model
        self._functions = as_model(model)
        self._steps = compile_advisors(advisors)
        if self._steps:
            from advisorchain.lint import warn  # here: only now is there an order

            warn(self._steps)
        self._arounds = tuple(step for step in self._steps if step.is_around)
        self._telling = tuple(step.advisor for step in self._steps if hasattr(step.advisor, "answers_depend_on"))
        self._grace = checked_seconds("grace", grace, zero=True)
        self._telemetry = telemetry
        self._log = None if telemetry is None else ChainLog(name)
        self.name: Final = name
        self._frame: Frame = build_frames(self._steps, self._functions, self._log)
        self._entry = self._frame.entry
        # a run is what the frames of a call share: unobserved, and without cleaning-up, there is nothing to share
        self._runs = (telemetry is not None and telemetry.decided) or any(
            step.done_async or step.around or step.advise_stream for step in self._steps
        )
        self._labels: tuple[Recorder, ChainLabels] | None = None
        self._opened: AsyncExitStack | None = None

    # -- asking

    async def call(
        self,
        prompt: Prompt,
        conversation_id: str | None = None,
        system: str | SystemMessage | None = None,
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        advisors: Sequence[AdvisorLike] = (),
        without: Sequence[str] = (),
        timeout: float | None = None,
    ) -> ChatResponse:
        """Ask, and wait for the whole answer.

        Args:
            prompt: a text, a message, or messages.
            conversation_id: whose history this belongs to; 1 to 255 characters.
            system: a system message to put in front.
            options: how the model shall answer.
            context: entries for advisors; they come back on the response.
            advisors: further advisors for this call alone; what these need open is their giver's to open.
            without: names of advisors to leave out of this call.
            timeout: seconds; advisors see a cancellation, the caller CallTimeoutError.

        Raises:
            InvalidInputError: the prompt, an option or the context cannot be sent.
            ModelError: the model failed; other errors of models and advisors keep their own type.
        """
        if advisors or without:
            chain = self._for_one_call(advisors, without)
            return await chain.call(prompt, conversation_id, system, options, context, timeout=timeout)
        request = asked(prompt, conversation_id, system, options, context, self._telling)
        if self._runs or timeout is not None or (self._telemetry is not None and wanted()):
            return await self._run(request, timeout)
        try:
            response = await self._entry(request)
        except Exception as error:
            note_advisor(error, self._arounds)
            raise
        if response.__class__ is not ChatResponse and not isinstance(response, ChatResponse):
            raise _no_response(self._steps, response)
        return response if response.context is request.context else merged_context(request.context, response)

    async def _run(self, request: ChatRequest, timeout: float | None) -> ChatResponse:
        """A call that is recorded, logged, limited in time, or has something to clean up."""
        run = request._run = Run(self._grace)
        ask = self._frame.call
        if (limit := checked_timeout(timeout)) is not None:
            ask = partial(timed_call, ask, limit)
        if self._log is not None:
            ask = partial(logged_call, ask, self._log)
        if (recorder := self._telemetry.recorder() if self._telemetry is not None else None) is not None:
            run.trace = Trace(recorder, self._labels_for(recorder), request, stream=False)
            ask = partial(run.trace.call, ask)
        try:
            return await ask(request)
        except BaseException as error:
            note_advisor(error, self._arounds)
            raise

    def _labels_for(self, recorder: Recorder) -> ChainLabels:
        known = self._labels
        if known is None or known[0] is not recorder:
            labels = ChainLabels(self.name, self._steps, self._functions, recorder.settings)
            self._labels = known = recorder, labels
        return known[1]

    def stream(
        self,
        prompt: Prompt,
        conversation_id: str | None = None,
        system: str | SystemMessage | None = None,
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        advisors: Sequence[AdvisorLike] = (),
        without: Sequence[str] = (),
        timeout: float | None = None,
    ) -> ChatStream:
        """Ask, and read the answer in chunks: `async with chain.stream(…) as stream: async for chunk in stream: …`.

        The arguments and errors are those of `call`. `timeout` counts the time inside the chain, not the reader's own.
        """
        if advisors or without:
            chain = self._for_one_call(advisors, without)
            return chain.stream(prompt, conversation_id, system, options, context, timeout=timeout)
        request = asked(prompt, conversation_id, system, options, context, self._telling)
        run = request._run = Run(self._grace)
        opened = Opened(outermost=True)
        items: AsyncGenerator[Any, None] = self._frame.stream(request, opened)
        if (limit := checked_timeout(timeout)) is not None:
            items = timed(items, limit)
        if self._telemetry is not None:
            if self._log is not None and wanted():
                items = logged(items, opened, run, self._log)
            if (recorder := self._telemetry.recorder()) is not None:
                run.trace = Trace(recorder, self._labels_for(recorder), request, stream=True)
                items = run.trace.stream(items, opened, run)
        return ChatStream(items, opened, run)

    # -- other chains from this one

    def with_advisors(self, *advisors: AdvisorLike) -> AdvisorChain:
        """A chain with these advisors too."""
        return self._copy([*self.advisors, *advisors])

    def without(self, *names: str) -> AdvisorChain:
        """A chain without the advisors of these names.

        Raises:
            UnknownAdvisorError: there is none of that name.
        """
        for name in names:
            self._place(name)
        return self._copy([step.advisor for step in self._steps if step.name not in names])

    def replacing(self, name: str, advisor: AdvisorLike) -> AdvisorChain:
        """A chain with `advisor` in place of the one of that name.

        Raises:
            UnknownAdvisorError: there is none of that name.
        """
        advisors = list(self.advisors)
        advisors[self._place(name)] = advisor
        return self._copy(advisors)

    def _place(self, name: str) -> int:
        for place, step in enumerate(self._steps):
            if step.name == name:
                return place
        known = ", ".join(f"`{step.name}`" for step in self._steps) or "none"
        raise UnknownAdvisorError(f"there is no advisor `{name}` in chain `{self.name}`; its advisors: {known}")

    def _copy(self, advisors: Iterable[AdvisorLike]) -> AdvisorChain:
        return AdvisorChain(self._model, advisors, name=self.name, telemetry=self._telemetry, grace=self._grace)

    def _for_one_call(self, advisors: Sequence[AdvisorLike], without: Sequence[str]) -> AdvisorChain:
        chain = self.without(*checked_list("without", without, "advisors' names")) if without else self
        return chain.with_advisors(*checked_list("advisors", advisors, "advisors")) if advisors else chain

    # -- seeing it

    @property
    def advisors(self) -> tuple[Any, ...]:
        """The advisors, outermost first."""
        return tuple(step.advisor for step in self._steps)

    def describe(self) -> tuple[AdvisorRow, ...]:
        """What the chain is made of, outermost first."""
        return described(self._steps)

    def explain(self) -> Explanation:
        """The same to look at: a table where it is printed, a picture in notebooks; see `advisorchain.explain`."""
        from advisorchain.explain import Explanation

        return Explanation(self.name, self._functions.name, self.describe())

    def lint(self, ignore: Collection[str] = ()) -> tuple[Finding, ...]:
        """What is wrong, or may be, with the order of the advisors; see `advisorchain.lint`.

        Args:
            ignore: the names of rules that are not asked.

        Raises:
            InvalidInputError: `ignore` has something that is no rule.
        """
        from advisorchain.lint import findings

        return findings(self._steps, ignore)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __repr__(self) -> str:
        onion = [f"{step.name}@{step.order}" for step in self._steps]
        return f"<AdvisorChain {' > '.join([*onion, self._functions.name])}>"

    # -- what its parts own

    @property
    def is_open(self) -> bool:
        """Whether it has been entered, and not left."""
        return self._opened is not None

    async def __aenter__(self) -> AdvisorChain:
        """Open the advisors and the model that can be entered; leaving closes these, and those that only have `aclose`.

        A part that was given something, such as a memory advisor its ChatMemory, leaves that to its giver.
        """
        if self._opened is not None:
            raise ConfigurationError(f"chain `{self.name}` is open already")
        async with AsyncExitStack() as stack:
            for part in (*self.advisors, self._model):
                if hasattr(type(part), "__aenter__"):
                    await stack.enter_async_context(part)
                elif hasattr(part, "aclose"):
                    stack.push_async_callback(part.aclose)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(kind, error, traceback)


def _no_response(steps: Sequence[Step], response: object) -> AdvisorContractError:
    # without a frame between them, adjacent around advisors hand on what the inner one returned
    step = next(step for step in steps if step.advise_call is not None)
    return AdvisorContractError(
        f"`advise_call` of advisor `{step.name}`, or of one inside it, returned {dropped(response)}; return a ChatResponse"
    )
