"""The entries of a log in MongoDB: the newest batch in the conversation's document, the others as documents of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from advisorchain.errors import MessageError, StorageError
from advisorchain.memory.repositories._arguments import LAST
from advisorchain.memory.repositories._log_rules import DECIDING, LANES, SPOKEN, SUMMARY, Laned, moved, systems_at
from advisorchain.memory.repositories._mongodb.client import MongoStore
from advisorchain.memory.repositories._mongodb.driver import BulkWriteError, Document
from advisorchain.memory.repositories._mongodb.head import Head, is_as_it_was
from advisorchain.memory.repositories._times import microseconds, moment
from advisorchain.memory.repository import Entry, Recall
from advisorchain.messages import dump_message, load_message

_TURN: Final = len(LANES)  # a lane behind the others: what stands in the place of a sequence is a turn id that was seen
_BATCH: Final = 1000  # documents that are copied at a time
_DUPLICATE: Final = 11000


class RemovedError(Exception):
    """Entries were removed while they were read: read anew. Never leaves the repository."""


def entry_of(document: Document) -> Entry:
    """The entry in a document; StorageError when its message cannot be read."""
    try:
        message = load_message(document["message"])
    except MessageError as error:
        raise StorageError(f"entry {document['sequence']} cannot be read: {error}") from None
    when = moment(document["created"])
    return Entry(document["sequence"], document["turn_id"], message, when, document["kind"], document["covers"])


def documents(rows: Sequence[Laned], texts: Sequence[str], place: int, question: int) -> list[Document]:
    """Entries as documents.

    Args:
        rows: the entries.
        texts: their messages as JSON.
        place: of the first spoken one.
        question: the sequence of the newest user message before them.
    """
    made = []
    for (entry, lane), text, asked in zip(rows, texts, moved(rows, question).questions, strict=True):
        made.append(
            {
                "lane": lane,
                "sequence": entry.sequence,
                "place": place,
                "question": asked,
                "turn_id": entry.turn_id,
                "created": microseconds(entry.created),
                "kind": entry.kind,
                "covers": entry.covers,
                "message": text,
            }
        )
        place += lane == SPOKEN
    return made


def texts_of(entries: Iterable[Entry]) -> list[str]:
    """The messages as JSON text."""
    return [dump_message(entry.message) for entry in entries]


# -- writing


def flush(store: MongoStore, head: Head) -> None:
    """Make documents of the newest batch, which is in the conversation's own; it may have been done before."""
    if head.pending:
        insert(store, head.log, head.pending, {document["turn_id"] for document in head.pending})


def insert(store: MongoStore, log: int, entries: Sequence[Document], turn_ids: Iterable[str]) -> None:
    """Write entries and turn ids; what is there already stays as it is."""
    made = [{**document, "log": log} for document in entries]
    made += [{"log": log, "lane": _TURN, "sequence": turn_id} for turn_id in turn_ids]
    for start in range(0, len(made), _BATCH):
        try:
            store.entries.insert_many(made[start : start + _BATCH], ordered=False)
        except BulkWriteError as error:
            problems = error.details.get("writeErrors", []) if error.details else []
            if error.details.get("writeConcernErrors") or any(each.get("code") != _DUPLICATE for each in problems):
                raise


def has_turn(store: MongoStore, head: Head, turn_id: str) -> bool:
    """Whether the turn is in the log, or was."""
    if any(document["turn_id"] == turn_id for document in head.pending):
        return True
    if head.revision <= 1 and head.pending:
        return False
    seen = {"log": {"$eq": head.log}, "lane": {"$eq": _TURN}, "sequence": {"$eq": turn_id}}
    return store.entries.find_one(seen, {"_id": 1}) is not None


def turn_ids(store: MongoStore, head: Head) -> set[str]:
    """All turn ids that were seen."""
    query = {"log": {"$eq": head.log}, "lane": {"$eq": _TURN}}
    found = {document["sequence"] for document in store.entries.find(query, {"sequence": 1, "_id": 0})}
    return found | {document["turn_id"] for document in head.pending}


# -- reading


def recalled(store: MongoStore, head: Head, last: int | None, before: int | None) -> Recall:
    """What a policy needs; RemovedError when the log was cut or replaced meanwhile."""
    end = head.next_sequence if before is None else min(before, head.next_sequence)
    whole = end == head.next_sequence
    tail = [] if last == 0 else list(newest(store, head, SPOKEN, end, last))
    _check_tail(head, tail, last, whole)
    systems = systems_before(store, head, end)
    summary = next(newest(store, head, SUMMARY, end, 1), None) if head.summary else None
    if whole and head.summary and (summary is None or summary["sequence"] != head.summary):
        raise RemovedError
    question = _question(store, head, tail[-1]) if tail else None
    if not whole and not is_as_it_was(store, head):
        raise RemovedError
    return Recall(
        head.revision,
        head.incarnation,
        head.size,
        tuple(entry_of(document) for document in reversed(tail)),
        systems,
        entry_of(question) if question else None,
        entry_of(summary) if summary else None,
    )


def _check_tail(head: Head, tail: Sequence[Document], last: int | None, whole: bool) -> None:
    """Places grow by one, so a gap shows that others removed entries meanwhile; no further trip is needed."""
    if whole:
        spoken = head.next_place - head.first_place
        if len(tail) != (spoken if last is None else min(last, spoken)):
            raise RemovedError
    top = head.next_place - 1 if whole else (tail[0]["place"] if tail else 0)
    if any(document["place"] != top - number for number, document in enumerate(tail)):
        raise RemovedError


def _question(store: MongoStore, head: Head, oldest: Document) -> Document | None:
    sequence = oldest["question"]
    if not sequence or sequence == oldest["sequence"]:
        return None
    found = next(newest(store, head, SPOKEN, sequence + 1, 1), None)
    if found is None or found["sequence"] != sequence:
        raise RemovedError
    return found


def systems_before(store: MongoStore, head: Head, end: int) -> tuple[Entry, ...]:
    """The system messages in force before a sequence."""
    if not head.systems:
        return ()
    found = [entry_of(document) for document in between(store, head, DECIDING, head.systems, LAST)]
    if len(found) != head.in_force:
        raise RemovedError
    if found[-1].sequence < end:
        return tuple(found)
    return systems_at(deciding_before(store, head, end))


def deciding_before(store: MongoStore, head: Head, end: int) -> Iterator[Entry]:
    """The system messages that replaced others, the newest first; read as they are asked for."""
    return (entry_of(document) for document in newest(store, head, DECIDING, end, None))


def newest(store: MongoStore, head: Head, lane: int, before: int, most: int | None) -> Iterator[Document]:
    """Entries of a lane before a sequence, the newest first."""
    start, left = head.starts[lane], LAST if most is None else most
    for document in reversed(head.pending):
        if left and document["lane"] == lane and start <= document["sequence"] < before:
            left -= 1
            yield document
    end = min(before, head.flushed)
    if left and start < end and end > 1:
        query = {"log": {"$eq": head.log}, "lane": {"$eq": lane}, "sequence": {"$gte": start, "$lt": end}}
        yield from store.entries.find(query).sort("sequence", -1).limit(0 if most is None else left)


def between(
    store: MongoStore, head: Head, lane: int, start: int, end: int, most: int | None = None, skip: int = 0
) -> Iterator[Document]:
    """Entries of a lane from a sequence on and before another, the oldest first."""
    start, left = max(start, head.starts[lane]), LAST if most is None else most
    stop = min(end, head.flushed)
    if start < stop and stop > 1:
        query = {"log": {"$eq": head.log}, "lane": {"$eq": lane}, "sequence": {"$gte": start, "$lt": stop}}
        for document in store.entries.find(query).sort("sequence", 1).skip(skip).limit(0 if most is None else most):
            left -= 1
            yield document
    for document in head.pending:
        if left and document["lane"] == lane and start <= document["sequence"] < end:
            left -= 1
            yield document


def part(store: MongoStore, head: Head, place: int, most: int | None = None, newest_first: bool = False) -> list[Document]:
    """At most so many entries of all lanes, behind a place or before it; RemovedError when some were removed meanwhile."""
    found: list[Document] = []
    for lane in used_lanes(head):
        if newest_first:
            found += newest(store, head, lane, place, most)
        else:
            found += between(store, head, lane, place + 1, LAST, most)
    if not is_as_it_was(store, head):
        raise RemovedError
    return sorted(found, key=lambda document: document["sequence"], reverse=newest_first)[:most]


def used_lanes(head: Head) -> Iterator[int]:
    """The lanes that may have entries: nobody ever asked for system messages or summaries in most conversations."""
    for lane in LANES:
        if lane == SPOKEN or (head.summary if lane == SUMMARY else head.systems):
            yield lane
