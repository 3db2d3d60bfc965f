"""Repositories that are wrong where many use them at once, where they are interrupted, and about what they refuse."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from anyio.lowlevel import checkpoint

from advisorchain.errors import StorageError
from advisorchain.memory.repository import Entry

from ._sound import Sound, breaks, rewrite


@breaks("one of many takes a lease", "two repositories share leases")
class LooksThenLeases(Sound):
    async def acquire(self, conversation_id: Any, owner: Any, seconds: Any) -> Any:
        is_free = isinstance(conversation_id, str) and conversation_id not in self.store._leases
        await checkpoint()
        if is_free:
            self.store._leases.pop(conversation_id, None)
        return await super().acquire(conversation_id, owner, seconds)


@breaks("concurrent tasks lose nothing")
class ReadsThenWrites(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        if not str(turn_id).startswith("task"):
            return await super().append(conversation_id, messages, turn_id=turn_id, **named)
        there = list(self.log(conversation_id).entries)
        await checkpoint()
        now = datetime.now(UTC)
        return await super().replace(conversation_id, there + [Entry(0, turn_id, message, now) for message in messages])


@breaks("concurrent threads lose nothing")
class BoundToItsThread(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        own = self.__dict__.setdefault("thread", threading.get_ident())
        if own != threading.get_ident():
            raise RuntimeError("attached to a different loop")
        return await super().append(conversation_id, messages, **named)


@breaks("readers see whole turns")
class ReadsWhatIsNotCommitted(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        if str(turn_id).startswith("writer"):
            self.halves = self.__dict__.get("halves", 0) + 1
            try:
                await checkpoint()
            finally:
                self.halves -= 1
        return await super().append(conversation_id, messages, turn_id=turn_id, **named)

    async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
        found = await super().recall(conversation_id, last, **named)
        return replace(found, count=found.count + self.__dict__.get("halves", 0))


@breaks("a turn sent twice at once is stored once", "two repositories keep the rules")
class LooksForTheTurnThenWrites(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        if turn_id in self.log(conversation_id).turns or named or not messages:
            return await super().append(conversation_id, messages, turn_id=turn_id, **named)
        await checkpoint()
        self.log(conversation_id).turns.discard(turn_id)
        return await super().append(conversation_id, messages, turn_id=turn_id)


@breaks("one of many writers at a revision is stored", "two repositories keep the rules")
class LooksAtTheRevisionThenWrites(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, expected: Any = None, **named: Any) -> Any:
        is_right = expected == self.log(conversation_id).revision and "incarnation" not in named
        await checkpoint()
        return await super().append(conversation_id, messages, expected=None if is_right else expected, **named)


@breaks("one of many takes an id", "two repositories keep the rules")
class LooksForTheIdThenTakesIt(Sound):
    async def look(self, new_id: Any) -> None:
        is_free = isinstance(new_id, str) and new_id not in self.store._logs
        await checkpoint()
        if is_free:
            self.store._forget(new_id)

    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        await self.look(new_id)
        return await super().fork(conversation_id, new_id, **named)

    async def rename(self, conversation_id: Any, new_id: Any) -> Any:
        await self.look(new_id)
        return await super().rename(conversation_id, new_id)


@breaks("a deletion stands against turns under way")
class LooksForTheLifeThenWrites(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, incarnation: Any = None, **named: Any) -> Any:
        is_right = bool(incarnation) and incarnation == self.log(conversation_id).incarnation
        if is_right:
            await checkpoint()
        return await super().append(conversation_id, messages, incarnation=None if is_right else incarnation, **named)


async def half_when_cancelled(sound: Sound, conversation_id: str) -> None:
    """Wait, as for a commit; being cancelled meanwhile leaves out the last message."""
    log = sound.log(conversation_id)
    try:
        await checkpoint()
    except BaseException:
        last = log.entries[-1]
        rewrite(log, lambda entry: None if entry is last else entry)
        raise


@breaks("a cancelled append is whole or nothing")
class HalfATurnWhenCancelled(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        revision = await super().append(conversation_id, messages, **named)
        if not self.is_another and "token" not in named and conversation_id in self.store._logs:
            await half_when_cancelled(self, conversation_id)
        return revision


@breaks("a cancelled replacement is whole or nothing")
class HalfAReplacementWhenCancelled(Sound):
    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        revision = await super().replace(conversation_id, messages, **named)
        if revision:
            await half_when_cancelled(self, conversation_id)
        return revision


@breaks("a cancelled move is whole or nothing")
class RenamesInTwoSteps(Sound):
    async def rename(self, conversation_id: Any, new_id: Any) -> Any:
        log = self.store._logs.get(conversation_id) if isinstance(conversation_id, str) else None
        moved = await super().rename(conversation_id, new_id)
        if moved and log is not None:
            self.store._put(conversation_id, log)
            await checkpoint()
            self.store._forget(conversation_id)
        return moved


@breaks("cancelled reads take nothing away")
class LosesConnections(Sound):
    async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
        left = self.__dict__.setdefault("left", 5)
        if not left:
            raise StorageError("no connection in the pool became free")
        self.left = left - 1
        await checkpoint()
        self.left += 1
        return await super().recall(conversation_id, last, **named)


@breaks("two repositories see one log")
class RemembersItsOwnSystems(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        revision = await super().append(conversation_id, messages, **named)
        log = self.log(conversation_id)
        self.__dict__.setdefault("systems", {})[log.incarnation] = log.systems
        return revision

    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        self.__dict__.get("systems", {}).clear()
        return await super().replace(conversation_id, messages, **named)

    async def recall(self, conversation_id: Any, last: Any, *, before: Any = None) -> Any:
        found = await super().recall(conversation_id, last, before=before)
        known = self.__dict__.get("systems", {})
        return replace(found, systems=known.get(found.incarnation, found.systems)) if before is None else found


@breaks("two repositories lose nothing")
class LosesTurnsOfAnother(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        if not self.is_another or not str(turn_id).startswith("writer"):
            return await super().append(conversation_id, messages, turn_id=turn_id, **named)
        revision = self.log(conversation_id).revision
        await checkpoint()
        if self.log(conversation_id).revision != revision:
            return revision
        return await super().append(conversation_id, messages, turn_id=turn_id, **named)


@breaks("two repositories keep the rules")
class RenamesAgain(Sound):
    async def rename(self, conversation_id: Any, new_id: Any) -> Any:
        done = self.store.__dict__.setdefault("renamed", set())
        moved = await super().rename(conversation_id, new_id) if (conversation_id, new_id) not in done else True
        if moved:
            done.add((conversation_id, new_id))
        return moved


@breaks("two repositories share leases")
class OwnersOfItsOwn(Sound):
    async def acquire(self, conversation_id: Any, owner: Any, seconds: Any) -> Any:
        return await super().acquire(conversation_id, f"{owner} at {id(self)}" if owner else owner, seconds)


@breaks("what was acknowledged outlives its writer")
class RepairsOnClosing(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        revision = await super().append(conversation_id, messages, **named)
        if self.is_another and str(named["turn_id"]).startswith("cut"):
            await half_when_cancelled(self, conversation_id)
        return revision


@breaks("a lease ends with its time when its holder is gone")
class LeasesEndWithTheSession(Sound):
    async def acquire(self, conversation_id: Any, owner: Any, seconds: Any) -> Any:
        return await super().acquire(conversation_id, owner, 1e9 if self.is_another else seconds)


@breaks("a lost connection is mended")
class PruneDoesNotConnectAnew(Sound):
    async def prune(self, **named: Any) -> Any:
        if self.is_cut_off:
            raise ConnectionError("server closed the connection unexpectedly")
        return await super().prune(**named)


@breaks("a connection lost under way leaves whole turns")
class HalfATurnWhenCutOff(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        self.check_connected()
        if str(named["turn_id"]).startswith("t"):
            for _ in range(4):
                await checkpoint()
                if self.is_cut_off:
                    self.is_cut_off = False
                    await super().append(conversation_id, messages[:1], **named)
                    raise StorageError("the connection was lost")
        return await super().append(conversation_id, messages, **named)


@breaks("bad ids are refused")
class ShortensNewIds(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        return await super().fork(conversation_id, new_id[:255] if isinstance(new_id, str) else new_id, **named)


@breaks("bad messages are refused")
class LeavesOutWhatIsNoMessage(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        some = [message for message in messages if hasattr(message, "role")] if isinstance(messages, list) else messages
        return await super().append(conversation_id, some, **named)


@breaks("bad arguments are refused")
class TakesNaiveTimes(Sound):
    async def prune(self, *, before: Any = None, **named: Any) -> Any:
        if isinstance(before, datetime) and before.tzinfo is None:
            before = before.replace(tzinfo=UTC)
        return await super().prune(before=before, **named)


@breaks("a closed repository refuses")
class OpensAgain(Sound):
    def check_connected(self) -> None:
        self.is_closed = False
        super().check_connected()
