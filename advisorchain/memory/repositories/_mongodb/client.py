"""A MongoDB database and the hop to it: the official driver, in worker threads of any event loop."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from advisorchain.errors import StorageError, StoreMissingError
from advisorchain.memory.repositories._mongodb.driver import (
    BSONError,
    CodecOptions,
    ConfigurationError,
    ConnectionFailure,
    Database,
    Document,
    DuplicateKeyError,
    MongoClient,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    Table,
)
from advisorchain.memory.repositories._mongodb.settings import check_numbers, checked_prefix, client_of, database_of
from advisorchain.memory.repositories._times import ticks

_T = TypeVar("_T")

VERSION: Final = 1  # of what the documents look like
MOST_BYTES: Final = 16 * 1024 * 1024 - 16 * 1024  # of messages in one document; MongoDB takes 16 MiB with all around them
_CONVERSATIONS: Final = "conversations"
_ENTRIES: Final = "entries"
_LEASES: Final = "leases"
_GARBAGE: Final = "garbage"
_META: Final = "meta"
_CLOCK_SECONDS: Final = 60.0  # for how long the difference to the server's clock is believed


class MongoStore:
    """One database as the units of work see it. Only to be used inside `MongoHop.run`.

    Attributes:
        conversations: one document a conversation id: what is there, at which revision, and the newest batch.
        entries: the batches before, one document an entry, and the turn ids that were seen.
        leases: one document a lease; its id is the conversation's.
        garbage: numbers of logs that nobody needs any more, of which nothing, or not all, was removed yet.
        meta: the version of all this, and the newest fencing token.
    """

    def __init__(self, database: Database[Document], prefix: str, clock: Callable[[], float], timeout: float) -> None:
        self.conversations: Final[Table] = database[prefix + _CONVERSATIONS]
        self.entries: Final[Table] = database[prefix + _ENTRIES]
        self.leases: Final[Table] = database[prefix + _LEASES]
        self.garbage: Final[Table] = database[prefix + _GARBAGE]
        self.meta: Final[Table] = database[prefix + _META]
        self._clock = clock
        self._timeout = timeout

    def seconds(self) -> float:
        """The time by which leases and conversations end."""
        return self._clock()

    def ticks(self) -> int:
        """The same in whole microseconds."""
        return ticks(self._clock())

    def tries(self) -> Iterator[int]:
        """Numbers for the tries of a unit of work that others may forestall, with a pause before each but the first.

        Raises:
            StorageError: others were faster for as long as the time-out is.
        """
        deadline, number = time.monotonic() + self._timeout, 0
        while True:
            yield number
            if time.monotonic() > deadline:
                raise StorageError(
                    f"others wrote to the same conversation for the whole `timeout` of {self._timeout:g} seconds; nothing"
                    " was stored. Try again later, or give a longer one"
                )
            number += 1
            time.sleep(random.uniform(0, min(0.001 * 2**number, 0.05)))


class MongoHop:
    """Runs units of work on a database, each in one hop to a worker thread. A unit that began also ends when its task is
    cancelled.

    Attributes:
        name: in errors, what is spoken to; never with a password.
    """

    def __init__(
        self,
        url_or_client: object,
        database: str | None,
        prefix: str,
        create: bool,
        clock: Callable[[], float] | None,
        max_connections: int,
        timeout: float,
    ) -> None:
        check_numbers(max_connections, timeout)
        self._owned = isinstance(url_or_client, str)
        self._client = client_of(url_or_client, max_connections, timeout)
        found = database_of(self._client, database)
        self.name = f"MongoDB (database `{found.name}`)"
        self._server_clock = _ServerClock(self._client)
        self.store = MongoStore(found, checked_prefix(prefix), clock or self._server_clock.seconds, timeout)
        self._database = found
        self._create = create
        self._max_connections = max_connections
        self._timeout = timeout
        self._limiter: RunVar[CapacityLimiter] = RunVar("advisorchain.mongodb")  # a limiter belongs to one event loop
        self._lock = Lock()
        self._ready = self._closed = False
        self._process = os.getpid()

    async def run(self, work: Callable[[MongoStore], _T], *, twice: bool = False) -> _T:
        """What `work` returns, called in a worker thread.

        Args:
            work: a unit of work.
            twice: it does no harm when it is done once more: try it again where a connection broke, which may be one that
                was left idle for too long. (What only reads, the driver itself repeats.)

        Raises:
            StorageError: the server cannot be reached, or refused.
        """
        self._check_open()
        return await to_thread.run_sync(self._work, work, twice, limiter=self._limiter_here())

    async def prepare(self) -> None:
        """Make the collections' indexes, or see that they are there, though they are not made on first use."""

        def work() -> None:
            self._guarded(lambda store: make_indexes(self._database, store))

        self._check_open()
        await to_thread.run_sync(work, limiter=self._limiter_here())

    async def aclose(self) -> None:
        """Close the client, if it was made here."""
        if not self._closed:
            self._closed = True
            if self._owned:
                with CancelScope(shield=True):
                    await to_thread.run_sync(self._client.close)

    def _limiter_here(self) -> CapacityLimiter:
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._max_connections)
            self._limiter.set(limiter)
        return limiter

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"the repository on {self.name} is closed; make a new `MongoChatMemoryRepository`")
        if self._owned and self._process != os.getpid():  # the driver's threads stayed in the parent
            raise StorageError(f"the repository on {self.name} was made before this process was forked; make one in each")

    def _work(self, work: Callable[[MongoStore], _T], twice: bool) -> _T:
        if not self._ready:
            with self._lock:
                if not self._ready:
                    self._guarded(self._make_ready)
        return self._guarded(work, twice)

    def _make_ready(self, store: MongoStore) -> None:
        if self._create:
            make_indexes(self._database, store)
        check_version(store)
        self._ready = True

    def _guarded(self, work: Callable[[MongoStore], _T], twice: bool = False) -> _T:
        self._check_open()
        try:
            return work(self.store)
        except ServerSelectionTimeoutError as error:  # a ConnectionFailure that has waited long enough
            raise self._explained(error) from None
        except ConnectionFailure as error:
            if not twice:
                raise self._explained(error) from None
        except (PyMongoError, BSONError) as error:
            raise self._explained(error) from None  # its text may show what was to be written
        return self._guarded(work)

    def _explained(self, error: Exception) -> StorageError:
        name = type(error).__name__
        if isinstance(error, ServerSelectionTimeoutError):
            waited = self._client.options.server_selection_timeout
            return StorageError(
                f"{self.name} was not reached within {waited:g} seconds ({name}); check that it runs, its address in the"
                " URL, and the network"
            )
        if isinstance(error, ConnectionFailure):
            return StorageError(
                f"the connection to {self.name} broke, or no answer came in time ({name}); whether the last write was stored"
                " is not known. Try again: a turn with the same `turn_id` is stored once"
            )
        if isinstance(error, OperationFailure) and error.code in (13, 18):
            return StorageError(f"{self.name} refused the user or the password ({name}, code {error.code}); check the URL")
        if isinstance(error, ConfigurationError):  # on first use, since a name is looked up then
            return StorageError(
                f"{self.name} was not found by the `mongodb+srv://` name in the URL ({name}); check that name, and DNS here"
            )
        code = f", code {error.code}" if isinstance(error, OperationFailure) and error.code is not None else ""
        return StorageError(f"{self.name} refused a command ({name}{code}); its log says why")


def make_indexes(database: Database[Document], store: MongoStore) -> None:
    """Make what is not there yet of collections and indexes.

    Raises:
        StorageError: a collection compares texts by a language's rules.
    """
    store.conversations.create_index([("conversation", 1)], unique=True)
    store.conversations.create_index([("ends", 1)])
    store.conversations.create_index([("updated", 1)])
    store.entries.create_index([("log", 1), ("lane", 1), ("sequence", 1)], unique=True)
    store.garbage.create_index([("at", 1)])
    ours = {store.conversations.name, store.entries.name, store.leases.name}
    for found in database.list_collections():
        if found["name"] in ours and found.get("options", {}).get("collation"):
            raise StorageError(
                f"the collection `{found['name']}` has a collation, by which different ids may be equal; drop it, or give"
                " another `prefix` or `database`"
            )
    try:
        store.meta.update_one({"_id": "schema"}, {"$setOnInsert": {"version": VERSION}}, upsert=True)
    except DuplicateKeyError:
        pass  # another process was faster


def check_version(store: MongoStore) -> None:
    """Refuse to work where nothing was made, or a newer version was at work; StorageError."""
    found = store.meta.find_one({"_id": "schema"})
    if found is None:
        raise StoreMissingError("the database has no indexes of ours; call `create_indexes` first, or give `create=True`")
    if found["version"] > VERSION:
        raise StorageError(
            f"the database was written by a newer advisorchain (schema {found['version']}, this one knows {VERSION}); update"
            " it, or give another `prefix` or `database`"
        )


class _ServerClock:
    """The server's clock: one for all machines. Asked for once a minute; between, this machine counts on."""

    def __init__(self, client: MongoClient[Document]) -> None:
        self._client = client
        self._ahead = 0.0
        self._asked: float | None = None

    def seconds(self) -> float:
        now = time.monotonic()
        if self._asked is None or now - self._asked > _CLOCK_SECONDS:
            answer: Document = self._client.admin.command("hello", codec_options=CodecOptions(tz_aware=True))
            told = answer["localTime"].timestamp()
            after = time.monotonic()
            self._ahead, self._asked = told - (now + after) / 2, after
            now = after
        return now + self._ahead
