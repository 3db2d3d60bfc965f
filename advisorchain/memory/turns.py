"""Turns of a conversation: what one recalls, and the one batch that it may store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from advisorchain import conventions as names
from advisorchain._telemetry.operation import MemorySpan
from advisorchain.errors import ChatMemoryError, ConversationConflictError, ConversationDeletedError, LeaseLostError
from advisorchain.memory._branch import Branch
from advisorchain.memory.repository import ChatMemoryRepository, Entry, Recall, Retention, all_entries, checked_batch
from advisorchain.messages import Message

if TYPE_CHECKING:  # the rules are built on turns
    from advisorchain.memory._hold import Hold

__all__ = ["LastTurn", "Late", "Read", "ReplacingTurn", "Turn"]

Late: TypeAlias = Literal["refuse", "append", "branch"]


@dataclass(frozen=True, slots=True)
class Read:
    """What a turn has read when it begins.

    Attributes:
        incarnation: the life of the conversation; 0: it was not there.
        seen: the sequence of the newest entry.
        history: the messages to put before the prompt.
        new: those of the prompt that are not in the log.
    """

    incarnation: int
    seen: int
    history: tuple[Message, ...]
    new: tuple[Message, ...]

    @classmethod
    def of(cls, recall: Recall, history: tuple[Message, ...], new: tuple[Message, ...]) -> Read:
        """What stands in `recall`, of which a policy shows `history`."""
        summary = () if recall.summary is None else (recall.summary,)
        newest = (*recall.tail[-1:], *recall.systems[-1:], *summary)
        return cls(recall.incarnation, max((entry.sequence for entry in newest), default=0), history, new)


class Turn:
    """One turn of a conversation: what it recalls, and the one batch that it may store.

    It ends by `commit`, `abandon` or `pause`, which give its lease back, if the concurrency rule has leases. When `commit`
    raises, commit again or abandon.

    Attributes:
        turn_id: what its entries in the log will have in common.
    """

    __slots__ = (
        "_abandoned", "_branch", "_committed", "_conversation_id", "_hold", "_read", "_repository", "_retention", "turn_id",
    )  # fmt: skip
    _operation: ClassVar[str] = names.CREATE_MEMORY

    def __init__(
        self,
        repository: ChatMemoryRepository,
        conversation_id: str,
        turn_id: str,
        read: Read,
        *,
        retention: Retention | None = None,
        hold: Hold | None = None,
    ) -> None:
        self._repository = repository
        self._conversation_id = conversation_id
        self._read = read
        self._retention = retention
        self._hold = hold
        self._branch = Branch(repository, conversation_id, read)
        self._committed = self._abandoned = False
        self.turn_id = turn_id

    @property
    def conversation_id(self) -> str:
        """Where it is stored.

        Under the rule `Fork` that is a branch when another turn was under way, or, after `commit`, when the lease was lost.
        """
        branch = None if self._hold is None else self._hold.branch
        return self._conversation_id if branch is None else branch

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages to put before the prompt."""
        return self._read.history

    @property
    def new(self) -> tuple[Message, ...]:
        """The prompt's messages that are not in the log yet, without system messages. `commit` stores them first."""
        return self._read.new

    async def commit(self, messages: Iterable[Message] = ()) -> None:
        """Store the new messages and these after them, all or none. Once stored, committing again does nothing.

        Other turns that were stored since this one began do no harm: a turn is whole, and turns are in order of completion.

        Raises:
            ConversationDeletedError: the conversation was deleted since the turn began.
            LeaseLostError: it took longer than its lease, another turn has taken that over, and the rule refuses it then; so
                is each further try, and one after a commit that had nothing to store, which gave the lease back.
            ChatMemoryError: the turn was abandoned.
            StorageError: the store cannot be written.
        """
        if self._abandoned:
            raise ChatMemoryError("this `Turn` was abandoned; begin another one")
        batch, hold = self._batch(checked_batch(messages)), self._hold
        if batch and not self._committed:
            with MemorySpan(self._operation, self._repository, self.conversation_id) as span:
                if hold is None:
                    await self._append(batch)
                elif hold.branch is not None or not await self._store(batch, hold):
                    await self._branch.store(batch, self.turn_id, self._retention, hold)
                span.tell_count(len(batch))
            self._committed = True
        if hold is not None:
            await hold.release()

    async def abandon(self) -> None:
        """Give the turn up: nothing is stored from now on. What was committed stays."""
        self._abandoned = True
        if self._hold is not None:
            await self._hold.release()

    async def pause(self) -> None:
        """As `abandon`, of a turn that is to be begun again later. Where it is on a branch, that is made, to go on there."""
        if self._hold is not None and self._hold.branch is not None and not self._abandoned:
            await self._branch.make(self._hold.branch)
        await self.abandon()

    def _batch(self, answer: tuple[Message, ...]) -> tuple[Message, ...]:
        return (*self.new, *answer)

    async def _append(self, batch: Iterable[Message], *, token: int | None = None) -> None:
        await self._repository.append(
            self._conversation_id,
            batch,
            turn_id=self.turn_id,
            incarnation=self._read.incarnation,
            token=token,
            retention=self._retention,
        )

    async def _store(self, batch: tuple[Message, ...], hold: Hold) -> bool:
        """Store it in the conversation; False: the lease is lost, and it is to go to a branch."""
        if hold.token is not None:
            try:
                await self._append(batch, token=hold.token)
                return True
            except LeaseLostError as error:
                hold.give_up()
                if hold.late == "refuse":
                    raise LeaseLostError(hold.overtaken()) from error
        elif hold.late == "refuse":  # told already, or given back: another turn may be under way
            raise LeaseLostError("this turn has no lease any more; nothing was stored. Begin another one")
        if hold.late == "append":
            await self._append(batch)
        return hold.late == "append"


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
    """A turn that takes the place of the last one. As long as it is not committed with an answer, the old one stays.

    On a branch there is no old one: it stands behind what was before that.
    """

    __slots__ = ("_last", "_tried")
    _operation: ClassVar[str] = names.UPDATE_MEMORY

    def __init__(
        self,
        repository: ChatMemoryRepository,
        last: LastTurn,
        turn_id: str,
        read: Read,
        *,
        retention: Retention | None = None,
        hold: Hold | None = None,
    ) -> None:
        super().__init__(repository, last.conversation_id, turn_id, read, retention=retention, hold=hold)
        self._last = last
        self._tried = False

    async def commit(self, messages: Iterable[Message] = ()) -> None:
        """Put the new messages and these in place of the last turn, all or none; without an answer it stays as it is.

        Raises:
            ConversationConflictError: others wrote to the conversation since the last turn was looked up.
            ConversationDeletedError: it was deleted since.
            LeaseLostError: as for `Turn.commit`.
            ChatMemoryError: the turn was abandoned.
            StorageError: the store cannot be read or written.
        """
        await super().commit(messages)

    def _batch(self, answer: tuple[Message, ...]) -> tuple[Message, ...]:
        return (*self.new, *answer) if answer else ()

    async def _append(self, batch: Iterable[Message], *, token: int | None = None) -> None:
        if await self._is_stored():
            return
        last = self._last
        last.check_unchanged(await self._repository.recall(self._conversation_id, 0))
        entries = await self._log()
        kept = self._kept(entries, last.question)
        place, now = entries[-1].sequence + 1, datetime.now(UTC)
        turn = [Entry(place + n, self.turn_id, message, now) for n, message in enumerate(batch)]
        self._tried = True
        await self._repository.replace(
            self._conversation_id,
            [*kept, *turn],
            expected=last.revision,
            incarnation=last.incarnation,
            retention=self._retention,
        )

    async def _is_stored(self) -> bool:
        """Whether an earlier try, of which nothing was heard, has stored it; others may have written since."""
        return self._tried and any(entry.turn_id == self.turn_id for entry in await self._log())

    async def _log(self) -> list[Entry]:
        return [entry async for entry in all_entries(self._repository, self._conversation_id)]

    async def _store(self, batch: tuple[Message, ...], hold: Hold) -> bool:
        if await self._is_stored():
            return True
        # `replace` takes no token: the lease is looked at before, and lasts longer than that takes
        if not await hold.renew():
            hold.give_up()
            if hold.late == "refuse":
                raise LeaseLostError(hold.overtaken())
            if hold.late == "branch":
                return False
        try:
            await self._append(batch)
        except ConversationConflictError:
            if hold.late != "branch":
                raise
            return False
        return True

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
