"""Limits on how long the rest of the chain may take."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from math import inf

from anyio import current_time, move_on_after

from advisorchain._checked import checked_seconds
from advisorchain.advisor import AroundAdvisor, Next, StreamItem
from advisorchain.advisors._orders import TIMEOUT_ORDER, TOTAL_TIMEOUT_ORDER
from advisorchain.errors import ConfigurationError, ModelTimeoutError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

__all__ = ["TimeoutAdvisor"]


class TimeoutAdvisor(AroundAdvisor):
    """Ends a call or a stream that takes too long: `TimeoutAdvisor(total=60, first_chunk=5)`.

    A call is limited by `total` alone: it has no chunks, so `first_chunk` and `between_chunks` do nothing in it, and without
    `total` a call to a model that hangs waits for ever.

    What is further in sees a cancellation. What is further out sees ModelTimeoutError: to whoever asks, the rest of the
    chain is the model; and as this error is a ModelError that is `retryable`, a retry and a fallback around this advisor
    act on it.

    Only the time inside the chain counts, not the reader's own. Further in, closing and `done` may take the chain's `grace`
    on top.

    With `total` alone it stands outside of memory, which then sees a cancelled turn and by default keeps what was seen as a
    partial answer; nothing of a call. In its other place a turn that takes too long is an error, of which memory keeps
    nothing, also when half of the answer was shown before the model stalled. There, each model call and each attempt of a
    retry has a time of its own: three attempts may take three times `total`.

    Args:
        total: seconds for the whole answer.
        first_chunk: seconds until the first chunk that shows something; an id or usage alone shows nothing.
        between_chunks: seconds from one chunk to the next, from that first one on. Around a tool loop, the tools' time
            counts.
        name: unique in the chain; by default "total_timeout" with `total` alone, else "timeout".
        order: by default outside of everything with `total` alone, else next to the model.

    Raises:
        ConfigurationError: an argument that cannot work, or no limit.
        ModelTimeoutError: a limit was reached; the message names it.
    """

    to_stream = "cut short"

    def __init__(
        self,
        total: float | None = None,
        *,
        first_chunk: float | None = None,
        between_chunks: float | None = None,
        name: str | None = None,
        order: int | None = None,
    ) -> None:
        self.total = None if total is None else checked_seconds("total", total)
        self.first_chunk = None if first_chunk is None else checked_seconds("first_chunk", first_chunk)
        self.between_chunks = None if between_chunks is None else checked_seconds("between_chunks", between_chunks)
        by_chunk = first_chunk is not None or between_chunks is not None
        if total is None and not by_chunk:
            raise ConfigurationError("a TimeoutAdvisor without a limit; give `total`, `first_chunk` or `between_chunks`")
        self.name = name if name is not None else "timeout" if by_chunk else "total_timeout"
        self.order = order if order is not None else TIMEOUT_ORDER if by_chunk else TOTAL_TIMEOUT_ORDER

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Pull chunk by chunk, each within what is left of the limits."""
        left = {"total": self.total, "first_chunk": self.first_chunk}
        async with aclosing(next(request)) as items:
            while True:
                limit, allowed = min(left.items(), key=lambda entry: inf if entry[1] is None else entry[1])
                started = current_time()
                with move_on_after(allowed) as scope:
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                if scope.cancelled_caught:
                    raise self._ran_out(limit)
                spent = current_time() - started
                left = {name: None if rest is None else rest - spent for name, rest in left.items()}
                if "first_chunk" not in left or not isinstance(item, ChatChunk) or item.shows:
                    left.pop("first_chunk", None)
                    left["between_chunks"] = self.between_chunks
                yield item

    async def advise_call(
        self, request: ChatRequest, next: Callable[[ChatRequest], Awaitable[ChatResponse]]
    ) -> ChatResponse:
        """The whole answer within `total`."""
        with move_on_after(self.total):
            return await next(request)
        raise self._ran_out("total")

    def _ran_out(self, limit: str) -> ModelTimeoutError:
        return ModelTimeoutError(f"`{limit}` of {getattr(self, limit):g} seconds ran out (advisor `{self.name}`)")
