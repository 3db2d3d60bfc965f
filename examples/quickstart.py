"""Compose, call and stream: a chain around a plain function, with a memory.

Run: python examples/quickstart.py
"""

from collections.abc import AsyncIterator

import anyio

from advisorchain import AdvisorChain, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory


async def model(request: ChatRequest) -> AsyncIterator[str]:
    """Any async generator of texts is a model. This one counts what it was sent."""
    said = [message.text for message in request.messages if message.role == "user"]
    for word in f"You said {len(said)} things; the first was: {said[0]}".split(" "):
        yield f"{word} "


async def main() -> None:
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory())])
    print(chain)

    response = await chain.call("My name is Ada", conversation_id="ada")
    print("call:  ", response.text)

    print("stream: ", end="")
    async with chain.stream("What is my name?", conversation_id="ada") as stream:
        async for chunk in stream:
            print(chunk.text, end="", flush=True)
    print()
    print("the same as one response:", stream.response.text)


if __name__ == "__main__":
    anyio.run(main)
