"""Asking a chain the same way in a call and in a stream, and every test once more while it is recorded and logged."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from advisorchain import Telemetry, set_telemetry
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatResponse


class Counts(SpanProcessor):
    def __init__(self) -> None:
        self.open: dict[int, str] = {}

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.open[span.context.span_id] = span.name

    def on_end(self, span: Any) -> None:
        del self.open[span.context.span_id]


@pytest.fixture(params=["unwatched", "watched"], autouse=True)
def _watched(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """When watched, every chain is traced and logged: nothing else may change, and every span ends."""
    if request.param == "unwatched":
        yield
        return
    provider, spans = TracerProvider(), Counts()
    provider.add_span_processor(spans)
    set_telemetry(Telemetry(tracer_provider=provider))
    caplog.set_level(logging.DEBUG, "advisorchain")
    yield
    set_telemetry(Telemetry())
    provider.shutdown()
    assert spans.open == {}


@pytest.fixture(params=["call", "stream"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(mode: str) -> Callable[..., Awaitable[ChatResponse]]:
    """The whole response, by a call or by a stream that is read to its end."""

    async def asked(chain: AdvisorChain, prompt: Any = "question", **more: Any) -> ChatResponse:
        if mode == "call":
            return await chain.call(prompt, **more)
        async with chain.stream(prompt, **more) as stream:
            async for _ in stream:
                pass
            return stream.response

    return asked
