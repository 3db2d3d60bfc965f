"""Spans from a text: lines of OTLP JSON, as the Collector and OpenTelemetry's file exporter write them, a document of it, or
what OpenTelemetry's ConsoleSpanExporter prints, also where an application has printed other lines between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from advisorchain._span_data.data import SpanData, SpanEvent, SpanLink, checked_number, checked_time
from advisorchain._span_data.otlp import spans_in
from advisorchain.errors import InvalidInputError

__all__ = ["SpanLines"]

_NOTHING: Final = object()
_OTHERS: Final = ("resourceMetrics", "resourceLogs")
_TRIED: Final = 16_000_000  # characters read in vain for one document of several lines: each of its ends costs all of it


class SpanLines:
    """Reads spans from lines.

    Attributes:
        unread: how many lines, or documents of several lines, look like JSON and hold no spans that can be read.
        first_unread: the number of the first such line; 0: there is none.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self._begun: list[str] = []  # a document of several lines, and the number of its first
        self._begun_at = 0
        self._tried = 0
        self.unread = 0
        self.first_unread = 0

    def __iter__(self) -> Iterator[SpanData]:
        for number, line in enumerate(self._lines, start=1):
            for document, at in self._documents(line, number):
                yield from self._spans(document, at)
        if self._begun:
            yield from self._spans(_parsed("".join(self._begun)), self._begun_at)

    def _documents(self, line: str, number: int) -> Iterator[tuple[Any, int]]:
        """What ends with this line. A document of several lines begins and ends with a bracket that is not indented."""
        if line.startswith(("{", "[")):
            document = _parsed(line)
            if self._begun and (document is not _NOTHING or line.rstrip() in ("{", "[")):
                self._leave_out(self._begun_at)  # it was cut off
                self._begun = []
            if document is not _NOTHING:
                yield document, number
                return
            if not self._begun:
                self._begun, self._begun_at, self._tried = [line], number, 0
                return
        if self._begun:
            self._begun.append(line)
            if line.startswith(("}", "]")):
                yield from self._ended()

    def _ended(self) -> Iterator[tuple[Any, int]]:
        """The document of several lines, if this was its end."""
        text = "".join(self._begun)
        document = _parsed(text)
        self._tried += len(text)
        if document is not _NOTHING:
            yield document, self._begun_at
        elif self._tried < _TRIED:
            return
        else:
            self._leave_out(self._begun_at)
        self._begun = []

    def _spans(self, document: Any, at: int) -> list[SpanData]:
        try:
            return _spans_of(document)
        except InvalidInputError:
            self._leave_out(at)
            return []

    def _leave_out(self, number: int) -> None:
        self.unread += 1
        self.first_unread = self.first_unread or number


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NOTHING


def _spans_of(document: Any) -> list[SpanData]:
    if isinstance(document, list):
        return [span for part in document for span in _spans_of(part)]
    if not isinstance(document, dict):
        raise InvalidInputError("no spans")
    if "resourceSpans" in document:
        return spans_in(document)
    if any(other in document for other in _OTHERS):
        return []
    return [_printed(document)]


def _printed(told: dict[str, Any]) -> SpanData:
    """A span as OpenTelemetry's SDK prints it. It tells no scope."""
    try:
        start = _nanoseconds(told["start_time"])
        status = told["status"]
        return SpanData(
            name=str(told["name"]),
            trace_id=_id(told["context"]["trace_id"]),
            span_id=_id(told["context"]["span_id"]),
            parent_id=_id(told["parent_id"]) if told.get("parent_id") else None,
            kind=str(told["kind"]).removeprefix("SpanKind.").lower(),
            start=start,
            end=_nanoseconds(told["end_time"]) or start,
            attributes=_attributes(told["attributes"]),
            status=str(status["status_code"]).lower(),
            message=str(status.get("description") or ""),
            events=tuple(
                SpanEvent(str(event["name"]), _nanoseconds(event["timestamp"]), _attributes(event["attributes"]))
                for event in told["events"]
            ),
            links=tuple(
                SpanLink(_id(link["context"]["trace_id"]), _id(link["context"]["span_id"]), _attributes(link["attributes"]))
                for link in told["links"]
            ),
            resource=_attributes((told.get("resource") or {}).get("attributes")),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError("no span") from error


def _id(told: str) -> str:
    return f"{int(told, 16):0{len(told.removeprefix('0x'))}x}"


def _nanoseconds(told: str | None) -> int:
    if not told:
        return 0
    moment = datetime.fromisoformat(told)
    return checked_time(int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000)


def _attributes(told: dict[str, Any] | None) -> dict[str, Any]:
    return {name: _value(value) for name, value in (told or {}).items()}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    return checked_number(value) if isinstance(value, int) else value
