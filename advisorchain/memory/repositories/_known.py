"""What a store has read last, so that it is not parsed again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any, Final, Generic, TypeVar

__all__ = ["Known"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_MOST: Final = 4096  # entries that are known, and the characters that such a one may have
_NONE: Final[Mapping[Any, Any]] = {}


class Known(Generic[_K, _V]):
    """Entries by conversation, so that all of a conversation can be forgotten when it is deleted.

    May be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: dict[Hashable, dict[_K, _V]] = {}
        self._count = 0

    def of(self, conversation: Hashable) -> Mapping[_K, _V]:
        """What is known of a conversation."""
        return self._of.get(conversation, _NONE)

    def keep(self, conversation: Hashable, key: _K, value: _V, size: int) -> None:
        """Know it, unless it is large; in place of the conversation that is known for the longest time, if need be."""
        if size > _MOST:
            return
        with self._lock:
            if key not in self.of(conversation):
                if self._count >= _MOST:
                    self._drop(next(iter(self._of)))
                self._count += 1
            self._of.setdefault(conversation, {})[key] = value

    def forget(self, conversation: Hashable) -> None:
        """Know nothing of a conversation, as after its deletion."""
        with self._lock:
            self._drop(conversation)

    def clear(self) -> None:
        """Know nothing."""
        with self._lock:
            self._of.clear()
            self._count = 0

    def _drop(self, conversation: Hashable) -> None:
        self._count -= len(self._of.pop(conversation, _NONE))
