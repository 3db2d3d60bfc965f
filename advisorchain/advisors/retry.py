"""Asking once more after an error that may pass. The policy is tenacity's: when to stop, how long to wait, what to retry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

from anyio import sleep

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain._telemetry.log import log_event
from advisorchain.advisor import AroundAdvisor, Next, StreamItem
from advisorchain.advisors._attempts import AfterFirstChunk, checked_setting, is_outage, streamed
from advisorchain.advisors._orders import RETRY_ORDER
from advisorchain.errors import (
    ChatMemoryError,
    ConfigurationError,
    InvalidInputError,
    LimitExceededError,
    MissingExtraError,
    ModelError,
    add_note,
    kind_of,
)
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.model import is_async

try:
    from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
except ImportError as error:
    raise MissingExtraError('retries need tenacity: pip install "advisorchain[retry]"') from error

__all__ = ["RetryAdvisor", "may_pass"]

Stop: TypeAlias = Callable[[RetryCallState], bool]
Wait: TypeAlias = Callable[[RetryCallState], float]
Retry: TypeAlias = Callable[[RetryCallState], bool]

# Three attempts, and a wait that grows from 0.5 to 8 seconds, as in the SDKs of OpenAI and Anthropic; at random below that.
_ATTEMPTS: Final = 3
_WAIT: Final[Wait] = wait_random_exponential(multiplier=0.5, max=8)
_MAX_RETRY_AFTER: Final = 60.0  # seconds: rates are counted by the minute, so a longer hint is about a quota that is used up

# The same request would fail again, or was refused for the application's own good; storing a turn is memory's own affair.
_NEVER: Final = (InvalidInputError, ConfigurationError, LimitExceededError, ChatMemoryError)


def may_pass(error: BaseException) -> bool:
    """Whether an error is retried by default: a ModelError that is `retryable`, a ConnectionError or a TimeoutError."""
    return error.retryable if isinstance(error, ModelError) else is_outage(error)


_RETRY: Final[Retry] = retry_if_exception(may_pass)


class RetryAdvisor(AroundAdvisor):
    """Asks the rest of the chain again after an error that may pass: `RetryAdvisor(attempts=5)`.

    As long as nothing was shown of a stream, the reader notices nothing but the time. The error of the last attempt is
    raised as it is, with a note that tells the number of attempts. The usage is that of the attempt that succeeded. Each
    failure that is tried again is logged (`advisorchain.retry.again`, at level warning), by its type alone.

    Cancellation is never retried, nor are InvalidInputError, ConfigurationError, LimitExceededError and ChatMemoryError,
    whatever `retry` says. Only errors are: a strategy that looks at results finds none.

    What stands further in holds for each attempt: with a TimeoutAdvisor(total=60) there, three attempts may take three
    minutes and the waits between them; one further out bounds them all. The providers' SDKs retry too. Set theirs to 0 where
    this advisor stands, or attempts multiply.

    Args:
        attempts: how often the model is asked at most, the first time included; 3 where there is no `stop` either.
        stop: when to give up, in place of `attempts`: a tenacity `stop_…`, or a function of its RetryCallState.
        wait: seconds to wait: a tenacity `wait_…`, or a function; by default random, up to 0.5, 1, 2, … and at most 8. A
            provider's `retry_after` is waited for at the least.
        retry: which errors: a tenacity `retry_if_exception…`, or a function; by default `may_pass`.
        max_retry_after: seconds; a provider that asks to wait longer has the error raised at once.
        after_first_chunk: when a stream fails after something was shown: "raise" the error; or begin another "attempt",
            whose first chunk has `boundary="attempt"` and tells in `withdraws` how many messages no longer count.
        name: unique in the chain.
        order: inside the tool loop and a fallback by default, so that each model call has attempts of its own.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    repeats = "attempt"
    retries = True  # so what each attempt would do again must stand further out

    def __init__(
        self,
        *,
        attempts: int | None = None,
        stop: Stop | None = None,
        wait: Wait = _WAIT,
        retry: Retry = _RETRY,
        max_retry_after: float = _MAX_RETRY_AFTER,
        after_first_chunk: AfterFirstChunk = "raise",
        name: str = "retry",
        order: int = RETRY_ORDER,
    ) -> None:
        self.stop = _checked_stop(attempts, stop)
        self.wait = _checked_strategy("wait", wait)
        self.retry = _checked_strategy("retry", retry)
        self.max_retry_after = checked_seconds("max_retry_after", max_retry_after, zero=True)
        self.after_first_chunk = checked_setting(after_first_chunk)
        self.to_stream = "change" if after_first_chunk == "attempt" else "observe"
        self.name = name
        self.order = order
        # for strategies that look at it; its own loop keeps its state by thread, which calls at one time would share
        self._policy = Retrying(stop=self.stop, wait=wait, retry=retry)

    def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Attempt until one does not fail, or the policy gives up."""
        return streamed(partial(next, request), partial(self._again, self._begun()), self.after_first_chunk)

    async def advise_call(
        self, request: ChatRequest, next: Callable[[ChatRequest], Awaitable[ChatResponse]]
    ) -> ChatResponse:
        """As `around`, for a call."""
        state = self._begun()
        while True:
            try:
                return await next(request)
            except Exception as error:
                await self._again(state, error)

    def _begun(self) -> RetryCallState:
        return RetryCallState(self._policy, fn=None, args=(), kwargs={})

    async def _again(self, state: RetryCallState, error: Exception) -> None:
        """Wait for the next attempt, or raise the error: there is none."""
        state.set_exception((type(error), error, error.__traceback__))
        if isinstance(error, _NEVER) or not self.retry(state):
            raise error if state.attempt_number == 1 else self._last(state, error)
        hint = (error.retry_after if isinstance(error, ModelError) else None) or 0.0
        state.upcoming_sleep = max(float(self.wait(state)), hint)
        if self.stop(state) or hint > self.max_retry_after:
            raise self._last(state, error)
        told = {"attempt": state.attempt_number, "seconds": round(state.upcoming_sleep, 6)}
        kind = type(error).__qualname__
        log_event("warning", "advisorchain.retry.again", advisor=self.name, **told, error_type=kind)
        state.idle_for += state.upcoming_sleep  # which strategies may ask for
        await sleep(state.upcoming_sleep)
        state.prepare_for_next_attempt()

    def _last(self, state: RetryCallState, error: Exception) -> Exception:
        add_note(error, f"advisor `{self.name}`: attempt {state.attempt_number} was the last")
        return error


def _checked_stop(attempts: object, stop: Any) -> Stop:
    if attempts is None and stop is not None:
        if isinstance(stop, int):
            raise ConfigurationError(f"`stop` is {stop!r}; give `attempts={stop:d}`, or a tenacity strategy")
        return _checked_strategy("stop", stop)  # type: ignore[no-any-return]
    if stop is not None:
        raise ConfigurationError("`attempts` and `stop` are both given; give one of them")
    return stop_after_attempt(checked_whole("attempts", _ATTEMPTS if attempts is None else attempts))


def _checked_strategy(name: str, strategy: Any) -> Any:
    if not callable(strategy) or isinstance(strategy, type):
        raise ConfigurationError(f"`{name}` is {kind_of(strategy)}; give a tenacity strategy, or a function of its state")
    if is_async(strategy):
        raise ConfigurationError(f"`{name}` is async; give a plain one")
    return strategy
