"""What the viewers are sent: a chain of ready advisors, and four ways through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from advisorchain import (
    AdvisorChain,
    AssistantMessage,
    BaseAdvisor,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Telemetry,
    ToolCall,
    Usage,
)
from advisorchain._span_data.data import SpanData, as_span
from advisorchain.advisors import MessageChatMemoryAdvisor, RetryAdvisor, SafeGuardAdvisor, ToolCallingAdvisor
from advisorchain.errors import ModelError
from advisorchain.memory import ChatMemory
from advisorchain.testing import Pause, ScriptedModel
from advisorchain.tools import tool

PROJECT: Final = "advisorchain"
BACKENDS: Final = ("asyncio", "trio")
pace = 0.0
"""Seconds that tools take, and a chunk of a model. Pictures want some."""


@tool
async def weather(city: str) -> str:
    """What the weather is like in a city."""
    await anyio.sleep(3 * pace)
    return f"Sun in {city}, 24 degrees"


@tool
async def trains(start: str, end: str) -> list[str]:
    """When trains go from one city to another."""
    await anyio.sleep(6 * pace)
    return [f"08:10 {start} - {end}", f"12:40 {start} - {end}"]


class Polite(BaseAdvisor):
    """One of an application's own."""

    name, order = "polite", 10

    def before(self, request: ChatRequest) -> ChatRequest:
        return request.with_context(polite=True)


class Paced:
    """A model that takes its time."""

    def __init__(self, model: ScriptedModel) -> None:
        self.name, self.provider, self._model = model.name, model.provider, model

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        await anyio.sleep(4 * pace)
        async with aclosing(self._model.stream(request)) as chunks:
            async for chunk in chunks:
                await anyio.sleep(pace)
                yield chunk


class Sent:
    """A recorder whose spans go to a viewer, by OTLP over HTTP and in batches; and, to compare with, into memory."""

    def __init__(self, endpoint: str, headers: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.kept = InMemorySpanExporter()
        resource = Resource({"service.name": PROJECT, "openinference.project.name": PROJECT})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        exporter = OTLPSpanExporter(endpoint, headers=dict(headers or {}), timeout=60)
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self.telemetry = Telemetry(self.provider, **settings)

    def flush(self) -> None:
        """Wait until all has been taken."""
        assert self.provider.force_flush(120_000)

    def drain(self) -> list[SpanData]:
        """What was sent since the last time, in the order in which it began."""
        spans = sorted(map(as_span, self.kept.get_finished_spans()), key=lambda span: span.start)
        self.kept.clear()
        return spans


@dataclass(frozen=True)
class Scene:
    """What was sent of one way through the chain.

    Attributes:
        conversation_id: of the conversation.
        chain: the one that was asked.
        spans: all, in the order in which they began.
        outcome: how it ended.
        tokens: of all its model calls, input and output.
    """

    conversation_id: str
    chain: AdvisorChain
    spans: Sequence[SpanData]
    outcome: str = "ok"
    tokens: tuple[int, int] = (0, 0)
    root: SpanData = field(init=False)

    def __post_init__(self) -> None:
        (root,) = (span for span in self.spans if span.parent_id is None)
        object.__setattr__(self, "root", root)

    @property
    def trace_id(self) -> str:
        return self.root.trace_id


def chain(model: Any, telemetry: Telemetry | None) -> AdvisorChain:
    """memory > guard > tools > polite > retry > model."""
    retry = RetryAdvisor(attempts=2, wait=lambda _: 0.0)
    advisors: list[Any] = [
        MessageChatMemoryAdvisor(ChatMemory()),
        SafeGuardAdvisor(["password"]),
        ToolCallingAdvisor([weather, trains]),
    ]
    return AdvisorChain(model, [*advisors, Polite(), retry], name="travel", telemetry=telemetry)


def asking(*calls: ToolCall, usage: Usage) -> ChatResponse:
    """An answer that asks for tools."""
    return ChatResponse(AssistantMessage("Let me see. ", tool_calls=calls), "tool_calls", usage)


def answering(text: str, usage: Usage) -> list[ChatChunk]:
    """An answer in words."""
    words = text.split(" ")
    chunks = [ChatChunk(f"{word} ") for word in words[:-1]]
    return [*chunks, ChatChunk(words[-1], finish_reason="stop", usage=usage)]


async def called(sent: Sent, conversation_id: str) -> Scene:
    """A call whose first attempt fails."""
    busy = ModelError("too many requests", retryable=True)
    asked = chain(ScriptedModel(busy, answering("Take the train.", Usage(11, 4, cached_tokens=6))), sent.telemetry)
    response = await asked.call("How do I get to Porto?", conversation_id=conversation_id)
    assert response.text == "Take the train."
    return _scene(sent, asked, conversation_id, tokens=(11, 4))


async def streamed(sent: Sent, conversation_id: str) -> Scene:
    """A stream that is read to its end."""
    asked = chain(ScriptedModel(answering("Take the night train.", Usage(12, 5))), sent.telemetry)
    async with asked.stream("How do I get to Porto?", conversation_id=conversation_id) as stream:
        assert "".join([chunk.text async for chunk in stream]) == "Take the night train."
    return _scene(sent, asked, conversation_id, tokens=(12, 5))


async def looped(sent: Sent, conversation_id: str) -> Scene:
    """A stream through a loop of two rounds of tools, the first of which runs two at once."""
    both = (
        ToolCall("call_1", "weather", '{"city": "Porto"}'),
        ToolCall("call_2", "trains", '{"start": "Lisbon", "end": "Porto"}'),
    )
    back = ToolCall("call_3", "trains", '{"start": "Porto", "end": "Lisbon"}')
    scripted = ScriptedModel(
        asking(*both, usage=Usage(40, 20)),
        asking(back, usage=Usage(90, 15, cached_tokens=40)),
        answering("Take the 08:10. It is sunny in Porto. You can be back in the evening.", Usage(130, 25, cached_tokens=90)),
        name="scripted-1",
    )
    asked = chain(Paced(scripted), sent.telemetry)
    async with asked.stream(
        "A day in Porto tomorrow: weather and trains?", system="You plan trips.", conversation_id=conversation_id
    ) as stream:
        async for _ in stream:
            pass
    return _scene(sent, asked, conversation_id, tokens=(260, 60))


async def cancelled(sent: Sent, conversation_id: str) -> Scene:
    """A stream whose task is cancelled after two chunks."""
    pause = Pause()
    asked = chain(ScriptedModel(["Take ", "the ", pause, "train."]), sent.telemetry)
    with anyio.CancelScope() as scope:
        async with asked.stream("How do I get to Porto?", conversation_id=conversation_id) as stream:
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == 2:
                    scope.cancel()
    assert scope.cancelled_caught
    return _scene(sent, asked, conversation_id, outcome="cancelled")


SCENES: Final = {"call": called, "stream": streamed, "tools": looped, "cancelled": cancelled}


def play(sent: Sent) -> dict[tuple[str, str], Scene]:
    """All scenes on asyncio and trio, sent and taken: by name and backend."""
    played = {}
    for backend in BACKENDS:
        for name, scene in SCENES.items():
            run: Any = partial(scene, sent, f"{name}-on-{backend}")
            played[name, backend] = anyio.run(run, backend=backend)
    sent.flush()
    return played


def _scene(sent: Sent, asked: AdvisorChain, conversation_id: str, **told: Any) -> Scene:
    return Scene(conversation_id, asked, sent.drain(), **told)
