"""Laws of who may write to a conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from advisorchain.errors import LeaseLostError
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.testing._law_checks import check_refused, check_same, fill, said, stored, texts, turn
from advisorchain.testing._repository_laws.sharing import at_once

Wait: TypeAlias = Callable[[float], Awaitable[None]]


async def leases_exclude_others(repository: ChatMemoryRepository) -> None:
    """One owner at a time, whether the conversation is there or not."""
    first = await repository.acquire("c", "one", 60)
    assert first is not None, "nobody had the lease, and yet it was refused"
    assert first > 0, f"the first lease has the token {first}"
    check_same(await repository.acquire("c", "one", 60), first, "token of a renewed lease")
    check_same(await repository.acquire("c", "two", 60), None, "a lease that another owner has")
    assert await repository.acquire("d", "two", 60), "a lease stops another conversation"
    check_same(await repository.append("c", turn(1), turn_id="t1", token=first), 1, "revision with the token of the lease")
    await repository.release("c", first + 1_000_000)
    check_same(await repository.acquire("c", "two", 60), None, "a lease released by another token")
    await repository.delete("c")
    check_same(await repository.acquire("c", "two", 60), None, "a lease after the conversation was deleted")
    await repository.release("c", first)
    assert await repository.acquire("c", "two", 60) is not None, "a lease that was released could not be taken"


async def tokens_grow(repository: ChatMemoryRepository) -> None:
    """Across release, delete and conversations."""
    tokens: list[int] = []
    for number in range(6):
        name = "cd"[number % 2]
        token = await repository.acquire(name, f"owner {number}", 60)
        assert token is not None, "a lease that was released could not be taken"
        tokens.append(token)
        await repository.append(name, turn(number), turn_id=f"t{number}", token=token)
        if number > 2:
            await repository.delete(name)
        await repository.release(name, token)
    for own in (tokens[::2], tokens[1::2]):
        check_same(own, sorted(set(own)), "tokens of one conversation, which must grow")


async def a_stale_token_is_refused(repository: ChatMemoryRepository) -> None:
    """One that was released, or given back while another owner has the lease; and one that nobody was given."""
    await fill(repository, "c", 1)
    first = await repository.acquire("c", "one", 60)
    assert first is not None, "nobody had the lease, and yet it was refused"
    await repository.release("c", first)
    late = partial(repository.append, "c", turn(2), turn_id="t2", token=first)
    await check_refused(LeaseLostError, "the token of a lease that was released", late)
    second = await repository.acquire("c", "two", 60)
    await check_refused(LeaseLostError, "the token of an earlier lease", late)
    await repository.release("c", first)
    check_same(await repository.acquire("c", "three", 60), None, "a lease released by a stale token")
    nobody = partial(repository.append, "d", turn(2), turn_id="t2", token=second)
    await check_refused(LeaseLostError, "the token of another conversation's lease", nobody)
    check_same(texts(await stored(repository, "c")), said(1, 1), "entries after stale tokens")
    check_same(await repository.append("c", turn(2), turn_id="t2", token=second), 2, "revision with the newest token")


async def leases_run_out(repository: ChatMemoryRepository, wait: Wait) -> None:
    """And go to another owner then."""
    first = await repository.acquire("c", "one", 0.2)
    assert first is not None, "nobody had the lease, and yet it was refused"
    await wait(0.5)
    second = await repository.acquire("c", "two", 60)
    assert second is not None, "a lease that ran out could not be taken"
    assert second > first, f"tokens must grow: {first}, then {second}"
    stale = partial(repository.append, "c", turn(1), turn_id="t1", token=first)
    await check_refused(LeaseLostError, "the token of a lease that another took over", stale)


async def a_lease_counts_until_it_is_taken(repository: ChatMemoryRepository, wait: Wait) -> None:
    """One that ran out does, while nobody else wants it; one that is renewed lasts from then on."""
    first = await repository.acquire("c", "one", 0.2)
    await wait(0.5)
    check_same(await repository.append("c", turn(1), turn_id="t1", token=first), 1, "revision with a lease that ran out")
    lasting = await repository.acquire("d", "one", 2)
    await wait(1.2)
    check_same(await repository.acquire("d", "one", 60), lasting, "token of a lease that was renewed in time")
    await wait(1.2)
    check_same(await repository.acquire("d", "two", 60), None, "a lease that was renewed, after its first time")
    check_same(await repository.append("d", turn(1), turn_id="t1", token=lasting), 1, "revision with a renewed lease")


async def one_of_many_takes_a_lease(repository: ChatMemoryRepository) -> None:
    """However many want it at the same time."""
    for name in ("c", "d"):
        tokens = await at_once([partial(repository.acquire, name, f"owner {number}", 60) for number in range(8)])
        given = [token for token in tokens if token is not None]
        check_same(len(given), 1, "leases that eight owners took at once")
