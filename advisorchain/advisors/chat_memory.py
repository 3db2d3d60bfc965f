"""Conversation history, put into the prompt and kept after the answer: `advisorchain.memory.chat_memory` in a chain."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from anyio import move_on_after

from advisorchain._checked import checked_one_of
from advisorchain.advisor import CHAT_MEMORY_ORDER, BaseAdvisor, Outcome
from advisorchain.errors import ConfigurationError, StorageError, kind_of
from advisorchain.exchange import ChatRequest, ChatResponse, checked_conversation_id
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.concurrency import APPEND
from advisorchain.memory.repository import distinct_systems
from advisorchain.memory.turns import LastTurn, Turn
from advisorchain.messages import AssistantMessage, Message, SystemMessage

__all__ = ["MEMORY_CONVERSATION_ID", "MessageChatMemoryAdvisor"]

MEMORY_CONVERSATION_ID: Final = "memory.conversation_id"
"""Where `response.context` has the id of the branch on which a turn is kept (`advisorchain.memory.Fork`)."""

Interrupted: TypeAlias = Literal["partial", "question", "nothing"]
Remember: TypeAlias = Literal["answer", "turn"]

_SHORTEST_TURN: Final = 4  # with tools: question, call, result, answer
_NOT_KEPT: Final = ("content_filter", "paused")  # a guard's refusal; a turn that is not over
_STORE_SECONDS: Final = 60.0  # a store that hangs must not hold a cancelled task for ever; theirs are to run out first


class MessageChatMemoryAdvisor(BaseAdvisor):
    """Gives the model the conversation so far, and keeps what was said.

    Its duties:

    1. Recalled once (`advisorchain.memory.recalling.recalled_once`): the history before the prompt; what the prompt carries
       already is not added.
    2. System first (`system_first`): all system messages lead; the request's own take the place of stored ones.
    3. Recorded once (`recorded_once`, in `done`, the one place that stores): the new messages and the answer, as one batch;
       nothing of a turn that failed, was refused or paused, or was left before anything was seen. Storing a whole answer is
       not interrupted: a task that is cancelled meanwhile waits for it, 60 seconds at most.

    Two turns of one conversation at one time: the memory's rule of `advisorchain.memory.concurrency` says what happens.

    Inside a tool loop (an order beyond the tool advisor's) the whole turn is stored when its answer asks for no more tools,
    and nothing for a turn that ends between its rounds. Each round is a turn to the concurrency rule, then.

    Args:
        chat_memory: the memory; it stays its giver's to close.
        name: unique in the chain.
        order: outside the tool loop by default.
        interrupted: what is kept of a turn whose reader left, or whose task was cancelled, after text was seen: the question
            and the "partial" answer, marked so and without tool calls; the "question" only; or "nothing".
        remember: the final "answer" only, or the whole "turn" with the tool rounds of a loop inside.

    Raises:
        ConfigurationError: an argument that cannot work.
        ConversationIdError: a request without `conversation_id`, before anything happens.
        ConversationBusyError: another turn is under way, and the concurrency rule allows no second one.
        LeaseLostError: the turn was overtaken, and the concurrency rule refuses it then.
    """

    keeps_answers = True  # so an advisor that judges answers must stand further in

    def __init__(
        self,
        chat_memory: ChatMemory,
        *,
        name: str = "memory",
        order: int = CHAT_MEMORY_ORDER,
        interrupted: Interrupted = "partial",
        remember: Remember = "answer",
    ) -> None:
        if not isinstance(chat_memory, ChatMemory):
            raise ConfigurationError(f"`chat_memory` is {kind_of(chat_memory)}; give a ChatMemory")
        self.chat_memory = chat_memory
        self.name = name
        self.order = order
        self.interrupted: Interrupted = checked_one_of("interrupted", interrupted, get_args(Interrupted))
        self.remember: Remember = checked_one_of("remember", remember, get_args(Remember))
        self._replaces: LastTurn | None = None

    async def before(self, request: ChatRequest) -> ChatRequest:
        """Begin a turn: history, then the prompt, under the system messages."""
        conversation_id = checked_conversation_id(request.conversation_id)
        turn = await self.chat_memory.begin(conversation_id, request.messages, replacing=self._replaces)
        messages = system_first(turn.history, request.messages)
        recalled = sum(not isinstance(message, SystemMessage) for message in turn.history)
        local = {**request.local, self.name: turn}
        passed = request.replace(messages=messages, local=local, recalled=request.recalled + recalled)
        return passed if turn.conversation_id == conversation_id else _on_branch(passed, turn.conversation_id)

    async def done(self, request: ChatRequest, outcome: Outcome) -> None:
        """Store the turn, or give it up."""
        turn: Turn | None = request.local.get(self.name)
        if turn is None:  # `before` failed
            return
        interrupted = self.interrupted if self._replaces is None else "nothing"  # half an answer replaces no whole one
        messages = recorded_once(outcome, interrupted, self.remember, in_loop=request.round > 0)
        if messages is not None:
            await _commit(turn, messages, shielded=outcome.status == "ok")
        elif outcome.response is not None and outcome.response.finish_reason == "paused":
            await turn.pause()
        else:
            await turn.abandon()

    def replacing(self, last: LastTurn) -> Self:
        """The same advisor for one call, whose turn takes the place of the last one: see `ChatMemory.begin`.

        Only with a whole answer: interrupted, the last turn stays, whatever `interrupted` says.
        """
        advisor = copy(self)
        advisor._replaces = last
        return advisor

    def placed(self, outer: tuple[Any, ...]) -> str:
        """What is kept at this place, for `describe()`."""
        return _kept_within(outer, self.remember)

    def unfit_in_loop(self) -> str | None:
        """What of the memory does not fit a place inside a tool loop, for `chain.lint()`."""
        return _unfit_in_loop(self.chat_memory)


def system_first(history: Sequence[Message], prompt: Sequence[Message]) -> tuple[Message, ...]:
    """The prompt after the history; in front the prompt's system messages, or else the history's, each distinct one once."""
    systems = distinct_systems(prompt) or distinct_systems(history)
    return (*systems, *(message for message in (*history, *prompt) if not isinstance(message, SystemMessage)))


def recorded_once(
    outcome: Outcome, interrupted: Interrupted, remember: Remember, *, in_loop: bool
) -> tuple[Message, ...] | None:
    """What to store after the turn's new messages; None: nothing, not even those.

    An answer without text (reasoning only) is stored as it is, and left out of every view; so two user messages in a row may
    be sent.
    """
    response = outcome.response
    if outcome.status == "error" or response is None or response.finish_reason in _NOT_KEPT:
        return None
    earlier = response.earlier if remember == "turn" else ()
    if outcome.status == "ok":
        return None if in_loop and response.message.tool_calls else (*earlier, response.message)
    if interrupted == "nothing" or not _was_seen(response):
        return None
    if interrupted == "question":
        return ()
    return (*earlier, _cut_short(response.message if remember == "turn" else _last_seen(response)))


async def _commit(turn: Turn, messages: Sequence[Message], *, shielded: bool) -> None:
    # An answer that is there must not be lost to a cancellation that comes now. An interrupted turn needs no shield of its
    # own: the chain shields its whole end, for as long as the application chose.
    with move_on_after(_STORE_SECONDS, shield=shielded) as scope:
        try:
            await turn.commit(messages)
        except GeneratorExit:
            raise  # thrown away unfinished: a coroutine may not await any more
        except BaseException:
            await turn.abandon()
            raise
    if scope.cancelled_caught:
        raise StorageError(f"the turn could not be stored within {_STORE_SECONDS:g} seconds: the store does not answer")


def _on_branch(request: ChatRequest, branch: str) -> ChatRequest:
    return request.replace(conversation_id=branch, context={**request.context, MEMORY_CONVERSATION_ID: branch})


def _was_seen(response: ChatResponse) -> bool:
    answers = [message for message in response.turn if isinstance(message, AssistantMessage)]
    return any(not _cut_short(answer).is_blank for answer in answers)


def _last_seen(response: ChatResponse) -> AssistantMessage:
    """The answer that was cut short; left between two rounds of a loop it is that of the round before."""
    answers = [message for message in response.turn if isinstance(message, AssistantMessage)]
    return next((answer for answer in reversed(answers) if not _cut_short(answer).is_blank), response.message)


def _cut_short(answer: AssistantMessage) -> AssistantMessage:
    return replace(answer, tool_calls=(), partial=True)


# -- for `describe()` and `lint()`


def _kept_within(outer: tuple[Any, ...], remember: Remember) -> str:
    if any(getattr(advisor, "repeats", None) == "round" for advisor in outer):
        return "keeps each turn with its tool rounds when its last answer is there, nothing of others"
    return f"keeps {'each turn with its tool rounds' if remember == 'turn' else 'the question and the final answer'}"


def _unfit_in_loop(memory: ChatMemory) -> str | None:
    if memory.concurrency != APPEND:
        rule = type(memory.concurrency).__name__
        return f"each round is a turn to its rule `{rule}`, and other turns may come in between"
    for part in (memory.policy, memory.repository):
        if getattr(part, "keeps_tool_messages", True) is False:
            return f"its `{type(part).__name__}` keeps no tool messages, which is what it would store here"
    room = getattr(memory.policy, "max_messages", None)
    if isinstance(room, int) and room < _SHORTEST_TURN:
        return f"its window of {room} cannot show a turn with a round of tools, which is {_SHORTEST_TURN} messages"
    return None
