"""Placeholders in place of what the model must not see, and on request the originals again on the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from advisorchain.advisor import BaseAdvisor, TextTransform
from advisorchain.advisors._held import HeldSearch, Searched, checked_pattern
from advisorchain.advisors._orders import REDACT_ORDER
from advisorchain.advisors._ready_patterns import READY_PATTERNS
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, Message, TextPart, ToolCall

__all__ = ["RedactAdvisor"]

NamedPattern: TypeAlias = str | tuple[str, str | re.Pattern[str]]


class RedactAdvisor(BaseAdvisor):
    """Gives the model placeholders, such as `[email-1]`, in place of what matches.

    They stand in every message that goes to the model: in text (also of parts), and in the arguments of tool calls. One
    value has one placeholder in all of a request, its history too. The reasoning of earlier answers is sent as it was,
    since providers sign it; images and files are not looked into.

    In the answer's text and tool calls, what matches is replaced too; what a model thinks (`reasoning`) it can only have
    from the redacted prompt, and it is left alone. With `restore`, placeholders in the answer become the originals again,
    in its text as it streams, in the arguments of its tool calls once they are whole (a stream's chunks of them have the
    placeholders): tools outside of this advisor then work on the originals. Without it they get placeholders.

    Memory stands further out by default: it keeps the question as it was asked, and the answer as it left this advisor.
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
        self._names: Final = [kind for kind, _, _ in named]  # of each pattern
        self._searched: Final = Searched([pattern for _, pattern, _ in named], [valid for _, _, valid in named])

    def before(self, request: ChatRequest) -> ChatRequest:
        """Put placeholders into the messages."""
        taken = "\n".join(text for message in request.messages for text in _texts(message)) if self.restore else ""
        placeholders = _Placeholders(self._searched, self._names, taken)
        messages = tuple(_changed(message, placeholders.hide) for message in request.messages)
        return request.replace(messages=messages, local={**request.local, self.name: placeholders})

    def transform(self, request: ChatRequest) -> TextTransform | None:
        """The answer's text: the originals again, or placeholders."""
        placeholders: _Placeholders = request.local[self.name]
        return placeholders.restoring() if self.restore else placeholders.hiding()

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        """The same for the arguments of tool calls."""
        placeholders: _Placeholders = request.local[self.name]
        calls = _changed_calls(response.message.tool_calls, placeholders.show if self.restore else placeholders.hide)
        if calls == response.message.tool_calls:
            return response
        return response.replace(message=replace(response.message, tool_calls=calls))


class _Placeholders:
    """What stands for what in one request. It shows neither in a repr."""

    def __init__(self, searched: Searched, names: list[str], taken: str) -> None:
        self._searched = searched
        self._names = names
        self._given = dict.fromkeys(names, 0)  # the last number of each kind
        self._taken = taken  # a placeholder that stands in the prompt already is text: it must not become a value
        self._of: dict[tuple[str, str], str] = {}
        self._originals: dict[str, str] = {}

    def _placeholder(self, which: int, original: str) -> str:
        kind = self._names[which]
        placeholder = self._of.get((kind, original))
        while placeholder is None:
            self._given[kind] += 1
            made = f"[{kind}-{self._given[kind]}]"
            if made not in self._taken:
                placeholder = self._of[kind, original] = made
                self._originals[made] = original
        return placeholder

    def hide(self, text: str) -> str:
        """`text` with placeholders."""
        hiding = self.hiding()
        return hiding.feed(text) + hiding.flush()

    def show(self, text: str) -> str:
        """`text` with the originals."""
        restoring = self.restoring()
        return text if restoring is None else restoring.feed(text) + restoring.flush()

    def hiding(self) -> _Replacing:
        """A transform that puts in placeholders."""
        return _Replacing(self._searched, self._placeholder)

    def restoring(self) -> _Replacing | None:
        """A transform that puts in the originals; None: there are none."""
        if not self._originals:
            return None
        listed = Searched([re.compile("|".join(map(re.escape, self._originals)))])
        return _Replacing(listed, lambda which, placeholder: self._originals[placeholder])


class _Replacing:
    """Replaces matches, message by message."""

    def __init__(self, searched: Searched, replacement: Callable[[int, str], str]) -> None:
        self._searched = searched
        self._replacement = replacement
        self._begin()

    def _begin(self) -> None:
        self._search = HeldSearch(self._searched)
        self._given = 0

    def feed(self, text: str) -> str:
        return self._take(text, last=False)

    def flush(self) -> str:
        rest = self._take("", last=True)
        self._begin()
        return rest

    def _take(self, text: str, *, last: bool) -> str:
        search, pieces = self._search, list[str]()
        for which, start, end in search.feed(text, last=last):
            pieces += search.text[self._given : start], self._replacement(which, search.text[start:end])
            self._given = end
        pieces.append(search.text[self._given : search.decided])
        self._given = search.decided
        return "".join(pieces)


def _texts(message: Message) -> list[str]:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return [message.text, *(call.arguments for call in calls)]


def _changed(message: Message, change: Callable[[str], str]) -> Message:
    if isinstance(message.content, str):
        content: Any = change(message.content)
    else:
        content = tuple(TextPart(change(part.text)) if isinstance(part, TextPart) else part for part in message.content)
    changes: dict[str, Any] = {} if content == message.content else {"content": content}
    if isinstance(message, AssistantMessage):
        calls = _changed_calls(message.tool_calls, change)
        changes |= {} if calls == message.tool_calls else {"tool_calls": calls}
    return replace(message, **changes) if changes else message


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
