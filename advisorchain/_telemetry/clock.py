"""How long things take, and which span is current meanwhile. All times that are recorded are read here."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span

__all__ = ["Awaited", "Clock", "Context", "current_context", "now"]

now = perf_counter  # looked up anew each time, so that tests can put a time of their own here
_get_current: Final = otel_context.get_current
_attach: Final = otel_context.attach


def current_context() -> Context:
    """OpenTelemetry's context of who asks: where the next span belongs."""
    return _get_current()


class Clock:
    """Adds up the seconds that something was at work; as `with clock:` its span is current meanwhile.

    Not to be entered twice at one time, and never around a `yield` of a stream.

    Attributes:
        context: with the span, and what was attached in it last: whatever lies inside of it begins there.
        seconds: of work, so far.
        hooks: those of them that went into each hook.
        failed_hook: the one that raised an error.
    """

    __slots__ = ("_begun", "_entered", "_hook", "_token", "context", "failed_hook", "hooks", "seconds", "span")

    def __init__(self, context: Context, span: Span = INVALID_SPAN) -> None:
        self._begun = now()
        self.span = span
        self.context = context
        self.seconds = self._entered = 0.0
        self.hooks: dict[str, float] = {}
        self.failed_hook: str | None = None
        self._hook: str | None = None
        self._token: Any = None

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return now() - self._begun

    @property
    def idle(self) -> float:
        """Seconds since it began in which nothing was at work."""
        return max(0.0, self.age - self.seconds)

    def during(self, hook: str) -> Clock:
        """As `with clock.during("before"):` the seconds are also that hook's."""
        self._hook = hook
        return self

    def __enter__(self) -> Clock:
        self._token = _attach(self.context)
        self._entered = now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        token, self._token = self._token, None
        if self._hook is None:
            self.seconds += now() - self._entered
        else:
            self.worked(self._hook, now() - self._entered)
            if isinstance(error, Exception):
                self.failed_hook = self._hook
            self._hook = None
        if kind is not GeneratorExit:
            self.context = _get_current()  # keep what was attached meanwhile: a span that an advisor holds open itself
        try:
            token.var.reset(token)
        except ValueError:  # what is thrown away is finalised in another context; OpenTelemetry's `detach` would log that
            pass

    def worked(self, hook: str, seconds: float) -> None:
        """So long, in a hook."""
        self.seconds += seconds
        self.hooks[hook] = self.hooks.get(hook, 0.0) + seconds


class Awaited:
    """As `with awaited:` it adds up the seconds in which at least one of several is awaited."""

    __slots__ = ("_count", "_since", "seconds")

    def __init__(self) -> None:
        self._count = 0
        self._since = self.seconds = 0.0

    def __enter__(self) -> None:
        self._count += 1
        if self._count == 1:
            self._since = now()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if self._count == 0:
            self.seconds += now() - self._since
