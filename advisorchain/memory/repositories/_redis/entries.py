"""Entries out of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from advisorchain.errors import MessageError, StorageError
from advisorchain.memory.repositories._known import Known
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

    What they are known under is the key of their conversation's head. May be used from any thread.
    """

    _START: Final = 40  # bytes of a row that hardly another one has

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: Known[bytes, tuple[bytes, Entry]] = Known()
        self.forget = self._known.forget

    def entries(self, head: str, rows: Iterable[bytes]) -> tuple[Entry, ...]:
        """An entry for each row."""
        known, start, found = self._known.of(head), self._START, []
        for row in rows:
            hit = known.get(row[:start])
            found.append(hit[1] if hit is not None and hit[0] == row else self._read(head, row))
        return tuple(found)

    def recalled(self, head: str, answer: Sequence[bytes]) -> Recalled:
        """What RECALL answers."""
        if not answer:
            return Recalled()
        revision, life, size, tail, systems, questions, summaries, cut, edit = map(int, answer[0].split())
        entries = self.entries(head, answer[1:])
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

    def _read(self, head: str, row: bytes) -> Entry:
        entry = self._parsed(row)
        self._known.keep(head, row[: self._START], (row, entry), len(row))
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
