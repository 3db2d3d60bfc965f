"""`advisorchain conversations`: list, show, export and delete what was said."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from advisorchain.cli.parts import open_memory
from advisorchain.cli.text import one_line, plain, tell
from advisorchain.errors import ChatMemoryError, StorageError
from advisorchain.memory.repository import ChatMemoryRepository, Conversation, Entry, all_entries
from advisorchain.messages import AssistantMessage, dump_message

__all__ = ["delete", "export", "list_all", "show"]

T = TypeVar("T")

_PAGE = 200


def list_all(place: str | None) -> None:
    """Print a line a conversation."""

    async def work(repository: ChatMemoryRepository) -> None:
        heading = f"{'LAST USED':<16}  {'MESSAGES':>8}  ID"
        async for found in _conversations(repository):
            if heading:
                print(heading)
                heading = ""
            print(f"{found.updated.astimezone():%Y-%m-%d %H:%M}  {found.count:>8}  {one_line(found.conversation_id)}")

    _run(place, work)


def show(place: str | None, conversation_id: str) -> None:
    """Print what was said.

    Raises:
        ChatMemoryError: there is no such conversation.
    """

    async def work(repository: ChatMemoryRepository) -> None:
        await _require(repository, (conversation_id,))
        async for entry in all_entries(repository, conversation_id):
            print(plain(_shown(entry)))

    _run(place, work)


def export(place: str | None, ids: tuple[str, ...], output: str | None) -> None:
    """Write conversations as JSON Lines, a message a line. A file is there whole or not at all.

    Raises:
        ChatMemoryError: there is no such conversation.
        StorageError: the file cannot be written.
    """

    async def work(repository: ChatMemoryRepository) -> None:
        counts = await _require(repository, ids)
        if not ids:
            counts = {found.conversation_id: found.count async for found in _conversations(repository)}
        with _file(output) as file, _progress(sum(counts.values()), shown=file is not sys.stdout) as advance:
            for conversation_id in counts:
                async for entry in all_entries(repository, conversation_id):
                    print(_exported(conversation_id, entry), file=file)
                    advance()

    _run(place, work)


def delete(place: str | None, ids: tuple[str, ...], ask: Callable[[str], bool] | None) -> None:
    """Delete conversations; none when one of them is not there, or the answer to the question is no.

    Raises:
        ChatMemoryError: there is no such conversation.
    """

    async def found(repository: ChatMemoryRepository) -> dict[str, int]:
        return await _require(repository, ids)

    async def gone(repository: ChatMemoryRepository) -> None:
        for conversation_id in counts:
            await repository.delete(conversation_id)

    counts = _run(place, found)
    names = ", ".join(f"`{one_line(conversation_id)}`" for conversation_id in counts)
    # Asked outside the event loop, which would take Ctrl-C for itself while the question stands.
    if ask is None or ask(f"Delete {names} with {sum(counts.values())} messages for good?"):
        _run(place, gone)
    else:
        tell("nothing was deleted")


def _run(place: str | None, work: Callable[[ChatMemoryRepository], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with open_memory(place, create=False) as repository:
            return await work(repository)

    return anyio.run(opened)


async def _require(repository: ChatMemoryRepository, ids: tuple[str, ...]) -> dict[str, int]:
    counts = {conversation_id: (await repository.recall(conversation_id, 0)).count for conversation_id in ids}
    for conversation_id, count in counts.items():
        if not count:
            raise ChatMemoryError(f"there is no conversation `{one_line(conversation_id)}`; see: conversations list")
    return counts


async def _conversations(repository: ChatMemoryRepository) -> AsyncIterator[Conversation]:
    page = await repository.conversations(limit=_PAGE)
    while True:
        for found in page.items:
            yield found
        if page.next is None:
            return
        page = await repository.conversations(after=page.next, limit=_PAGE)


def _shown(entry: Entry) -> str:
    message = entry.message
    speaker, notes = entry.kind if entry.kind == "summary" else entry.role, []
    if isinstance(message.content, tuple):
        notes += [f"[{part.type}]" for part in message.content if part.type != "text"]
    if isinstance(message, AssistantMessage):
        notes += [f"[calls {call.name} {call.arguments}]" for call in message.tool_calls]
        speaker += " (stopped)" if message.partial else ""
    text = "\n".join(filter(None, [message.text, *notes]))
    return f"{entry.created.astimezone():%Y-%m-%d %H:%M} {speaker}:\n{text}\n"


def _exported(conversation_id: str, entry: Entry) -> str:
    line: dict[str, Any] = {
        "conversation_id": conversation_id,
        "sequence": entry.sequence,
        "turn_id": entry.turn_id,
        "created": entry.created.isoformat(),
        "kind": entry.kind,
        "covers": entry.covers,
        "message": json.loads(dump_message(entry.message)),
    }
    return json.dumps(line, ensure_ascii=False)


@contextmanager
def _file(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
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
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("Exporting"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield partial(progress.advance, progress.add_task("", total=total))
