"""Streamed text, the response's text, what `done` is told and what memory stores are one and the same."""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisor import LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import StreamTextWarning
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.messages import AssistantMessage, TextPart
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels


class Redacts(BaseAdvisor):
    """Replaces each number by a mark; holds back digits at the end of what came so far, since more may follow."""

    def __init__(self, name: str = "redact", order: int = 0, mark: str = "[number]") -> None:
        self.name = name
        self.order = order
        self.mark = mark

    def transform(self, request: ChatRequest) -> Any:
        return RedactsText(self.mark)


class RedactsText:
    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.held = ""

    def feed(self, text: str) -> str:
        text = self.held + text
        ready = text.rstrip("0123456789")
        self.held = text[len(ready) :]
        return re.sub(r"\d+", self.mark, ready)

    def flush(self) -> str:
        held, self.held = self.held, ""
        return re.sub(r"\d+", self.mark, held)


class Delays(BaseAdvisor):
    """Holds back the last `keep` characters, until there is more."""

    def __init__(self, name: str, keep: int) -> None:
        self.name = name
        self.keep = keep

    def transform(self, request: ChatRequest) -> Any:
        return DelaysText(self.keep)


class DelaysText:
    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.held = ""

    def feed(self, text: str) -> str:
        text = self.held + text
        cut = max(0, len(text) - self.keep)
        self.held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        held, self.held = self.held, ""
        return held


class Passing(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


@st.composite
def cut_text(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(st.text(alphabet="ab 12\né", max_size=30))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    return text, [text[start:end] for start, end in pairwise(edges)]


async def run(pieces: list[str], with_around: bool, reason: bool) -> tuple[list[str], str, str, list[str]]:
    """What was streamed, what the response says, what the outermost `done` heard, and what is stored."""
    memory = MessageChatMemoryAdvisor(ChatMemory(), order=-1)
    recorder = RecordingAdvisor("r", order=-2)
    advisors: list[Any] = [recorder, memory, Redacts(), Delays("delay", 3)]
    advisors[3:3] = [Passing()] if with_around else []
    script = [*pieces, ChatChunk(finish_reason="stop")] if reason else list(pieces)
    async with AdvisorChain(ScriptedModel(script), advisors).stream("q", conversation_id="c") as stream:
        shown = [chunk.text async for chunk in stream]
        response = stream.response
    [outcome] = recorder.outcomes
    assert outcome.response is not None
    page = await memory.chat_memory.history("c")
    return shown, response.text, outcome.response.text, [entry.message.text for entry in page.items]


@settings(max_examples=60, deadline=None)
@given(cut=cut_text(), with_around=st.booleans(), reason=st.booleans(), backend=st.sampled_from(["asyncio", "trio"]))
def test_any_chunk_borders_give_one_text_everywhere(
    cut: tuple[str, list[str]], with_around: bool, reason: bool, backend: str
) -> None:
    text, pieces = cut
    shown, response, told, stored = anyio.run(partial(run, pieces, with_around, reason), backend=backend)
    expected = re.sub(r"\d+", "[number]", text)
    assert "".join(shown) == expected
    assert (response, told) == (expected, expected)
    assert stored == ["q", expected]


@settings(max_examples=40, deadline=None)
@given(cut=cut_text(), read=st.integers(0, 8))
def test_left_early_the_partial_is_what_was_shown(cut: tuple[str, list[str]], read: int) -> None:
    async def leave() -> tuple[str, Any, Any, list[str]]:
        memory = MessageChatMemoryAdvisor(ChatMemory(), order=-1)
        recorder = RecordingAdvisor("r", order=-2)
        chain = AdvisorChain(ScriptedModel([*cut[1], *"!?" * 9]), [recorder, memory, Redacts(), Delays("delay", 2)])
        shown = ""
        async with chain.stream("q", conversation_id="c") as stream:
            iterator = aiter(stream)
            for _ in range(read):
                chunk = await anext(iterator, None)
                assert chunk is not None  # the last one is not asked for: there are two pieces more
                shown += chunk.text
        page = await memory.chat_memory.history("c")
        told = recorder.outcomes[0].response if recorder.outcomes else None
        return shown, stream.partial, told, [entry.message.text for entry in page.items]

    shown, partial_, told, stored = anyio.run(leave)
    if shown.strip():
        assert partial_.text == told.text == shown
        assert partial_.message.partial
        assert stored == ["q", shown]
    else:  # nothing was to be seen
        assert partial_ is told is None
        assert stored == []


async def test_transforms_apply_from_the_inside_out(ask: Any) -> None:
    chain = AdvisorChain(ScriptedModel("a 1 b"), [Redacts("outer", 1, "<2>"), Redacts("inner", 2, "<1>")])
    assert (await ask(chain)).text == "a <<2>> b"


async def test_what_is_inside_sees_the_text_as_it_was_there(ask: Any) -> None:
    log: list[Seen] = []
    recorders = [RecordingAdvisor("outer", -1, log), RecordingAdvisor("inner", 1, log)]
    await ask(AdvisorChain(ScriptedModel("a 1 b"), [Redacts(), *recorders]))
    texts = {seen.advisor: seen.outcome.response.text for seen in log if seen.outcome and seen.outcome.response}
    assert texts == {"inner": "a 1 b", "outer": "a [number] b"}
    assert {seen.advisor: seen.response.text for seen in log if seen.response} == texts


async def test_text_is_flushed_before_a_finish_reason_and_not_again() -> None:
    log: list[Seen] = []
    chain = AdvisorChain(
        ScriptedModel(["a ", "12", ChatChunk(finish_reason="stop"), ChatChunk(metadata={"limit": 3})]),
        [RecordingAdvisor("r", -1, log), Redacts()],
    )
    async with chain.stream("q") as stream:
        chunks = [(chunk.text, chunk.finish_reason) async for chunk in stream]
    assert chunks == [("a ", None), ("[number]", "stop"), ("", None)]
    assert labels(log, "flush") == ["r.flush"]
    assert stream.response.metadata == {"limit": 3}


async def test_text_after_a_finish_reason_is_not_lost() -> None:
    chain = AdvisorChain(ScriptedModel(["1", ChatChunk(finish_reason="stop"), "2"]), [Redacts()])
    async with chain.stream("q") as stream:
        shown = [chunk.text async for chunk in stream]
    assert "".join(shown) == stream.response.text == "[number][number]"


async def test_a_chunk_without_text_passes_while_text_is_held() -> None:
    chain = AdvisorChain(ScriptedModel(["12", ChatChunk(reasoning="hm"), "3"]), [Redacts()])
    async with chain.stream("q") as stream:
        chunks = [(chunk.text, chunk.reasoning) async for chunk in stream]
    assert chunks == [("", "hm"), ("[number]", None)]
    assert (stream.response.text, stream.response.message.reasoning) == ("[number]", "hm")


async def test_a_call_feeds_once_and_flushes_once() -> None:
    log: list[Seen] = []
    await AdvisorChain(ScriptedModel(["a", "b", "c"]), [RecordingAdvisor("r", log=log)]).call("q")
    assert [seen.text for seen in log if seen.hook == "feed"] == ["abc"]
    assert labels(log, "flush") == ["r.flush"]


async def test_parts_that_are_no_text_stay_beside_the_changed_text() -> None:
    async def model(request: ChatRequest) -> ChatResponse:
        return ChatResponse(AssistantMessage((TextPart("call 12 "), TextPart("now"))))

    response = await AdvisorChain(model, [Redacts()]).call("q")
    assert response.text == "call [number] now"


async def test_each_request_has_its_own_transform() -> None:
    chain = AdvisorChain(ScriptedModel(["a", "1"], ["2", "b"]), [Redacts()])
    async with chain.stream("q") as first, chain.stream("q") as second:
        texts: list[list[str]] = [[], []]
        for place, stream in ((0, first), (1, second), (0, first), (1, second)):
            chunk = await anext(aiter(stream), None)
            texts[place].append(chunk.text if chunk else "")
    assert texts == [["a", "[number]"], ["[number]b", ""]]


async def test_none_is_no_transform(ask: Any) -> None:
    class Sometimes(Redacts):
        def transform(self, request: ChatRequest) -> Any:
            return super().transform(request) if request.context.get("redact") else None

    chain = AdvisorChain(ScriptedModel("call 12", "call 12"), [Sometimes()])
    assert (await ask(chain)).text == "call 12"
    assert (await ask(chain, context={"redact": True})).text == "call [number]"


# -- text that is changed where it was already shown


class ChangesInAfter(BaseAdvisor):
    name = "late"

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.replace(message=response.text + " P.S.")


async def test_a_changed_text_in_a_stream_warns_once_a_chain() -> None:
    chain = AdvisorChain(ScriptedModel("one", "two", "three"), [ChangesInAfter()])
    with pytest.warns(StreamTextWarning, match="`after` of advisor `late`") as warned:
        for _ in range(2):
            async with chain.stream("q") as stream:
                assert [chunk async for chunk in stream]
            assert stream.response.text.endswith(" P.S.")
    assert len(warned) == 1
    other = AdvisorChain(ScriptedModel("one"), [ChangesInAfter()])
    with pytest.warns(StreamTextWarning):
        async with other.stream("q") as stream:
            assert [chunk async for chunk in stream]


async def test_a_changed_text_in_a_call_is_fine() -> None:
    assert (await AdvisorChain(ScriptedModel("one"), [ChangesInAfter()]).call("q")).text == "one P.S."


async def test_an_around_that_says_something_else_than_it_showed_is_named() -> None:
    class TakesBack(AroundAdvisor):
        name = "back"

        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(request):
                yield request.reply("never mind") if isinstance(item, ChatResponse) else item

    with pytest.warns(StreamTextWarning, match="`around` of advisor `back`"):
        async with AdvisorChain(ScriptedModel("one"), [TakesBack()]).stream("q") as stream:
            assert [chunk.text async for chunk in stream] == ["one"]


async def test_chunks_that_around_drops_or_injects_are_the_response_s_text_too(ask: Any) -> None:
    class Edits(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            yield ChatChunk("So: ")
            async for item in next(request):
                if isinstance(item, ChatChunk):
                    item = item.replace(text=item.text.replace("two", ""))
                yield item

    log: list[Seen] = []
    chain = AdvisorChain(ScriptedModel(["one ", "two", " three"]), [RecordingAdvisor("r", log=log), Edits(), Inner()])
    response = await ask(chain)
    assert response.text == "So: one  three"
    assert response.context == {"inner": "one two three"}
    assert [seen.response.text for seen in log if seen.response] == ["So: one  three"]


class Inner(BaseAdvisor):
    order = LOWEST_PRECEDENCE

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response.with_context(inner=response.text)


async def test_an_answer_that_was_never_shown_is_shown_at_the_end() -> None:
    class Quiet(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(request):
                if isinstance(item, ChatResponse):
                    yield item.replace(message="shown: " + item.text)

    async with AdvisorChain(ScriptedModel("one 1"), [Redacts(order=-1), Quiet()]).stream("q") as stream:
        shown = [chunk.text async for chunk in stream]
    assert "".join(shown) == stream.response.text == "shown: one [number]"


@pytest.mark.parametrize("boundary", ["round", "attempt"])
async def test_left_at_the_text_that_was_held_before_a_boundary(boundary: Any) -> None:
    """The reader has not seen the boundary: what was shown is still the message that is coming in."""
    memory = ChatMemory()

    async def model(request: ChatRequest) -> Any:
        yield "one 1"
        yield ChatChunk("two", boundary=boundary, withdraws=1)

    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), Redacts()])
    async with chain.stream("q", conversation_id="c") as stream:
        items = aiter(stream)
        shown = (await anext(items)).text + (await anext(items)).text
    assert shown == "one [number]"
    assert stream.partial is not None
    assert [message.text for message in stream.partial.turn] == [shown]
    assert [message.text for message in await memory.get("c")] == ["q", shown]


async def test_a_transform_may_give_a_subclass_of_text(ask: Any) -> None:
    class Markup(str):
        pass

    class MarksUp(BaseAdvisor):
        name = "marks"

        def transform(self, request: ChatRequest) -> Any:
            return self

        def feed(self, text: str) -> str:
            return Markup(text)

        def flush(self) -> str:
            return Markup("!")

    async def model(request: ChatRequest) -> Any:
        yield Markup("a")
        yield ChatChunk(Markup("b"))

    assert (await ask(AdvisorChain(model, [MarksUp(), Redacts()]))).text == "ab!"
