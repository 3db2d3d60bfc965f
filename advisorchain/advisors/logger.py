"""One log event for what goes in, and one for what comes out."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Literal, TypeAlias, get_args

from advisorchain._telemetry.log import log_event
from advisorchain.advisor import BaseAdvisor, Outcome
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.messages import Message

__all__ = ["Level", "LoggingAdvisor"]

Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class LoggingAdvisor(BaseAdvisor):
    """Logs one event for the request and one for how it ended, as both are at its place in the chain.

    Stand it where you want to look; several may stand in one chain, each under its own name. Outside the tool loop it sees
    a turn, inside it each model call. A stream is two events too, however many chunks it has.

    `advisorchain.request` tells how many messages there are, how many of them were recalled, and the round of a loop.
    `advisorchain.response` tells the outcome ("ok", "error", "cancelled", "closed"), the seconds, the finish reason, the
    model, the tokens, and of an error its type. The events go where the chain's own go: to structlog where the application
    has configured it, else to the logger "advisorchain"; with `advisorchain.telemetry.add_trace_ids` they carry the ids of
    this advisor's span.

    Args:
        level: of both events.
        error_level: of the second, when the turn failed; None: as the others.
        content: whether the events also have what was said, as `content`: of the request the messages with role and text,
            of the response its text. Off by default: a log is read by people whom the user did not write to.
        name: unique in the chain.
        order: 0 by default; see above.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    observes = True

    def __init__(
        self,
        *,
        level: Level = "debug",
        error_level: Level | None = None,
        content: bool = False,
        name: str = "logger",
        order: int = 0,
    ) -> None:
        self.level: Level = _checked_level("level", level)
        self.error_level: Level = self.level if error_level is None else _checked_level("error_level", error_level)
        if not isinstance(content, bool):
            raise ConfigurationError(f"`content` is {kind_of(content)}; give True or False")
        self.content = content
        self.name = name
        self.order = order

    def before(self, request: ChatRequest) -> ChatRequest:
        """Log what goes in."""
        told = {"messages": len(request.messages), "recalled": request.recalled, "round": request.round}
        said = {"content": [_shown(message) for message in request.messages]} if self.content else {}
        log_event(self.level, "advisorchain.request", advisor=self.name, **told, **said)
        return request.replace(local={**request.local, self.name: perf_counter()})

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        """Log how it ended."""
        began = request.local.get(self.name)
        told: dict[str, Any] = {"outcome": outcome.status}
        if began is not None:
            told["duration"] = round(perf_counter() - began, 6)
        if outcome.response is not None:
            told |= _told(outcome.response)
            if self.content:
                told["content"] = outcome.response.text
        if outcome.error is not None:
            told["error_type"] = type(outcome.error).__qualname__
        level = self.error_level if outcome.status == "error" else self.level
        log_event(level, "advisorchain.response", advisor=self.name, **told)


def _checked_level(name: str, level: object) -> Level:
    for word in get_args(Level):
        if level == word:
            return word  # type: ignore[no-any-return]
    known = ", ".join(f'"{word}"' for word in get_args(Level))
    raise ConfigurationError(f"`{name}` is none of {known}")


def _shown(message: Message) -> dict[str, str]:
    return {"role": message.role, "text": message.text}


def _told(response: ChatResponse) -> dict[str, Any]:
    told = {"finish_reason": response.finish_reason, "model": response.model, "tool_calls": len(response.message.tool_calls)}
    if (usage := response.usage) is not None:
        told |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    return {key: value for key, value in told.items() if value is not None}
