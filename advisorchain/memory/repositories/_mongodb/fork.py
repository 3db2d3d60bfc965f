"""Copies of a log in MongoDB, up to an entry."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final, NamedTuple

from advisorchain.memory.repositories import _log_rules, _times
from advisorchain.memory.repositories._arguments import LAST
from advisorchain.memory.repositories._log_rules import DECIDING, REPEATED, SPOKEN, SUMMARY, SystemsCut
from advisorchain.memory.repositories._mongodb import entries
from advisorchain.memory.repositories._mongodb.client import MongoStore
from advisorchain.memory.repositories._mongodb.driver import ObjectId
from advisorchain.memory.repositories._mongodb.entries import RemovedError
from advisorchain.memory.repositories._mongodb.garbage import doomed, drop
from advisorchain.memory.repositories._mongodb.head import Found, Head, find, is_as_it_was, new_number
from advisorchain.memory.repositories._mongodb.writes import make_good

_BATCH: Final = 500  # entries that are in this process's memory at a time


class _Cut(NamedTuple):
    """A log up to an entry: its head, and the system messages that change nothing any more."""

    head: Head
    repeated: Collection[int]


def fork(store: MongoStore, conversation_id: str, new_id: str, at: int | None) -> bool:
    """Copy the conversation to another id; whether there was something to copy."""
    for _ in store.tries():
        log = find(store, conversation_id).log
        end = log.next_sequence if at is None else min(at + 1, log.next_sequence)
        try:
            cut = _cut(store, log, end) if log.incarnation else None
        except RemovedError:
            continue
        if cut is None:
            return False
        target = find(store, new_id)
        _log_rules.check_target(bool(target.log.incarnation))
        if _copied(store, log, cut, new_id, target):
            return True
    return False  # not reached: the tries end with an error


def _cut(store: MongoStore, log: Head, end: int) -> _Cut | None:
    """What is known of the log before `end` as a whole; None: there is no entry before it."""
    lasts = {lane: next(entries.newest(store, log, lane, end, 1), None) for lane in entries.used_lanes(log)}
    newest = max((found["sequence"] for found in lasts.values() if found), default=0)
    if not newest:
        return None
    spoken, summary = lasts[SPOKEN], lasts.get(SUMMARY)
    systems = _systems_cut(store, log, end)
    ends = _log_rules.end_of(log.ttl, store.ticks())
    now = _times.microseconds(_times.now())
    head = Head(
        ObjectId(),
        incarnation=new_number(),
        log=new_number(),
        revision=1,
        next_sequence=newest + 1,
        flushed=newest + 1,
        first_place=log.first_place,
        next_place=spoken["place"] + 1 if spoken else log.first_place,
        systems=systems.in_force[0].sequence if systems.in_force else 0,
        in_force=len(systems.in_force),
        question=spoken["question"] if spoken else 0,
        summary=summary["sequence"] if summary else 0,
        ttl=log.ttl,
        ends=LAST if ends is None else ends,
        created=now,
        updated=now,
    )
    return _Cut(head, {entry.sequence for entry in systems.repeated})


def _systems_cut(store: MongoStore, log: Head, end: int) -> SystemsCut:
    ruling = entries.systems_before(store, log, LAST)
    if not ruling or ruling[-1].sequence < end:
        return SystemsCut(ruling)
    return _log_rules.systems_cut(entries.deciding_before(store, log, end))


def _copied(store: MongoStore, log: Head, cut: _Cut, new_id: str, target: Found) -> bool:
    """Whether the copy is there; False when others changed the log or the new id meanwhile."""
    head = cut.head._replace(key=target.document.key or cut.head.key)
    doomed(store, head.key, head.log)
    size = 0
    turn_ids: set[str] = set()
    for lane in entries.used_lanes(log):
        found = entries.between(store, log, lane, 0, head.next_sequence)
        while batch := list(islice(found, _BATCH)):
            for document in batch:
                document.pop("_id", None)
                document["lane"] = REPEATED if lane == DECIDING and document["sequence"] in cut.repeated else lane
            entries.insert(store, head.log, batch, ())
            size += len(batch)
            turn_ids.update(document["turn_id"] for document in batch)
    entries.insert(store, head.log, (), turn_ids)
    if not is_as_it_was(store, log):
        drop(store, head.log)
        return False
    return make_good(store, new_id, target, head._replace(size=size))
