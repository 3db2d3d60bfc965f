"""A chat endpoint with server-sent events: a conversation a user, a guard, a spare model; a partial answer is kept.
Run: pip install fastapi uvicorn && uvicorn --app-dir examples fastapi_sse:app
Ask: curl -N localhost:8000/chat -H "Authorization: Bearer of-ada" --json '{"text": "Hi"}'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from advisorchain import AdvisorChain, AdvisorChainError, ChatRequest, ChatStream
from advisorchain.advisors import FallbackAdvisor, MessageChatMemoryAdvisor, SafeGuardAdvisor
from advisorchain.memory import ChatMemory, MessageWindow, open_repository

USERS = {"of-ada": "ada", "of-bob": "bob"}  # yours: a session, a signed token, …


async def model(request: ChatRequest) -> str:  # yours: a model of a provider
    raise ConnectionError("it cannot be reached")


async def spare(request: ChatRequest) -> str:  # yours: another one
    return f"The spare model sees {len(request.messages)} messages."


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with open_repository("sqlite:///chat.db") as repository:
        memory = MessageChatMemoryAdvisor(ChatMemory(MessageWindow(20), repository))
        async with AdvisorChain(model, [memory, SafeGuardAdvisor(["password"]), FallbackAdvisor(spare)]) as app.state.chain:
            yield


app = FastAPI(lifespan=lifespan)
Text = Annotated[str, Body(embed=True, pattern=r"\S", max_length=10_000)]


def user(authorization: Annotated[str, Header()] = "") -> str:
    if name := USERS.get(authorization.removeprefix("Bearer ")):
        return name
    raise HTTPException(401)


async def answer(text: Text, name: Annotated[str, Depends(user)], request: Request) -> AsyncIterator[ChatStream]:
    async with request.app.state.chain.stream(text, conversation_id=f"user-{name}") as stream:  # by who asks, not what
        yield stream  # being a dependency's, it is left when its reader is gone


@app.post("/chat", response_class=EventSourceResponse)
async def chat(stream: Annotated[ChatStream, Depends(answer)]) -> AsyncIterator[ServerSentEvent]:
    try:
        async for chunk in stream:
            if chunk.text or chunk.boundary:  # what a guard holds back says nothing yet
                yield ServerSentEvent(data=chunk.text, event=chunk.boundary)  # "attempt": what was shown no longer counts
        yield ServerSentEvent(event="end", data=stream.response.finish_reason or "stop")
    except AdvisorChainError:
        yield ServerSentEvent(event="error", data="Please ask again.")
