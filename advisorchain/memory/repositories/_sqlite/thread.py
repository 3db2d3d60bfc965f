"""One thread that works for tasks of any event loop, for what belongs to one thread only."""

from __future__ import annotations

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar
from weakref import finalize

from anyio import CancelScope, Event
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from advisorchain._event_loops import poster
from advisorchain.errors import StorageError

_T = TypeVar("_T")


class OwnThread:
    """Runs jobs one after the other, in the order in which they came, from asyncio and trio alike.

    A job that began also ends when its task is cancelled; one that still waits is left out. This takes less time than a
    hop by `anyio.to_thread`, whose limiters belong to one event loop, and needs no lock around a connection. The thread
    starts with the first job.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._end = finalize(self, self._jobs.put, None)  # so does forgetting this object, and the end of the process

    async def run(self, work: Callable[[Job[_T]], _T]) -> _T:
        """What `work` returns or raises; it is given its job, to see whether its task has been cancelled."""
        await checkpoint_if_cancelled()
        job = Job(work)
        self._submit(job)
        try:
            await job.done.wait()
        except GeneratorExit:
            job.is_given_up = True
            raise  # thrown away unfinished: a coroutine may not await any more
        except BaseException:
            job.is_given_up = True
            with CancelScope(shield=True):  # nobody shall find a job at work that nobody waits for
                await job.done.wait()
            raise
        return job.outcome()

    def stop(self) -> None:
        """End the thread after its jobs."""
        with self._lock:
            self._end()

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked since: the thread, and whatever it owned, stayed in the parent."""
        return self._process != os.getpid()

    def _submit(self, job: Job[Any]) -> None:
        if self.is_inherited:
            raise StorageError(f"{self._name} was made before this process was forked; make one in each process")
        with self._lock:
            if not self._end.alive:  # nobody would take the job
                raise StorageError(f"{self._name} is closed; make a new one")
            if self._thread is None:
                self._thread = Thread(target=_serve, args=(self._jobs,), name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put(job)


class Job(Generic[_T]):
    """A piece of work and the task that waits for it."""

    __slots__ = ("_error", "_result", "_wake", "_work", "done", "is_given_up")

    def __init__(self, work: Callable[[Job[_T]], _T]) -> None:
        self._work = work
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._wake = poster(current_token())
        self.done: Final = Event()
        self.is_given_up = False

    def perform(self) -> None:
        """Work, in the thread, and wake the task."""
        try:
            if not self.is_given_up:
                self._result = self._work(self)
        except BaseException as error:
            self._error = error
        try:
            self._wake(self.done.set)
        except RuntimeError:  # the task's event loop has ended without waiting for it
            pass

    def outcome(self) -> _T:
        """What the work returned or raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


def _serve(jobs: SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.perform()
        del job  # what it holds shall not wait for the next one
