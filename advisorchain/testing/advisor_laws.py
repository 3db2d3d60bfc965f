"""What every advisor must do, as a suite that needs no test framework.

    async def test_my_advisor():
        await check_advisor(lambda: MyAdvisor())

Run it on asyncio and on trio. The first law that is broken raises AssertionError with a sentence that says how.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from anyio import create_task_group
from anyio.lowlevel import checkpoint

from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, UserMessage
from advisorchain.testing._law_checks import check_law
from advisorchain.testing.models import Pause, Reply, ScriptedModel
from advisorchain.testing.recorders import RecordingAdvisor, Seen

__all__ = ["check_advisor"]

Mode: TypeAlias = Literal["call", "stream"]
_MODES: Final[tuple[Mode, ...]] = ("call", "stream")
_CUTS: Final = (1, 2, 3, 7, 1000)  # characters a chunk
_AT_ONCE: Final = 4  # concurrent calls
_FIRST: Final = "One "


class _LawError(Exception):
    """Raised by the model of a law."""


@dataclass(slots=True)
class _Heard:
    """One answer: the text of each message that was streamed, and the response."""

    texts: list[str]
    response: ChatResponse


def _chain_of(model: Any, advisors: list[Any]) -> Any:
    return AdvisorChain(model, advisors, telemetry=None)


@dataclass(slots=True)
class _Bench:
    """What the laws are tried with."""

    make: Callable[[], Any]
    prompt: str
    script: Sequence[Reply]
    passes_errors: bool
    build: Callable[[Any, list[Any]], Any] = _chain_of

    def model(self, *replies: Reply) -> ScriptedModel:
        return ScriptedModel(*(replies or self.script), repeat=True)

    def chain(self, model: Any, outer: Sequence[Any] = (), inner: Sequence[Any] = ()) -> Any:
        # an order at the very edge, and equal orders keep their sequence: nothing gets between
        return self.build(model, [*outer, self.make(), *inner])

    async def ask(self, chain: Any, mode: Mode, prompt: str | None = None, **more: Any) -> _Heard:
        request = {"conversation_id": "law", **more}
        if mode == "call":
            response = await chain.call(prompt or self.prompt, **request)
            return _Heard([response.text], response)
        texts = [""]
        async with chain.stream(prompt or self.prompt, **request) as stream:
            async for chunk in stream:
                _hear(texts, chunk)
            return _Heard(texts, stream.response)


def _hear(texts: list[str], chunk: ChatChunk) -> None:
    if chunk.boundary is not None:
        texts.append("")
        if chunk.boundary == "attempt":
            del texts[max(0, len(texts) - 1 - chunk.withdraws) : -1]
    texts[-1] += chunk.text


async def check_advisor(
    make_advisor: Callable[[], Any],
    *,
    prompt: str = "Count to four.",
    script: Sequence[Reply] = ("One, two, three, four.",),
    passes_errors: bool = True,
) -> None:
    """Check a kind of advisor against all laws, each with a fresh one.

    Args:
        make_advisor: gives a new advisor.
        prompt: what is asked.
        script: what the model answers in one turn, as for ScriptedModel; more than one reply for an advisor that loops.
        passes_errors: False for an advisor that is there to take the model's errors away.

    Raises:
        AssertionError: a law is broken; the text names the law and says what was found.
    """
    bench = _Bench(make_advisor, prompt, script, passes_errors)
    for name, law in _LAWS.items():
        await check_law(name, partial(law, bench))


class _Watch(AroundAdvisor):
    """Outermost: sees the response as an item of the stream."""

    name = "law.watch"
    order = HIGHEST_PRECEDENCE

    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            self.kinds.append(type(item).__name__)
            yield item


async def _one_response_last(bench: _Bench) -> None:
    for mode in _MODES:
        watch = _Watch()
        await bench.ask(bench.chain(bench.model(), [watch]), mode)
        *chunks, last = watch.kinds or ["nothing"]
        assert last == "ChatResponse", f"a {mode} ended with {last}, not with a ChatResponse"
        assert "ChatResponse" not in chunks, f"a {mode} gave more than one response"


async def _stream_equals_call(bench: _Bench) -> None:
    called = await bench.ask(bench.chain(bench.model()), "call")
    streamed = await bench.ask(bench.chain(bench.model()), "stream")
    for field in ("message", "finish_reason", "earlier", "context", "usage", "model", "id", "metadata"):
        in_call, in_stream = getattr(called.response, field), getattr(streamed.response, field)
        assert in_call == in_stream, f"`{field}` of the response is {in_call!r} in a call and {in_stream!r} in a stream"


async def _early_close_closes_the_model(bench: _Bench) -> None:
    for chunks in (0, 1, 2):
        model = bench.model()
        async with bench.chain(model).stream(bench.prompt, conversation_id="law") as stream:
            iterator = aiter(stream)
            for _ in range(chunks):
                await anext(iterator, None)
        assert model.open_streams == 0, f"after leaving the stream at chunk {chunks} the model still works"


async def _errors_keep_their_type(bench: _Bench) -> None:
    if not bench.passes_errors:
        return
    for mode in _MODES:
        for before in ((), (_FIRST,)):
            error = _LawError("the model failed")
            model = bench.model([*before, error])
            raised = await _raised_by(bench.ask(bench.chain(model), mode))
            assert raised is error or not model.requests, (
                f"in a {mode} the model's error came out as {type(raised).__name__}"
            )
            assert model.open_streams == 0, f"in a {mode} the model's error left it open"


async def _raised_by(asking: Awaitable[object]) -> BaseException | None:
    try:
        await asking
    except Exception as error:
        return error
    return None


def _echo(request: ChatRequest) -> list[Any]:
    question = next(message.text for message in reversed(request.messages) if isinstance(message, UserMessage))
    return [_FIRST, "and ", ChatChunk(question, finish_reason="stop")]


class _YieldsTheTurn(BaseAdvisor):
    """Innermost: lets others go on before and after the model."""

    name = "law.turns"
    order = LOWEST_PRECEDENCE

    async def before(self, request: ChatRequest) -> ChatRequest:
        await checkpoint()
        return request

    async def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        await checkpoint()
        return response


class _YieldsAtEachChunk(AroundAdvisor):
    """Innermost: lets the other calls go on before the model and behind each chunk, so that they meet if they can."""

    name = "law.turns"
    order = LOWEST_PRECEDENCE

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        await checkpoint()
        async with aclosing(next(request)) as items:
            async for item in items:
                await checkpoint()
                yield item


def _mark(number: int) -> str:
    return f"<{number}>"


async def _concurrent_calls_never_meet(bench: _Bench) -> None:
    for mode in _MODES:
        together = bench.chain(bench.model(_echo), inner=[_YieldsTheTurn() if mode == "call" else _YieldsAtEachChunk()])
        found: dict[int, object] = {}
        told: dict[int, str] = {}

        async def ask(
            number: int, chain: Any, found: dict[int, object], mode: Mode = mode, told: dict[int, str] = told
        ) -> None:
            try:
                prompt, conversation_id = f"{bench.prompt} {_mark(number)}", f"law {number}"
                heard = await bench.ask(chain, mode, prompt, conversation_id=conversation_id, context={"law.number": number})
                found[number] = (heard.texts, heard.response.text, heard.response.context.get("law.number"))
                told[number] = repr((heard.texts, heard.response, dict(heard.response.context)))
            except Exception as error:
                found[number] = type(error).__name__

        async with create_task_group() as group:
            for number in range(_AT_ONCE):
                group.start_soon(ask, number, together, found)
        for number in range(_AT_ONCE):
            others = [other for other in range(_AT_ONCE) if other != number and _mark(other) in told.get(number, "")]
            assert not others, f"beside others, the response of {mode} {number} tells what {mode} {others[0]} asked"
            alone: dict[int, object] = {}
            await ask(
                number,
                bench.chain(bench.model(_echo), inner=[_YieldsTheTurn() if mode == "call" else _YieldsAtEachChunk()]),
                alone,
            )
            assert found[number] == alone[number], (
                f"{mode} {number} gave {found[number]!r} beside others, but {alone[number]!r} alone"
            )


class _Adds(BaseAdvisor):
    """Innermost: adds an entry to the context on the way in, and one on the way out."""

    name = "law.adds"
    order = LOWEST_PRECEDENCE

    def before(self, request: ChatRequest) -> ChatRequest:
        return request.with_context(**{"law.inwards": 1})

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.with_context(**{"law.outwards": 1})


async def _context_is_kept(bench: _Bench) -> None:
    for mode in _MODES:
        model = bench.model()
        heard = await bench.ask(bench.chain(model, inner=[_Adds()]), mode, context={"law.asked": 1})
        wanted = ("law.asked", "law.inwards", "law.outwards") if model.requests else ("law.asked",)
        lost = [key for key in wanted if key not in heard.response.context]
        assert not lost, f"the response of a {mode} has lost {', '.join(f'`{key}`' for key in lost)} of the context"


async def _done_exactly_once(bench: _Bench) -> None:
    for mode in _MODES:
        for failing in (False, True):
            log: list[Seen] = []
            model = bench.model([_FIRST, _LawError("the model failed")]) if failing else bench.model()
            await _raised_by(bench.ask(_recorded(bench, model, log), mode))
            _check_done(log, f"a {mode} that failed" if failing else f"a {mode}")
    log = []
    async with _recorded(bench, bench.model(), log).stream(bench.prompt, conversation_id="law") as stream:
        await anext(aiter(stream), None)
    _check_done(log, "a stream that was left early", "closed")


def _recorded(bench: _Bench, model: ScriptedModel, log: list[Seen]) -> Any:
    outer = RecordingAdvisor("law.outer", HIGHEST_PRECEDENCE, log)
    inner = RecordingAdvisor("law.inner", LOWEST_PRECEDENCE, log)
    return bench.chain(model, [outer], [inner, _YieldsTheTurn()])


def _check_done(log: Sequence[Seen], how: str, status: str | None = None) -> None:
    for name in ("law.outer", "law.inner"):
        begun = sum(seen.hook == "before" for seen in log if seen.advisor == name)
        ended = sum(seen.hook == "done" for seen in log if seen.advisor == name)
        where = "outside" if name == "law.outer" else "inside"
        assert begun == ended, f"in {how}, an advisor {where} of it was entered {begun} times and done {ended} times"
    last = log[-1]
    assert (last.advisor, last.hook) == ("law.outer", "done"), f"in {how}, `done` outside of it was not the last of all"
    if status is not None and last.outcome is not None:
        found = last.outcome.status
        assert found == status, f"in {how}, the outcome outside of it is {found!r}, not {status!r}"


async def _cancellation_goes_through(bench: _Bench) -> None:
    for mode in _MODES:
        pause, log = Pause(), list[Seen]()
        model = bench.model([_FIRST, pause, "two."])
        chain = _recorded(bench, model, log)
        went_on = False
        async with create_task_group() as group:

            async def ask(chain: Any = chain, pause: Pause = pause, mode: Mode = mode) -> None:
                nonlocal went_on
                await bench.ask(chain, mode)
                went_on = True
                pause.reached.set()  # the model was never asked: there is nothing to cancel

            group.start_soon(ask)
            await pause.reached.wait()
            group.cancel_scope.cancel()
        if not model.requests:
            continue
        assert not went_on, f"a cancelled {mode} went on as if nothing had happened"
        assert model.open_streams == 0, f"a cancelled {mode} left the model at work"
        _check_done(log, f"a cancelled {mode}", "cancelled")


async def _texts_agree(bench: _Bench) -> None:
    first: list[str] | None = None
    for size in _CUTS:
        heard = await bench.ask(bench.chain(bench.model(*(_cut(reply, size) for reply in bench.script))), "stream")
        said = [message.text for message in heard.response.turn if isinstance(message, AssistantMessage)]
        shown = heard.texts[-len(said) :]
        assert shown == said[-len(shown) :], f"{shown!r} was streamed, but the response says {said!r}"
        first = heard.texts if first is None else first
        assert heard.texts == first, f"the text depends on how the model cuts it: {first!r} or {heard.texts!r}"
    called = await bench.ask(bench.chain(bench.model()), "call")
    assert first is not None
    assert called.texts[-1] == first[-1], f"a call says {called.texts[-1]!r}, a stream {first[-1]!r}"


def _cut(reply: Reply, size: int) -> Reply:
    if not isinstance(reply, str):
        return reply
    return [*(reply[at : at + size] for at in range(0, len(reply), size)), ChatChunk(finish_reason="stop")]


_LAWS: Final[dict[str, Callable[[_Bench], Awaitable[None]]]] = {
    "one response, last": _one_response_last,
    "the stream's response equals the call's": _stream_equals_call,
    "streamed and final text agree": _texts_agree,
    "early close closes the model": _early_close_closes_the_model,
    "errors keep their type": _errors_keep_their_type,
    "concurrent calls never meet": _concurrent_calls_never_meet,
    "the context is kept": _context_is_kept,
    "done exactly once": _done_exactly_once,
    "cancellation goes through": _cancellation_goes_through,
}
