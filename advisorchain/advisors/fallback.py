"""Other models, asked in turn when the first one fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from advisorchain._telemetry.log import log_event
from advisorchain.advisor import AroundAdvisor, Next, StreamItem
from advisorchain.advisors._attempts import AfterFirstChunk, checked_setting, is_outage, streamed
from advisorchain.advisors._orders import FALLBACK_ORDER
from advisorchain.chain import AdvisorChain
from advisorchain.errors import ConfigurationError, add_note, kind_of
from advisorchain.exchange import ChatOptions, ChatRequest, ChatResponse
from advisorchain.model import ModelLike, as_model, is_async
from advisorchain.telemetry import AROUND

__all__ = ["FallbackAdvisor"]

_UNNAMED: Final = "chain"  # the name of an AdvisorChain that was given none

When: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]


class FallbackAdvisor(AroundAdvisor):
    """Asks other models, in turn, when the rest of the chain fails.

    Another model is asked with the same messages, conversation id, context and options, but for `options.model`, which
    names one of the first provider's. It is asked through nothing that stands further in than this advisor: a time limit and
    retries there are the first model's, and a model that is given alone has neither. Give a chain to put its own around it:

        FallbackAdvisor(AdvisorChain(second, [TimeoutAdvisor(total=60, first_chunk=5), RetryAdvisor()], name="second"))

    but no memory: that is around this advisor. To the advisors of such a chain all messages are new, also those that were
    recalled. Each model has a trace of its own, which begins beneath this advisor's span; one that is given alone has the
    default `telemetry` and `grace` of AdvisorChain, whatever those of the chain around are. To change these, give a chain.

    The answer of another model has its name in `metadata["fallback"]`, and in `model` where it tells none itself: the
    chain's, or the model's own where the chain was given none. When all fail, the first error is raised as it is, with notes
    of the others. Each failure after which another model is asked is logged (`advisorchain.fallback.again`, at level
    warning), by its type alone.

    `async with chain` (or client) opens and closes the models that are given alone; a chain stays its giver's.

    Args:
        models: chat models, model functions or chains, to be asked in this sequence.
        when: on which errors: exception types, or a function of the error; by default ModelError, ConnectionError and
            TimeoutError. Cancellation is never one.
        after_first_chunk: when a stream fails after something was shown: "raise" the error; or make another "attempt",
            whose first chunk has `boundary="attempt"` and tells in `withdraws` how many messages no longer count.
        name: unique in the chain.
        order: inside the tool loop and around a retry by default, so that another model is asked when the retries of the
            first are used up.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    asks_others = True  # so a retry around it would ask them all again
    to_stream = "change"

    def __init__(
        self,
        *models: ModelLike | AdvisorChain,
        when: When = is_outage,
        after_first_chunk: AfterFirstChunk = "raise",
        name: str = "fallback",
        order: int = FALLBACK_ORDER,
    ) -> None:
        if not models:
            raise ConfigurationError("a FallbackAdvisor without a model; give one or more")
        self.chains = tuple(_as_chain(model) for model in models)
        self._own = tuple(chain for chain, model in zip(self.chains, models, strict=True) if chain is not model)
        self._opened: AsyncExitStack | None = None
        self._entered = 0  # one advisor may stand in several chains
        self.when = _checked_when(when)
        self.after_first_chunk = checked_setting(after_first_chunk)
        self.name = name
        self.order = order

    async def __aenter__(self) -> Self:
        """Open the models that were given alone."""
        if not self._entered:
            async with AsyncExitStack() as stack:
                for chain in self._own:
                    await stack.enter_async_context(chain)
                self._opened = stack.pop_all()
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if not self._entered and self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.__aexit__(kind, error, traceback)

    def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """The rest of the chain, then the other models, until one does not fail."""
        turns = _Turns(self)
        return streamed(lambda: turns.streamed(request, next), turns.failed, self.after_first_chunk)

    async def advise_call(
        self, request: ChatRequest, next: Callable[[ChatRequest], Awaitable[ChatResponse]]
    ) -> ChatResponse:
        """As `around`, for a call."""
        turns = _Turns(self)
        while True:
            try:
                return await turns.called(request, next)
            except Exception as error:
                await turns.failed(error)


class _Turns:
    """Whose turn it is in one call."""

    def __init__(self, advisor: FallbackAdvisor) -> None:
        self._advisor = advisor
        self._failures: list[Exception] = []

    @property
    def _chain(self) -> AdvisorChain | None:
        """The one to ask; None: the rest of the chain, at first, and nobody when all have failed."""
        turn = len(self._failures)
        return self._advisor.chains[turn - 1] if 0 < turn <= len(self._advisor.chains) else None

    async def called(self, request: ChatRequest, next: Callable[[ChatRequest], Awaitable[ChatResponse]]) -> ChatResponse:
        chain = self._chain
        return await next(request) if chain is None else _marked(await chain.call(**_asked(request)), chain)

    def streamed(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        chain = self._chain
        return next(request) if chain is None else _streamed(chain, request)

    async def failed(self, error: Exception) -> None:
        """Return when there is another model to ask, or raise: there is none, or this error is not one of `when`."""
        if not self._advisor.when(error):
            raise error
        self._failures.append(error)
        if (chain := self._chain) is not None:
            kind = type(error).__qualname__
            log_event(
                "warning", "advisorchain.fallback.again", advisor=self._advisor.name, next=_name_of(chain), error_type=kind
            )
            return
        first, *others = self._failures
        for chain, other in zip(self._advisor.chains, others, strict=True):
            what = f"model `{_name_of(chain)}` of advisor `{self._advisor.name}`"
            add_note(first, f"{what} failed too: {type(other).__name__}")
        raise first


async def _streamed(chain: AdvisorChain, request: ChatRequest) -> AsyncGenerator[StreamItem, None]:
    async with chain.stream(**_asked(request)) as stream:
        async for chunk in stream:
            yield chunk
        yield _marked(stream.response, chain)


def _asked(request: ChatRequest) -> dict[str, Any]:
    return {
        "prompt": request.messages,
        "conversation_id": request.conversation_id,
        "options": _without_model(request.options),
        "context": request.context,
    }


def _without_model(options: ChatOptions) -> ChatOptions:
    return options if options.model is None else replace(options, model=None)


def _marked(response: ChatResponse, chain: AdvisorChain) -> ChatResponse:
    name = _name_of(chain)
    return response.replace(model=response.model or name, metadata={**response.metadata, "fallback": name})


def _name_of(chain: AdvisorChain) -> str:
    return chain.name if chain.name != _UNNAMED else chain._functions.name


def _as_chain(model: Any) -> AdvisorChain:
    return model if isinstance(model, AdvisorChain) else AdvisorChain(model, name=as_model(model).name, telemetry=AROUND)


def _checked_when(when: Any) -> Callable[[Exception], bool]:
    kinds = when if isinstance(when, tuple) else (when,)
    if kinds and all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        return lambda error: isinstance(error, kinds)
    if isinstance(when, type | tuple) or not callable(when) or is_async(when):
        raise ConfigurationError(f"`when` is {kind_of(when)}; give exception types, or a plain function of the error")
    return when  # type: ignore[no-any-return]
