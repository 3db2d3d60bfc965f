"""An advisor for tests: it changes nothing and writes down what it saw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from advisorchain.advisor import BaseAdvisor, Outcome, TextTransform
from advisorchain.exchange import ChatRequest, ChatResponse

__all__ = ["RecordingAdvisor", "Seen", "labels"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one hook of a RecordingAdvisor saw.

    Attributes:
        advisor: the advisor's name.
        hook: "before", "transform", "feed", "flush", "after" or "done".
        request: what the hook was given; with "feed" and "flush", what `transform` was given.
        response: what `after` was given.
        outcome: what `done` was given.
        text: what `feed` was given.
    """

    advisor: str
    hook: str
    request: ChatRequest
    response: ChatResponse | None = None
    outcome: Outcome | None = None
    text: str | None = None

    @property
    def label(self) -> str:
        """Advisor and hook, such as "a.before"; with the status behind it, "a.done ok"."""
        return f"{self.advisor}.{self.hook}" + (f" {self.outcome.status}" if self.outcome is not None else "")


def labels(log: Iterable[Seen], *hooks: str) -> list[str]:
    """The labels of what was seen; of these hooks alone, where some are named."""
    return [seen.label for seen in log if not hooks or seen.hook in hooks]


class RecordingAdvisor(BaseAdvisor):
    """Changes nothing and writes down every hook with what it saw.

    Args:
        name: unique in the chain.
        order: its place.
        log: where to write; several advisors may share one list.
    """

    observes = True
    to_stream = "observe"

    def __init__(self, name: str, order: int = 0, log: list[Seen] | None = None) -> None:
        self.name = name
        self.order = order
        self.log: Final[list[Seen]] = log if log is not None else []

    def before(self, request: ChatRequest) -> ChatRequest:
        """Write down the request."""
        self.log.append(Seen(self.name, "before", request))
        return request

    def transform(self, request: ChatRequest) -> TextTransform:
        """Write down the request, and later each text that passes."""
        self.log.append(Seen(self.name, "transform", request))
        return _RecordingTransform(self.name, request, self.log)

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        """Write down the response."""
        self.log.append(Seen(self.name, "after", request, response=response))
        return response

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        """Write down how it ended."""
        self.log.append(Seen(self.name, "done", request, outcome=outcome))

    @property
    def outcomes(self) -> list[Outcome]:
        """What this advisor's `done` was given, each time."""
        return [seen.outcome for seen in self.log if seen.advisor == self.name and seen.outcome is not None]


class _RecordingTransform:
    def __init__(self, name: str, request: ChatRequest, log: list[Seen]) -> None:
        self._name = name
        self._request = request
        self._log = log

    def feed(self, text: str) -> str:
        self._log.append(Seen(self._name, "feed", self._request, text=text))
        return text

    def flush(self) -> str:
        self._log.append(Seen(self._name, "flush", self._request))
        return ""
