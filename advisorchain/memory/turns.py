"""Turns of a conversation: what one recalls, and the one batch that it may store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from advisorchain.errors import ChatMemoryError, ConversationConflictError, ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository, Entry, Recall, all_entries, checked_batch
from advisorchain.messages import Message

__all__ = ["LastTurn", "ReplacingTurn", "Turn"]


class Turn:
    """One turn of a conversation: what it recalls, and the one batch that it may store.

    Attributes:
        conversation_id: whose turn it is.
        turn_id: what its entries in the log will have in common.
        history: the messages to put before the prompt.
        new: the prompt's messages that are not in the log yet, without system messages. `commit` stores them first.
    """

    __slots__ = ("_abandoned", "_incarnation", "_repository", "conversation_id", "history", "new", "turn_id")

    def __init__(
        self,
        repository: ChatMemoryRepository,
        conversation_id: str,
        incarnation: int,
        history: tuple[Message, ...],
        new: tuple[Message, ...],
    ) -> None:
        self._repository = repository
        self._incarnation = incarnation
        self._abandoned = False
        self.conversation_id = conversation_id
        self.turn_id = uuid4().hex
        self.history = history
        self.new = new

    async def commit(self, messages: Iterable[Message] = ()) -> None:
        """Store the new messages and these after them, all or none. Once stored, committing again does nothing.

        Other turns that were stored since this one began do no harm: a turn is whole, and turns are in order of completion.

        Raises:
            ConversationDeletedError: the conversation was deleted since the turn began.
            ChatMemoryError: the turn was abandoned.
            StorageError: the store cannot be written.
        """
        if self._abandoned:
            raise ChatMemoryError("this `Turn` was abandoned; begin another one")
        batch = (*self.new, *checked_batch(messages))
        if batch:
            await self._repository.append(self.conversation_id, batch, turn_id=self.turn_id, incarnation=self._incarnation)

    async def abandon(self) -> None:
        """Give the turn up: nothing is stored from now on. What was committed stays."""
        self._abandoned = True


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The last turn of a conversation, from its last user message on, as it was found.

    Attributes:
        conversation_id: whose turn it is.
        question: the last user message.
        revision, incarnation: the log's when it was read.
    """

    conversation_id: str
    question: Entry
    revision: int
    incarnation: int

    def check_unchanged(self, recall: Recall) -> None:
        """Refuse to go on when the log is another one by now.

        Raises:
            ConversationConflictError: others wrote to the conversation since the last turn was looked up.
            ConversationDeletedError: it was deleted since.
        """
        if recall.incarnation != self.incarnation:
            raise ConversationDeletedError("the conversation was deleted since its last turn was looked up")
        if recall.revision != self.revision:
            raise ConversationConflictError(
                "the conversation was written to since its last turn was looked up; nothing was replaced. Look it up again",
                expected=self.revision,
                found=recall.revision,
            )


class ReplacingTurn(Turn):
    """A turn that takes the place of the last one. As long as it is not committed with an answer, the old one stays."""

    __slots__ = ("_last",)

    def __init__(
        self,
        repository: ChatMemoryRepository,
        last: LastTurn,
        history: tuple[Message, ...],
        new: tuple[Message, ...],
    ) -> None:
        super().__init__(repository, last.conversation_id, last.incarnation, history, new)
        self._last: LastTurn | None = last

    async def commit(self, messages: Iterable[Message] = ()) -> None:
        """Put the new messages and these in place of the last turn, all or none; without an answer it stays as it is.

        Raises:
            ConversationConflictError: others wrote to the conversation since the last turn was looked up.
            ConversationDeletedError: it was deleted since.
            ChatMemoryError: the turn was abandoned.
            StorageError: the store cannot be read or written.
        """
        if self._abandoned:
            raise ChatMemoryError("this `Turn` was abandoned; begin another one")
        answer = checked_batch(messages)
        if self._last is None or not answer:
            return
        self._last.check_unchanged(await self._repository.recall(self.conversation_id, 0))
        entries = [entry async for entry in all_entries(self._repository, self.conversation_id)]
        kept = self._kept(entries, self._last.question)
        place, now = entries[-1].sequence + 1, datetime.now(UTC)
        turn = [Entry(place + n, self.turn_id, message, now) for n, message in enumerate((*self.new, *answer))]
        await self._repository.replace(self.conversation_id, [*kept, *turn], expected=self._last.revision)
        self._last = None

    def _kept(self, entries: list[Entry], question: Entry) -> list[Entry]:
        first = question.sequence
        if not any(entry.sequence == first and entry.turn_id == question.turn_id for entry in entries):
            raise ConversationDeletedError("the conversation was deleted, or written anew, after this turn had begun")
        return [entry for entry in entries if entry.sequence < first or _is_apart(entry, first)]


def _is_apart(entry: Entry, first: int) -> bool:
    """Whether an entry behind the question of sequence `first` is no part of its turn."""
    if entry.kind == "summary":
        return (entry.covers or 0) < first
    return entry.role == "system"
