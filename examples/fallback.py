"""Two models: when the first fails, the second answers, with the same history, also in mid-stream.

Run: python examples/fallback.py
"""

from collections.abc import AsyncGenerator

import anyio

from advisorchain import AdvisorChain, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor, TimeoutAdvisor
from advisorchain.advisors.fallback import FallbackAdvisor
from advisorchain.memory import ChatMemory


async def large(request: ChatRequest) -> AsyncGenerator[str, None]:
    """It breaks off in the second turn."""
    yield "I am the large model. "
    if len(request.messages) > 1:
        raise ConnectionError("the line was cut")
    yield "Good day!"


async def small(request: ChatRequest) -> AsyncGenerator[str, None]:
    yield "I am the small model, "
    yield f"and I see {len(request.messages)} messages."


async def main() -> None:
    memory = ChatMemory()
    second = AdvisorChain(small, [TimeoutAdvisor(total=60, first_chunk=10)], name="small")  # its own limits
    fallback = FallbackAdvisor(second, after_first_chunk="attempt")
    chain = AdvisorChain(large, [MessageChatMemoryAdvisor(memory), fallback])
    for question in ("Hello?", "And now?"):
        async with chain.stream(question, conversation_id="demo") as stream:
            async for chunk in stream:
                if chunk.boundary == "attempt":  # what was shown does not count any more
                    print(" [withdrawn]")
                print(chunk.text, end="")
        print(f" -- {stream.response.model or 'large'}")
    print("stored:", (await memory.get("demo"))[-1].text)


if __name__ == "__main__":
    anyio.run(main)
