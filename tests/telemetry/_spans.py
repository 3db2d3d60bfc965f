"""What the tests of telemetry share: a recorder of spans, metrics and events, and small advisors and models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain import (
    AdvisorChain,
    AroundAdvisor,
    BaseAdvisor,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Next,
    StreamItem,
    Telemetry,
    TextTransform,
    Usage,
)

CANARY = "the-secret-canary"
MODES = pytest.mark.parametrize("mode", ["call", "stream"])


class Spans:
    """Records spans, and metrics and events where they are wanted, in memory."""

    def __init__(self, *, metrics: bool = False, events: bool = False, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False) if metrics else None
        self.log_exporter = InMemoryLogRecordExporter()
        self.loggers = LoggerProvider(shutdown_on_exit=False) if events else None
        if self.loggers is not None:
            self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.log_exporter))
        self.telemetry = Telemetry(self.provider, self.meters, logger_provider=self.loggers, **settings)

    def all(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        return list(self.exporter.get_finished_spans())

    def many(self, name: str) -> list[ReadableSpan]:
        """Those of this name, in the order in which they began."""
        return sorted((span for span in self.all() if span.name == name), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> ReadableSpan:
        found = self.many(name)
        assert len(found) == 1, [span.name for span in self.all()]
        return found[0]

    def told(self, name: str) -> dict[str, Any]:
        """The attributes of the one span of this name."""
        return dict(self.named(name).attributes or {})

    def tree(self) -> list[str]:
        """Each span below its parent, indented, in the order in which they began."""
        spans = sorted(self.all(), key=lambda span: span.start_time or 0)
        ids = {span.context.span_id for span in spans}

        def below(parent: int | None, depth: int) -> Iterator[str]:
            for span in spans:
                own = span.parent.span_id if span.parent is not None and span.parent.span_id in ids else None
                if own == parent:
                    yield "  " * depth + span.name
                    yield from below(span.context.span_id, depth + 1)

        return list(below(None, 0))

    def outcomes(self) -> dict[str, str]:
        """How each span says that it ended, by name."""
        told = {span.name: span.attributes or {} for span in self.all()}
        return {
            name: str(of.get("advisorchain.advisor.outcome", of.get("advisorchain.outcome"))) for name, of in told.items()
        }

    def text(self) -> str:
        """All that was exported of spans, metrics and events."""
        metrics = self.reader.get_metrics_data() if self.meters is not None else None
        found = [span.to_json() for span in self.all()]
        found.append("" if metrics is None else metrics.to_json())
        return "".join([*found, *(record.to_json() for record in self.log_exporter.get_finished_logs())])

    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each metric, by its name."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        return self.metrics().get(name, [])

    def events(self) -> list[Any]:
        """The log records of all events."""
        return [found.log_record for found in self.log_exporter.get_finished_logs()]


class Hooks(BaseAdvisor):
    def __init__(self, name: str, order: int = 0) -> None:
        self.name = name
        self.order = order

    async def before(self, request: ChatRequest) -> ChatRequest:
        await anyio.lowlevel.checkpoint()
        return request

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response


class Upper(BaseAdvisor):
    name, order = "upper", 1

    def transform(self, request: ChatRequest) -> TextTransform:
        return _Upper()


class _Upper:
    def feed(self, text: str) -> str:
        return text.upper()

    def flush(self) -> str:
        return ""


class Times(AroundAdvisor):
    """Asks the rest of the chain so many times and shows the last answer."""

    order = 5

    def __init__(self, times: int = 2, name: str = "times", order: int = 5, *, rounds: bool = False) -> None:
        self.times = times
        self.name = name
        self.order = order
        self.rounds = rounds

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        for time in range(1, self.times + 1):
            asked = request.replace(round=time) if self.rounds else request
            async with aclosing(next(asked)) as items:
                async for item in items:
                    if time == self.times:
                        yield item


class Answering(BaseAdvisor):
    name, order = "answering", 0

    def before(self, request: ChatRequest) -> ChatResponse:
        return request.reply("at once")


class Endless:
    """Streams until it is stopped."""

    name, provider = "endless", "tests"

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        while True:
            await anyio.lowlevel.checkpoint()
            yield ChatChunk(CANARY)


async def words(request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
    await anyio.lowlevel.checkpoint()
    yield ChatChunk("one ")
    yield ChatChunk("two", finish_reason="stop", usage=Usage(3, 2, cached_tokens=1), metadata={"id": "r1", "model": "w-1"})


def chain(spans: Spans, model: Any = words, *more: Any, **options: Any) -> AdvisorChain:
    """Three advisors, `a` outermost, then `upper`, then `b`."""
    advisors = [Hooks("b", 2), Hooks("a", -7), Upper(), *more]
    return AdvisorChain(model, advisors, name="demo", telemetry=spans.telemetry, **options)


async def ask(chain: AdvisorChain, mode: str, prompt: Any = "hi", **options: Any) -> ChatResponse:
    if mode == "call":
        return await chain.call(prompt, **options)
    async with chain.stream(prompt, **options) as stream:
        async for _ in stream:
            pass
    return stream.response
