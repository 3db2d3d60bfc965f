"""What every chat model must do, as a suite that needs no test framework.

    async def test_my_model():
        await check_model(lambda: MyModel())

Run it on asyncio and on trio. The first law that is broken raises AssertionError with a sentence that says how.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anyio import CancelScope, create_task_group
from anyio.lowlevel import checkpoint

from advisorchain.aggregate import as_chunk, fold_chunks
from advisorchain.errors import AdvisorChainError
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import ToolMessage, UserMessage
from advisorchain.model import as_model
from advisorchain.testing._law_checks import check_law

__all__ = ["check_model"]

_AT_ONCE: Final = 3


@dataclass(slots=True)
class _Bench:
    """What the laws are tried with."""

    make: Callable[[], Any]
    request: ChatRequest
    bad_request: ChatRequest
    deterministic: bool

    async def call(self, model: Any, request: ChatRequest | None = None) -> ChatResponse:
        functions = as_model(model)
        if functions.call is None:
            return fold_chunks(await self.chunks(model, request))
        return functions.response(await functions.call(request or self.request))

    async def chunks(self, model: Any, request: ChatRequest | None = None) -> list[ChatChunk]:
        functions = as_model(model)
        if functions.stream is None:
            return [as_chunk(await self.call(model, request))]
        async with aclosing(functions.stream(request or self.request)) as stream:  # type: ignore[type-var]
            return [functions.chunk(value) async for value in stream]

    def said(self, response: ChatResponse) -> object:
        """What of a response must be the same each time."""
        message = response.message
        calls = [(call.name, call.arguments) for call in message.tool_calls]
        if self.deterministic:
            return message.text, message.reasoning, calls, response.finish_reason
        return bool(message.text), bool(message.reasoning), bool(calls)


async def check_model(
    make_model: Callable[[], Any],
    *,
    prompt: str = "Say hello.",
    bad_request: ChatRequest | None = None,
    deterministic: bool = True,
) -> None:
    """Check a kind of model against all laws, each with a fresh one.

    Args:
        make_model: gives a new model (or the same, where making one takes long) that answers again and again: whatever a
            chain takes for a model, with `call`, `stream` or both.
        prompt: what is asked.
        bad_request: what it must refuse; by default a tool's result that nobody asked for.
        deterministic: False for a model that answers one prompt in different words.

    Raises:
        AssertionError: a law is broken; the text names the law and says what was found.
    """
    orphan = ChatRequest((UserMessage(prompt), ToolMessage("21", tool_call_id="law", name="law")))
    bench = _Bench(make_model, ChatRequest((UserMessage(prompt),)), bad_request or orphan, deterministic)
    for name, law in _LAWS.items():
        await check_law(name, partial(law, bench))


async def _it_is_named(bench: _Bench) -> None:
    model = bench.make()
    for field in ("name", "provider"):
        value = getattr(model, field, "function" if inspect.isroutine(model) else None)
        assert isinstance(value, str), f"`{field}` is {value!r}, not a text"
        assert value.strip(), f"`{field}` is blank"


async def _chunks_only(bench: _Bench) -> None:
    assert await bench.chunks(bench.make()), "the stream gave nothing; an answer needs at least one chunk"


async def _stream_equals_call(bench: _Bench) -> None:
    called = await bench.call(bench.make())
    streamed = fold_chunks(await bench.chunks(bench.make()))
    assert bench.said(called) == bench.said(streamed), "the stream, folded, is not what a call answers"


async def _closing_stops_it(bench: _Bench) -> None:
    model = bench.make()
    opened = as_model(model).stream
    if opened is None:
        return
    stream: Any = opened(bench.request)
    await anext(stream)
    await stream.aclose()
    assert await anext(stream, None) is None, "a stream that was closed goes on"
    assert await bench.chunks(model), "after a stream was closed early the model answers nothing"


async def _cancelling_stops_it(bench: _Bench) -> None:
    model = bench.make()
    for asking in (bench.call, bench.chunks):
        with CancelScope() as scope:
            scope.cancel()
            await asking(model)
            await checkpoint()
        assert scope.cancelled_caught, "a cancellation was swallowed"
    assert await bench.chunks(model), "after a cancellation the model answers nothing"


async def _concurrent_requests_are_kept_apart(bench: _Bench) -> None:
    model = bench.make()
    alone = bench.said(await bench.call(model))
    found: list[object] = []

    async def call() -> None:
        found.append(bench.said(await bench.call(model)))

    async def stream() -> None:
        found.append(bench.said(fold_chunks(await bench.chunks(model))))

    async with create_task_group() as group:
        for _ in range(_AT_ONCE):
            group.start_soon(call)
            group.start_soon(stream)
    assert found == [alone] * len(found), "the answer beside other requests is not the answer alone"


async def _bad_input_is_refused(bench: _Bench) -> None:
    model = bench.make()
    for what, asking in (("call", bench.call), ("stream", bench.chunks)):
        try:
            await asking(model, bench.bad_request)
        except AdvisorChainError:
            continue
        except Exception as error:
            raise AssertionError(f"in a {what}, a bad request was refused with {type(error).__name__}, not ours") from error
        raise AssertionError(f"in a {what}, a bad request was answered")
    assert await bench.chunks(model), "after a bad request the model answers nothing"


_LAWS: Final[dict[str, Callable[[_Bench], Awaitable[None]]]] = {
    "it is named": _it_is_named,
    "chunks only, at least one": _chunks_only,
    "the stream, folded, equals the call": _stream_equals_call,
    "closing early stops it": _closing_stops_it,
    "a cancellation stops it": _cancelling_stops_it,
    "concurrent requests are kept apart": _concurrent_requests_are_kept_apart,
    "bad input is refused": _bad_input_is_refused,
}
