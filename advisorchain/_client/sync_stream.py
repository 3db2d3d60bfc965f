"""A stream that is read without `await`: one task of the worker owns the async stream, and pulls when the reader does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from anyio import CancelScope, Event

from advisorchain._client.answers import ClientStream, TextOnly, TypedResponse, TypedStream
from advisorchain._client.worker import Worker
from advisorchain.errors import StreamError
from advisorchain.exchange import ChatChunk, ChatResponse

__all__ = ["SyncStream", "SyncTypedStream"]

T = TypeVar("T")


class _Pump:
    """Reads an async stream for another thread, in one task from its beginning to its end.

    One task, since advisors may hold a time limit open while a chunk is fetched, and a task must leave what it has entered.
    It fetches a chunk when it is asked for one: the model runs no further ahead than it does for an async reader, and what
    a memory keeps of a stream that was left is what its reader has seen.
    """

    def __init__(self, stream: ClientStream) -> None:
        self.stream = stream
        self.started: Future[None] = Future()
        self._scope: CancelScope | None = None
        self._reply: Future[ChatChunk | None] | None = None
        self._wake: Event | None = None  # there while the pump is idle
        self._left = self._over = False

    async def run(self) -> None:
        try:
            with CancelScope() as self._scope:
                if self._left:
                    self._scope.cancel()
                async with self.stream as stream:
                    self.started.set_result(None)
                    await self._serve(aiter(stream))
        except Exception as error:
            if not self.started.done():
                self.started.set_exception(error)
            raise
        finally:
            self._over = True
            self._end(self.started)
            if self._reply is not None:
                self._end(self._reply)

    def _end(self, waiting: Future[Any]) -> None:
        """Tell one who still waits; a cancelled future says that the worker was stopped."""
        if not self._left:
            waiting.cancel()
        elif not waiting.done():
            waiting.set_exception(StreamError("this stream was closed by another thread while this one waited for it"))

    async def _serve(self, chunks: AsyncIterator[ChatChunk]) -> None:
        while not self._left:
            if self._reply is None:
                self._wake = Event()
                await self._wake.wait()
                self._wake = None
                continue
            try:
                chunk = await anext(chunks, None)
            except Exception as error:
                reply, self._reply = self._reply, None
                reply.set_exception(error)
            else:
                reply, self._reply = self._reply, None
                reply.set_result(chunk)

    def ask(self, reply: Future[ChatChunk | None]) -> None:
        """Fetch a chunk for `reply`; None is the end. Called in the loop."""
        if self._left:
            reply.set_result(None)
        elif self._over:
            reply.cancel()
        elif self._reply is not None:
            reply.set_exception(StreamError("another thread is waiting for a chunk of this stream"))
        else:
            self._reply = reply
            if self._wake is not None:
                self._wake.set()

    def leave(self) -> None:
        """The reader left; where a chunk is being fetched that is cancelled. Called in the loop."""
        if self._left:
            return
        self._left = True
        if self._wake is not None:
            self._wake.set()
        elif self._scope is not None:
            self._scope.cancel()


class SyncStream(TextOnly):
    """One streamed answer. Enter it with `with`, iterate it once, and leave it whenever you like: the model is closed."""

    def __init__(self, owner: object, worker: Worker, stream: ClientStream) -> None:
        self._owner = owner  # which must not be forgotten before its stream
        self._worker = worker
        self._stream = stream
        self._pump = _Pump(stream)
        self._running: Future[Any] | None = None
        self._entering = Lock()  # or a thread that closes it just then would believe that there is nothing to close

    def __enter__(self) -> Self:
        with self._entering:
            if self._running is not None:
                raise StreamError("this stream was entered already; ask the client for another one")
            self._running = self._worker.submit(self._pump.run)
        try:
            self._worker.result(self._pump.started)
        except BaseException:
            if not self._pump.started.done():  # Ctrl-C
                self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as late:
            if error is not None and late.__cause__ is None:
                late.__cause__ = error  # what the reader raised is not lost
            raise

    def __repr__(self) -> str:
        return repr(self._stream).replace("<", "<Sync", 1)

    def _entered(self) -> Future[Any]:
        if self._running is None:
            raise StreamError("read a stream inside `with client.stream(…) as stream:`")
        return self._running

    def __iter__(self) -> Iterator[ChatChunk]:
        self._entered()
        return self

    def __next__(self) -> ChatChunk:
        running = self._entered()
        if running.done() and not running.cancelled():
            raise StopIteration
        reply: Future[ChatChunk | None] = Future()
        self._worker.submit(lambda: self._pump.ask(reply))
        chunk = self._worker.result(reply)
        if chunk is None:
            raise StopIteration
        return chunk

    def close(self) -> None:
        """Leave the stream: close everything beneath, innermost first, and wait for it. Closing twice is fine."""
        with self._entering:
            running = self._running
        if running is None or running.done():
            return
        self._worker.submit(self._pump.leave)
        self._worker.result(running)

    @property
    def response(self) -> ChatResponse:
        """The whole response, as a call would have given it.

        Raises:
            StreamError: the stream has not been read to its end; `partial` has what came so far.
        """
        self._entered()
        return self._stream.response

    @property
    def partial(self) -> ChatResponse | None:
        """What has come so far, marked as partial; the whole response at the end; None: nothing yet."""
        return self._stream.partial


class SyncTypedStream(SyncStream, Generic[T]):
    """A streamed answer of a type. Iterate it for chunks, or `partials()` for the value as it grows."""

    _stream: TypedStream[T]

    if TYPE_CHECKING:

        @property
        def response(self) -> TypedResponse[T]:
            """As that of a SyncStream."""

        @property
        def partial(self) -> TypedResponse[T] | None:
            """As that of a SyncStream."""

    @property
    def partial_output(self) -> Any | None:
        """What is there of the value by now, as plain data; see `TypedStream.partial_output`."""
        return self._stream.partial_output

    def partials(self) -> Iterator[Any]:
        """The value as it grows, in place of the chunks; see `TypedStream.partials`."""
        shown = None
        for _ in self:
            found = self.partial_output
            if found is not None and found is not shown:
                shown = found
                yield found

    @property
    def output(self) -> T:
        """The value, at the end; see `TypedStream.output`."""
        self._entered()
        return self._stream.output
