"""Log events: by structlog where the application has configured it, else by `logging`, where they are silent by default."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from advisorchain.messages import Usage

__all__ = [
    "SCOPE",
    "STDLIB_LOGGER",
    "STRUCTLOG_SETTINGS",
    "ChainLog",
    "close_failed",
    "done_failed",
    "log_event",
    "recording_failed",
    "somebody_listens",
]

SCOPE: Final = "advisorchain"

# Without this an application that has not configured structlog would see every event on stdout.
STDLIB_LOGGER: Final = logging.getLogger(SCOPE)
STDLIB_LOGGER.addHandler(logging.NullHandler())
_RECORDS_OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


def _beside_the_records_own(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Rename what an application has bound under a name that `logging` keeps for itself: it would raise."""
    return {f"{key}_" if key in _RECORDS_OWN else key: value for key, value in event.items()}


_STDLIB: Final = structlog.wrap_logger(
    STDLIB_LOGGER,
    wrapper_class=structlog.stdlib.BoundLogger,
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        _beside_the_records_own,
        structlog.stdlib.render_to_log_kwargs,
    ],
)


def _logger() -> Any:
    return structlog.get_logger(SCOPE) if structlog.is_configured() else _STDLIB


def _tell(logger: Any, level: str, event: str, **data: Any) -> None:
    """Log an event. A processor of the application that raises must not cost an answer that is there."""
    try:
        getattr(logger, level)(event, **data)
    except Exception:
        STDLIB_LOGGER.warning("advisorchain.log.failed", exc_info=True)


def log_event(level: str, event: str, **data: Any) -> None:
    """Log an event of an advisor, where the events of chains go. What `data` may tell is the advisor's to decide."""
    _tell(_logger(), level, event, **data)


def done_failed(advisor: str, order: int, error: BaseException) -> None:
    """Log what a `done` raised when there is no one left to raise it to: the task is being cancelled."""
    log_event("warning", "advisorchain.done.failed", advisor=advisor, order=order, error_type=type(error).__qualname__)


def close_failed(error: BaseException) -> None:
    """Log what closing a stream beneath raised while the task is being cancelled."""
    log_event("warning", "advisorchain.close.failed", error_type=type(error).__qualname__)


def recording_failed(what: str, error: Exception) -> None:
    """Log that a "span", "metric", "event" or "cost" could not be told: no answer is lost for it."""
    log_event("warning", f"advisorchain.{what}.failed", error_type=type(error).__qualname__)


class ChainLog:
    """A chain's log events."""

    __slots__ = ("_bound", "_chain", "_configured")

    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._configured = False
        self._bound: Any = _STDLIB.bind(chain=chain)

    def finished(self, *, stream: bool, outcome: str, seconds: float, usage: Usage | None) -> None:
        """A call or stream has ended."""
        logger = self._logger()
        if not (self._configured or STDLIB_LOGGER.isEnabledFor(logging.DEBUG)):
            return  # what structlog would find out, at ten times the cost
        data: dict[str, Any] = {"stream": stream, "outcome": outcome, "duration": round(seconds, 6)}
        if usage is not None:
            data |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        _tell(logger, "debug", "advisorchain.chain.finished", **data)

    def short_circuit(self, advisor: str, order: int) -> None:
        """An advisor has answered without the rest of the chain."""
        _tell(self._logger(), "info", "advisorchain.advisor.short_circuit", advisor=advisor, order=order)

    def _logger(self) -> Any:
        configured = structlog.is_configured()
        if configured is not self._configured:  # bound once, and again when the application configures structlog later
            self._configured = configured
            self._bound = _logger().bind(chain=self._chain)
        return self._bound


STRUCTLOG_SETTINGS: Final[Any] = getattr(getattr(structlog, "_config", None), "_CONFIG", None)
"""What `structlog.is_configured` reads, which costs a tenth of a call through ten advisors; None in another release."""


def somebody_listens() -> bool:
    """Whether structlog was configured, or the logger "advisorchain" was given a level of its own."""
    return STDLIB_LOGGER.level != 0 or structlog.is_configured()
