"""The laws hold for what is shipped, and each finds an advisor that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio.lowlevel
import pytest

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory, open_repository
from advisorchain.testing import RecordingAdvisor, check_advisor


class Shout(BaseAdvisor):
    def transform(self, request: ChatRequest) -> Any:
        return ShoutTransform()


class ShoutTransform:
    def feed(self, text: str) -> str:
        return text.upper()

    def flush(self) -> str:
        return "!"


class Passing(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


class Twice(AroundAdvisor):
    """Asks again, and takes the first answer back."""

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            if isinstance(item, ChatChunk):
                yield item
        yield ChatChunk(boundary="attempt", withdraws=1)
        async for item in next(request):
            yield item


class Guard(BaseAdvisor):
    def before(self, request: ChatRequest) -> ChatResponse:
        return request.reply("no", finish_reason="content_filter")


class CallsOnly:
    name = "calls"
    order = 0

    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        return await next(request)


class StreamsOnly:
    name = "streams"
    order = 0

    async def advise_stream(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


@pytest.mark.parametrize(
    "make",
    [
        lambda: RecordingAdvisor("r"),
        lambda: MessageChatMemoryAdvisor(ChatMemory()),
        Shout,
        Passing,
        Twice,
        Guard,
        CallsOnly,
        StreamsOnly,
    ],
)
async def test_good_advisors_keep_the_laws(make: Callable[[], Any]) -> None:
    await check_advisor(make)


async def test_memory_on_a_file_keeps_the_laws(tmp_path: Any) -> None:
    async with open_repository(f"sqlite:///{tmp_path / 'm.db'}") as repository:
        made = 0

        def make() -> MessageChatMemoryAdvisor:  # all on one store: another memory each time must not matter
            nonlocal made
            made += 1
            return MessageChatMemoryAdvisor(ChatMemory(repository=repository))

        await check_advisor(make)
        assert made > 10
        assert (await repository.recall("law", 1)).count > 0


async def test_an_advisor_that_handles_errors_is_let_off_that_law() -> None:
    class Rescue(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            try:
                async for item in next(request):
                    yield item
            except Exception:
                yield ChatChunk("sorry", boundary="attempt", withdraws=1)
                yield request.reply("sorry")

    with pytest.raises(AssertionError, match="law `errors keep their type`"):
        await check_advisor(Rescue)
    await check_advisor(Rescue, passes_errors=False)


# -- broken on purpose


class NoResponse:
    name = "broken"
    order = 0

    async def advise_stream(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            if isinstance(item, ChatChunk):
                yield item


class TwoResponses(Passing):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item
        yield request.reply("again")


class OtherInCalls(Passing):
    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        return (await next(request)).replace(finish_reason="length")


class OtherTextInCalls(Passing):
    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        response = await next(request)
        return response.replace(message="Something else.")


class Clings(Passing):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        try:
            async for item in next(request):
                yield item
        except GeneratorExit:
            yield ChatChunk("one more")


class Wraps(Passing):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        try:
            async for item in next(request):
                yield item
        except Exception as error:
            raise RuntimeError("it failed") from error


class SwallowsCancellation:
    name = "broken"
    order = 0

    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        try:
            return await next(request)
        except anyio.get_cancelled_exc_class():
            return request.reply("whatever")


class KeepsOnItself(BaseAdvisor):
    async def before(self, request: ChatRequest) -> ChatRequest:
        self.asked = request.messages[-1].text
        await anyio.lowlevel.checkpoint()
        return request.replace(messages=(*request.messages[:-1], type(request.messages[-1])(self.asked)))


class LosesContext(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield ChatResponse(item.message, item.finish_reason) if isinstance(item, ChatResponse) else item


class LeavesOneOpen(Passing):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        begun = next(request).__await__()
        with suppress(StopIteration):
            begun.send(None)  # as far as its first await, and no further
        self.kept.append(begun)
        return await next(request)


class ChangesInAfter(BaseAdvisor):
    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.replace(message=response.message.text + " And five.")


class ByChunk(BaseAdvisor):
    def transform(self, request: ChatRequest) -> Any:
        return ByChunkTransform()


class ByChunkTransform:
    def feed(self, text: str) -> str:
        return text.capitalize()

    def flush(self) -> str:
        return ""


class TakesBackWhatWasShown(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        yield ChatChunk("Well: ")
        async for item in next(request):
            yield request.reply("Something else.") if isinstance(item, ChatResponse) else item


@pytest.mark.parametrize(
    ("make", "law", "because"),
    [
        (NoResponse, "one response, last", "ended without a response"),
        (TwoResponses, "one response, last", "went on after its response"),
        (OtherInCalls, "the stream's response equals the call's", "`finish_reason`"),
        (OtherTextInCalls, "the stream's response equals the call's", "`message`"),
        (Clings, "early close closes the model", "GeneratorExit"),
        (Wraps, "errors keep their type", "RuntimeError"),
        (SwallowsCancellation, "cancellation goes through", "went on"),
        (KeepsOnItself, "concurrent calls never meet", "beside others"),
        (LosesContext, "the context is kept", "`law.inwards`"),
        (LeavesOneOpen, "done exactly once", "entered 2 times and done 1 times"),
        (ByChunk, "streamed and final text agree", "depends on how the model cuts it"),
    ],
)
async def test_each_law_finds_what_breaks_it(make: Callable[[], Any], law: str, because: str) -> None:
    with pytest.raises(AssertionError) as raised:
        await check_advisor(make)
    assert f"law `{law}`" in str(raised.value)
    assert because in str(raised.value)


@pytest.mark.parametrize("make", [ChangesInAfter, TakesBackWhatWasShown])
@pytest.mark.filterwarnings("ignore::advisorchain.errors.StreamTextWarning")
async def test_text_that_was_not_shown_is_found_without_the_warning_too(make: Callable[[], Any]) -> None:
    with pytest.raises(AssertionError, match=r"streamed and final text agree.*but the response says"):
        await check_advisor(make)


async def test_a_loop_is_checked_with_its_own_script() -> None:
    class Loop(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(request):
                if isinstance(item, ChatChunk):
                    yield item
            yield ChatChunk(boundary="round")
            async for item in next(request.replace(round=2)):
                yield item.replace(earlier=(first,)) if isinstance(item, ChatResponse) else item

    first = ChatResponse("Let me see. ").message
    await check_advisor(Loop, script=("Let me see. ", "It is four."))


async def test_an_advisor_may_refuse_as_long_as_it_refuses_the_same_beside_others() -> None:
    class RefusesOdd(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            if request.messages[-1].text.endswith(("1", "3")):
                raise ValueError("odd")
            return request

    await check_advisor(RefusesOdd)


async def test_a_script_may_hold_responses() -> None:
    await check_advisor(Shout, script=(ChatResponse("One, two.", "stop", model="m"),))


class HoldsOnItself(BaseAdvisor):
    """Its transform keeps what it holds back on the advisor: two streams at once mix."""

    def __init__(self) -> None:
        self.held = ""

    def transform(self, request: ChatRequest) -> Any:
        return self

    def feed(self, text: str) -> str:
        text, self.held = self.held + text[:-1], text[-1:]
        return text

    def flush(self) -> str:
        held, self.held = self.held, ""
        return held


class TellsOfOthers(BaseAdvisor):
    """Puts what the last caller asked on whichever response comes next."""

    def before(self, request: ChatRequest) -> ChatRequest:
        self.asked = request.messages[-1].text
        return request

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.replace(metadata={"asked": self.asked})


@pytest.mark.parametrize("make", [HoldsOnItself, TellsOfOthers])
async def test_state_that_calls_share_is_found(make: Callable[[], Any]) -> None:
    with pytest.raises(AssertionError, match="law `concurrent calls never meet`"):
        await check_advisor(make)
