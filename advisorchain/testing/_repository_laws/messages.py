"""Laws of the messages that a repository keeps: each comes back equal, with all its fields and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.messages import (
    AssistantMessage,
    AudioPart,
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
from advisorchain.testing._law_checks import check_same, stored

_TEXTS: Final[tuple[Message, ...]] = (
    UserMessage(""), UserMessage(" \t\n "), UserMessage("\U0001f600 U+0000:\0 \u2028 tab\t end\n"), UserMessage("e\u0301 é"),
    UserMessage("'; DROP TABLE entries; -- % _ \\ \" {} ${x} %s :name"), UserMessage("null"), UserMessage("\ufeffbom\uffff"),
    SystemMessage("be brief", name="boss"), AssistantMessage("cut", partial=True, refusal="no", reasoning="thinking"),
)  # fmt: skip
_LONG: Final[tuple[Message, ...]] = tuple(
    UserMessage(mark * size) for mark, size in (("ü", 4_001), ("x", 70_000), ("€", 400_000))
)
_TOOLS: Final[tuple[Message, ...]] = (
    UserMessage("run both"),
    AssistantMessage(
        "", reasoning="thinking",
        tool_calls=(ToolCall("k1", "run", '{"s":"\\u0000", "n": 1e400}'), ToolCall("k2", "", "no json")),
    ),
    ToolMessage("ab\0cd", tool_call_id="k1", name="run", structured={"stdout": "ab\0cd", "code": 0, "took": 2.0}),
    ToolMessage("", tool_call_id="k2", is_error=True),
    ToolMessage("[]", tool_call_id="k2", structured=[1, "1", None, {}]),
    AssistantMessage("both ran"),
)  # fmt: skip
_PARTS: Final[tuple[Message, ...]] = (
    UserMessage((
        TextPart("look"), ImagePart("https://images.example.test/1.png", detail="low"),
        ImagePart(data=bytes(range(256)), media_type="image/png"), FilePart(file_id="f-1", name="plan.pdf"),
        AudioPart(data=b"\x00\xff" * 9_000, media_type="audio/wav"),
        FilePart(data=b"", media_type="text/plain", name="empty.txt"),
    )),
    AssistantMessage((TextPart("part"), RefusalPart("no"))),
    UserMessage((TextPart(""),)),
)  # fmt: skip
_METADATA: Final[tuple[Message, ...]] = (
    SystemMessage("s", metadata={"n": 1, "f": 1.0, "deep": [{"a": None, "b": True}], "e": {}, "l": []}),
    UserMessage("u", metadata={"nul": "a\0b", "größe": "ü", "": 0, "small": 5e-324, "big": 2**53 + 1, "tiny": -0.5}),
    AssistantMessage("a", metadata={"at": datetime(2026, 1, 2, tzinfo=UTC).isoformat(), "true": True, "text": "1"}),
    ToolMessage("t", tool_call_id="k", metadata={"$set": {"a.b": 1}, "_id": "x", "__proto__": None}),
)  # fmt: skip


async def texts_come_back(repository: ChatMemoryRepository) -> None:
    """Every character, also of blank and of long ones."""
    await _check_equal(repository, _TEXTS)


async def long_texts_come_back(repository: ChatMemoryRepository) -> None:
    """Of any size: one of these has more than a million bytes."""
    await _check_equal(repository, _LONG)


async def tool_traffic_comes_back(repository: ChatMemoryRepository) -> None:
    """Calls with whatever arguments, and results of any form."""
    await _check_equal(repository, _TOOLS)


async def images_and_files_come_back(repository: ChatMemoryRepository) -> None:
    """Parts of all kinds, by address and as bytes."""
    await _check_equal(repository, _PARTS)


async def metadata_comes_back(repository: ChatMemoryRepository) -> None:
    """With the types that it had."""
    await _check_equal(repository, _METADATA)


async def _check_equal(repository: ChatMemoryRepository, messages: Sequence[Message]) -> None:
    """After append, and after the entries were put in their own place."""
    await repository.append("c", messages, turn_id="t")
    _check_pairs(messages, [entry.message for entry in await stored(repository, "c")])
    _check_pairs(messages, [entry.message for entry in await _recalled(repository)])
    await repository.replace("c", await stored(repository, "c"))
    _check_pairs(messages, [entry.message for entry in await stored(repository, "c")])


async def _recalled(repository: ChatMemoryRepository) -> list[Any]:
    recall = await repository.recall("c", None)
    return sorted((*recall.systems, *recall.tail), key=lambda entry: entry.sequence)


def _check_pairs(given: Sequence[Message], found: Sequence[Message]) -> None:
    check_same([message.role for message in found], [message.role for message in given], "roles")
    for one, other in zip(given, found, strict=True):
        assert other == one, f"a {one.role} message came back changed"
        check_same(_types(other.metadata), _types(one.metadata), "types in the metadata")
        if isinstance(one, ToolMessage) and isinstance(other, ToolMessage):
            check_same(_types(other.structured), _types(one.structured), "types in a tool's structured result")


def _types(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_types(item) for item in value]
    return type(value).__name__
