"""Laws of what a repository refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from advisorchain.errors import ConversationIdError, InvalidInputError, StorageError
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, fill, ids_in, said, stored, texts, turn

Call = Callable[[], Awaitable[object]]


async def bad_ids_are_refused(repository: ChatMemoryRepository) -> None:
    """By every method, with nothing stored."""
    store: Any = repository
    await fill(repository, "c", 1)
    for bad in (None, "", "  ", 7, b"c", "x" * 256, "a\0b", "\ud800"):
        for call in _calls(store, bad):
            await check_refused(ConversationIdError, f"the conversation id {bad!r:.20}", call)
        for move in (store.rename, store.fork):
            await check_refused(ConversationIdError, f"the new id {bad!r:.20}", move, "c", bad)
    check_same(await ids_in(repository), ["c"], "conversations after nothing but bad ids")


def _calls(store: Any, conversation_id: Any) -> list[Call]:
    """One of each method that takes an id."""
    return [
        partial(store.append, conversation_id, turn(1), turn_id="t"),
        partial(store.recall, conversation_id, 5),
        partial(store.page, conversation_id),
        partial(store.replace, conversation_id, turn(1)),
        partial(store.delete, conversation_id),
        partial(store.rename, conversation_id, "new"),
        partial(store.fork, conversation_id, "new"),
        partial(store.acquire, conversation_id, "one", 5),
        partial(store.release, conversation_id, 1),
    ]


async def bad_messages_are_refused(repository: ChatMemoryRepository) -> None:
    """With nothing stored."""
    store: Any = repository
    good = UserMessage("u")
    for messages in (None, "u", good, [None], [good, "u"], {"role": "user"}, 7):
        what = type(messages).__name__
        await check_refused(InvalidInputError, f"append of {what}", store.append, "c", messages, turn_id="t")
        await check_refused(InvalidInputError, f"replace by {what}", store.replace, "c", messages)
    for turn_id in (None, "", 7, "\ud800", "a\0b", "x" * 256):
        await check_refused(InvalidInputError, f"the turn id {turn_id!r:.20}", store.append, "c", [good], turn_id=turn_id)
    naive = Entry(1, "t", good, datetime(2026, 1, 1))
    await check_refused(InvalidInputError, "an entry with a time without zone", store.replace, "c", [naive])
    check_same(await ids_in(repository), [], "conversations after nothing but bad messages")


async def bad_arguments_are_refused(repository: ChatMemoryRepository) -> None:
    """Limits, cursors, revisions, seconds, times."""
    store: Any = repository
    await fill(repository, "c", 1)
    for what, call in (
        ("a negative `last`", partial(store.recall, "c", -1)),
        ("a text as `last`", partial(store.recall, "c", "5")),
        ("a text as `before`", partial(store.recall, "c", 5, before="x")),
        ("a limit of 0", partial(store.page, "c", limit=0)),
        ("a cursor that is none", partial(store.page, "c", after="x")),
        ("a limit of 0", partial(store.conversations, limit=0)),
        ("no prefix", partial(store.conversations, prefix=None)),
        ("a blank owner", partial(store.acquire, "c", "", 5)),
        ("a lease of 0 seconds", partial(store.acquire, "c", "one", 0)),
        ("a lease of NaN seconds", partial(store.acquire, "c", "one", float("nan"))),
        ("a text as `expected`", partial(store.append, "c", turn(2), turn_id="t2", expected="1")),
        ("a number as `retention`", partial(store.append, "c", turn(2), turn_id="t2", retention=60)),
        ("a time as `retention`", partial(store.replace, "c", turn(2), retention=timedelta(hours=1))),
        ("a text as `at`", partial(store.fork, "c", "d", at="1")),
        ("a negative `at`", partial(store.fork, "c", "d", at=-1)),
        ("a time without zone as `before`", partial(store.prune, before=datetime(2100, 1, 1))),
        ("a number as `before`", partial(store.prune, before=datetime(2100, 1, 1, tzinfo=UTC).timestamp())),
        ("a limit of 0", partial(store.prune, limit=0)),
        ("no prefix", partial(store.prune, prefix=None)),
    ):
        await check_refused(InvalidInputError, what, call)
    check_same(await ids_in(repository), ["c"], "conversations after bad arguments")
    check_same(texts(await stored(repository, "c")), said(1, 1), "entries after bad arguments")


async def a_closed_repository_refuses(repository: ChatMemoryRepository) -> None:
    """Every call; closing it twice is fine."""
    await fill(repository, "c", 1)
    await repository.aclose()
    await repository.aclose()
    for call in (*_calls(repository, "c"), repository.conversations, repository.prune):
        await check_refused(StorageError, "a call after the repository was closed", call)
    await repository.aclose()
