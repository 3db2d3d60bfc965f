"""The connections of a SQL store: how many at once, and which of them are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final

from sqlalchemy import Engine

from advisorchain.errors import StorageError
from advisorchain.memory.repositories._sql.link import CoreLink, DirectLink, Link, is_direct

_LONG: Final = 30.0  # seconds to wait for one that is free, where `timeout` does not say it


class Links:
    """Hands out connections. Those of an engine of ours are kept open here: a pool that others may share costs more.

    Args:
        engine: where they come from.
        size: how many at once, over all threads.
        name: of the store, in errors.
        is_ours: nobody else uses the engine.
        timeout: seconds to wait for one that is free.
    """

    def __init__(self, engine: Engine, size: int, name: str, *, is_ours: bool, timeout: float | None) -> None:
        self._engine = engine
        self._name = name
        self._size = size
        self._timeout = timeout or _LONG
        self._is_direct = is_direct(engine.dialect.name, engine.dialect.driver)
        self._keeps = is_ours and self._is_direct
        self._idle: deque[Link] = deque()
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        for _ in range(size):
            self._permits.put(None)

    def take(self, opened: Callable[[], Link]) -> Link:
        """A connection that nobody else has; `opened` makes one."""
        self._wait()
        try:
            return self._idle.pop()  # the one used last: the fewest are open
        except IndexError:
            pass
        try:
            return opened()
        except BaseException:
            self._permits.put(None)
            raise

    def give(self, link: Link) -> None:
        """Take it back."""
        try:
            if link.is_lost or not self._keeps:
                link.close()
            else:
                link.rest()
                self._idle.append(link)
        finally:
            self._permits.put(None)

    def new(self) -> Link:
        """A connection beside those that are counted."""
        return DirectLink(self._engine, is_ours=self._keeps) if self._is_direct else CoreLink(self._engine)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Leave one out: who has something else to do in the database may use `new`, also where it has one connection."""
        self._wait()
        try:
            yield
        finally:
            self._permits.put(None)

    def drop(self) -> None:
        """Close what is kept and not in use."""
        with suppress(IndexError):  # another thread may take the last one
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        """Close what is kept, after the work that is under way; who asks from now on is refused."""
        self._closed = True
        for _ in range(self._size):
            self._permits.get()
        self.drop()
        for _ in range(self._size):
            self._permits.put(None)

    def _wait(self) -> None:
        try:
            self._permits.get(timeout=self._timeout)
        except Empty:
            raise StorageError(
                f"all connections to `{self._name}` were in use for longer than `timeout`; give a larger `pool_size`, or"
                " look for what makes the database slow"
            ) from None
        if self._closed:
            self._permits.put(None)
            raise StorageError(f"the repository on `{self._name}` is closed; make a new one")
