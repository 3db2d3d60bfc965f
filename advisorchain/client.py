"""The comfortable door: a model, a system text, a memory and advisors in one constructor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain as every
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, get_args, overload

from anyio import current_time, move_on_after

from advisorchain._chain.run import GRACE
from advisorchain._chain.stream import timed_out
from advisorchain._checked import checked_list, checked_timeout
from advisorchain._client.answers import ClientStream, TypedResponse, TypedStream, answered
from advisorchain._client.arguments import (
    CallOptions,
    ClientPrompt,
    TurnKind,
    Values,
    as_advisor,
    as_messages,
    checked_mapping,
    checked_system,
    checked_values,
    for_tools,
    merged,
    rendered,
    taking,
)
from advisorchain.advisor import AdvisorLike
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.structured_output import StructuredOutputAdvisor
from advisorchain.chain import AdvisorChain, ChatStream
from advisorchain.errors import ConfigurationError, InvalidInputError
from advisorchain.exchange import ChatOptions, ChatResponse, checked_conversation_id
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.repository import Entry, Page
from advisorchain.messages import Message, SystemMessage
from advisorchain.model import ModelLike
from advisorchain.options import NO_OPTIONS, checked_options
from advisorchain.output import OutputType
from advisorchain.prompt_template import PromptTemplate
from advisorchain.telemetry import SHARED, Telemetry

__all__ = ["CallOptions", "ChatClient", "ClientPrompt", "ClientStream", "TurnKind", "TypedResponse", "TypedStream"]

T = TypeVar("T")

_TYPES_KEPT: Final = 64  # chains for output types; an application has a handful


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a call or stream was asked for: of which chain, and how. With turn "regenerate" without its question."""

    chain: AdvisorChain
    messages: tuple[Message, ...]
    how: dict[str, Any]
    turn: TurnKind
    typed: OutputType[Any] | None


class ChatClient:
    """A model with all that belongs to it. Builds an `AdvisorChain` (`chain`) and asks it.

    `async with client` opens and closes what the model and the advisors own. The memory stays its giver's.

    Args:
        model: a chat model, an async function or an async generator function.
        system: the system text of every prompt. Braces in a text are text; a PromptTemplate has slots for `values`.
        values: for the slots of `system`; those of a call go before these.
        memory: a ChatMemory, or a MessageChatMemoryAdvisor with settings of your own. With one, every call needs a
            `conversation_id`.
        advisors: further advisors.
        tools: functions and tools that the model may ask to have run (needs the extra `tools`). A ToolCallingAdvisor runs
            them: the one among `advisors`, which then has them beside its own, or else one with the settings by default.
        options: how the model shall answer, unless a call says otherwise.
        context: entries for advisors, in every call.
        name: what the chain is called in traces.
        telemetry: where spans go, as for AdvisorChain.
        grace: seconds for cleaning up, as for AdvisorChain.

    Attributes:
        chain: the chain that is asked.
        memory: the memory, or None.

    Raises:
        ConfigurationError: an argument that cannot work.
        InvalidInputError: `options`, `context` or `grace` cannot be used.
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        system: str | SystemMessage | PromptTemplate | None = None,
        values: Values | None = None,
        memory: ChatMemory | MessageChatMemoryAdvisor | None = None,
        advisors: Iterable[AdvisorLike] = (),
        tools: Iterable[Any] = (),
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        name: str = "chat",
        telemetry: Telemetry | None = SHARED,
        grace: float = GRACE,
    ) -> None:
        self._system = checked_system(system)
        self._values = checked_values(self._system, values)
        self._options = options if options is None else checked_options(options)
        self._context = checked_mapping("context", context)
        given = checked_list("advisors", advisors, "advisors", raised=ConfigurationError)
        own = [*given] if memory is None else [as_advisor(memory), *given]
        own += for_tools(tools, own, "of_client")
        self.chain: Final = AdvisorChain(model, own, name=name, telemetry=telemetry, grace=grace)
        kept = [advisor for advisor in self.chain.advisors if isinstance(advisor, MessageChatMemoryAdvisor)]
        self._remembering: MessageChatMemoryAdvisor | None = kept[0] if kept else None
        self.memory: Final = kept[0].chat_memory if kept else None
        self._typed_chain = lru_cache(_TYPES_KEPT)(self._build_typed)

    def __repr__(self) -> str:
        return f"<ChatClient {repr(self.chain).removeprefix('<AdvisorChain ')}"

    # -- asking

    def _asked(
        self,
        prompt: ClientPrompt | None = None,
        *,
        conversation_id: str | None = None,
        values: Values | None = None,
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        advisors: Iterable[AdvisorLike] = (),
        without: Iterable[str] = (),
        tools: Iterable[Any] = (),
        timeout: float | None = None,
        output_type: Any = None,
        turn: TurnKind = "new",
    ) -> _Asked:
        chain, typed = self._chain_for(output_type)
        advisors = checked_list("advisors", advisors, "advisors")
        without = checked_list("without", without, "advisors' names")
        self._check_turn(turn, prompt, without)
        present = (advisor for advisor in chain.advisors if advisor.name not in without)
        if self._context is not None and isinstance(context, Mapping):
            context = {**self._context, **context}
        asked = merged(self._options, options)
        if typed is not None:  # for every advisor to see: an answer of one type is none of another
            asked = replace(asked or NO_OPTIONS, output=typed.schema)
        how = {
            "conversation_id": conversation_id,
            "options": asked,
            "context": self._context if context is None else context,
            "advisors": (*advisors, *for_tools(tools, every(present, advisors), "of_call")),
            "without": without,
            "timeout": timeout,
        }
        messages = self._system_of(values) + (() if turn == "regenerate" else as_messages(prompt))
        return _Asked(chain, messages, how, turn, typed)

    @overload
    async def call(
        self, prompt: ClientPrompt | None = None, *, output_type: None = None, **options: Unpack[CallOptions]
    ) -> ChatResponse: ...
    @overload
    async def call(
        self, prompt: ClientPrompt | None = None, *, output_type: type[T] | OutputType[T], **options: Unpack[CallOptions]
    ) -> TypedResponse[T]: ...
    @overload
    async def call(
        self, prompt: ClientPrompt | None = None, *, output_type: Any, **options: Unpack[CallOptions]
    ) -> TypedResponse[Any]: ...
    @taking(_asked)
    async def call(self, prompt: ClientPrompt | None = None, **options: Any) -> ChatResponse:
        """Ask, and wait for the whole answer.

        Args:
            prompt: a text, a message, messages, or one or several dicts as the OpenAI API has them. None with turn
                "regenerate".
            conversation_id: whose history this belongs to; needed where there is a memory.
            values: for the slots of the system text.
            options: their fields that are set go before the client's.
            context: entries for advisors; they come back on the response.
            advisors: further advisors for this call alone.
            without: names of advisors to leave out of this call.
            tools: further functions and tools for this call alone; see the constructor's.
            timeout: seconds; advisors see a cancellation, the caller CallTimeoutError.
            output_type: the type that the answer shall have, or an OutputType; the response then is a TypedResponse, with an
                `output`. One that is no last answer (finish reason "paused", "tool_limit" or "return_direct", or it asks for
                tools of the application) comes back as it is, and its `output` raises OutputValidationError.
            turn: "new"; or "regenerate": the conversation's last question is asked again; or "edit": `prompt` is asked in
                its place. The new turn takes the place of the last one when its whole answer is stored; without one, also
                when it is interrupted, the last one stays.

        Raises:
            InvalidInputError: something of this cannot be sent.
            OutputValidationError: the answer is not of `output_type`, however often it was asked for.
            ConversationConflictError: others wrote to the conversation while its last turn was to be replaced.
            ModelError: the model failed; other errors of models and advisors keep their own type.
        """
        asked = self._asked(prompt, **options)
        if asked.turn != "new":
            asked = await self._again(asked)
        response = await asked.chain.call(asked.messages, **asked.how)
        return response if asked.typed is None else answered(response, asked.typed)

    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: None = None, **options: Unpack[CallOptions]
    ) -> ClientStream: ...
    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: type[T] | OutputType[T], **options: Unpack[CallOptions]
    ) -> TypedStream[T]: ...
    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: Any, **options: Unpack[CallOptions]
    ) -> TypedStream[Any]: ...
    @taking(_asked)
    def stream(self, prompt: ClientPrompt | None = None, **options: Any) -> ClientStream:
        """Ask, and read the answer in chunks: `async with client.stream(…) as stream: async for chunk in stream: …`.

        The arguments and errors are those of `call`. `timeout` counts the time inside the chain, not the reader's own. With
        `output_type` the stream has an `output` at the end, and `partials()` on the way.
        """
        asked = self._asked(prompt, **options)

        async def begin() -> ChatStream:
            again = await self._again(asked)
            return again.chain.stream(again.messages, **again.how)

        stream = asked.chain.stream(asked.messages, **asked.how) if asked.turn == "new" else begin
        return ClientStream(stream) if asked.typed is None else TypedStream(stream, asked.typed)

    # -- what is remembered

    async def history(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """What is stored of a conversation, a page at a time; see `ChatMemory.history`.

        Raises:
            ConfigurationError: this client has no memory.
        """
        return await self._remembered().history(conversation_id, after=after, limit=limit, newest_first=newest_first)

    async def clear(self, conversation_id: str) -> bool:
        """Delete a conversation; False when there was none.

        Raises:
            ConfigurationError: this client has no memory.
        """
        return await self._remembered().clear(conversation_id)

    def _remembered(self) -> ChatMemory:
        if self.memory is None:
            raise ConfigurationError("this client has no `memory`; give it one when it is made")
        return self.memory

    # -- of what a call is made

    def _system_of(self, values: Values | None) -> tuple[Message, ...]:
        if isinstance(self._system, PromptTemplate):
            return (rendered(self._system, self._values, values),)
        if values:
            raise InvalidInputError("`values` are for a `system` that is a PromptTemplate; this client has none")
        return () if self._system is None else (self._system,)

    def _chain_for(self, output_type: Any) -> tuple[AdvisorChain, OutputType[Any] | None]:
        if output_type is None:
            return self.chain, None
        try:
            return self._typed_chain(output_type)
        except TypeError:
            return self._build_typed(output_type)  # a type that cannot be a key, such as one annotated with a list

    def _build_typed(self, output_type: Any) -> tuple[AdvisorChain, OutputType[Any]]:
        typed = output_type if isinstance(output_type, OutputType) else OutputType(output_type)
        return self.chain.with_advisors(StructuredOutputAdvisor(typed)), typed

    def _check_turn(self, turn: TurnKind, prompt: object, without: tuple[str, ...]) -> None:
        if turn == "new":
            return
        if turn not in get_args(TurnKind):
            raise InvalidInputError(f"`turn` is {turn!r}; give {' or '.join(map(repr, get_args(TurnKind)))}")
        if self._remembering is None or self._remembering.name in without:
            raise InvalidInputError(f'`turn="{turn}"` needs a memory; give the client one')
        if turn == "regenerate" and prompt is not None:
            raise InvalidInputError('`turn="regenerate"` asks the last question again; leave `prompt` out, or give "edit"')

    async def _again(self, asked: _Asked) -> _Asked:
        """What to ask so that the turn takes the place of the last one."""
        remembering, timeout = self._remembering, checked_timeout(asked.how["timeout"])
        assert remembering is not None
        conversation_id, begun = checked_conversation_id(asked.how["conversation_id"]), current_time()
        with move_on_after(timeout) as scope:
            last = await remembering.chat_memory.last_turn(conversation_id)
        if timeout is not None and scope.cancelled_caught:
            raise timed_out(timeout)
        if last is None:
            raise InvalidInputError(f'`turn="{asked.turn}"`: the conversation has no question yet; leave `turn` out')
        left = None if timeout is None else max(0.0, timeout - (current_time() - begun))
        chain = asked.chain if asked.turn == "edit" else _uncached(asked.chain, asked.how["without"])
        question = () if asked.turn == "edit" else (last.question.message,)
        return replace(
            asked,
            chain=chain.replacing(remembering.name, remembering.replacing(last)),
            messages=(*asked.messages, *question),
            how={**asked.how, "timeout": left},
        )

    # -- what its parts own

    async def __aenter__(self) -> Self:
        await self.chain.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.chain.__aexit__(kind, error, traceback)


def _uncached(chain: AdvisorChain, without: tuple[str, ...]) -> AdvisorChain:
    """The chain that answers a question once more: a cache would only say what it said before."""
    caches = [
        advisor.name
        for advisor in chain.advisors
        if getattr(advisor, "keeps_answers", False) and not isinstance(advisor, MessageChatMemoryAdvisor)
    ]
    return chain.without(*(name for name in caches if name not in without))
