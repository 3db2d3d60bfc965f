"""The floors that the chain is measured against: what bare Python costs for the same number of layers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from advisorchain import ChatChunk, ChatRequest, ChatResponse

RESPONSE = ChatResponse("fine", finish_reason="stop")
CHUNK = ChatChunk("word ")


async def model(request: ChatRequest) -> ChatResponse:
    return RESPONSE


def stream_model(chunks: int) -> Callable[[Any], AsyncIterator[ChatChunk]]:
    async def stream(request: Any) -> AsyncIterator[ChatChunk]:
        for _ in range(chunks):
            yield CHUNK

    return stream


def nested_closures(layers: int) -> Callable[[Any], Awaitable[ChatResponse]]:
    step: Callable[[Any], Awaitable[ChatResponse]] = model
    for _ in range(layers):
        step = _closure(step)
    return step


def _closure(inner: Callable[[Any], Awaitable[ChatResponse]]) -> Callable[[Any], Awaitable[ChatResponse]]:
    async def step(request: Any) -> ChatResponse:
        return await inner(request)

    return step


def nested_generators(layers: int, chunks: int) -> Callable[[Any], AsyncIterator[ChatChunk]]:
    step = stream_model(chunks)
    for _ in range(layers):
        step = _generator(step)
    return step


def _generator(inner: Callable[[Any], AsyncIterator[ChatChunk]]) -> Callable[[Any], AsyncIterator[ChatChunk]]:
    async def step(request: Any) -> AsyncIterator[ChatChunk]:
        async for chunk in inner(request):
            yield chunk

    return step
