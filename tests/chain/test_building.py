"""Building a chain, seeing it, making others of it, and opening what its parts own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain, AdvisorRow
from advisorchain.errors import (
    AdvisorChainError,
    AdvisorOrderWarning,
    ConfigurationError,
    InvalidInputError,
    UnknownAdvisorError,
)
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory
from advisorchain.testing import RecordingAdvisor, ScriptedModel, Seen, labels


class Passing(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


class Named(BaseAdvisor):
    def __init__(self, name: Any = "named", order: Any = 0) -> None:
        self.name = name
        self.order = order


class Mixed(BaseAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        yield request.reply("x")

    def before(self, request: ChatRequest) -> ChatRequest:
        return request


class Nothing:
    name = "nothing"
    order = 0


class AsyncTransform(BaseAdvisor):
    async def transform(self, request: ChatRequest) -> Any:
        return None


class NoGenerator(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        return request.reply("x")


class PlainAdvice:
    name = "plain"
    order = 0

    def advise_call(self, request: ChatRequest, next: Any) -> Any:
        return request.reply("x")


class BothStreams(Passing):
    async def advise_stream(self, request: ChatRequest, next: Any) -> Any:
        yield request.reply("x")


class NotCallable(BaseAdvisor):
    before = 3


@pytest.mark.parametrize(
    ("advisors", "about"),
    [
        ([None], "advisors"),
        ([object()], "advisors"),
        (["memory"], "advisors"),
        ([RecordingAdvisor], "RecordingAdvisor"),
        ("memory", "advisors"),
        (5, "advisors"),
        (None, "advisors"),
        ([Named(""), Named()], "advisors"),
        ([Named(" ")], "advisors"),
        ([Named(5)], "advisors"),
        ([Named("twin"), Named("twin", 5)], "twin"),
        ([Named("n", "5")], "order"),
        ([Named("n", 5.0)], "order"),
        ([Named("n", True)], "order"),
        ([Named("n", None)], "order"),
        ([Named("n", LOWEST_PRECEDENCE + 1)], "order"),
        ([Named("n", HIGHEST_PRECEDENCE - 1)], "order"),
        ([Mixed()], "Mixed"),
        ([Nothing()], "nothing"),
        ([AsyncTransform()], "transform"),
        ([NoGenerator()], "around"),
        ([PlainAdvice()], "advise_call"),
        ([BothStreams()], "BothStreams"),
        ([NotCallable()], "before"),
    ],
)
def test_chain_003_what_is_no_advisor_is_refused_when_the_chain_is_built(advisors: Any, about: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{about}`") as raised:
        AdvisorChain(ScriptedModel(), advisors)
    assert isinstance(raised.value, ValueError)


def plain_function(request: ChatRequest) -> str:
    return "x"


class CoroutineStream:
    name = "m"

    async def stream(self, request: ChatRequest) -> Any:
        return None


class PlainCall:
    name = "m"

    def call(self, request: ChatRequest) -> Any:
        return None


@pytest.mark.parametrize(
    ("model", "about"),
    [
        (None, "model"),
        ("gpt", "model"),
        (object(), "model"),
        (ScriptedModel, "model"),
        (plain_function, "plain_function"),
        (CoroutineStream(), "stream"),
        (PlainCall(), "call"),
    ],
)
def test_what_is_no_model_is_refused_when_the_chain_is_built(model: Any, about: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{about}`"):
        AdvisorChain(model)


@pytest.mark.parametrize("grace", [-1, "5", None, True])
def test_a_grace_that_is_no_time_is_refused(grace: Any) -> None:
    with pytest.raises(AdvisorChainError, match="`grace`"):
        AdvisorChain(ScriptedModel(), grace=grace)


# -- seeing it


def test_describe_tells_place_order_name_type_and_hooks() -> None:
    class Hooked(BaseAdvisor):
        order = 5

        def before(self, request: ChatRequest) -> ChatRequest:
            return request

        async def done(self, request: ChatRequest, outcome: Any) -> None:
            return None

    chain = AdvisorChain(ScriptedModel(), [Hooked(), Passing(), Named("bare", -1)])
    hooked = "test_describe_tells_place_order_name_type_and_hooks.<locals>.Hooked"
    assert chain.describe() == (
        AdvisorRow(0, -1, "bare", "Named", ()),
        AdvisorRow(1, 0, "Passing", "Passing", ("around",), to_stream=("change", "hold back", "cut short")),
        AdvisorRow(2, 5, "Hooked", hooked, ("before", "done")),
    )
    assert repr(chain) == "<AdvisorChain bare@-1 > Passing@0 > Hooked@5 > scripted>"
    assert repr(AdvisorChain(ScriptedModel())) == "<AdvisorChain scripted>"
    assert [advisor.name for advisor in chain.advisors] == ["bare", "Passing", "Hooked"]


# -- other chains from one


async def test_other_chains_leave_the_first_as_it_was(ask: Any) -> None:
    a, b, c = RecordingAdvisor("a", 1), RecordingAdvisor("b", 2), RecordingAdvisor("c", 3)
    chain = AdvisorChain(ScriptedModel("ok", repeat=True), [a, b])
    assert repr(chain.with_advisors(c, Named("z", 0))) == "<AdvisorChain z@0 > a@1 > b@2 > c@3 > scripted>"
    assert repr(chain.without("a")) == "<AdvisorChain b@2 > scripted>"
    assert repr(chain.without("a", "b")) == "<AdvisorChain scripted>"
    assert repr(chain.without()) == repr(chain)
    assert repr(chain.replacing("a", c)) == "<AdvisorChain b@2 > c@3 > scripted>"
    assert repr(chain.replacing("a", Named("a", 9))) == "<AdvisorChain b@2 > a@9 > scripted>"
    assert repr(chain) == "<AdvisorChain a@1 > b@2 > scripted>"
    await ask(chain.without("a"))
    assert (a.log, labels(b.log, "done")) == ([], ["b.done ok"])


async def test_advisors_for_one_call(ask: Any) -> None:
    log: list[Seen] = []
    chain = AdvisorChain(ScriptedModel("ok", repeat=True), [RecordingAdvisor("a", 1, log), RecordingAdvisor("b", 2, log)])
    await ask(chain, advisors=[RecordingAdvisor("between", 1, log)])
    assert labels(log, "before") == ["a.before", "between.before", "b.before"]
    log.clear()
    await ask(chain, without=["a"], advisors=[RecordingAdvisor("a", 3, log)])
    assert labels(log, "before") == ["b.before", "a.before"]
    log.clear()
    await ask(chain)
    assert labels(log, "before") == ["a.before", "b.before"]


async def test_what_one_call_asks_for_must_be_there(ask: Any) -> None:
    model = ScriptedModel("ok")
    chain = AdvisorChain(model, [RecordingAdvisor("a")], name="support")
    with pytest.raises(UnknownAdvisorError, match=r"no advisor `b` in chain `support`; its advisors: `a`") as raised:
        await ask(chain, without=["b"])
    assert isinstance(raised.value, LookupError)
    with pytest.raises(InvalidInputError, match="`without`"):
        await ask(chain, without="a")
    with pytest.raises(ConfigurationError, match="two advisors are named `a`"):
        await ask(chain, advisors=[RecordingAdvisor("a")])
    with pytest.raises(ConfigurationError, match="`advisors`"):
        await ask(chain, advisors=[None])
    for make in (lambda: chain.without("b"), lambda: chain.replacing("b", Named())):
        with pytest.raises(UnknownAdvisorError, match="`b`"):
            make()
    assert model.requests == []


async def test_system_text_goes_in_front(ask: Any) -> None:
    model = ScriptedModel("ok", "ok", "ok")
    chain = AdvisorChain(model)
    await ask(chain, system="Be brief.")
    await ask(chain, system="Be brief.", advisors=[RecordingAdvisor("a")])
    assert [[message.role for message in prompt] for prompt in model.prompts] == [["system", "user"]] * 2


# -- what the parts own


class Opened:
    def __init__(self, log: list[str], name: str, fails: str = "") -> None:
        self.log, self.name, self.fails, self.order = log, name, fails, 0

    async def __aenter__(self) -> Any:
        self.log.append(f"open {self.name}")
        if self.fails == "open":
            raise OSError("cannot open")
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.log.append(f"close {self.name}")
        if self.fails == "close":
            raise OSError("cannot close")

    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        return await next(request)


class Closable(ScriptedModel):
    log: list[str]

    async def aclose(self) -> None:
        self.log.append("close model")


def parts(log: list[str], **fails: str) -> AdvisorChain:
    model = Closable("ok", repeat=True)
    model.log = log
    return AdvisorChain(model, [Opened(log, name, fails.get(name, "")) for name in "ab"] + [RecordingAdvisor("c")])


async def test_entering_a_chain_opens_its_parts_and_leaving_closes_them(ask: Any) -> None:
    log: list[str] = []
    chain = parts(log)
    for _ in range(2):  # and again
        log.clear()
        async with chain as entered:
            assert entered is chain
            assert log == ["open a", "open b"]
            assert (await ask(chain)).text == "ok"
        assert log == ["open a", "open b", "close model", "close b", "close a"]


async def test_a_chain_that_is_open_cannot_be_opened_again() -> None:
    log: list[str] = []
    async with parts(log) as chain:
        with pytest.raises(ConfigurationError, match="`chain` is open already"):
            await chain.__aenter__()
        assert chain.is_open
    assert log.count("close a") == 1
    assert not chain.is_open


async def test_when_one_part_cannot_be_opened_the_others_are_closed() -> None:
    log: list[str] = []
    with pytest.raises(OSError, match="cannot open"):
        async with parts(log, b="open"):
            pass
    assert log == ["open a", "open b", "close a"]


async def test_when_one_part_cannot_be_closed_the_others_are() -> None:
    log: list[str] = []
    with pytest.raises(OSError, match="cannot close"):
        async with parts(log, b="close"):
            pass
    assert log == ["open a", "open b", "close model", "close b", "close a"]


async def test_what_is_given_from_outside_stays_the_givers() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def opened() -> Any:
        async with Opened(log, "given") as part:
            yield part

    async with opened() as part:
        await AdvisorChain(ScriptedModel("ok"), [part]).call("q")
        assert log == ["open given"]
    assert log == ["open given", "close given"]


def test_a_name_that_is_a_property_stays_one_in_a_subclass() -> None:
    class Guard(BaseAdvisor):
        def __init__(self, subject: str) -> None:
            self.subject = subject

        @property
        def name(self) -> str:
            return f"guard of {self.subject}"

    class Strict(Guard):
        def before(self, request: ChatRequest) -> ChatRequest:
            return request

    chain = AdvisorChain(ScriptedModel("a"), [Strict("a"), Strict("b")])
    assert [row.name for row in chain.describe()] == ["guard of a", "guard of b"]


def test_a_dataclass_advisor_with_fields_that_must_be_given() -> None:
    """`name` and `order` of the base class count as its defaults: no required field may follow."""

    @dataclass
    class Guard(BaseAdvisor):
        name: str
        url: str

        def before(self, request: ChatRequest) -> ChatRequest:
            return request

    assert Guard("guard", "there").name == "guard"


class Judge(BaseAdvisor):
    """Must stand further in than what keeps answers."""

    name = "judge"

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response

    def misplaced(self, inner: tuple[Any, ...]) -> str | None:
        kept = [advisor.name for advisor in inner if getattr(advisor, "keeps_answers", False)]
        return f"`{kept[0]}` keeps what it refuses; give it an order beyond" if kept else None


def test_an_advisor_that_is_misplaced_says_so_when_the_chain_is_built() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), order=5)
    with pytest.warns(AdvisorOrderWarning, match="advisor `judge`: `memory` keeps what it refuses") as told:
        AdvisorChain(ScriptedModel("x"), [memory, Judge()])
    assert told[0].filename == __file__
    chain = AdvisorChain(
        ScriptedModel("x"), [MessageChatMemoryAdvisor(ChatMemory()), Judge()]
    )  # no warning, or it would fail
    assert [row.name for row in chain.describe()] == ["memory", "judge"]
