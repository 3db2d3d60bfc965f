"""A conversation's memory: a policy over a repository, and the turns that are read from it and written to it.

`advisorchain.advisors.chat_memory` puts it into a chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from advisorchain import conventions as names
from advisorchain._telemetry.operation import MemorySpan
from advisorchain.errors import ConfigurationError, ConversationConflictError, InvalidInputError, kind_of
from advisorchain.memory._hold import Hold, take_hold
from advisorchain.memory.concurrency import APPEND, ConcurrencyRule, checked_rule
from advisorchain.memory.policies import MemoryPolicy, MessageWindow
from advisorchain.memory.recalling import recalled_once
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import (
    ChatMemoryRepository,
    Conversation,
    Entry,
    Page,
    Retention,
    all_entries,
    checked_batch,
    missing_methods,
)
from advisorchain.memory.snapshots import dump_snapshot, load_snapshot, ttl_of
from advisorchain.memory.turns import LastTurn, Read, ReplacingTurn, Turn
from advisorchain.messages import Message, SystemMessage

__all__ = ["ChatMemory", "ago"]

_SNAPSHOT_TRIES: Final = 20
_IDS_AT_ONCE: Final = 500


class ChatMemory:
    """What is remembered of conversations, and how much of it a prompt carries.

    The policy chooses, the repository keeps; each ChatMemory makes its own where none is given: a window of 20 messages over
    a store in this process's memory. Only a repository that it made itself is closed by `aclose`.

    Every method that takes a conversation id raises ConversationIdError for one that is not valid, and StorageError when
    the store cannot be read or written.

    Args:
        policy: how much of a conversation a prompt carries.
        repository: where conversations are kept.
        concurrency: what happens when a turn begins while another one of its conversation is under way: `Append()`,
            `Serialize()`, `Reject()` or `Fork()`; see `advisorchain.memory.concurrency`.
        retention: for how long a conversation is kept, and how much of it; goes with every write of this memory.

    Raises:
        ConfigurationError: an argument that is none of these.
    """

    def __init__(
        self,
        policy: MemoryPolicy | None = None,
        repository: ChatMemoryRepository | None = None,
        *,
        concurrency: ConcurrencyRule = APPEND,
        retention: Retention | None = None,
    ) -> None:
        self.policy: MemoryPolicy = MessageWindow() if policy is None else policy
        self.repository: ChatMemoryRepository = InMemoryChatMemoryRepository() if repository is None else repository
        self.concurrency: ConcurrencyRule = checked_rule(concurrency)
        self.retention = retention
        self._owned = repository is None
        _require("policy", self.policy, [name for name in ("last", "view") if _lacks(self.policy, name)])
        _require("repository", self.repository, missing_methods(self.repository))
        if not isinstance(retention, Retention | None):
            raise ConfigurationError(f"`retention` is {kind_of(retention)}; give a `Retention`, or None")

    def __repr__(self) -> str:
        settings = [f"{name}={told}" for name, told in self.describe().items() if name in ("concurrency", "retention")]
        return f"ChatMemory({', '.join([repr(self.policy), repr(self.repository), *settings])})"

    def describe(self) -> dict[str, str]:
        """Its parts by name, as they show themselves; a rule or retention that is not set is left out."""
        parts: dict[str, object] = {"policy": self.policy, "repository": self.repository}
        if self.concurrency != APPEND:
            parts["concurrency"] = self.concurrency
        if self.retention is not None:
            parts["retention"] = self.retention
        return {name: repr(part) for name, part in parts.items()}

    async def get(self, conversation_id: str) -> tuple[Message, ...]:
        """The messages that a prompt would carry now, oldest first; an unknown conversation has none."""
        return self.policy.view(await self.repository.recall(conversation_id, self.policy.last))

    async def add(self, conversation_id: str, messages: Message | Iterable[Message]) -> None:
        """Store a message, or several as one batch: all or none.

        Raises:
            InvalidInputError: `messages` is neither.
        """
        batch = (messages,) if isinstance(messages, Message) else checked_batch(messages)
        await self.repository.append(conversation_id, batch, turn_id=uuid4().hex, retention=self.retention)

    async def clear(self, conversation_id: str) -> bool:
        """Delete the conversation; False when there was none. A turn of it that is under way is refused then."""
        return await self.repository.delete(conversation_id)

    async def begin(self, conversation_id: str, prompt: Iterable[Message], *, replacing: LastTurn | None = None) -> Turn:
        """Begin a turn with this prompt. Nothing is stored before `commit`.

        That is one trip to the store, and one more for a lease where the concurrency rule has them. What is recalled, and
        what of the prompt is new: `advisorchain.memory.recalling.recalled_once`.

        Args:
            conversation_id: whose turn it is.
            prompt: the messages of the request.
            replacing: what `last_turn` found. History is then what was before it, the last message of the prompt is always
                new, and `commit` puts the turn in its place, if there is an answer.

        Raises:
            InvalidInputError: `prompt` is no list of messages, or `replacing` is a turn of another conversation.
            ConversationBusyError: another turn is under way, and the concurrency rule allows no second one.
            ConversationConflictError: others wrote to the conversation since `replacing` was looked up.
            ConversationDeletedError: it was deleted since.
        """
        prompt = checked_batch(prompt)
        if replacing is not None and conversation_id != replacing.conversation_id:
            raise InvalidInputError(
                "`replacing` is a turn of another conversation: an advisor outside the memory changed `conversation_id`"
            )
        turn_id, asked = uuid4().hex, perf_counter()
        hold = await take_hold(self.concurrency, self.repository, conversation_id, turn_id)
        waited = None if hold is None else perf_counter() - asked
        try:
            with MemorySpan(names.SEARCH_MEMORY, self.repository, conversation_id, waited=waited) as span:
                turn = await self._begun(conversation_id, turn_id, prompt, replacing, hold)
                span.tell_count(len(turn.history))
                return turn
        except GeneratorExit:
            raise  # thrown away unfinished: a coroutine may not await any more
        except BaseException:
            if hold is not None:
                await hold.release()
            raise

    async def _begun(
        self, conversation_id: str, turn_id: str, prompt: tuple[Message, ...], replacing: LastTurn | None, hold: Hold | None
    ) -> Turn:
        if replacing is None:
            read = await self._read(conversation_id, prompt)
            return Turn(self.repository, conversation_id, turn_id, read, retention=self.retention, hold=hold)
        read = await self._read_before(replacing, prompt)
        return ReplacingTurn(self.repository, replacing, turn_id, read, retention=self.retention, hold=hold)

    async def _read(self, conversation_id: str, prompt: tuple[Message, ...]) -> Read:
        recall = await self.repository.recall(conversation_id, self._most(prompt))
        return Read.of(recall, *recalled_once(self.policy, recall, prompt))

    async def _read_before(self, last: LastTurn, prompt: tuple[Message, ...]) -> Read:
        recall = await self.repository.recall(last.conversation_id, self._most(prompt), before=last.question.sequence)
        last.check_unchanged(recall)
        said = tuple(message for message in prompt if not isinstance(message, SystemMessage))
        history, new = recalled_once(self.policy, recall, said[:-1])  # asked twice in a row, the last is not the one before
        return Read.of(recall, history, (*new, *said[-1:]))

    def _most(self, prompt: tuple[Message, ...]) -> int | None:
        last = self.policy.last
        return last if last is None else last + len(prompt)

    async def last_turn(self, conversation_id: str) -> LastTurn | None:
        """The last turn, to be replaced by another (`begin`); None: nobody has asked anything yet."""
        recall = await self.repository.recall(conversation_id, 1)
        question = next((entry for entry in recall.tail if entry.role == "user"), recall.question)
        return None if question is None else LastTurn(conversation_id, question, recall.revision, recall.incarnation)

    async def count(self, conversation_id: str) -> int:
        """How many messages are stored, of any role; the policy plays no part."""
        return (await self.repository.recall(conversation_id, 0)).count

    async def history(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """What is stored, with times and turn ids, a page at a time; the policy plays no part.

        `after` is the `next` of the page before.
        """
        return await self.repository.page(conversation_id, after=after, limit=limit, newest_first=newest_first)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id, a page at a time."""
        return await self.repository.conversations(prefix=prefix, after=after, limit=limit)

    async def snapshot(self, conversation_id: str) -> dict[str, Any]:
        """The whole conversation as a dict of JSON values, with its time to live, for `restore`, here or on another store.

        Raises:
            ConversationConflictError: others wrote to it all the while.
        """
        found = await self.repository.recall(conversation_id, 0)
        for _ in range(_SNAPSHOT_TRIES):
            before = found
            entries = await self._log(conversation_id)
            ttl = await ttl_of(self.repository, conversation_id)
            found = await self.repository.recall(conversation_id, 0)
            if (found.incarnation, found.revision) == (before.incarnation, before.revision):  # nobody wrote meanwhile
                return dump_snapshot(entries, ttl)
        raise ConversationConflictError(
            "the conversation is being written to all the time; take the snapshot later",
            expected=before.revision,
            found=found.revision,
        )

    async def restore(self, conversation_id: str, snapshot: Mapping[str, Any]) -> None:
        """Put a snapshot in place of what this conversation holds. Messages keep their times and turn ids.

        The time to live is the snapshot's, unless this memory's `retention` has one. It begins now, as does "last written
        to" (`Conversation.updated`), by which `prune` goes.

        Raises:
            InvalidInputError: `snapshot` is none.
        """
        entries, ttl = load_snapshot(snapshot)
        own = self.retention or Retention()
        await self.repository.replace(conversation_id, entries, retention=own if own.ttl else replace(own, ttl=ttl))

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> None:
        """Copy a conversation to a new id, in the store: all of it, or up to and with the entry whose sequence is `at`.

        Raises:
            InvalidInputError: there is nothing to copy.
            ConversationConflictError: `new_id` is a conversation already.
        """
        if not await self.repository.fork(conversation_id, new_id, at=at):
            raise InvalidInputError("`conversation_id` names no conversation, or `at` lies before its first entry")

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; False when there is none. A turn of it that is under way is refused then.

        Raises:
            ConversationConflictError: `new_id` is a conversation already.
        """
        return await self.repository.rename(conversation_id, new_id)

    async def clear_all(self, prefix: str, *, everything: bool = False) -> int:
        """Delete the conversations whose ids begin with `prefix`; tells how many there were.

        Args:
            prefix: with the separator at its end, such as "user:17:"; "user:17" is that of "user:170:" as well.
            everything: an empty prefix is meant: all conversations of the store.

        Raises:
            InvalidInputError: `prefix` is no text, or empty without `everything`.
        """
        if not prefix and not everything:
            raise InvalidInputError("`prefix` is empty, which is every conversation of the store; if so, `everything=True`")
        deleted, page = 0, await self.repository.conversations(prefix=prefix, limit=_IDS_AT_ONCE)
        while True:
            for found in page.items:
                deleted += await self.repository.delete(found.conversation_id)
            if page.next is None:
                return deleted
            page = await self.repository.conversations(prefix=prefix, after=page.next, limit=_IDS_AT_ONCE)

    async def prune(self, older_than: timedelta | None = None, *, prefix: str = "") -> int:
        """Remove, from the store, conversations whose time is over (`Retention.ttl`); tells how many were removed.

        Args:
            older_than: also those that nobody has written to for so long.
            prefix: only ids that begin with it.

        Raises:
            InvalidInputError: `older_than` is no time above zero.
        """
        if older_than is not None and (not isinstance(older_than, timedelta) or older_than <= timedelta(0)):
            raise InvalidInputError("`older_than` must be a timedelta above zero, or None")
        before = None if older_than is None else ago(older_than)
        removed = 0
        while found := await self.repository.prune(before=before, prefix=prefix):
            removed += found
        return removed

    async def _log(self, conversation_id: str) -> list[Entry]:
        return [entry async for entry in all_entries(self.repository, conversation_id)]

    async def aclose(self) -> None:
        """Close the repository, if it was made here. One that was given stays the giver's."""
        if self._owned:
            await self.repository.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def ago(time: timedelta) -> datetime | None:
    """So long before now; None: before all times."""
    try:
        return datetime.now(UTC) - time
    except OverflowError:
        return None


def _lacks(policy: object, name: str) -> bool:
    """Whether it has no such attribute, or a body of the protocol's, which does nothing."""
    inherited = getattr(type(policy), name, None) is getattr(MemoryPolicy, name)
    return inherited or not hasattr(policy, name)


def _require(name: str, part: object, missing: Collection[str]) -> None:
    if isinstance(part, type) or missing:
        found = kind_of(part)
        needed = " and ".join(f"`{attribute}`" for attribute in missing) or "been made: call the class"
        hint = ""
        if hasattr(part, "__aenter__"):  # what `open_repository` gives
            hint = "; enter it with `async with` first, or, where that cannot be, give a SqliteChatMemoryRepository(path)"
        raise ConfigurationError(f"`{name}` is {found}; give an object that has {needed}{hint}")
