"""Laws of what a repository gives back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from advisorchain.testing._law_checks import check_same, fill, stored, texts, turn

_IDS: Final = (
    "a", "A", "a ", " a", "á", "a\u0301", "ａ", "ß", "SS", "ss", "a:b/c%d_e", "%", "_", "a%", "a_b", "axb",
    "'; DROP TABLE entries; --",
    '"', "\\", "\n", ".", "..", "../x", "*", "?", "[a]", "{}", "ключ", "用户-1", "\U0001f600", "\ue000", "\uffff",
    "0", "00", "1e1", "1",
    "null", "x" * 36, "x" * 37, "x" * 254 + "y", "x" * 255, "\U0001f600" * 255,
)  # fmt: skip
_SOME_IDS: Final = tuple(name for name in _IDS if name.strip())


_KINDS: Final[tuple[Message, ...]] = (
    SystemMessage("be brief", name="boss", metadata={"n": 1, "f": 1.0, "deep": [{"a": None, "b": True}]}),
    UserMessage("\U0001f600 U+0000:\0 \u2028 tab\t end\n", metadata={"nul": "a\0b", "größe": "ü"}),
    UserMessage((
        TextPart("look"), ImagePart("https://images.example.test/1.png", detail="low"),
        ImagePart(data=b"\x00\xff", media_type="image/png"), FilePart(file_id="f-1", name="plan.pdf"),
    )),
    AssistantMessage(
        "", reasoning="thinking", tool_calls=(ToolCall("k1", "run", '{"s":"\\u0000"}'), ToolCall("k2", "run", "not json")),
    ),
    ToolMessage("ab\0cd", tool_call_id="k1", name="run", structured={"stdout": "ab\0cd", "code": 0, "took": 2.0}),
    ToolMessage("", tool_call_id="k2", is_error=True),
    AssistantMessage((TextPart("part"), RefusalPart("no"))),
    AssistantMessage("cut", partial=True, refusal="no", metadata={"at": datetime(2026, 1, 2, tzinfo=UTC).isoformat()}),
    UserMessage(""),
    UserMessage("x" * 1_000_000),
)  # fmt: skip


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
    before = await repository.recall("c", 2, before=7)
    check_same(
        (texts(before.tail), before.question and before.question.sequence, before.count), (["", "r"], 4, 8), "before=7"
    )
    check_same(texts((await repository.recall("c", 2, before=1)).tail), [], "the tail before the first")


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
    check_same(texts((await repository.recall("c", 1, before=ends[6] - 2)).systems), ["D", "A"], "a cut through a batch")
    check_same(texts((await repository.recall("c", 1, before=1)).systems), [], "systems in force before the first")
    await repository.replace("c", [item for item in await stored(repository, "c") if item.message.text != "E"])
    check_same(texts((await repository.recall("c", 1)).systems), ["D", "A"], "systems in force after replace")


async def pages_are_stable(repository: ChatMemoryRepository) -> None:
    """A cursor goes on where it stood while others write."""
    check_same((await repository.page("nobody")).items, (), "a page of no conversation")
    await fill(repository, "c", 5)
    await repository.append("c", [SystemMessage("s")], turn_id="s")
    expected = [text for n in range(1, 6) for text in (f"u{n}", f"a{n}")] + ["s"]
    first, back = await repository.page("c", limit=4), await repository.page("c", limit=4, newest_first=True)
    await repository.append("c", turn(6), turn_id="t6")
    found, cursor = list(first.items), first.next
    while cursor is not None:
        page = await repository.page("c", after=cursor, limit=4)
        found, cursor = [*found, *page.items], page.next
    check_same(texts(found), [*expected, "u6", "a6"], "pages while another writes")
    found, cursor = list(back.items), back.next
    while cursor is not None:
        page = await repository.page("c", after=cursor, limit=4, newest_first=True)
        found, cursor = [*found, *page.items], page.next
    check_same(texts(found), expected[::-1], "pages from the newest while another writes")
    check_same((await repository.page("c", limit=13)).next, None, "the cursor of the last page")
    await repository.delete("c")
    await fill(repository, "c", 9)
    check_same((await repository.page("c", after=first.next, limit=4)).items, (), "a cursor of an earlier life")


async def ids_are_exact(repository: ChatMemoryRepository) -> None:
    """Ids are compared code point by code point."""
    for name in _SOME_IDS:
        await repository.append(name, [UserMessage(f"for {name}")], turn_id="t")
    for name in _SOME_IDS:
        check_same(texts((await repository.recall(name, 5)).tail), [f"for {name}"], f"what was stored for {name!r}")
    listed = (await repository.conversations(limit=1000)).items
    check_same([row.conversation_id for row in listed], sorted(_SOME_IDS), "ids in code point order")
    assert await repository.delete("a"), "deleting `a` returned False"
    check_same((await repository.recall("A", 5)).count, 1, "count of `A` after `a` was deleted")


async def conversations_are_found_by_prefix(repository: ChatMemoryRepository) -> None:
    """A prefix is taken literally, and the ids come in code point order."""
    for name in _SOME_IDS:
        await repository.append(name, [UserMessage("x"), AssistantMessage("y")], turn_id="t")
    for prefix in ("", "a", "a%", "%", "_", "a_", "*", "x" * 36, "\\", "'", "\U0001f600", "\ud7ff", "\U0010ffff", "nothing"):
        expected = sorted(name for name in _SOME_IDS if name.startswith(prefix))
        for limit in (2, 1000):
            found: list[str] = []
            cursor = None
            while True:
                page = await repository.conversations(prefix=prefix, after=cursor, limit=limit)
                assert len(page.items) <= limit, f"a page of {limit} has {len(page.items)} conversations"
                found += [row.conversation_id for row in page.items]
                cursor = page.next
                if cursor is None:
                    break
            check_same(found, expected, f"conversations by the prefix {prefix!r}, {limit} a page")
    row = (await repository.conversations(prefix="ключ")).items[0]
    check_same(row.count, 2, "count of a conversation in the list")
    assert row.created <= row.updated, "a conversation was updated before it was created"


async def messages_come_back_equal(repository: ChatMemoryRepository) -> None:
    """Every kind of message comes back with all its fields and types."""
    await repository.append("c", _KINDS, turn_id="t")
    for given, entry in zip(_KINDS, await stored(repository, "c"), strict=True):
        assert entry.message == given, f"a {given.role} message came back changed"
        check_same(_types(entry.message.metadata), _types(given.metadata), "types in the metadata")
        assert entry.role == given.role, f"the role {given.role} became {entry.role}"
    assert [e.message for e in await _replaced_by_itself(repository)] == list(_KINDS), "replace changed a message"


async def _replaced_by_itself(repository: ChatMemoryRepository) -> tuple[Entry, ...]:
    await repository.replace("c", await stored(repository, "c"))
    return await stored(repository, "c")


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_types(item) for item in value]
    return type(value).__name__
