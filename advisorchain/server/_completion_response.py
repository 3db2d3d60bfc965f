"""What a client is told: responses and chunks as the JSON of chat completions.

What that form cannot say, and what is done instead:

- Messages of a loop. A call gives the final message alone. A stream gives the text of all, a blank line between them; the
  chunk where one begins has `"advisorchain": {"boundary": "round"}`, a field that clients who do not know it pass over.
- A withdrawn attempt. What was sent stays sent; the new attempt follows after a blank line, marked by
  `"advisorchain": {"boundary": "attempt", "withdraws": n}`. Where an answer of a JSON schema is asked for, that would be no
  JSON any more: there the text is sent in one piece, when it is whole.
- Tool calls that the chain runs itself, and their results. They are not sent. Those of the final message are, when it is
  whole: not before then is it known that they are the client's to run.
- A pause: a tool of the chain needs a person's yes. The answer ends with finish_reason "stop" and has
  `"advisorchain": {"paused": [{"id": …, "name": …}, …]}`, the calls that wait, on the whole answer or on the last piece of a
  stream. None of its tool calls is sent, for the client would take them for its own. It cannot go on by this endpoint: an
  advisor around the tool loop takes `response.pause`, and the application resumes it.
- A branch: another turn of the conversation was under way, and the memory's rule is `Fork`. The answer, or the last piece of
  a stream, has `"advisorchain": {"conversation_id": …}`: the conversation that this turn is kept in.
- Usage that was not told. It is left out; a counter that is missing beside others is 0.
"""

from __future__ import annotations

import time
from typing import Any, Final
from uuid import uuid4

from advisorchain.advisors.chat_memory import MEMORY_CONVERSATION_ID
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.messages import Usage

__all__ = ["Answer", "Deltas"]

# OpenAI's words, and those of other providers that mean one of them.
_REASONS: Final = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


class Answer:
    """One answer in OpenAI's form: the same id, time and model in everything that is told of it."""

    def __init__(self, model_name: str) -> None:
        self._id: Final = f"chatcmpl-{uuid4().hex}"
        self._created: Final = int(time.time())
        self._model: Final = model_name

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        """The answer to a call."""
        message = response.message
        calls = _tool_calls(response)
        told: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
        told["refusal"] = message.refusal
        if message.reasoning is not None:
            told["reasoning_content"] = message.reasoning
        if calls:
            told["tool_calls"] = calls
        choice = {"index": 0, "message": told, "logprobs": None, "finish_reason": _reason(response)}
        whole = {**self._head("chat.completion"), "choices": [choice], **_marked(_beside(response))}
        return whole if response.usage is None else {**whole, "usage": _usage(response.usage)}

    def delta(
        self, delta: dict[str, Any], finish_reason: str | None = None, mark: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A piece of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **_marked(mark)}

    def usage(self, usage: Usage) -> dict[str, Any]:
        """The piece that tells the usage."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


class Deltas:
    """The pieces of one streamed answer.

    Args:
        held: send the text in one piece, at the end.
    """

    def __init__(self, answer: Answer, *, held: bool) -> None:
        self._answer = answer
        self._held = held
        self._spoke = False  # whether text of the message that is under way, or of one before it, was sent
        self._parted = False  # whether a message began since

    def first(self) -> dict[str, Any]:
        """What every stream begins with."""
        return self._answer.delta({"role": "assistant", "content": ""})

    def of(self, chunk: ChatChunk) -> dict[str, Any] | None:
        """A chunk as a piece; None: nothing of it is for the client."""
        delta: dict[str, Any] = {}
        if chunk.reasoning:
            delta["reasoning_content"] = chunk.reasoning
        if chunk.refusal:
            delta["refusal"] = chunk.refusal
        mark: dict[str, Any] | None = None
        if chunk.boundary is not None:
            self._parted = self._spoke
            mark = {"boundary": chunk.boundary, **({"withdraws": chunk.withdraws} if chunk.withdraws else {})}
        if chunk.text and not self._held:
            delta["content"] = ("\n\n" if self._parted else "") + chunk.text
            self._spoke, self._parted = True, False
        return self._answer.delta(delta, mark=mark) if delta or mark else None

    def last(self, response: ChatResponse, *, include_usage: bool) -> list[dict[str, Any]]:
        """What the stream ends with."""
        pieces = []
        if self._held and response.text:
            pieces.append(self._answer.delta({"content": response.text}))
        if calls := _tool_calls(response):
            indexed = [{"index": place, **call} for place, call in enumerate(calls)]
            pieces.append(self._answer.delta({"tool_calls": indexed}))
        pieces.append(self._answer.delta({}, _reason(response), _beside(response)))
        if include_usage and response.usage is not None:
            pieces.append(self._answer.usage(response.usage))
        return pieces


def _marked(mark: dict[str, Any] | None) -> dict[str, Any]:
    return {} if mark is None else {"advisorchain": mark}


def _beside(response: ChatResponse) -> dict[str, Any] | None:
    """What OpenAI's form has no place for."""
    told: dict[str, Any] = {}
    if response.pause is not None:
        told["paused"] = [{"id": call.id, "name": call.name} for call in response.pause.open_calls]
    if isinstance(branch := response.context.get(MEMORY_CONVERSATION_ID), str):
        told["conversation_id"] = branch
    return told or None


def _tool_calls(response: ChatResponse) -> list[dict[str, Any]]:
    if response.pause is not None:
        return []
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in response.message.tool_calls
    ]


def _reason(response: ChatResponse) -> str:
    if response.message.tool_calls and response.pause is None:
        return "tool_calls"
    return _REASONS.get(response.finish_reason or "", "stop")


def _usage(usage: Usage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total_tokens or (usage.input_tokens or 0) + (usage.output_tokens or 0),
    }
    if usage.cached_tokens is not None:
        told["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        told["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return told
