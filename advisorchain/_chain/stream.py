"""What a reader holds of a streamed answer, and what may lie between the two: a time limit, a log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from time import perf_counter
from types import TracebackType

from anyio import current_time, get_cancelled_exc_class, move_on_after

from advisorchain._chain.run import Run, status_of
from advisorchain._chain.sources import Opened
from advisorchain._telemetry.log import ChainLog
from advisorchain.errors import CallTimeoutError, StreamError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

__all__ = ["ChatStream", "logged", "logged_call", "timed", "timed_call", "timed_out"]


class ChatStream:
    """One streamed answer. Enter it, iterate it once, and leave it whenever you like: everything beneath is closed."""

    __slots__ = ("_entered", "_items", "_opened", "_run")

    def __init__(self, items: AsyncGenerator[ChatChunk, None], opened: Opened, run: Run) -> None:
        self._items = items
        self._opened = opened
        self._run = run
        self._entered = False

    async def __aenter__(self) -> ChatStream:
        if self._entered:
            raise StreamError("this stream was entered already; ask the chain for another one")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and isinstance(error, get_cancelled_exc_class()):
            self._run.leaving = "cancelled"  # the task was, while the reader worked on a chunk
        try:
            await self.aclose()
        except Exception as late:
            if error is not None and late.__cause__ is None:
                late.__cause__ = error  # what the reader raised is not lost
            raise

    def __repr__(self) -> str:
        state = "read to its end" if self._opened.response is not None else "entered" if self._entered else "not entered"
        return f"<ChatStream, {state}>"

    def __aiter__(self) -> AsyncGenerator[ChatChunk, None]:
        if not self._entered:
            raise StreamError("iterate a stream inside `async with chain.stream(…) as stream:`")
        return self._items

    async def aclose(self) -> None:
        """Leave the stream: close everything beneath, innermost first. Closing twice is fine.

        Raises:
            StreamError: another task is waiting for a chunk of it just now; cancel that task instead.
        """
        if getattr(self._items, "ag_running", False):
            raise StreamError("another task is waiting for a chunk of this stream; cancel that task instead of closing here")
        await self._items.aclose()

    @property
    def response(self) -> ChatResponse:
        """The whole response, as a call would have given it.

        Raises:
            StreamError: the stream has not been read to its end; `partial` has what came so far.
        """
        if self._opened.response is None:
            raise StreamError("the stream has not been read to its end; `partial` has what came so far")
        return self._opened.response

    @property
    def partial(self) -> ChatResponse | None:
        """What has come so far, marked as partial; the whole response at the end; None: nothing yet."""
        if self._opened.response is not None:
            return self._opened.response
        return self._opened.progress.partial(0) if self._opened.progress is not None else None


def timed_out(timeout: float | None) -> CallTimeoutError:
    return CallTimeoutError(f"`timeout` of {timeout} seconds ran out")


async def timed_call(
    ask: Callable[[ChatRequest], Awaitable[ChatResponse]], timeout: float, request: ChatRequest
) -> ChatResponse:
    """A call that is cancelled when its time has run out. Log and span lie around it: to them that is an error."""
    with move_on_after(timeout):
        return await ask(request)
    raise timed_out(timeout)


async def timed(items: AsyncGenerator[ChatChunk, None], timeout: float) -> AsyncGenerator[ChatChunk, None]:
    """As `timed_call`, for a stream: each pull gets what is left. No scope is open while the reader has a chunk in hand."""
    left = timeout
    try:
        while True:
            started = current_time()
            with move_on_after(left) as scope:
                try:
                    chunk = await items.__anext__()
                except StopAsyncIteration:
                    return
            if scope.cancelled_caught:
                raise timed_out(timeout)
            left -= current_time() - started
            yield chunk
    finally:
        await items.aclose()


async def logged_call(
    ask: Callable[[ChatRequest], Awaitable[ChatResponse]], log: ChainLog, request: ChatRequest
) -> ChatResponse:
    """A call that tells the log how it ended; within the chain's span, so that the event can carry its ids."""
    started, outcome, usage = perf_counter(), "ok", None
    try:
        response = await ask(request)
        usage = response.usage
        return response
    except BaseException as error:
        outcome = status_of(error, "cancelled")
        raise
    finally:
        log.finished(stream=False, outcome=outcome, seconds=perf_counter() - started, usage=usage)


async def logged(
    items: AsyncGenerator[ChatChunk, None], opened: Opened, run: Run, log: ChainLog
) -> AsyncGenerator[ChatChunk, None]:
    """As `logged_call`, for a stream."""
    started, outcome = perf_counter(), "ok"
    try:
        async for chunk in items:
            yield chunk
    except BaseException as error:
        outcome = status_of(error, run.leaving)
        raise
    finally:
        try:
            await items.aclose()
        finally:
            usage = opened.response.usage if opened.response is not None else None
            log.finished(stream=True, outcome=outcome, seconds=perf_counter() - started, usage=usage)
