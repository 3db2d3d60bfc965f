"""What a chain asks of a model, and how plain functions become one.

A model is an object with a `name`, a `provider` and `call` or `stream` (or both), or a function: an `async def` that
returns a text or a ChatResponse, or an async generator of texts or ChatChunks.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from advisorchain._output_prompt import in_words
from advisorchain.errors import ConfigurationError, ModelResponseError, dropped, kind_of
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage
from advisorchain.options import NO_OPTIONS

__all__ = ["ChatModel", "ModelFunctions", "ModelLike", "as_model", "is_async"]

_T = TypeVar("_T")


class ChatModel(Protocol):
    """A chat model. Either of `call` and `stream` may be left out: the chain makes one of the other.

    One whose provider can hold an answer to a schema says `native_output = True` and reads `request.options.output`; for
    others the chain puts the schema into the prompt. For traces it may say its `server_address` (a host) and `server_port`,
    or that it runs `in_process`.

    Map the provider's errors to ModelError at this border (`raise … from error`), keep its retry hints, never show a key.
    """

    name: str
    provider: str

    async def call(self, request: ChatRequest) -> ChatResponse:
        """The whole answer."""
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The answer in chunks, and nothing else: the chain folds them. Closing it must stop the model.

        A chunk holds whole characters; halves of one (lone surrogates) are for the adapter to join, and an error otherwise.
        """
        ...


class CallModel(Protocol):
    """A model without `stream`."""

    async def call(self, request: ChatRequest) -> ChatResponse | str:
        """The whole answer."""
        ...


class StreamModel(Protocol):
    """A model without `call`."""

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatChunk | str]:
        """The answer in chunks."""
        ...


CallFunction: TypeAlias = Callable[[ChatRequest], Awaitable[ChatResponse | str]]
StreamFunction: TypeAlias = Callable[[ChatRequest], AsyncIterator[ChatChunk | str]]
ModelLike: TypeAlias = CallModel | StreamModel | CallFunction | StreamFunction


@dataclass(frozen=True, slots=True)
class ModelFunctions:
    """What a chain uses of a model. At least one of `call` and `stream` is there.

    `server_address`, `server_port` and `in_process` are for traces: where it is, if it tells.
    """

    name: str
    provider: str
    call: Callable[[ChatRequest], Awaitable[Any]] | None
    stream: Callable[[ChatRequest], AsyncIterator[Any]] | None
    server_address: str | None = None
    server_port: int | None = None
    in_process: bool = False

    def response(self, value: object) -> ChatResponse:
        """What `call` gave back, as a response.

        Raises:
            ModelResponseError: it is neither a response nor a text.
        """
        if isinstance(value, ChatResponse):
            return value
        if isinstance(value, str):
            return ChatResponse(AssistantMessage(value))
        raise ModelResponseError(f"model `{self.name}` answered {dropped(value)}; return a text or a ChatResponse")

    def chunk(self, value: object) -> ChatChunk:
        """What `stream` yielded, as a chunk.

        Raises:
            ModelResponseError: it is neither a chunk nor a text.
        """
        if isinstance(value, ChatChunk):
            return value
        if isinstance(value, str):
            return ChatChunk(value)
        raise ModelResponseError(f"model `{self.name}` yielded {kind_of(value)}; yield texts or ChatChunks")


def is_async(function: object) -> bool:
    """Whether calling `function` gives something to await, as far as can be told without calling it."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _is_async_generator(function: object) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(getattr(function, "__call__", None))  # noqa: B004


def as_model(model: Any) -> ModelFunctions:
    """What a chain uses of `model`.

    Raises:
        ConfigurationError: it is no model.
    """
    if isinstance(model, type):
        raise ConfigurationError(f"`model` is the class `{model.__name__}`; give an object of it")
    call, stream = getattr(model, "call", None), getattr(model, "stream", None)
    if callable(call) or callable(stream):
        return _from_object(model, call, stream)
    name = getattr(model, "__name__", None) or type(model).__name__
    if not callable(model):
        raise ConfigurationError(f"`model` is {kind_of(model)}; give a chat model or an async (generator) function")
    if _is_async_generator(model):
        return ModelFunctions(name, "function", None, _prompted(model))
    if is_async(model):
        return ModelFunctions(name, "function", _prompted(model), None)
    raise ConfigurationError(f"model function `{name}` is not async; write `async def {name}(request)`")


def _from_object(model: Any, call: Any, stream: Any) -> ModelFunctions:
    name = getattr(model, "name", None) or type(model).__name__
    if stream is not None and is_async(stream):
        raise ConfigurationError(
            f"`stream` of model `{name}` is a coroutine function; make it an async generator (yield chunks)"
        )
    if call is not None and not is_async(call):
        raise ConfigurationError(f"`call` of model `{name}` is not async; write `async def call(self, request)`")
    if getattr(model, "native_output", False) is not True:
        call, stream = call and _prompted(call), stream and _prompted(stream)
    address, port = getattr(model, "server_address", None), getattr(model, "server_port", None)
    return ModelFunctions(
        str(name),
        str(getattr(model, "provider", None) or "custom"),
        call,
        stream,
        server_address=address if isinstance(address, str) else None,
        server_port=port if type(port) is int else None,
        in_process=getattr(model, "in_process", False) is True,
    )


def _prompted(ask: Callable[[ChatRequest], _T]) -> Callable[[ChatRequest], _T]:
    """`ask`, with the form of the answer in words where a request has one."""

    def prompted(request: ChatRequest) -> _T:
        if request.options is not NO_OPTIONS and request.options.output is not None:
            request = in_words(request)
        return ask(request)

    return prompted
