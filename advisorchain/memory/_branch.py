"""The branch of a conversation that a turn goes to when it may not be stored in the conversation itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisorchain.errors import ConversationConflictError, ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository, Retention
from advisorchain.messages import Message

if TYPE_CHECKING:  # both are built on this
    from advisorchain.memory._hold import Hold
    from advisorchain.memory.turns import Read

__all__ = ["Branch"]


class Branch:
    """Where a turn goes: a copy of what it had read of its conversation, and the turn behind it.

    The id is `Hold.branch`. Storing may be tried again: a copy of an earlier try is taken for this one's.
    """

    __slots__ = ("_conversation_id", "_copying", "_read", "_repository")

    def __init__(self, repository: ChatMemoryRepository, conversation_id: str, read: Read) -> None:
        self._repository = repository
        self._conversation_id = conversation_id
        self._read = read
        self._copying = False  # whether a copy to the id was begun

    async def store(self, batch: tuple[Message, ...], turn_id: str, retention: Retention | None, hold: Hold) -> None:
        """Store the turn, under another id when the branch's is taken.

        Raises:
            ConversationDeletedError: what it had read is not there any more; nothing is stored.
        """
        name = hold.branch or await hold.branch_off("late")
        while True:
            try:
                return await self._append(name, batch, turn_id, retention)
            except ConversationConflictError:
                name, self._copying = await hold.branch_off("taken"), False

    async def make(self, name: str) -> None:
        """Make the copy alone, to go on there later; where there is nothing to copy, nothing."""
        try:
            if self._read.seen:
                await self._check_not_deleted(name, await self._copy(name))
        except (ConversationConflictError, ConversationDeletedError):
            pass  # nothing to go on from: it begins anew then

    async def _append(self, name: str, batch: tuple[Message, ...], turn_id: str, retention: Retention | None) -> None:
        copied = self._read.seen > 0 and await self._copy(name)
        await self._check_not_deleted(name, copied)
        # where it was written anew meanwhile: what this turn had read of it
        said = batch if copied else (*self._read.history, *batch)
        await self._repository.append(name, said, turn_id=turn_id, expected=None if copied else 0, retention=retention)

    async def _copy(self, name: str) -> bool:
        """Copy what this turn had read; False: it is not there any more."""
        again, self._copying = self._copying, True
        try:
            return await self._repository.fork(self._conversation_id, name, at=self._read.seen)
        except ConversationConflictError:
            if again:
                return True
            raise

    async def _check_not_deleted(self, name: str, copied: bool) -> None:
        """Asked after the copy was made: a life that is there now was there when it was copied."""
        begun = self._read.incarnation
        if begun and (await self._repository.recall(self._conversation_id, 0)).incarnation != begun:
            if copied:
                await self._repository.delete(name)
            raise ConversationDeletedError(
                "the conversation was deleted after this turn had begun; nothing was stored on a branch either"
            )
