"""Laws of calls that are cancelled, and of connections that break."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias

from anyio import create_task_group

from advisorchain.errors import ConversationConflictError, StorageError
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import check_same, fill, said, stored, texts, turn
from advisorchain.testing._law_interruption import Work, cancel_at_each_wait, with_something_at
from advisorchain.testing._repository_laws.sharing import batch_of, check_whole

Disconnect: TypeAlias = Callable[[ChatMemoryRepository], Coroutine[Any, Any, None]]

_TRIES: Final = 20  # of a call after connections broke: a pool may have that many dead ones


async def a_cancelled_append_is_whole_or_nothing(repository: ChatMemoryRepository) -> None:
    """Wherever it is cancelled; what was not there when it returned does not come later, and can be sent again."""

    async def begin(number: int) -> Work:
        return repository.append("c", batch_of(f"t{number}"), turn_id=f"t{number}")

    was_there: dict[int, bool] = {}

    async def look(number: int) -> None:
        was_there[number] = await _is_whole(repository, f"t{number}")

    await cancel_at_each_wait(begin, look)
    for number, before in was_there.items():
        check_same(await _is_whole(repository, f"t{number}"), before, "whether a cancelled turn is there, seen later")
    for number in was_there:
        await repository.append("c", batch_of(f"t{number}"), turn_id=f"t{number}")
    check_whole(await stored(repository, "c"), len(was_there))
    recall = await repository.recall("c", 0)
    check_same(
        (recall.count, recall.revision), (3 * len(was_there), len(was_there)), "count and revision after all were sent"
    )


async def _is_whole(repository: ChatMemoryRepository, turn_id: str) -> bool:
    found = [entry for entry in await stored(repository, "c") if entry.turn_id == turn_id]
    if found:
        check_same(texts(found), [message.text for message in batch_of(turn_id)], "what a cancelled append left")
    return bool(found)


async def a_cancelled_replacement_is_whole_or_nothing(repository: ChatMemoryRepository) -> None:
    """All of the old, or all of the new."""
    new = [UserMessage("x"), *turn(2)]

    async def begin(number: int) -> Work:
        await fill(repository, f"c{number}", 2)
        return repository.replace(f"c{number}", new)

    found: dict[str, tuple[Entry, ...]] = {}

    async def look(number: int) -> None:
        name = f"c{number}"
        found[name] = await stored(repository, name)
        recall = await repository.recall(name, 0)
        state = (texts(found[name]), recall.count, recall.revision)
        assert state in ((said(1, 2), 4, 2), (["x", "u2", "a2"], 3, 3)), f"a cancelled replacement left {state}"

    await cancel_at_each_wait(begin, look)
    for name, entries in found.items():
        check_same(await stored(repository, name), entries, "what a cancelled replacement left, seen later")
        await repository.replace(name, new)
        check_same(texts(await stored(repository, name)), ["x", "u2", "a2"], "entries after replacing again")


async def a_cancelled_move_is_whole_or_nothing(repository: ChatMemoryRepository) -> None:
    """A rename, a fork, a deletion."""
    whole = said(1, 2)
    await _check_move(repository, "rename", partial(_moved, repository.rename), [(whole, []), ([], whole)])
    await _check_move(repository, "fork", partial(_moved, repository.fork), [(whole, []), (whole, whole)])
    await _check_move(repository, "delete", repository.delete, [(whole, []), ([], [])])


def _moved(move: Callable[[str, str], Work], name: str) -> Work:
    return move(name, f"{name} new")


async def _check_move(
    repository: ChatMemoryRepository, what: str, move: Callable[[str], Work], allowed: list[tuple[list[str], list[str]]]
) -> None:
    found: dict[str, tuple[list[str], list[str]]] = {}

    async def begin(number: int) -> Work:
        await fill(repository, f"{what} {number}", 2)
        return move(f"{what} {number}")

    async def look(number: int) -> None:
        name = f"{what} {number}"
        found[name] = await _both_sides(repository, name)
        assert found[name] in allowed, f"a cancelled {what} left {found[name]}; expected one of {allowed}"

    await cancel_at_each_wait(begin, look)
    for name, sides in found.items():
        check_same(await _both_sides(repository, name), sides, f"what a cancelled {what} left, seen later")


async def _both_sides(repository: ChatMemoryRepository, name: str) -> tuple[list[str], list[str]]:
    return texts(await stored(repository, name)), texts(await stored(repository, f"{name} new"))


async def cancelled_reads_take_nothing_away(repository: ChatMemoryRepository) -> None:
    """No connection, no lock: who comes later is served."""
    await fill(repository, "c", 3)

    async def begin(number: int) -> Work:
        return repository.page("c", limit=3) if number % 2 else repository.recall("c", 3)

    async def look(number: int) -> None:
        """The next call will show it."""

    for _ in range(8):
        await cancel_at_each_wait(begin, look)
    async with create_task_group() as group:
        for number in range(8):
            group.start_soon(partial(repository.append, f"d{number}", turn(1), turn_id="t1"))
    check_same(texts(await stored(repository, "c")), said(1, 3), "entries after cancelled reads")


async def a_lost_connection_is_mended(repository: ChatMemoryRepository, disconnect: Disconnect) -> None:
    """Each call works again, the first one or after StorageError; nothing is half done by it."""
    await fill(repository, "c", 2)
    token = await repository.acquire("c", "one", 600)
    assert token is not None, "nobody had the lease, and yet it was refused"
    calls: list[Callable[[], Awaitable[object]]] = [
        partial(repository.recall, "c", 2),
        partial(repository.page, "c", limit=2),
        repository.conversations,
        partial(repository.append, "c", turn(3), turn_id="t3", token=token),
        partial(repository.acquire, "d", "one", 60),
        partial(repository.replace, "d", turn(1)),
        partial(repository.fork, "c", "e"),
        partial(repository.rename, "e", "f"),
        partial(repository.delete, "d"),
        partial(repository.prune, prefix="nothing"),
        partial(repository.release, "c", token),
    ]
    for call in calls:
        await disconnect(repository)
        await _until_it_works(call)
    for name in ("c", "f"):
        check_same(texts(await stored(repository, name)), said(1, 3), f"entries of `{name}` after connections broke")
        check_same((await repository.recall(name, 0)).count, 6, f"count of `{name}` after connections broke")
    listed = [row.conversation_id for row in (await repository.conversations()).items]
    check_same(listed, ["c", "f"], "conversations after connections broke")


async def _until_it_works(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call while it raises StorageError; that of an earlier try may have had its effect."""
    for _ in range(_TRIES):
        try:
            await call()
        except StorageError as error:
            last = error
        except ConversationConflictError:
            return
        else:
            return
    raise AssertionError(f"a call failed {_TRIES} times after a connection broke; the last time: {last}")


async def a_connection_lost_under_way_leaves_whole_turns(repository: ChatMemoryRepository, disconnect: Disconnect) -> None:
    """Wherever it breaks; a turn that was not acknowledged is there or not, and is stored once when it is sent again."""
    acknowledged = 0
    for number in range(24):
        turn_id = f"t{number}"
        call = partial(repository.append, "c", batch_of(turn_id), turn_id=turn_id)
        outcome = await with_something_at(number % 8, call(), partial(disconnect, repository))
        assert isinstance(outcome, int | StorageError), f"a connection lost under way: {outcome!r}"
        acknowledged += isinstance(outcome, int)
        await _until_it_works(partial(repository.recall, "c", 0))
        there = await _is_whole(repository, turn_id)
        assert there or not isinstance(outcome, int), "a turn was acknowledged, and is not there after a connection broke"
        await _until_it_works(call)
    check_whole(await stored(repository, "c"), 24)
    check_same((await repository.recall("c", 0)).count, 72, "count after connections broke under way")
