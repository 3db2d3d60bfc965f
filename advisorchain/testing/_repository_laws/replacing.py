"""Laws of what a repository puts in place of what is there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Final

from advisorchain.errors import ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import AssistantMessage, Message, UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, fill, ids_in, life_of, stored, texts, turn

_MOMENTS: Final = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 3, 4, 5, 6, 7, 891_011, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)


async def replace_keeps_what_stays(repository: ChatMemoryRepository) -> None:
    """Times and turn ids of what stays, new sequences."""
    await fill(repository, "c", 3)
    old = await stored(repository, "c")
    incarnation = (await repository.recall("c", 1)).incarnation
    revision = await repository.replace("c", [*turn(1), UserMessage("new"), old[5], UserMessage("u2")], expected=3)
    check_same(revision, 4, "revision after replace")
    new = await stored(repository, "c")
    check_same(texts(new), ["u1", "a1", "new", "a3", "u2"], "messages after replace")
    for kept, before in ((new[0], old[0]), (new[1], old[1]), (new[3], old[5])):
        check_same((kept.created, kept.turn_id), (before.created, before.turn_id), "time and turn id of what stayed")
    assert new[4].turn_id == new[2].turn_id != old[2].turn_id, "new messages of one replace must be one new turn"
    assert min(entry.sequence for entry in new) > old[-1].sequence, "a sequence was used again"
    recall = await repository.recall("c", 1)
    check_same((recall.count, recall.incarnation, recall.revision), (5, incarnation, 4), "count, incarnation and revision")
    check_same(await repository.replace("d", turn(1)), 1, "revision of a conversation that replace made")


async def replace_by_nothing_is_delete(repository: ChatMemoryRepository) -> None:
    """With a new life after it."""
    await fill(repository, "c", 2)
    life = await life_of(repository, "c")
    check_same(await repository.replace("c", [], expected=2, incarnation=life), 0, "revision after replacing by nothing")
    check_same(await life_of(repository, "c"), 0, "incarnation after replacing by nothing")
    check_same(await ids_in(repository), [], "conversations after replacing by nothing")
    check_same(await repository.replace("nobody", []), 0, "revision after replacing nothing by nothing")
    check_same(await repository.append("c", turn(1), turn_id="t1"), 1, "first revision of a new life")
    assert await life_of(repository, "c") not in (0, life), "a new life must have another incarnation"


async def a_replacement_of_a_deleted_life_is_refused(repository: ChatMemoryRepository) -> None:
    """A deleted conversation does not come back by a replacement that was begun before."""
    await fill(repository, "c", 2)
    life = await life_of(repository, "c")
    check_same(await repository.replace("c", turn(1), incarnation=life, expected=2), 3, "revision with the right life")
    await repository.delete("c")
    late = partial(repository.replace, "c", turn(5), incarnation=life)
    await check_refused(ConversationDeletedError, "a replacement begun before the deletion", late)
    check_same(await ids_in(repository), [], "conversations after a replacement that was refused")
    await repository.append("c", turn(7), turn_id="t7")
    await check_refused(ConversationDeletedError, "a replacement begun in an earlier life", late)
    check_same(texts(await stored(repository, "c")), ["u7", "a7"], "entries after replacements that were refused")


async def a_summary_covers_what_it_covered(repository: ChatMemoryRepository) -> None:
    """Also under new sequences; and it is no message of the tail."""
    await fill(repository, "c", 3)
    old = await stored(repository, "c")
    told = replace(old[3], sequence=old[5].sequence + 1, turn_id="s", message=AssistantMessage("so far"), kind="summary")
    summary = replace(told, covers=old[3].sequence)
    await repository.replace("c", [*old[:4], summary, *old[4:]])
    for kept in (4, 2):
        entries = await stored(repository, "c")
        await _check_summary(repository, entries, kept)
        await repository.replace("c", entries[2:])
    await repository.append("c", turn(4), turn_id="t4")
    recall = await repository.recall("c", 1)
    check_same(recall.summary and recall.summary.message.text, "so far", "the newest summary after an append")


async def _check_summary(repository: ChatMemoryRepository, entries: tuple[Entry, ...], covered: int) -> None:
    """The summary of `covered` entries stands behind them, and one turn behind it."""
    recall = await repository.recall("c", None)
    found = recall.summary
    assert found is not None, "recall gives no summary"
    check_same((found, found.kind, found.turn_id), (entries[covered], "summary", "s"), "the newest summary")
    check_same(found.covers, entries[covered - 1].sequence, "the last sequence that a summary covers")
    others = [entry for entry in entries if entry.kind == "message"]
    check_same(list(recall.tail), others, "the tail of a log with a summary")
    check_same(recall.count, covered + 3, "count of a log with a summary")
    before = await repository.recall("c", None, before=found.sequence)
    check_same(before.summary, None, "the newest summary before itself")


async def times_keep_their_microseconds(repository: ChatMemoryRepository) -> None:
    """Also those of another zone, of an import, and of far years."""
    message: Message = UserMessage("when")
    given = [Entry(place, f"t{place}", message, moment) for place, moment in enumerate(_MOMENTS, 1)]
    await repository.replace("c", given)
    for moment, entry in zip(_MOMENTS, await stored(repository, "c"), strict=True):
        check_same(entry.created, moment, "`created` of an entry that replace was given")
        check_same(entry.created.utcoffset(), timedelta(0), "the offset of `created`")
