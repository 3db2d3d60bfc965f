"""`chat --trace`: after each answer, which advisor ran when, for how long, and how it ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain._span_data.data import as_span
from advisorchain._span_data.tree import trees
from advisorchain.cli.trace_table import drawn
from advisorchain.telemetry import Telemetry

__all__ = ["TraceView", "tree_lines"]


class TraceView:
    """Records the spans of a chain, in this process alone, and shows them after each answer."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.telemetry = Telemetry(tracer_provider=provider)

    def take(self) -> list[str]:
        """The lines of what was recorded since the last time."""
        spans = self._spans.get_finished_spans()
        self._spans.clear()
        return tree_lines(spans, shutil.get_terminal_size(fallback=(80, 24)).columns)


def tree_lines(spans: Iterable[ReadableSpan], width: int = 80) -> list[str]:
    """A line a span under a line of headings, as `advisorchain.cli.trace_table` draws it."""
    return [line.plain for trace in trees(as_span(span) for span in spans) for line in drawn(trace, width)]
