"""An error in a hook, at each place: who is told, with what, and what comes out."""

from __future__ import annotations

from typing import Any

import pytest

from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels


class Boom(Exception):  # noqa: N818
    pass


class Faulty(RecordingAdvisor):
    """Records, and raises in the named hook."""

    def __init__(self, name: str, log: list[Seen], hook: str, error: BaseException) -> None:
        super().__init__(name, log=log)
        self.hook = hook
        self.error = error

    def fail(self, hook: str, result: Any) -> Any:
        if hook == self.hook:
            raise self.error
        return result

    def before(self, request: ChatRequest) -> Any:
        return self.fail("before", super().before(request))

    def transform(self, request: ChatRequest) -> Any:
        return FaultyTransform(self, self.fail("transform", super().transform(request)))

    def after(self, request: ChatRequest, response: ChatResponse) -> Any:
        return self.fail("after", super().after(request, response))

    def done(self, request: ChatRequest, outcome: Any) -> Any:
        return self.fail("done", super().done(request, outcome))


class FaultyTransform:
    def __init__(self, advisor: Faulty, inner: Any) -> None:
        self.advisor = advisor
        self.inner = inner
        self.fed = 0

    def feed(self, text: str) -> str:
        self.fed += 1
        passed = self.inner.feed(text)
        return self.advisor.fail("feed", passed) if self.fed == 2 or text == "one two" else passed

    def flush(self) -> str:
        return self.advisor.fail("flush", self.inner.flush())


class FaultyAsync(Faulty):
    async def before(self, request: ChatRequest) -> Any:
        return super().before(request)

    async def after(self, request: ChatRequest, response: ChatResponse) -> Any:
        return super().after(request, response)

    async def done(self, request: ChatRequest, outcome: Any) -> Any:
        return super().done(request, outcome)


class Onion:
    """a, b and c, of which one fails in a hook."""

    def __init__(self, kind: Any, faulty: str, hook: str, *replies: Any) -> None:
        self.log: list[Seen] = []
        self.error = Boom("it went wrong")
        self.model = ScriptedModel(*(replies or (["one ", "two"],)))
        advisors = [kind(name, self.log, hook if name == faulty else "", self.error) for name in ("a", "b", "c")]
        self.chain = AdvisorChain(self.model, advisors)

    async def fail(self, ask: Any) -> list[str]:
        """Ask, see the very error come out, and tell what was done."""
        with pytest.raises(Boom) as raised:
            await ask(self.chain)
        assert raised.value is self.error
        return labels(self.log, "done")

    def seen(self, name: str) -> Any:
        return next(seen for seen in self.log if (seen.advisor, seen.hook) == (name, "done"))


@pytest.fixture(params=[Faulty, FaultyAsync])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_in_before(ask: Any, kind: Any) -> None:
    onion = Onion(kind, "b", "before")
    assert await onion.fail(ask) == ["b.done error", "a.done error"]
    assert labels(onion.log, "before") == ["a.before", "b.before"]
    assert onion.model.requests == []
    assert onion.error.__notes__ == ["in advisor `b`, order 0"]
    received = next(seen.request for seen in onion.log if seen.label == "b.before")
    assert onion.seen("b").request is received
    assert all(seen.outcome.error is onion.error for seen in onion.log if seen.outcome is not None)
    assert all(seen.outcome.response is None for seen in onion.log if seen.outcome is not None)


async def test_in_transform(ask: Any, kind: Any) -> None:
    onion = Onion(kind, "b", "transform")
    assert await onion.fail(ask) == ["b.done error", "a.done error"]
    assert labels(onion.log, "before") == ["a.before", "b.before"]
    assert onion.model.requests == []
    assert onion.error.__notes__ == ["in advisor `b`, order 0"]


@pytest.mark.parametrize("hook", ["feed", "flush"])
async def test_while_text_passes(ask: Any, kind: Any, mode: str, hook: str) -> None:
    onion = Onion(kind, "b", hook)
    inner = "ok" if mode == "call" else "error"  # in a stream the text passes before anybody's `after`
    assert await onion.fail(ask) == [f"c.done {inner}", "b.done error", "a.done error"]
    assert onion.error.__notes__ == ["in advisor `b`, order 0"]
    assert onion.model.open_streams == 0
    if mode == "stream":
        left = {name: onion.seen(name).outcome.response.text for name in "abc"}
        outer = "one " if hook == "feed" else "one two"
        assert left == {"c": "one two", "b": outer, "a": outer}


async def test_in_after(ask: Any, kind: Any, mode: str) -> None:
    onion = Onion(kind, "b", "after")
    assert await onion.fail(ask) == ["c.done ok", "b.done error", "a.done error"]
    assert labels(onion.log, "after") == ["c.after", "b.after"]
    assert onion.error.__notes__ == ["in advisor `b`, order 0"]
    assert onion.seen("c").outcome.response.text == "one two"
    for name in "ab":
        partial = onion.seen(name).outcome.response
        if mode == "call":
            assert partial is None
        else:
            assert (partial.text, partial.message.partial) == ("one two", True)


async def test_in_done_when_all_went_well(ask: Any, kind: Any) -> None:
    onion = Onion(kind, "b", "done")
    assert await onion.fail(ask) == ["c.done ok", "b.done ok", "a.done error"]
    assert labels(onion.log, "after") == ["c.after", "b.after"]
    assert onion.error.__notes__ == ["in advisor `b`, order 0"]


async def test_in_done_of_the_outermost(ask: Any, kind: Any) -> None:
    onion = Onion(kind, "a", "done")
    assert await onion.fail(ask) == ["c.done ok", "b.done ok", "a.done ok"]
    assert onion.error.__notes__ == ["in advisor `a`, order 0"]


async def test_in_done_while_the_model_fails(ask: Any, kind: Any) -> None:
    failure = KeyError("of the model")
    onion = Onion(kind, "b", "done", ["one ", failure])
    with pytest.raises(KeyError) as raised:
        await ask(onion.chain)
    assert raised.value is failure
    assert failure.__notes__ == ["`done` of advisor `b` failed too: Boom"]
    assert labels(onion.log, "done") == ["c.done error", "b.done error", "a.done error"]


async def test_the_model_failing_is_noted_on_no_advisor(ask: Any, kind: Any) -> None:
    failure = KeyError("of the model")
    onion = Onion(kind, "", "", [failure])
    with pytest.raises(KeyError) as raised:
        await ask(onion.chain)
    assert not hasattr(raised.value, "__notes__")
    assert labels(onion.log, "done") == ["c.done error", "b.done error", "a.done error"]
    assert labels(onion.log, "after") == []


@pytest.mark.parametrize("hook", ["before", "after", "done"])
async def test_a_keyboard_interrupt_passes_as_it_is(ask: Any, hook: str) -> None:
    log: list[Seen] = []

    class Stop(BaseException):
        pass

    chain = AdvisorChain(ScriptedModel("ok"), [RecordingAdvisor("a", log=log), Faulty("b", log, hook, Stop())])
    with pytest.raises(Stop):
        await ask(chain)
    assert [label.split()[0] for label in labels(log, "done")] == ["b.done", "a.done"]
    assert labels(log, "done")[-1] == "a.done error"


@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_an_error_goes_through_around_advisors_once_noted(ask: Any, place: str) -> None:
    from advisorchain.advisor import AroundAdvisor

    class Passing(AroundAdvisor):
        async def around(self, request: ChatRequest, next: Any) -> Any:
            async for item in next(request):
                yield item

    log: list[Seen] = []
    error = Boom("x")
    faulty = Faulty("b", log, "after", error)
    advisors: list[Any] = [RecordingAdvisor("a", log=log), Passing(), faulty, RecordingAdvisor("c", log=log)]
    if place == "inside":
        advisors = [RecordingAdvisor("a", log=log), faulty, Passing(), RecordingAdvisor("c", log=log)]
    with pytest.raises(Boom):
        await ask(AdvisorChain(ScriptedModel("ok"), advisors))
    assert error.__notes__ == ["in advisor `b`, order 0"]
    assert labels(log, "done") == ["c.done ok", "b.done error", "a.done error"]
