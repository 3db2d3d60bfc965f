"""Whether a SQLite file is still the one that was opened: what is written to another one, nobody would find again."""

from __future__ import annotations

import os
from typing import NamedTuple

from advisorchain.errors import StorageError


class FilePlace(NamedTuple):
    """Which file was opened: its whole path, device and number; zeros where there is none."""

    path: str
    device: int
    number: int

    @classmethod
    def of(cls, path: str) -> FilePlace:
        """The file that is there now."""
        whole = os.path.abspath(path)
        try:
            found = os.stat(whole)
        except OSError:
            return cls(whole, 0, 0)
        return cls(whole, found.st_dev, found.st_ino)

    @property
    def is_gone(self) -> bool:
        """Whether another file is there by now, or none."""
        return FilePlace.of(self.path) != self


def gone_error(path: str) -> StorageError:
    """What is told of a file that is no longer the one that was opened."""
    return StorageError(
        f"`{path}` was moved, deleted or replaced while it was open; nothing was read or stored. The next try"
        f" goes on with what is there; where that is a backup, remove `{path}-wal` and `{path}-shm` first"
    )
