"""OpenAI's chat completions: what is asked and what is answered, as JSON dicts. Many other servers speak it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from advisorchain.errors import ModelError
from advisorchain.exchange import ChatChunk, ChatRequest, ToolCallChunk
from advisorchain.messages import AssistantMessage, Message
from advisorchain.models._openai_options import extras_for, extras_of, schema_dict, tool_choice, tool_dict, usage_of
from advisorchain.models._provider import SurrogateJoiner, no_answer, status_error
from advisorchain.openai_dicts import to_dicts

__all__ = ["ChatReader", "chat_body", "stream_error"]

_THOUGHTS: Final = ("reasoning_content", "reasoning")  # what compatible servers call it
_OF_A_CALL: Final = ("function", "id", "index", "type")


def chat_body(request: ChatRequest, *, model: str, max_tokens: str, host: str) -> dict[str, Any]:
    """What is asked, but for `extra`.

    Args:
        request: ours.
        model: whom to ask, where the options do not say.
        max_tokens: what the server calls the most tokens that it may answer.
        host: the server's.
    """
    options = request.options
    mode, tool = tool_choice(options)
    given = {
        "model": options.model or model,
        "messages": _messages(request.messages, host),
        "temperature": options.temperature,
        "top_p": options.top_p,
        max_tokens: options.max_tokens,
        "stop": list(options.stop) or None,
        "seed": options.seed,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "tools": [{"type": "function", "function": tool_dict(each)} for each in options.tools] or None,
        "tool_choice": {"type": "function", "function": {"name": tool}} if tool else mode,
    }
    if options.output is not None:
        given["response_format"] = {"type": "json_schema", "json_schema": schema_dict(options.output)}
    return {name: value for name, value in given.items() if value is not None}


def _messages(messages: Sequence[Message], host: str) -> list[dict[str, Any]]:
    made = to_dicts(messages)
    for message, written in zip(messages, made, strict=True):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            extras = extras_of(message, host)
            if message.reasoning and (field := extras.get("reasoning")):
                written[field] = message.reasoning  # models that think between tools go on from there
            for call in written["tool_calls"]:
                call.update(extras.get("calls", {}).get(call["id"], {}))
    return made


def stream_error(name: str, error: Any) -> ModelError:
    """What an error means that came as JSON in the middle of an answer."""
    told = error if isinstance(error, Mapping) else {}
    code = str(told.get("code") or "")
    return status_error(
        name,
        status=int(code) if code.isdecimal() and len(code) == 3 else None,
        code=code,
        kind=told.get("type"),
        param=told.get("param"),
        told=str(told.get("message") or ""),
    )


class ChatReader:
    """Makes our chunks of the pieces of one answer, or of a whole answer.

    Attributes:
        finished: whether the answer's end has come.
    """

    def __init__(self, name: str, host: str) -> None:
        self.finished = False
        self._name = name
        self._host = host
        self._told = False
        self._joiners: dict[object, SurrogateJoiner] = {}  # by what the text is for, or by a call's place
        self._thoughts: str | None = None
        self._calls: dict[int, dict[str, Any]] = {}  # what else is told of a call, by its place

    def whole(self, answer: Mapping[str, Any]) -> list[ChatChunk]:
        """The chunks of an answer that was not streamed."""
        choices = [_as_piece(choice) for choice in answer.get("choices") or ()]
        if not choices and not answer.get("error"):
            raise no_answer(self._name)
        chunk = self.read({**answer, "choices": choices})
        return [chunk] if chunk else []

    def read(self, piece: Mapping[str, Any]) -> ChatChunk | None:
        """The chunk of a streamed piece, or None where it tells nothing."""
        if piece.get("error"):
            raise stream_error(self._name, piece["error"])
        choice = piece["choices"][0] if piece.get("choices") else {}
        delta, reason = choice.get("delta") or {}, choice.get("finish_reason")
        said = {kind: self._joined(kind, delta.get(kind)) for kind in ("content", "refusal")}
        reasoning, calls = self._joined("reasoning", self._thought(delta)), self._call_pieces(delta)
        metadata: dict[str, Any] = {}
        if reason:
            self.finished = True
            said, reasoning = (
                {kind: text + self._rest(kind) for kind, text in said.items()},
                reasoning + self._rest("reasoning"),
            )
            metadata |= extras_for(self._host, self._extras())
        usage = usage_of(piece.get("usage"), "prompt", "completion")
        if not (any(said.values()) or reasoning or calls or reason or usage):
            return None
        if not self._told:
            metadata |= {"id": piece.get("id"), "model": piece.get("model")}
            self._told = True
        return ChatChunk(
            said["content"],
            reasoning=reasoning or None,
            refusal=said["refusal"] or None,
            tool_calls=calls,
            finish_reason=reason,
            usage=usage,
            metadata=metadata or None,
        )

    def _joined(self, kind: object, text: str | None) -> str:
        return self._joiners.setdefault(kind, SurrogateJoiner()).feed(text) if text else ""

    def _rest(self, kind: object) -> str:
        return self._joiners[kind].flush() if kind in self._joiners else ""

    def _thought(self, delta: Mapping[str, Any]) -> str | None:
        for field in _THOUGHTS:  # some tell it under both names
            if delta.get(field):
                self._thoughts = field
                return delta[field]  # type: ignore[no-any-return]
        return None

    def _call_pieces(self, delta: Mapping[str, Any]) -> tuple[ToolCallChunk, ...]:
        pieces = []
        for call in delta.get("tool_calls") or ():
            place, function = call.get("index"), call.get("function") or {}
            arguments = self._joined(("call", place), function.get("arguments"))
            pieces.append(ToolCallChunk(place, call.get("id") or None, function.get("name") or None, arguments or None))
            told = {key: value for key, value in call.items() if key not in _OF_A_CALL and value is not None}
            self._calls.setdefault(place, {}).update({**told, **({"id": call["id"]} if call.get("id") else {})})
        return tuple(pieces)

    def _extras(self) -> dict[str, Any]:
        if not self._calls:
            return {}
        calls = {told.pop("id", None): told for told in map(dict, self._calls.values())}
        kept = {call_id: told for call_id, told in calls.items() if call_id and told}
        thoughts = {"reasoning": self._thoughts} if self._thoughts else {}
        return {**thoughts, **({"calls": kept} if kept else {})}


def _as_piece(choice: Mapping[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    calls = [{**call, "index": place} for place, call in enumerate(message.get("tool_calls") or ())]
    return {"delta": {**message, "tool_calls": calls}, "finish_reason": choice.get("finish_reason")}
