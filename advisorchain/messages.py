"""Messages: frozen values that are checked when they are made.

A message holds what was said and nothing else: no id and no time, which belong to the entry of a log. Roles are
OpenAI's (system, user, assistant, tool). Two messages are equal when all their fields are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from math import isfinite
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from advisorchain._values import CONFIG, EMPTY, Json, Metadata, Text, clear_errors, explain
from advisorchain.errors import InvalidInputError, MessageError, ToolArgumentsError, kind_of

__all__ = [
    "MESSAGE_TYPES",
    "AssistantMessage",
    "AudioPart",
    "FilePart",
    "ImagePart",
    "Message",
    "Part",
    "Prompt",
    "RefusalPart",
    "SystemMessage",
    "TextPart",
    "ToolCall",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "checked_messages",
    "dump_message",
    "load_message",
    "to_messages",
]


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class TextPart:
    """Text, where a message has several parts."""

    text: Text
    type: Literal["text"] = field(default="text", kw_only=True, repr=False)


def _one_of(part: object, *names: str) -> None:
    given = [name for name in names if getattr(part, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give exactly one of {', '.join(f'`{name}`' for name in names)}; found {given or 'none'}")


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class ImagePart:
    """An image, by `url` or as bytes (`data` with its `media_type`, such as "image/png")."""

    url: Text | None = None
    data: bytes | None = field(default=None, kw_only=True, repr=False)
    media_type: Text | None = field(default=None, kw_only=True)
    detail: Literal["auto", "low", "high"] | None = field(default=None, kw_only=True)
    type: Literal["image"] = field(default="image", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        _one_of(self, "url", "data")
        if self.data is not None and self.media_type is None:
            raise ValueError('`media_type` is missing: say what the bytes are, such as "image/png"')


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class AudioPart:
    """Sound, by `url` or as bytes (`data` with its `media_type`, such as "audio/wav")."""

    url: Text | None = None
    data: bytes | None = field(default=None, kw_only=True, repr=False)
    media_type: Text | None = field(default=None, kw_only=True)
    type: Literal["audio"] = field(default="audio", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        _one_of(self, "url", "data")
        if self.data is not None and self.media_type is None:
            raise ValueError('`media_type` is missing: say what the bytes are, such as "audio/wav"')


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class FilePart:
    """A file: by `url`, by a provider's `file_id`, or as bytes (`data`)."""

    url: Text | None = None
    data: bytes | None = field(default=None, kw_only=True, repr=False)
    file_id: Text | None = field(default=None, kw_only=True)
    name: Text | None = field(default=None, kw_only=True)
    media_type: Text | None = field(default=None, kw_only=True)
    type: Literal["file"] = field(default="file", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        _one_of(self, "url", "data", "file_id")


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class RefusalPart:
    """What the model said when it declined to answer, where a message has several parts."""

    refusal: Text
    type: Literal["refusal"] = field(default="refusal", kw_only=True, repr=False)


Part: TypeAlias = Annotated[TextPart | ImagePart | AudioPart | FilePart | RefusalPart, Field(discriminator="type")]
_Parts: TypeAlias = Annotated[tuple[Part, ...], Field(strict=False, min_length=1)]  # not strict: a list of parts will do
Content: TypeAlias = Annotated[
    Annotated[Text, Tag("text")] | Annotated[_Parts, Tag("parts")],
    Discriminator(lambda content: "parts" if isinstance(content, list | tuple) else "text"),
]


def _joined_text(content: str | tuple[Part, ...]) -> str:
    if content.__class__ is str:
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class ToolCall:
    """A model's wish to have a tool run. `arguments` is the raw text that came, whatever it is."""

    id: Annotated[Text, Field(min_length=1)]
    name: Text
    arguments: Text = "{}"

    def parsed(self) -> dict[str, Any]:
        """The arguments as a dict (blank text and `null` are none); ToolArgumentsError when they are no JSON object.

        NaN, infinity and half a character (a lone surrogate) are not JSON: they could not be sent back to a provider.
        """
        if not self.arguments.strip():
            return {}
        try:
            value = _ARGUMENTS.decode(self.arguments)
            if _HALF.search(self.arguments):
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise ToolArgumentsError(f"the arguments for `{self.name}` (call `{self.id}`) are not one JSON object") from None
        if value is None:
            return {}
        if not isinstance(value, dict):
            found = kind_of(value)
            raise ToolArgumentsError(f"the arguments for `{self.name}` (call `{self.id}`) are {found}, not a JSON object")
        return value


def _finite(number: str) -> float:
    if not isfinite(value := float(number)):
        raise ValueError(f"{number} is no number that can be sent")
    return value


_ARGUMENTS: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that is half a character, unless the other half follows


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class SystemMessage:
    """What the application tells the model about its task."""

    content: Content
    name: Text | None = field(default=None, kw_only=True)
    metadata: Metadata = field(default=EMPTY, kw_only=True)
    role: Literal["system"] = field(default="system", kw_only=True, repr=False)

    @property
    def text(self) -> str:
        """The text of all text parts, joined."""
        return _joined_text(self.content)


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class UserMessage:
    """What the user said: a text, or a tuple of parts. `metadata` is JSON that stays on this side of the model."""

    content: Content
    name: Text | None = field(default=None, kw_only=True)
    metadata: Metadata = field(default=EMPTY, kw_only=True)
    role: Literal["user"] = field(default="user", kw_only=True, repr=False)

    @property
    def text(self) -> str:
        """The text of all text parts, joined."""
        return _joined_text(self.content)


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class AssistantMessage:
    """What the model answered.

    Attributes:
        content: text, or a tuple of parts.
        reasoning: what a reasoning model says before its answer; never part of `text`.
        refusal: what it said when it declined to answer.
        tool_calls: the tools that it wants to have run.
        partial: the answer was cut short: the reader left, or the task was cancelled.
        metadata: JSON, such as a provider's extras that must be sent back with the message.
    """

    content: Content = ""
    reasoning: Text | None = field(default=None, kw_only=True)
    refusal: Text | None = field(default=None, kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    partial: bool = field(default=False, kw_only=True)
    name: Text | None = field(default=None, kw_only=True)
    metadata: Metadata = field(default=EMPTY, kw_only=True)
    role: Literal["assistant"] = field(default="assistant", kw_only=True, repr=False)

    @property
    def text(self) -> str:
        """The text of all text parts, joined."""
        return _joined_text(self.content)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing that a provider would accept: no call, no refusal, no part, no text but spaces."""
        if self.tool_calls or self.refusal:
            return False
        if isinstance(self.content, str):
            return not self.content.strip()
        return all(isinstance(part, TextPart) and not part.text.strip() for part in self.content)


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class ToolMessage:
    """What a tool gave back.

    Attributes:
        content: text, or a tuple of parts, as the model shall see it.
        tool_call_id: the id of the ToolCall that this answers.
        name: the tool's name.
        structured: the result as JSON, for programs; the model sees `content`.
        is_error: the tool failed, and `content` says why.
    """

    content: Content
    tool_call_id: Annotated[Text, Field(min_length=1)] = field(kw_only=True)
    name: Text | None = field(default=None, kw_only=True)
    structured: Json = field(default=None, kw_only=True)
    is_error: bool = field(default=False, kw_only=True)
    metadata: Metadata = field(default=EMPTY, kw_only=True)
    role: Literal["tool"] = field(default="tool", kw_only=True, repr=False)

    @property
    def text(self) -> str:
        """The text of all text parts, joined."""
        return _joined_text(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Prompt: TypeAlias = str | Message | Iterable[Message]
MESSAGE_TYPES: Final = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)
_ADAPTER: Final[TypeAdapter[Message]] = TypeAdapter(
    Annotated[Message, Field(discriminator="role")], config=ConfigDict(defer_build=True)
)


def dump_message(message: Message) -> str:
    """`message` as JSON text; `load_message` makes an equal one of it."""
    return _ADAPTER.dump_json(message).decode()


def load_message(data: str | bytes | Mapping[str, Any]) -> Message:
    """The message in a JSON text, or in a dict of JSON values. Unknown fields are ignored, so that old code reads new data.

    Raises:
        MessageError: it is no message; the text names the field, never its value.
    """
    try:
        if isinstance(data, str | bytes):
            return _ADAPTER.validate_json(data, extra="ignore")
        return _ADAPTER.validate_json(json.dumps(data), extra="ignore")
    except ValidationError as error:
        raise MessageError(explain("message", error)) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"`message` is not JSON: {error}") from None


def to_messages(prompt: Prompt) -> tuple[Message, ...]:
    """A prompt as messages: a text is one user message.

    Raises:
        InvalidInputError: an empty prompt, or something in it that is no message.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidInputError("`prompt` is empty; give a text, a message, or messages")
        return (UserMessage(prompt),)
    if isinstance(prompt, MESSAGE_TYPES):
        return (prompt,)
    if isinstance(prompt, Mapping) or not isinstance(prompt, Iterable):
        raise InvalidInputError(f"`prompt` is {kind_of(prompt)}; give a text, a message, or messages")
    messages = tuple(prompt)
    if not messages:
        raise InvalidInputError("`prompt` is empty; give a text, a message, or messages")
    return checked_messages(messages)


def to_system(system: object, raised: type[ValueError] = InvalidInputError) -> SystemMessage:
    """A system text as a message.

    Raises:
        InvalidInputError: it is blank, or neither a text nor a SystemMessage; or `raised` in its place.
    """
    if isinstance(system, SystemMessage):
        return system
    if isinstance(system, str) and system.strip():
        return SystemMessage(system)
    raise raised(f"`system` is {'blank' if isinstance(system, str) else kind_of(system)}; give a text")


def checked_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """`messages` themselves; InvalidInputError when one of them is no message."""
    for message in messages:
        if message.__class__ not in MESSAGE_TYPES:
            place = next(place for place, other in enumerate(messages) if other is message)
            raise InvalidInputError(f"`messages[{place}]` is {kind_of(message)}, not a message")
    return messages


@clear_errors(MessageError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class Usage:
    """Tokens that a model call took, as the provider counted them. None: not told.

    `input_tokens` includes `cached_tokens` (read from the provider's cache) and `cache_write_tokens` (written to it),
    `output_tokens` includes `reasoning_tokens` (as in OpenTelemetry's GenAI conventions). A total that the provider did not
    tell is the sum of both.
    """

    input_tokens: Annotated[int, Field(ge=0)] | None = None
    output_tokens: Annotated[int, Field(ge=0)] | None = None
    total_tokens: Annotated[int, Field(ge=0)] | None = None
    cached_tokens: Annotated[int, Field(ge=0)] | None = field(default=None, kw_only=True)
    reasoning_tokens: Annotated[int, Field(ge=0)] | None = field(default=None, kw_only=True)
    cache_write_tokens: Annotated[int, Field(ge=0)] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.total_tokens is None and (self.input_tokens is not None and self.output_tokens is not None):
            object.__setattr__(self, "total_tokens", self.input_tokens + self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        joined = self._joined(other, lambda mine, theirs: mine + theirs)
        return replace(joined, total_tokens=_sum(self._known_total(), other._known_total()))

    def updated(self, later: Usage) -> Usage:
        """What is known after a later report about the same call: per counter the later value, unless 0 or not told."""
        joined = self._joined(later, lambda mine, theirs: theirs or mine)
        if later.total_tokens is None and self.total_tokens == _sum(self.input_tokens, self.output_tokens):
            return replace(joined, total_tokens=None)  # it was a sum, and is to be one of the newer numbers
        return joined

    def _known_total(self) -> int | None:
        return self.total_tokens if self.total_tokens is not None else _sum(self.input_tokens, self.output_tokens)

    def _joined(self, other: Usage, join: Callable[[int, int], int]) -> Usage:
        values = {}
        for name in _COUNTERS:
            mine, theirs = getattr(self, name), getattr(other, name)
            values[name] = theirs if mine is None else mine if theirs is None else join(mine, theirs)
        return Usage(**values)


_COUNTERS: Final = tuple(counter.name for counter in fields(Usage))


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
