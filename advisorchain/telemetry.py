"""What is told of chains to the tools that watch them: OpenTelemetry's spans, metrics and events, and log events.

Nothing of a prompt or an answer is told unless an application asks for it, only what happened: which advisor ran when, in
which order, for how long, and how it ended. Without a provider, which is an application's to set, nothing is recorded.

    set_telemetry(Telemetry(capture_content="SPAN_ONLY"))     # for all chains, also those that were built before
    AdvisorChain(model, advisors, telemetry=Telemetry(agent_name="support"))

The names of all that is recorded are in `advisorchain.conventions`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from opentelemetry import _logs as otel_logs
from opentelemetry import metrics as otel_metrics
from opentelemetry import trace as otel_trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from advisorchain import conventions as names
from advisorchain._telemetry.log import (
    SCOPE,
    STDLIB_LOGGER,
    STRUCTLOG_SETTINGS,
    ChainLog,
    close_failed,
    done_failed,
    log_event,
    recording_failed,
    somebody_listens,
)
from advisorchain._telemetry.recorder import (
    Clock,
    Context,
    Recorder,
    Recording,
    Settings,
    carrying,
    claiming_model_calls,
    current_context,
    current_traceparent,
    error_type,
    linked,
    recording_in,
)
from advisorchain._version import __version__
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.messages import Usage

__all__ = [
    "AROUND",
    "SHARED",
    "CaptureContent",
    "ChainLog",
    "Clock",
    "Context",
    "PricedCall",
    "Prices",
    "Recorder",
    "Recording",
    "Telemetry",
    "add_trace_ids",
    "carrying",
    "claiming_model_calls",
    "close_failed",
    "current_context",
    "current_traceparent",
    "done_failed",
    "error_type",
    "linked",
    "log_event",
    "recording_in",
    "set_telemetry",
    "wanted",
]

CaptureContent: TypeAlias = Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]

_CONTENT_LIMIT: Final = 8_000
_NO: Final = ("0", "false", "no", "off")
_YES: Final = ("1", "true", "yes", "on")


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
        logger_provider: where events go, which tell of content only; None as above.
        capture_content: whether, and where, spans and events tell what was said: "NO_CONTENT" (the default), "SPAN_ONLY",
            "EVENT_ONLY", "SPAN_AND_EVENT" (variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT). Messages, system
            texts, tools with their arguments and results; never the bytes of images or files.
        content_limit: characters of one text that are told, 8,000 by default; of a longer one its beginning, and how much
            was cut (ADVISORCHAIN_CONTENT_LIMIT).
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
        logger_provider: otel_logs.LoggerProvider | None = None,
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
        self._capture: Final = _checked_capture(capture_content)
        self._limit: Final = _checked_limit(content_limit)
        self._switches: Final = {
            "openinference": _checked_switch("openinference", openinference),
            "model_span": _checked_switch("model_span", model_span),
            "record_exceptions": _checked_switch("record_exceptions", record_exceptions),
        }
        if agent_name is not None and (not isinstance(agent_name, str) or not agent_name.strip()):
            raise ConfigurationError("`agent_name` is no text, or blank; give a name, or leave it out")
        if prices is not None and not callable(prices):
            raise ConfigurationError(f"`prices` is {kind_of(prices)}; give a function of a PricedCall")
        self._agent_name: Final = agent_name
        self._prices: Final = prices
        self._settings: Settings | None = None
        self._made: tuple[tuple[Any, ...], Recorder | None] = (), None  # with the providers that it was made for

    def __repr__(self) -> str:
        told = {
            "tracer_provider": self._providers[0] and type(self._providers[0]).__name__,
            "meter_provider": self._providers[1] and type(self._providers[1]).__name__,
            "capture_content": self._capture,
            **self._switches,
            "agent_name": self._agent_name,
        }
        return f"Telemetry({', '.join(f'{name}={value}' for name, value in told.items() if value is not None)})"

    def recorder(self) -> Recorder | None:
        """What records; None while no provider is there. Asked anew for each call, since one may have been set."""
        found: tuple[Any, ...] = _global_providers()
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
        settings = self._settings = self._settings or self._resolved()
        tracer = None if tracers is None else tracers.get_tracer(SCOPE, __version__)
        meter = None if meters is None else meters.get_meter(SCOPE, __version__)
        logger = None if loggers is None else loggers.get_logger(SCOPE, __version__)
        if tracer is None and meter is None and (logger is None or not settings.content_on_events):
            return None
        return Recorder(tracer, meter, logger, settings)

    def _resolved(self) -> Settings:
        capture = self._capture or _capture_in_environment()
        limit = self._limit if self._limit is not None else _limit_in_environment()
        own = self._switches
        return Settings(
            content_on_spans=capture in ("SPAN_ONLY", "SPAN_AND_EVENT"),
            content_on_events=capture in ("EVENT_ONLY", "SPAN_AND_EVENT"),
            content_limit=limit,
            openinference=_switch(own, "openinference", default=True),
            model_span=_switch(own, "model_span", default=True),
            record_exceptions=_switch(own, "record_exceptions", default=False),
            agent_name=self._agent_name,
            prices=self._prices,
        )


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
    global _shared, _shared_decided
    if isinstance(telemetry, _Shared | _Around) or not isinstance(telemetry, Telemetry | None):
        raise ConfigurationError(f"`telemetry` is {kind_of(telemetry)}; give Telemetry(…), or None for none")
    _shared, _shared_decided = telemetry, telemetry is not None and telemetry.decided


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


# -- OpenTelemetry's global providers

_METERS: Final[Any] = getattr(otel_metrics, "_internal", None)
_LOGGERS: Final[Any] = getattr(otel_logs, "_internal", None)
_KNOWN: Final = all(
    hasattr(module, name)
    for module, name in (
        (otel_trace, "_TRACER_PROVIDER"),
        (_METERS, "_METER_PROVIDER"),
        (_LOGGERS, "_LOGGER_PROVIDER"),
    )
)


def _global_providers() -> tuple[Any, Any, Any]:
    """Those of traces, metrics and logs; None where none was set."""
    # The public functions look into the environment each time, so the variables behind them are read.
    if _KNOWN:
        return otel_trace._TRACER_PROVIDER, _METERS._METER_PROVIDER, _LOGGERS._LOGGER_PROVIDER
    return _global_providers_in_public()


def _global_providers_in_public() -> tuple[Any, Any, Any]:
    found = (otel_trace.get_tracer_provider(), otel_metrics.get_meter_provider(), otel_logs.get_logger_provider())
    own = [None if "Proxy" in type(provider).__name__ else provider for provider in found]
    return own[0], own[1], own[2]


_global_providers_in_public()  # makes those that the environment names


def _wanted_in_public() -> bool:
    return any(provider is not None for provider in _global_providers()) or _shared_decided or somebody_listens()


def wanted() -> bool:
    """Whether anybody may want to hear of a call: a provider was set, structlog was configured, or the logger
    "advisorchain" was given a level of its own.

    Asked on every call: with the functions that others offer, it would cost a tenth to a half of a call through ten
    advisors.
    """
    return (
        otel_trace._TRACER_PROVIDER is not None
        or _METERS._METER_PROVIDER is not None
        or _LOGGERS._LOGGER_PROVIDER is not None
        or _shared_decided
        or STDLIB_LOGGER.level != 0
        or STRUCTLOG_SETTINGS.is_configured
    )


if not (_KNOWN and hasattr(STRUCTLOG_SETTINGS, "is_configured")):
    wanted = _wanted_in_public  # a release that has no such variables any more


# -- settings


def _checked_capture(given: object) -> str | None:
    if given is None or given in names.CAPTURE_MODES:
        return given
    known = ", ".join(f'"{mode}"' for mode in names.CAPTURE_MODES)
    raise ConfigurationError(f"`capture_content` is none of {known}")


def _checked_limit(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise ConfigurationError("`content_limit` is to be a number of characters, 0 or more")


def _checked_switch(name: str, given: object) -> bool | None:
    if given is None or isinstance(given, bool):
        return given
    raise ConfigurationError(f"`{name}` is {kind_of(given)}; give True or False, or None for what the environment says")


def _capture_in_environment() -> str:
    told = os.environ.get(names.CAPTURE_CONTENT_VARIABLE, "").strip().upper()
    if told and told not in names.CAPTURE_MODES:
        known = ", ".join(names.CAPTURE_MODES)
        _warn(names.CAPTURE_CONTENT_VARIABLE, f"none of {known}; no content is recorded")
        return "NO_CONTENT"
    return told or "NO_CONTENT"


def _limit_in_environment() -> int:
    variable = "ADVISORCHAIN_CONTENT_LIMIT"
    told = os.environ.get(variable, "").strip()
    if told and not (told.isascii() and told.isdigit()):
        _warn(variable, f"no number of characters; it is taken as {_CONTENT_LIMIT}")
        return _CONTENT_LIMIT
    return int(told) if told else _CONTENT_LIMIT


def _switch(own: dict[str, bool | None], name: str, *, default: bool) -> bool:
    if (given := own[name]) is not None:
        return given
    variable = f"ADVISORCHAIN_{name.upper()}"
    told = os.environ.get(variable, "").strip().lower()
    if told and told not in (*_YES, *_NO):
        _warn(variable, f"neither true nor false; it is taken as {str(default).lower()}")
        return default
    return told in _YES if told else default


def _warn(variable: str, what: str) -> None:
    warnings.warn(f"the environment variable {variable} is {what}", UserWarning, stacklevel=2)


_shared: Telemetry | None = Telemetry()
_shared_decided = False
SHARED: Final[Telemetry] = _Shared()
"""What a chain has by default: see `set_telemetry`."""
AROUND: Final[Telemetry] = _Around()
"""What a chain has that an advisor makes itself."""
