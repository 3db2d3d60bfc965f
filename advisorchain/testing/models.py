"""A model for tests: it answers what it was told to, and is as strict about its prompt as providers are."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Final, TypeAlias

from anyio import Event

from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ConfigurationError, InvalidInputError, ModelError, dropped
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage

__all__ = ["Pause", "Piece", "Reply", "ScriptedModel", "check_prompt"]


class Pause:
    """A place in a script at which the model waits, so that a test can act there without sleeping.

    `await pause.reached.wait()` until the model is there; `pause.go.set()` lets it go on.
    """

    def __init__(self) -> None:
        self.reached: Final = Event()
        self.go: Final = Event()


Piece: TypeAlias = str | ChatChunk | BaseException | Pause
Reply: TypeAlias = str | ChatResponse | BaseException | Sequence[Piece] | Callable[[ChatRequest], Any]

_WORDS: Final = re.compile(r"\s*\S+|\s+$")


class ScriptedModel:
    """Answers with the given replies, in order, and remembers what it was asked.

    A reply is a text (streamed word by word, with finish reason "stop"), a ChatResponse, an exception to raise, a list of
    pieces, or a function of the request that gives one of these. The pieces of a list are texts and chunks, streamed just
    so; an exception among them is raised there, and at a `Pause` the model waits. A call folds what a stream would yield.

    Args:
        replies: one for each time the model is asked.
        name, provider: as of any model.
        strict: whether it refuses what providers refuse, see `check_prompt`.
        repeat: whether it begins anew after the last reply; otherwise being asked once more is a ModelError.
        accepts: the entries of `options.extra` that it knows; when strict it refuses others.

    Attributes:
        requests: every request, in the order in which they came, also those that were refused.
        opened, closed: how many answers were begun, and how many of those have been finalised.
    """

    def __init__(
        self,
        *replies: Reply,
        name: str = "scripted",
        provider: str = "scripted",
        strict: bool = True,
        repeat: bool = False,
        accepts: Iterable[str] = (),
    ) -> None:
        self.name: Final = name
        self.provider: Final = provider
        self.requests: Final[list[ChatRequest]] = []
        self.opened = 0
        self.closed = 0
        self._replies = tuple(replies)
        self._given = 0
        self._strict = strict
        self._repeat = repeat
        self._accepts = frozenset(accepts)
        for place, reply in enumerate(replies):
            _check_reply(f"`replies[{place}]`", reply)

    @property
    def prompts(self) -> list[tuple[Message, ...]]:
        """The messages of every request."""
        return [request.messages for request in self.requests]

    @property
    def open_streams(self) -> int:
        """How many answers are under way: 0 when everything that was begun has ended or was closed."""
        return self.opened - self.closed

    async def call(self, request: ChatRequest) -> ChatResponse:
        """The next reply, whole.

        Raises:
            ModelError: there is no reply left.
            InvalidInputError: a provider would refuse the prompt.
        """
        reply = self._next_reply(request)
        async with aclosing(self._played(_pieces(reply))) as chunks:
            heard = [chunk async for chunk in chunks]
        return reply if isinstance(reply, ChatResponse) else fold_chunks(heard)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The next reply in chunks. Raises as `call` does, at the first chunk."""
        reply = self._next_reply(request)
        pieces = _pieces(reply)
        if isinstance(reply, ChatResponse):
            _check_streamable(reply, pieces)
        async with aclosing(self._played(pieces)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _played(self, pieces: Sequence[Piece]) -> AsyncGenerator[ChatChunk, None]:
        self.opened += 1
        try:
            for piece in pieces:
                if isinstance(piece, BaseException):
                    raise piece
                if isinstance(piece, Pause):
                    piece.reached.set()
                    await piece.go.wait()
                else:
                    yield ChatChunk(piece) if isinstance(piece, str) else piece
        finally:
            self.closed += 1

    def _next_reply(self, request: ChatRequest) -> Any:
        self.requests.append(request)
        if self._strict:
            check_prompt(request.messages)
            _check_extra(request, self._accepts)
        scripted = len(self._replies)
        if self._given >= scripted and not (self._repeat and self._replies):
            raise ModelError(f"model `{self.name}` was asked once more than the {scripted} replies that were scripted")
        reply: Any = self._replies[self._given % scripted]
        self._given += 1  # a refused request takes no reply
        while _is_function(reply):
            reply = reply(request)
        _check_reply(f"reply {self._given} of model `{self.name}`", reply)
        return reply


def _check_reply(place: str, reply: object) -> None:
    if isinstance(reply, list | tuple):
        wrong = [piece for piece in reply if not isinstance(piece, Piece)]
    else:
        wrong = [] if isinstance(reply, str | ChatResponse | BaseException) or _is_function(reply) else [reply]
    if not wrong:
        return
    found, *_ = [dropped(one) for one in wrong]
    raise ConfigurationError(
        f"{place} is or holds {found}; give a text, a ChatResponse, an exception, a list of pieces (texts, chunks, "
        "exceptions, pauses), or a plain function of the request"
    )


def _is_function(reply: object) -> bool:
    return callable(reply) and not isinstance(reply, type) and not inspect.iscoroutinefunction(reply)


def _pieces(reply: Any) -> Sequence[Piece]:
    if isinstance(reply, str):
        return _spoken(reply, ChatChunk(finish_reason="stop"))
    if isinstance(reply, ChatResponse):
        return _of_response(reply)
    return [reply] if isinstance(reply, BaseException) else reply


def _spoken(text: str, last: ChatChunk) -> list[Piece]:
    """A text word by word; the last word is on the last chunk."""
    *words, final = _WORDS.findall(text) or [""]
    return [*words, last.replace(text=final)]


def _of_response(response: ChatResponse) -> list[Piece]:
    message = response.message
    calls = (ToolCallChunk(place, call.id, call.name, call.arguments) for place, call in enumerate(message.tool_calls))
    told = {"id": response.id, "model": response.model, **response.metadata}
    last = ChatChunk(
        refusal=message.refusal,
        tool_calls=tuple(calls),
        finish_reason=response.finish_reason,
        usage=response.usage,
        metadata={key: value for key, value in told.items() if value is not None} or None,
    )
    thought: list[Piece] = [ChatChunk(reasoning=message.reasoning)] if message.reasoning else []
    return [*thought, *_spoken(message.text, last)]


def _check_streamable(response: ChatResponse, pieces: Sequence[Piece]) -> None:
    folded = fold_chunks(ChatChunk(piece) if isinstance(piece, str) else piece for piece in pieces)  # type: ignore[misc]
    if folded != response:
        raise ConfigurationError(
            "the scripted ChatResponse holds what no chunk can carry (parts, `context`, `earlier` or message metadata); "
            "use it in calls only"
        )


def check_prompt(messages: Sequence[Message]) -> None:
    """Refuse what one or the other provider refuses.

    That is: nothing but system messages, a system message behind another one, a blank assistant message, two assistant
    messages in a row, tool calls with one id or with arguments that are no JSON object, a call without its result right
    behind it, and a result without its call. User messages in a row are fine.

    Raises:
        InvalidInputError: the text names the message by its place.
    """
    if all(isinstance(message, SystemMessage) for message in messages):
        raise InvalidInputError("`messages` is empty but for system messages; a prompt needs something to answer")
    waiting: list[str] = []  # ids of calls whose results must come next
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            _take_result(place, message, waiting)
            continue
        if waiting:
            raise _unanswered(waiting, f"before `messages[{place}]`")
        if isinstance(message, AssistantMessage):
            waiting = _checked_answer(place, message)
    if waiting:
        raise _unanswered(waiting, "at the end of `messages`")
    for place, (former, message) in enumerate(pairwise(messages), start=1):
        _check_neighbours(place, former, message)


def _take_result(place: int, message: ToolMessage, waiting: list[str]) -> None:
    if message.tool_call_id not in waiting:
        raise InvalidInputError(
            f"`messages[{place}]` is a result for call `{message.tool_call_id}`, which the assistant message right before "
            "the results did not make, or which has its result already"
        )
    waiting.remove(message.tool_call_id)


def _unanswered(waiting: list[str], where: str) -> InvalidInputError:
    calls = ", ".join(f"`{call}`" for call in waiting)
    return InvalidInputError(f"no result for tool call {calls} {where}; each call needs its result right behind it")


def _checked_answer(place: int, message: AssistantMessage) -> list[str]:
    if message.is_blank:
        raise InvalidInputError(f"`messages[{place}]` is a blank assistant message; leave it out")
    ids = [call.id for call in message.tool_calls]
    if len(set(ids)) < len(ids):
        raise InvalidInputError(f"`messages[{place}]` has two tool calls with one id")
    for call in message.tool_calls:
        try:
            call.parsed()
        except InvalidInputError as error:
            raise InvalidInputError(f"`messages[{place}]`: {error}") from None
    return ids


def _check_neighbours(place: int, former: Message, message: Message) -> None:
    if isinstance(message, SystemMessage) and not isinstance(former, SystemMessage):
        raise InvalidInputError(
            f"`messages[{place}]` is a system message behind one of role `{former.role}`; put it in front"
        )
    if isinstance(message, AssistantMessage) and isinstance(former, AssistantMessage):
        raise InvalidInputError(f"`messages[{place}]` is an assistant message right behind another one; join or drop one")


def _check_extra(request: ChatRequest, accepts: frozenset[str]) -> None:
    unknown = sorted(set(request.options.extra) - accepts)
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        raise InvalidInputError(f"`options.extra` has {names}, which this model does not know; see `accepts`")
