"""Entries out of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final, NamedTuple

from advisorchain.errors import MessageError, StorageError
from advisorchain.memory.repositories._log_rules import SystemsCut, systems_cut
from advisorchain.memory.repositories._times import moment
from advisorchain.memory.repository import Entry
from advisorchain.messages import load_message

__all__ = ["EntryReader", "Recalled"]


class Recalled(NamedTuple):
    """What RECALL answers. `edit` is the revision of the last write that took entries away."""

    revision: int = 0
    incarnation: int = 0
    size: int = 0
    tail: tuple[Entry, ...] = ()
    systems: SystemsCut = SystemsCut()
    question: Entry | None = None
    summary: Entry | None = None
    edit: int = 0


class EntryReader:
    """Makes entries of rows, each once: it knows those that it has read last by their rows, which never change.

    May be used from any thread.
    """

    _MOST: Final = 4096  # entries that are known, and the bytes that such a one may have
    _START: Final = 40  # bytes of a row that hardly another one has

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: dict[bytes, tuple[bytes, Entry]] = {}
        self._lock = Lock()

    def forget(self) -> None:
        """Know nothing, as after a deletion."""
        with self._lock:
            self._known.clear()

    def entries(self, rows: Iterable[bytes]) -> tuple[Entry, ...]:
        """An entry for each row."""
        known = self._known
        found = []
        for row in rows:
            hit = known.get(row[:40])
            found.append(hit[1] if hit is not None and hit[0] == row else self._read(row))
        return tuple(found)

    def recalled(self, answer: Sequence[bytes]) -> Recalled:
        """What RECALL answers."""
        if not answer:
            return Recalled()
        revision, life, size, tail, systems, questions, summaries, cut, edit = map(int, answer[0].split())
        entries = self.entries(answer[1:])
        known = entries[tail : tail + systems]
        rest = entries[tail + systems :]
        return Recalled(
            revision,
            life,
            size,
            entries[:tail][::-1],
            systems_cut(known) if cut else SystemsCut(known),
            rest[0] if questions else None,
            rest[-1] if summaries else None,
            edit,
        )

    def _read(self, row: bytes) -> Entry:
        entry = self._parsed(row)
        if len(row) <= self._MOST:
            with self._lock:
                if len(self._known) >= self._MOST:
                    del self._known[next(iter(self._known))]  # the one that is known for the longest time
                self._known[row[: self._START]] = row, entry
        return entry

    def _parsed(self, row: bytes) -> Entry:
        sequence, _, created, kind, covers, size, rest = row.split(b" ", 6)
        end = int(size)
        try:
            message = load_message(rest[end:])
        except MessageError as error:
            raise StorageError(f"entry {int(sequence)} on `{self._server}` cannot be read: {error}") from None
        summary = kind == b"m"
        return Entry(
            int(sequence),
            rest[:end].decode(),
            message,
            moment(int(created)),
            "summary" if summary else "message",
            None if covers == b"-" else int(covers),
        )
