"""Laws of two repository objects on one store, as two processes have them.

`reopen` gives another repository object on the store of the given one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TypeAlias

from anyio import create_task_group

from advisorchain.errors import ConversationConflictError, ConversationDeletedError, LeaseLostError
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.messages import Message, SystemMessage, UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, fill, ids_in, life_of, said, stored, texts, turn
from advisorchain.testing._law_interruption import Work, cancel_at_each_wait
from advisorchain.testing._repository_laws.sharing import append_whole, at_once, batch_of, check_one_stored, check_whole

Reopen: TypeAlias = Callable[[ChatMemoryRepository], AbstractAsyncContextManager[ChatMemoryRepository]]
Wait: TypeAlias = Callable[[float], Awaitable[None]]


async def two_repositories_see_one_log(one: ChatMemoryRepository, reopen: Reopen) -> None:
    """What either of them writes the other finds at once, whatever it has read before."""
    async with reopen(one) as two:
        systems: list[Message] = [SystemMessage("A"), *turn(1)]
        check_same(await one.append("c", systems, turn_id="t1"), 1, "revision of the one")
        await _check_alike(one, two, ["A"], ["A", *said(1, 1)])
        check_same(
            await two.append("c", [SystemMessage("B"), *turn(2)], turn_id="t2", expected=1), 2, "revision of the other"
        )
        await _check_alike(one, two, ["B"], ["A", *said(1, 1), "B", *said(2, 2)])
        check_same(await one.append("c", turn(2), turn_id="t2"), 2, "revision after a turn that the other has stored")
        entries = await stored(one, "c")
        check_same(await one.replace("c", [entries[0], UserMessage("x"), entries[2]], expected=2), 3, "revision of replace")
        await _check_alike(two, one, ["A"], ["A", "x", "a1"])
        life = await life_of(one, "c")
        check_same((await one.fork("c", "d"), await two.rename("d", "e")), (True, True), "fork by one, rename by the other")
        check_same((await ids_in(one), await ids_in(two)), (["c", "e"], ["c", "e"]), "conversations, seen by both")
        check_same(await two.delete("c"), True, "deletion by the other")
        late = partial(one.append, "c", turn(3), turn_id="t3", incarnation=life)
        await check_refused(ConversationDeletedError, "a turn of a life that the other has deleted", late)
        check_same(await one.append("c", turn(4), turn_id="t4"), 1, "first revision of a new life")
        await _check_alike(two, one, [], said(4, 4))


async def _check_alike(one: ChatMemoryRepository, two: ChatMemoryRepository, systems: list[str], log: list[str]) -> None:
    for repository in (one, two):
        recall = await repository.recall("c", 2)
        check_same((texts(recall.systems), recall.count), (systems, len(log)), "systems in force and count, seen by either")
        check_same(texts(await stored(repository, "c")), log, "entries, seen by either")
    check_same(await one.recall("c", 2), await two.recall("c", 2), "a recall by the one and by the other")


async def two_repositories_lose_nothing(one: ChatMemoryRepository, reopen: Reopen) -> None:
    """Batches stay whole and in one piece, and each is there for both."""
    async with reopen(one) as two, create_task_group() as group:
        for number in range(8):
            group.start_soon(append_whole, (one, two)[number % 2], f"writer{number}", 5)
    async with reopen(one) as two:
        check_whole(await stored(two, "c"), 40)
        check_same(await stored(one, "c"), await stored(two, "c"), "entries, seen by both")
        check_same((await two.recall("c", 1)).count, 120, "count after two writers")


async def two_repositories_keep_the_rules(one: ChatMemoryRepository, reopen: Reopen) -> None:
    """One of them is stored at a revision, a turn that both send once, and an id goes to one."""
    async with reopen(one) as two:
        for revision in range(4):
            sides = (one, two, one, two)
            append = [
                partial(side.append, "c", turn(place), turn_id=f"{revision}.{place}", expected=revision)
                for place, side in enumerate(sides)
            ]
            check_one_stored(await at_once(append))
        same = [partial(side.append, "c", turn(9), turn_id="t9") for side in (one, two, one, two)]
        check_same(await at_once(same), [5] * 4, "revisions of one turn, sent by both at once")
        check_one_stored(await at_once([partial(side.fork, "c", "d") for side in (one, two, one, two)]))
        check_same(texts(await stored(two, "d")), texts(await stored(one, "c")), "entries of a fork that both wanted")
        renames = [partial(side.rename, "c", "e") for side in (one, two)]
        moved = [result for result in await at_once(renames) if result is True]
        check_same((len(moved), await ids_in(one)), (1, ["d", "e"]), "renames that both wanted, and what is there then")
        refused = partial(two.rename, "d", "e")
        await check_refused(ConversationConflictError, "a rename to an id that the other has given", refused)


async def two_repositories_share_leases(one: ChatMemoryRepository, reopen: Reopen) -> None:
    """An owner is one wherever it asks."""
    async with reopen(one) as two:
        first = await one.acquire("c", "one", 60)
        assert first is not None, "nobody had the lease, and yet it was refused"
        check_same(await two.acquire("c", "two", 60), None, "a lease that an owner at the other repository has")
        check_same(
            await two.acquire("c", "one", 60), first, "token of a lease that its owner renews at the other repository"
        )
        check_same(
            await two.append("c", turn(1), turn_id="t1", token=first), 1, "revision with a token of the other repository"
        )
        await two.release("c", first)
        second = await two.acquire("c", "two", 60)
        assert second is not None, "a lease that was released at the other repository could not be taken"
        assert second > first, f"tokens must grow: {first}, then {second}"
        stale = partial(one.append, "c", turn(2), turn_id="t2", token=first)
        await check_refused(LeaseLostError, "a token that the other repository made stale", stale)
        given = await at_once([partial(side.acquire, "d", f"owner {n}", 60) for n, side in enumerate((one, two, one, two))])
        check_same(len([token for token in given if token is not None]), 1, "leases that four owners took at once")


async def what_was_acknowledged_outlives_its_writer(one: ChatMemoryRepository, reopen: Reopen) -> None:
    """It is gone without a goodbye, with a turn under way; another goes on and finds whole turns."""
    async with AsyncExitStack() as later:  # closes the writer when all is over: until then it is one that has crashed
        writer = await later.enter_async_context(reopen(one))
        life = 0
        for number in range(3):
            await writer.append("c", batch_of(f"t{number}"), turn_id=f"t{number}", incarnation=life)
            life = await life_of(writer, "c")
        await fill(writer, "d", 2)
        await writer.rename("d", "e")

        async def begin(number: int) -> Work:
            return writer.append("c", batch_of(f"cut {number}"), turn_id=f"cut {number}")

        async def look(number: int) -> None:
            """Nobody can, from a process that is gone."""

        cut = await cancel_at_each_wait(begin, look)
        reader = await later.enter_async_context(reopen(one))
        found = await stored(reader, "c")
        check_whole(found, len(found) // 3)
        acknowledged = [entry.turn_id for entry in found[:9:3]]
        check_same(acknowledged, ["t0", "t1", "t2"], "turns that a writer that is gone had acknowledged")
        check_same(texts(await stored(reader, "e")), said(1, 2), "entries under the id that such a writer gave")
        for number in range(3):
            await reader.append("c", batch_of(f"t{number}"), turn_id=f"t{number}", incarnation=life)
        for number in range(cut):
            await reader.append("c", batch_of(f"cut {number}"), turn_id=f"cut {number}", incarnation=life)
        check_whole(await stored(reader, "c"), 3 + cut)
        check_same((await reader.recall("c", 0)).count, 9 + 3 * cut, "count after its turns were sent again")


async def a_lease_ends_with_its_time_when_its_holder_is_gone(one: ChatMemoryRepository, reopen: Reopen, wait: Wait) -> None:
    """Not before; and then another takes it, whose token is greater."""
    async with AsyncExitStack() as later:
        holder = await later.enter_async_context(reopen(one))
        first = await holder.acquire("c", "one", 2)
        assert first is not None, "nobody had the lease, and yet it was refused"
        other = await later.enter_async_context(reopen(one))
        check_same(await other.acquire("c", "two", 60), None, "the lease of a holder that is gone, before its time is over")
        await wait(2.5)
        second = await other.acquire("c", "two", 60)
        assert second is not None, "the lease of a holder that is gone could not be taken after its time"
        assert second > first, f"tokens must grow: {first}, then {second}"
        late = partial(holder.append, "c", turn(1), turn_id="t1", token=first)
        await check_refused(LeaseLostError, "the token of a holder that came back too late", late)
