"""A tool that needs a person's yes: one process asks and ends, another goes on with the decision.

    python examples/approval.py ask            # prints what waits for a yes, and stores the turn in pause.json
    python examples/approval.py yes | no       # goes on from there

Without an argument it does both, each in a process of its own.
"""

import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from advisorchain import ChatChunk, ChatRequest, SyncChatClient, ToolCallChunk, ToolMessage
from advisorchain.advisors import ToolCallingAdvisor, ToolPause
from advisorchain.tools import tool

STORE = Path("pause.json")


@tool(needs_approval=True)
def send_money(to: str, euros: int) -> str:
    """Send money from the user's account."""
    return f"sent {euros} euros to {to}"


async def model(request: ChatRequest) -> AsyncGenerator[ChatChunk | str, None]:
    """In place of a real one."""
    if isinstance(last := request.messages[-1], ToolMessage):
        yield f"The tool said: {last.text}"
    else:
        call = ToolCallChunk(0, "call_1", "send_money", '{"to": "Bo", "euros": 20}')
        yield ChatChunk(tool_calls=(call,), finish_reason="tool_calls")


def main(step: str) -> None:
    with SyncChatClient(model, advisors=[ToolCallingAdvisor([send_money])]) as client:
        if step == "ask":
            pause = client.call("Send Bo 20 euros.").pause
            assert pause is not None
            STORE.write_text(pause.dump(), encoding="utf-8")
            print("waits for a yes:", [(call.name, call.arguments) for call in pause.open_calls])
            return
        pause = ToolPause.load(STORE.read_text(encoding="utf-8"))
        STORE.unlink()  # resuming it twice would send twice
        ids = [call.id for call in pause.open_calls]
        decision = pause.resume(approve=ids) if step == "yes" else pause.resume(deny=dict.fromkeys(ids, "not today"))
        print(client.call(**decision).text)


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        for step in ("ask", "yes", "ask", "no"):
            subprocess.run([sys.executable, __file__, step], check=True)
