"""Which conversations there are: ids of all slots in one order, and what the head of each says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from coredis import PureToken

from advisorchain.memory.repositories._log_rules import expires_of, is_over
from advisorchain.memory.repositories._redis.clients import Clients
from advisorchain.memory.repositories._redis.rows import Slot, all_slots, keys_of
from advisorchain.memory.repositories._redis.scripts import TIME
from advisorchain.memory.repositories._times import moment
from advisorchain.memory.repository import Conversation

__all__ = ["Listed", "Lists"]

_FIELDS: Final = ("size", "created", "updated", "ttl", "ends")


class Listed(NamedTuple):
    """An id of the list and the head of its conversation; None: its keys are gone."""

    conversation_id: str
    head: tuple[int, int, int, str, str] | None

    def lives(self, now: int) -> bool:
        """Whether it is there and its time has not run out."""
        return self.head is not None and not is_over(int(self.head[4]) if self.head[4] else None, now)

    def is_older(self, before: int | None) -> bool:
        """Whether it was last written to before that time."""
        return before is not None and self.head is not None and self.head[2] < before

    def described(self) -> Conversation:
        """The conversation in a list."""
        assert self.head is not None
        size, created, updated, ttl, _ = self.head
        written = moment(updated)
        return Conversation(
            self.conversation_id, size, moment(created), written, expires_of(written, int(ttl) if ttl else None)
        )


class Lists:
    """Reads the sorted lists of ids, one a slot, and merges them."""

    def __init__(self, clients: Clients, prefix: str) -> None:
        self._clients = clients
        self._prefix = prefix
        self._slots = all_slots(prefix)

    def walk(self, prefix: str, after: str | None) -> Walk:
        """The ids that begin with `prefix`, behind `after`, in code point order."""
        return Walk(self._clients, self._slots, prefix, after)

    async def now(self) -> int:
        """The server's time in microseconds."""
        return int(await self._clients.run(TIME, [self._slots[0].ids], []))

    async def heads(self, ids: Sequence[bytes]) -> list[Listed]:
        """What is known of these ids, in one trip."""
        names = [name.decode() for name in ids]
        keys = [keys_of(self._prefix, name) for name in names]
        if not names:
            return []

        def fill(pipe: Any) -> None:
            for key in keys:
                pipe.hmget(key.head, _FIELDS)
                pipe.exists([key.log])

        answers = await self._clients.pipeline(fill)
        pairs = zip(answers[::2], answers[1::2], strict=True)
        return [Listed(name, _head(values) if there else None) for name, (values, there) in zip(names, pairs, strict=True)]


def _head(values: Sequence[bytes | None]) -> tuple[int, int, int, str, str] | None:
    size, created, updated, ttl, ends = values
    if size is None or created is None or updated is None or ttl is None or ends is None:
        return None
    return int(size), int(created), int(updated), ttl.decode(), ends.decode()


class Walk:
    """Goes through the ids of all slots in order. What comes while it goes may be seen or not; what stays is seen."""

    def __init__(self, clients: Clients, slots: Sequence[Slot], prefix: str, after: str | None) -> None:
        low = prefix.encode()
        behind = (after or "").encode()
        start = b"(" + behind if after is not None and behind >= low else b"[" + low if low else b"-"
        self._clients = clients
        self._end = b"(" + low + b"\xff" if low else b"+"  # behind every UTF-8 text that begins so
        self._starts: dict[str, bytes] = {slot.ids: start for slot in slots}  # of those that have more
        self._lasts: dict[str, bytes] = {}  # what was read last of each of these
        self._seen: list[bytes] = []  # sorted, not given yet

    async def next(self, most: int) -> list[bytes]:
        """The next ids, `most` of them unless there are no more."""
        while True:
            lacking = self._lacking(most)
            if not lacking:
                found, self._seen = self._seen[:most], self._seen[most:]
                return found
            await self._read(lacking, min(most, most // len(lacking) + 8))

    def _lacking(self, most: int) -> list[str]:
        """The slots of which more must be read, before the next `most` ids are sure."""
        bound = self._seen[most - 1] if len(self._seen) >= most else None
        return [key for key in self._starts if bound is None or self._lasts.get(key, b"") < bound]

    async def _read(self, keys: Sequence[str], count: int) -> None:
        def fill(pipe: Any) -> None:
            for key in keys:
                pipe.zrange(key, self._starts[key], self._end, sortby=PureToken.BYLEX, offset=0, count=count)

        for key, found in zip(keys, await self._clients.pipeline(fill), strict=True):
            self._seen += found
            if len(found) < count:
                del self._starts[key]
            else:
                self._starts[key], self._lasts[key] = b"(" + found[-1], found[-1]
        self._seen.sort()
