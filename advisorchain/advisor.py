"""Advisors: what stands around a model call.

A chain is an onion. Each advisor has a `name` and an integer `order`; lower is further out. A request goes inwards
through every advisor to the model, the response comes back outwards, and an answer that is streamed goes the same way,
in chunks and then as one whole response:

    request ──▶ memory.before ──▶ shout.before ──▶ model
    chunks  ◀── memory        ◀── shout.transform ◀──┘      a call has no chunks, the rest is the same
    response ◀─ memory.after, memory.done ◀─ shout.after, shout.done

Write one of three kinds:

- a `BaseAdvisor` with the hooks that you need: the most common, and the cheapest;
- an `AroundAdvisor`, when the rest of the chain is to be asked never, or several times: a retry, a loop, a cache;
- an `Advisor`, with `advise_call`, `advise_stream` or both, for full control.

One advisor object serves all calls, also at the same time: keep what belongs to one call on the request (`local`), not
on the advisor.

What else an advisor may say of itself, to rules, pictures and traces, is in `advisorchain.marks`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from advisorchain._named import Named
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

__all__ = [
    "CHAT_MEMORY_ORDER",
    "HIGHEST_PRECEDENCE",
    "LOWEST_PRECEDENCE",
    "TOOL_CALLING_ORDER",
    "Advisor",
    "AdvisorLike",
    "AroundAdvisor",
    "BaseAdvisor",
    "CallAdvisor",
    "Next",
    "Outcome",
    "StreamAdvisor",
    "StreamItem",
    "TextTransform",
]

# Spring AI 2 has the same four numbers: a Java `int`, and the places that its memory and tool advisors take.
HIGHEST_PRECEDENCE: Final = -(2**31)
LOWEST_PRECEDENCE: Final = 2**31 - 1
CHAT_MEMORY_ORDER: Final = HIGHEST_PRECEDENCE + 200
TOOL_CALLING_ORDER: Final = HIGHEST_PRECEDENCE + 300

StreamItem: TypeAlias = ChatChunk | ChatResponse


@dataclass(slots=True)
class Outcome:
    """How it ended for one advisor.

    Attributes:
        status: "ok"; "error"; "cancelled": the task was; "closed": the reader left the stream.
        response: the whole response that left this advisor, the partial of what had left it, or None: nothing had.
        error: what was raised, when the status is "error".
    """

    status: Literal["ok", "error", "cancelled", "closed"]
    response: ChatResponse | None = None
    error: BaseException | None = None


class TextTransform(Protocol):
    """Changes one answer's text as it passes. What it gives back must not depend on how the text is cut into chunks."""

    def feed(self, text: str) -> str:
        """Take the next piece; give back what may be shown now. The rest is held back."""
        ...

    def flush(self) -> str:
        """A message ends: give back what was held. Not called when the reader leaves early."""
        ...


class BaseAdvisor(Named):
    """An advisor made of hooks. Override what you need; each may be `def` or `async def`, except `transform`.

    In `transform`, `after` and `done`, `request` is the one that this advisor passed on; when `before` failed, `done` gets
    the one that it received.
    """

    def before(self, request: ChatRequest) -> ChatRequest | ChatResponse | Awaitable[ChatRequest | ChatResponse]:
        """On the way in. Return the request, or a changed copy; a ChatResponse answers at once, without the rest.

        After such a short-circuit this advisor's own `transform` and `after` are skipped; its `done` is not.
        """
        return request

    def transform(self, request: ChatRequest) -> TextTransform | None:
        """What changes the text of this request's answer; None: nothing does. In a call the text is fed at once."""
        return None

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse | Awaitable[ChatResponse]:
        """On the way out, once, also in a stream: return the response, or a changed copy. Change text in `transform`."""
        return response

    def done(self, request: ChatRequest, outcome: Outcome) -> Awaitable[None] | None:
        """At the end, exactly once for every advisor whose `before` was entered, however it ended. Returns nothing."""
        return None


class Next(Protocol):
    """The rest of the chain, as an AroundAdvisor sees it: ask it never, once, or many times, also concurrently.

    Each asking gives zero or more chunks, then exactly one ChatResponse; in a call, one chunk and the response.
    Use `contextlib.aclosing` around one that may be left early.
    """

    streaming: bool

    def __call__(self, request: ChatRequest) -> AsyncGenerator[StreamItem, None]:
        """Ask the rest of the chain."""
        ...


class AroundAdvisor(Named):
    """An advisor that decides itself whether, and how often, the rest of the chain is asked.

    `around` is an async generator: it yields chunks, then exactly one ChatResponse, in a call as in a stream. A subclass
    may define `async def advise_call(self, request, next)` beside it, as a cheaper road for calls.
    """

    def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Ask `next(request)` and yield on what it gives; drop, change or add chunks where needed."""
        raise NotImplementedError


class CallAdvisor(Protocol):
    """The half of an `Advisor` that serves calls; a stream gets one chunk."""

    name: str
    order: int

    async def advise_call(
        self, request: ChatRequest, next: Callable[[ChatRequest], Awaitable[ChatResponse]]
    ) -> ChatResponse:
        """Answer a call; `await next(request)` asks the rest."""
        ...


class StreamAdvisor(Protocol):
    """The half of an `Advisor` that serves streams; a call drains it."""

    name: str
    order: int

    def advise_stream(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Answer a stream: chunks, then one ChatResponse; `next(request)` asks the rest."""
        ...


class Advisor(CallAdvisor, StreamAdvisor, Protocol):
    """Full control, in both modes. One half alone is an advisor too."""


AdvisorLike: TypeAlias = BaseAdvisor | AroundAdvisor | CallAdvisor | StreamAdvisor
