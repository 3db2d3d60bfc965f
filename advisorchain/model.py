"""What a chain asks of a model, and how plain functions become one.

A model is an object with a `name`, a `provider` and `call` or `stream` (or both), or a function: `async def` that returns
a text or a ChatResponse, or an async generator of texts or ChatChunks.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from advisorchain.errors import ConfigurationError, ModelResponseError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage

__all__ = ["CallFunction", "ChatModel", "ModelLike", "StreamFunction", "as_model"]

CallFunction: TypeAlias = Callable[[ChatRequest], Awaitable[ChatResponse]]
StreamFunction: TypeAlias = Callable[[ChatRequest], AsyncIterator[ChatChunk]]


@runtime_checkable
class ChatModel(Protocol):
    """A chat model. Either of `call` and `stream` may be left out: the chain makes one of the other.

    Map the provider's errors to ModelError at this border (`raise … from error`), keep its retry hints, never show a key.
    """

    name: str
    provider: str

    async def call(self, request: ChatRequest) -> ChatResponse:
        """The whole answer."""
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The answer in chunks, and nothing else: the chain folds them. Closing it must stop the model."""
        ...


ModelLike: TypeAlias = ChatModel | Callable[[ChatRequest], Any]
