"""Ctrl-C: never lost, and never in the middle of something.

Python tells the main thread of a signal between two of its own steps. One that arrives after the last step before a blocking
read would wait for the next key, so a second thread wakes the read until the main thread has heard. And an exception that a
signal raises may strike just where a lock was taken, so it is raised only while somebody reads; otherwise it is kept until
somebody asks.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Self, TypeVar

__all__ = ["Interrupts"]

T = TypeVar("T")

_CTRL_C: Final = "ctrl-c"
# Ignored by default, so that nobody else minds it. Windows has neither the signal nor the need: there a read hears Ctrl-C.
_WAKE: Final[signal.Signals | None] = getattr(signal, "SIGURG", None) if hasattr(signal, "pthread_kill") else None
_HINT: Final = b"\nstill busy; Ctrl-C once more ends at once\n"


class Interrupts:
    """Takes Ctrl-C over from Python for as long as it is entered. For the main thread.

    A third Ctrl-C that nothing came of ends the process at once, with status 130.
    """

    def __init__(self) -> None:
        self._events: SimpleQueue[object] = SimpleQueue()  # not a Queue or an Event: a signal handler may put here
        self._raises = False
        self._in_vain = 0
        self._woken = 0

    def __enter__(self) -> Self:
        self._heard, self._signalled = socket.socketpair()
        self._signalled.setblocking(False)
        self._former: list[tuple[int, Any]] = [(signal.SIGINT, signal.signal(signal.SIGINT, self._on_ctrl_c))]
        self._former_fd = signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, name="ctrl-c", daemon=True)
        if _WAKE is not None:
            self._former.append((_WAKE, signal.signal(_WAKE, self._on_wake)))
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._former_fd)
        self._signalled.close()
        if _WAKE is not None:
            self._watcher.join()
        self._heard.close()
        for number, handler in reversed(self._former):
            signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Within, Ctrl-C is a KeyboardInterrupt, once; also one that came before and was for nobody.

        It may be raised on entering and on leaving too. Block within in nothing but a read: see the module.
        """
        self._in_vain = 0
        try:
            self._raises = True
            if self.forget():
                raise KeyboardInterrupt
            yield
        except SystemError:
            if self._raises:
                raise
            # C code that already bears our KeyboardInterrupt looked for signals again, and a second Ctrl-C was there.
            raise KeyboardInterrupt from None
        finally:
            self._raises = False
            _mask_wakes(block=False)

    def wait(self, work: Future[T], stop: Callable[[], object]) -> T:
        """The result of `work`; each Ctrl-C until then, and one that came before and was for nobody, calls `stop`."""
        work.add_done_callback(self._events.put)
        while (event := self._next()) is not work:
            if event is _CTRL_C:
                stop()
        self._in_vain = 0
        return work.result()

    def forget(self) -> bool:
        """Forget every Ctrl-C that was kept; whether there was one."""
        found = False
        with suppress(Empty):
            while True:
                found = self._events.get_nowait() is _CTRL_C or found
        return found

    def _next(self) -> object:
        while True:
            try:
                return self._events.get(timeout=0.2)  # not for ever at once: on Windows that would not hear Ctrl-C
            except Empty:
                pass

    def _on_ctrl_c(self, *_: object) -> None:
        if self._raises:
            self._raises = False
            _mask_wakes(block=True)  # no handler may run while C code passes the exception on
            raise KeyboardInterrupt
        self._events.put(_CTRL_C)
        self._in_vain += 1
        if self._in_vain == 2:
            with suppress(OSError):
                os.write(2, _HINT)  # print may be what this signal interrupts
        elif self._in_vain > 2:
            os._exit(130)

    def _on_wake(self, *_: object) -> None:
        self._woken += 1  # after the handler of SIGINT: Python calls the handlers of waiting signals by their numbers

    def _watch(self) -> None:
        main = threading.main_thread().ident
        while numbers := self._heard.recv(64):
            before = self._woken
            while signal.SIGINT in numbers and main is not None and _WAKE is not None and self._woken == before:
                signal.pthread_kill(main, _WAKE)
                time.sleep(0.02)


def _mask_wakes(*, block: bool) -> None:
    if _WAKE is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK if block else signal.SIG_UNBLOCK, {_WAKE})
