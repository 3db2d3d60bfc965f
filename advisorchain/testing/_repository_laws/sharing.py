"""Laws of a repository that many use at once."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from advisorchain.errors import ConversationConflictError, ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import check_same, fill, ids_in, life_of, said, stored, texts, turn

Call = Callable[[], Awaitable[object]]


async def tasks_lose_nothing(repository: ChatMemoryRepository) -> None:
    """Batches stay whole and in one piece."""
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(append_whole, repository, f"task{number}", 2)
    check_whole(await stored(repository, "c"), 40)
    check_same((await repository.recall("c", 1)).count, 120, "count after concurrent writers")


async def threads_lose_nothing(repository: ChatMemoryRepository) -> None:
    """Each with an event loop of its own."""
    barrier = threading.Barrier(4)

    def loop(number: int) -> None:
        barrier.wait()
        anyio.run(append_whole, repository, f"thread{number}", 5)

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(to_thread.run_sync, loop, number)
    check_whole(await stored(repository, "c"), 20)


async def readers_see_whole_turns(repository: ChatMemoryRepository) -> None:
    """At any moment; and count, revision and tail are of the same one."""
    async with anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(append_whole, repository, f"writer{number}", 12)
        seen, rounds = 0, 0
        while seen < 24 and (rounds := rounds + 1) < 10_000:
            recall = await repository.recall("c", 6)
            page = await repository.page("c", limit=6, newest_first=True)
            check_same(recall.count, 3 * recall.revision, "count and revision, read while others write")
            for entries in (recall.tail, page.items[::-1]):
                check_whole(entries, len(entries) // 3)
            seen = recall.revision
            await checkpoint()
    check_whole(await stored(repository, "c"), 24)


async def a_turn_sent_twice_at_once_is_stored_once(repository: ChatMemoryRepository) -> None:
    """As by a client that lost patience."""
    for number in (1, 2):
        again = partial(repository.append, "c", turn(number), turn_id=f"t{number}")
        revisions = await at_once([again] * 6)
        check_same(revisions, [number] * 6, "revisions of one turn, sent six times at once")
    check_same(texts(await stored(repository, "c")), said(1, 2), "entries of two turns, each sent six times at once")


async def one_of_many_writers_at_a_revision_is_stored(repository: ChatMemoryRepository) -> None:
    """The others are told that it has moved on, whether they append or replace."""
    for revision in range(3):
        appended = [
            partial(repository.append, "c", turn(number), turn_id=f"{revision}.{number}", expected=revision)
            for number in range(4)
        ]
        replaced = [partial(repository.replace, "c", turn(number), expected=revision) for number in (4, 5)]
        check_one_stored(await at_once([*appended, *replaced]))
        recall = await repository.recall("c", 0)
        check_same(recall.revision, revision + 1, "revision after six writers that had read the same one")
        check_same(
            len(await stored(repository, "c")), recall.count, "entries after six writers that had read the same revision"
        )


async def one_of_many_takes_an_id(repository: ChatMemoryRepository) -> None:
    """A fork and a rename onto one id at the same time: one has it, whole."""
    names = [f"source {number}" for number in range(6)]
    for name in names:
        await repository.append(name, [UserMessage(name), UserMessage(name)], turn_id="t")
    calls = [partial(repository.fork if number % 2 else repository.rename, name, "c") for number, name in enumerate(names)]
    check_one_stored(await at_once(calls))
    found = texts(await stored(repository, "c"))
    check_same((len(found), len(set(found))), (2, 1), "entries and sources of an id that six took at once")
    left = [name for name in names if name in await ids_in(repository, "source")]
    moved = set(names) - set(left)
    assert moved <= set(found), f"{moved} are gone, but the id has the entries of {found[0]!r}"
    assert len(moved) <= 1, f"{moved} are gone"


async def a_deletion_stands_against_turns_under_way(repository: ChatMemoryRepository) -> None:
    """Those that were begun before it come before it, or not at all."""
    for number in range(4):
        name = f"c{number}"
        await fill(repository, name, 1)
        life = await life_of(repository, name)
        calls: list[Call] = [
            partial(repository.append, name, turn(place), turn_id=f"late {place}", incarnation=life) for place in range(6)
        ]
        calls.insert(number, partial(repository.delete, name))
        for result in await at_once(calls):
            assert isinstance(result, int | ConversationDeletedError), f"a turn beside a deletion: {result!r}"
        check_same((await repository.recall(name, 1)).count, 0, "count after a deletion among turns under way")
    check_same(await ids_in(repository), [], "conversations after deletions among turns under way")


async def append_whole(repository: ChatMemoryRepository, name: str, turns: int) -> None:
    """Append turns of three messages that tell whose they are."""
    for number in range(turns):
        turn_id = f"{name}.{number}"
        await repository.append("c", batch_of(turn_id), turn_id=turn_id)
        await checkpoint()


def batch_of(turn_id: str) -> list[UserMessage]:
    """Three messages that tell which turn they belong to."""
    return [UserMessage(f"{turn_id}.{part}") for part in range(3)]


def check_whole(entries: Sequence[Entry], turns: int) -> None:
    """So many turns of `batch_of`, each whole and in one piece."""
    check_same(len({entry.sequence for entry in entries}), len(entries), "number of different sequences")
    check_same(len(entries), 3 * turns, "number of entries that concurrent writers stored")
    for start in range(0, len(entries), 3):
        batch = entries[start : start + 3]
        expected = [f"{batch[0].turn_id}.{part}" for part in range(3)]
        check_same(texts(batch), expected, "a batch among those of concurrent writers")


async def at_once(calls: Sequence[Call]) -> list[object]:
    """What the calls returned, or raised of our errors, each in a task of its own."""
    results: list[object] = [None] * len(calls)

    async def run(place: int, call: Call) -> None:
        try:
            results[place] = await call()
        except (ConversationConflictError, ConversationDeletedError) as error:
            results[place] = error

    async with anyio.create_task_group() as group:
        for place, call in enumerate(calls):
            group.start_soon(run, place, call)
    return results


def check_one_stored(results: Sequence[object]) -> None:
    """One went through, the others were told of a conflict."""
    refused = [result for result in results if isinstance(result, ConversationConflictError)]
    check_same(len(refused), len(results) - 1, f"writers that were refused, of {len(results)} of which one may be stored")
