"""Laws of the ids of conversations and turns, and of the list of conversations."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from anyio import create_task_group
from anyio.lowlevel import checkpoint

from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.messages import AssistantMessage, UserMessage
from advisorchain.testing._law_checks import all_of, check_same, fill, ids_in, life_of, stored, texts, turn

_IDS: Final = (
    "a", "A", "a ", " a", "á", "a\u0301", "ａ", "ß", "SS", "ss", "a:b/c%d_e", "%", "_", "a%", "a_b", "axb",
    "'; DROP TABLE entries; --",
    '"', "\\", ".", "..", "../x", "*", "?", "[a]", "{}", "{a}b", "ключ", "用户-1", "\U0001f600", "\ue000", "\uffff",
    "a\n", "a\t", "\u200ba", "a\u00ad", "İ", "i", "I", "ı",
    "0", "00", "1e1", "1",
    "null", "x" * 36, "x" * 37, "x" * 254 + "y", "x" * 255, "\U0001f600" * 255,
)  # fmt: skip
_PLANES: Final = [chr(plane * 0x10000 + place) for plane in range(1, 17) for place in (0, 1, 0xFFFE, 0xFFFF)]


async def ids_are_exact(repository: ChatMemoryRepository) -> None:
    """Ids are compared code point by code point."""
    for name in _IDS:
        await repository.append(name, [UserMessage(f"for {name}")], turn_id="t")
    for name in _IDS:
        check_same(texts((await repository.recall(name, 5)).tail), [f"for {name}"], f"what was stored for {name!r}")
    check_same(await ids_in(repository), sorted(_IDS), "ids in code point order")
    assert await repository.delete("a"), "deleting `a` returned False"
    check_same((await repository.recall("A", 5)).count, 1, "count of `A` after `a` was deleted")


async def ids_hold_every_character(repository: ChatMemoryRepository) -> None:
    """Every code point of the Basic Multilingual Plane, and the borders of the others; an id of 255 of them is one."""
    plane = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
    names = ["".join(plane[start : start + 254]) + "x" for start in range(0, len(plane), 254)]
    names.append("".join(_PLANES))
    for name in names:
        await repository.append(name, [UserMessage("hi")], turn_id=name)
    found = await ids_in(repository)
    check_same(len(found), len(names), "number of conversations whose ids have all characters between them")
    for name, expected in zip(found, sorted(names), strict=True):
        assert name == expected, f"an id came back changed: {expected!r:.60}…"
    for name in (names[0], names[-2], names[-1]):
        check_same(await repository.append(name, turn(2), turn_id=name), 1, "revision after a turn with such an id again")


async def turn_ids_are_exact(repository: ChatMemoryRepository) -> None:
    """They are compared code point by code point too, within one conversation."""
    for name in _IDS:
        await repository.append("c", [UserMessage(name)], turn_id=name)
    for name in _IDS:
        await repository.append("c", [UserMessage("again")], turn_id=name)
    entries = await stored(repository, "c")
    check_same([entry.turn_id for entry in entries], list(_IDS), "turn ids, each stored once")


async def conversations_are_found_by_prefix(repository: ChatMemoryRepository) -> None:
    """A prefix is taken literally, and the ids come in code point order."""
    for name in _IDS:
        await repository.append(name, [UserMessage("x"), AssistantMessage("y")], turn_id="t")
    for prefix in ("", "a", "a%", "%", "_", "a_", "*", "x" * 36, "\\", "'", "\U0001f600", "\ud7ff", "\U0010ffff", "nothing"):
        expected = sorted(name for name in _IDS if name.startswith(prefix))
        for limit in (2, 1000):
            found = await _listed(repository, prefix, limit)
            check_same(found, expected, f"conversations by the prefix {prefix!r}, {limit} a page")


async def _listed(repository: ChatMemoryRepository, prefix: str, limit: int) -> list[str]:
    rows = await all_of(lambda cursor: repository.conversations(prefix=prefix, after=cursor, limit=limit), limit)
    return [row.conversation_id for row in rows]


async def a_list_tells_count_and_times(repository: ChatMemoryRepository) -> None:
    """Of the first and of the last write; one that has no end says so."""
    await fill(repository, "c", 2)
    entries = await stored(repository, "c")
    (first,) = (await repository.conversations()).items
    check_same((first.conversation_id, first.count, first.expires), ("c", 4, None), "id, count and end in a list")
    for name, moment in (("created", first.created), ("updated", first.updated)):
        check_same(moment.utcoffset(), timedelta(0), f"the offset of `{name}`")
    _check_near(first.created, entries[0].created, "`created` of a conversation and of its first entry")
    _check_near(first.updated, entries[-1].created, "`updated` of a conversation and `created` of its last entry")
    await repository.append("c", turn(3), turn_id="t3")
    (second,) = (await repository.conversations()).items
    check_same((second.count, second.created), (6, first.created), "count and `created` after another turn")
    assert second.updated >= first.updated, "`updated` went back by another turn"
    await repository.replace("c", turn(9))
    (third,) = (await repository.conversations()).items
    check_same((third.count, third.created), (2, first.created), "count and `created` after replace")
    assert third.updated >= second.updated, "`updated` went back by a replacement"


def _check_near(one: datetime, other: datetime, what: str) -> None:
    assert abs(one - other) < timedelta(seconds=5), f"{what} are far from each other: {one!r} and {other!r}"


async def lists_go_on_while_others_write(repository: ChatMemoryRepository) -> None:
    """A conversation that is there all the time is listed once."""
    steady = [f"c{number:02}" for number in range(12)]
    for name in steady:
        await repository.append(name, turn(1), turn_id="t1")
    async with create_task_group() as group:
        group.start_soon(_come_and_go, repository, steady)
        for limit in (1, 5):
            found = await _listed(repository, "c", limit)
            check_same(
                [name for name in found if name in steady], steady, "conversations that stay while others come and go"
            )
            check_same(found, sorted(set(found)), "conversations in order, each once")
    check_same(await ids_in(repository), steady, "conversations after others came and went")
    assert await life_of(repository, steady[0]), "a conversation was lost while others came and went"


async def _come_and_go(repository: ChatMemoryRepository, steady: list[str]) -> None:
    for name in steady[::2] + steady[1::2]:
        await repository.append(f"{name}.", turn(1), turn_id="t1")
        await checkpoint()
        await repository.append(name, turn(2), turn_id="t2")
        await repository.delete(f"{name}.")
        await checkpoint()
