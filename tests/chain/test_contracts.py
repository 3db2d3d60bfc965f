"""What advisors and models do wrong: one clear error each, that names who and what, and shows nothing of what was said."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import (
    AdvisorChainError,
    AdvisorContractError,
    InvalidInputError,
    ModelError,
    ModelResponseError,
)
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import UserMessage
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels

Ask = Callable[..., Awaitable[ChatResponse]]


async def refused(ask: Ask, error: type[Exception], match: str, *advisors: Any, model: Any = None) -> list[str]:
    """Ask, see the error, and tell what was done around."""
    log: list[Seen] = []
    outer = RecordingAdvisor("outer", -(2**31), log)
    with pytest.raises(error, match=match) as raised:
        await ask(AdvisorChain(model or ScriptedModel("a secret answer"), [outer, *advisors]), "a secret question")
    assert isinstance(raised.value, AdvisorChainError)
    told = " ".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert "secret" not in told
    return labels(log, "done")


# -- hooks


def wrapped(function: Any) -> Any:
    """As a decorator that is not made for async functions: what it gives does not look async."""

    @functools.lru_cache
    def call(self: Any, *args: Any) -> Any:
        return function(self, *args)

    return lambda self, *args: call.__wrapped__(self, *args)


class Hooks(BaseAdvisor):
    """One hook that returns what it was told to."""

    def __init__(self, hook: str, value: Any, asynchronous: bool) -> None:
        self.name = "wrong"

        def plain(*_: Any) -> Any:
            return value() if callable(value) else value

        async def waits(*_: Any) -> Any:
            return value() if callable(value) else value

        setattr(self, hook, waits if asynchronous else plain)


async def nothing() -> None:
    return None


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("value", [None, 5, "text", nothing, UserMessage("u"), ChatChunk("x")])
@pytest.mark.parametrize("hook", ["before", "after"])
async def test_a_hook_that_returns_the_wrong_thing(ask: Ask, hook: str, value: Any, asynchronous: bool) -> None:
    done = await refused(
        ask, AdvisorContractError, f"`{hook}` of advisor `wrong` returned ", Hooks(hook, value, asynchronous)
    )
    assert done == ["outer.done error"]


@pytest.mark.parametrize("hook", ["before", "after", "done"])
async def test_a_coroutine_from_a_wrapped_async_hook_is_closed_and_named(ask: Ask, hook: str) -> None:
    class Wrapped(BaseAdvisor):
        name = "wrapped"

    async def asynchronous(self: Any, *args: Any) -> Any:
        return args[-1]

    setattr(Wrapped, hook, wrapped(asynchronous))
    # a coroutine that is not closed would warn "was never awaited", and a warning is an error here
    await refused(ask, AdvisorContractError, f"`{hook}` of advisor `wrapped` returned a coroutine .*async def", Wrapped())


async def test_after_that_returns_a_request_and_before_that_returns_a_chunk(ask: Ask) -> None:
    class Confused(BaseAdvisor):
        def after(self, request: ChatRequest, response: ChatResponse) -> Any:
            return request

    await refused(ask, AdvisorContractError, "`after` of advisor `Confused` returned a ChatRequest", Confused())


@pytest.mark.parametrize("value", [5, "text", nothing, object()])
async def test_a_transform_that_is_none(ask: Ask, value: Any) -> None:
    await refused(ask, AdvisorContractError, "`transform` of advisor `wrong` returned ", Hooks("transform", value, False))


class Forgets(BaseAdvisor):
    """A transform of which one method forgets to return."""

    def __init__(self, method: str) -> None:
        self.method = method

    def transform(self, request: ChatRequest) -> Any:
        return ForgetsText(self.method)


class ForgetsText:
    def __init__(self, method: str) -> None:
        self.method = method

    def feed(self, text: str) -> Any:
        return None if self.method == "feed" else text

    def flush(self) -> Any:
        return None if self.method == "flush" else ""


@pytest.mark.parametrize("method", ["feed", "flush"])
async def test_text_is_not_lost_when_a_transform_forgets_to_return_it(ask: Ask, method: str) -> None:
    match = r"of advisor `Forgets` returned None; return text from feed\(\) and flush\(\)"
    for advisors in ([Forgets(method)], [Shouts(), Forgets(method)], [Forgets(method), Shouts()]):
        with pytest.raises(AdvisorContractError, match=match):
            await ask(AdvisorChain(ScriptedModel("a secret answer"), advisors))


class Shouts(BaseAdvisor):
    def transform(self, request: ChatRequest) -> Any:
        return ShoutsText()


class ShoutsText:
    def feed(self, text: str) -> str:
        return text.upper()

    def flush(self) -> str:
        return ""


async def test_a_value_from_done_is_ignored_unless_somebody_would_have_to_await_it(ask: Ask) -> None:
    chain = AdvisorChain(ScriptedModel("fine", "fine"), [Hooks("done", 5, False)])
    assert (await ask(chain)).text == "fine"


# -- around advice


class EndsWithout(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            if isinstance(item, ChatChunk):
                yield item


class EndsAtOnce(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        for never in ():
            yield never


class TwoResponses(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item
        yield request.reply("again")


class ChunkAfterResponse(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item
        yield ChatChunk("more")


class Rubbish(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        yield "a secret text"


class NoGenerator(AroundAdvisor):
    name = "x"

    def around(self, request: ChatRequest, next: Any) -> Any:
        return [next]


class HiddenCoroutine(AroundAdvisor):
    name = "x"

    def around(self, request: ChatRequest, next: Any) -> Any:
        return nothing()


class AsksWithText(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next("a secret text"):
            yield item


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (EndsWithout, "`around` of advisor `x` ended without a response"),
        (EndsAtOnce, "`around` of advisor `x` ended without a response"),
        (TwoResponses, "`around` of advisor `x` went on after its response"),
        (ChunkAfterResponse, "`around` of advisor `x` went on after its response"),
        (Rubbish, "`around` of advisor `x` yielded a str"),
        (NoGenerator, "`around` of advisor `x` returned a list"),
        (HiddenCoroutine, "`around` of advisor `x` returned a coroutine"),
        (AsksWithText, "`next` was given a str"),
    ],
)
async def test_around_advice_that_breaks_its_contract(ask: Ask, make: Any, match: str) -> None:
    log: list[Seen] = []
    model = ScriptedModel("a secret answer")
    done = await refused(ask, AdvisorContractError, match, make(), RecordingAdvisor("c", 5, log), model=model)
    assert done == ["outer.done error"]
    assert len(labels(log, "before")) == len(labels(log, "done"))
    assert model.open_streams == 0


class OnlyCalls:
    name = "x"
    order = 0

    def __init__(self, value: Any) -> None:
        self.value = value

    async def advise_call(self, request: ChatRequest, next: Any) -> Any:
        await next(request)
        return self.value() if callable(self.value) else self.value


@pytest.mark.parametrize("outermost", [True, False])
@pytest.mark.parametrize("value", [None, "a secret text", ChatChunk("x"), nothing])
async def test_advise_call_that_returns_no_response(ask: Ask, value: Any, outermost: bool) -> None:
    advisor, model = OnlyCalls(value), ScriptedModel("a secret answer")
    advisors: list[Any] = [advisor] if outermost else [RecordingAdvisor("a"), advisor, RecordingAdvisor("c")]
    with pytest.raises(AdvisorContractError, match="`advise_call` of advisor `x`") as raised:
        await ask(AdvisorChain(model, advisors))
    assert "secret" not in str(raised.value)


class OnlyStreams:
    name = "x"
    order = 0

    def __init__(self, *items: Any) -> None:
        self.items = items

    async def advise_stream(self, request: ChatRequest, next: Any) -> Any:
        for item in self.items:
            yield item


@pytest.mark.parametrize(
    ("items", "match"),
    [
        ((), "ended without a response"),
        ((ChatChunk("x"),), "ended without a response"),
        ((ChatResponse("x"), ChatChunk("x")), "went on after its response"),
        (("a secret text",), "yielded a str"),
        ((None,), "yielded None"),
    ],
)
async def test_advise_stream_that_breaks_its_contract(ask: Ask, items: Any, match: str) -> None:
    match = f"`advise_stream` of advisor `x` {match}"
    assert await refused(ask, AdvisorContractError, match, OnlyStreams(*items)) == ["outer.done error"]


async def test_advise_call_that_hands_on_no_request(ask: Ask) -> None:
    class HandsOnText(OnlyCalls):
        async def advise_call(self, request: ChatRequest, next: Any) -> Any:
            return await next("a secret text")

    for advisors in ([HandsOnText(None)], [HandsOnText(None), RecordingAdvisor("c")]):
        with pytest.raises(AdvisorContractError, match="`next` was given a str"):
            await ask(AdvisorChain(ScriptedModel("x"), advisors))


# -- models


async def returns_none(request: ChatRequest) -> Any:
    return None


async def returns_a_list(request: ChatRequest) -> Any:
    return ["a secret answer"]


async def returns_a_coroutine(request: ChatRequest) -> Any:
    return nothing()


async def yields_nothing(request: ChatRequest) -> Any:
    for never in ():
        yield never


async def yields_none(request: ChatRequest) -> Any:
    yield "one"
    yield None


async def yields_a_response(request: ChatRequest) -> Any:
    yield "one"
    yield ChatResponse("one")


class StreamsNothing:
    name = "m"
    provider = "test"

    def stream(self, request: ChatRequest) -> Any:
        return None


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (returns_none, "model `returns_none` answered None"),
        (returns_a_list, "model `returns_a_list` answered a list"),
        (returns_a_coroutine, "model `returns_a_coroutine` answered a coroutine"),
        (yields_nothing, "model `yields_nothing` yielded nothing"),
        (yields_none, "model `yields_none` yielded None"),
        (yields_a_response, "model `yields_a_response` yielded a ChatResponse"),
        (StreamsNothing(), "`stream` of model `m` returned None"),
    ],
)
async def test_a_model_that_answers_nothing_or_nonsense(ask: Ask, model: Any, match: str) -> None:
    done = await refused(ask, ModelResponseError, match, model=model)
    assert done == ["outer.done error"]
    with pytest.raises(ModelResponseError, match=match):
        await ask(AdvisorChain(model))


async def test_a_scripted_model_that_is_asked_too_often_says_so(ask: Ask) -> None:
    chain = AdvisorChain(ScriptedModel("one"), [RecordingAdvisor("a")])
    await ask(chain)
    with pytest.raises(ModelError, match="once more than the 1 replies"):
        await ask(chain)


async def test_a_chunk_whose_text_is_none(ask: Ask) -> None:
    async def model(request: ChatRequest) -> Any:
        yield ChatChunk("a secret")
        yield ChatChunk(None)  # as a provider's delta has it

    assert await refused(ask, InvalidInputError, "`text` of a chunk is None; give a text", model=model) == [
        "outer.done error"
    ]


async def test_a_subclass_of_a_response_is_one(ask: Ask) -> None:
    class Richer(ChatResponse):
        pass

    async def model(request: ChatRequest) -> ChatResponse:
        return Richer("answer")

    assert (await ask(AdvisorChain(model))).text == "answer"
    assert (await ask(AdvisorChain(model, [RecordingAdvisor("c")]))).text == "answer"


class HalfAsyncDone(BaseAdvisor):
    name = "half"

    async def done(self, request: ChatRequest, outcome: Any) -> Any:
        async def forgotten() -> None: ...

        return forgotten()


async def test_a_coroutine_out_of_an_async_done_is_an_error_and_is_closed(ask: Ask) -> None:
    with pytest.raises(AdvisorContractError, match="`done` of advisor `half` returned a coroutine"):
        await ask(AdvisorChain(ScriptedModel("fine"), [HalfAsyncDone()]))
