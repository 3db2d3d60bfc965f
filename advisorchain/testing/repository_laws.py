"""What every chat memory repository must do, as a suite that needs no test framework.

    async def test_my_repository():
        await check_repository(lambda: open_my_repository())

Each law gets a fresh repository; the first one that is broken raises AssertionError with a sentence that says how.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, TypeAlias

import anyio

from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.testing import _repository_reading as reading
from advisorchain.testing import _repository_refusals as refusals
from advisorchain.testing import _repository_sharing as sharing
from advisorchain.testing import _repository_writing as writing
from advisorchain.testing._law_checks import check_law

__all__ = ["check_repository"]

Make: TypeAlias = Callable[[], AbstractAsyncContextManager[ChatMemoryRepository]]
Wait: TypeAlias = Callable[[float], Awaitable[None]]
Law: TypeAlias = Callable[[ChatMemoryRepository], Awaitable[None]]

_LAWS: Final[dict[str, Law]] = {
    "batches are appended in order": writing.appended_in_order,
    "a batch of fifty keeps its order": writing.a_batch_of_fifty_keeps_its_order,
    "a repeated turn is stored once": writing.a_repeated_turn_is_stored_once,
    "an empty append does nothing": writing.an_empty_append_does_nothing,
    "a writer that read another revision is refused": writing.a_writer_that_read_another_revision_is_refused,
    "a turn of a deleted life is refused": writing.a_turn_of_a_deleted_life_is_refused,
    "ids are exact": reading.ids_are_exact,
    "conversations are found by prefix": reading.conversations_are_found_by_prefix,
    "messages come back equal": reading.messages_come_back_equal,
    "recall gives the newest": reading.recall_gives_the_newest,
    "recall knows the systems in force": reading.recall_knows_the_systems_in_force,
    "pages are stable": reading.pages_are_stable,
    "replace keeps what stays": writing.replace_keeps_what_stays,
    "delete leaves nothing": writing.delete_leaves_nothing,
    "leases exclude others": sharing.leases_exclude_others,
    "concurrent tasks lose nothing": sharing.tasks_lose_nothing,
    "concurrent threads lose nothing": sharing.threads_lose_nothing,
    "bad ids are refused": refusals.bad_ids_are_refused,
    "bad messages are refused": refusals.bad_messages_are_refused,
    "bad numbers are refused": refusals.bad_numbers_are_refused,
    "closing twice is fine": refusals.closing_twice_is_fine,
}


async def check_repository(make: Make, *, wait: Wait = anyio.sleep) -> None:
    """Check a kind of repository against all laws.

    Args:
        make: gives an async context manager that gives an empty repository and closes it.
        wait: lets this many seconds pass on the store's clock, by which leases run out.

    Raises:
        AssertionError: a law is broken; the text names the law and says what was found.
    """
    laws: dict[str, Law] = {**_LAWS, "leases run out": partial(sharing.leases_run_out, wait=wait)}
    for name, law in laws.items():
        await check_law(name, partial(_on_a_fresh_one, make, law))


async def _on_a_fresh_one(make: Make, law: Law) -> None:
    async with make() as repository:
        await law(repository)
