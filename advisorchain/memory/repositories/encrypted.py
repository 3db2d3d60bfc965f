"""Encryption at rest, around any repository."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import uuid4

from anyio import to_thread

from advisorchain.errors import (
    ConfigurationError,
    ConversationConflictError,
    ConversationDeletedError,
    InvalidInputError,
    StorageError,
    kind_of,
)
from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.repositories import _log_rules
from advisorchain.memory.repositories._arguments import checked_items, checked_prefix, checked_text, message_of
from advisorchain.memory.repositories._encryption import HASHED, Cipher, Sealed, weight
from advisorchain.memory.repository import (
    ChatMemoryRepository,
    Conversation,
    Entry,
    Page,
    Recall,
    Retention,
    all_entries,
    checked_batch,
    missing_methods,
)
from advisorchain.messages import Message, SystemMessage

__all__ = ["EncryptedChatMemoryRepository"]

_T = TypeVar("_T")

_TRIES: Final = 20
_LARGE: Final = 200_000  # characters, of which encryption takes about a millisecond


class EncryptedChatMemoryRepository:
    """Any repository, with everything unreadable in its store but roles, kinds, times, sequences and conversation ids.

    Hidden are contents, metadata, names, tool calls and results, reasoning, turn ids and the owners of leases. Whoever can
    read the store still sees how many entries of which role and length a conversation has, when they were written, and
    which system messages are equal. Whoever can write to it can remove or restore whole turns, and move them to another
    conversation, which `rename` and `fork` of the store do as well; but an entry that was changed, or put in the place of
    another one, is an error.

    Keys are Fernet keys. The first encrypts, all of them decrypt; `names_key` hashes turn ids and, with `hash_ids`,
    conversation ids. To change keys while several processes run, give each of these to all of them before the next one:

    1. `keys=[old, new], names_key=old`: all can read what will be written;
    2. `keys=[new, old], names_key=old`; then `rotate` each conversation;
    3. `keys=[new], names_key=old`.

    With `hash_ids` the key of names stays for as long as there are conversations. Without, it may change while no turn is
    under way: by it a turn that is stored again is known, and the holder of a lease.

    A wrong key is a StorageError before anything is written, or read as if it were not there. With `hash_ids` a store that
    has only conversations which another key named is refused, so all who share a store have one key of names.

    What was stored without encryption is not read (StorageError); `snapshot` and `restore` of a ChatMemory move it.

    Args:
        repository: where the encrypted entries are kept. `aclose` closes it.
        keys: what `cryptography.fernet.Fernet.generate_key()` made, as text or bytes; or a list of such keys.
        hash_ids: the store sees a keyed hash in place of each conversation id, and a short hash of the key, which tells no
            more than which ids are of one key. `conversations` then gives these, in their order; every method takes them as
            ids, too. No `prefix` can be asked for, and ids that are not hashed are not listed.
        names_key: a key as those of `keys`; None: the last one of these.

    Raises:
        ConfigurationError: `keys`, `names_key` or `repository` are none.
    """

    def __init__(
        self,
        repository: ChatMemoryRepository,
        keys: str | bytes | Iterable[str | bytes],
        *,
        hash_ids: bool = False,
        names_key: str | bytes | None = None,
    ) -> None:
        missing = missing_methods(repository)
        if isinstance(repository, type) or missing:
            needed = " and ".join(f"`{name}`" for name in missing) or "been made: call the class"
            raise ConfigurationError(f"`repository` is {kind_of(repository)}; give an object that has {needed}")
        self.repository = repository
        self.remote = getattr(repository, "remote", False)  # as spans say
        self._cipher = Cipher(keys, names_key)
        self._hash_ids = hash_ids
        self._named = not hash_ids  # whether the key of names is known to be the one that named what is there

    def __repr__(self) -> str:
        return f"EncryptedChatMemoryRepository({self.repository!r}, keys=..., hash_ids={self._hash_ids})"

    def stored_id(self, conversation_id: str) -> str:
        """The id by which the inner repository knows a conversation, which `conversations` lists; of such a one, itself.

        Raises:
            ConversationIdError: `conversation_id` is none.
        """
        checked_conversation_id(conversation_id)
        return self._cipher.hashed_id(conversation_id) if self._hash_ids else conversation_id

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
        """Add messages at the end, all or none; see `ChatMemoryRepository.append`.

        Without `incarnation` (a turn has one, since it has read before), or with system messages, it opens the newest entry
        first, which is one more trip to the store.
        """
        batch = checked_batch(messages)
        bound = self._turn(checked_text(turn_id, "turn_id"))
        name = await self._name(conversation_id)
        was_read = incarnation is not None and not any(isinstance(message, SystemMessage) for message in batch)
        known = {} if was_read else await self._stand_ins(name)
        sealed = Sealed(turn_id, bound, uuid4().hex, 0, "message")
        hidden = await _aside(
            batch,
            lambda: [self._cipher.seal(message, sealed._replace(place=at), known) for at, message in enumerate(batch)],
        )
        return await self.repository.append(
            name, hidden, turn_id=bound, expected=expected, incarnation=incarnation, token=token, retention=retention
        )

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read what a policy needs; see `ChatMemoryRepository.recall`."""
        found = await self.repository.recall(await self._name(conversation_id), last, before=before)
        entries = {entry.sequence: entry for entry in (*found.tail, *found.systems) if entry}
        entries |= {entry.sequence: entry for entry in (found.question, found.summary) if entry}
        opened = {entry.sequence: entry for entry in await self._opened(list(entries.values()))}
        return replace(
            found,
            tail=tuple(opened[entry.sequence] for entry in found.tail),
            systems=tuple(opened[entry.sequence] for entry in found.systems),
            question=opened[found.question.sequence] if found.question else None,
            summary=opened[found.summary.sequence] if found.summary else None,
        )

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence; see `ChatMemoryRepository.page`."""
        name = await self._name(conversation_id)
        found = await self.repository.page(name, after=after, limit=limit, newest_first=newest_first)
        return replace(found, items=tuple(await self._opened(found.items)))

    async def replace(
        self,
        conversation_id: str,
        messages: Iterable[Message | Entry],
        *,
        expected: int | None = None,
        incarnation: int | None = None,
        retention: Retention | None = None,
    ) -> int:
        """Put these messages in place of all that are there; see `ChatMemoryRepository.replace`.

        All of them are encrypted anew. Reads what is there first, and again when others write meanwhile.

        Raises:
            ConversationConflictError: another revision than `expected` is there, or others write all the time.
        """
        items = checked_items(messages)
        name = await self._name(conversation_id)
        for tries_left in reversed(range(_TRIES)):
            found = await self.repository.recall(name, 1)
            self._cipher.check_key(found.tail)
            _log_rules.check_incarnation(incarnation, found.incarnation)
            _log_rules.check_writer(expected=expected, revision=found.revision, lease=None, token=None)
            hidden = await self._sealed(await self._kept(name, items))
            try:
                return await self.repository.replace(
                    name, hidden, expected=found.revision, incarnation=incarnation, retention=retention
                )
            except ConversationConflictError:
                if not tries_left or expected is not None:
                    raise
        raise AssertionError  # the last try returned or raised

    async def rotate(self, conversation_id: str) -> bool:
        """Encrypt a conversation anew with the first key; False when all of it is so already, or there is none.

        To the store this is a `replace` by the same entries: sequences and revision change, and its time to live begins
        anew; messages, times and turn ids stay.

        Raises:
            ConversationConflictError: others write to it all the time.
        """
        name = await self._name(conversation_id)
        for tries_left in reversed(range(_TRIES)):
            found = await self.repository.recall(name, 0)
            stored = [entry async for entry in all_entries(self.repository, name)]
            now = await self.repository.recall(name, 0)
            if tries_left and (now.incarnation, now.revision) != (found.incarnation, found.revision):
                continue  # written anew while it was read, it would look like a store that somebody has changed
            if all(self._cipher.is_of_first_key(entry) for entry in stored):
                return False
            hidden = await self._sealed(await self._opened(stored))
            try:
                await self.repository.replace(name, hidden, expected=found.revision, incarnation=found.incarnation)
                return True
            except (ConversationConflictError, ConversationDeletedError):
                if not tries_left:
                    raise
        raise AssertionError  # the last try returned or raised

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation; False when there was none."""
        return await self.repository.delete(await self._name(conversation_id))

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; see `ChatMemoryRepository.rename`."""
        return await self.repository.rename(await self._name(conversation_id), self.stored_id(new_id))

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries; see `ChatMemoryRepository.fork`."""
        return await self.repository.fork(await self._name(conversation_id), self.stored_id(new_id), at=at)

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations that ended, or were not written to; see `ChatMemoryRepository.prune`.

        Raises:
            InvalidInputError: a `prefix`, though ids are hashed.
        """
        return await self.repository.prune(before=before, prefix=self._prefix(prefix), limit=limit)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; with `hash_ids` all of them, by their hashes.

        Raises:
            InvalidInputError: a `prefix`, though ids are hashed.
        """
        return await self.repository.conversations(prefix=self._prefix(prefix), after=after, limit=limit)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`."""
        hidden = self._cipher.name("owner", checked_text(owner, "owner"))
        return await self.repository.acquire(await self._name(conversation_id), hidden, seconds)

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        await self.repository.release(self.stored_id(conversation_id), token)

    async def aclose(self) -> None:
        """Close the inner repository. Closing twice is fine."""
        await self.repository.aclose()

    def _turn(self, turn_id: str) -> str:
        return self._cipher.name("turn", turn_id)

    def _prefix(self, prefix: str) -> str:
        checked_prefix(prefix, "prefix")
        if prefix and self._hash_ids:
            raise InvalidInputError("`prefix` cannot be asked for: the store knows only hashes of ids (`hash_ids=True`)")
        return HASHED if self._hash_ids else prefix

    async def _name(self, conversation_id: str) -> str:
        """The stored id, once it is known that its key is the one that named what is there, if anything is."""
        name = self.stored_id(conversation_id)
        if not self._named and (first := await self._first_id(HASHED)):
            if not first.startswith(self._cipher.mark) and not await self._first_id(self._cipher.mark):
                raise StorageError(
                    "the ids in this store were hashed with another key: give the one that hashed them as `names_key`"
                )
            self._named = True
        return name

    async def _first_id(self, prefix: str) -> str | None:
        page = await self.repository.conversations(prefix=prefix, limit=1)
        return page.items[0].conversation_id if page.items else None

    async def _stand_ins(self, name: str) -> dict[object, str]:
        """What stands for the system messages in force: after a change of keys it would be something else.

        Raises:
            StorageError: they, or the newest entry, cannot be opened.
        """
        found = await self.repository.recall(name, 1)
        await self._opened(found.tail)
        shown = await self._opened(found.systems)
        return {
            entry.message.content: str(stored.message.content) for entry, stored in zip(shown, found.systems, strict=True)
        }

    async def _kept(self, name: str, items: Sequence[Message | Entry]) -> list[Entry]:
        """As `replacement` has it: leading messages equal to the stored ones are these, the rest is one new turn."""
        leading = [] if all(isinstance(item, Entry) for item in items) else await self._leading(name, items)
        kept = [
            leading[place] if place < len(leading) and not isinstance(item, Entry) else item
            for place, item in enumerate(items)
        ]
        numbers = [number for item in kept if isinstance(item, Entry) for number in (item.sequence, item.covers or 0)]
        behind, turn_id, now = max(numbers, default=0) + 1, uuid4().hex, datetime.now(UTC)
        return [
            item if isinstance(item, Entry) else Entry(behind + place, turn_id, item, now) for place, item in enumerate(kept)
        ]

    async def _leading(self, name: str, items: Sequence[Message | Entry]) -> list[Entry]:
        """The stored entries that the first items repeat."""
        found: list[Entry] = []
        async with aclosing(all_entries(self.repository, name)) as stored:  # type: ignore[type-var]
            async for hidden in stored:
                (entry,) = await self._opened([hidden])
                if len(found) == len(items) or message_of(items[len(found)]) != entry.message:
                    break
                found.append(entry)
        return found

    async def _sealed(self, entries: Sequence[Entry]) -> list[Entry]:
        batch = uuid4().hex
        return await _aside(
            [entry.message for entry in entries],
            lambda: [self._hidden(entry, batch, place) for place, entry in enumerate(entries)],
        )

    def _hidden(self, entry: Entry, batch: str, place: int) -> Entry:
        bound = self._turn(entry.turn_id)
        message = self._cipher.seal(entry.message, Sealed(entry.turn_id, bound, batch, place, entry.kind))
        return replace(entry, turn_id=bound, message=message)

    async def _opened(self, entries: Sequence[Entry]) -> list[Entry]:
        return await _aside([entry.message for entry in entries], lambda: self._cipher.open(entries)) if entries else []


async def _aside(messages: Iterable[Message], work: Callable[[], _T]) -> _T:
    """What `work` returns; in a worker thread when it would hold up the event loop."""
    return work() if sum(map(weight, messages)) < _LARGE else await to_thread.run_sync(work)
