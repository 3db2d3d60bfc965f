"""Repositories that are wrong about branches, about how long and how much they keep, and about leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from advisorchain.errors import ConversationConflictError, ConversationDeletedError, LeaseLostError
from advisorchain.memory.repositories._log_rules import SPOKEN, SUMMARY
from advisorchain.memory.repository import Retention

from ._sound import Sound, breaks, rewrite


@breaks("a fork has the same entries")
class ForksAreNew(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        made = await super().fork(conversation_id, new_id, **named)
        if made:
            now = datetime.now(UTC)
            rewrite(self.log(new_id), lambda entry: replace(entry, created=now))
        return made


@breaks("a fork ends at an entry")
class ForksKnowLaterTurns(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        made = await super().fork(conversation_id, new_id, **named)
        if made:
            self.log(new_id).turns = set(self.log(conversation_id).turns)
        return made


@breaks("a fork has the systems of its cut")
class ForksKeepSystems(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        made = await super().fork(conversation_id, new_id, **named)
        if made:
            self.log(new_id).systems = self.log(conversation_id).systems
        return made


@breaks("a fork goes its own way")
class ForksEndWithTheirSource(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        made = await super().fork(conversation_id, new_id, **named)
        if made:
            self.__dict__.setdefault("forks", {}).setdefault(conversation_id, []).append(new_id)
        return made

    async def delete(self, conversation_id: Any) -> Any:
        for fork in self.__dict__.get("forks", {}).get(conversation_id, []):
            await super().delete(fork)
        return await super().delete(conversation_id)


@breaks("a fork takes no id that is there")
class ForkLooksAtTheTargetFirst(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        if isinstance(new_id, str) and new_id in self.store._logs and not self.has_ended(new_id):
            raise ConversationConflictError("taken")
        return await super().fork(conversation_id, new_id, **named)


@breaks("a renamed conversation is the same")
class RenamedForgetTheirTurns(Sound):
    async def rename(self, conversation_id: Any, new_id: Any) -> Any:
        moved = await super().rename(conversation_id, new_id)
        if moved:
            self.log(new_id).turns = set()
        return moved


@breaks("a rename takes no id that is there")
class RenameLooksAtTheTargetFirst(Sound):
    async def rename(self, conversation_id: Any, new_id: Any) -> Any:
        if isinstance(new_id, str) and new_id in self.store._logs and not self.has_ended(new_id):
            raise ConversationConflictError("taken")
        return await super().rename(conversation_id, new_id)


@breaks("a turn under an old id is refused")
class FollowsOldIds(Sound):
    def where(self, conversation_id: Any, incarnation: Any) -> Any:
        if not incarnation or conversation_id in self.store._logs:
            return conversation_id
        return next((name for name, log in self.store._logs.items() if log.incarnation == incarnation), conversation_id)

    async def append(self, conversation_id: Any, messages: Any, *, incarnation: Any = None, **named: Any) -> Any:
        where = self.where(conversation_id, incarnation)
        return await super().append(where, messages, incarnation=incarnation, **named)


@breaks("leases stay with their ids")
class LeasesMove(Sound):
    async def rename(self, conversation_id: Any, new_id: Any) -> Any:
        moved = await super().rename(conversation_id, new_id)
        if moved and conversation_id in self.store._leases:
            self.store._leases[new_id] = self.store._leases.pop(conversation_id)
        return moved


@breaks("an ended conversation is not there")
class DeletesWhatHasEnded(Sound):
    async def delete(self, conversation_id: Any) -> Any:
        has_ended = isinstance(conversation_id, str) and self.has_ended(conversation_id)
        return await super().delete(conversation_id) or has_ended


@breaks("an ended id is free again")
class EndedIdsStayTaken(Sound):
    async def fork(self, conversation_id: Any, new_id: Any, **named: Any) -> Any:
        if self.has_ended(new_id):
            raise ConversationConflictError("taken")
        return await super().fork(conversation_id, new_id, **named)


@breaks("every write begins the time anew")
class ReplacingIsNoWrite(Sound):
    async def replace(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        ends = None if self.has_ended(conversation_id) else self.log(conversation_id).ends
        revision = await super().replace(conversation_id, messages, retention=retention, **named)
        if retention is None and ends is not None:
            self.log(conversation_id).ends = ends
        return revision


@breaks("reading does not prolong")
class ReadingProlongs(Sound):
    async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
        found = await super().recall(conversation_id, last, **named)
        log = self.log(conversation_id)
        if found.count and log.ttl is not None:
            log.ends = int(self.store._clock() * 1_000_000) + log.ttl
        return found


@breaks("the time to live is remembered")
class FirstTimeToLiveStays(Sound):
    async def replace(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        if isinstance(retention, Retention) and self.log(conversation_id).ttl is not None:
            retention = Retention(max_messages=retention.max_messages)
        return await super().replace(conversation_id, messages, retention=retention, **named)


@breaks("a list tells the end")
class TellsNoEnd(Sound):
    async def conversations(self, **named: Any) -> Any:
        page = await super().conversations(**named)
        return replace(page, items=tuple(replace(row, expires=None) for row in page.items))


@breaks("a late turn begins a new life")
class RefusesLateTurns(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, incarnation: Any = None, **named: Any) -> Any:
        if incarnation and self.has_ended(conversation_id):
            raise ConversationDeletedError("gone")
        return await super().append(conversation_id, messages, incarnation=incarnation, **named)


@breaks("prune removes what ended")
class PrunedComeBack(Sound):
    async def prune(self, **named: Any) -> Any:
        lives = {name: log.incarnation for name, log in self.store._logs.items()}
        removed = await super().prune(**named)
        self.pruned = {life for name, life in lives.items() if name not in self.store._logs} | self.__dict__.get(
            "pruned", set()
        )
        return removed

    async def append(self, conversation_id: Any, messages: Any, *, incarnation: Any = None, **named: Any) -> Any:
        life = None if incarnation in self.__dict__.get("pruned", ()) else incarnation
        return await super().append(conversation_id, messages, incarnation=life, **named)


@breaks("prune removes what is old")
class PrunesByTheBeginning(Sound):
    async def prune(self, **named: Any) -> Any:
        updated = {name: log.updated for name, log in self.store._logs.items()}
        for log in self.store._logs.values():
            log.updated = log.created
        removed = await super().prune(**named)
        for name, log in self.store._logs.items():
            log.updated = updated[name]
        return removed


@breaks("prune keeps to prefix and limit")
class PrunesAll(Sound):
    async def prune(self, **named: Any) -> Any:
        removed = await super().prune(**named)
        return removed + (await super().prune(**named | {"limit": 10_000}) if removed else 0)


@breaks("the oldest turns go")
class TrimsInASecondStep(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        count = len(self.log(conversation_id).entries)
        revision = await super().append(conversation_id, messages, retention=retention, **named)
        if len(self.log(conversation_id).entries) < count:
            self.log(conversation_id).revision += 1
        return revision


def keep_newest(sound: Sound, conversation_id: str, most: int) -> None:
    """Cut at whatever message."""
    kept = sound.log(conversation_id).lanes[SPOKEN][-most:]
    rewrite(sound.log(conversation_id), lambda entry: entry if entry in kept else None)


@breaks("whole turns go")
class CutsAnywhere(Sound):
    async def replace(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        most = retention.max_messages if isinstance(retention, Retention) else None
        revision = await super().replace(conversation_id, messages, retention=None if most else retention, **named)
        if most:
            keep_newest(self, conversation_id, most)
        return revision


@breaks("the newest turn never goes")
class CutsTheNewestTurn(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        revision = await super().append(conversation_id, messages, retention=retention, **named)
        if isinstance(retention, Retention) and retention.max_messages and len(self.log(conversation_id).users) < 2:
            keep_newest(self, conversation_id, retention.max_messages)
        return revision


@breaks("systems and summary stay")
class SummariesGo(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        revision = await super().append(conversation_id, messages, retention=retention, **named)
        log = self.log(conversation_id)
        if isinstance(retention, Retention) and retention.max_messages and log.lanes[SUMMARY]:
            rewrite(log, lambda entry: entry if entry.kind == "message" else None)
        return revision


@breaks("a limit is of one write")
class RemembersTheLimit(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, retention: Any = None, **named: Any) -> Any:
        limits = self.__dict__.setdefault("limits", {})
        if isinstance(retention, Retention) and retention.max_messages:
            limits[conversation_id] = retention
        return await super().append(
            conversation_id, messages, retention=limits.get(conversation_id) if retention is None else retention, **named
        )


@breaks("leases exclude others")
class LeasesEndWithTheConversation(Sound):
    async def delete(self, conversation_id: Any) -> Any:
        was_there = await super().delete(conversation_id)
        self.store._leases.pop(conversation_id, None)
        return was_there


@breaks("tokens grow")
class TokensBeginAgain(Sound):
    async def delete(self, conversation_id: Any) -> Any:
        was_there = await super().delete(conversation_id)
        self.store._last_token = 0
        return was_there


@breaks("a stale token is refused")
class ReleasedTokensCount(Sound):
    async def release(self, conversation_id: Any, token: Any) -> Any:
        await super().release(conversation_id, token)
        self.released = token

    async def append(self, conversation_id: Any, messages: Any, *, token: Any = None, **named: Any) -> Any:
        is_free = conversation_id not in self.store._leases
        if token is not None and is_free and token == self.__dict__.get("released"):
            token = None
        return await super().append(conversation_id, messages, token=token, **named)


@breaks("leases run out", "a lease ends with its time when its holder is gone")
class TheNextOwnerHasTheSameToken(Sound):
    async def acquire(self, conversation_id: Any, owner: Any, seconds: Any) -> Any:
        before = self.store._leases.get(conversation_id)
        token = await super().acquire(conversation_id, owner, seconds)
        if before is not None and token is not None:
            self.store._leases[conversation_id].token = token = before.token
        return token


@breaks("a lease counts until it is taken")
class LeasesEndOnTheSecond(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, token: Any = None, **named: Any) -> Any:
        lease = self.store._leases.get(conversation_id)
        if token is not None and lease is not None and lease.expires <= self.store._clock():
            raise LeaseLostError("over")
        return await super().append(conversation_id, messages, token=token, **named)
