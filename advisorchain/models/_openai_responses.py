"""OpenAI's Responses API: what is asked and what is answered, as JSON dicts.

Nothing is stored there: each request has the whole history. Items of an answer that we have no name for, such as reasoning
with its encrypted content, are kept in the message's metadata and sent back in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from advisorchain.errors import InvalidInputError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ToolCallChunk
from advisorchain.models._openai_chat import stream_error
from advisorchain.models._openai_items import BETWEEN, message_items
from advisorchain.models._openai_options import extras_for, schema_dict, tool_choice, tool_dict, usage_of
from advisorchain.models._provider import SurrogateJoiner, no_answer

__all__ = ["ResponsesReader", "responses_body"]

_UNKNOWN_THERE: Final = ("stop", "seed", "presence_penalty", "frequency_penalty")
_REASONS: Final = {"max_output_tokens": "length"}  # others are told as they are


def responses_body(request: ChatRequest, *, model: str, host: str) -> dict[str, Any]:
    """What is asked, but for `extra`.

    Raises:
        InvalidInputError: an option that this API does not have, or sound by URL.
    """
    options = request.options
    _check_known(options)
    mode, tool = tool_choice(options)
    given = {
        "model": options.model or model,
        "input": [item for message in request.messages for item in message_items(message, host)],
        "store": False,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_output_tokens": options.max_tokens,
        "tools": [{"type": "function", "strict": None, **tool_dict(each)} for each in options.tools] or None,
        "tool_choice": {"type": "function", "name": tool} if tool else mode,
    }
    if options.output is not None:
        given["text"] = {"format": {"type": "json_schema", **schema_dict(options.output)}}
    return {name: value for name, value in given.items() if value is not None}


def _check_known(options: ChatOptions) -> None:
    for name in _UNKNOWN_THERE:
        if getattr(options, name) not in (None, ()):
            raise InvalidInputError(
                f'`options.{name}` is nothing that the Responses API knows; leave it out, or use api="chat"'
            )


class ResponsesReader:
    """Makes our chunks of the events of one answer, or of a whole answer.

    Attributes:
        finished: whether the answer's end has come.
    """

    def __init__(self, name: str, host: str) -> None:
        self.finished = False
        self._name = name
        self._host = host
        self._joiners: dict[object, SurrogateJoiner] = {}
        self._places: dict[str, Any] = {}  # of text and reasoning: which of several is coming in
        self._calls: dict[object, int] = {}  # the place of a call, by its item
        self._argued: set[object] = set()  # calls with arguments
        self._items: list[dict[str, Any]] = []
        self._characters: dict[object, int] = {}  # of each message

    def whole(self, answer: Mapping[str, Any]) -> list[ChatChunk]:
        """The chunks of an answer that was not streamed."""
        if not isinstance(answer.get("output"), list):
            raise no_answer(self._name)
        return [chunk for event in _events(answer) if (chunk := self.read(event)) is not None]

    def read(self, event: Mapping[str, Any]) -> ChatChunk | None:
        """The chunk of an event, or None where it tells nothing."""
        kind = event.get("type")
        if kind == "response.output_text.delta":
            return self._text(event)
        if kind == "response.refusal.delta":
            text = self._joined("refusal", event["delta"])
            return ChatChunk(refusal=text) if text else None
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return self._thought(event)
        if kind == "response.function_call_arguments.delta":
            return self._arguments(event.get("item_id"), event["delta"])
        if kind == "response.output_item.added":
            return self._item_begun(event["item"])
        if kind == "response.output_item.done":
            return self._item_done(event["item"])
        if kind == "response.created":
            told = event["response"]
            return ChatChunk(metadata={"id": told.get("id"), "model": told.get("model")})
        if kind in ("response.completed", "response.incomplete"):
            return self._finish(event["response"])
        if kind in ("error", "response.failed"):
            raise stream_error(self._name, event.get("error") or event.get("response", event).get("error") or event)
        return None

    def _joined(self, kind: object, text: str) -> str:
        return self._joiners.setdefault(kind, SurrogateJoiner()).feed(text)

    def _rest(self, kind: str) -> str:
        return self._joiners[kind].flush() if kind in self._joiners else ""

    def _gap(self, kind: str, place: object) -> str:
        """What stands before a piece: nothing, unless another message or paragraph begins with it."""
        before, self._places[kind] = self._places.get(kind), place
        return BETWEEN if before not in (None, place) else ""

    def _text(self, event: Mapping[str, Any]) -> ChatChunk | None:
        text = self._joined("text", event["delta"])
        if not text:
            return None
        place = event.get("item_id")
        self._characters[place] = self._characters.get(place, 0) + len(text)
        return ChatChunk(self._gap("text", place) + text)

    def _thought(self, event: Mapping[str, Any]) -> ChatChunk | None:
        text = self._joined("reasoning", event["delta"])
        place = event.get("item_id"), event["type"], event.get("summary_index"), event.get("content_index")
        return ChatChunk(reasoning=self._gap("reasoning", place) + text) if text else None

    def _item_begun(self, item: Mapping[str, Any]) -> ChatChunk | None:
        if item.get("type") != "function_call":
            return None
        key = item.get("id")
        self._calls[key] = len(self._calls)
        if item.get("arguments"):
            self._argued.add(key)
        piece = ToolCallChunk(self._calls[key], item["call_id"], item["name"], item.get("arguments") or None)
        return ChatChunk(tool_calls=(piece,))

    def _arguments(self, key: object, text: str) -> ChatChunk | None:
        self._argued.add(key)
        text = self._joined(key, text)
        return ChatChunk(tool_calls=(ToolCallChunk(self._calls[key], arguments=text),)) if text else None

    def _item_done(self, item: Mapping[str, Any]) -> ChatChunk | None:
        self._items.append(dict(item))
        key, arguments = item.get("id"), item.get("arguments")
        if item.get("type") == "function_call" and arguments and key not in self._argued:
            return self._arguments(key, arguments)  # a server that does not stream them
        return None

    def _finish(self, response: Mapping[str, Any]) -> ChatChunk:
        self.finished = True
        reason = "tool_calls" if self._calls else "stop"
        if response.get("status") == "incomplete":
            told = (response.get("incomplete_details") or {}).get("reason") or "incomplete"
            reason = _REASONS.get(told, told)
        model = {"id": response.get("id"), "model": response.get("model")}
        return ChatChunk(
            self._rest("text"),
            reasoning=self._rest("reasoning") or None,
            refusal=self._rest("refusal") or None,
            finish_reason=reason,
            usage=usage_of(response.get("usage"), "input", "output"),
            metadata={**model, **extras_for(self._host, self._extras())},
        )

    def _extras(self) -> dict[str, Any]:
        """The items to be kept; nothing where our message says it all."""
        kept = [each for item in self._items if (each := self._kept(item)).get("characters") != 0]
        begins = kept[:1] and kept[0]["type"] == "message" and "phase" not in kept[0]
        rest = kept[1:] if begins else kept
        return {} if all(item["type"] == "function_call" for item in rest) else {"items": kept}

    def _kept(self, item: Mapping[str, Any]) -> dict[str, Any]:
        if item["type"] == "message":
            phase = {"phase": item["phase"]} if item.get("phase") else {}
            return {"type": "message", "characters": self._characters.get(item.get("id"), 0), **phase}
        if item["type"] == "function_call":
            return {"type": "function_call", "call_id": item["call_id"]}
        return {name: value for name, value in item.items() if value is not None and name != "status"}


def _events(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events that would have streamed this answer."""
    for place, item in enumerate(answer["output"]):
        unnamed = item.get("type") in ("message", "function_call") and not item.get("id")
        named = {**item, "id": f"item {place}"} if unnamed else item
        yield {"type": "response.output_item.added", "item": {**named, "arguments": ""}}
        for kind, parts in (("content", item.get("content")), ("summary", item.get("summary"))):
            for number, part in enumerate(parts or ()):
                yield {"item_id": named.get("id"), f"{kind}_index": number, **_delta(part)}
        yield {"type": "response.output_item.done", "item": named}
    kind = {"completed": "completed", "incomplete": "incomplete"}.get(answer.get("status") or "completed", "failed")
    yield {"type": f"response.{kind}", "response": answer}


def _delta(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"summary_text": "reasoning_summary_text", "reasoning_text": "reasoning_text"}.get(part["type"], part["type"])
    return {"type": f"response.{kind}.delta", "delta": part.get("refusal") or part.get("text") or ""}
