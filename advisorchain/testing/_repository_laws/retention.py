"""Laws of how long a conversation is kept.

`wait` lets time pass by the store's clock. Where that takes real time, each of these laws takes two or three seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from advisorchain.errors import ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository, Conversation, Retention
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import (
    check_numbered,
    check_refused,
    check_same,
    ids_in,
    life_of,
    said,
    stored,
    texts,
    turn,
)

Wait: TypeAlias = Callable[[float], Awaitable[None]]

_SHORT: Final = Retention(ttl=timedelta(seconds=2))
_LONG: Final = Retention(ttl=timedelta(hours=1))
_PART: Final = 1.2  # seconds: two of them are more than the short time, one leaves room for a slow store
_PAST: Final = 2.5


async def an_ended_conversation_is_not_there(repository: ChatMemoryRepository, wait: Wait) -> None:
    """To whoever reads, deletes, renames or forks it."""
    for name in ("c", "d"):
        await repository.append(name, turn(1), turn_id="t1", retention=_SHORT if name == "c" else None)
    cursor = (await repository.page("c", limit=1)).next
    await wait(_PAST)
    recall = await repository.recall("c", 20)
    check_same((recall.revision, recall.incarnation, recall.count, recall.tail), (0, 0, 0, ()), "recall after the end")
    check_same((await repository.page("c")).items, (), "a page after the end")
    check_same((await repository.page("c", after=cursor)).items, (), "a page after the end, by a cursor of before")
    check_same(await ids_in(repository), ["d"], "conversations after one has ended")
    check_same((await repository.conversations(limit=1)).next, None, "the cursor of a list behind which one has ended")
    check_same(await repository.fork("c", "e"), False, "fork of an ended conversation")
    check_same(await repository.rename("c", "e"), False, "rename of an ended conversation")
    check_same(await repository.delete("c"), False, "deletion of an ended conversation")
    check_same(await ids_in(repository), ["d"], "conversations after nothing was made of an ended one")


async def an_ended_id_is_free_again(repository: ChatMemoryRepository, wait: Wait) -> None:
    """What comes in its place begins anew, and has no time to live of before."""
    names = ("appended", "forked", "renamed", "replaced")
    for name in names:
        await repository.append(name, [*turn(1), *turn(2)], turn_id="t1", retention=_SHORT)
    lives = [await life_of(repository, name) for name in names]
    for name in ("source", "moved"):
        await repository.append(name, turn(3), turn_id="t3")
    await wait(_PAST)
    appended = await repository.append("appended", turn(3), turn_id="t1", expected=0)
    check_same(appended, 1, "revision after a turn on an ended conversation")
    check_same(
        await repository.replace("replaced", turn(3), expected=0), 1, "revision after replacing an ended conversation"
    )
    check_same(await repository.fork("source", "forked"), True, "fork to the id of an ended conversation")
    check_same(await repository.rename("moved", "renamed"), True, "rename to the id of an ended conversation")
    rows = (await repository.conversations()).items
    check_same([row.conversation_id for row in rows], sorted([*names, "source"]), "conversations in place of ended ones")
    check_same({row.expires for row in rows}, {None}, "the ends of what came in place of ended conversations")
    for name, life in zip(names, lives, strict=True):
        entries = await stored(repository, name)
        check_same(texts(entries), said(3, 3), f"entries of `{name}`, in place of an ended conversation")
        check_numbered(entries, f"`{name}`, in place of an ended conversation")
        assert await life_of(repository, name) not in (0, life), (
            "what comes in place of an ended conversation is another life"
        )


async def every_write_begins_the_time_anew(repository: ChatMemoryRepository, wait: Wait) -> None:
    """An append or a replacement, whether it names a time or not; a fork has a time of its own."""
    names = ["append", "append again", "forked", "limit", "replace", "replace again", "unwritten"]
    for name in names:
        if name != "forked":
            await repository.append(name, turn(1), turn_id="t1", retention=_SHORT)
    await wait(_PART)
    await repository.append("append", turn(2), turn_id="t2")
    await repository.append("append again", turn(2), turn_id="t2", retention=_SHORT)
    await repository.append("limit", turn(2), turn_id="t2", retention=Retention(max_messages=20))
    await repository.replace("replace", turn(2))
    await repository.replace("replace again", turn(2), retention=_SHORT)
    await repository.fork("unwritten", "forked")
    await wait(_PART)
    check_same(await ids_in(repository), names[:-1], "conversations that were written to meanwhile")


async def reading_does_not_prolong(repository: ChatMemoryRepository, wait: Wait) -> None:
    """Nor does a new id, or a lease."""
    for name in ("c", "moved"):
        await repository.append(name, turn(1), turn_id="t1", retention=_SHORT)
    await wait(_PART)
    await repository.recall("c", 20)
    await repository.page("c")
    await repository.conversations()
    await repository.acquire("c", "one", 60)
    await repository.append("c", [], turn_id="t2")
    await repository.rename("moved", "renamed")
    check_same(await ids_in(repository), ["c", "renamed"], "conversations before their end")
    await wait(_PART)
    check_same(await ids_in(repository), [], "conversations after their end, which were read or renamed meanwhile")


async def the_time_to_live_is_remembered(repository: ChatMemoryRepository, wait: Wait) -> None:
    """Until a write names another; `timedelta.max` is none."""
    given = {
        "endless": (_SHORT, Retention(ttl=timedelta.max)), "kept": (_SHORT, None), "later": (None, _SHORT),
        "limited": (_SHORT, Retention(max_messages=9)), "longer": (_SHORT, _LONG), "never": (None, None),
        "shorter": (_LONG, _SHORT),
    }  # fmt: skip
    for name, (first, second) in given.items():
        await repository.append(name, turn(1), turn_id="t1", retention=first)
        await repository.append(name, turn(2), turn_id="t2", retention=second)
        await repository.append(f"{name} replaced", turn(1), turn_id="t1", retention=first)
        await repository.replace(f"{name} replaced", turn(2), retention=second)
    await repository.fork("kept", "kept forked")
    await repository.rename("limited", "limited renamed")
    await wait(_PAST)
    stay = [f"{name}{how}" for name in ("endless", "longer", "never") for how in ("", " replaced")]
    check_same(await ids_in(repository), stay, "conversations whose time has not run out")


async def a_list_tells_the_end(repository: ChatMemoryRepository) -> None:
    """The time of the last write and the time to live together."""
    for name, ttl in (("day", timedelta(days=1)), ("endless", None), ("hour", timedelta(hours=1))):
        await repository.append(name, turn(1), turn_id="t1", retention=Retention(ttl=ttl))
    day, endless, hour = (await repository.conversations()).items
    check_same(endless.expires, None, "the end of a conversation that has none")
    for row, ttl in ((day, timedelta(days=1)), (hour, timedelta(hours=1))):
        assert row.expires is not None, "a list does not tell when a conversation ends"
        check_same(row.expires.utcoffset(), timedelta(0), "the offset of `expires`")
        _check_near(row, row.updated + ttl)
    await repository.rename("hour", "hours")
    await repository.fork("hours", "i")
    await repository.append("day", turn(2), turn_id="t2", retention=Retention(ttl=timedelta.max))
    day, endless, renamed, forked = (await repository.conversations()).items
    check_same(
        (day.expires, renamed.expires), (None, hour.expires), "the ends of one that has none any more, and of a renamed"
    )
    _check_near(forked, forked.updated + timedelta(hours=1))


def _check_near(row: Conversation, end: datetime) -> None:
    assert row.expires is not None, "a list does not tell when a conversation ends"
    far = abs(row.expires - end)
    assert far < timedelta(seconds=5), f"`expires` is {row.expires!r}, but last write and time to live make {end!r}"


async def a_late_turn_begins_a_new_life(repository: ChatMemoryRepository, wait: Wait) -> None:
    """One that was begun before the end is stored, alone; after that the old life is one that was deleted."""
    await repository.append("c", turn(1), turn_id="t1", retention=_SHORT)
    life = await life_of(repository, "c")
    await wait(_PAST)
    replaced = partial(repository.replace, "c", turn(2), incarnation=life)
    await check_refused(ConversationDeletedError, "a replacement that was begun before the end", replaced)
    check_same(await repository.append("c", turn(2), turn_id="t2", incarnation=life), 1, "revision after a late turn")
    entries = await stored(repository, "c")
    check_same(texts(entries), said(2, 2), "entries after a late turn")
    check_numbered(entries, "a life that a late turn began")
    new = await life_of(repository, "c")
    assert new not in (0, life), "a late turn must begin a new life"
    later = partial(repository.append, "c", turn(3), turn_id="t3", incarnation=life)
    await check_refused(ConversationDeletedError, "a turn of the ended life, after a new one had begun", later)
    check_same(await repository.append("c", turn(3), turn_id="t3", incarnation=new), 2, "revision of the new life")


async def prune_removes_what_ended(repository: ChatMemoryRepository, wait: Wait) -> None:
    """And nothing else, each once; a late turn comes too late then."""
    for name in ("a", "b", "c", "long", "never"):
        retention = {"long": _LONG, "never": None}.get(name, _SHORT)
        await repository.append(name, turn(1), turn_id="t1", retention=retention)
    life = await life_of(repository, "a")
    check_same(await repository.prune(), 0, "what prune removed before anything had ended")
    await wait(_PAST)
    await repository.append("c", turn(2), turn_id="t2")
    check_same(await repository.prune(), 2, "what prune removed after two had ended")
    check_same(await repository.prune(), 0, "what prune removed again")
    check_same(await ids_in(repository), ["c", "long", "never"], "conversations after prune")
    late = partial(repository.append, "a", turn(2), turn_id="t2", incarnation=life)
    await check_refused(ConversationDeletedError, "a turn that was begun before the end, after prune", late)
    check_same(texts(await stored(repository, "long")), said(1, 1), "entries of one that prune left")


async def prune_removes_what_is_old(repository: ChatMemoryRepository, wait: Wait) -> None:
    """What was last written to before that time, however long ago it began."""
    await repository.append("b", turn(1), turn_id="t1")
    for name in ("a", "c", "d"):
        await repository.append(name, turn(1), turn_id="t1")
    await wait(0.05)
    for number in range(2, 102):  # until the clock of `updated` has gone on
        await repository.append("b", turn(number), turn_id=f"t{number}")
        rows = {row.conversation_id: row.updated for row in (await repository.conversations()).items}
        if rows["b"] > rows["d"]:
            break
    check_same(await repository.prune(before=min(rows.values())), 0, "what prune removed before the oldest")
    expected = [name for name, updated in rows.items() if updated >= rows["b"]]
    check_same(await repository.prune(before=rows["b"]), 4 - len(expected), "what prune removed before the newest")
    check_same(await ids_in(repository), expected, "conversations after prune by time")
    check_same(
        await repository.prune(before=rows["b"] + timedelta(days=1)), len(expected), "what prune removed before tomorrow"
    )
    check_same(await ids_in(repository), [], "conversations after all were pruned")


async def prune_keeps_to_prefix_and_limit(repository: ChatMemoryRepository, wait: Wait) -> None:
    """A prefix is taken literally."""
    there = ["a%1", "a%2", "a%3", "ab", "A%1", "b"]
    for name in there:
        await repository.append(name, [UserMessage("x")], turn_id="t1", retention=_SHORT)
    await repository.append("a%4", [UserMessage("x")], turn_id="t1")
    await wait(_PAST)
    removed = [await repository.prune(prefix="a%", limit=limit) for limit in (2, 2, 2)]
    check_same(removed, [2, 1, 0], "what prune removed of three by prefix, two at a time")
    check_same(await repository.prune(prefix="nothing"), 0, "what prune removed by a prefix that no id has")
    check_same(await repository.prune(), 3, "what prune removed of the others")
    check_same(await ids_in(repository), ["a%4"], "conversations after prune")
