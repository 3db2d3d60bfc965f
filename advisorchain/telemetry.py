"""Spans and log events: the only module that knows OpenTelemetry and structlog.

Nothing of a prompt or an answer is recorded, only what happened: which advisor ran when, in which order, how long, and
how it ended. A stream never holds an OpenTelemetry context across a `yield`: a span is current only while the next item is
fetched, so that nothing leaks into the reader and closing in another task is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from advisorchain._version import __version__
from advisorchain.messages import Usage

__all__ = [
    "ChainLog",
    "Clock",
    "Context",
    "Telemetry",
    "Tracer",
    "carrying",
    "close_failed",
    "current_context",
    "done_failed",
    "end_span",
    "log_event",
    "start_span",
    "tracer_in",
    "wanted",
]

_SCOPE: Final = "advisorchain"
_TRACER: Final = otel_context.create_key(_SCOPE)

# Without this an application that has not configured structlog would see every event on stdout.
_STDLIB_LOGGER: Final = logging.getLogger(_SCOPE)
_STDLIB_LOGGER.addHandler(logging.NullHandler())
_RECORDS_OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


def _beside_the_records_own(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Rename what an application has bound under a name that `logging` keeps for itself: it would raise."""
    return {f"{key}_" if key in _RECORDS_OWN else key: value for key, value in event.items()}


_STDLIB: Final = structlog.wrap_logger(
    _STDLIB_LOGGER,
    wrapper_class=structlog.stdlib.BoundLogger,
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        _beside_the_records_own,
        structlog.stdlib.render_to_log_kwargs,
    ],
)


def _logger() -> Any:
    return structlog.get_logger(_SCOPE) if structlog.is_configured() else _STDLIB


def _tell(logger: Any, level: str, event: str, **data: Any) -> None:
    """Log an event. A processor of the application that raises must not cost an answer that is there."""
    try:
        getattr(logger, level)(event, **data)
    except Exception:
        _STDLIB_LOGGER.warning("advisorchain.log.failed", exc_info=True)


def log_event(level: str, event: str, **data: Any) -> None:
    """Log an event of an advisor, where the events of chains go. What `data` may tell is the advisor's to decide."""
    _tell(_logger(), level, event, **data)


def done_failed(advisor: str, order: int, error: BaseException) -> None:
    """Log what a `done` raised when there is no one left to raise it to: the task is being cancelled."""
    name = type(error).__qualname__
    _tell(_logger(), "warning", "advisorchain.done.failed", advisor=advisor, order=order, error_type=name)


def _span_failed(error: Exception) -> None:
    """Log that a span could not be told: no answer is lost for it."""
    _tell(_logger(), "warning", "advisorchain.span.failed", error_type=type(error).__qualname__)


def close_failed(error: BaseException) -> None:
    """Log what closing a stream beneath raised while the task is being cancelled."""
    _tell(_logger(), "warning", "advisorchain.close.failed", error_type=type(error).__qualname__)


class ChainLog:
    """A chain's log events, by structlog where the application has configured it, else by `logging`."""

    __slots__ = ("_bound", "_chain", "_configured")

    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._configured = False
        self._bound: Any = _STDLIB.bind(chain=chain)

    def finished(self, *, stream: bool, outcome: str, seconds: float, usage: Usage | None) -> None:
        """A call or stream has ended."""
        data: dict[str, Any] = {"stream": stream, "outcome": outcome, "duration": round(seconds, 6)}
        if usage is not None:
            data |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        _tell(self._logger(), "debug", "advisorchain.chain.finished", **data)

    def short_circuit(self, advisor: str, order: int) -> None:
        """An advisor has answered without the rest of the chain."""
        _tell(self._logger(), "info", "advisorchain.advisor.short_circuit", advisor=advisor, order=order)

    def _logger(self) -> Any:
        configured = structlog.is_configured()
        if configured is not self._configured:  # bound once, and again when the application configures structlog later
            self._configured = configured
            self._bound = _logger().bind(chain=self._chain)
        return self._bound


class Telemetry:
    """Where a chain's spans go.

    Args:
        tracer_provider: None is OpenTelemetry's global one, also when it is set after the chain was built.
    """

    __slots__ = ("_tracer",)

    def __init__(self, *, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer | None = None
        provider = tracer_provider or otel_trace.get_tracer_provider()
        if not isinstance(provider, otel_trace.ProxyTracerProvider):
            self._tracer = _tracer_of(provider)

    def __repr__(self) -> str:
        return "Telemetry()" if self._tracer is None else f"Telemetry(tracer={self._tracer!r})"

    def tracer(self) -> Tracer | None:
        """The tracer; None while no provider is set."""
        if self._tracer is None and (provider := _global_provider()) is not None:
            self._tracer = _tracer_of(provider)
        return self._tracer

    @property
    def decided(self) -> bool:
        """Whether there is a tracer for good."""
        return self._tracer is not None


def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer(_SCOPE, __version__)


def _global_provider() -> TracerProvider | None:
    provider = otel_trace.get_tracer_provider()
    return None if isinstance(provider, otel_trace.ProxyTracerProvider) else provider


_STRUCTLOG: Final[Any] = (
    getattr(structlog._config, "_CONFIG", None) if hasattr(structlog, "_config") else None
)  # what `structlog.is_configured` reads


def _wanted_in_public() -> bool:
    return _global_provider() is not None or _STDLIB_LOGGER.level != 0 or structlog.is_configured()


def wanted() -> bool:
    """Whether anybody may want to hear of a call: a tracer provider was set, structlog was configured, or the logger
    "advisorchain" was given a level of its own.

    Asked on every call. The public functions of both libraries cost a tenth to a half of a call through ten advisors (one
    looks into the environment each time), so the variables behind them are read.
    """
    return otel_trace._TRACER_PROVIDER is not None or _STDLIB_LOGGER.level != 0 or _STRUCTLOG.is_configured


if not hasattr(otel_trace, "_TRACER_PROVIDER") or not hasattr(_STRUCTLOG, "is_configured"):
    wanted = _wanted_in_public  # a release that has no such variables any more


class Clock:
    """Adds up the seconds that something was at work, and has its span current meanwhile."""

    __slots__ = ("context", "seconds", "span")

    def __init__(self, span: Span, context: Context) -> None:
        self.span = span
        self.context = context
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Never around a `yield` of a stream."""
        token = otel_context.attach(self.context)
        started = perf_counter()
        foreign = False
        try:
            yield
        except GeneratorExit:
            foreign = True  # finalised in another context, where this token means nothing
            raise
        finally:
            self.seconds += perf_counter() - started
            if not foreign:
                self.context = current_context()  # keep a span that an advisor holds open itself
                otel_context.detach(token)


def current_context() -> Context:
    """OpenTelemetry's context of who asks: where the next span belongs."""
    return otel_context.get_current()


def carrying(context: Context, tracer: Tracer | None) -> Context:
    """`context`, in which an advisor finds the tracer of its chain; None: it finds none."""
    return otel_context.set_value(_TRACER, tracer, context)


def tracer_in(context: Context) -> Tracer | None:
    """The tracer of the chain that runs in `context`; None: nothing is recorded."""
    return context.get(_TRACER)  # type: ignore[return-value]


def start_span(tracer: Tracer, name: str, parent: Context, attributes: dict[str, Any], *, client: bool = False) -> Clock:
    """Start a span beneath `parent`; it is current only while its clock runs. Values that are None are left out."""
    kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
    known = {key: value for key, value in attributes.items() if value is not None}
    try:
        span = tracer.start_span(name, context=parent, kind=kind, attributes=known)
    except Exception as error:  # of a span processor: OpenTelemetry lets it through
        _span_failed(error)
        return Clock(otel_trace.INVALID_SPAN, parent)
    return Clock(span, otel_trace.set_span_in_context(span, parent))


def end_span(clock: Clock, attributes: dict[str, Any], error: BaseException | None = None) -> None:
    """End a span. Of an error only the type is told: its text may hold what a user wrote."""
    span = clock.span
    if span.is_recording():
        span.set_attributes({key: value for key, value in attributes.items() if value is not None})
        if error is not None:
            name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
            span.set_attribute("error.type", name)
            span.set_status(Status(StatusCode.ERROR, name))
    try:
        span.end()
    except Exception as failure:
        _span_failed(failure)
