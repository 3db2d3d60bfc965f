"""Units of work that change a conversation in MongoDB. Each takes effect in one `commit`, and is tried again when another
writer was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from advisorchain.errors import StorageError
from advisorchain.memory.repositories import _log_rules, _times
from advisorchain.memory.repositories._arguments import LAST
from advisorchain.memory.repositories._log_rules import LANES, Laned
from advisorchain.memory.repositories._mongodb import entries
from advisorchain.memory.repositories._mongodb.client import MOST_BYTES, MongoStore
from advisorchain.memory.repositories._mongodb.driver import Document, ObjectId
from advisorchain.memory.repositories._mongodb.entries import RemovedError
from advisorchain.memory.repositories._mongodb.garbage import doomed, drop, spare, sweep
from advisorchain.memory.repositories._mongodb.head import Found, Head, commit, find, move, new_number, remove
from advisorchain.memory.repositories._mongodb.leases import remove_dead, token_of
from advisorchain.memory.repositories._mongodb.trim import trimmed
from advisorchain.memory.repository import Entry, Retention
from advisorchain.messages import Message, SystemMessage, dump_message

_SWEPT: Final = 4


class Turn(NamedTuple):
    """What `append` was asked for; `texts` are the messages as JSON."""

    conversation_id: str
    batch: tuple[Message, ...]
    turn_id: str
    expected: int | None
    incarnation: int | None
    token: int | None
    retention: Retention | None


def append(store: MongoStore, turn: Turn) -> int:
    """Add a batch; the new revision."""
    texts = [dump_message(message) for message in turn.batch]
    _check_size(sum(_size(text, turn.turn_id) for text in texts), "these messages have")
    for _ in store.tries():
        found = find(store, turn.conversation_id)
        log = found.log
        if not turn.batch:
            return log.revision
        _log_rules.check_incarnation(turn.incarnation, log.incarnation, found.ended)
        if log.incarnation and entries.has_turn(store, log, turn.turn_id):
            return log.revision
        lease = None if turn.token is None else token_of(store, turn.conversation_id)
        _log_rules.check_writer(expected=turn.expected, revision=log.revision, lease=lease, token=turn.token)
        try:
            after = _appended(store, log, turn, texts)
        except RemovedError:
            continue
        entries.flush(store, log)
        if _take_effect(store, turn.conversation_id, found, after, turn.token):
            if not log.incarnation:
                _remove_ended(store)
            return after.revision
    return 0  # not reached: the tries end with an error


def _remove_ended(store: MongoStore) -> None:
    """Remove a few conversations that ended long ago, as a new one comes: so that no more than a share of them has."""
    for head in _heads(store, {"ends": {"$lt": store.ticks() - _log_rules.GRACE}}, _SWEPT):
        _removed(store, Found(head))


def _appended(store: MongoStore, log: Head, turn: Turn, texts: Sequence[str]) -> Head:
    created = _times.now()
    speaks = any(isinstance(message, SystemMessage) for message in turn.batch)
    systems = entries.systems_before(store, log, LAST) if speaks else ()
    rows, in_force = _log_rules.numbered(turn.batch, log.next_sequence, turn.turn_id, created, systems)
    made = entries.documents(rows, texts, log.next_place, log.question)
    after = log.begun(_times.microseconds(created))._replace(
        size=log.size + len(made), flushed=log.next_sequence, pending=tuple(made)
    )
    if speaks:
        after = _ruled(after, in_force)
    return trimmed(store, log, _written(store, after, rows, made, turn.retention), turn.retention)


def _written(
    store: MongoStore, log: Head, rows: Sequence[Laned], made: Sequence[Document], retention: Retention | None
) -> Head:
    """The head after a write of these entries at its end, apart from what is kept and where."""
    ttl = _log_rules.kept_ttl(retention, log.ttl)
    ends = _log_rules.end_of(ttl, store.ticks())
    moved = _log_rules.moved(rows, summary=log.summary)
    return log._replace(
        revision=log.revision + 1,
        next_sequence=rows[-1].entry.sequence + 1,
        next_place=log.next_place + moved.spoken,
        question=made[-1]["question"],
        summary=moved.summary,
        ttl=ttl,
        ends=LAST if ends is None else ends,
        updated=_times.microseconds(_times.now()),
    )


def _ruled(log: Head, in_force: Sequence[Entry]) -> Head:
    return log._replace(systems=in_force[0].sequence if in_force else 0, in_force=len(in_force))


def replace(
    store: MongoStore,
    conversation_id: str,
    items: Sequence[Message | Entry],
    expected: int | None,
    incarnation: int | None,
    retention: Retention | None,
) -> int:
    """Put these in place of all that are there; the new revision."""
    for _ in store.tries():
        found = find(store, conversation_id)
        log = found.log
        _log_rules.check_incarnation(incarnation, log.incarnation)
        _log_rules.check_writer(expected=expected, revision=log.revision, lease=None, token=None)
        if not items:
            if _removed(store, found):
                return 0
            continue
        try:
            after, made, turn_ids = _replaced(store, log, items, retention)
        except RemovedError:
            continue
        after = after._replace(key=found.document.key or ObjectId())
        doomed(store, after.key, after.log)
        entries.insert(store, after.log, made, turn_ids)
        if make_good(store, conversation_id, found, after):
            return after.revision
    return 0  # not reached: the tries end with an error


def _replaced(
    store: MongoStore, log: Head, items: Sequence[Message | Entry], retention: Retention | None
) -> tuple[Head, Sequence[Document], set[str]]:
    created = _times.now()
    stored = [entries.entry_of(document) for document in entries.part(store, log, 0)] if log.incarnation else []
    rows, in_force = _log_rules.laned(_log_rules.replacement(stored, items, log.next_sequence, created))
    texts = entries.texts_of(row.entry for row in rows)
    for place, (row, text) in enumerate(zip(rows, texts, strict=True)):
        _check_size(_size(text, row.entry.turn_id), f"`messages[{place}]` has")
    made = entries.documents(rows, texts, 0, 0)
    turn_ids = {row.entry.turn_id for row in rows} | (entries.turn_ids(store, log) if log.incarnation else set())
    empty = log.begun(_times.microseconds(created))._replace(
        log=new_number(), starts=(0,) * len(LANES), first_place=0, next_place=0, question=0, summary=0
    )
    after = _ruled(empty, in_force)._replace(size=len(made), flushed=log.next_sequence, pending=tuple(made))
    after = trimmed(store, Head(), _written(store, after, rows, made, retention), retention)
    return after._replace(flushed=after.next_sequence, pending=()), after.pending, turn_ids


def delete(store: MongoStore, conversation_id: str) -> bool:
    """Remove the conversation; whether there was one."""
    for _ in store.tries():
        found = find(store, conversation_id)
        if _removed(store, found):
            return bool(found.log.incarnation)
    return False  # not reached: the tries end with an error


def rename(store: MongoStore, conversation_id: str, new_id: str) -> bool:
    """Give the conversation another id; whether there was one."""
    for _ in store.tries():
        found = find(store, conversation_id)
        if not found.log.incarnation:
            return False
        target = find(store, new_id)
        _log_rules.check_target(bool(target.log.incarnation))
        if _removed(store, target) and move(store, conversation_id, found.log, new_id):
            return True
    return False  # not reached: the tries end with an error


def prune(store: MongoStore, before: int | None, within: Document, most: int) -> int:
    """Remove conversations that ended, or were not written to since `before`; how many."""
    count = 0
    for old in ({"ends": {"$lte": store.ticks()}}, {"updated": {"$lt": before}}):
        going = before is not None or "ends" in old
        while going and count < most:
            heads = _heads(store, {**within, **old}, min(most - count, 1000))
            gone = [head for head in heads if _removed(store, Found(head))]
            count += sum(head.incarnation > 0 for head in gone)
            going = bool(gone)
    sweep(store, most)
    remove_dead(store)
    return count


def _heads(store: MongoStore, query: Document, most: int) -> list[Head]:
    """As much of documents as it takes to remove them."""
    known = {"incarnation": 1, "revision": 1, "log": 1}
    found = store.conversations.find(query, known).limit(most)
    return [Head(each["_id"], each["incarnation"], each["log"], each["revision"]) for each in list(found)]


def _removed(store: MongoStore, found: Found) -> bool:
    """Remove what stands under an id, if that is still what was found; nothing is fine too."""
    head = found.document
    if head.key is None:
        return True
    if head.log:
        doomed(store, head.key, head.log)
    if not remove(store, head):
        return False
    if head.log:
        drop(store, head.log)
    return True


def make_good(store: MongoStore, conversation_id: str, found: Found, after: Head) -> bool:
    """Let a log take effect whose entries were written before; when that fails, remove them."""
    if _take_effect(store, conversation_id, found, after):
        spare(store, after.log)
        return True
    drop(store, after.log)
    return False


def _take_effect(store: MongoStore, conversation_id: str, found: Found, after: Head, token: int | None = None) -> bool:
    """Commit, and remove what the write left behind: the log before, or the entries that were too many."""
    before = found.document
    if before.log and before.log != after.log:
        doomed(store, before.key, before.log)
    if not commit(store, conversation_id, before, after, token):
        return False
    if before.log == after.log:
        _remove_cut(store, before, after)
    elif before.log:
        drop(store, before.log)
    return True


def _remove_cut(store: MongoStore, before: Head, after: Head) -> None:
    for lane in entries.used_lanes(after):
        if after.starts[lane] > before.starts[lane]:
            gone = {"log": {"$eq": after.log}, "lane": {"$eq": lane}, "sequence": {"$lt": after.starts[lane]}}
            store.entries.delete_many(gone)


def _size(text: str, turn_id: str) -> int:
    return len(text.encode()) + len(turn_id.encode()) + 256  # names and numbers around them


def _check_size(size: int, what: str) -> None:
    if size > MOST_BYTES:
        raise StorageError(
            f"{what} {size:,} bytes; MongoDB keeps at most {MOST_BYTES:,} in one document, and nothing was stored. Keep"
            " large files elsewhere and give their URLs, or store fewer messages in one turn"
        )
