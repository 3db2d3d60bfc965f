"""The path that is drawn is the one that a request takes: compared with what ran."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
from hypothesis import example, given, settings

from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatRequest
from advisorchain.explain import Moment

from ._chains import Entry, advisor, plans

ALL = frozenset({"before", "transform", "after", "done"})
BETWEEN = [("outer", 0, "hooks", ALL), ("middle", 1, "call", ALL), ("inner", 2, "hooks", ALL), ("deep", 3, "both", ALL)]


def built(given_plans: list[Any], log: list[Entry], *, stream: bool) -> AdvisorChain:
    """The chain, whose advisors write down what runs; inside of one that serves calls only nothing is streamed."""

    async def model(request: ChatRequest) -> AsyncIterator[str]:
        log.append(("model", "stream" if stream and not called else "call", "model"))
        yield "some "
        yield "words"

    called, advisors = False, []
    for plan in sorted(given_plans, key=lambda plan: plan[1]):
        advisors.append(advisor(*plan, log=log, streamed=stream and not called))
        called = called or plan[2] == "call"
    return AdvisorChain(model, advisors)


def drawn(moments: tuple[Moment, ...]) -> list[Entry]:
    return [(moment.name, moment.hook, moment.way) for moment in moments]


@settings(deadline=None, max_examples=75)
@given(plans())
@example(BETWEEN)
def test_a_call_takes_the_path_that_is_told(given_plans: list[Any]) -> None:
    log: list[Entry] = []
    chain = built(given_plans, log, stream=False)
    anyio.run(chain.call, "q")
    assert drawn(chain.explain().path(stream=False)) == log


@settings(deadline=None, max_examples=75)
@given(plans())
@example(BETWEEN)
def test_a_stream_takes_the_path_that_is_told(given_plans: list[Any]) -> None:
    log: list[Entry] = []
    chain = built(given_plans, log, stream=True)

    async def read() -> None:
        async with chain.stream("q") as stream:
            async for _ in stream:
                pass

    anyio.run(read)
    # one that serves calls only has its chunk made by the chain
    moments = [entry for entry in drawn(chain.explain().path()) if entry[1:] != ("advise_call", "chunks")]
    assert sorted(moments) == sorted(log)
    assert [entry for entry in moments if entry[1] != "advise_call"] == [entry for entry in log if entry[1] != "advise_call"]


def test_moments_are_numbered_and_know_their_advisor() -> None:
    chain = built(BETWEEN, [], stream=True)
    for stream in (False, True):
        moments = chain.explain().path(stream=stream)
        assert [moment.number for moment in moments] == list(range(1, len(moments) + 1))
        assert all(moment.index is None or chain.advisors[moment.index].name == moment.name for moment in moments)
