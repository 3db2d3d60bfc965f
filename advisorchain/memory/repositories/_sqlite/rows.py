"""The SQL of a log: a conversation's row, and its entries by lane and sequence."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from advisorchain.errors import MessageError, StorageError
from advisorchain.memory.repositories._arguments import LAST, behind
from advisorchain.memory.repositories._known import Known
from advisorchain.memory.repositories._log_rules import (
    DECIDING,
    GRACE,
    LANES,
    REPEATED,
    SPOKEN,
    SUMMARY,
    Laned,
    SystemsCut,
    expires_of,
    is_over,
    moved,
    systems_cut,
    trim_ends,
)
from advisorchain.memory.repositories._times import microseconds, moment
from advisorchain.memory.repository import Conversation, Entry
from advisorchain.messages import dump_message, load_message

END: Final = LAST  # behind every sequence

_LANE: Final = (
    "SELECT sequence, turn_id, message, created, kind, covers, question FROM entries WHERE conversation = ? AND lane = ?"
)
_ONE: Final = f"{_LANE} AND sequence = ?"
_NEWEST: Final = f"{_LANE} AND sequence < ? ORDER BY sequence DESC LIMIT ?"
_SINCE: Final = f"{_LANE} AND sequence >= ? ORDER BY sequence"
_FOUND: Final = (
    "SELECT key, incarnation, revision, size, next_sequence, systems, question, summary, spoken, ttl, ends,"
    " EXISTS (SELECT 1 FROM turns WHERE conversation = key AND turn_id = ?) FROM conversations WHERE id = ?"
)
_UPDATE: Final = (
    "UPDATE conversations SET revision = ?, size = ?, next_sequence = ?, systems = ?, question = ?, summary = ?,"
    " spoken = ?, ttl = ?, ends = ?, updated = ? WHERE key = ?"
)
_CREATE: Final = (
    "INSERT INTO conversations"
    " (id, incarnation, revision, size, next_sequence, systems, question, summary, created, updated)"
    " VALUES (?, ?, 0, 0, 1, 0, 0, 0, ?, ?)"
)
# Of lane SPOKEN: the first, the one behind so many, and the first question from a place on.
_FIRST: Final = "SELECT sequence FROM entries WHERE conversation = ? AND lane = 0 ORDER BY sequence LIMIT 1 OFFSET ?"
_QUESTION: Final = (
    "SELECT sequence FROM entries WHERE conversation = ? AND lane = 0 AND sequence >= ? AND question = sequence"
    " ORDER BY sequence LIMIT 1"
)
_TRIM: Final = "DELETE FROM entries WHERE conversation = ? AND lane = ? AND sequence < ?"
_COPY: Final = (
    "INSERT INTO entries SELECT ?, lane, sequence, turn_id, message, created, kind, covers, question FROM entries"
    " WHERE conversation = ? AND lane = ? AND sequence < ?"
)
_LAST: Final = "SELECT max(sequence) FROM entries WHERE conversation = ? AND lane = ? AND sequence < ?"
_ENDED: Final = "SELECT key, incarnation FROM conversations WHERE ends <= ?"
_UNTOUCHED: Final = "SELECT key, incarnation FROM conversations WHERE updated < ? AND (ends IS NULL OR ends > ?)"
_SWEPT: Final = 2  # conversations at most that a new one removes: more than come, so that they do not heap up


class Found(NamedTuple):
    """A conversation's row; a key of 0 is one that is not there.

    `systems`, `question` and `summary` are sequences: the first of the system messages in force, the newest user message,
    the newest summary; 0: none.
    """

    key: int = 0
    incarnation: int = 0
    revision: int = 0
    size: int = 0
    next_sequence: int = 1
    systems: int = 0
    question: int = 0
    summary: int = 0
    spoken: int = 0  # entries in that lane
    ttl: int | None = None
    ends: int | None = None
    has_turn: int = 0
    ended: int = 0  # the incarnation of one whose time has run out, in whose place a new one may come
    ended_key: int = 0


def find(db: sqlite3.Connection, conversation_id: str, clock: int, turn_id: str = "") -> Found:
    """The conversation's row, and whether the turn is in it."""
    row = db.execute(_FOUND, (turn_id, conversation_id)).fetchone()
    if row is None:
        return Found()
    log = Found(*row)
    return Found(ended=log.incarnation, ended_key=log.key) if is_over(log.ends, clock) else log


def create(db: sqlite3.Connection, conversation_id: str, created: datetime, clock: int, ended_key: int) -> Found:
    """A new conversation without entries, in the place of one that ended; others that ended long ago go, too."""
    for key, _ in db.execute(f"{_ENDED} LIMIT ?", (clock - GRACE, _SWEPT)).fetchall():
        delete(db, key)
    delete(db, ended_key)
    incarnation, time = secrets.randbelow(2**53 - 1) + 1, microseconds(created)
    made = db.execute(_CREATE, (conversation_id, incarnation, time, time))
    return Found(made.lastrowid or 0, incarnation)


def add(db: sqlite3.Connection, log: Found, rows: Sequence[Laned], systems: Sequence[Entry]) -> Found:
    """Write a batch behind what is there; the row as `save` shall write it."""
    turns = {(log.key, row.entry.turn_id) for row in rows}
    db.executemany("INSERT INTO turns VALUES (?, ?) ON CONFLICT DO NOTHING", turns)
    new = moved(rows, log.question, log.summary)
    records = [_record(log.key, *row, question) for row, question in zip(rows, new.questions, strict=True)]
    db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", records)
    return log._replace(
        revision=log.revision + 1,
        size=log.size + len(rows),
        next_sequence=rows[-1].entry.sequence + 1,
        systems=systems[0].sequence if systems else 0,
        question=new.question,
        summary=new.summary,
        spoken=log.spoken + new.spoken,
    )


def _record(key: int, entry: Entry, lane: int, question: int) -> tuple[Any, ...]:
    text, created = dump_message(entry.message), microseconds(entry.created)
    return key, lane, entry.sequence, entry.turn_id, text, created, entry.kind, entry.covers, question


def save(db: sqlite3.Connection, log: Found, updated: datetime) -> int:
    """Write a conversation's row; returns its revision."""
    numbers = log[2:11]  # from revision to ends
    db.execute(_UPDATE, (*numbers, microseconds(updated), log.key))
    return log.revision


def trim(db: sqlite3.Connection, log: Found, excess: int) -> Found:
    """Remove the oldest turns until so many spoken entries are gone; costs what they cost. The row as it stands then."""
    if not excess or not log.question:
        return log
    ends = trim_ends(_cut(db, log, excess), log.systems, log.summary)
    gone = [db.execute(_TRIM, (log.key, lane, end)).rowcount for lane, end in zip(LANES, ends, strict=True)]
    return log._replace(size=log.size - sum(gone), spoken=log.spoken - gone[SPOKEN])


def _cut(db: sqlite3.Connection, log: Found, excess: int) -> int:
    """The question that shall be the first."""
    if db.execute(_FIRST, (log.key, 0)).fetchone()[0] == log.question:
        return log.question  # the newest turn alone is too long: its entries are not counted on each write
    (place,) = db.execute(_FIRST, (log.key, excess)).fetchone()
    if place >= log.question:
        return log.question
    return int(db.execute(_QUESTION, (log.key, place)).fetchone()[0])


def last_sequences(db: sqlite3.Connection, log: Found, before: int) -> tuple[int, ...]:
    """The newest sequence of each lane before a sequence; 0: none."""
    return tuple(db.execute(_LAST, (log.key, lane, before)).fetchone()[0] or 0 for lane in LANES)


def copy(db: sqlite3.Connection, source: Found, log: Found, lasts: Sequence[int], systems: SystemsCut) -> Found:
    """Fill the new conversation `log` with the entries of `source` up to the `lasts` of its lanes; the row to save."""
    parts = zip(LANES, lasts, strict=True)
    copied = [db.execute(_COPY, (log.key, source.key, lane, last + 1)).rowcount for lane, last in parts]
    db.execute("INSERT INTO turns SELECT DISTINCT conversation, turn_id FROM entries WHERE conversation = ?", (log.key,))
    moved = [(REPEATED, log.key, DECIDING, entry.sequence) for entry in systems.repeated]
    db.executemany("UPDATE entries SET lane = ? WHERE conversation = ? AND lane = ? AND sequence = ?", moved)
    newest = "SELECT question FROM entries WHERE conversation = ? AND lane = 0 AND sequence = ?"
    question = db.execute(newest, (log.key, lasts[SPOKEN])).fetchone()
    return log._replace(
        revision=1,
        size=sum(copied),
        next_sequence=max(lasts) + 1,
        systems=systems.in_force[0].sequence if systems.in_force else 0,
        question=question[0] if question else 0,
        summary=lasts[SUMMARY],
        spoken=copied[SPOKEN],
    )


def clear(db: sqlite3.Connection, log: Found) -> Found:
    """Remove all entries; the row as it stands then, with its turns."""
    db.execute("DELETE FROM entries WHERE conversation = ?", (log.key,))
    return log._replace(size=0, systems=0, question=0, summary=0, spoken=0)


def delete(db: sqlite3.Connection, key: int) -> bool:
    """Remove a conversation with all its rows; False when there is none."""
    if not key:
        return False
    for table, column in (("entries", "conversation"), ("turns", "conversation"), ("conversations", "key")):
        db.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))
    return True


def prune(db: sqlite3.Connection, prefix: str, clock: int, before: int | None, limit: int) -> list[int]:
    """Remove conversations that ended, and those that were last written to before a time; their incarnations."""
    bounds, given = _among(prefix)
    found = db.execute(f"{_ENDED}{bounds} LIMIT ?", (clock, *given, limit)).fetchall()
    if before is not None and len(found) < limit:
        found += db.execute(f"{_UNTOUCHED}{bounds} LIMIT ?", (before, clock, *given, limit - len(found))).fetchall()
    for key, _ in found:
        delete(db, key)
    return [incarnation for _, incarnation in found]


def remove_dead_leases(db: sqlite3.Connection, clock: int) -> None:
    """Remove the leases of holders that died: no turn is held by what ended so long ago."""
    db.execute("DELETE FROM leases WHERE expires < ?", ((clock - GRACE) / 1_000_000,))


def lease_token(db: sqlite3.Connection, conversation_id: str) -> int | None:
    """The token of the lease on a conversation."""
    row = db.execute("SELECT token FROM leases WHERE conversation_id = ?", (conversation_id,)).fetchone()
    return row[0] if row else None


def listed(db: sqlite3.Connection, prefix: str, last: str, clock: int, limit: int) -> list[Conversation]:
    """The conversations whose ids begin with `prefix`, behind `last`."""
    end = behind(prefix)
    start = "id > ?" if last >= prefix else "id >= ?"  # one bound at each end, so that the index gives just these rows
    rows = db.execute(
        f"SELECT id, size, created, updated, ttl FROM conversations WHERE {start} {'AND id < ?' if end else ''}"
        " AND (ends IS NULL OR ends > ?) ORDER BY id LIMIT ?",
        (max(last, prefix), *([end] if end else []), clock, limit),
    )
    return [_described(*row) for row in rows]


def _described(conversation_id: str, size: int, created: int, updated: int, ttl: int | None) -> Conversation:
    written = moment(updated)
    return Conversation(conversation_id, size, moment(created), written, expires_of(written, ttl))


def _among(prefix: str) -> tuple[str, list[str]]:
    """The condition that an id begins with `prefix`, and its values; nothing for no prefix."""
    end = behind(prefix)
    given = [value for value in (prefix, end) if value]
    return "".join((" AND id >= ?" if prefix else "", " AND id < ?" if end else "")), given


class EntryReader:
    """Reads entries, and knows those that it has read last.

    A sequence of one incarnation never changes its entry, but where SQLite wrote a backup into the open file, it may: so
    one is known by its whole row, which is read each time. To be used before the same transaction writes: what is not
    committed yet may never be.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: Known[int, tuple[int, Entry]] = Known()  # by sequence: the hash of its row, and what was read from it
        self.forget, self.clear = self._known.forget, self._known.clear

    def tail(self, db: sqlite3.Connection, log: Found, before: int, most: int) -> tuple[list[Entry], Entry | None]:
        """The newest entries that are no system messages, oldest first, and the question that they cut off."""
        rows = db.execute(_NEWEST, (log.key, SPOKEN, before, most)).fetchall()
        entries = [self._entry(log, row) for row in reversed(rows)]
        place = rows[-1][-1] if rows else 0
        if not place or place == entries[0].sequence:
            return entries, None
        return entries, self._entry(log, db.execute(_ONE, (log.key, SPOKEN, place)).fetchone())

    def systems(self, db: sqlite3.Connection, log: Found, before: int = END) -> SystemsCut:
        """The system messages in force before a sequence."""
        if not log.systems:
            return SystemsCut()
        rows = db.execute(_SINCE, (log.key, DECIDING, log.systems)).fetchall()
        if rows[-1][0] < before:
            return SystemsCut(tuple(self._entry(log, row) for row in rows))
        older = db.execute(_NEWEST, (log.key, DECIDING, before, -1))  # read lazily: no more than two batches
        return systems_cut(self._entry(log, row) for row in older)

    def summary(self, db: sqlite3.Connection, log: Found, before: int) -> Entry | None:
        """The newest summary before a sequence."""
        if not log.summary:
            return None
        row = db.execute(_NEWEST, (log.key, SUMMARY, before, 1)).fetchone()
        return self._entry(log, row) if row else None

    def part(self, db: sqlite3.Connection, log: Found, place: int, most: int, newest_first: bool = False) -> list[Entry]:
        """Entries of all lanes from a place on: at most a part of each lane is read."""
        end = "sequence < ? ORDER BY sequence DESC" if newest_first else "sequence > ? ORDER BY sequence"
        parts = " UNION ALL ".join([f"SELECT * FROM ({_LANE} AND {end} LIMIT ?)"] * len(LANES))
        given = [value for lane in LANES for value in (log.key, lane, place, most)]
        order = "DESC" if newest_first else "ASC"
        statement = f"SELECT * FROM ({parts}) ORDER BY sequence {order} LIMIT ?"
        return list(self._entries(log, db.execute(statement, (*given, most))))

    def _entries(self, log: Found, rows: sqlite3.Cursor) -> Iterator[Entry]:
        return (self._entry(log, row) for row in rows)

    def _entry(self, log: Found, row: tuple[Any, ...]) -> Entry:
        known = self._known.of(log.incarnation).get(row[0])
        mark = hash(row)
        if known is not None and known[0] == mark:
            return known[1]
        sequence, turn_id, text, created, kind, covers, _ = row
        try:
            message = load_message(text)
        except MessageError as error:
            raise StorageError(f"entry {sequence} in `{self._path}` cannot be read: {error}") from None
        entry = Entry(sequence, turn_id, message, moment(created), kind, covers)
        self._known.keep(log.incarnation, sequence, (mark, entry), len(text))
        return entry
