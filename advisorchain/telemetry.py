"""What is told of chains to the tools that watch them: OpenTelemetry's spans, metrics and events, and log events.

Nothing of a prompt or an answer is told unless an application asks for it, only what happened: which advisor ran when, in
which order, for how long, and how it ended. Without a provider, which is an application's to set, nothing is recorded.

    set_telemetry(Telemetry(capture_content="SPAN_ONLY"))     # for all chains, also those that were built before
    AdvisorChain(model, advisors, telemetry=Telemetry(agent_name="support"))

The names of all that is recorded are in `advisorchain.conventions`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from opentelemetry import trace as otel_trace
from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from advisorchain._telemetry.clock import current_context
from advisorchain._telemetry.log import SCOPE, recording_failed
from advisorchain._telemetry.providers import decide_for_all, global_providers
from advisorchain._telemetry.recorder import Recorder, recording_in
from advisorchain._telemetry.settings import Given, Settings
from advisorchain._version import __version__
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.messages import Usage

__all__ = ["CaptureContent", "PricedCall", "Prices", "Telemetry", "add_trace_ids", "set_telemetry"]

CaptureContent: TypeAlias = Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]


@dataclass(frozen=True, slots=True)
class PricedCall:
    """A model call whose price is asked for.

    Attributes:
        provider, model: whom the tokens were bought from; the model that answered, or else the one that was asked.
        usage: the tokens.
        server: the host that was asked, where the model tells it.
    """

    provider: str
    model: str
    usage: Usage
    server: str | None = None


Prices: TypeAlias = Callable[[PricedCall], float | None]
"""What a model call costs in US dollars; None where that is not known. `advisorchain.prices` has one."""


class Telemetry:
    """What a chain tells, and to whom.

    Each setting that is left at None is taken from its variable of the environment, when it is first needed; without that
    it is as said here.

    Args:
        tracer_provider: where spans go. None is OpenTelemetry's global one, also when that is set after the chain was built.
        meter_provider: where metrics go; None as above.
        logger_provider: where events go: of model calls that failed, and of content where that is wanted; None as above.
        capture_content: whether, and where, spans and events tell what was said: "NO_CONTENT" (the default), "SPAN_ONLY",
            "EVENT_ONLY", "SPAN_AND_EVENT" (variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT). Messages, system
            texts, tools with their arguments and results; never the bytes of images or files.
        content_limit: characters of one text that are told, 8,000 by default; of a longer one its beginning, and how much
            was cut; and of a conversation its newest messages, up to 16 times as many characters
            (ADVISORCHAIN_CONTENT_LIMIT).
        openinference: whether spans also carry OpenInference's keys for their kind, and for input and output, by which
            Phoenix and MLflow show chains; True by default (ADVISORCHAIN_OPENINFERENCE).
        model_span: whether model calls have spans and metrics; True by default (ADVISORCHAIN_MODEL_SPAN). Set it to False
            where the provider's SDK is instrumented and shall tell of them. Instrumentations that know the marks of
            OpenTelemetry's or OpenLLMetry's leave to us what we record.
        record_exceptions: whether an error's message and stack trace are told, once, beside its type. False by default,
            since they may hold what a user wrote (ADVISORCHAIN_RECORD_EXCEPTIONS).
        agent_name: what the chain is called as an agent. Its span is then `invoke_agent <name>`.
        prices: what model calls cost, such as `GenaiPrices()` of `advisorchain.prices` (extra `prices`).

    Attributes:
        decided: whether it has a provider of its own, so that there is something to record for good.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        logger_provider: LoggerProvider | None = None,
        capture_content: CaptureContent | None = None,
        content_limit: int | None = None,
        openinference: bool | None = None,
        model_span: bool | None = None,
        record_exceptions: bool | None = None,
        agent_name: str | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._providers: Final = (tracer_provider, meter_provider, logger_provider)
        self.decided = self._providers != (None, None, None)
        self._given: Final = Given(
            capture_content, content_limit, openinference, model_span, record_exceptions, agent_name, prices
        )
        self._settings: Settings | None = None
        self._made: tuple[tuple[Any, ...], Recorder | None] = (), None  # with the providers that it was made for

    def __repr__(self) -> str:
        told = {
            "tracer_provider": self._providers[0] and type(self._providers[0]).__name__,
            "meter_provider": self._providers[1] and type(self._providers[1]).__name__,
            "capture_content": self._given.capture_content,
            "openinference": self._given.openinference,
            "model_span": self._given.model_span,
            "record_exceptions": self._given.record_exceptions,
            "agent_name": self._given.agent_name,
        }
        return f"Telemetry({', '.join(f'{name}={value}' for name, value in told.items() if value is not None)})"

    def recorder(self) -> Recorder | None:
        """What records; None while no provider is there. Asked anew for each call, since one may have been set."""
        found: tuple[Any, ...] = global_providers()
        if self.decided:
            found = tuple(other if own is None else own for own, other in zip(self._providers, found, strict=True))
        providers, recorder = self._made  # at once: another thread may have made one meanwhile
        if found != providers:  # compared by identity: providers have no equality of their own
            try:
                recorder = self._recorder_for(*found)
            except Exception as error:  # of a provider: nothing is recorded then, and every call goes on
                recorder = None
                recording_failed("telemetry", error)
            self._made = found, recorder
        return recorder

    def _recorder_for(self, tracers: Any, meters: Any, loggers: Any) -> Recorder | None:
        settings = self._settings = self._settings or self._given.resolved()
        tracer = None if tracers is None else tracers.get_tracer(SCOPE, __version__)
        meter = None if meters is None else meters.get_meter(SCOPE, __version__)
        logger = None if loggers is None else loggers.get_logger(SCOPE, __version__)
        if tracer is None and meter is None and logger is None:
            return None
        return Recorder(tracer, meter, logger, settings)


class _Shared(Telemetry):
    """The telemetry of all chains that were given none of their own: whatever was set last."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<the telemetry of all chains: {_shared!r}>"

    def recorder(self) -> Recorder | None:
        return None if _shared is None else _shared.recorder()


class _Around(Telemetry):
    """The telemetry of a chain that an advisor has made itself: that of the chain which it runs in, or else of all."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.decided = True  # there may be something to record, whatever is set for all

    def __repr__(self) -> str:
        return "<the telemetry of the chain around it>"

    def recorder(self) -> Recorder | None:
        around = recording_in(current_context())
        return SHARED.recorder() if around is None else around.recorder


def set_telemetry(telemetry: Telemetry | None) -> None:
    """Make this the telemetry of all chains of this process that were given none, also of those that were built before.

    Args:
        telemetry: None: they record nothing; their log events stay.

    Raises:
        ConfigurationError: `telemetry` is neither.
    """
    global _shared
    if isinstance(telemetry, _Shared | _Around) or not isinstance(telemetry, Telemetry | None):
        raise ConfigurationError(f"`telemetry` is {kind_of(telemetry)}; give Telemetry(…), or None for none")
    _shared = telemetry
    decide_for_all(telemetry is not None and telemetry.decided)


def add_trace_ids(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor for structlog that adds `trace_id`, `span_id` and `trace_flags` of the current span, if there is one.

    `structlog.configure(processors=[structlog.contextvars.merge_contextvars, add_trace_ids, …])`
    """
    span = otel_trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = f"{span.trace_id:032x}"
        event["span_id"] = f"{span.span_id:016x}"
        event["trace_flags"] = f"{span.trace_flags:02x}"
    return event


_shared: Telemetry | None = Telemetry()
SHARED: Final[Telemetry] = _Shared()
"""What a chain has by default: see `set_telemetry`."""
AROUND: Final[Telemetry] = _Around()
"""What a chain has that an advisor makes itself."""
