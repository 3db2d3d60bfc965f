"""Conversations in MongoDB, by its official driver, for any number of machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from advisorchain.exchange import MAX_ID_LENGTH, checked_conversation_id
from advisorchain.memory.repositories import _arguments, _log_rules, _times
from advisorchain.memory.repositories._arguments import (
    LAST,
    checked_items,
    checked_lease,
    checked_number,
    checked_place,
    checked_prefix,
    checked_retention,
    checked_text,
    checked_time,
)
from advisorchain.memory.repositories._mongodb import leases, writes
from advisorchain.memory.repositories._mongodb.client import MongoHop, MongoStore
from advisorchain.memory.repositories._mongodb.driver import Document
from advisorchain.memory.repositories._mongodb.entries import RemovedError, entry_of, part, recalled
from advisorchain.memory.repositories._mongodb.fork import fork
from advisorchain.memory.repositories._mongodb.head import find
from advisorchain.memory.repository import Conversation, Entry, Page, Recall, Retention, checked_batch
from advisorchain.messages import Message

if TYPE_CHECKING:
    from pymongo import MongoClient

__all__ = ["MongoChatMemoryRepository"]

_LAST_CHARACTER: Final = "\U0010ffff"


class MongoChatMemoryRepository:
    """Keeps conversations in a MongoDB database that any number of machines may share.

    May be used from any thread and event loop, on asyncio and trio; each call is one unit of work in one hop to a worker
    thread. It needs no transactions, so it runs on a standalone server as well as on a replica set: a write takes effect in
    one atomic update of the conversation's document, which carries the whole turn. A turn may therefore have at most 16 MB
    as JSON; `replace` may have more, of which one message at most that.

    What was acknowledged was written to the majority of a replica set, unless the URL or client names another write
    concern. Reads ask the primary.

    Conversations whose time has run out are removed by `prune`, by the next write to their id, and, when they ended an hour
    ago or more, as new conversations come. MongoDB's own TTL indexes are not used: they remove single documents and know
    nothing of a conversation's entries.

    The tests run the official driver against nx-27017, a stand-in that speaks MongoDB's protocol and keeps its data in
    SQLite; no real mongod was run.

    Args:
        url_or_client: `mongodb://` or `mongodb+srv://` and so on; or a synchronous `MongoClient`, which stays the giver's.
        database: its name; None: the one in the URL, else "advisorchain".
        prefix: begins the names of the collections, which are `conversations`, `entries`, `leases`, `garbage` and `meta`.
        create: make the collections' indexes on first use; else call `create_indexes` once.
        clock: tells seconds, by which leases and conversations end. None: the server's clock. A given one must be the same
            on all machines.
        max_connections: that this repository uses at the same time, in each event loop.
        timeout: seconds to wait for the server, for each of its answers, and while others write to the same conversation.
            The first two are the client's own business when one is given, or when the URL names them.

    Raises:
        ConfigurationError: an argument that cannot work. What is wrong with the server shows on first use.
    """

    remote = True  # asked over a network, as its spans say

    def __init__(
        self,
        url_or_client: str | MongoClient[Any],
        *,
        database: str | None = None,
        prefix: str = "",
        create: bool = True,
        clock: Callable[[], float] | None = None,
        max_connections: int = 20,
        timeout: float = 30.0,
    ) -> None:
        self._hop = MongoHop(url_or_client, database, prefix, create, clock, max_connections, timeout)

    def __repr__(self) -> str:
        return f"<MongoChatMemoryRepository on {self._hop.name}>"

    async def create_indexes(self) -> None:
        """Make the indexes that are not there yet. Not needed with `create=True`.

        Raises:
            StorageError: a collection of ours has a collation, by which different ids may be equal.
        """
        await self._hop.prepare()

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
        """Add messages at the end, all or none; see `ChatMemoryRepository.append`."""
        checked_conversation_id(conversation_id)
        batch = checked_batch(messages)
        checked_text(turn_id, "turn_id")
        kept = checked_retention(retention)
        turn = writes.Turn(conversation_id, batch, turn_id, expected, incarnation, token, kept)
        return await self._hop.run(lambda store: writes.append(store, turn), twice=True)

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read what a policy needs; see `ChatMemoryRepository.recall`. Costs what the tail costs."""
        checked_conversation_id(conversation_id)
        most = None if last is None else checked_number(last, "last", least=0)
        end = None if before is None else checked_number(before, "before", least=0, most=LAST)

        def work(store: MongoStore) -> Recall:
            for _ in store.tries():
                log = find(store, conversation_id).log
                try:
                    return recalled(store, log, most, end) if log.incarnation else Recall()
                except RemovedError:
                    continue
            return Recall()  # not reached: the tries end with an error

        return await self._hop.run(work)

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence; see `ChatMemoryRepository.page`."""
        checked_conversation_id(conversation_id)
        most = checked_number(limit, "limit", least=1)

        def work(store: MongoStore) -> Page[Entry]:
            for _ in store.tries():
                try:
                    return _page(store, conversation_id, after, most, newest_first)
                except RemovedError:
                    continue
            return Page(())  # not reached: the tries end with an error

        return await self._hop.run(work)

    async def replace(
        self,
        conversation_id: str,
        messages: Iterable[Message | Entry],
        *,
        expected: int | None = None,
        incarnation: int | None = None,
        retention: Retention | None = None,
    ) -> int:
        """Put these messages in place of all that are there; see `ChatMemoryRepository.replace`."""
        checked_conversation_id(conversation_id)
        items = checked_items(messages)
        kept = checked_retention(retention)
        return await self._hop.run(lambda store: writes.replace(store, conversation_id, items, expected, incarnation, kept))

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation with all its documents; False when there was none."""
        checked_conversation_id(conversation_id)
        return await self._hop.run(lambda store: writes.delete(store, conversation_id))

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; see `ChatMemoryRepository.rename`."""
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)
        return await self._hop.run(lambda store: writes.rename(store, conversation_id, new_id))

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries; see `ChatMemoryRepository.fork`.

        The copy passes through this process, 500 entries at a time.
        """
        checked_conversation_id(conversation_id)
        checked_conversation_id(new_id)
        place = checked_place(at, "at")
        return await self._hop.run(lambda store: fork(store, conversation_id, new_id, place))

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations that ended, or were not written to; see `ChatMemoryRepository.prune`."""
        moment = checked_time(before, "before")
        within = _within(checked_prefix(prefix, "prefix"))
        most = checked_number(limit, "limit", least=1)
        return await self._hop.run(lambda store: writes.prune(store, moment, within, most))

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; see `ChatMemoryRepository.conversations`."""
        low = checked_prefix(prefix, "prefix")
        last = None if after is None else checked_prefix(after, "after")
        most = checked_number(limit, "limit", least=1)
        found = await self._hop.run(lambda store: _listed(store, _within(low, last), most + 1))
        items, more = _arguments.page_of(found, most)
        return Page(items, items[-1].conversation_id if more else None)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`."""
        checked_conversation_id(conversation_id)
        checked_text(owner, "owner")
        length = checked_lease(seconds)
        return await self._hop.run(lambda store: leases.acquire(store, conversation_id, owner, length), twice=True)

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        checked_conversation_id(conversation_id)
        number = checked_number(token, "token", least=0, most=LAST)
        await self._hop.run(partial(leases.release, conversation_id=conversation_id, token=number), twice=True)

    async def aclose(self) -> None:
        """Close the client, if it was made here. The repository cannot be used after that; closing twice is fine."""
        await self._hop.aclose()


def _page(store: MongoStore, conversation_id: str, after: str | None, most: int, newest_first: bool) -> Page[Entry]:
    log = find(store, conversation_id).log
    place = (LAST if newest_first else 0) if after is None else _arguments.position(after, log.incarnation)
    if place is None or not log.incarnation:
        return Page(())
    items, more = _arguments.page_of(part(store, log, place, most + 1, newest_first), most)
    entries = tuple(entry_of(document) for document in items)
    return Page(entries, _arguments.cursor(log.incarnation, entries[-1].sequence) if more else None)


def _listed(store: MongoStore, within: Document, most: int) -> list[Conversation]:
    shown = {"_id": 0, "conversation": 1, "size": 1, "created": 1, "updated": 1, "ttl": 1}
    query = {**within, "revision": {"$gt": 0}, "ends": {"$gt": store.ticks()}}
    return [_described(found) for found in store.conversations.find(query, shown).sort("conversation", 1).limit(most)]


def _described(found: Document) -> Conversation:
    updated = _times.moment(found["updated"])
    expires = _log_rules.expires_of(updated, found["ttl"])
    return Conversation(found["conversation"], found["size"], _times.moment(found["created"]), updated, expires)


def _within(prefix: str, after: str | None = None) -> Document:
    """Which conversations: their ids begin with `prefix` and lie behind `after`. Texts are compared by their bytes."""
    if not prefix and after is None:
        return {}
    low = {"$gt": after} if after is not None and after >= prefix else {"$gte": prefix}
    return {"conversation": {**low, "$lte": prefix + _LAST_CHARACTER * MAX_ID_LENGTH}}
