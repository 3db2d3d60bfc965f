"""`aggregate.json`: chunks become one response."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from advisorchain.advisor import BaseAdvisor
from advisorchain.aggregate import fold_chunks
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import Usage

from ._expecting import Result, check_tool_calls
from ._program import Program
from ._reading import Fields, chunks_of, usage_of


class _Callback(BaseAdvisor):
    """What upstream calls at the end of an aggregation."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[int] = []  # after how many chunks

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        self.calls.append(len(self.seen))
        return response


class AggregateProgram(Program):
    """Chunks are streamed through a chain, and folded once more by themselves."""

    operations = ("aggregate", "add_round")

    async def set_up(self, given: Fields) -> None:
        self._given = given.take("chunks", ())
        self._chunks: list[ChatChunk] = []
        self._total: Usage | None = None
        self._callback = _Callback()

    async def do_aggregate(self, step: Fields) -> ChatResponse:
        self._chunks = chunks_of(self._given)

        async def model(request: ChatRequest) -> AsyncIterator[ChatChunk]:
            for chunk in self._chunks:
                yield chunk

        async with AdvisorChain(model, [self._callback]).stream("hi") as stream:
            async for chunk in stream:
                self._callback.seen.append(chunk.text)
        assert _without_made_ids(stream.response) == _without_made_ids(fold_chunks(self._chunks))
        return stream.response

    async def do_add_round(self, step: Fields) -> None:
        usage = usage_of(step.take("usage"))
        if usage is not None:
            self._total = usage if self._total is None else self._total + usage

    async def check(self, result: Result, expect: Fields) -> None:
        if "usage" in expect:
            usage = self._total if result.value is None else result.value.usage
            # upstream has no usage that is not told: there it is three zeros
            wanted = usage_of(expect.take("usage"))
            assert usage == wanted or (usage is None and wanted == Usage(0, 0, 0))
        if "forwarded" in expect:
            assert self._callback.seen == expect.take("forwarded")
        if "callback_calls" in expect:
            assert len(self._callback.calls) == expect.take("callback_calls")
        if "callback_after_last" in expect:
            assert (self._callback.calls == [len(self._chunks)]) is expect.take("callback_after_last")
        _check_response(result.value, expect)


def _without_made_ids(response: ChatResponse) -> ChatResponse:
    """A call that came without an id gets another one each time."""
    calls = [
        replace(call, id=f"made_{place}") if re.fullmatch("call_[0-9a-f]{16}", call.id) else call
        for place, call in enumerate(response.message.tool_calls)
    ]
    return response.replace(message=replace(response.message, tool_calls=tuple(calls)))


def _check_response(response: Any, expect: Fields) -> None:
    for key in ("text", "finish_reason", "model", "id"):
        if key in expect:
            assert getattr(response, key) == expect.take(key)
    for key in ("reasoning", "refusal"):
        if key in expect:
            assert getattr(response.message, key) == expect.take(key)
    if "tool_calls" in expect:
        check_tool_calls(response.message, expect.take("tool_calls"))
    if "rate_limit" in expect:
        assert response.metadata.get("rate_limit") == expect.take("rate_limit")
    if "metadata" in expect:
        beside = {key: value for key, value in response.metadata.items() if key != "rate_limit"}
        own = {key: value for key in ("id", "model") if (value := getattr(response, key)) is not None}
        assert {**beside, **own} == expect.take("metadata")
