"""What the viewers show, in one form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from advisorchain._span_data.data import SpanData

from ._scenes import Scene


@dataclass(frozen=True)
class ShownTrace:
    """A trace in a viewer.

    Attributes:
        spans: all, as the viewer's own client reads them.
        kinds: what the viewer takes them for, which is the icon that they have, by id.
        session: of the conversation.
        tokens: of the whole trace, input and output, as the viewer counts them.
        asked, answered: what the list of traces shows of it.
    """

    spans: Sequence[SpanData]
    kinds: Mapping[str, str | None]
    session: str
    tokens: tuple[int, int]
    asked: str
    answered: str

    def kinds_of(self, name: str) -> set[str | None]:
        """Of all spans whose name begins so."""
        return {self.kinds[span.span_id] for span in self.spans if span.name.startswith(name)}


@dataclass(frozen=True)
class Shown:
    """All that a viewer shows.

    Attributes:
        scenes: what was sent, by name and backend.
        traces: by trace id.
        read: all that was read, with what queries found.
    """

    scenes: Mapping[tuple[str, str], Scene]
    traces: Mapping[str, ShownTrace]
    read: Mapping[str, Any]

    def pair(self, scene: str, backend: str) -> tuple[Scene, ShownTrace]:
        """What was sent, and what is shown of it."""
        sent = self.scenes[scene, backend]
        return sent, self.traces[sent.trace_id]


def of_phoenix(scenes: Mapping[tuple[str, str], Scene], read: Any) -> Shown:
    traces: dict[str, list[Any]] = {}
    for span in read["spans"]:
        traces.setdefault(span["context"]["trace_id"], []).append(span)
    sessions = {trace["trace_id"]: session for session in read["sessions"] for trace in session["traces"]}
    shown = {trace: _in_phoenix(spans, sessions[trace]) for trace, spans in traces.items()}
    return Shown(scenes, shown, read)


def _in_phoenix(spans: Sequence[Any], session: Any) -> ShownTrace:
    (root,) = (span for span in spans if span["parent_id"] is None)
    return ShownTrace(
        spans=[
            SpanData(
                name=span["name"],
                trace_id=span["context"]["trace_id"],
                span_id=span["context"]["span_id"],
                parent_id=span["parent_id"],
                start=_nanoseconds(span["start_time"]),
                end=_nanoseconds(span["end_time"]),
                attributes=_plain(span["attributes"]),
                status=span["status_code"].lower(),
            )
            for span in spans
        ],
        kinds={span["context"]["span_id"]: span["span_kind"] for span in spans},
        session=session["session_id"],
        tokens=(session["token_count_prompt"], session["token_count_completion"]),
        asked=root["attributes"].get("input.value", ""),
        answered=root["attributes"].get("output.value", ""),
    )


def _nanoseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000) * 1000


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}


def of_mlflow(scenes: Mapping[tuple[str, str], Scene], read: Any) -> Shown:
    return Shown(scenes, {of: _in_mlflow(of, trace) for of, trace in read["traces"].items()}, read)


def _in_mlflow(trace_id: str, trace: Any) -> ShownTrace:
    tokens = json.loads(trace["metadata"].get("mlflow.trace.tokenUsage", "{}"))
    return ShownTrace(
        spans=[
            SpanData(
                name=span["name"],
                trace_id=trace_id,
                span_id=span["id"],
                parent_id=span["parent"],
                start=span["start"],
                end=span["end"],
                attributes=_plain(span["attributes"]),
                status=span["status"].lower(),
            )
            for span in trace["spans"]
        ],
        kinds={span["id"]: span["type"] for span in trace["spans"]},
        session=trace["metadata"]["mlflow.trace.session"],
        tokens=(tokens.get("input_tokens", 0), tokens.get("output_tokens", 0)),
        asked=json.loads(trace["request"] or '""'),
        answered=json.loads(trace["response"] or '""'),
    )
