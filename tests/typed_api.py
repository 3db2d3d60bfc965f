"""What a type checker says of the public API; mypy reads this file, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from advisorchain import (
    AdvisorChain,
    ChatChunk,
    ChatClient,
    ChatRequest,
    ChatResponse,
    ChatStream,
    SyncChatClient,
    TypedResponse,
)
from advisorchain.client import ClientStream, TypedStream
from advisorchain.output import OutputType
from advisorchain.sync_client import SyncStream, SyncTypedStream
from advisorchain.tools import tool


class City:
    name: str


async def chain_asks(chain: AdvisorChain) -> None:
    assert_type(await chain.call("hi", timeout=1), ChatResponse)
    async with chain.stream("hi") as stream:
        assert_type(stream, ChatStream)
        async for chunk in stream:
            assert_type(chunk, ChatChunk)
        assert_type(stream.partial, ChatResponse | None)


async def client_asks(client: ChatClient) -> None:
    assert_type(await client.call("hi"), ChatResponse)
    assert_type(await client.call("hi", output_type=City), TypedResponse[City])
    assert_type((await client.call("hi", output_type=OutputType(City), conversation_id="c")).output, City)
    assert_type(await client.call("hi", output_type=City | None), TypedResponse[Any])
    assert_type(client.stream("hi"), ClientStream)
    assert_type(client.stream("hi", output_type=City), TypedStream[City])
    async with client.stream("hi", output_type=OutputType(City)) as stream:
        assert_type(stream, TypedStream[City])
        assert_type(stream.response.output, City)
        assert_type(stream.partial, TypedResponse[City] | None)


def sync_client_asks(client: SyncChatClient) -> None:
    assert_type(client.call("hi"), ChatResponse)
    assert_type(client.call("hi", output_type=City), TypedResponse[City])
    assert_type(client.call("hi", output_type=City | None), TypedResponse[Any])
    assert_type(client.stream("hi"), SyncStream)
    with client.stream("hi", output_type=City) as stream:
        assert_type(stream, SyncTypedStream[City])
        assert_type(stream.output, City)


def models_are_functions(request: ChatRequest) -> None:
    async def answer(request: ChatRequest) -> str:
        return "fine"

    AdvisorChain(answer)
    AdvisorChain(3)  # type: ignore[arg-type]
    ChatClient(answer, no_such_option=1)  # type: ignore[call-arg]


def tools_stay_functions() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    @tool(name="other")
    def minus(a: int) -> str:
        return str(-a)

    assert_type(add(1, 2), int)
    assert_type(minus(1), str)
    add("1", 2)  # type: ignore[arg-type]
