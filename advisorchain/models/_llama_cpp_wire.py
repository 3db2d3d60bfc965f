"""What llama.cpp is asked and what it answers: dicts in the form of OpenAI's chat API, and our values."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from advisorchain.errors import ContextLengthError, InvalidInputError, ModelError, kind_of
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest
from advisorchain.messages import AssistantMessage, Message, RefusalPart, TextPart, ToolMessage
from advisorchain.models._openai_options import usage_of

__all__ = ["ChunkReader", "request_body"]

_MAX_TOKENS: Final = 200
_SEED: Final = 1


def request_body(request: ChatRequest, *, stop: tuple[str, ...]) -> dict[str, Any]:
    """What to ask; `stop` is added to the request's own, unless the answer has a form: a line's end is no end of JSON.

    Raises:
        InvalidInputError: the request has images, sounds, files or tools.
    """
    if request.options.tools:
        raise InvalidInputError("`options.tools` are given, but `LlamaCppModel` calls no tools; leave them out")
    form = request.options.output
    return {
        "messages": [{"role": message.role, "content": _text(message)} for message in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # a sign of life for each batch of the prompt, so that reading it can be stopped
        **({"json_schema": form.schema} if form is not None else {}),
        **_sampling(request.options, () if form is not None else stop),
    }


class ChunkReader:
    """Makes our chunks of llama.cpp's, which have the form of OpenAI's."""

    def __init__(self, name: str, *, trim_start: bool) -> None:
        self.finished = False
        self._name = name
        self._trim_start = trim_start
        self._told = False

    def read(self, piece: dict[str, Any] | Exception) -> ChatChunk | None:
        """A chunk, or None where the piece tells nothing."""
        if isinstance(piece, Exception):
            raise self._refused(type(piece).__name__) from piece
        if "error" in piece:
            raise self._failed(piece["error"])
        choice = piece["choices"][0] if piece.get("choices") else {}
        delta = choice.get("delta") or {}
        text, reasoning = self._trimmed(delta.get("content") or ""), delta.get("reasoning_content") or None
        finish_reason, usage = choice.get("finish_reason"), usage_of(piece.get("usage"), "prompt", "completion")
        self.finished = self.finished or finish_reason is not None
        if not (text or reasoning or finish_reason or usage):
            return None
        metadata = None if self._told else {"id": piece.get("id"), "model": self._name}
        self._told = True
        return ChatChunk(text, reasoning=reasoning, finish_reason=finish_reason, usage=usage, metadata=metadata)

    def _trimmed(self, text: str) -> str:
        if self._trim_start:  # the blank between "Assistant:" and what it says
            text = text.lstrip()
            self._trim_start = not text
        return text

    def _failed(self, error: Mapping[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            needed, room = error.get("n_prompt_tokens"), error.get("n_ctx")
            return ContextLengthError(
                f"the prompt has {needed} tokens, but the context of `{self._name}` has {room}; "
                "give a larger `context_length`, or let memory recall fewer messages"
            )
        if error.get("code") == HTTPStatus.BAD_REQUEST:
            return self._refused(error.get("type"))
        return ModelError(f"`{self._name}` failed ({error.get('type')}, code {error.get('code')})")

    def _refused(self, kind: object) -> ModelError:
        return ModelError(f"`{self._name}` refused the request ({kind}); check the options")


def _text(message: Message) -> str:
    if isinstance(message, ToolMessage) or (isinstance(message, AssistantMessage) and message.tool_calls):
        raise InvalidInputError("`messages` hold a tool call or its result; `LlamaCppModel` is given texts only")
    text = message.content if isinstance(message.content, str) else "".join(_part_text(part) for part in message.content)
    if isinstance(message, AssistantMessage) and not text:
        return message.refusal or ""
    return text


def _part_text(part: object) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, RefusalPart):
        return part.refusal
    raise InvalidInputError(f"`messages` hold {kind_of(part)}; `LlamaCppModel` is given texts only")


def _sampling(options: ChatOptions, stop: tuple[str, ...]) -> dict[str, Any]:
    given = {
        "temperature": 0.0 if options.temperature is None else options.temperature,
        "seed": _SEED if options.seed is None else options.seed,
        "max_tokens": options.max_tokens or _MAX_TOKENS,
        "top_p": options.top_p,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "stop": [*stop, *options.stop] or None,
    }
    return {**{name: value for name, value in given.items() if value is not None}, **options.extra}
