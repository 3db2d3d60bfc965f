"""Laws of what a repository stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from advisorchain.errors import ConversationConflictError, ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.messages import UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, fill, stored, texts, turn


async def appended_in_order(repository: ChatMemoryRepository) -> None:
    """Revisions, sequences, turn ids and times of a log."""
    start = datetime.now(UTC) - timedelta(seconds=2)
    revisions = [await repository.append("c", turn(number), turn_id=f"t{number}") for number in range(1, 31)]
    check_same(revisions, list(range(1, 31)), "revisions that append returned")
    entries = await stored(repository, "c")
    check_same(texts(entries), [text for n in range(1, 31) for text in (f"u{n}", f"a{n}")], "order of the entries")
    check_same([entry.sequence for entry in entries], list(range(1, 61)), "sequences of a log that was only appended to")
    check_same([entry.turn_id for entry in entries], [f"t{n}" for n in range(1, 31) for _ in "ua"], "turn ids")
    for entry in entries:
        assert entry.created.utcoffset() == timedelta(0), f"`created` is not aware UTC: {entry.created!r}"
        assert entry.created >= start, f"`created` lies in the past: {entry.created!r}"
    check_same(entries, await stored(repository, "c"), "a second reading")


async def a_batch_of_fifty_keeps_its_order(repository: ChatMemoryRepository) -> None:
    """Order does not depend on time."""
    batch = [UserMessage(f"m{number}") for number in range(50)]
    await repository.append("c", batch, turn_id="t")
    for _ in range(3):
        recall = await repository.recall("c", None)
        check_same([entry.message for entry in recall.tail], batch, "a batch of fifty")


async def a_repeated_turn_is_stored_once(repository: ChatMemoryRepository) -> None:
    """Also when it was replaced meanwhile."""
    await fill(repository, "c", 2)
    check_same(await repository.append("c", turn(1), turn_id="t1", expected=0), 2, "revision of a repeated append")
    check_same(texts(await stored(repository, "c")), ["u1", "a1", "u2", "a2"], "entries after a repeated append")
    await repository.replace("c", [UserMessage("short")])
    await repository.append("c", turn(1), turn_id="t1")
    check_same(texts(await stored(repository, "c")), ["short"], "entries after repeating a turn that was replaced")
    check_same(await repository.append("d", turn(1), turn_id="t1"), 1, "the same turn id in another conversation")


async def an_empty_append_does_nothing(repository: ChatMemoryRepository) -> None:
    """It makes no conversation and uses up no turn id."""
    check_same(await repository.append("c", [], turn_id="t"), 0, "revision of an empty append to no conversation")
    check_same((await repository.conversations()).items, (), "conversations after an empty append")
    await fill(repository, "c", 1)
    check_same(await repository.append("c", [], turn_id="t9", expected=7), 1, "revision of an empty append")
    check_same(await repository.append("c", turn(9), turn_id="t9"), 2, "a turn id that an empty append had used")


async def a_writer_that_read_another_revision_is_refused(repository: ChatMemoryRepository) -> None:
    """And nothing of it is stored."""
    await repository.append("c", turn(1), turn_id="t1", expected=0)
    for call in (
        partial(repository.append, "c", turn(2), turn_id="t2"),
        partial(repository.replace, "c", turn(2)),
        partial(repository.replace, "c", []),
    ):
        error = await check_refused(ConversationConflictError, "`expected` of an earlier revision", call, expected=0)
        assert isinstance(error, ConversationConflictError)
        check_same((error.expected, error.found), (0, 1), "expected and found of a conflict")
    check_same(texts(await stored(repository, "c")), ["u1", "a1"], "entries after a conflict")
    check_same(await repository.append("c", turn(2), turn_id="t2", expected=1), 2, "revision after the right `expected`")


async def a_turn_of_a_deleted_life_is_refused(repository: ChatMemoryRepository) -> None:
    """A deleted conversation does not come back with half of a turn."""
    check_same((await repository.recall("c", 20)).incarnation, 0, "incarnation of no conversation")
    await repository.append("c", turn(1), turn_id="t1", incarnation=0)
    first = (await repository.recall("c", 20)).incarnation
    assert first > 0, f"an incarnation must be positive, found {first}"
    await repository.append("c", turn(2), turn_id="t2", incarnation=first)
    assert await repository.delete("c"), "deleting a conversation returned False"
    late = partial(repository.append, "c", turn(3), turn_id="t3", incarnation=first)
    await check_refused(ConversationDeletedError, "a turn begun before the deletion", late)
    check_same(await repository.append("c", turn(1), turn_id="t1"), 1, "first revision of a new life")
    recall = await repository.recall("c", 20)
    assert recall.incarnation not in (0, first), "a new life must have another incarnation"
    check_same([entry.sequence for entry in recall.tail], [1, 2], "sequences of a new life")
    await check_refused(ConversationDeletedError, "a turn begun in an earlier life", late)
    check_same((await repository.recall("c", 20)).count, 2, "count after turns that were refused")


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
    assert min(entry.sequence for entry in new) > 6, "a sequence was used again"
    recall = await repository.recall("c", 1)
    check_same((recall.count, recall.incarnation, recall.revision), (5, incarnation, 4), "count, incarnation and revision")
    check_same(await repository.replace("d", turn(1)), 1, "revision of a conversation that replace made")
    check_same(await repository.replace("c", []), 0, "revision after replacing by nothing")
    check_same((await repository.recall("c", 1)).incarnation, 0, "incarnation after replacing by nothing")
    check_same(await repository.replace("nobody", []), 0, "revision after replacing nothing by nothing")


async def delete_leaves_nothing(repository: ChatMemoryRepository) -> None:
    """And leaves the other conversations alone."""
    await fill(repository, "c", 8)
    await fill(repository, "d", 1)
    assert await repository.delete("c"), "deleting a conversation returned False"
    assert not await repository.delete("c"), "deleting it again returned True"
    recall = await repository.recall("c", 20)
    check_same((recall.revision, recall.count, recall.tail), (0, 0, ()), "recall after delete")
    check_same(
        [row.conversation_id for row in (await repository.conversations()).items], ["d"], "conversations after delete"
    )
