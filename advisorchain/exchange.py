"""What travels through a chain: a request inwards, chunks and one response outwards.

All four are values: make a changed copy with `replace`, do not assign to a field. (They are not frozen by force since a
frozen dataclass costs three times as much to make, and a chunk is made for every token.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from advisorchain._values import check_kinds, short_repr, utf8
from advisorchain.chunk import Boundary, ChatChunk, ToolCallChunk
from advisorchain.errors import ConversationIdError, InvalidInputError, kind_of
from advisorchain.messages import (
    MESSAGE_TYPES,
    AssistantMessage,
    Message,
    Prompt,
    SystemMessage,
    ToolMessage,
    Usage,
    checked_messages,
    to_messages,
    to_system,
)
from advisorchain.options import NO_OPTIONS, ChatOptions, OutputSchema, ToolDefinition, checked_options

if TYPE_CHECKING:
    from advisorchain._chain.run import Run
    from advisorchain.advisors.tool_calling import ToolPause

__all__ = [
    "MAX_ID_LENGTH",
    "NO_CONTEXT",
    "Boundary",
    "ChatChunk",
    "ChatOptions",
    "ChatRequest",
    "ChatResponse",
    "OutputSchema",
    "ToolCallChunk",
    "ToolDefinition",
    "asked",
    "checked_conversation_id",
]

_new: Final = object.__new__
NO_CONTEXT: Final[Mapping[str, Any]] = MappingProxyType({})
MAX_ID_LENGTH: Final = 255  # code points; what each of the stores can index


def checked_conversation_id(value: object) -> str:
    """`value` itself when it is a conversation id that every store can keep: 1 to 255 code points of text.

    Raises:
        ConversationIdError: no text, blank, too long, or with U+0000 or a lone surrogate.
    """
    if not isinstance(value, str):
        found = "missing" if value is None else kind_of(value)
        raise ConversationIdError(f"`conversation_id` is {found}; give a text of 1 to {MAX_ID_LENGTH} characters")
    if not value or value.isspace():
        raise ConversationIdError(f"`conversation_id` is blank; give a text of 1 to {MAX_ID_LENGTH} characters")
    if len(value) > MAX_ID_LENGTH:
        raise ConversationIdError(f"`conversation_id` has {len(value)} characters; the limit is {MAX_ID_LENGTH}")
    if "\0" in value:
        raise ConversationIdError("`conversation_id` holds U+0000, which not every store can keep")
    try:
        return utf8(value)
    except ValueError as error:
        raise ConversationIdError(f"`conversation_id`: {error}") from None


def _read_only(context: object, name: str = "context") -> Mapping[str, Any]:
    if not isinstance(context, Mapping):
        raise InvalidInputError(f"`{name}` is {kind_of(context)}; give a dict with text keys")
    for key in context:
        if not isinstance(key, str):
            raise InvalidInputError(f"`{name}` has a key that is {kind_of(key)}; keys are text")
    if context.__class__ is MappingProxyType:  # most often one of ours, whose identity tells that nothing has changed
        return context
    return MappingProxyType(dict(context)) if context else NO_CONTEXT


@dataclass(slots=True, init=False, repr=False)
class ChatRequest:
    """What is asked.

    Attributes:
        messages: the prompt as the model would see it now.
        conversation_id: whose history this belongs to; None where no memory is asked.
        options: how the model shall answer.
        context: read-only; travels inwards with the request and comes back on the response.
        local: state of an advisor between its own hooks, keyed by the advisor's name; never on the response.
        round: 0 outside a loop, 1 in the first round of one.
        made: how many messages at the end of `messages` a loop has added in this turn.
        recalled: how many messages, after the system messages, were not asked now but recalled by a memory.
    """

    messages: tuple[Message, ...]
    conversation_id: str | None
    options: ChatOptions
    context: Mapping[str, Any]
    local: Mapping[str, Any]
    round: int
    made: int
    recalled: int
    _run: Run | None = field(repr=False, compare=False)
    _origin: ChatRequest | None = field(repr=False, compare=False)  # what a chain was asked, of which this is a copy
    _telling: tuple[Any, ...] = field(repr=False, compare=False)  # the chain's advisors with an `answers_depend_on`

    def __init__(
        self,
        messages: tuple[Message, ...],
        conversation_id: str | None = None,
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        round: int = 0,
        made: int = 0,
        recalled: int = 0,
    ) -> None:
        self.messages = _checked_prompt(messages)
        self.conversation_id = conversation_id if conversation_id is None else checked_conversation_id(conversation_id)
        self.options = NO_OPTIONS if options is None else checked_options(options)
        self.context = NO_CONTEXT if context is None else _read_only(context)
        self.local = NO_CONTEXT if local is None else _read_only(local, "local")
        self.round = round
        self.made = made
        self.recalled = recalled
        self._run = self._origin = None
        self._telling = ()

    __repr__ = short_repr

    def replace(
        self,
        *,
        messages: tuple[Message, ...] | EllipsisType = ...,
        conversation_id: str | EllipsisType | None = ...,
        options: ChatOptions | EllipsisType = ...,
        context: Mapping[str, Any] | EllipsisType = ...,
        local: Mapping[str, Any] | EllipsisType = ...,
        round: int | EllipsisType = ...,
        made: int | EllipsisType = ...,
        recalled: int | EllipsisType = ...,
    ) -> ChatRequest:
        """A copy with other values in the named fields; a mapping takes the whole place of the old one."""
        copy = ChatRequest.__new__(ChatRequest)
        copy.messages = self.messages if messages is ... else _checked_prompt(messages)
        copy.conversation_id = self.conversation_id
        if conversation_id is not ...:
            copy.conversation_id = None if conversation_id is None else checked_conversation_id(conversation_id)
        copy.options = self.options if options is ... else checked_options(options)
        copy.context = self.context if context is ... else _read_only(context)
        copy.local = self.local if local is ... else _read_only(local, "local")
        copy.round = self.round if round is ... else round
        copy.made = self.made if made is ... else made
        copy.recalled = self.recalled if recalled is ... else recalled
        copy._run = self._run
        copy._origin = self._origin or self
        copy._telling = self._telling
        return copy

    @property
    def origin(self) -> ChatRequest:
        """What the chain was asked, before any advisor changed it."""
        return self._origin or self

    @property
    def new(self) -> tuple[Message, ...]:
        """What is asked now: neither system messages, nor what was recalled, nor what a loop has added."""
        said = [message for message in self.messages if not isinstance(message, SystemMessage)]
        return tuple(said[self.recalled : len(said) - self.made])

    def with_context(self, **entries: Any) -> ChatRequest:
        """A copy whose context has these entries beside the old ones."""
        return self.replace(context={**self.context, **entries})

    def __reduce__(self) -> tuple[Any, ...]:  # a read-only mapping cannot be pickled, nor deeply copied
        maps = dict(self.context), dict(self.local)
        return type(self), (self.messages, self.conversation_id, self.options, *maps, self.round, self.made, self.recalled)

    def reply(self, text: str, *, finish_reason: str = "stop") -> ChatResponse:
        """A response that answers this request without the model: for short-circuits. Carries the context."""
        return ChatResponse(AssistantMessage(text), finish_reason=finish_reason, context=self.context)


def asked(
    prompt: Prompt,
    conversation_id: str | None,
    system: str | SystemMessage | None,
    options: ChatOptions | None,
    context: Mapping[str, Any] | None,
    telling: tuple[Any, ...],
) -> ChatRequest:
    """A request of a prompt. The chain's own road, since every call begins with it: each value is checked once."""
    if system is not None:
        prompt = (to_system(system), *to_messages(prompt))
    if prompt.__class__ is not tuple or not prompt:
        prompt = to_messages(prompt)
    for message in prompt:
        if message.__class__ not in MESSAGE_TYPES:
            prompt = to_messages(prompt)  # raises
    request = _new(ChatRequest)
    request.messages = prompt
    request.conversation_id = conversation_id if conversation_id is None else checked_conversation_id(conversation_id)
    request.options = NO_OPTIONS if options is None else checked_options(options)
    request.context = NO_CONTEXT if context is None else _read_only(context)
    request.local = NO_CONTEXT
    request.round = request.made = request.recalled = 0
    request._run = request._origin = None
    request._telling = telling
    return request


def _checked_prompt(messages: object) -> tuple[Message, ...]:
    if messages.__class__ is not tuple:
        if not isinstance(messages, list):
            raise InvalidInputError(f"`messages` is {kind_of(messages)}; give a tuple of messages")
        messages = tuple(messages)
    if not messages:
        raise InvalidInputError("`messages` is empty; a request needs at least one message")
    return checked_messages(messages)


@dataclass(slots=True, init=False, repr=False)
class ChatResponse:
    """What was answered.

    Attributes:
        message: the final answer.
        finish_reason: why the model stopped, in its provider's word ("stop", "length", "tool_calls", "content_filter").
        usage: tokens of all model calls of the turn.
        model, id: what the provider calls the model that answered, and the answer.
        context: what the request's context was at the end of its way in, and what was added since.
        earlier: assistant and tool messages of the finished rounds of a loop.
        metadata: what the provider told beside the answer, such as rate limits.
        pause: with finish reason "paused", what waits for a person's yes, and how the turn goes on.
    """

    message: AssistantMessage
    finish_reason: str | None
    usage: Usage | None
    model: str | None
    id: str | None
    context: Mapping[str, Any]
    earlier: tuple[AssistantMessage | ToolMessage, ...]
    metadata: Mapping[str, Any]
    pause: ToolPause | None

    def __init__(
        self,
        message: AssistantMessage | str,
        finish_reason: str | None = None,
        usage: Usage | None = None,
        model: str | None = None,
        id: str | None = None,
        context: Mapping[str, Any] | None = None,
        earlier: tuple[AssistantMessage | ToolMessage, ...] = (),
        metadata: Mapping[str, Any] | None = None,
        pause: ToolPause | None = None,
    ) -> None:
        self.message = _checked_answer(message)
        self.finish_reason = finish_reason
        self.usage = usage
        self.model = model
        self.id = id
        self.context = NO_CONTEXT if context is None else _read_only(context)
        self.earlier = earlier
        self.metadata = NO_CONTEXT if metadata is None else _read_only(metadata, "metadata")
        self.pause = pause
        _check_response(self)

    __repr__ = short_repr

    @property
    def text(self) -> str:
        """The final answer's text."""
        return self.message.text

    @property
    def turn(self) -> tuple[AssistantMessage | ToolMessage, ...]:
        """All that the turn made, in order; the final answer last."""
        return (*self.earlier, self.message)

    def replace(
        self,
        *,
        message: AssistantMessage | str | EllipsisType = ...,
        finish_reason: str | EllipsisType | None = ...,
        usage: Usage | EllipsisType | None = ...,
        model: str | EllipsisType | None = ...,
        id: str | EllipsisType | None = ...,
        context: Mapping[str, Any] | EllipsisType = ...,
        earlier: tuple[AssistantMessage | ToolMessage, ...] | EllipsisType = ...,
        metadata: Mapping[str, Any] | EllipsisType = ...,
        pause: ToolPause | EllipsisType | None = ...,
    ) -> ChatResponse:
        """A copy with other values in the named fields; a mapping takes the whole place of the old one."""
        copy = ChatResponse.__new__(ChatResponse)
        copy.message = self.message if message is ... else _checked_answer(message)
        copy.finish_reason = self.finish_reason if finish_reason is ... else finish_reason
        copy.usage = self.usage if usage is ... else usage
        copy.model = self.model if model is ... else model
        copy.id = self.id if id is ... else id
        copy.context = self.context if context is ... else _read_only(context)
        copy.earlier = self.earlier if earlier is ... else earlier
        copy.metadata = self.metadata if metadata is ... else _read_only(metadata, "metadata")
        copy.pause = self.pause if pause is ... else pause
        if not (finish_reason is ... and usage is ... and model is ... and id is ... and earlier is ...):
            _check_response(copy)
        return copy

    def with_context(self, **entries: Any) -> ChatResponse:
        """A copy whose context has these entries beside the old ones."""
        return self.replace(context={**self.context, **entries})

    def __reduce__(self) -> tuple[Any, ...]:
        told = self.message, self.finish_reason, self.usage, self.model, self.id
        return type(self), (*told, dict(self.context), self.earlier, dict(self.metadata), self.pause)


_RESPONSE_KINDS: Final = {"finish_reason": str, "usage": Usage, "model": str, "id": str, "earlier": tuple}


def _check_response(response: ChatResponse) -> None:
    check_kinds(response, _RESPONSE_KINDS)
    for message in response.earlier:
        if not isinstance(message, AssistantMessage | ToolMessage):
            raise InvalidInputError(f"`earlier` of a ChatResponse holds {kind_of(message)}; give answers and tool results")


def _checked_answer(message: object) -> AssistantMessage:
    if isinstance(message, AssistantMessage):
        return message
    if isinstance(message, str):
        return AssistantMessage(message)
    raise InvalidInputError(f"`message` is {kind_of(message)}; a response holds an AssistantMessage")
