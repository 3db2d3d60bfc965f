"""Server-sent events out of bytes, wherever these are cut.

OpenAI's SDK has a reader too, but it leaves half-read generators behind at each stream's end, of which trio warns.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EventReader"]

_LINE: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventReader:
    """Takes the bytes of a stream; gives the data of its events. Their names are not told: what we read is in the data."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of one that has not ended
        self._data: list[bytes] = []  # lines of an event that has not ended
        self._after_return = False  # a line feed that comes next belongs to it
        self._begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in this piece."""
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        *ended, rest = _LINE.split(piece)
        self._after_return = piece.endswith(b"\r")
        found = [data for line in ended if (data := self._take(line)) is not None]
        self._line += [rest] if rest else []
        return found

    def _take(self, end: bytes) -> bytes | None:
        """A line ends; the data of an event, if this ends one."""
        line = b"".join([*self._line, end])
        self._line.clear()
        if not self._begun:
            line, self._begun = line.removeprefix(_BYTE_ORDER_MARK), True
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = b"\n".join(self._data), []
        return data or None  # an empty one is a sign of life
