"""Laws of what a repository refuses."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from advisorchain.errors import ConversationIdError, InvalidInputError
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, fill, turn


async def bad_ids_are_refused(repository: ChatMemoryRepository) -> None:
    """By every method, with nothing stored."""
    store: Any = repository
    for bad in (None, "", "  ", 7, b"c", "x" * 256, "a\0b", "\ud800"):
        for call in (
            partial(store.append, bad, turn(1), turn_id="t"),
            partial(store.recall, bad, 5),
            partial(store.page, bad),
            partial(store.replace, bad, turn(1)),
            partial(store.delete, bad),
            partial(store.acquire, bad, "one", 5),
            partial(store.release, bad, 1),
        ):
            await check_refused(ConversationIdError, f"the conversation id {bad!r:.20}", call)
    check_same((await repository.conversations()).items, (), "conversations after nothing but bad ids")


async def bad_messages_are_refused(repository: ChatMemoryRepository) -> None:
    """With nothing stored."""
    store: Any = repository
    good = UserMessage("u")
    for messages in (None, "u", good, [None], [good, "u"], {"role": "user"}, 7):
        what = type(messages).__name__
        await check_refused(InvalidInputError, f"append of {what}", store.append, "c", messages, turn_id="t")
        await check_refused(InvalidInputError, f"replace by {what}", store.replace, "c", messages)
    for turn_id in (None, "", 7, "\ud800"):
        await check_refused(InvalidInputError, f"the turn id {turn_id!r}", store.append, "c", [good], turn_id=turn_id)
    naive = Entry(1, "t", good, datetime(2026, 1, 1))
    await check_refused(InvalidInputError, "an entry with a time without zone", store.replace, "c", [naive])
    check_same((await repository.conversations()).items, (), "conversations after nothing but bad messages")


async def bad_numbers_are_refused(repository: ChatMemoryRepository) -> None:
    """Limits, cursors, revisions, seconds."""
    store: Any = repository
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
        ("a text as `expected`", partial(store.append, "c", turn(1), turn_id="t", expected="1")),
    ):
        await check_refused(InvalidInputError, what, call)
    check_same((await repository.conversations()).items, (), "conversations after nothing but bad numbers")


async def closing_twice_is_fine(repository: ChatMemoryRepository) -> None:
    """The second time does nothing."""
    await fill(repository, "c", 1)
    await repository.aclose()
    await repository.aclose()
