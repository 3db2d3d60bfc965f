"""The comfortable door: a model, a system text, a memory and advisors in one constructor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, get_args, overload

from advisorchain._answers import ClientStream, TypedResponse, TypedStream
from advisorchain._asking import (
    Asking,
    ClientPrompt,
    TurnKind,
    Values,
    as_advisor,
    as_messages,
    checked_list,
    checked_mapping,
    checked_system,
    checked_values,
    merged,
    rendered,
)
from advisorchain._run import GRACE
from advisorchain.advisor import AdvisorLike
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.advisors.structured_output import StructuredOutputAdvisor
from advisorchain.chain import AdvisorChain, ChatStream
from advisorchain.errors import InvalidInputError
from advisorchain.exchange import ChatOptions, ChatResponse, checked_conversation_id
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.messages import Message, SystemMessage
from advisorchain.model import ModelLike
from advisorchain.options import NO_OPTIONS, checked_options
from advisorchain.output import OutputType
from advisorchain.prompt_template import PromptTemplate
from advisorchain.telemetry import Telemetry

__all__ = ["Asking", "ChatClient", "ClientPrompt", "ClientStream", "TurnKind", "TypedResponse", "TypedStream"]

T = TypeVar("T")

_GLOBAL_TELEMETRY: Final = Telemetry()
_TYPES_KEPT: Final = 64  # chains for output types; an application has a handful


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
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        name: str = "chat",
        telemetry: Telemetry | None = _GLOBAL_TELEMETRY,
        grace: float = GRACE,
    ) -> None:
        self._system = checked_system(system)
        self._values = checked_values(self._system, values)
        self._options = options if options is None else checked_options(options)
        self._context = checked_mapping("context", context)
        if memory is not None:
            advisors = [as_advisor(memory), *checked_list(advisors)]
        self.chain: Final = AdvisorChain(model, advisors, name=name, telemetry=telemetry, grace=grace)
        kept = [advisor for advisor in self.chain.advisors if isinstance(advisor, MessageChatMemoryAdvisor)]
        self._remembering: MessageChatMemoryAdvisor | None = kept[0] if kept else None
        self.memory: Final = kept[0].chat_memory if kept else None
        self._typed_chain = lru_cache(_TYPES_KEPT)(self._build_typed)

    def __repr__(self) -> str:
        return f"<ChatClient {repr(self.chain).removeprefix('<AdvisorChain ')}"

    # -- asking

    @overload
    async def call(
        self, prompt: ClientPrompt | None = None, *, output_type: None = None, **asking: Unpack[Asking]
    ) -> ChatResponse: ...
    @overload
    async def call(
        self, prompt: ClientPrompt | None = None, *, output_type: type[T] | OutputType[T], **asking: Unpack[Asking]
    ) -> TypedResponse[T]: ...
    @overload
    async def call(
        self, prompt: ClientPrompt | None = None, *, output_type: Any, **asking: Unpack[Asking]
    ) -> TypedResponse[Any]: ...
    async def call(
        self,
        prompt: ClientPrompt | None = None,
        *,
        conversation_id: str | None = None,
        values: Values | None = None,
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        advisors: Sequence[AdvisorLike] = (),
        without: Sequence[str] = (),
        timeout: float | None = None,
        output_type: Any = None,
        turn: TurnKind = "new",
    ) -> ChatResponse:
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
            timeout: seconds; advisors see a cancellation, the caller CallTimeoutError.
            output_type: the type that the answer shall have, or an OutputType; the response then has an `output`.
            turn: "new"; or "regenerate": the conversation's last question is asked again; or "edit": `prompt` is asked in
                its place. The new turn takes the place of the last one when its answer is stored; until then, and if there
                is none, the last one stays.

        Raises:
            InvalidInputError: something of this cannot be sent.
            OutputValidationError: the answer is not of `output_type`, however often it was asked for.
            ConversationConflictError: others wrote to the conversation while its last turn was to be replaced.
            ModelError: the model failed; other errors of models and advisors keep their own type.
        """
        chain, typed = self._chain_for(output_type)
        how = self._how(conversation_id, options, context, advisors, without, timeout, typed)
        self._check_turn(turn, prompt, without)
        if turn != "new":
            chain, prompt = await self._again(_answering(chain, turn, without), turn, prompt, conversation_id)
        response = await chain.call(self._messages(prompt, values), **how)
        return response if typed is None else TypedResponse.of(response, typed.parse(response))

    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: None = None, **asking: Unpack[Asking]
    ) -> ClientStream: ...
    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: type[T] | OutputType[T], **asking: Unpack[Asking]
    ) -> TypedStream[T]: ...
    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: Any, **asking: Unpack[Asking]
    ) -> TypedStream[Any]: ...
    def stream(
        self,
        prompt: ClientPrompt | None = None,
        *,
        conversation_id: str | None = None,
        values: Values | None = None,
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        advisors: Sequence[AdvisorLike] = (),
        without: Sequence[str] = (),
        timeout: float | None = None,
        output_type: Any = None,
        turn: TurnKind = "new",
    ) -> ClientStream:
        """Ask, and read the answer in chunks: `async with client.stream(…) as stream: async for chunk in stream: …`.

        The arguments and errors are those of `call`. `timeout` counts the time inside the chain, not the reader's own. With
        `output_type` the stream has an `output` at the end, and `partials()` on the way.
        """
        chain, typed = self._chain_for(output_type)
        how = self._how(conversation_id, options, context, advisors, without, timeout, typed)
        self._check_turn(turn, prompt, without)

        async def begin() -> ChatStream:
            renewed, question = await self._again(_answering(chain, turn, without), turn, prompt, conversation_id)
            return renewed.stream(self._messages(question, values), **how)

        stream = chain.stream(self._messages(prompt, values), **how) if turn == "new" else begin
        return ClientStream(stream) if typed is None else TypedStream(stream, typed)

    # -- of what a call is made

    def _how(
        self,
        conversation_id: str | None,
        options: ChatOptions | None,
        context: Mapping[str, Any] | None,
        advisors: Sequence[AdvisorLike],
        without: Sequence[str],
        timeout: float | None,
        typed: OutputType[Any] | None,
    ) -> dict[str, Any]:
        if self._context is not None and isinstance(context, Mapping):
            context = {**self._context, **context}
        asked = merged(self._options, options)
        if typed is not None:  # for every advisor to see: an answer of one type is none of another
            asked = replace(asked or NO_OPTIONS, output=typed.schema)
        return {
            "conversation_id": conversation_id,
            "options": asked,
            "context": self._context if context is None else context,
            "advisors": advisors,
            "without": without,
            "timeout": timeout,
        }

    def _messages(self, prompt: object, values: Values | None) -> tuple[Message, ...]:
        messages = as_messages(prompt)
        if isinstance(self._system, PromptTemplate):
            return (rendered(self._system, self._values, values), *messages)
        if values:
            raise InvalidInputError("`values` are for a `system` that is a PromptTemplate; this client has none")
        return messages if self._system is None else (self._system, *messages)

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

    def _check_turn(self, turn: TurnKind, prompt: object, without: Sequence[str]) -> None:
        if turn == "new":
            return
        if turn not in get_args(TurnKind):
            raise InvalidInputError(f"`turn` is {turn!r}; give {' or '.join(map(repr, get_args(TurnKind)))}")
        if self._remembering is None or self._remembering.name in without:
            raise InvalidInputError(f'`turn="{turn}"` needs a memory; give the client one')
        if turn == "regenerate" and prompt is not None:
            raise InvalidInputError('`turn="regenerate"` asks the last question again; leave `prompt` out, or give "edit"')

    async def _again(
        self, chain: AdvisorChain, turn: TurnKind, prompt: object, conversation_id: str | None
    ) -> tuple[AdvisorChain, Any]:
        """A chain whose turn takes the place of the last one, and what to ask it."""
        remembering = self._remembering
        assert remembering is not None
        last = await remembering.chat_memory.last_turn(checked_conversation_id(conversation_id))
        if last is None:
            raise InvalidInputError(f'`turn="{turn}"`: the conversation has no question yet; leave `turn` out')
        question = last.question.message if turn == "regenerate" else prompt
        return chain.replacing(remembering.name, remembering.replacing(last)), question

    # -- what its parts own

    async def __aenter__(self) -> Self:
        await self.chain.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.chain.__aexit__(kind, error, traceback)


def _answering(chain: AdvisorChain, turn: TurnKind, without: Sequence[str]) -> AdvisorChain:
    """The chain that answers a question once more: a cache would only say what it said before."""
    if turn != "regenerate":
        return chain
    caches = [
        advisor.name
        for advisor in chain.advisors
        if getattr(advisor, "keeps_answers", False) and not isinstance(advisor, MessageChatMemoryAdvisor)
    ]
    return chain.without(*(name for name in caches if name not in without))
