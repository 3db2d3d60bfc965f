"""Calls are interrupted at each place where they wait."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from advisorchain.testing._law_interruption import cancel_at_each_wait, with_something_at


async def test_a_call_is_cancelled_at_each_of_its_waits() -> None:
    seen: list[list[str]] = []

    async def work() -> None:
        seen.append([])
        try:
            for place in ("first", "second", "third"):
                await anyio.sleep(0.001)
                seen[-1].append(place)
        except anyio.get_cancelled_exc_class():
            seen[-1].append("cancelled")
            raise

    async def begin(number: int) -> Any:
        assert number == len(seen)
        return work()

    async def look(number: int) -> None:
        assert number + 1 == len(seen)

    # Cancelled before it began it is cancelled where it first waits, which on trio is before it waits at all.
    assert await cancel_at_each_wait(begin, look) == len(seen) >= 5
    cut = [places[:-1] for places in seen if places[-1] == "cancelled"]
    assert [] in cut
    assert ["first"] in cut
    assert ["first", "second"] in cut
    assert seen[-1] == ["first", "second", "third"]


async def test_a_call_that_never_waits_is_made_twice() -> None:
    calls: list[int] = []

    async def begin(number: int) -> Any:
        async def work() -> None:
            calls.append(number)

        return work()

    async def look(number: int) -> None:
        assert calls[-1] == number

    assert await cancel_at_each_wait(begin, look) == len(calls) == 2


@pytest.mark.parametrize("place", [0, 2, 9])
async def test_something_happens_at_a_wait_or_after_the_call(place: int) -> None:
    seen: list[object] = []

    async def work() -> str:
        for number in range(4):
            await checkpoint()
            await checkpoint()
            seen.append(number)
        return "done"

    async def disturb() -> None:
        seen.append("disturbed")

    assert await with_something_at(place, work(), disturb) == "done"
    assert seen.index("disturbed") in {0: (0, 1), 2: (1, 2), 9: (4,)}[place]


async def test_what_a_disturbed_call_raises_is_given_back() -> None:
    async def work() -> None:
        await checkpoint()
        raise OSError("lost")

    async def disturb() -> None:
        pass

    outcome = await with_something_at(0, work(), disturb)
    assert isinstance(outcome, OSError)
