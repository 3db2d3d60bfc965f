"""Where conversations are kept: an append-only log of entries for each conversation id.

A repository stores and reads; it decides nothing about what of a log fits into a prompt (policies do) and nothing about
how history enters a prompt (the advisor does).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Literal, Protocol, TypeVar

from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of
from advisorchain.messages import Message, SystemMessage, checked_messages

__all__ = [
    "ChatMemoryRepository",
    "Conversation",
    "Entry",
    "Page",
    "Recall",
    "Retention",
    "all_entries",
    "checked_batch",
    "distinct_systems",
    "in_force",
    "missing_methods",
]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in a log.

    Attributes:
        sequence: its place: 1 is the first of the conversation; grows, may have gaps, is never used again.
        turn_id: what was appended together has the same one.
        message: the message itself; `role` is its role.
        created: when it was appended, aware UTC with microseconds. Order never depends on it.
        kind: "message", or "summary" of the entries up to the sequence `covers`.
    """

    sequence: int
    turn_id: str
    message: Message
    created: datetime
    kind: Literal["message", "summary"] = "message"
    covers: int | None = None

    @property
    def role(self) -> str:
        """The message's role."""
        return self.message.role


@dataclass(frozen=True, slots=True)
class Recall:
    """What a policy needs to know of a log, read at one moment.

    Attributes:
        revision: how often the log was written to; 0 is a conversation that is not there.
        incarnation: which life of this id it is, since a deleted conversation may begin anew; 0 is not there.
        count: all entries of the log, of any role and wherever it was cut.
        tail: the newest entries that are neither system messages nor summaries, oldest first, as many as were asked for.
        systems: the system messages in force (see `in_force`), oldest first.
        question: the user message of the turn that the tail cuts into, when it lies before the tail.
        summary: the newest summary.
    """

    revision: int = 0
    incarnation: int = 0
    count: int = 0
    tail: tuple[Entry, ...] = ()
    systems: tuple[Entry, ...] = ()
    question: Entry | None = None
    summary: Entry | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in a list: its id, how many entries it has, when it was first and last written to, and when it ends.

    `expires` is None for one that is kept until it is deleted.
    """

    conversation_id: str
    count: int
    created: datetime
    updated: datetime
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long a conversation is kept, and how much of it. Given with a write.

    Args:
        ttl: the conversation ends when it was not written to for this long, of which each write begins anew. The store
            remembers it: a write that names none keeps the one that is there. `timedelta.max`: from now on it never ends.
        max_messages: after this write, the oldest turns beyond so many messages that are no system messages are removed for
            good, whole turns only (a user message and what follows), and never the newest one. Not remembered.

    Raises:
        ConfigurationError: a limit that is not above zero.
    """

    ttl: timedelta | None = None
    max_messages: int | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None and (not isinstance(self.ttl, timedelta) or self.ttl <= timedelta(0)):
            raise ConfigurationError("`ttl` must be a timedelta above zero, or None")
        if self.max_messages is not None and (self.max_messages.__class__ is not int or self.max_messages < 1):
            raise ConfigurationError(f"`max_messages` is {self.max_messages!r}; give a whole number of at least 1, or None")


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """A part of a list. `next` is the cursor to ask for the following part with; None: this was the last one."""

    items: tuple[_T, ...]
    next: str | None = None


class ChatMemoryRepository(Protocol):
    """A store of conversations. Its methods may be called from any thread and event loop, on asyncio and trio.

    A conversation whose time has run out (`Retention.ttl`) is one that is not there, to every method; the store removes it
    when it can, at the latest on `prune`. A turn that was begun while it was there is stored all the same, in a new life; to
    a second one that was begun then, this is another life, as it is after a deletion.

    Every method that takes a conversation id raises ConversationIdError for one that is not valid, InvalidInputError for
    any other argument that is not, and StorageError when the store cannot be opened, read or written, or was closed. A
    method that was cancelled has either had its whole effect or none. `advisorchain.testing.check_repository` checks
    all of this, StorageError and cancellation too, as far as it is given the means.
    """

    async def append(
        self,
        conversation_id: str,
        messages: Iterable[Message],
        *,
        turn_id: str,
        expected: int | None = None,
        incarnation: int | None = None,
        token: int | None = None,
        retention: Retention | None = None,
    ) -> int:
        """Add messages at the end, all or none; returns the new revision.

        The same `turn_id` again does nothing, also when its messages were replaced meanwhile, and so does an empty list;
        both return the revision that is there. `incarnation` is looked at first, then the turn id, then `token`, then
        `expected`.

        Args:
            conversation_id: 1 to 255 code points.
            messages: one batch, in order.
            turn_id: what makes a repeated append harmless; 1 to 255 code points, new for each turn.
            expected: the revision that must be there.
            incarnation: the life that the turn was begun in; None or 0 is not checked.
            token: a fencing token of `acquire` that must be the newest, and not released. A lease that ran out still
                counts while nobody else has taken it.
            retention: what is kept from now on, in the same write.

        Raises:
            InvalidInputError: `messages` is no list of messages.
            ConversationConflictError: another revision than `expected` is there.
            ConversationDeletedError: the conversation was deleted since.
            LeaseLostError: the token is stale.
        """
        ...

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read, in one trip, what a policy needs.

        Args:
            conversation_id: an unknown one gives an empty Recall.
            last: how many of the newest entries the tail shall have; None is all.
            before: leave out the entries from this sequence on.
        """
        ...

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence, in parts that stay the same while others write. `after` is the cursor of the part before.

        Where the conversation was deleted since, the cursor gives an empty page.
        """
        ...

    async def replace(
        self,
        conversation_id: str,
        messages: Iterable[Message | Entry],
        *,
        expected: int | None = None,
        incarnation: int | None = None,
        retention: Retention | None = None,
    ) -> int:
        """Put these messages in place of all that are there, all or none; returns the new revision (0: nothing is left).

        Entries, and leading messages equal to the stored ones, keep their time and turn id; the rest is one new turn. All
        get new sequences, which go on and are never used again; what a summary covers is moved along. The incarnation
        stays. Replacing by nothing is `delete`. `incarnation` is looked at first, then `expected`.

        Args:
            conversation_id: 1 to 255 code points.
            messages: what shall be there, in order.
            expected: the revision that must be there.
            incarnation: the life that must be there; None or 0 is not checked.
            retention: what is kept from now on, in the same write.

        Raises:
            ConversationConflictError: another revision than `expected` is there.
            ConversationDeletedError: the conversation was deleted since.
        """
        ...

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation with all its messages; False when there was none."""
        ...

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id, with its entries, revision, incarnation and times; False when there is none.

        A turn that was begun under the old id is refused there, as after `delete`. Leases stay with their ids.

        Raises:
            ConversationConflictError: there is a conversation `new_id` (also when it is the same id).
        """
        ...

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries: all, or up to and with the sequence `at`.

        The copy is made in the store. Entries keep sequence, turn id and time; revision is 1, the incarnation is new, the
        time to live is that of the original. False when there is none, or no entry up to `at`.

        Raises:
            ConversationConflictError: there is a conversation `new_id` (also when it is the same id).
        """
        ...

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations whose time has run out, and those that were last written to before the aware time `before`.

        Of the ids that begin with `prefix`, `limit` at most; returns how many it removed. 0: there are no more. Leases that
        ended over an hour ago go too, of any prefix.
        """
        ...

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id in code point order."""
        ...

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; returns its fencing token, or None: another owner has it.

        A new lease has a greater token than any before, also across `delete`; renewing one that has not run out keeps it.
        The owner of each turn needs a name of its own. Leases do not depend on whether the conversation is there.
        """
        ...

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        ...

    async def aclose(self) -> None:
        """Free what the repository holds. It cannot be used after that; closing twice is fine."""
        ...


def missing_methods(repository: object) -> tuple[str, ...]:
    """What `ChatMemoryRepository` has and this object has not; of a subclass, also what it has not written itself."""
    needed = {name: method for name, method in vars(ChatMemoryRepository).items() if name[0] != "_" and callable(method)}
    return tuple(
        name
        for name, method in needed.items()
        if not callable(getattr(repository, name, None)) or getattr(type(repository), name, None) is method
    )


async def all_entries(repository: ChatMemoryRepository, conversation_id: str, limit: int = 500) -> AsyncIterator[Entry]:
    """Every entry of a conversation, oldest first, read `limit` at a time."""
    page = await repository.page(conversation_id, limit=limit)
    while True:
        for entry in page.items:
            yield entry
        if page.next is None:
            return
        page = await repository.page(conversation_id, after=page.next, limit=limit)


def checked_batch(messages: object) -> tuple[Message, ...]:
    """`messages` as a tuple; InvalidInputError when it is no list of messages."""
    if isinstance(messages, str | bytes | dict) or not isinstance(messages, Iterable):
        raise InvalidInputError(f"`messages` is {kind_of(messages)}; give a list of messages")
    return checked_messages(tuple(messages))


def in_force(before: tuple[SystemMessage, ...], batch: Iterable[Message]) -> tuple[SystemMessage, ...] | None:
    """The system messages in force after `batch`, or None: still those of `before`.

    A batch with a system message that is not in force yet replaces all that are by its own, each distinct one once;
    otherwise it adds none. Messages are compared by content.
    """
    own = distinct_systems(batch)
    known = {message.content for message in before}
    return None if all(message.content in known for message in own) else own


def distinct_systems(messages: Iterable[Message]) -> tuple[SystemMessage, ...]:
    """The system messages among these, each content once; of equal ones the first stands."""
    distinct: dict[object, SystemMessage] = {}
    for message in messages:
        if isinstance(message, SystemMessage):
            distinct.setdefault(message.content, message)
    return tuple(distinct.values())
