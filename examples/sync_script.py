"""A script without async: a call, a stream, and what is remembered."""

from collections.abc import AsyncGenerator

from advisorchain import ChatRequest, SyncChatClient
from advisorchain.memory import ChatMemory


async def model(request: ChatRequest) -> AsyncGenerator[str, None]:
    questions = [message for message in request.messages if message.role == "user"]
    for word in f"You asked {len(questions)} questions.".split(" "):
        yield f"{word} "


with SyncChatClient(model, system="Be brief.", memory=ChatMemory()) as client:
    print("call:", client.call("Hello.", conversation_id="ada").text)
    with client.stream("How are you?", conversation_id="ada") as stream:
        for chunk in stream:
            print(chunk.text, end="|", flush=True)
    print()
    print("stored:", len(client.history("ada").items), "messages")
