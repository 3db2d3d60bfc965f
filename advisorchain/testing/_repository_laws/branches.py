"""Laws of conversations that are copied, or get another id."""

from __future__ import annotations

from functools import partial

from advisorchain.errors import ConversationConflictError, ConversationDeletedError
from advisorchain.memory.repository import ChatMemoryRepository, Conversation
from advisorchain.messages import Message, SystemMessage, UserMessage
from advisorchain.testing._law_checks import check_refused, check_same, fill, ids_in, life_of, said, stored, texts, turn


async def a_fork_has_the_same_entries(repository: ChatMemoryRepository) -> None:
    """With their sequences, turn ids and times, in a life of its own."""
    await repository.append("c", [SystemMessage("s"), *turn(1)], turn_id="t1")
    await repository.append("c", turn(2), turn_id="t2")
    await repository.replace("c", [*await stored(repository, "c"), UserMessage("u3")])
    source, life = await stored(repository, "c"), await life_of(repository, "c")
    check_same(await repository.fork("c", "d"), True, "what fork returned")
    check_same(await stored(repository, "d"), source, "entries of a fork")
    recall = await repository.recall("d", 2)
    check_same((recall.revision, recall.count), (1, 6), "revision and count of a fork")
    assert recall.incarnation not in (0, life), "a fork must have an incarnation of its own"
    check_same((texts(recall.tail), texts(recall.systems)), (["a2", "u3"], ["s"]), "tail and systems of a fork")
    check_same(recall.question and recall.question.message.text, "u2", "the question that a fork's tail cuts off")
    check_same(await ids_in(repository), ["c", "d"], "conversations after fork")
    check_same(await stored(repository, "c"), source, "entries of the conversation that was forked")
    unchanged = await repository.recall("c", 0)
    check_same((unchanged.revision, unchanged.incarnation), (3, life), "revision and incarnation of the one that was forked")


async def a_fork_ends_at_an_entry(repository: ChatMemoryRepository) -> None:
    """With all that stands before it, and no turn that came after it."""
    await fill(repository, "c", 4)
    source = await stored(repository, "c")
    for count, behind in ((1, 0), (3, 0), (4, 0), (8, 0), (8, 1_000)):
        at, name = source[count - 1].sequence + behind, f"at {count + behind}"
        check_same(await repository.fork("c", name, at=at), True, f"what fork returned, at={at}")
        found = [(entry.sequence, entry.message) for entry in await stored(repository, name)]
        check_same(found, [(entry.sequence, entry.message) for entry in source[:count]], f"entries of a fork at {at}")
        check_same((await repository.recall(name, 0)).count, count, f"count of a fork at {at}")
    check_same(await repository.append("at 4", turn(2), turn_id="t2"), 1, "revision after a turn that was copied")
    check_same(await repository.append("at 4", turn(3), turn_id="t3"), 2, "revision after a turn that came after the cut")
    check_same(texts(await stored(repository, "at 4")), said(1, 3), "entries of a fork after another turn")


async def a_fork_has_the_systems_of_its_cut(repository: ChatMemoryRepository) -> None:
    """Also where the cut goes through the batch that changed them."""
    for number, batch in enumerate((["A", "B"], [], ["B", "C"], ["D"])):
        systems: list[Message] = [SystemMessage(text) for text in batch]
        await repository.append("c", [*systems, UserMessage(f"u{number}")], turn_id=f"t{number}")
    source = await stored(repository, "c")
    in_force = ("A", "AB", "AB", "AB", "AB", "BC", "BC", "D", "D")
    for at, (entry, expected) in enumerate(zip(source, in_force, strict=True), 1):
        name = f"at {at}"
        await repository.fork("c", name, at=entry.sequence)
        check_same(texts((await repository.recall(name, 1)).systems), list(expected), f"systems in force in a fork at {at}")
        await repository.append(name, [SystemMessage("A"), UserMessage("on")], turn_id="on")
        then = list(expected) if "A" in expected else ["A"]
        found = texts((await repository.recall(name, 1)).systems)
        check_same(found, then, f"systems in force after a batch with `A` on a fork at {at}")
    check_same(texts((await repository.recall("c", 1)).systems), ["D"], "systems in force in the one that was forked")


async def a_fork_goes_its_own_way(repository: ChatMemoryRepository) -> None:
    """What is written on either side, nobody finds on the other."""
    await fill(repository, "c", 3)
    cut = (await stored(repository, "c"))[3].sequence
    for name in ("d", "e", "f"):
        await repository.fork("c", name, at=cut)
    check_same(await repository.append("c", turn(4), turn_id="t4"), 4, "revision of the one that was forked")
    check_same(await repository.append("d", turn(7), turn_id="t7"), 2, "revision of a fork")
    await repository.replace("e", [UserMessage("short")])
    await repository.fork("d", "g")
    await repository.append("g", turn(8), turn_id="t8")
    own = {"c": said(1, 4), "d": said(1, 2) + said(7, 7), "e": ["short"], "f": said(1, 2)}
    own["g"] = own["d"] + said(8, 8)
    for name, expected in own.items():
        check_same(texts(await stored(repository, name)), expected, f"entries of `{name}` after both sides were written to")
        check_same((await repository.recall(name, 0)).count, len(expected), f"count of `{name}`")
    for gone in ("c", "f", "d"):
        assert await repository.delete(gone), "deleting one side of a fork returned False"
        del own[gone]
        for name, expected in own.items():
            check_same(texts(await stored(repository, name)), expected, f"entries of `{name}` after `{gone}` was deleted")


async def a_fork_takes_no_id_that_is_there(repository: ChatMemoryRepository) -> None:
    """And makes nothing of nothing."""
    await fill(repository, "c", 2)
    await repository.append("d", turn(9), turn_id="t9")
    for name in ("d", "c"):
        await check_refused(ConversationConflictError, f"a fork to `{name}`, which is there", repository.fork, "c", name)
    check_same(await repository.fork("nobody", "e"), False, "fork of no conversation")
    check_same(await repository.fork("nobody", "d"), False, "fork of no conversation to one that is there")
    check_same(await repository.fork("c", "e", at=0), False, "fork before the first entry")
    check_same(await ids_in(repository), ["c", "d"], "conversations after forks that were refused")
    check_same(texts(await stored(repository, "d")), said(9, 9), "entries of the one that was there")
    await repository.delete("d")
    check_same(await repository.fork("c", "d"), True, "fork to an id that was deleted")


async def a_renamed_conversation_is_the_same(repository: ChatMemoryRepository) -> None:
    """With entries, revision, incarnation, times and turns; the old id is free."""
    await repository.append("c", [SystemMessage("s"), *turn(1)], turn_id="t1")
    await repository.append("c", turn(2), turn_id="t2")
    before, entries = await repository.recall("c", 1), await stored(repository, "c")
    row = (await repository.conversations()).items[0]
    check_same(await repository.rename("c", "d"), True, "what rename returned")
    check_same(await repository.recall("d", 1), before, "recall under the new id")
    check_same(await stored(repository, "d"), entries, "entries under the new id")
    moved = Conversation("d", row.count, row.created, row.updated, row.expires)
    check_same((await repository.conversations()).items, (moved,), "the list after rename")
    check_same(await life_of(repository, "c"), 0, "incarnation under the old id")
    check_same(await repository.append("d", turn(2), turn_id="t2"), 2, "revision after a turn that was there before")
    go_on = partial(repository.append, "d", turn(3), turn_id="t3", incarnation=before.incarnation, expected=2)
    check_same(await go_on(), 3, "revision after another turn under the new id")
    check_same(await repository.append("c", turn(1), turn_id="t1"), 1, "first revision under the old id")
    check_same(texts(await stored(repository, "c")), said(1, 1), "entries under the old id")
    check_same(texts(await stored(repository, "d")), ["s", *said(1, 3)], "entries under the new id")


async def a_rename_takes_no_id_that_is_there(repository: ChatMemoryRepository) -> None:
    """And changes nothing then."""
    await fill(repository, "c", 2)
    await repository.append("d", turn(9), turn_id="t9")
    for name in ("d", "c"):
        await check_refused(ConversationConflictError, f"a rename to `{name}`, which is there", repository.rename, "c", name)
    check_same(await repository.rename("nobody", "e"), False, "rename of no conversation")
    check_same(await repository.rename("nobody", "d"), False, "rename of no conversation to one that is there")
    for name, expected in (("c", said(1, 2)), ("d", said(9, 9))):
        check_same(texts(await stored(repository, name)), expected, f"entries of `{name}` after renames that were refused")
    check_same(await ids_in(repository), ["c", "d"], "conversations after renames that were refused")


async def a_turn_under_an_old_id_is_refused(repository: ChatMemoryRepository) -> None:
    """As after a deletion: the old id does not come back with one turn."""
    await fill(repository, "c", 1)
    life = await life_of(repository, "c")
    await repository.rename("c", "d")
    for call in (
        partial(repository.append, "c", turn(2), turn_id="t2", incarnation=life),
        partial(repository.replace, "c", turn(2), incarnation=life),
    ):
        await check_refused(ConversationDeletedError, "a turn that was begun under the old id", call)
    check_same(await ids_in(repository), ["d"], "conversations after a turn under an old id")


async def leases_stay_with_their_ids(repository: ChatMemoryRepository) -> None:
    """A rename moves the conversation, not who may write under which id."""
    await fill(repository, "c", 1)
    first = await repository.acquire("c", "one", 60)
    await repository.rename("c", "d")
    check_same(await repository.acquire("c", "two", 60), None, "the lease of the old id, which another owner has")
    second = await repository.acquire("d", "two", 60)
    assert second is not None, "the lease of the new id, which nobody has, was refused"
    check_same(await repository.append("d", turn(2), turn_id="t2", token=second), 2, "revision with the new id's token")
    check_same(await repository.append("c", turn(3), turn_id="t3", token=first), 1, "revision with the old id's token")
