"""A time limit that an around advisor leaves open is told from what the reader's own limits do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.advisor import AroundAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.errors import AdvisorContractError
from advisorchain.exchange import ChatRequest
from advisorchain.testing import RecordingAdvisor, ScriptedModel


class Passing(AroundAdvisor):
    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


class Holds(AroundAdvisor):
    name = "x"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def around(self, request: ChatRequest, next: Any) -> Any:
        with anyio.move_on_after(self.seconds):
            async for item in next(request):
                yield item


@pytest.mark.parametrize("seconds", [0, 100])
async def test_a_limit_that_is_left_open_is_named_and_cancels_nobody_else(seconds: float) -> None:
    outer, model = RecordingAdvisor("a", -1), ScriptedModel(["one", "two"])
    async with AdvisorChain(model, [outer, Holds(seconds)]).stream("q") as stream:
        with pytest.raises(AdvisorContractError, match="`around` of advisor `x` yields inside a time limit"):
            async for _ in stream:
                await checkpoint()
    await checkpoint()  # nothing is left that would cancel the reader
    assert [outcome.status for outcome in outer.outcomes] == ["error"]
    assert model.open_streams == 0


async def test_the_reader_may_be_cancelled_during_the_first_pull() -> None:
    async def model(request: ChatRequest) -> Any:
        scope.cancel()
        yield "one"  # the chunk arrives all the same
        await checkpoint()
        yield "two"

    outer = RecordingAdvisor("a", -1)
    with anyio.CancelScope() as scope:
        async with AdvisorChain(model, [outer, Passing()]).stream("q") as stream:
            async for _ in stream:
                pass
    assert scope.cancelled_caught
    assert [outcome.status for outcome in outer.outcomes] == ["cancelled"]


async def test_the_readers_own_limit_may_move_during_the_first_pull() -> None:
    async def model(request: ChatRequest) -> Any:
        scope.deadline += 100
        yield "one"

    with anyio.fail_after(1000) as scope:
        async with AdvisorChain(model, [Passing()]).stream("q") as stream:
            assert [chunk.text async for chunk in stream] == ["one"]


@pytest.mark.parametrize("held", [anyio.CancelScope, lambda: anyio.CancelScope(shield=True)], ids=["scope", "shield"])
async def test_a_scope_without_a_limit_across_a_yield_is_named_too(held: Callable[[], Any]) -> None:
    class HoldsOpen(AroundAdvisor):
        name = "holds"

        async def around(self, request: ChatRequest, next: Any) -> Any:
            with held():
                async for item in next(request):
                    yield item

    async def model(request: ChatRequest) -> Any:
        yield "a"

    with pytest.raises(AdvisorContractError, match="`holds`"):
        async with AdvisorChain(model, [HoldsOpen()]).stream("q") as stream:
            async for _ in stream:
                pass
