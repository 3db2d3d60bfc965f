"""Laws of what a repository gives back of a log."""

from __future__ import annotations

from anyio import create_task_group
from anyio.lowlevel import checkpoint

from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from advisorchain.testing._law_checks import all_of, check_same, fill, said, stored, texts, turn


async def recall_gives_the_newest(repository: ChatMemoryRepository) -> None:
    """The tail, the question that it cuts off, the count."""
    nothing = await repository.recall("nobody", 20)
    check_same((nothing.revision, nothing.count, nothing.tail, nothing.systems), (0, 0, (), ()), "recall of no conversation")
    await repository.append("c", [SystemMessage("s"), *turn(1)], turn_id="t1")
    calls: list[Message] = [
        AssistantMessage(tool_calls=(ToolCall("k", "f"),)),
        ToolMessage("r", tool_call_id="k"),
        AssistantMessage("a2"),
    ]
    await repository.append("c", [UserMessage("u2"), *calls], turn_id="t2")
    await repository.append("c", [SystemMessage("s")], turn_id="t3")
    for last, tail in ((0, []), (1, ["a2"]), (4, ["u2", "", "r", "a2"]), (5, ["a1", "u2", "", "r", "a2"])):
        recall = await repository.recall("c", last)
        check_same(texts(recall.tail), tail, f"the newest {last} without system messages")
        question = {0: None, 1: "u2", 4: None, 5: "u1"}[last]
        check_same(recall.question and recall.question.message.text, question, f"the question cut off by a tail of {last}")
        check_same((recall.revision, recall.count), (3, 8), "revision and count")
    everything = await repository.recall("c", None)
    check_same(texts(everything.tail), ["u1", "a1", "u2", "", "r", "a2"], "the tail of everything")
    check_same(everything.question, None, "the question of a tail with everything")


async def recall_ends_before_an_entry(repository: ChatMemoryRepository) -> None:
    """With `before`: the tail and the question are those of that place, the count is that of the whole log."""
    await fill(repository, "c", 4)
    numbers = [entry.sequence for entry in await stored(repository, "c")]
    for last, before, tail, question in (
        (2, numbers[4], ["u2", "a2"], None), (3, numbers[4], ["a1", "u2", "a2"], "u1"), (1, numbers[3], ["u2"], None),
        (1, numbers[2], ["a1"], "u1"), (None, numbers[3], ["u1", "a1", "u2"], None), (2, numbers[0], [], None),
        (2, 0, [], None), (1, numbers[7] + 1_000, ["a4"], "u4"),
    ):  # fmt: skip
        recall = await repository.recall("c", last, before=before)
        what = f"a tail of {last} before {before}"
        check_same(texts(recall.tail), tail, what)
        check_same(recall.question and recall.question.message.text, question, f"the question of {what}")
        check_same((recall.count, recall.revision), (8, 4), f"count and revision with {what}")


async def recall_knows_the_systems_in_force(repository: ChatMemoryRepository) -> None:
    """Also where the log is cut, and after replace."""
    batches: list[list[str]] = [["A"], ["B", "C", "B"], ["C"], ["D", "A"], [], ["A"], ["A", "E"]]
    at_end: list[list[str]] = [["A"], ["B", "C"], ["B", "C"], ["D", "A"], ["D", "A"], ["D", "A"], ["A", "E"]]
    ends = []
    for number, (batch, expected) in enumerate(zip(batches, at_end, strict=True)):
        systems: list[Message] = [SystemMessage(text) for text in batch]
        question = UserMessage(f"u{number}")
        await repository.append("c", [*systems, question], turn_id=f"t{number}")
        recall = await repository.recall("c", 3)
        check_same(texts(recall.systems), expected, f"systems in force after batch {number}")
        assert all(entry.role != "system" for entry in recall.tail), "a tail has a system message"
        ends.append(recall.tail[-1].sequence + 1)
    for end, expected in zip(ends, at_end, strict=True):
        recall = await repository.recall("c", 1, before=end)
        check_same(texts(recall.systems), expected, f"systems in force before {end}")
    entries = await stored(repository, "c")
    cut = await repository.recall("c", 1, before=entries[-2].sequence)
    check_same(texts(cut.systems), ["D", "A"], "systems in force before the last one of a batch")
    check_same(texts((await repository.recall("c", 1, before=1)).systems), [], "systems in force before the first")
    await repository.replace("c", [item for item in entries if item.message.text != "E"])
    check_same(texts((await repository.recall("c", 1)).systems), ["D", "A"], "systems in force after replace")


async def pages_give_every_entry_once(repository: ChatMemoryRepository) -> None:
    """Whatever their size, in both directions; the last one has no cursor."""
    check_same((await repository.page("nobody")).items, (), "a page of no conversation")
    await fill(repository, "c", 5)
    await repository.append("c", [SystemMessage("s"), SystemMessage("s")], turn_id="s")
    expected = [*said(1, 5), "s", "s"]
    for limit in (1, 4, 6, 12, 13, 1000):
        for newest_first in (False, True):
            found = await _paged(repository, limit, newest_first)
            check_same(texts(found), expected[:: -1 if newest_first else 1], f"pages of {limit}, {newest_first=}")


async def pages_stay_the_same_while_others_write(repository: ChatMemoryRepository) -> None:
    """A cursor goes on where it stood, in both directions: nothing is left out, nothing comes twice."""
    await fill(repository, "c", 8)
    async with create_task_group() as group:
        group.start_soon(_append_more, repository, 9, 24)
        forward = await _paged(repository, 3, newest_first=False)
        back = await _paged(repository, 3, newest_first=True)
    everything = said(1, 24)
    assert len(forward) >= 16, f"pages while others write: {len(forward)} of 16 entries that had been there"
    check_same(texts(forward), everything[: len(forward)], "pages while others write")
    assert len(back) >= 16, f"pages from the newest while others write: {len(back)} of 16 entries that had been there"
    check_same(texts(back), everything[: len(back)][::-1], "pages from the newest while others write")
    first, last = await repository.page("c", limit=4), await repository.page("c", limit=4, newest_first=True)
    await repository.replace("c", await stored(repository, "c"))
    moved = [*await _paged(repository, 4, False, first.next), *await _paged(repository, 4, True, last.next)]
    check_same(texts(moved), everything, "what follows a cursor when all was replaced by new sequences: all, and nothing")


async def a_cursor_ends_with_its_conversation(repository: ChatMemoryRepository) -> None:
    """What came in its place is another one."""
    await fill(repository, "c", 9)
    forward, back = await repository.page("c", limit=4), await repository.page("c", limit=4, newest_first=True)
    await repository.delete("c")
    for state in ("no", "an earlier"):
        for newest_first, page in ((False, forward), (True, back)):
            found = await repository.page("c", after=page.next, limit=4, newest_first=newest_first)
            check_same((found.items, found.next), ((), None), f"a page after a cursor of {state} life")
        await fill(repository, "c", 9)


async def _paged(repository: ChatMemoryRepository, limit: int, newest_first: bool, cursor: str | None = None) -> list[Entry]:
    return await all_of(
        lambda after: repository.page("c", after=after, limit=limit, newest_first=newest_first), limit, cursor
    )


async def _append_more(repository: ChatMemoryRepository, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await repository.append("c", turn(number), turn_id=f"t{number}")
        await checkpoint()
