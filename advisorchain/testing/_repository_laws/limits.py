"""Laws of how much of a conversation is kept (`Retention.max_messages`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from advisorchain.memory.repository import ChatMemoryRepository, Entry, Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from advisorchain.testing._law_checks import check_same, fill, said, stored, texts, turn

_FOUR: Final = Retention(max_messages=4)


def _tool_turn(name: str) -> list[Message]:
    call = AssistantMessage("", tool_calls=(ToolCall(name, "run"),))
    return [UserMessage(f"u{name}"), call, ToolMessage(f"r{name}", tool_call_id=name), AssistantMessage(f"a{name}")]


async def the_oldest_turns_go(repository: ChatMemoryRepository) -> None:
    """In the write that names the limit, as one step; what is left keeps its sequences."""
    await fill(repository, "c", 5)
    kept = (await stored(repository, "c"))[8:]
    life = (await repository.recall("c", 0)).incarnation
    check_same(
        await repository.append("c", turn(6), turn_id="t6", retention=_FOUR), 6, "revision after a write with a limit"
    )
    entries = await stored(repository, "c")
    check_same(texts(entries), said(5, 6), "entries that a limit of 4 left")
    check_same(entries[:2], kept, "entries that a limit left of what had been there")
    recall = await repository.recall("c", None)
    check_same((recall.count, recall.revision, recall.incarnation), (4, 6, life), "count, revision and incarnation")
    check_same((texts(recall.tail), recall.question), (said(5, 6), None), "the tail of what a limit left")
    check_same((await repository.conversations()).items[0].count, 4, "count in the list")
    check_same(await repository.append("c", turn(5), turn_id="t5"), 6, "revision after a turn that a limit left")
    newest = await repository.recall("c", 1)
    check_same(newest.question and newest.question.message.text, "u6", "the question that a tail cuts off, after a limit")


async def whole_turns_go(repository: ChatMemoryRepository) -> None:
    """A call stays with its results, and a question with its answer."""
    for most, left in ((11, "bc"), (8, "bc"), (7, "c"), (5, "c"), (12, "abc"), (100, "abc")):
        name = f"most {most}"
        await repository.append(name, [message for part in "abc" for message in _tool_turn(part)], turn_id="t")
        await repository.replace(name, await stored(repository, name), retention=Retention(max_messages=most))
        expected = [text for part in left for text in (f"u{part}", "", f"r{part}", f"a{part}")]
        check_same(
            texts(await stored(repository, name)), expected, f"entries that a limit of {most} left of three turns of 4"
        )


async def the_newest_turn_never_goes(repository: ChatMemoryRepository) -> None:
    """However long it is."""
    await fill(repository, "c", 2)
    await repository.append("c", _tool_turn("x"), turn_id="x", retention=Retention(max_messages=2))
    check_same(texts(await stored(repository, "c")), ["ux", "", "rx", "ax"], "entries that a limit of 2 left of a turn of 4")
    await repository.append("c", [AssistantMessage("more")], turn_id="y", retention=Retention(max_messages=1))
    left = ["ux", "", "rx", "ax", "more"]
    check_same(texts(await stored(repository, "c")), left, "entries that a limit of 1 left of a turn of 5")
    await repository.append(
        "d", [AssistantMessage("a"), AssistantMessage("b")], turn_id="t", retention=Retention(max_messages=1)
    )
    check_same(texts(await stored(repository, "d")), ["a", "b"], "entries that a limit left where nobody has asked anything")


async def systems_and_summary_stay(repository: ChatMemoryRepository) -> None:
    """Those in force, and the newest; what they came after goes, and nothing else that stands before the cut."""
    for number, systems in enumerate((["A"], ["A"], ["B", "C"], ["C"], []), 1):
        told: list[Message] = [SystemMessage(text) for text in systems]
        await repository.append("c", [*told, *turn(number)], turn_id=f"t{number}")
    entries = list(await stored(repository, "c"))
    where = texts(entries).index("u4")
    for text in ("old", "new"):
        entries.insert(where, _summary(entries[where - 1], text, 1_000 + where))
        where += 1
    await repository.replace("c", entries)
    await repository.append("c", turn(6), turn_id="t6", retention=_FOUR)
    found = await stored(repository, "c")
    check_same(texts(found), ["B", "C", "new", *said(5, 6)], "entries that a limit of 4 left")
    recall = await repository.recall("c", 2)
    check_same((texts(recall.systems), recall.count), (["B", "C"], 7), "systems in force and count after a limit")
    check_same(recall.summary and recall.summary.message.text, "new", "the newest summary after a limit")
    await repository.append("c", [SystemMessage("B"), *turn(7)], turn_id="t7")
    check_same(texts((await repository.recall("c", 2)).systems), ["B", "C"], "systems in force after one that is in force")


def _summary(last: Entry, text: str, sequence: int) -> Entry:
    return replace(
        last, sequence=sequence, turn_id=text, message=AssistantMessage(text), kind="summary", covers=last.sequence
    )


async def a_limit_is_of_one_write(repository: ChatMemoryRepository) -> None:
    """It is not remembered; a replacement may have one as well."""
    await repository.append("c", turn(1), turn_id="t1", retention=Retention(max_messages=2))
    for number in (2, 3):
        await repository.append("c", turn(number), turn_id=f"t{number}")
    check_same(texts(await stored(repository, "c")), said(1, 3), "entries after writes without a limit")
    await repository.append("c", turn(3), turn_id="t3", retention=Retention(max_messages=2))
    check_same(texts(await stored(repository, "c")), said(1, 3), "entries after a repeated turn, which is no write")
    await repository.replace("c", [*turn(1), *turn(2), *turn(4)], retention=_FOUR)
    check_same(texts(await stored(repository, "c")), ["u2", "a2", "u4", "a4"], "entries after a replacement with a limit")
    check_same((await repository.recall("c", 0)).count, 4, "count after a replacement with a limit")
