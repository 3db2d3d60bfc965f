"""A SQLite file with a schema of ours: one connection, opened on first use, that only one thread at a time works with."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from anyio import CancelScope

from advisorchain._checked import checked_one_of, checked_seconds
from advisorchain.errors import ConfigurationError, StorageError, kind_of
from advisorchain.memory.repositories._file_place import FilePlace, gone_error
from advisorchain.memory.repositories._sqlite.thread import Job, OwnThread

_T = TypeVar("_T")

MEMORY: Final = ":memory:"
SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL")
_SLICE: Final = 0.25  # seconds that SQLite waits for a lock before we look whether our caller is cancelled
# Connections of the parent process, held so that forgetting a repository does not close them: SQLite forbids that.
_INHERITED: Final[list[sqlite3.Connection]] = []


class Form(NamedTuple):
    """What one of our files holds.

    Attributes:
        owner, what: in errors, whose file it is, and what works on it.
        application: the number in the file's header that says that it is ours.
        version: of the schema.
        schema: statements that make it.
        steps: statements that lead from version 1 to 2, from 2 to 3, and so on.
    """

    owner: str
    what: str
    application: int
    version: int
    schema: str
    steps: tuple[str, ...] = ()


# STRICT would need SQLite 3.37; a log's rows are clustered by conversation, lane and sequence.
_CONVERSATIONS: Final = """
CREATE TABLE conversations (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    incarnation INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    size INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL,
    systems INTEGER NOT NULL,
    question INTEGER NOT NULL,
    summary INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    spoken INTEGER NOT NULL DEFAULT 0,
    ttl INTEGER,
    ends INTEGER
);
CREATE INDEX ending ON conversations (ends) WHERE ends IS NOT NULL;
CREATE INDEX written ON conversations (updated);
CREATE TABLE entries (
    conversation INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    message TEXT NOT NULL,
    created INTEGER NOT NULL,
    kind TEXT NOT NULL,
    covers INTEGER,
    question INTEGER NOT NULL,
    PRIMARY KEY (conversation, lane, sequence)
) WITHOUT ROWID;
CREATE TABLE turns (
    conversation INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    PRIMARY KEY (conversation, turn_id)
) WITHOUT ROWID;
CREATE TABLE leases (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    expires REAL NOT NULL
);
"""
# The new name of `count` makes a process of the version before fail, that has the file open and would not keep `spoken`.
_RETENTION: Final = """
ALTER TABLE conversations RENAME COLUMN count TO size;
ALTER TABLE conversations ADD COLUMN spoken INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN ttl INTEGER;
ALTER TABLE conversations ADD COLUMN ends INTEGER;
UPDATE conversations SET spoken = (SELECT count(*) FROM entries WHERE conversation = key AND lane = 0);
CREATE INDEX ending ON conversations (ends) WHERE ends IS NOT NULL;
CREATE INDEX written ON conversations (updated);
"""
CONVERSATIONS: Final = Form("chat memory", "the repository", 0x61647663, 2, _CONVERSATIONS, (_RETENTION,))  # "advc"


class SqliteFile:
    """Runs units of work, each in one transaction and in one hop to the thread that owns the connection.

    A unit of work that began also ends when its task is cancelled; one that waits for another process's lock gives up.
    """

    def __init__(self, path: str | os.PathLike[str], synchronous: str, timeout: float, form: Form = CONVERSATIONS) -> None:
        self.path = _checked_path(path)
        self._form = form
        self._synchronous = checked_one_of("synchronous", synchronous, SYNCHRONOUS)
        self._timeout = checked_seconds("timeout", timeout, zero=True)
        self._thread = OwnThread(f"{form.what} on `{self.path}`")
        self._connection: sqlite3.Connection | None = None
        self.on_open: Callable[[], None] = lambda: None  # for what was known of another file at this path
        self._place: FilePlace | None = None  # the open file's
        self._closed = False

    async def run(self, begin: Literal["BEGIN", "BEGIN IMMEDIATE"], work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What `work` returns, called with the connection inside a transaction; it may be called again after a lock.

        Raises:
            StorageError: the file cannot be opened, read or written; nothing of the work was stored.
        """
        self._check_open()
        return await self._thread.run(lambda job: self._work(begin, work, job))

    async def aclose(self) -> None:
        """Close the connection, after the work that is under way; in a forked process, leave it to the parent."""
        if self._closed:
            return
        self._closed = True
        if self._thread.is_inherited:
            _INHERITED.extend([self._connection] if self._connection is not None else ())
        else:
            with CancelScope(shield=True):
                await self._thread.run(lambda job: self._drop())
            self._thread.stop()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self._form.what} on `{self.path}` is closed; make a new one")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _work(self, begin: str, work: Callable[[sqlite3.Connection], _T], job: Job[_T]) -> _T:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._once(begin, work)
            except sqlite3.Error as error:
                if not _is_busy(error) or job.is_given_up or time.monotonic() >= deadline:
                    raise explained(self.path, error) from error
            time.sleep(random.uniform(0.001, 0.01))  # switching to WAL reports a lock at once, without waiting

    def _once(self, begin: str, work: Callable[[sqlite3.Connection], _T]) -> _T:
        connection = self._connection or self._open()
        self._check_place()
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise
        return result

    def _check_place(self) -> None:
        """Refuse to go on with a file that was removed or replaced."""
        if self._place is not None and self._place.is_gone:
            self._drop()  # the next call opens what is there then
            raise gone_error(self.path)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:  # a full disk has ended it already
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            if self.path != MEMORY:  # a connection in doubt: the next call opens another
                self._drop()

    def _open(self) -> sqlite3.Connection:
        self._check_open()  # one that was submitted while another closed it
        connection = sqlite3.connect(self.path, timeout=_SLICE, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("BEGIN")
            version = _version_of(connection, self.path, self._form)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            if version < self._form.version:
                _make_schema(connection, self.path, self._form)
        except BaseException:
            connection.close()
            raise
        self.on_open()
        self._connection = connection
        self._place = None if self.path == MEMORY else FilePlace.of(self.path)
        return connection


def _checked_path(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(f"`path` is {kind_of(path)}; give the path of a file, or {MEMORY!r}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ConfigurationError(f"`path` is blank, or no text; give the path of a file, or {MEMORY!r}")
    return text


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _version_of(connection: sqlite3.Connection, path: str, form: Form) -> int:
    """Which schema is there; 0 for a new file. StorageError for another program's or a newer version's.

    To be called in a transaction, or a file that another process is making looks like another program's.
    """
    version = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") == form.application:
        if version > form.version:
            raise StorageError(
                f"`{path}` was written by a newer advisorchain (schema {version}, this one knows {form.version}); update it"
            )
        return version
    if version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StorageError(f"`{path}` is the database of another program; give {form.owner} a file of its own")
    return 0


def _make_schema(connection: sqlite3.Connection, path: str, form: Form) -> None:
    """All of the schema, or the steps that lead to it, or, when that fails and the connection is closed, nothing."""
    connection.execute("BEGIN IMMEDIATE")
    version = _version_of(connection, path, form)  # another process may have been faster
    for script in form.steps[version - 1 :] if version else (form.schema,):
        for statement in script.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {form.application}")
    connection.execute(f"PRAGMA user_version = {form.version}")
    connection.execute("COMMIT")


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_ADVICE: Final = {
    sqlite3.SQLITE_NOTADB: "is no SQLite database; give another path, or move that file away",
    sqlite3.SQLITE_CORRUPT: "is damaged; put a backup in its place",
    sqlite3.SQLITE_READONLY: "cannot be written to; make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "cannot be opened; make the file and its folder writable for this user",
    sqlite3.SQLITE_FULL: "cannot grow: the disk, or the size that the database may have, is full. Make room and try again",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reported an error. Check the disk and its free space",
}
_LOCKED: Final = "stayed locked by another program; end that program's transaction, or give a longer `timeout`"


def explained(path: str, error: sqlite3.Error) -> StorageError:
    """A StorageError that names the file and says what to do."""
    code = _code(error)
    advice = _LOCKED if _is_busy(error) else _ADVICE.get(code, "failed; nothing was stored")
    if code == sqlite3.SQLITE_CANTOPEN:
        advice = _why_not_opened(path)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StorageError(f"`{path}` {advice} ({name}: {error})")


def _why_not_opened(path: str) -> str:
    folder = Path(path).parent
    if Path(path).is_dir():
        return "is a folder; give the path of a file in it"
    if not folder.is_dir():
        return f"cannot be opened: there is no folder `{folder}`; make it first"
    return "cannot be opened; make the file and its folder readable and writable for this user"
