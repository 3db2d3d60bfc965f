"""Asking a chain the same way in a call and in a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatResponse


@pytest.fixture(params=["call", "stream"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(mode: str) -> Callable[..., Awaitable[ChatResponse]]:
    """The whole response, by a call or by a stream that is read to its end."""

    async def asked(chain: AdvisorChain, prompt: Any = "question", **more: Any) -> ChatResponse:
        if mode == "call":
            return await chain.call(prompt, **more)
        async with chain.stream(prompt, **more) as stream:
            async for _ in stream:
                pass
            return stream.response

    return asked
