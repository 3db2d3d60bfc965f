"""A turn that waits for approval, in a process of its own: `ask STORE LOG` and `resume STORE LOG APPROVED DENIED`."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path

import anyio

from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.advisors.tool_calling import ToolCallingAdvisor, ToolPause
from advisorchain.chain import AdvisorChain
from advisorchain.memory import ChatMemory, SqliteChatMemoryRepository
from advisorchain.messages import dump_message
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ._tool_scripts import asks


async def main(command: str, store: str, log: str, *ids: str) -> None:
    def ran(name: str) -> str:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        return f"{name} done"

    @tool
    def look() -> str:
        """Look."""
        return ran("look")

    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return ran("pay")

    @tool(needs_approval=True)
    def delete() -> str:
        """Delete."""
        return ran("delete")

    script = [asks("look", "pay", "delete", text="May I?")] if command == "ask" else ["Paid."]
    async with aclosing(SqliteChatMemoryRepository(store)) as repository:
        memory = MessageChatMemoryAdvisor(ChatMemory(repository=repository), remember="turn")
        model = ScriptedModel(*script)
        chain = AdvisorChain(model, [memory, ToolCallingAdvisor([look, pay, delete])])
        if command == "ask":
            response = await chain.call("Clean up.", "c", system="Be careful.")
            assert response.pause is not None
            print(response.pause.dump(), flush=True)
            await anyio.sleep_forever()  # until it is killed
        approved, denied = ids
        pause = ToolPause.load(sys.stdin.read())
        response = await chain.call(**pause.resume(approve=[approved], deny={denied: "keep it"}))
        print(response.text)
        for message in (*model.prompts[0], *[entry.message for entry in (await repository.page("c", limit=100)).items]):
            print(dump_message(message))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
