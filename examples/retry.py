"""An around advisor: ask the rest of the chain again, but only while nothing has been shown.

Run: python examples/retry.py
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio

from advisorchain import AdvisorChain, AroundAdvisor, ChatRequest, Next, StreamItem


class RetryOnce(AroundAdvisor):
    """Written once, it serves calls and streams: in a call, `next` gives one chunk and the response."""

    name = "retry"
    order = 100

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        shown = False
        try:
            async with aclosing(next(request)) as items:
                async for item in items:
                    shown = True
                    yield item
        except ConnectionError as error:
            if shown:
                raise
            print(f"[{error}; once more]")
            async with aclosing(next(request)) as items:
                async for item in items:
                    yield item


class Flaky:
    """A model that fails the first time."""

    name, provider = "flaky", "examples"
    asked = 0

    async def call(self, request: ChatRequest) -> str:
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("the line is busy")
        return "Now I can hear you."


async def main() -> None:
    print((await AdvisorChain(Flaky(), [RetryOnce()]).call("Hello?")).text)
    async with AdvisorChain(Flaky(), [RetryOnce()]).stream("Hello?") as stream:
        print("".join([chunk.text async for chunk in stream]))


if __name__ == "__main__":
    anyio.run(main)
