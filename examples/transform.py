"""Text that is changed as it streams: what was shown, what the response says and what is stored agree.

Run: python examples/transform.py
"""

from collections.abc import AsyncIterator

import anyio

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest, TextTransform
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory

SECRET, MASK = "swordfish", "*********"


class Masking:
    """One for each answer. It holds back what may be the beginning of the secret, so that no chunk border can split it."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text = (self._held + text).replace(SECRET, MASK)
        longest = max((n for n in range(1, len(SECRET)) if text.endswith(SECRET[:n])), default=0)
        keep = len(text) - longest
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


class MaskAdvisor(BaseAdvisor):
    name = "mask"

    def transform(self, request: ChatRequest) -> TextTransform:
        return Masking()


async def model(request: ChatRequest) -> AsyncIterator[str]:
    for piece in ("The password is sw", "ordf", "ish. Tell no sword", "smith."):
        yield piece


async def main() -> None:
    memory = ChatMemory()
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), MaskAdvisor()])
    async with chain.stream("What is the password?", conversation_id="spy") as stream:
        print("shown:   ", [chunk.text async for chunk in stream])
    print("response:", stream.response.text)
    print("stored:  ", (await memory.get("spy"))[-1].text)


if __name__ == "__main__":
    anyio.run(main)
