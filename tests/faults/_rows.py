"""What lies in a store of `tests.faults` beneath its repository: rows that belong to nothing would show here alone."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from typing import IO, NamedTuple
from urllib.parse import urlsplit


class Rows(NamedTuple):
    """How many there are of each; turns are those by which a store knows a turn again."""

    conversations: int
    entries: int
    turns: int


def of_sqlite(path: str) -> Rows:
    """Of the file of `SqliteChatMemoryRepository`."""
    with closing(sqlite3.connect(path)) as database:
        verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
        assert verdict == "ok", verdict
        tables = ("conversations", "entries", "turns")
        return Rows(*(database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables))


def of_sql(url: str) -> Rows:
    """Of the tables of `SqlChatMemoryRepository`."""
    from sqlalchemy import create_engine, text  # an extra that not every store needs

    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:").replace("mysql:", "mysql+pymysql:"))
    with engine.connect() as database:
        found = Rows(*(database.scalar(text(f"SELECT COUNT(*) FROM advisorchain_{table}")) for table in Rows._fields))
    engine.dispose()
    return found


def of_redis(url: str) -> Rows:
    """Of the keys of `RedisChatMemoryRepository`; the server is ours, so that KEYS does no harm."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 6379), timeout=10) as peer:
        server: IO[bytes] = peer.makefile("rwb")  # it is one but by name
        keys = [key.decode() for key in _asked(server, "KEYS *")]
        logs, turns = ([key for key in keys if key.endswith(ending)] for ending in (":log", ":turns"))
        heads = [key for key in keys if ":" not in key.rpartition("}:")[2]]
        entries, known = (sum(_number(server, f"ZCARD {key}") for key in part) for part in (logs, turns))
        return Rows(len(heads), entries, known)


def _asked(server: IO[bytes], command: str) -> list[bytes]:
    return [server.read(int(server.readline()[1:]) + 2)[:-2] for _ in range(_number(server, command))]


def _number(server: IO[bytes], command: str) -> int:
    """What a number, or the length of a list, answers."""
    server.write(command.encode() + b"\r\n")
    server.flush()
    line = server.readline()
    assert line[:1] in b":*", line
    return int(line[1:])
