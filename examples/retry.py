"""Ask again when the model fails, as long as nothing was shown. The waiting is tenacity's (extra `retry`).

Run: python examples/retry.py
"""

import anyio
from tenacity import RetryCallState

from advisorchain import AdvisorChain, ChatRequest
from advisorchain.advisors.retry import RetryAdvisor


class Flaky:
    """A model that fails the first time."""

    name, provider = "flaky", "examples"
    asked = 0

    async def call(self, request: ChatRequest) -> str:
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("the line is busy")
        return "Now I can hear you."


def wait(state: RetryCallState) -> float:
    """Seconds until the next attempt. Leave it out for a random time that grows, or take one of tenacity's `wait_…`."""
    print(f"[{state.outcome and state.outcome.exception()}; once more]")
    return 0


async def main() -> None:
    retry = RetryAdvisor(attempts=4, wait=wait)
    print((await AdvisorChain(Flaky(), [retry]).call("Hello?")).text)
    async with AdvisorChain(Flaky(), [retry]).stream("Hello?") as stream:
        print("".join([chunk.text async for chunk in stream]))


if __name__ == "__main__":
    anyio.run(main)
