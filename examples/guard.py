"""A guard with hold-back: nothing is shown before it is judged, and what is refused is neither shown nor remembered.

Run: python examples/guard.py
"""

from collections.abc import AsyncIterator

import anyio

from advisorchain import AdvisorChain, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor, SafeGuardAdvisor
from advisorchain.memory import ChatMemory

ANSWERS = {
    "Is the cake ready?": ("It is in the sw", "ing. Take the sword, and cut", " it."),
    "What is the password?": ("Gladly. It is sw", "ordf", "ish, but tell nobody."),
}


async def model(request: ChatRequest) -> AsyncIterator[str]:
    for piece in ANSWERS[request.messages[-1].text]:
        yield piece


async def ask(chain: AdvisorChain, question: str) -> None:
    shown: list[str] = []
    async with chain.stream(question, conversation_id="spy") as stream:
        async for chunk in stream:
            if chunk.boundary == "attempt":  # what was shown no longer counts
                print("withdrawn:", shown)
                shown = []
            if chunk.text:
                shown.append(chunk.text)
    print("shown:    ", shown)
    print("response: ", stream.response.text, f"({stream.response.finish_reason})")


async def main() -> None:
    memory = ChatMemory()
    guard = SafeGuardAdvisor(["swordfish"], patterns=[r"\b\d{4}\b"], refusal="That I may not tell.")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), guard])
    for question in (*ANSWERS, "My pin is 1234."):
        print("asked:    ", question)
        await ask(chain, question)
    print("stored:   ", [message.text for message in await memory.get("spy")])


if __name__ == "__main__":
    anyio.run(main)
