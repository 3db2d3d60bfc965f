"""`advisorchain conversations`: list, show, rename, fork, delete and prune what was said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias, TypeVar

import anyio

from advisorchain.cli.named_parts import open_memory
from advisorchain.cli.text import one_line, plain, tell
from advisorchain.errors import ChatMemoryError, ConversationConflictError, InvalidInputError, StoreMissingError
from advisorchain.memory.chat_memory import ago
from advisorchain.memory.repository import ChatMemoryRepository, Conversation, Entry, all_entries
from advisorchain.memory.urls import open_repository
from advisorchain.messages import AssistantMessage

__all__ = ["Ask", "delete", "fork", "list_all", "listed", "many", "prune", "rename", "required", "run", "show"]

T = TypeVar("T")
Ask: TypeAlias = Callable[[str], bool] | None
"""Asks a question; None: the answer is yes."""

_PAGE = 200
_HEADING = f"{'LAST USED':<16}  {'MESSAGES':>8}  ID"


def list_all(place: str | None, prefix: str = "") -> None:
    """Print a line a conversation whose id begins with `prefix`."""

    async def work(repository: ChatMemoryRepository) -> None:
        heading = _HEADING
        async for found in listed(repository, prefix):
            if heading:
                print(heading)
                heading = ""
            print(_row(found))

    run(place, work)


def show(place: str | None, conversation_id: str, *, numbers: bool = False) -> None:
    """Print what was said; with `numbers`, each message with its place in the log.

    Raises:
        ChatMemoryError: there is no such conversation.
    """

    async def work(repository: ChatMemoryRepository) -> None:
        await required(repository, (conversation_id,))
        async for entry in all_entries(repository, conversation_id):
            print(plain(_shown(entry, numbers)))

    run(place, work)


def rename(place: str | None, conversation_id: str, new_id: str) -> None:
    """Give a conversation another id.

    Raises:
        ChatMemoryError: there is no such conversation, or there is one of the new id.
    """

    async def work(repository: ChatMemoryRepository) -> None:
        with _free(new_id):
            if not await repository.rename(conversation_id, new_id):
                raise _none(conversation_id)
        tell(f"renamed `{one_line(conversation_id)}` to `{one_line(new_id)}`")

    run(place, work)


def fork(place: str | None, conversation_id: str, new_id: str, at: int | None) -> None:
    """Copy a conversation, or its beginning up to and with the message of number `at`.

    Raises:
        ChatMemoryError: there is no such conversation or message, or there is a conversation of the new id.
    """

    async def work(repository: ChatMemoryRepository) -> None:
        await required(repository, (conversation_id,))
        newest = (await repository.page(conversation_id, limit=1, newest_first=True)).items
        if at is not None and newest and newest[0].sequence < at:
            raise ChatMemoryError(
                f"`{one_line(conversation_id)}` ends with message number {newest[0].sequence}, before {at}; see:"
                " conversations show --numbers"
            )
        with _free(new_id):
            if not await repository.fork(conversation_id, new_id, at=at):
                raise ChatMemoryError(
                    f"`{one_line(conversation_id)}` has no message up to number {at}; see: conversations show --numbers"
                )
        copied = (await required(repository, (new_id,)))[new_id]
        tell(f"copied {many(copied, 'message')} of `{one_line(conversation_id)}` to `{one_line(new_id)}`")

    run(place, work)


@contextmanager
def _free(new_id: str) -> Iterator[None]:
    """A conflict within is one about this id, and is told so."""
    try:
        yield
    except ConversationConflictError as error:
        taken = f"there is a conversation `{one_line(new_id)}` already; give another id, or delete or rename that one first"
        raise ConversationConflictError(taken, expected=error.expected, found=error.found) from error


def delete(place: str | None, ids: tuple[str, ...], prefix: str | None, ask: Ask) -> bool:
    """Delete conversations, by id and by how their ids begin; none when one of them is not there, or the answer is no.

    Returns:
        Whether they were deleted; False: the answer was no.

    Raises:
        ChatMemoryError: there is no such conversation.
        InvalidInputError: neither ids nor a prefix, or an empty one, which would be all.
    """
    if prefix is None and not ids:
        raise InvalidInputError("nothing to delete was named; give conversation ids, or --prefix")
    if prefix is not None and not prefix:
        raise InvalidInputError("`--prefix` is empty, which is every conversation; to begin anew, remove the store itself")

    async def found(repository: ChatMemoryRepository) -> dict[str, int]:
        counts = await required(repository, ids)
        if prefix is None:
            return counts
        begun = {each.conversation_id: each.count async for each in listed(repository, prefix)}
        if not begun:
            raise ChatMemoryError(f"there is no conversation whose id begins with `{one_line(prefix)}`")
        return {**counts, **begun}

    async def gone(repository: ChatMemoryRepository) -> None:
        for conversation_id in counts:
            await repository.delete(conversation_id)

    counts = run(place, found)
    names = ", ".join(f"`{one_line(conversation_id)}`" for conversation_id in counts)
    told = names if prefix is None else f"{many(len(counts), 'conversation')} ({_short(names)})"
    # Asked outside the event loop, which would take Ctrl-C for itself while the question stands.
    if ask is None or ask(f"Delete {told} with {many(sum(counts.values()), 'message')} for good?"):
        run(place, gone)
        tell(f"deleted {told} with {many(sum(counts.values()), 'message')}")
        return True
    tell("nothing was deleted")
    return False


def prune(place: str | None, older_than: timedelta | None, prefix: str, *, dry_run: bool, ask: Ask) -> bool:
    """Remove conversations whose time is over, and those that were not used for so long. Tells how many there were.

    With `dry_run` the latter are listed, and nothing is removed; the former no store shows.

    Returns:
        False: the answer was no.
    """
    before = None if older_than is None else ago(older_than)
    old = [] if before is None else run(place, partial(_unused, before, prefix))
    told = f"{many(len(old), 'conversation')} with {many(sum(found.count for found in old), 'message')}"
    told += "" if before is None else f", last used before {before.astimezone():%Y-%m-%d %H:%M}"
    if dry_run:
        if old:
            print("\n".join([_HEADING, *map(_row, old)]))
        tell(f"would remove {told}; and what has expired, which is shown nowhere")
        return True
    if old and ask is not None and not ask(f"Remove {told}, for good?"):
        tell("nothing was removed")
        return False
    tell(f"removed {many(run(place, partial(_removed, before, prefix)), 'conversation')}")
    return True


async def _unused(since: datetime, prefix: str, repository: ChatMemoryRepository) -> list[Conversation]:
    return [found async for found in listed(repository, prefix) if found.updated < since]


async def _removed(before: datetime | None, prefix: str, repository: ChatMemoryRepository) -> int:
    count = 0
    while found := await repository.prune(before=before, prefix=prefix):
        count += found
    return count


def run(place: str | None, work: Callable[[ChatMemoryRepository], Awaitable[T]], *, create: bool = False) -> T:
    """What `work` gives back, called with the store that `--memory` names; see `open_memory`.

    A database in which nothing was made yet is an empty store, and told.
    """

    async def opened() -> T:
        try:
            async with open_memory(place, create=create) as repository:
                return await work(repository)
        except StoreMissingError:
            tell("nothing was ever kept in the database that --memory names; `chat`, `serve` and `import` make the tables")
            async with open_repository("memory://") as nothing:
                return await work(nothing)

    return anyio.run(opened)


async def required(repository: ChatMemoryRepository, ids: tuple[str, ...]) -> dict[str, int]:
    """How many messages each of these conversations has; ChatMemoryError when one is not there."""
    counts = {conversation_id: (await repository.recall(conversation_id, 0)).count for conversation_id in ids}
    for conversation_id, count in counts.items():
        if not count:
            raise _none(conversation_id)
    return counts


async def listed(repository: ChatMemoryRepository, prefix: str = "") -> AsyncIterator[Conversation]:
    """All conversations whose ids begin with `prefix`."""
    page = await repository.conversations(prefix=prefix, limit=_PAGE)
    while True:
        for found in page.items:
            yield found
        if page.next is None:
            return
        page = await repository.conversations(prefix=prefix, after=page.next, limit=_PAGE)


def _none(conversation_id: str) -> ChatMemoryError:
    return ChatMemoryError(f"there is no conversation `{one_line(conversation_id)}`; see: conversations list")


def many(count: int, thing: str) -> str:
    """A number of things: "1 message", "2 messages"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _row(found: Conversation) -> str:
    ends = "" if found.expires is None else f"  (expires {found.expires.astimezone():%Y-%m-%d %H:%M})"
    return f"{found.updated.astimezone():%Y-%m-%d %H:%M}  {found.count:>8}  {one_line(found.conversation_id)}{ends}"


def _shown(entry: Entry, numbers: bool) -> str:
    message = entry.message
    speaker, notes = entry.kind if entry.kind == "summary" else entry.role, []
    if isinstance(message.content, tuple):
        notes += [f"[{part.type}]" for part in message.content if part.type != "text"]
    if isinstance(message, AssistantMessage):
        notes += [f"[calls {call.name} {call.arguments}]" for call in message.tool_calls]
        speaker += " (stopped)" if message.partial else ""
    text = "\n".join(filter(None, [message.text, *notes]))
    number = f"{entry.sequence}  " if numbers else ""
    return f"{number}{entry.created.astimezone():%Y-%m-%d %H:%M} {speaker}:\n{text}\n"
