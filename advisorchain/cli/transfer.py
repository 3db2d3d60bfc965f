"""`advisorchain conversations export` and `import`: what was said as JSON Lines, a message a line."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from advisorchain.cli.conversations import listed, many, required, run
from advisorchain.cli.text import one_line, reconfigured, tell
from advisorchain.errors import ConversationConflictError, InvalidInputError, StorageError
from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.repository import ChatMemoryRepository, Entry, Retention
from advisorchain.memory.snapshots import load_entry, load_ttl

__all__ = ["export_lines", "import_lines"]


def export_lines(place: str | None, ids: tuple[str, ...], output: str | None) -> None:
    """Write conversations, or all, each as it was at one moment. A file is there whole or not at all.

    Raises:
        InvalidInputError: `output` is a folder.
        ChatMemoryError: there is no such conversation, or others write to one all the while.
        StorageError: the file cannot be written.
    """
    if output is not None and (not Path(output).name or Path(output).is_dir()):
        raise InvalidInputError(f"`--output` is `{one_line(output)}`, which is a folder; give a file in it")

    async def work(repository: ChatMemoryRepository) -> None:
        counts, memory = await required(repository, ids), ChatMemory(repository=repository)
        if not ids:
            counts = {found.conversation_id: found.count async for found in listed(repository)}
        with (
            _written(output) as file,
            _progress("Exporting", sum(counts.values()), shown=file is not sys.stdout) as advance,
        ):
            for conversation_id in counts:
                snapshot = await memory.snapshot(conversation_id)
                for entry in snapshot["entries"]:
                    line = {"conversation_id": conversation_id, "ttl": snapshot["ttl"], **entry}
                    print(json.dumps(line, ensure_ascii=file.isatty()), file=file)  # nothing in it steers a terminal
                    advance(1)
        if output is not None:
            tell(f"exported {_what(counts)} to `{one_line(output)}`")

    run(place, work)


def import_lines(place: str | None, source: str, *, replace: bool, ttl: timedelta | None = None) -> None:
    """Store what `export_lines` wrote. All of it is read and checked first; then each conversation is stored whole.

    Args:
        place: the store; a file that is not there is made.
        source: a file, or "-" for standard input.
        replace: put conversations in the place of those that are there. Otherwise one that is there stops all.
        ttl: for how long all of them are kept from now on; None: as the lines tell.

    Raises:
        InvalidInputError: a line that cannot be stored; the error tells its number.
        ConversationConflictError: a conversation that is there.
        StorageError: the file cannot be read, or the store not be written.
    """
    with _opened(source) as file:
        with _progress("Checking", os.fstat(file.fileno()).st_size) as advance:
            counts = _checked(file, advance)
        if not counts:
            what = "standard input" if source == "-" else f"`{one_line(source)}`"
            tell(f"{what} has no messages; nothing was imported")
            return

        async def work(repository: ChatMemoryRepository) -> None:
            if not replace:
                await _check_new(repository, counts)
            with _progress("Importing", sum(counts.values())) as advance:
                await _store(repository, file, replace, ttl, advance)

        run(place, work, create=True)
    tell(f"imported {_what(counts)}")


def _what(counts: dict[str, int]) -> str:
    return f"{many(len(counts), 'conversation')} with {many(sum(counts.values()), 'message')}"


class _Line(NamedTuple):
    number: int
    conversation_id: str
    entry: Entry
    ttl: timedelta | None


def _lines(file: BinaryIO, advance: Callable[[int], None] = lambda _: None) -> Iterator[_Line]:
    """The lines from the beginning on; `advance` is told how many bytes each has."""
    file.seek(0)
    for number, data in enumerate(file, start=1):
        advance(len(data))
        if data.strip():
            yield _Line(number, *_read(number, data))


def _read(number: int, data: bytes) -> tuple[str, Entry, timedelta | None]:
    try:
        told = json.loads(data.decode("utf-8-sig" if number == 1 else "utf-8"))
        if not isinstance(told, dict):
            raise InvalidInputError("it is no JSON object")
        return checked_conversation_id(told.get("conversation_id")), load_entry(told), load_ttl(told)
    except InvalidInputError as error:
        raise _wrong(number, str(error)) from None
    except (ValueError, RecursionError):  # whose texts would show what was there
        raise _wrong(number, "it is no JSON") from None


def _wrong(number: int, reason: str) -> InvalidInputError:
    return InvalidInputError(f"line {number} cannot be imported: {reason}. Nothing was imported")


def _checked(file: BinaryIO, advance: Callable[[int], None]) -> dict[str, int]:
    """How many messages of which conversations are in the file."""
    counts: dict[str, int] = {}
    before: _Line | None = None
    for line in _lines(file, advance):
        name = line.conversation_id
        if before is None or before.conversation_id != name:
            if name in counts:
                raise _wrong(line.number, f"`{one_line(name)}` goes on after another conversation; put its lines together")
        elif line.entry.sequence <= before.entry.sequence:
            raise _wrong(line.number, "its `sequence` is not above that of the line before")
        counts[name] = counts.get(name, 0) + 1
        before = line
    return counts


async def _check_new(repository: ChatMemoryRepository, ids: Iterable[str]) -> None:
    for conversation_id in ids:
        if (await repository.recall(conversation_id, 0)).count:
            raise ConversationConflictError(
                f"there is a conversation `{one_line(conversation_id)}` already, and nothing was imported; --replace puts"
                " what is imported in the place of what is there"
            )


async def _store(
    repository: ChatMemoryRepository,
    file: BinaryIO,
    replace: bool,
    ttl: timedelta | None,
    advance: Callable[[int], None],
) -> None:
    stored = 0
    try:
        for conversation_id, lines in groupby(_lines(file), key=lambda line: line.conversation_id):
            together = list(lines)
            kept = Retention(ttl or together[0].ttl)
            entries = [line.entry for line in together]
            await repository.replace(conversation_id, entries, expected=None if replace else 0, retention=kept)
            stored += 1
            advance(len(entries))
    except Exception:
        tell(f"{many(stored, 'conversation')} had been imported when this happened:")
        raise


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    """A file that can be read twice."""
    try:
        with tempfile.TemporaryFile() if source == "-" else Path(source).open("rb") as file:
            if source == "-":
                shutil.copyfileobj(sys.stdin.buffer, file)
            yield file
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"`{source}` cannot be read: {error.strerror}") from error


@contextmanager
def _written(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield reconfigured(sys.stdout, encoding="utf-8", errors="strict")  # as `import` reads it, on every system
        return
    target = Path(output)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            yield file
        unfinished.replace(target)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"`{target}` cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _progress(doing: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield partial(progress.advance, progress.add_task("", total=total))
