"""The SQL of a log: a conversation's row, and its entries by lane and sequence."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from advisorchain.errors import MessageError, StorageError
from advisorchain.memory.repositories._log import (
    DECIDING,
    LANES,
    SPOKEN,
    SUMMARY,
    Laned,
    microseconds,
    moment,
    systems_at,
)
from advisorchain.memory.repository import Conversation, Entry
from advisorchain.messages import dump_message, load_message

END: Final = 2**62  # behind every sequence

_LANE: Final = (
    "SELECT sequence, turn_id, message, created, kind, covers, question FROM entries WHERE conversation = ? AND lane = ?"
)
_ONE: Final = f"{_LANE} AND sequence = ?"
_NEWEST: Final = f"{_LANE} AND sequence < ? ORDER BY sequence DESC LIMIT ?"
_SINCE: Final = f"{_LANE} AND sequence >= ? ORDER BY sequence"
_FOUND: Final = (
    "SELECT key, incarnation, revision, count, next_sequence, systems, question, summary,"
    " EXISTS (SELECT 1 FROM turns WHERE conversation = key AND turn_id = ?) FROM conversations WHERE id = ?"
)
_UPDATE: Final = (
    "UPDATE conversations SET revision = ?, count = ?, next_sequence = ?, systems = ?, question = ?, summary = ?,"
    " updated = ? WHERE key = ?"
)


class Found(NamedTuple):
    """A conversation's row; a key of 0 is one that is not there. The last four speak of sequences; 0: none."""

    key: int = 0
    incarnation: int = 0
    revision: int = 0
    size: int = 0
    next_sequence: int = 1
    systems: int = 0  # the first of the system messages in force
    question: int = 0  # the newest user message
    summary: int = 0
    has_turn: int = 0


def find(db: sqlite3.Connection, conversation_id: str, turn_id: str = "") -> Found:
    """The conversation's row, and whether the turn is in it."""
    row = db.execute(_FOUND, (turn_id, conversation_id)).fetchone()
    return Found._make(row) if row else Found()


def create(db: sqlite3.Connection, conversation_id: str, created: datetime) -> Found:
    """A new conversation without entries."""
    incarnation = secrets.randbelow(2**53 - 1) + 1
    time = microseconds(created)
    made = db.execute(
        "INSERT INTO conversations VALUES (NULL, ?, ?, 0, 0, 1, 0, 0, 0, ?, ?)", (conversation_id, incarnation, time, time)
    )
    return Found(made.lastrowid or 0, incarnation)


def add(db: sqlite3.Connection, log: Found, rows: Sequence[Laned], systems: Sequence[Entry], updated: datetime) -> int:
    """Write a batch behind what is there; returns the new revision."""
    turns = {(log.key, row.entry.turn_id) for row in rows}
    db.executemany("INSERT INTO turns VALUES (?, ?) ON CONFLICT DO NOTHING", turns)
    question, summary, records = log.question, log.summary, []
    for entry, lane in rows:
        if lane == SPOKEN and entry.role == "user":
            question = entry.sequence
        if lane == SUMMARY:
            summary = entry.sequence
        text, created = dump_message(entry.message), microseconds(entry.created)
        records.append((log.key, lane, entry.sequence, entry.turn_id, text, created, entry.kind, entry.covers, question))
    db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", records)
    last = rows[-1].entry.sequence + 1, systems[0].sequence if systems else 0, question, summary, microseconds(updated)
    db.execute(_UPDATE, (log.revision + 1, log.size + len(rows), *last, log.key))
    return log.revision + 1


def clear(db: sqlite3.Connection, log: Found) -> Found:
    """Remove all entries; the row as it stands then, with its turns."""
    db.execute("DELETE FROM entries WHERE conversation = ?", (log.key,))
    return log._replace(size=0, systems=0, question=0, summary=0)


def delete(db: sqlite3.Connection, key: int) -> bool:
    """Remove a conversation with all its rows; False when there is none."""
    if not key:
        return False
    for table, column in (("entries", "conversation"), ("turns", "conversation"), ("conversations", "key")):
        db.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))
    return True


def lease_token(db: sqlite3.Connection, conversation_id: str) -> int | None:
    """The token of the lease on a conversation."""
    row = db.execute("SELECT token FROM leases WHERE conversation_id = ?", (conversation_id,)).fetchone()
    return row[0] if row else None


def listed(db: sqlite3.Connection, prefix: str, last: str, limit: int) -> list[Conversation]:
    """The conversations whose ids begin with `prefix`, behind `last`."""
    end = _behind(prefix)
    start = "id > ?" if last >= prefix else "id >= ?"  # one bound at each end, so that the index gives just these rows
    rows = db.execute(
        f"SELECT id, count, created, updated FROM conversations WHERE {start} {'AND id < ?' if end else ''}"
        " ORDER BY id LIMIT ?",
        (max(last, prefix), *([end] if end else []), limit),
    )
    return [Conversation(name, count, moment(made), moment(new)) for name, count, made, new in rows]


def _behind(prefix: str) -> str | None:
    """The first text that is behind all that begin with `prefix`; None: there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no text


class EntryReader:
    """Reads entries, and knows the newest that it has read: a sequence of one incarnation never changes its entry.

    To be used before the same transaction writes: what is not committed yet may never be.
    """

    _MOST: Final = 4096  # entries that are known, and the characters that such a one may have

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[tuple[int, int], Entry] = {}

    def forget(self) -> None:
        """Know nothing, as after a deletion."""
        self._known.clear()

    def tail(self, db: sqlite3.Connection, log: Found, before: int, most: int) -> tuple[list[Entry], Entry | None]:
        """The newest entries that are no system messages, oldest first, and the question that they cut off."""
        rows = db.execute(_NEWEST, (log.key, SPOKEN, before, most)).fetchall()
        entries = [self._entry(log, row) for row in reversed(rows)]
        place = rows[-1][-1] if rows else 0
        if not place or place == entries[0].sequence:
            return entries, None
        return entries, self._entry(log, db.execute(_ONE, (log.key, SPOKEN, place)).fetchone())

    def systems(self, db: sqlite3.Connection, log: Found, before: int = END) -> tuple[Entry, ...]:
        """The system messages in force before a sequence."""
        if not log.systems:
            return ()
        rows = db.execute(_SINCE, (log.key, DECIDING, log.systems)).fetchall()
        if rows[-1][0] < before:
            return tuple(self._entry(log, row) for row in rows)
        older = db.execute(_NEWEST, (log.key, DECIDING, before, -1))  # read lazily: no more than two batches
        return systems_at(self._entry(log, row) for row in older)

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
        known = self._known.get((log.incarnation, row[0]))
        if known is not None:
            return known
        sequence, turn_id, text, created, kind, covers, _ = row
        try:
            message = load_message(text)
        except MessageError as error:
            raise StorageError(f"entry {sequence} in `{self._path}` cannot be read: {error}") from None
        entry = Entry(sequence, turn_id, message, moment(created), kind, covers)
        if len(text) <= self._MOST:
            if len(self._known) >= self._MOST:
                del self._known[next(iter(self._known))]  # the one that is known for the longest time
            self._known[log.incarnation, sequence] = entry
        return entry
