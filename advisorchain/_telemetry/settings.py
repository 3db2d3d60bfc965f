"""What is to be told: by arguments, and by variables of the environment for what they leave open."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any, Final

from advisorchain import conventions as names
from advisorchain.errors import ConfigurationError, kind_of

__all__ = ["Given", "Settings"]

_CONTENT_LIMIT: Final = 8_000
_NO: Final = ("0", "false", "no", "off")
_YES: Final = ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is to be told.

    Attributes:
        content_on_spans, content_on_events: where what was said is told.
        content_limit: characters of a text that are kept.
        openinference: whether spans say their OpenInference kind, and input and output as it has them.
        model_span: whether model calls have spans and metrics.
        record_exceptions: whether an error's message and stack trace are told.
        agent_name: what the chain is as an agent; None: a chain.
        prices: what a model call costs.
    """

    content_on_spans: bool = False
    content_on_events: bool = False
    content_limit: int = 0
    openinference: bool = True
    model_span: bool = True
    record_exceptions: bool = False
    agent_name: str | None = None
    prices: Any = None


@dataclass(frozen=True, slots=True)
class Given:
    """What `Telemetry` was given: None is what the environment says, when that is first needed.

    Raises:
        ConfigurationError: something that cannot work.
    """

    capture_content: str | None = None
    content_limit: int | None = None
    openinference: bool | None = None
    model_span: bool | None = None
    record_exceptions: bool | None = None
    agent_name: str | None = None
    prices: Any = None

    def __post_init__(self) -> None:
        if self.capture_content is not None and self.capture_content not in names.CAPTURE_MODES:
            known = ", ".join(f'"{mode}"' for mode in names.CAPTURE_MODES)
            raise ConfigurationError(f"`capture_content` is none of {known}")
        if (limit := self.content_limit) is not None and (type(limit) is not int or limit < 0):
            raise ConfigurationError("`content_limit` is to be a number of characters, 0 or more")
        for name in ("openinference", "model_span", "record_exceptions"):
            if not isinstance(given := getattr(self, name), bool | None):
                found = kind_of(given)
                raise ConfigurationError(f"`{name}` is {found}; give True or False, or None for what the environment says")
        if self.agent_name is not None and (not isinstance(self.agent_name, str) or not self.agent_name.strip()):
            raise ConfigurationError("`agent_name` is no text, or blank; give a name, or leave it out")
        if self.prices is not None and not callable(self.prices):
            raise ConfigurationError(f"`prices` is {kind_of(self.prices)}; give a function of a PricedCall")

    def resolved(self) -> Settings:
        """With what the environment says."""
        capture = self.capture_content or _capture_in_environment()
        limit = self.content_limit
        return Settings(
            content_on_spans=capture in ("SPAN_ONLY", "SPAN_AND_EVENT"),
            content_on_events=capture in ("EVENT_ONLY", "SPAN_AND_EVENT"),
            content_limit=_limit_in_environment() if limit is None else limit,
            openinference=_switch("openinference", self.openinference, default=True),
            model_span=_switch("model_span", self.model_span, default=True),
            record_exceptions=_switch("record_exceptions", self.record_exceptions, default=False),
            agent_name=self.agent_name,
            prices=self.prices,
        )


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


def _switch(name: str, given: bool | None, *, default: bool) -> bool:
    if given is not None:
        return given
    variable = f"ADVISORCHAIN_{name.upper()}"
    told = os.environ.get(variable, "").strip().lower()
    if told and told not in (*_YES, *_NO):
        _warn(variable, f"neither true nor false; it is taken as {str(default).lower()}")
        return default
    return told in _YES if told else default


def _warn(variable: str, what: str) -> None:
    warnings.warn(f"the environment variable {variable} is {what}", UserWarning, stacklevel=2)
