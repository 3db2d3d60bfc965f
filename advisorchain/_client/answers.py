"""What a client gives back: streams, and answers that are values of a type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from advisorchain.chain import ChatStream
from advisorchain.errors import StreamError
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.output import OutputType, is_unfinished

__all__ = ["ClientStream", "TextOnly", "TypedResponse", "TypedStream", "answered"]

T = TypeVar("T")


class TypedResponse(ChatResponse, Generic[T]):
    """A response, and its text as a value of the type that was asked for.

    Attributes:
        output_type: the type.
    """

    __slots__ = ("_value", "output_type")
    output_type: OutputType[T]
    _value: tuple[T] | None

    @classmethod
    def of(cls, response: ChatResponse, output_type: OutputType[T]) -> TypedResponse[T]:
        """`response` as one of the type."""
        typed: TypedResponse[T] = cls.__new__(cls)
        for each in fields(ChatResponse):
            setattr(typed, each.name, getattr(response, each.name))
        typed.output_type = output_type
        typed._value = None
        return typed

    @property
    def output(self) -> T:
        """The value.

        Raises:
            OutputValidationError: there is none: the turn is paused, a tool loop ended it, or the answer asks for tools.
        """
        if self._value is None:
            self._value = (self.output_type.parse(self),)
        return self._value[0]

    def replace(self, **changes: Any) -> TypedResponse[T]:
        """A copy, as `ChatResponse.replace` makes it. Its value is that of its own message."""
        changed = TypedResponse.of(super().replace(**changes), self.output_type)
        if changed.message is self.message:
            changed._value = self._value
        return changed

    def with_context(self, **entries: Any) -> TypedResponse[T]:
        """A copy whose context has these entries beside the old ones."""
        return self.replace(context={**self.context, **entries})

    def __reduce__(self) -> tuple[Any, ...]:
        _, values = super().__reduce__()
        return _restored, (values, self.output_type)


def _restored(values: tuple[Any, ...], output_type: OutputType[T]) -> TypedResponse[T]:
    return TypedResponse.of(ChatResponse(*values), output_type)


def answered(response: ChatResponse, output_type: OutputType[T]) -> TypedResponse[T]:
    """What a call gives back.

    Raises:
        OutputValidationError: it is the last answer, and none of the type.
    """
    typed = TypedResponse.of(response, output_type)
    if not is_unfinished(response):
        _ = typed.output
    return typed


class TextOnly:
    """A stream that was asked for no value of a type: it says so to those who look for one."""

    __slots__ = ()

    if not TYPE_CHECKING:  # to a type checker there are none

        def partials(self) -> NoReturn:
            raise StreamError("this stream's answer is a text, not a value; ask for one: `client.stream(…, output_type=…)`")

        output = partial_output = property(partials)


class ClientStream(TextOnly):
    """One streamed answer. Enter it, iterate it once, and leave it whenever you like: everything beneath is closed."""

    __slots__ = ("_begin", "_entered", "_stream")

    def __init__(self, stream: ChatStream | Callable[[], Awaitable[ChatStream]]) -> None:
        self._stream = stream if isinstance(stream, ChatStream) else None
        self._begin = None if isinstance(stream, ChatStream) else stream
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise StreamError("this stream was entered already; ask the client for another one")
        self._entered = True
        if self._begin is not None:
            self._stream = await self._begin()
        await self._begun().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await self._stream.__aexit__(kind, error, traceback)

    def __repr__(self) -> str:
        about = repr(self._stream).removeprefix("<ChatStream, ") if self._stream is not None else "not entered>"
        return f"<{type(self).__name__}, {about}"

    def __aiter__(self) -> AsyncIterator[ChatChunk]:
        return aiter(self._begun())

    async def aclose(self) -> None:
        """Leave the stream: close everything beneath, innermost first. Closing twice is fine.

        Raises:
            StreamError: another task is waiting for a chunk of it just now; cancel that task instead.
        """
        if self._stream is not None:
            await self._stream.aclose()

    def _begun(self) -> ChatStream:
        if not self._entered or self._stream is None:
            raise StreamError("read a stream inside `async with client.stream(…) as stream:`")
        return self._stream

    @property
    def response(self) -> ChatResponse:
        """The whole response, as a call would have given it.

        Raises:
            StreamError: the stream has not been read to its end; `partial` has what came so far.
        """
        return self._begun().response

    @property
    def partial(self) -> ChatResponse | None:
        """What has come so far, marked as partial; the whole response at the end; None: nothing yet."""
        return None if self._stream is None else self._stream.partial


class TypedStream(ClientStream, Generic[T]):
    """A streamed answer of a type. Iterate it for chunks, or `partials()` for the value as it grows.

    Attributes:
        partial_output: what is there of the value by now, as plain data (see `OutputType.parse_partial`); None: nothing yet,
            or what was there no longer counts, since the model was asked again.
    """

    __slots__ = ("_answer", "_growing", "_output_type", "partial_output")

    def __init__(self, stream: ChatStream | Callable[[], Awaitable[ChatStream]], output_type: OutputType[T]) -> None:
        super().__init__(stream)
        self._output_type = output_type
        self._growing = output_type.partial()
        self.partial_output: Any | None = None
        self._answer: tuple[ChatResponse, TypedResponse[T]] | None = None

    def __aiter__(self) -> AsyncIterator[ChatChunk]:
        return _Watched(super().__aiter__(), self._watch)

    def _watch(self, chunk: ChatChunk) -> None:
        if chunk.boundary is not None:
            self.partial_output = None
        grown = self._growing.add(chunk)
        if grown is not None:
            self.partial_output = grown

    def partials(self) -> AsyncIterator[Any]:
        """The value as it grows, each time that there is more of it, in place of the chunks.

        Each takes the place of the one before. When the model is asked again, they begin anew.
        """
        return _Partials(self)

    @property
    def response(self) -> TypedResponse[T]:
        """The whole response, as a call would have given it; its `output` raises where a call does.

        Raises:
            StreamError: the stream has not been read to its end; `partial` has what came so far.
        """
        return self._typed(super().response)

    @property
    def partial(self) -> TypedResponse[T] | None:
        """What has come so far, marked as partial; the whole response at the end; None: nothing yet."""
        found = super().partial
        return None if found is None else self._typed(found)

    @property
    def output(self) -> T:
        """The value, at the end.

        Raises:
            OutputValidationError: the answer is none of the type, such as a refusal, or the turn is paused.
            StreamError: the stream has not been read to its end.
        """
        return self.response.output

    def _typed(self, found: ChatResponse) -> TypedResponse[T]:
        if self._answer is None or self._answer[0] is not found:
            self._answer = found, TypedResponse.of(found, self._output_type)
        return self._answer[1]


# Not generators: one that is left early would have to be closed by whoever reads it.


class _Watched:
    def __init__(self, chunks: AsyncIterator[ChatChunk], watch: Callable[[ChatChunk], None]) -> None:
        self._chunks = chunks
        self._watch = watch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatChunk:
        chunk = await self._chunks.__anext__()
        self._watch(chunk)
        return chunk


class _Partials:
    def __init__(self, stream: TypedStream[Any]) -> None:
        self._stream = stream
        self._chunks = aiter(stream)
        self._shown: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        async for _ in self._chunks:
            found = self._stream.partial_output
            if found is not None and found is not self._shown:
                self._shown = found
                return found
        raise StopAsyncIteration
