"""A memory that outlives the process. Run it twice.

Run: python examples/sqlite_memory.py [FILE]
"""

import sys

import anyio

from advisorchain import AdvisorChain, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory, MessageWindow, open_repository


async def model(request: ChatRequest) -> str:
    return f"I see {len(request.messages)} messages."


async def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "memory.db"
    async with open_repository(f"sqlite:///{path}") as repository:
        memory = ChatMemory(MessageWindow(6), repository)
        chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory)])
        for question in ("First.", "Second."):
            response = await chain.call(question, conversation_id="demo")
            print(f"{question} -> {response.text}")
        print(f"{await memory.count('demo')} messages are in {path}; the model sees at most 6 of them.")


if __name__ == "__main__":
    anyio.run(main)
