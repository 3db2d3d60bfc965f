"""`describe()`: the order of advisors, and what each may do to a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import pytest
from hypothesis import given, settings

from advisorchain.advisor import AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.advisors import (
    CacheAdvisor,
    ConcurrencyLimitAdvisor,
    FallbackAdvisor,
    LoggingAdvisor,
    MessageChatMemoryAdvisor,
    RateLimitAdvisor,
    RedactAdvisor,
    ReReadingAdvisor,
    RetryAdvisor,
    SafeGuardAdvisor,
    StructuredOutputAdvisor,
    TimeoutAdvisor,
    ToolCallingAdvisor,
    UsageLimitAdvisor,
)
from advisorchain.chain import AdvisorChain, AdvisorRow
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.hooks import after, before
from advisorchain.memory import ChatMemory
from advisorchain.testing import RecordingAdvisor, ScriptedModel

from ._chains import advisor, plans


def row_of(each: Any) -> AdvisorRow:
    (row,) = AdvisorChain(ScriptedModel(), [each]).describe()
    return row


@settings(deadline=None)
@given(plans())
def test_rows_are_in_order_and_equal_orders_as_they_were_given(given_plans: list[Any]) -> None:
    advisors = [advisor(*plan, log=[]) for plan in given_plans]
    chain = AdvisorChain(ScriptedModel(), advisors)
    rows = chain.describe()
    assert [row.name for row in rows] == [plan[0] for plan in sorted(given_plans, key=lambda plan: plan[1])]
    assert [row.index for row in rows] == list(range(len(advisors)))
    for row, each in zip(rows, chain.advisors, strict=True):
        assert (row.name, row.order) == (each.name, each.order)
        assert row.hooks
        assert all(hasattr(each, hook) for hook in row.hooks)
        assert row.to_stream


# -- what it may do to a stream


class Plain(BaseAdvisor):
    def before(self, request: ChatRequest) -> ChatRequest:
        return request


class Answers(BaseAdvisor):
    async def before(self, request: ChatRequest) -> ChatRequest | ChatResponse:
        return request


class Awaits(BaseAdvisor):
    def before(self, request: ChatRequest) -> Awaitable[ChatRequest]:
        raise NotImplementedError


class Untold(BaseAdvisor):
    def before(self, request):
        return request


class Ends(BaseAdvisor):
    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        return response

    def done(self, request: ChatRequest, outcome: Any) -> None:
        return None


class Changes(BaseAdvisor):
    def transform(self, request: ChatRequest) -> Any:
        return None


class Around(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async for item in next(request):
            yield item


class CallOnly:
    name, order = "call", 0

    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        response: ChatResponse = await next(request)
        return response


@pytest.mark.parametrize(
    ("each", "may"),
    [
        (Plain(), "observe"),
        (Answers(), "cut short"),
        (Awaits(), "cut short"),  # it does not say so clearly
        (Untold(), "cut short"),
        (Ends(), "observe"),
        (Changes(), "change, hold back"),
        (Around(), "change, hold back, cut short"),
        (CallOnly(), "change, hold back, cut short"),
        (before(lambda request: request, name="lambda"), "cut short"),
        (after(lambda request, response: response, name="lambda"), "observe"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_hooks_allow(each: Any, may: str) -> None:
    assert ", ".join(row_of(each).to_stream) == may


@pytest.mark.parametrize(
    ("each", "said", "may"),
    [
        (Around(), "observe", "observe"),
        (Around(), ("hold back", "change"), "change, hold back"),
        (Around(), ["cut short"], "cut short"),
        (Untold(), "observe", "observe"),
        (Plain(), "cut short", "cut short"),  # its annotation is not all that there is
        (Changes(), "change", "change"),
        (Changes(), "cut short", "observe"),  # its hooks do not allow it
        (Ends(), "change", "observe"),
        (CallOnly(), "observe", "hold back"),  # whatever it says
        (Changes(), "something", "change, hold back"),  # it means something else
        (Changes(), 3, "change, hold back"),
        (Changes(), (), "change, hold back"),
        (Changes(), ("change", 3), "change, hold back"),
        (Changes(), ("change", []), "change, hold back"),
    ],
)
def test_an_advisor_may_say_less_and_never_more(each: Any, said: Any, may: str) -> None:
    kind = type(each)
    told = type(kind.__name__, (kind,), {"to_stream": said})()
    assert ", ".join(row_of(told).to_stream) == may


def test_annotations_that_cannot_be_read_say_nothing() -> None:
    class Late:
        built = False

        def __call__(self, request: ChatRequest) -> ChatRequest:
            return request

        @property
        def __annotations__(self) -> Any:
            if self.built:
                raise NameError("as of Python 3.14, where a name is not there")
            return {}

    late = Late()
    chain = AdvisorChain(ScriptedModel(), [before(late, name="late")])
    late.built = True
    assert chain.describe()[0].to_stream == ("cut short",)

    class Quoted(BaseAdvisor):
        def before(self, request: ChatRequest) -> ChatRequest:
            return request

    Quoted.before.__annotations__["return"] = ChatRequest
    assert row_of(Quoted()).to_stream == ("observe",)
    Quoted.before.__annotations__["return"] = ChatRequest | ChatResponse
    assert row_of(Quoted()).to_stream == ("cut short",)


READY = {
    "memory": (MessageChatMemoryAdvisor(ChatMemory()), "observe"),
    "cache": (CacheAdvisor(), "cut short"),
    "guard": (SafeGuardAdvisor(["x"]), "hold back, cut short"),
    "re_reading": (ReReadingAdvisor(), "observe"),
    "tools": (ToolCallingAdvisor(), "change"),
    "logger": (LoggingAdvisor(), "observe"),
    "redact": (RedactAdvisor(["email"]), "change, hold back"),
    "structured_output": (StructuredOutputAdvisor(int), "change"),
    "usage_limit": (UsageLimitAdvisor(calls=1), "cut short"),
    "fallback": (FallbackAdvisor(ScriptedModel()), "change"),
    "retry": (RetryAdvisor(), "observe"),
    "retry again": (RetryAdvisor(after_first_chunk="attempt"), "change"),
    "rate_limit": (RateLimitAdvisor(1, 1), "observe"),
    "rate_limit refusing": (RateLimitAdvisor(1, 1, max_wait=0), "cut short"),
    "concurrency_limit": (ConcurrencyLimitAdvisor(1), "observe"),
    "concurrency_limit refusing": (ConcurrencyLimitAdvisor(1, max_wait=0), "cut short"),
    "timeout": (TimeoutAdvisor(1, first_chunk=1), "cut short"),
    "recording": (RecordingAdvisor("x"), "observe"),
}


@pytest.mark.parametrize("name", READY)
def test_what_the_ready_advisors_may_do(name: str) -> None:
    each, may = READY[name]
    assert ", ".join(row_of(each).to_stream) == may


def test_what_repeats_is_told() -> None:
    rows = AdvisorChain(ScriptedModel(), [ToolCallingAdvisor(), RetryAdvisor(), Plain()]).describe()
    assert {row.name: row.repeats for row in rows} == {"tools": "round", "Plain": "", "retry": "attempt"}
