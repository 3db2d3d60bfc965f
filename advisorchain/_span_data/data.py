"""Spans as plain data, wherever they come from: a recorder in this process, OTLP over HTTP, a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SpanData", "SpanEvent", "SpanLink", "as_span", "checked_number", "checked_time"]


def checked_number(value: int) -> int:
    """A whole number, of 64 bits as all in OpenTelemetry's protocol.

    Raises:
        ValueError: it is larger.
    """
    if not -(2**63) <= value < 2**63:
        raise ValueError("more than 64 bits")
    return value


def checked_time(value: int) -> int:
    """Nanoseconds since 1970; later than that, and within 64 bits, so before 2262.

    Raises:
        ValueError: they are not.
    """
    if value < 0:
        raise ValueError("before 1970")
    return checked_number(value)


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened in a span.

    Attributes:
        name: what.
        time: nanoseconds since 1970.
        attributes: what is told of it.
    """

    name: str
    time: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A span that another one points at, such as the one that a paused run goes on with.

    Attributes:
        trace_id, span_id: in lower-case hexadecimal digits.
        attributes: what is told of the link.
    """

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanData:
    """One ended span.

    Attributes:
        name: what it is called.
        trace_id, span_id: in lower-case hexadecimal digits.
        parent_id: of the span it is nested in; None: it is outermost.
        remote_parent: whether that one belongs to another process, as far as it is told.
        kind: "internal", "client", "server", "producer" or "consumer".
        start, end: nanoseconds since 1970.
        attributes: names and values; a list of values is a tuple.
        status: "unset", "ok" or "error".
        message: what is said of an error.
        events, links: in the order in which they were added.
        scope: the library that recorded it; ours is "advisorchain".
        resource: what is told of the process, such as `service.name`.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None = None
    remote_parent: bool = False
    kind: str = "internal"
    start: int = 0
    end: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    status: str = "unset"
    message: str = ""
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    scope: str = ""
    resource: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took; 0 where the clocks disagree."""
        return max(0, self.end - self.start) / 1e9


def as_span(span: Any) -> SpanData:
    """A span of OpenTelemetry's SDK as data; data as it is.

    Raises:
        TypeError: it is neither, or has no context.
    """
    if isinstance(span, SpanData):
        return span
    try:
        context, parent = span.context, span.parent
        return SpanData(
            name=span.name,
            trace_id=f"{context.trace_id:032x}",
            span_id=f"{context.span_id:016x}",
            parent_id=None if parent is None else f"{parent.span_id:016x}",
            remote_parent=parent is not None and parent.is_remote,
            kind=span.kind.name.lower(),
            start=span.start_time or 0,
            end=span.end_time or span.start_time or 0,
            attributes=dict(span.attributes or {}),
            status=span.status.status_code.name.lower(),
            message=span.status.description or "",
            events=tuple(SpanEvent(event.name, event.timestamp, dict(event.attributes or {})) for event in span.events),
            links=tuple(
                SpanLink(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}", dict(link.attributes or {}))
                for link in span.links
            ),
            scope="" if span.instrumentation_scope is None else span.instrumentation_scope.name,
            resource=dict(span.resource.attributes),
        )
    except AttributeError as error:
        raise TypeError(f"`{type(span).__name__}` is no span; give those of an exporter or of an OtlpReceiver") from error
