"""Clients of Redis for any event loop, and scripts that are run by them."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from anyio import CancelScope, fail_after
from anyio.lowlevel import EventLoopToken, checkpoint_if_cancelled, current_token
from coredis import Config, RedisCluster
from coredis.exceptions import NoScriptError, ReadOnlyError, RedisError

from advisorchain._event_loops import has_ended
from advisorchain.errors import StorageError
from advisorchain.memory.repositories._redis.address import AnyClient, Make
from advisorchain.memory.repositories._redis.errors import LOST, explained
from advisorchain.memory.repositories._redis.lua import Script
from advisorchain.memory.repositories._redis.opened import Opened, in_background

__all__ = ["Clients", "Value"]

_T = TypeVar("_T")
Value: TypeAlias = "str | bytes | int"


class Clients:
    """Runs scripts with one client for each event loop, since a client's connections belong to one.

    Such a client is opened with the first call, in a task of its own, so that no task group of it is open in a caller's
    task. It is closed by `aclose`, with its event loop, or when it failed: then the next call opens another.

    A call that began also ends when its task is cancelled, with the answer, or an error after `timeout` seconds. What was
    sent when a connection was lost is sent once more: scripts know what they have done.

    Args:
        make: gives a client to be opened.
        given: a client that is open already, in place of one that is made; it belongs to the event loop that uses it first.
        shown: the server's address, for errors.
        timeout: seconds for one trip.
        bounded: the clients that are made keep to `timeout` themselves, which costs less than a scope around each call.
    """

    def __init__(
        self, make: Make | None, given: AnyClient | None, shown: str, timeout: float, *, bounded: bool = False
    ) -> None:
        self._bounded = bounded
        self._make = make
        self._given = given
        self._shown = shown
        self._timeout = timeout
        self._lock = threading.Lock()
        self._open: dict[EventLoopToken, Opened] = {}
        self._process = os.getpid()
        self._closed = False

    async def run(self, script: Script, keys: Sequence[str], given: Sequence[Value]) -> Any:
        """What the script answers.

        Raises:
            StorageError: the server cannot be reached, refuses, or does not answer in time.
        """
        return await self._twice(lambda client: _evaluated(client, script, keys, given), reads=script.reads)

    async def pipeline(self, fill: Callable[[Any], object]) -> Sequence[Any]:
        """The answers to several commands that read, in one trip to each node; `fill` puts them into the pipeline."""

        async def work(client: AnyClient) -> Sequence[Any]:
            async with client.pipeline(transaction=False) as pipe:
                fill(pipe)
            return pipe.results or ()

        return await self._twice(work, reads=True)

    async def is_cluster(self) -> bool:
        """Whether keys of two slots cannot be used in one script."""

        async def work(client: AnyClient) -> bool:
            return isinstance(client, RedisCluster)

        return await self._twice(work, reads=True)

    async def aclose(self) -> None:
        """Close the clients, those of other event loops a little later."""
        with self._lock:
            self._closed = True
            opened, self._open = self._open, {}
        if self._process != os.getpid():
            return  # they are the parent's
        for loop, client in opened.items():
            client.end_from(loop)
        own = opened.get(current_token())
        if own is not None:
            with CancelScope(shield=True):
                await own.ended.wait()

    async def _twice(self, work: Callable[[AnyClient], Awaitable[_T]], *, reads: bool) -> _T:
        await checkpoint_if_cancelled()
        opened = await self._here()
        try:
            try:
                return await self._once(opened, work)
            except LOST as error:
                if isinstance(error, ReadOnlyError):  # a primary that became a replica: ask anew who is the primary
                    self._retire(opened)
                opened = await self._here()
                return await self._once(opened, work)
        except StorageError:
            raise
        except (RedisError, OSError) as error:
            if isinstance(error, (*LOST, OSError)):
                self._retire(opened)  # its pool may have lost count of its connections
            raise explained(self._shown, error, self._timeout, reads=reads) from None

    async def _once(self, opened: Opened, work: Callable[[AnyClient], Awaitable[_T]]) -> _T:
        with CancelScope(shield=True) if self._bounded else fail_after(self._timeout, shield=True):
            return await opened.use(work)

    async def _here(self) -> Opened:
        loop = current_token()
        opened = self._open.get(loop)
        if opened is None or opened.over or self._process != os.getpid():
            opened = self._opened(loop)
        if opened.client is None:
            with CancelScope(shield=True):
                await opened.ready.wait()
        return opened

    def _opened(self, loop: EventLoopToken) -> Opened:
        with self._lock:
            if self._closed:
                raise StorageError(f"the chat memory on `{self._shown}` is closed; make a new `RedisChatMemoryRepository`")
            if self._process != os.getpid():  # forked: the connections are the parent's
                self._open, self._process = {}, os.getpid()
            for ended in [token for token in self._open if has_ended(token)]:
                del self._open[ended]
            opened = self._open.get(loop)
            if opened is None or opened.over:
                opened = self._open[loop] = self._made()
        return opened

    def _made(self) -> Opened:
        if self._given is None:
            assert self._make is not None
            opened = Opened(self._make, self._timeout)
            in_background(opened.serve)
            return opened
        if self._open:
            raise StorageError(
                f"the client of `{self._shown}` belongs to another event loop; give a URL, or a function that makes a client"
            )
        return Opened.given(self._given)

    def _retire(self, opened: Opened) -> None:
        if self._given is None:
            opened.end()


async def _evaluated(client: AnyClient, script: Script, keys: Sequence[str], given: Sequence[Value]) -> Any:
    evaluate = _by_client if isinstance(client, RedisCluster) or Config.otel_enabled else _by_connection
    try:
        return await evaluate(client, script, script.sha, keys, given)
    except NoScriptError:  # a server that was restarted, or that has never seen it
        return await evaluate(client, script, script.text, keys, given)


async def _by_client(client: AnyClient, script: Script, which: str, keys: Sequence[str], given: Sequence[Value]) -> Any:
    by_digest, whole = (client.evalsha_ro, client.eval_ro) if script.reads else (client.evalsha, client.eval)
    return await (by_digest if which is script.sha else whole)(which, keys, given)


async def _by_connection(client: AnyClient, script: Script, which: str, keys: Sequence[str], given: Sequence[Value]) -> Any:
    """As the client does it, without what it looks up for each command, which takes half of the time."""
    command = (b"EVALSHA" if which is script.sha else b"EVAL") + (b"_RO" if script.reads else b"")
    pool = client.connection_pool
    connection = await pool.get_connection()
    try:
        request = connection.create_request(command, which, len(keys), *keys, *given)
    finally:
        pool.release(connection)  # others send their requests behind this one, and wait as it does
    return await request
