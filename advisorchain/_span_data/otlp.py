"""Spans in OpenTelemetry's protocol (OTLP) as JSON: one export request, which is a line of the Collector's files.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are hexadecimal, 64-bit numbers are strings, a kind is
a number. What protobuf's own JSON makes of it (ids in base64, kinds by name) is understood too.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final

from advisorchain._span_data.data import SpanData, SpanEvent, SpanLink, checked_number, checked_time
from advisorchain.errors import InvalidInputError

__all__ = ["spans_in"]

_KINDS: Final = ("internal", "internal", "server", "client", "producer", "consumer")
_STATUSES: Final = ("unset", "ok", "error")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{16}){1,2}")
_KNOWS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200


def spans_in(request: Any) -> list[SpanData]:
    """The spans of an export request; none of one for metrics or logs.

    Raises:
        InvalidInputError: it is no export request.
    """
    if not isinstance(request, dict):
        raise InvalidInputError("no export request of OTLP; an object with `resourceSpans` is expected")
    try:
        return list(_spans(request))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInputError("an export request of OTLP that cannot be read; is it cut, or another version?") from error


def _spans(request: dict[str, Any]) -> Iterator[SpanData]:
    for resource_spans in request.get("resourceSpans") or ():
        resource = _attributes((resource_spans.get("resource") or {}).get("attributes"))
        for scope_spans in resource_spans.get("scopeSpans") or ():
            scope = (scope_spans.get("scope") or {}).get("name") or ""
            for span in scope_spans.get("spans") or ():
                yield _span(span, scope, resource)


def _span(span: dict[str, Any], scope: str, resource: dict[str, Any]) -> SpanData:
    flags = int(span.get("flags") or 0)
    status = span.get("status") or {}
    start = _time(span.get("startTimeUnixNano"))
    return SpanData(
        name=str(span.get("name") or ""),
        trace_id=_id(span["traceId"]),
        span_id=_id(span["spanId"]),
        parent_id=_id(span["parentSpanId"]) if str(span.get("parentSpanId") or "").strip("0") else None,
        remote_parent=bool(flags & _KNOWS_REMOTE and flags & _IS_REMOTE),
        kind=_word(span.get("kind"), "SPAN_KIND_", _KINDS),
        start=start,
        end=_time(span.get("endTimeUnixNano")) or start,
        attributes=_attributes(span.get("attributes")),
        status=_word(status.get("code"), "STATUS_CODE_", _STATUSES),
        message=str(status.get("message") or ""),
        events=tuple(
            SpanEvent(str(event.get("name") or ""), _time(event.get("timeUnixNano")), _attributes(event.get("attributes")))
            for event in span.get("events") or ()
        ),
        links=tuple(
            SpanLink(_id(link["traceId"]), _id(link["spanId"]), _attributes(link.get("attributes")))
            for link in span.get("links") or ()
        ),
        scope=str(scope),
        resource=resource,
    )


def _time(told: Any) -> int:
    return checked_time(int(told or 0))


def _id(told: str) -> str:
    if _HEX.fullmatch(told):
        return told.lower()
    decoded = b64decode(told, validate=True)
    if len(decoded) not in (8, 16):
        raise ValueError("no id")
    return decoded.hex()


def _word(told: Any, prefix: str, words: tuple[str, ...]) -> str:
    if isinstance(told, str) and not told.isdigit():
        word = told.removeprefix(prefix).lower()
        return word if word in words else words[0]
    number = int(told or 0)
    return words[number] if 0 <= number < len(words) else words[0]


def _attributes(told: Any) -> dict[str, Any]:
    return {str(pair["key"]): _value(pair.get("value") or {}) for pair in told or ()}


def _value(told: dict[str, Any]) -> Any:
    for kind, value in told.items():
        match kind:
            case "intValue":
                return checked_number(int(value))
            case "doubleValue":
                return float(value)  # "NaN" and "Infinity" are told as strings
            case "arrayValue":
                return tuple(_value(item) for item in value.get("values") or ())
            case "kvlistValue":
                return _attributes(value.get("values"))
            case "bytesValue":
                return b64decode(value)
            case _:
                return value
    return None
