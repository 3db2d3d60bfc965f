"""OpenTelemetry's global providers, which are an application's to set: whether there are any, asked on every call."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry import _logs as otel_logs
from opentelemetry import metrics as otel_metrics
from opentelemetry import trace as otel_trace

from advisorchain._telemetry.log import STDLIB_LOGGER, STRUCTLOG_SETTINGS, somebody_listens

__all__ = ["decide_for_all", "global_providers", "wanted"]

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

_decided = False  # the telemetry of all chains has a provider of its own
_unasked = True  # whether the environment names providers: asking makes these, which may not be before a first call
_perhaps = True  # one of the two: what every call asks


def decide_for_all(decided: bool) -> None:
    """Whether the telemetry of all chains has a provider of its own."""
    global _decided, _perhaps
    _decided = decided
    _perhaps = decided or _unasked


def global_providers() -> tuple[Any, Any, Any]:
    """Those of traces, metrics and logs; None where none was set."""
    # The public functions look into the environment each time, so the variables behind them are read.
    if _KNOWN and not _unasked:
        return otel_trace._TRACER_PROVIDER, _METERS._METER_PROVIDER, _LOGGERS._LOGGER_PROVIDER
    return _in_public()


def _in_public() -> tuple[Any, Any, Any]:
    global _unasked, _perhaps
    _unasked, _perhaps = False, _decided
    found = (otel_trace.get_tracer_provider(), otel_metrics.get_meter_provider(), otel_logs.get_logger_provider())
    own = [None if "Proxy" in type(provider).__name__ else provider for provider in found]
    return own[0], own[1], own[2]


def _wanted_in_public() -> bool:
    return any(provider is not None for provider in global_providers()) or _decided or somebody_listens()


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
        or STDLIB_LOGGER.level != 0
        or STRUCTLOG_SETTINGS.is_configured
        or (_perhaps and _wanted_in_public())
    )


if not (_KNOWN and hasattr(STRUCTLOG_SETTINGS, "is_configured")):
    wanted = _wanted_in_public  # a release that has no such variables any more
