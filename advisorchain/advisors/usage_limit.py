"""A budget of tokens or calls, after which the model is not asked any more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final, TypeAlias

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain.advisor import BaseAdvisor, Outcome
from advisorchain.advisors._orders import USAGE_LIMIT_ORDER
from advisorchain.errors import ConfigurationError, LimitExceededError, kind_of
from advisorchain.exchange import ChatRequest
from advisorchain.messages import Usage
from advisorchain.model import is_async

__all__ = ["UsageLimitAdvisor", "Used", "by_conversation"]

Key: TypeAlias = Callable[[ChatRequest], Hashable]


@dataclass(frozen=True, slots=True)
class Used:
    """What was used of a budget."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def plus(self, usage: Usage) -> Used:
        """With one more model call's usage; what its provider did not tell is 0."""
        told_in, told_out = usage.input_tokens or 0, usage.output_tokens or 0
        total = told_in + told_out if usage.total_tokens is None else usage.total_tokens
        tokens = self.input_tokens + told_in, self.output_tokens + told_out, self.total_tokens + total
        return Used(self.calls, *tokens)

    def one_call_more(self) -> Used:
        """With a call that has begun."""
        return Used(self.calls + 1, self.input_tokens, self.output_tokens, self.total_tokens)


def by_conversation(request: ChatRequest) -> Hashable:
    """A budget for each conversation; one for all requests that belong to none."""
    return request.conversation_id


class UsageLimitAdvisor(BaseAdvisor):
    """Refuses requests, before the model is asked, whose budget is used up.

    Calls are counted when they begin, tokens when they have ended, also of a stream that was left or failed, as far as the
    provider has told them by then. So the answer that crosses a limit of tokens is still given, and calls at one time may
    cross it together. A model that tells no usage uses no tokens.

    Counts are kept in this process, for the `max_keys` budgets used last.

    Args:
        total_tokens, input_tokens, output_tokens, calls: what a budget holds; at least one of the four.
        per_seconds: how many seconds a budget lasts from its first call; then it begins anew. None: until `reset`.
        key: whose budget a request uses, a function of it; by default its conversation's. One for all: `lambda request: 0`.
        max_keys: how many budgets are kept; beyond, the one that was not used for the longest time is forgotten.
        name: unique in the chain.
        order: inside the tool loop by default, so that each round is a call; around fallback and retry, so that all their
            attempts are one.

    Raises:
        ConfigurationError: an argument that cannot work, or no limit.
        LimitExceededError: the budget is used up; `retry_after` is how long until it begins anew, if it does.
    """

    counts_calls = True  # so a retry around it would use up the budget
    to_stream = "cut short"

    def __init__(
        self,
        *,
        total_tokens: int | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        calls: int | None = None,
        per_seconds: float | None = None,
        key: Key = by_conversation,
        max_keys: int = 10_000,
        name: str = "usage_limit",
        order: int = USAGE_LIMIT_ORDER,
    ) -> None:
        limits = {
            "calls": calls,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "total_tokens": total_tokens,
        }
        self.limits: Final = {name: checked_whole(name, limit) for name, limit in limits.items() if limit is not None}
        if not self.limits:
            raise ConfigurationError(
                f"a UsageLimitAdvisor without a limit; give one of {', '.join(f'`{n}`' for n in limits)}"
            )
        if not callable(key) or is_async(key):
            raise ConfigurationError(f"`key` is {kind_of(key)}; give a plain function of the request")
        self.per_seconds = None if per_seconds is None else checked_seconds("per_seconds", per_seconds)
        self.key = key
        self.name = name
        self.order = order
        self._budgets: Final = _Budgets(checked_whole("max_keys", max_keys), self.per_seconds)

    def before(self, request: ChatRequest) -> ChatRequest:
        """Refuse, or count one call more."""
        key = self.key(request)
        self._budgets.begin_call(key, self._check)
        return request.replace(local={**request.local, self.name: (key,)})

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        """Count the tokens."""
        counted = request.local.get(self.name)
        if counted and outcome.response is not None and outcome.response.usage is not None:
            self._budgets.add(counted[0], outcome.response.usage)

    def used(self, key: Hashable) -> Used:
        """What was used of the budget of `key`, by default a conversation id."""
        return self._budgets.used(key)

    def reset(self, key: Hashable) -> None:
        """Begin the budget of `key` anew."""
        self._budgets.forget(key)

    def _check(self, used: Used, left: float | None) -> None:
        for name, limit in self.limits.items():
            if getattr(used, name) >= limit:
                until = "call `reset`" if left is None else f"it begins anew in {left:.0f} seconds"
                raise LimitExceededError(f"the budget of {limit} `{name}` is used up; {until}", retry_after=left)


class _Budgets:
    """What was used, by key, for any threads."""

    def __init__(self, max_keys: int, lasts: float | None) -> None:
        self._max_keys = max_keys
        self._lasts = lasts
        self._used: Final[OrderedDict[Hashable, tuple[float, Used]]] = (
            OrderedDict()
        )  # since when, what; used last at the end
        self._lock: Final = Lock()

    def begin_call(self, key: Hashable, check: Callable[[Used, float | None], None]) -> None:
        with self._lock:
            since, used = self._find(key)
            check(used, None if self._lasts is None else since + self._lasts - monotonic())
            self._keep(key, since, used.one_call_more())

    def add(self, key: Hashable, usage: Usage) -> None:
        with self._lock:
            since, used = self._find(key)
            self._keep(key, since, used.plus(usage))

    def used(self, key: Hashable) -> Used:
        with self._lock:
            return self._find(key)[1]

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._used.pop(key, None)

    def _find(self, key: Hashable) -> tuple[float, Used]:
        now = monotonic()  # not an event loop's clock: each loop may have its own
        since, used = self._used.get(key, (now, Used()))
        return (now, Used()) if self._lasts is not None and now - since >= self._lasts else (since, used)

    def _keep(self, key: Hashable, since: float, used: Used) -> None:
        self._used[key] = since, used
        self._used.move_to_end(key)
        if len(self._used) > self._max_keys:
            self._used.popitem(last=False)
