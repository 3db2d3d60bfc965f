"""Placeholders in place of what the model must not see, and on request the originals again on the way out."""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from advisorchain.advisor import BaseAdvisor, TextTransform
from advisorchain.advisors._orders import REDACT_ORDER
from advisorchain.advisors._placeholders import Kinds, Placeholders
from advisorchain.advisors._ready_patterns import READY_PATTERNS
from advisorchain.advisors._stream_search import checked_pattern
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, FilePart, Message, Part, RefusalPart, TextPart, ToolCall, ToolMessage

__all__ = ["RedactAdvisor"]

NamedPattern: TypeAlias = str | tuple[str, str | re.Pattern[str]]


class RedactAdvisor(BaseAdvisor):
    """Gives the model placeholders, such as `[email-1]`, in place of what matches.

    They stand in every message that goes to the model: in text and refusals (also of parts), in the arguments of tool calls,
    in the names of files and of who speaks. One value has one placeholder in all of a request, its history too. Sent as they
    were: the reasoning of earlier answers and what providers keep in a message's metadata, since they sign it; what is
    in images, sound and files, and their URLs; the names of tools; and all of the options, such as the definitions of tools
    and an output schema, which the application writes. A value that is split between two parts of a message is not found.

    In the answer's text and tool calls, what matches is replaced too; what a model thinks (`reasoning`) or says when it
    declines (`refusal`) it can only have from the redacted prompt, and that is left alone: with the placeholders that it
    may have. With `restore`, placeholders in the answer become the originals again,
    in its text as it streams, in the arguments of its tool calls once they are whole (a stream's chunks of them have the
    placeholders): tools outside of this advisor then work on the originals. Without it they get placeholders.

    An answer of a wanted type (`options.output`) is JSON, and an original is put into it as JSON spells it. It is looked
    through as the model has written it, before any JSON is read: what has a letter spelt as an escape, such as an "@"
    by its number, is not found there, be it a match or a placeholder.

    Memory stands further out by default: it keeps the question as it was asked, and the answer as it left this advisor.
    Further in it would keep placeholders, and their numbers begin anew with each request.
    Anyone who can see the answer can have the model say a placeholder: restore nothing for readers who may not see it.

    Args:
        patterns: "email", "card" (13 to 19 digits with the right check digit) and "iban" (likewise) are ready; others are
            pairs of a name (letters, digits, "_", "-") and a regular expression. Of two that begin at one place the first
            given one counts.
        restore: whether the answer gets the originals back.
        name: unique in the chain.
        order: outside everything that may ask another model by default.

    Raises:
        ConfigurationError: no pattern, an unknown one, or one that cannot work.
    """

    hides_content = True  # so an advisor that may ask another model must stand further in
    changes_prompt = "placeholders"  # those of another request mean something else: memory must stand further out

    span_kind = "GUARDRAIL"

    def __init__(
        self,
        patterns: Iterable[NamedPattern],
        *,
        restore: bool = False,
        name: str = "redact",
        order: int = REDACT_ORDER,
    ) -> None:
        if isinstance(patterns, str) or not isinstance(patterns, Iterable):
            raise ConfigurationError(f'`patterns` is {kind_of(patterns)}; give a list, such as ["email", "card"]')
        given = [_checked(place, pattern) for place, pattern in enumerate(patterns)]
        if not given:
            raise ConfigurationError('`patterns` is empty; give at least one, such as "email"')
        if len({kind for kind, _, _ in given}) < len(given):
            raise ConfigurationError("`patterns` has one name twice; placeholders are told apart by it")
        named = [(kind, pattern, valid) for kind, compiled, valid in given for pattern in compiled]
        self.name = name
        self.order = order
        self.restore: Final = restore
        self._kinds: Final = Kinds(
            [kind for kind, _, _ in named], [pattern for _, pattern, _ in named], [valid for _, _, valid in named]
        )

    def before(self, request: ChatRequest) -> ChatRequest:
        """Put placeholders into the messages."""
        placeholders = Placeholders(self._kinds)
        if self.restore:
            for message in request.messages:
                _changed(message, placeholders.keep_free)
        messages = tuple(_changed(message, placeholders.hide) for message in request.messages)
        return request.replace(messages=messages, local={**request.local, self.name: placeholders})

    def transform(self, request: ChatRequest) -> TextTransform | None:
        """The answer's text: the originals again, or placeholders."""
        placeholders: Placeholders = request.local[self.name]
        if not self.restore:
            return placeholders.hiding()
        return placeholders.restoring(in_json=request.options.output is not None)

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        """The same for the arguments of tool calls."""
        placeholders: Placeholders = request.local[self.name]
        calls = _changed_calls(response.message.tool_calls, placeholders.show if self.restore else placeholders.hide)
        if calls == response.message.tool_calls:
            return response
        return response.replace(message=replace(response.message, tool_calls=calls))


def _changed(message: Message, change: Callable[[str], str]) -> Message:
    """A message, each text in it changed that a model is sent; itself, where none is another one."""
    content = message.content
    changes: dict[str, Any] = {
        "content": change(content) if isinstance(content, str) else tuple(_changed_part(part, change) for part in content)
    }
    if message.name is not None and not isinstance(message, ToolMessage):  # whose name is that of the tool
        changes["name"] = change(message.name)
    if isinstance(message, AssistantMessage):
        changes["refusal"] = message.refusal and change(message.refusal)
        changes["tool_calls"] = _changed_calls(message.tool_calls, change)
    same = all(getattr(message, name) == value for name, value in changes.items())
    return message if same else replace(message, **changes)


def _changed_part(part: Part, change: Callable[[str], str]) -> Part:
    if isinstance(part, TextPart):
        return TextPart(change(part.text))
    if isinstance(part, RefusalPart):
        return RefusalPart(change(part.refusal))
    if isinstance(part, FilePart) and part.name is not None and (name := change(part.name)) != part.name:
        # the ending may be in the match, and tells what is in the file
        return replace(part, name=name, media_type=part.media_type or mimetypes.guess_type(part.name)[0])
    return part


def _changed_calls(calls: tuple[ToolCall, ...], change: Callable[[str], str]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, arguments=_changed_json(call.arguments, change)) for call in calls)


def _changed_json(text: str, change: Callable[[str], str]) -> str:
    """Value by value, so that what is put in is spelt as JSON; what is no JSON is changed as it stands."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return change(text)
    changed = _changed_value(value, change)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def _changed_value(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed_value(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed_value(item, change) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):  # a card's number
        told = change(str(value))
        return value if told == str(value) else told
    return value


def _checked(place: int, given: object) -> tuple[str, list[re.Pattern[str]], Callable[[str], bool] | None]:
    if isinstance(given, str):
        ready = READY_PATTERNS.get(given)
        if ready is None:
            known = ", ".join(f'"{name}"' for name in READY_PATTERNS)
            raise ConfigurationError(f"`patterns[{place}]` is none of {known}; give a pair of a name and a pattern")
        return given, list(map(re.compile, ready.expressions)), ready.valid
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ConfigurationError(f"`patterns[{place}]` is {kind_of(given)}; give a name, or a pair of name and pattern")
    name, pattern = given
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
        raise ConfigurationError(f'the name of `patterns[{place}]` is not made of letters, digits, "_" and "-"')
    return name, [checked_pattern(f"pattern `{name}` of `patterns`", pattern)], None
