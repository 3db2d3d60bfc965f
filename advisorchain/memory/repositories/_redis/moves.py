"""What takes several trips, or two conversations: replace, fork, rename."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from anyio import CancelScope

from advisorchain.memory.repositories import _log_rules, _times
from advisorchain.memory.repositories._arguments import checked_place
from advisorchain.memory.repositories._redis.clients import Value
from advisorchain.memory.repositories._redis.copies import TRIES, copied, planted, staged
from advisorchain.memory.repositories._redis.lua import CHANGED, LOST
from advisorchain.memory.repositories._redis.move_scripts import FORK, RENAME, REPLACE
from advisorchain.memory.repositories._redis.rows import Keys, new_life, new_name, planned, same_slot, systems_text
from advisorchain.memory.repositories._redis.scripts import DELETE, PAGE, RECALL
from advisorchain.memory.repositories._redis.server import LAST_IN_LANE, Server, kept, life, says, whole, written
from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import Message

__all__ = ["Moves"]

_PART: Final = 1000  # entries in one trip


class _Cut(NamedTuple):
    """Where a fork ends: which log was read, and its systems in force there."""

    life: int
    edit: int
    at: int
    systems: str
    repeated: tuple[int, ...]


class _Leading(NamedTuple):
    """The beginning of a log, and what is known of it."""

    incarnation: int
    revision: int
    next_sequence: int
    now: int
    entries: tuple[Entry, ...] = ()


class Moves:
    """Changes a conversation as a whole. What others wrote meanwhile is never lost: then it begins anew."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def replace(
        self, conversation_id: str, items: Sequence[Message | Entry], expected: int | None, incarnation: int | None,
        retention: Retention | None,
    ) -> int:  # fmt: skip
        """Put these in place of all that are there. The new log is staged, and takes its place if nothing has changed."""
        keys = self._server.keys(conversation_id)
        begun, known, limits = life(incarnation), whole(expected, "expected", 0), kept(retention)
        if not items:
            await self.delete(conversation_id, begun, known, expected=expected)
            return 0
        for _ in range(TRIES):
            found = await self._leading(keys, len(items))
            _log_rules.check_incarnation(incarnation, found.incarnation)
            _log_rules.check_writer(expected=expected, revision=found.revision, lease=None, token=None)
            answer = await self._put(keys, conversation_id, found, items, limits)
            if isinstance(answer, int):
                self._server.entries.forget(keys.head)
                return answer
        raise self._server.unsettled()

    async def delete(
        self, conversation_id: str, begun: str = "", known: str = "", before: str = "", expected: int | None = None
    ) -> bool:
        """Remove a conversation, if it is the one that is meant."""
        keys = self._server.keys(conversation_id)
        given = [conversation_id, new_name(), begun, known, before]
        answer = await self._server.ask(DELETE, (*keys.body, keys.gone), *given)
        self._server.entries.forget(keys.head)
        return bool(written(answer, expected=expected))

    async def rename(self, conversation_id: str, new_id: str) -> bool:
        """Give a conversation another id."""
        keys, target = self._server.keys(conversation_id), self._server.keys(new_id)
        if await self._apart(keys, target):
            return await self._carry(keys, conversation_id, target, new_id)
        answer = await self._server.ask(RENAME, (*keys.body, *target.body), conversation_id, new_id, new_name())
        self._server.entries.forget(keys.head)
        return bool(written(answer))

    async def fork(self, conversation_id: str, new_id: str, at: int | None) -> bool:
        """Make a copy, whole or up to a sequence."""
        keys, target = self._server.keys(conversation_id), self._server.keys(new_id)
        place = checked_place(at, "at")
        fork = self._fork_apart if await self._apart(keys, target) else self._fork_there
        for _ in range(TRIES):
            cut = None if place is None else await self._cut(keys, min(place, LAST_IN_LANE - 1))
            answer = await fork(keys, target, new_id, cut)
            if not says(answer, CHANGED) and not says(answer, LOST):
                return bool(written(answer))
        raise self._server.unsettled()

    async def _apart(self, keys: Keys, target: Keys) -> bool:
        return not same_slot(keys, target) and await self._server.clients.is_cluster()

    async def _leading(self, keys: Keys, most: int) -> _Leading:
        """The first entries, `most` of them at most, of one state of the log."""
        for _ in range(TRIES):
            entries: list[Entry] = []
            found: _Leading | None = None
            while True:
                place, wanted = (entries[-1].sequence if entries else 0), min(_PART, most - len(entries))
                answer = await self._server.ask(PAGE, keys[:2], place, wanted, "", "")
                incarnation, revision, following, now = map(int, answer[0].split())
                state = _Leading(incarnation, revision, following, now)
                if found is not None and state[:2] != found[:2]:
                    break  # written to meanwhile
                found = state
                entries += self._server.entries.entries(keys.head, answer[1:])
                if len(answer) - 1 < wanted or len(entries) == most:
                    return found._replace(entries=tuple(entries))
        raise self._server.unsettled()

    async def _put(
        self, keys: Keys, conversation_id: str, found: _Leading, items: Sequence[Message | Entry], limits: tuple[str, str]
    ) -> Any:
        new = _log_rules.replacement(found.entries, items, found.next_sequence, _times.moment(found.now))
        plan, name = planned(*_log_rules.laned(new)), new_name()
        places = keys.staged(name)
        await staged(self._server, places, plan.rows, [(score, turn) for turn, score in plan.turns.items()])
        head: list[Value] = [len(plan.rows), plan.spoken, plan.next_sequence, plan.systems, plan.question, plan.summary]
        given = [conversation_id, name, found.incarnation, found.revision, *limits, new_life(), *head]
        return await self._server.ask(REPLACE, (*keys.body, *places), *given)

    async def _cut(self, keys: Keys, at: int) -> _Cut:
        answer = await self._server.ask(RECALL, keys[:2], 0, at + 1)
        found = self._server.entries.recalled(keys.head, answer)
        repeated = tuple(entry.sequence for entry in found.systems.repeated)
        return _Cut(found.incarnation, found.edit, at, systems_text(found.systems.in_force), repeated)

    async def _fork_there(self, keys: Keys, target: Keys, new_id: str, cut: _Cut | None) -> Any:
        told = ["", "", "", ""] if cut is None else [cut.life, cut.edit, cut.systems, " ".join(map(str, cut.repeated))]
        at = "" if cut is None else cut.at
        return await self._server.ask(FORK, (*keys.body, *target.body), new_id, new_name(), at, new_life(), *told)

    async def _fork_apart(self, keys: Keys, target: Keys, new_id: str, cut: _Cut | None) -> Any:
        source = await copied(self._server, keys)
        if source is None:
            return 0
        if cut is None:
            copy = source.cut(LAST_IN_LANE, source.head["systems"], ())
        elif (str(cut.life), str(cut.edit)) != (source.head["inc"], source.head["edit"]):
            return [CHANGED]
        else:
            copy = source.cut(cut.at, cut.systems, cut.repeated)
        if not copy.rows:
            return 0
        name = new_name()
        await staged(self._server, target.staged(name), copy.rows, copy.turns)
        return await planted(self._server, target, new_id, copy, name=name, anew=True)

    async def _carry(self, keys: Keys, conversation_id: str, target: Keys, new_id: str) -> bool:
        """Rename between two slots of a cluster: the new one first, then without the old one if it has not changed."""
        for _ in range(TRIES):
            copy = await copied(self._server, keys)
            if copy is None:
                return False
            name = new_name()
            await staged(self._server, target.staged(name), copy.rows, copy.turns)
            with CancelScope(shield=True):  # for one trip or two: else it could be there under both ids
                answer = await planted(self._server, target, new_id, copy, name=name, anew=False)
                if says(answer, LOST):
                    continue
                written(answer)
                which = copy.head["inc"], copy.head["rev"]
                if await self._gone(keys, conversation_id, which):
                    return True
                if not await self._gone(target, new_id, which):
                    break  # written to under both ids: nothing may be thrown away
        raise self._server.unsettled()

    async def _gone(self, keys: Keys, conversation_id: str, which: tuple[str, str]) -> bool:
        """Remove a conversation if this is its incarnation and revision."""
        answer = await self._server.ask(DELETE, (*keys.body, keys.gone), conversation_id, new_name(), *which, "")
        self._server.entries.forget(keys.head)
        return bool(answer == 1)
