"""The laws of an advisor, tried through another door than AdvisorChain: what stands in front of a chain keeps them too."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.hooks import before
from advisorchain.memory import ChatMemory
from advisorchain.testing._law_checks import check_law
from advisorchain.testing.advisor_laws import _LAWS, _Bench

LAWS = tuple(_LAWS)


@before(order=7)
def nothing(request: Any) -> Any:
    return request


MAKE = {"hook": lambda: nothing, "memory": lambda: MessageChatMemoryAdvisor(ChatMemory())}


async def check_door(law: str, build: Callable[[Any, list[Any]], Any], make: Callable[[], Any]) -> None:
    bench = _Bench(make, "Count to four.", ("One, two, three, four.",), passes_errors=True, build=build)
    await check_law(law, partial(_LAWS[law], bench))


def without(*laws: str) -> Collection[str]:
    assert set(laws) < set(LAWS)
    return [law for law in LAWS if law not in laws]
