"""Export requests of OTLP in protobuf, which exporters send unless told otherwise. Needs the extra `trace`."""

from __future__ import annotations

from typing import Any, cast

from advisorchain.errors import InvalidInputError, MissingExtraError

try:
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # type: ignore[import-not-found,unused-ignore]
        ExportTraceServiceRequest,
    )
except ImportError as error:
    raise MissingExtraError(
        'spans that come as protobuf need `opentelemetry-proto`: pip install "advisorchain[trace]"'
        " (or let them be sent as JSON)"
    ) from error

__all__ = ["as_json"]


def as_json(body: bytes) -> dict[str, Any]:
    """What the request is as JSON, with ids in base64.

    Raises:
        InvalidInputError: it is no request for spans.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
        return cast("dict[str, Any]", MessageToDict(request, use_integers_for_enums=True))
    except (DecodeError, ValueError, RecursionError) as error:
        raise InvalidInputError("no export request of OTLP for traces in protobuf") from error
