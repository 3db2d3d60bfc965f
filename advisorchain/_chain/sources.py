"""What lies at the bottom of a frame: the model, or an around advisor with the rest of the chain beneath it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from anyio import CancelScope, current_effective_deadline

from advisorchain._chain.progress import Progress
from advisorchain._chain.run import Run
from advisorchain._chain.steps import Step
from advisorchain.advisor import StreamItem
from advisorchain.aggregate import Fold, as_chunk, carrying, merged_context
from advisorchain.errors import AdvisorContractError, ModelResponseError, dropped, kind_of
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.model import ModelFunctions

__all__ = ["AroundSource", "Inner", "ModelSource", "Opened", "Opening", "Source", "no_request", "rebound"]


class Opened:
    """A stream that was opened, and how far it has come."""

    __slots__ = ("items", "outermost", "progress", "response")

    def __init__(self, *, outermost: bool = False) -> None:
        self.outermost = outermost
        self.items: AsyncGenerator[StreamItem, None] | None = None
        self.progress: Progress | None = None
        self.response: ChatResponse | None = None


class Opening:
    """What a frame reads from, and the streams beneath that must be closed with it."""

    __slots__ = ("inner", "items")

    def __init__(self, items: Any, inner: list[Opened] | None = None) -> None:
        self.items = items
        self.inner = inner if inner is not None else []

    async def aclose(self) -> None:
        """Close what is still open, inner first; the first error is raised after all were closed."""
        beneath = [opened.items for opened in reversed(self.inner)]
        await _close_all([*beneath, self.items, *beneath])  # twice: what is being read can be closed after its reader

    async def close_inner(self) -> None:
        """Close what an around advisor has left half-read, after it has ended."""
        await _close_all([opened.items for opened in reversed(self.inner)])


async def _close_all(streams: Sequence[Any]) -> None:
    failure: BaseException | None = None
    for stream in streams:
        close = getattr(stream, "aclose", None)
        if close is None or getattr(stream, "ag_running", False):
            continue
        try:
            await close()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


class _Unscoped:
    """Reads from an around advisor, and refuses one that leaves a time limit or scope open across its first `yield`.

    Such a one would cancel the reader, and whoever awaits between, in the advisor's place.
    """

    __slots__ = ("_items", "_pull", "_step")

    def __init__(self, items: AsyncGenerator[Any, None], step: Step) -> None:
        self._items = items
        self._step = step
        self._pull: Callable[[], Awaitable[Any]] = self._first

    @property
    def ag_running(self) -> bool:
        return bool(getattr(self._items, "ag_running", False))

    def __aiter__(self) -> _Unscoped:
        return self

    def __anext__(self) -> Awaitable[Any]:
        return self._pull()

    async def _first(self) -> Any:
        item: Any = None
        try:
            with CancelScope() as own:
                item = await self._items.__anext__()
                own.shield = True  # for a moment: only what is inside of this scope counts, not what the reader's limits do
                held = current_effective_deadline() != math.inf
                own.shield = False
                if held:
                    await self._items.aclose()  # here, where the limit is the innermost scope and can be left in order
        except RuntimeError as error:  # anyio's and trio's: `own` is left while a scope inside of it is open
            if item is None:
                raise
            raise self._scoped() from error
        if held:
            raise self._scoped()
        self._pull = self._items.__anext__
        return item

    def _scoped(self) -> AdvisorContractError:
        return AdvisorContractError(
            f"`around` of advisor `{self._step.name}` yields inside a time limit, cancel scope or task group; "
            "put it around one pull only"
        )

    async def aclose(self) -> None:
        self._pull = self._items.__anext__  # its own method would keep it until a garbage collection
        await self._items.aclose()


class Source(Protocol):
    """What a frame asks for an answer."""

    @property
    def name(self) -> str:
        """What it is called in errors."""
        ...

    @property
    def call(self) -> Callable[[ChatRequest], Awaitable[Any]]:
        """Ask for a call; `response` checks what comes."""
        ...

    def response(self, value: object) -> ChatResponse:
        """What `call` gave, checked."""
        ...

    def open(self, request: ChatRequest, run: Run) -> Opening:
        """Ask for a stream."""
        ...

    def item(self, value: object) -> StreamItem:
        """What the stream gave, checked."""
        ...

    def settle(self, fold: Fold, response: ChatResponse | None, opening: Opening) -> ChatResponse:
        """The response of a stream that has ended."""
        ...


async def _one_chunk(source: Source, request: ChatRequest) -> AsyncGenerator[StreamItem, None]:
    """The stream of a source that can only be called."""
    response = source.response(await source.call(request))
    yield as_chunk(response)
    yield response


class ModelSource:
    """The model."""

    def __init__(self, model: ModelFunctions) -> None:
        self.model: Final = model
        self.name = f"model `{model.name}`"
        self.call = model.call or self._folded
        self.response = model.response

    def entry(self) -> Callable[[ChatRequest], Awaitable[ChatResponse]]:
        """A call with nothing around it."""
        call, checked = self.call, self.response

        async def answer(request: ChatRequest) -> ChatResponse:
            if request.__class__ is not ChatRequest and not isinstance(request, ChatRequest):
                raise no_request(request)
            context = request.context
            response = await call(request)
            if response.__class__ is not ChatResponse:
                response = checked(response)
            return response if response.context is context else merged_context(context, response)

        return answer

    async def _folded(self, request: ChatRequest) -> ChatResponse:
        fold = Fold()
        opening = Opening(self._stream(request))
        try:
            async for item in opening.items:
                fold.add(self.model.chunk(item))
        finally:
            await opening.aclose()
        return self.settle(fold, None, opening)

    def _stream(self, request: ChatRequest) -> AsyncIterator[Any]:
        assert self.model.stream is not None  # as_model: there is a call or a stream
        items = self.model.stream(request)
        if hasattr(items, "__aiter__"):
            return items.__aiter__()
        raise ModelResponseError(f"`stream` of model `{self.model.name}` returned {dropped(items)}, not an async generator")

    def open(self, request: ChatRequest, run: Run) -> Opening:
        return Opening(self._stream(request) if self.model.stream is not None else _one_chunk(self, request))

    def item(self, value: object) -> StreamItem:
        # only _one_chunk gives a response: a model's own stream yields chunks, and the chain folds them
        if isinstance(value, ChatResponse) and self.model.stream is None:
            return value
        return self.model.chunk(value)

    def settle(self, fold: Fold, response: ChatResponse | None, opening: Opening) -> ChatResponse:
        if response is not None:
            return response
        if fold.empty:
            raise ModelResponseError(f"model `{self.model.name}` yielded nothing; an answer needs at least one chunk")
        return fold.response()


class Inner(Protocol):
    """The rest of the chain beneath an around advisor: a frame."""

    @property
    def entry(self) -> Callable[[ChatRequest], Awaitable[ChatResponse]]:
        """Ask for a call, unobserved."""
        ...

    async def call(self, request: ChatRequest) -> ChatResponse:
        """Ask for a call, as part of a run."""
        ...

    def stream(self, request: ChatRequest, opened: Opened) -> AsyncGenerator[StreamItem, None]:
        """Ask for a stream."""
        ...


def no_request(value: object) -> AdvisorContractError:
    """What to raise when an advisor hands on something else."""
    return AdvisorContractError(f"`next` was given {kind_of(value)}; pass it a ChatRequest")


def rebound(request: ChatRequest, run: Run | None) -> ChatRequest:
    """A request that an advisor did not derive from the one it was given, as part of this run."""
    copy = request.replace()
    copy._run = run
    return copy


def _bound(request: object, run: Run) -> ChatRequest:
    """The request that an around advisor hands on, as part of this run."""
    if not isinstance(request, ChatRequest):
        raise no_request(request)
    return request if request._run is run else rebound(request, run)


class _Next:
    """The rest of the chain, as one entry of an around advisor sees it."""

    __slots__ = ("_inner", "_run", "opened", "streaming")

    def __init__(self, inner: Inner, run: Run, streaming: bool) -> None:
        self._inner = inner
        self._run = run
        self.streaming = streaming
        self.opened: list[Opened] = []

    def __call__(self, request: ChatRequest) -> AsyncGenerator[StreamItem, None]:
        request = _bound(request, self._run)
        opened = Opened()
        opened.items = self._inner.stream(request, opened) if self.streaming else self._called(request, opened)
        self.opened.append(opened)
        return opened.items

    async def _called(self, request: ChatRequest, opened: Opened) -> AsyncGenerator[StreamItem, None]:
        response = opened.response = await self._inner.call(request)
        yield as_chunk(response)
        yield response


class AroundSource:
    """An around advisor, and the frame beneath it."""

    def __init__(self, step: Step, inner: Inner) -> None:
        self.step: Final = step
        self.inner: Final = inner

    @property
    def name(self) -> str:
        return f"`{self.step.hooks[0]}` of advisor `{self.step.name}`"

    def call(self, request: ChatRequest) -> Awaitable[Any]:
        advise_call = self.step.advise_call
        if advise_call is None:
            return self._drained(request)
        run, inner = request._run, self.inner
        if run is None:
            return advise_call(request, inner.entry)  # type: ignore[no-any-return]
        return advise_call(request, lambda inwards: inner.call(_bound(inwards, run)))  # type: ignore[no-any-return]

    async def _drained(self, request: ChatRequest) -> ChatResponse:
        """A call of an advisor that is written as a stream: what it yields is folded and its response kept."""
        run = request._run or Run()
        opening = self._streamed(request, run, streaming=False)
        fold, response = Fold(), None
        try:
            async for value in opening.items:
                item = self.item(value)
                if response is not None:
                    raise self._wrong("went on after its response; the response is the last thing to yield")
                if isinstance(item, ChatResponse):
                    response = item
                else:
                    fold.add(item)
            await opening.close_inner()
        except GeneratorExit:
            raise  # thrown away unfinished: a coroutine may not await any more
        except BaseException:
            with run.shielded():
                await opening.aclose()
            raise
        return self.settle(fold, response, opening)

    def response(self, value: object) -> ChatResponse:
        if isinstance(value, ChatResponse):
            return value
        raise AdvisorContractError(
            f"`advise_call` of advisor `{self.step.name}` returned {dropped(value)}; return a ChatResponse"
        )

    def open(self, request: ChatRequest, run: Run) -> Opening:
        if self.step.around is None and self.step.advise_stream is None:
            return Opening(_one_chunk(self, request))
        opening = self._streamed(request, run, streaming=True)
        return Opening(_Unscoped(opening.items, self.step), opening.inner)

    def _streamed(self, request: ChatRequest, run: Run, *, streaming: bool) -> Opening:
        advise = self.step.around or self.step.advise_stream
        assert advise is not None
        rest = _Next(self.inner, run, streaming)
        items = advise(request, rest)
        if not hasattr(items, "__anext__"):
            raise self._wrong(f"returned {dropped(items)}; make it an async generator (yield chunks, then the response)")
        return Opening(items, rest.opened)

    def item(self, value: object) -> StreamItem:
        if isinstance(value, ChatChunk | ChatResponse):
            return value
        raise self._wrong(f"yielded {kind_of(value)}; yield ChatChunks, then one ChatResponse")

    def settle(self, fold: Fold, response: ChatResponse | None, opening: Opening) -> ChatResponse:
        """The text that left is the text of the response, unless the advisor made a message of its own."""
        if response is None:
            raise self._wrong("ended without a response; the last thing to yield is a ChatResponse")
        if any(inner.response is not None and inner.response.message is response.message for inner in opening.inner):
            return carrying(response, fold.texts())
        return response

    def _wrong(self, what: str) -> AdvisorContractError:
        hook = "around" if self.step.around is not None else "advise_stream"
        return AdvisorContractError(f"`{hook}` of advisor `{self.step.name}` {what}")
