"""One thread with one event loop, in which the work of synchronous callers is done."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from threading import Event, Lock, Thread, current_thread
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio import CancelScope
from anyio.from_thread import BlockingPortal

from advisorchain.errors import ConfigurationError

__all__ = ["Worker"]

_T = TypeVar("_T")

_END_SECONDS: Final = 10.0  # for what Ctrl-C or the end of the process has interrupted; twice the grace of a chain


class Worker:
    """Runs jobs of any thread, each as a task of its own, with the context variables of its caller.

    The thread starts with the first job and has `resource` open all its life. It ends with `stop`, or with the process.

    Args:
        resource: what is entered and left by the loop's main task.
        backend: "asyncio" or "trio".
        what: what errors call this.
    """

    def __init__(self, resource: AbstractAsyncContextManager[object], backend: str, what: str) -> None:
        self._resource = resource
        self._backend = backend
        self._what = what
        self._lock = Lock()
        self._process = os.getpid()
        self._thread: Thread | None = None
        self._started: Future[BlockingPortal] | None = None
        self._ended: Future[None] = Future()
        self._stopped = False

    def run(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """What `function` returns or raises in the loop. Ctrl-C while it runs cancels it, and waits until it has ended.

        Raises:
            ConfigurationError: the worker was stopped, or this is its own thread.
        """
        job = _Job(function)
        try:
            found: _T = self.result(self.submit(job.run))
            return found
        except BaseException as error:
            if not isinstance(error, Exception) and not job.ended.is_set():
                self._give_up(job)
            raise

    def _give_up(self, job: _Job[Any]) -> None:
        try:
            self.result(self.submit(job.give_up))
        except ConfigurationError:
            return  # closed meanwhile: nothing runs any more
        if job.begun:
            job.ended.wait(_END_SECONDS)

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Begin a job."""
        portal = self._portal()
        if current_thread() is self._thread:
            raise ConfigurationError(f"{self._what} was called from a hook that runs in it; await its `chain` there")
        try:
            return self._begin(portal, function)
        except RuntimeError:
            raise self.closed() from None

    def result(self, future: Future[_T]) -> _T:
        """Wait for a job."""
        try:
            return future.result()
        except BaseException:
            if future.cancelled():
                raise self.closed() from None
            raise

    def _begin(self, portal: BlockingPortal, function: Callable[..., Any], *args: Any) -> Future[Any]:
        begin: Callable[[], Future[Any]] = partial(portal.start_task_soon, function, *args)
        if self._backend == "trio" and sys.modules["trio"].lowlevel.in_trio_run():
            with ThreadPoolExecutor(1) as pool:  # trio lets nobody wait for one loop in the thread of another
                return pool.submit(partial(copy_context().run, begin)).result()
        return begin()

    def closed(self) -> ConfigurationError:
        """What those get who come too late."""
        return ConfigurationError(f"{self._what} is closed; make another one")

    def stop(self, seconds: float | None = None) -> None:
        """Cancel what runs, leave the resource and end the thread; wait for it at most so many seconds.

        What leaving the resource raises is raised here.
        """
        if current_thread() is self._thread:
            raise ConfigurationError(f"{self._what} cannot be closed by a hook that runs in it")
        with self._lock:
            self._stopped = True
            started = self._started
        if started is None or self._process != os.getpid():
            return
        try:
            portal = started.result()
        except Exception:
            return  # it never started
        try:
            self._begin(portal, portal.stop, True)
        except RuntimeError:
            pass  # another thread stops it too
        atexit.unregister(self._at_exit)
        self._started = None  # there is nothing to stop the next time
        try:
            self._ended.result(seconds)
        finally:
            if self._thread is not None:
                self._thread.join(seconds)

    def forget(self) -> None:
        """Stop without waiting: from a finalizer, which may run in any thread and at any time."""
        if self._started is not None and not self._stopped:
            Thread(target=self.stop, daemon=True).start()

    def _at_exit(self) -> None:
        self.stop(_END_SECONDS)

    def _portal(self) -> BlockingPortal:
        if self._process != os.getpid():  # the thread stayed in the parent
            raise ConfigurationError(f"{self._what} was made before this process was forked; make one in each process")
        with self._lock:
            if self._stopped:
                raise self.closed()
            if self._started is None:
                self._started = self._start()
            started = self._started
        try:
            return started.result()
        except Exception:
            with self._lock:
                if self._started is started:  # else another caller has tried again already
                    self._started = None
            raise

    def _start(self) -> Future[BlockingPortal]:
        started: Future[BlockingPortal] = Future()
        self._ended = Future()
        given = (self._resource, self._backend, started, self._ended)
        self._thread = Thread(target=_serve, args=given, name=self._what, daemon=True)
        self._thread.start()
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)
        return started


class _Job(Generic[_T]):
    """An async function that can be given up at any moment, also before it has begun."""

    def __init__(self, function: Callable[[], Awaitable[_T]]) -> None:
        self._function = function
        self._scope: CancelScope | None = None
        self._given_up = False
        self.begun = False
        self.ended = Event()

    async def run(self) -> _T | None:
        self.begun = True
        try:
            with CancelScope() as self._scope:
                if self._given_up:
                    self._scope.cancel()
                return await self._function()
            return None  # nobody waits for it any more
        finally:
            self.ended.set()

    def give_up(self) -> None:
        self._given_up = True
        if self._scope is not None:
            self._scope.cancel()


def _serve(
    resource: AbstractAsyncContextManager[object], backend: str, started: Future[BlockingPortal], ended: Future[None]
) -> None:
    async def main() -> None:
        async with resource, BlockingPortal() as portal:  # in this order: the resource is left when all jobs have ended
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(main, backend=backend)
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        else:
            ended.set_exception(error)
            return
    ended.set_result(None)
