"""Conversations in Redis 7 and later, or Valkey (extra `redis`): one server, a cluster, or one that sentinels watch.

    RedisChatMemoryRepository("redis://localhost:6379/0")
    RedisChatMemoryRepository("redis+cluster://one:7000,two:7000")
    RedisChatMemoryRepository("redis+sentinel://one:26379,two:26379/primary-name/0")

Each method is one atomic script in the server, but for those that need several trips, which say so.

**What of an acknowledged turn survives.** Redis answers before it writes to disk, as its settings say. With `appendonly yes`
and `appendfsync always` an acknowledged turn survives the end of the server by `kill -9` and, where disks keep what they
acknowledge, of the machine. With `appendfsync everysec`, the default once `appendonly` is on, it survives the end of the
server's process, since the operating system has it; when the machine ends, the turns of the last second or two are lost,
each whole. With snapshots alone (`appendonly no`, the default of Redis) all turns since the last snapshot are lost with the
process. A turn is never there by half: what a script writes is one transaction in the append-only file.

Replication is asynchronous: turns that a primary acknowledged, and its replica had not got yet when it took over, are lost:
the newest ones, whole. `min-replicas-to-write` makes this rarer; nothing excludes it. The token of a lease may be given
twice then. `maxmemory-policy` must be `noeviction`: any other throws conversations away, or a part of one, which then is not
there any more.

**In a cluster** the keys of a conversation lie in one hash slot with that part of the list of ids that names it, so what is
written and what is listed agree at any moment. All conversations share 64 hash slots, at equal distances. `fork` and
`rename` between two of them read and write from here: the new conversation comes whole at one moment, and in `rename` the
old one goes a moment later; both are there meanwhile, and stay if this process ends just then. Times are those of the
nodes, whose clocks should agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from advisorchain._checked import checked_seconds
from advisorchain.errors import ConfigurationError, MissingExtraError, StorageError, kind_of
from advisorchain.memory.repositories import _arguments, _times
from advisorchain.memory.repositories._arguments import (
    LAST,
    checked_items,
    checked_lease,
    checked_number,
    checked_prefix,
    checked_text,
    checked_time,
)
from advisorchain.memory.repository import Conversation, Entry, Page, Recall, Retention, checked_batch
from advisorchain.messages import Message

try:
    from coredis import Redis, RedisCluster
except ImportError as error:
    raise MissingExtraError('chat memory in Redis needs coredis: pip install "advisorchain[redis]"') from error

from advisorchain.memory.repositories._redis.address import AnyClient, Make, address_of
from advisorchain.memory.repositories._redis.clients import Clients
from advisorchain.memory.repositories._redis.lists import Listed, Lists
from advisorchain.memory.repositories._redis.moves import Moves
from advisorchain.memory.repositories._redis.rows import new_life, payload
from advisorchain.memory.repositories._redis.scripts import ACQUIRE, APPEND, PAGE, RECALL, RELEASE
from advisorchain.memory.repositories._redis.server import LAST_IN_LANE, Server, kept, life, whole, written

__all__ = ["RedisChatMemoryRepository"]

_BATCH_BYTES: Final = 1024**3 - 1024**2  # what a server takes in one command
_LONGEST_LEASE: Final = 1e9  # seconds; what is longer ends as late
_LEASE_KEPT: Final = 86_400_000  # milliseconds that the token of a lease that ran out still counts, if nobody takes it


class RedisChatMemoryRepository:
    """Keeps conversations in Redis or Valkey, which any number of processes and machines may share.

    May be used from any thread and event loop, on asyncio and trio; each event loop has a client of its own, opened on first
    use. A call that was cancelled waits for its answer all the same.

    The time of entries, and that by which conversations and leases end, is the server's. A conversation with a time to live
    is gone for every method when it ends, and its keys an hour later. Of turns whose entries were replaced or trimmed away,
    the newest 1,000 of a conversation stay known. A row takes at most 512 MB, a batch 1 GB.

    Args:
        source: a URL; a client of coredis that is open, to be used in its event loop only; or a function without arguments
            that gives an async context manager of one, called for each event loop. Clients must not decode responses.
        prefix: what the keys begin with; repositories with different ones do not know each other.
        timeout: seconds to wait for a connection, and again for an answer, before StorageError.
        clock: tells seconds, in place of the server's clock; conversations and leases run out by it.

    Raises:
        ConfigurationError: an argument that cannot work. What is wrong with the server shows on first use.
        MissingExtraError: coredis is not installed (on import).
    """

    remote = True  # asked over a network, as its spans say

    def __init__(
        self,
        source: str | AnyClient | Make,
        *,
        prefix: str = "advisorchain",
        timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        clients, shown = _clients(source, checked_seconds("timeout", timeout))
        self._server = Server(clients, shown, prefix, clock)
        self._moves = Moves(self._server)
        self._lists = Lists(clients, prefix)
        self._pruned: tuple[str, int | None, str | None] = ("", None, None)  # where a prune with these arguments stopped

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._server.shown} prefix={self._server.prefix!r}>"

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
        keys = self._server.keys(conversation_id)
        batch = checked_batch(messages)
        checked_text(turn_id, "turn_id")
        begun, known, lease = life(incarnation), whole(expected, "expected", 0), whole(token, "token", 1)
        limits = kept(retention)
        if not batch:
            return (await self.recall(conversation_id, 0)).revision
        rows = [payload(message, turn_id) for message in batch]
        self._check_size(rows)
        places = (*keys.body, keys.lease) if lease else keys.body
        given = (turn_id, begun, known, lease, *limits, conversation_id, new_life())
        answer = await self._server.ask(APPEND, places, *given, *rows)
        return written(answer, expected=expected, token=token)

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        """Read what a policy needs; see `ChatMemoryRepository.recall`. Costs what the tail costs."""
        keys = self._server.keys(conversation_id)
        most = "" if last is None else checked_number(last, "last", least=0)
        end = "" if before is None else checked_number(before, "before", least=0, most=LAST_IN_LANE)
        found = self._server.entries.recalled(keys.head, await self._server.ask(RECALL, keys[:2], most, end))
        return Recall(*found[:4], found.systems.in_force, found.question, found.summary)

    async def page(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """Entries by sequence; see `ChatMemoryRepository.page`."""
        keys = self._server.keys(conversation_id)
        most = checked_number(limit, "limit", least=1)
        place, begun = (LAST_IN_LANE if newest_first else 0), ""
        if after is not None:
            _arguments.position(after, 0)  # refuses what is no cursor
            incarnation, _, sequence = after.partition(".")
            begun, place = str(int(incarnation)), min(int(sequence), LAST_IN_LANE)
        answer = await self._server.ask(PAGE, keys[:2], place, most + 1, "1" if newest_first else "", begun)
        items, more = _arguments.page_of(self._server.entries.entries(keys.head, answer[1:]), most)
        return Page(items, _arguments.cursor(int(answer[0].split()[0]), items[-1].sequence) if more else None)

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

        Takes several trips: what is there is read, the new log is put together beside it, and takes its place if nothing was
        written meanwhile; else this begins anew.
        """
        items = checked_items(messages)
        return await self._moves.replace(conversation_id, items, expected, incarnation, retention)

    async def delete(self, conversation_id: str) -> bool:
        """Remove the conversation with all its keys; False when there was none."""
        return await self._moves.delete(conversation_id)

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id; see `ChatMemoryRepository.rename`; for clusters this module."""
        return await self._moves.rename(conversation_id, new_id)

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> bool:
        """Make `new_id` a conversation with the same entries; see `ChatMemoryRepository.fork`; for clusters this module."""
        return await self._moves.fork(conversation_id, new_id, at)

    async def prune(self, *, before: datetime | None = None, prefix: str = "", limit: int = 1000) -> int:
        """Remove conversations that ended, or were not written to; see `ChatMemoryRepository.prune`.

        Looks at all of them, in parts, and removes each in a trip of its own; one that was cancelled has removed some. When
        `limit` was reached, a call with the same arguments goes on where this one stopped.
        """
        moment = checked_time(before, "before")
        low = checked_prefix(prefix, "prefix")
        most = checked_number(limit, "limit", least=1)
        after = self._pruned[2] if self._pruned[:2] == (low, moment) else None
        self._pruned = "", None, None
        removed = await self._prune(low, moment, most, after)
        if not removed and after is not None:  # what lies before it may have ended since
            removed = await self._prune(low, moment, most, None)
        return removed

    async def _prune(self, low: str, moment: int | None, most: int, after: str | None) -> int:
        removed = 0
        walk = self._lists.walk(low, after)
        while listed := await self._lists.heads(await walk.next(500)):
            now = await self._time()
            for row in listed:
                if row.lives(now) and not row.is_older(moment):
                    continue
                removed += await self._moves.delete(row.conversation_id, before="-" if moment is None else str(moment))
                if removed == most:
                    self._pruned = low, moment, row.conversation_id
                    return removed
        return removed

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id; see `ChatMemoryRepository.conversations`.

        Takes a few trips; those that come or go meanwhile may be in it or not.
        """
        low = checked_prefix(prefix, "prefix")
        last = None if after is None else checked_prefix(after, "after")
        most = checked_number(limit, "limit", least=1)
        walk = self._lists.walk(low, last)
        found: list[Listed] = []
        while len(found) <= most and (listed := await self._lists.heads(await walk.next(min(most + 1 - len(found), 1000)))):
            now = await self._time()
            found += [row for row in listed if row.lives(now)]
        items, more = _arguments.page_of(found, most)
        return Page(tuple(row.described() for row in items), items[-1].conversation_id if more else None)

    async def acquire(self, conversation_id: str, owner: str, seconds: float) -> int | None:
        """Take or renew the lease on a conversation; see `ChatMemoryRepository.acquire`.

        The token of a lease that ran out counts for a day, while nobody else takes it.
        """
        keys = self._server.keys(conversation_id)
        checked_text(owner, "owner")
        length = min(checked_lease(seconds), _LONGEST_LEASE)
        stays = int(length * 1000) + _LEASE_KEPT
        token = await self._server.ask(ACQUIRE, (keys.lease, keys.tokens), owner, _times.ticks(length), stays)
        return int(token) or None

    async def release(self, conversation_id: str, token: int) -> None:
        """Give a lease back. A stale token does nothing."""
        keys = self._server.keys(conversation_id)
        given = checked_number(token, "token", least=0, most=LAST)
        await self._server.run(RELEASE, [keys.lease], [given])

    async def aclose(self) -> None:
        """Close the connections. The repository cannot be used after that; closing twice is fine.

        A client that was given stays open, and those of other event loops close a little later.
        """
        await self._server.clients.aclose()

    async def _time(self) -> int:
        own = self._server.now()
        return int(own) if own else await self._lists.now()

    def _check_size(self, rows: list[str]) -> None:
        if sum(map(len, rows)) > _BATCH_BYTES // 4 and sum(len(row.encode()) for row in rows) > _BATCH_BYTES:
            raise StorageError(
                f"the messages have more than {_BATCH_BYTES} bytes as JSON, the most that Redis takes at once; nothing was"
                " stored. Append them in several batches"
            )


def _clients(source: Any, timeout: float) -> tuple[Clients, str]:
    """Clients for what a repository was given, and its address as it may be shown."""
    if isinstance(source, str):
        address = address_of(source, timeout)
        return Clients(address.make, None, address.shown, timeout, bounded=address.bounded), address.shown
    if isinstance(source, Redis | RedisCluster):
        if source.decode_responses:
            raise ConfigurationError("`source` is a client that decodes responses; make it with `decode_responses=False`")
        shown = str(source.connection_pool.location or type(source).__name__)
        return Clients(None, source, shown, timeout), shown
    if callable(source):
        shown = getattr(source, "__name__", type(source).__name__)
        return Clients(source, None, shown, timeout), shown
    raise ConfigurationError(f"`source` is {kind_of(source)}; give a URL, a client of coredis, or a function that makes one")
