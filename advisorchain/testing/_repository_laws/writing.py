"""Laws of what a repository appends and deletes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Final

from advisorchain.errors import ConversationConflictError, ConversationDeletedError, LeaseLostError
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.messages import Message, UserMessage
from advisorchain.testing._law_checks import (
    check_numbered,
    check_refused,
    check_same,
    fill,
    ids_in,
    said,
    stored,
    texts,
    turn,
)

_MANY: Final = 9_000  # messages; a script in Redis takes no more than 7,999 arguments at once, a statement in SQL 65,535


async def appended_in_order(repository: ChatMemoryRepository) -> None:
    """Revisions, sequences, turn ids and times of a log."""
    revisions = [await repository.append("c", turn(number), turn_id=f"t{number}") for number in range(1, 31)]
    check_same(revisions, list(range(1, 31)), "revisions that append returned")
    entries = await stored(repository, "c")
    check_same(texts(entries), said(1, 30), "order of the entries")
    check_numbered(entries, "a log that was only appended to")
    check_same([entry.turn_id for entry in entries], [f"t{n}" for n in range(1, 31) for _ in "ua"], "turn ids")
    now = datetime.now(UTC)
    for entry in entries:
        assert entry.created.utcoffset() == timedelta(0), f"`created` is not aware UTC: {entry.created!r}"
        far = abs(entry.created - now)
        assert far < timedelta(minutes=5), f"`created` is not now, which is {now!r}: {entry.created!r}"
    check_same(entries, await stored(repository, "c"), "a second reading")


async def a_batch_of_fifty_keeps_its_order(repository: ChatMemoryRepository) -> None:
    """Order does not depend on time."""
    batch = [UserMessage(f"m{number}") for number in range(50)]
    await repository.append("c", batch, turn_id="t")
    for _ in range(3):
        recall = await repository.recall("c", None)
        check_same([entry.message for entry in recall.tail], batch, "a batch of fifty")


async def a_batch_of_thousands_is_whole(repository: ChatMemoryRepository) -> None:
    """What a backend's statement or script may hold is no limit of a turn."""
    batch = _thousands()
    check_same(await repository.append("c", batch, turn_id="t"), 1, "revision after thousands of messages")
    recall = await repository.recall("c", 3)
    check_same((recall.count, texts(recall.tail)), (_MANY, ["8997", "8998", "8999"]), "count and tail")
    entries = await stored(repository, "c", limit=4_000)
    check_same(texts(entries), [message.text for message in batch], "entries")
    check_same(await repository.replace("c", entries[1:]), 2, "revision after replacing thousands of entries")
    check_same((await repository.recall("c", 1)).count, _MANY - 1, "count after replacing thousands of entries")
    assert await repository.delete("c"), "deleting thousands of entries returned False"


@cache
def _thousands() -> list[Message]:
    return [UserMessage(f"{number}") for number in range(_MANY)]


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
    check_same(await ids_in(repository), [], "conversations after an empty append")
    await fill(repository, "c", 1)
    check_same(await repository.append("c", [], turn_id="t9", expected=7), 1, "revision of an empty append")
    check_same(await repository.append("c", turn(9), turn_id="t9"), 2, "a turn id that an empty append had used")


async def a_writer_that_read_another_revision_is_refused(repository: ChatMemoryRepository) -> None:
    """And nothing of it is stored."""
    await check_refused(
        ConversationConflictError, "a revision of no conversation", repository.append, "d", turn(1), turn_id="t", expected=1
    )
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
    check_same(await ids_in(repository), ["c"], "conversations after a conflict")
    check_same(await repository.append("c", turn(2), turn_id="t2", expected=1), 2, "revision after the right `expected`")


async def refusals_come_in_their_order(repository: ChatMemoryRepository) -> None:
    """The incarnation, the turn id, the token, the revision: what is told first is what a writer must know first."""
    await fill(repository, "d", 1)
    other = (await repository.recall("d", 0)).incarnation
    await fill(repository, "c", 1)
    life = (await repository.recall("c", 0)).incarnation
    again = partial(repository.append, "c", turn(1), turn_id="t1", token=7_777, expected=9)
    new = partial(repository.append, "c", turn(2), turn_id="t2", token=7_777, expected=9)
    await check_refused(ConversationDeletedError, "a repeated turn of another life", again, incarnation=other)
    check_same(await again(incarnation=life), 1, "a repeated turn with a stale token and revision")
    await check_refused(LeaseLostError, "a stale token and a stale revision", new, incarnation=life)
    replaced = partial(repository.replace, "c", [], incarnation=other, expected=9)
    await check_refused(ConversationDeletedError, "a replacement of another life and a stale revision", replaced)
    check_same(texts(await stored(repository, "c")), ["u1", "a1"], "entries after refusals")


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
    check_numbered(recall.tail, "a new life")
    await check_refused(ConversationDeletedError, "a turn begun in an earlier life", late)
    check_same((await repository.recall("c", 20)).count, 2, "count after turns that were refused")


async def delete_leaves_nothing(repository: ChatMemoryRepository) -> None:
    """And leaves the other conversations alone."""
    await fill(repository, "c", 8)
    await fill(repository, "d", 1)
    assert await repository.delete("c"), "deleting a conversation returned False"
    assert not await repository.delete("c"), "deleting it again returned True"
    recall = await repository.recall("c", 20)
    check_same((recall.revision, recall.count, recall.tail), (0, 0, ()), "recall after delete")
    check_same(await stored(repository, "c"), (), "entries after delete")
    check_same(await ids_in(repository), ["d"], "conversations after delete")
    check_same(texts(await stored(repository, "d")), said(1, 1), "entries of another conversation")
