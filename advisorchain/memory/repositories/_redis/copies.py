"""Whole conversations that are put together before they take their place, and read at one moment for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from advisorchain.memory.repositories._log_rules import DECIDING, REPEATED, SPOKEN, SUMMARY
from advisorchain.memory.repositories._redis.lua import LANE, NAMES
from advisorchain.memory.repositories._redis.move_scripts import DUMP, PLANT, STAGE
from advisorchain.memory.repositories._redis.rows import Keys, new_life
from advisorchain.memory.repositories._redis.server import Server

__all__ = ["TRIES", "Copy", "copied", "planted", "staged"]

Scored: TypeAlias = "tuple[int, str | bytes]"

TRIES: Final = 20  # of what begins anew when another writes meanwhile
_PART: Final = 1000  # rows in one trip
_PART_BYTES: Final = 8_000_000  # or so many bytes, unless one row is longer


class Copy(NamedTuple):
    """A whole conversation as it was read: its head by name, rows and turn ids with their scores."""

    head: dict[str, str]
    rows: list[Scored]
    turns: list[Scored]

    def cut(self, at: int, systems: str, repeated: Iterable[int]) -> Copy:
        """What a fork has: the entries up to a sequence, and their turn ids.

        Args:
            at: the sequence of the last entry that may be in it.
            systems: those in force there, as a head keeps them.
            repeated: sequences that change from lane DECIDING to REPEATED.
        """
        moved = {DECIDING * LANE + sequence: REPEATED * LANE + sequence for sequence in repeated}
        rows = [(moved.get(score, score), row) for score, row in self.rows if score % LANE <= at]
        turns = [(score, turn) for score, turn in self.turns if 0 < score <= at]
        spoken = [row for score, row in rows if score // LANE == SPOKEN]
        question = _question(spoken[-1]) if spoken else "0"
        summaries = [score % LANE for score, _ in rows if score // LANE == SUMMARY]
        sequences = [score % LANE for score, _ in rows]
        head = {
            "inc": str(new_life()), "rev": "1", "size": str(len(rows)), "next": str(max(sequences, default=0) + 1),
            "spoken": str(len(spoken)), "systems": systems, "question": question, "summary": str(max(summaries, default=0)),
            "ttl": self.head["ttl"], "before": "0", "edit": "0",
        }  # fmt: skip
        return Copy(head, rows, turns)


def _question(row: str | bytes) -> str:
    text = row if isinstance(row, bytes) else row.encode()
    return text.split(b" ", 2)[1].decode()


async def copied(server: Server, keys: Keys) -> Copy | None:
    """All of a conversation as it stood at one moment; None when it is not there.

    Raises:
        ConversationConflictError: others write to it so often that no moment is long enough.
    """
    for _ in range(TRIES):
        copy = Copy({}, [], [])
        while await _copy_part(server, keys, copy):
            if len(copy.rows) + len(copy.turns) == int(copy.head["all"]):
                return copy
        if not copy.head:
            return None
    raise server.unsettled()


async def _copy_part(server: Server, keys: Keys, copy: Copy) -> bool:
    """Add the next part; False: it is not there, or was written to meanwhile."""
    passed = len(copy.rows) + len(copy.turns)
    answer = await server.ask(DUMP, keys[:3], passed, _PART)
    if not answer:
        copy.head.clear()
        return False
    rows, turns, *values = answer[: 2 + len(NAMES)]
    head = dict(zip(NAMES, (value.decode() for value in values), strict=True)) | {"all": str(rows + turns)}
    if copy.head and copy.head != head:
        return False
    copy.head.update(head)
    part = answer[2 + len(NAMES) :]
    into = copy.rows if passed < rows else copy.turns
    into += [(int(score), value) for value, score in zip(part[::2], part[1::2], strict=True)]
    return True


async def planted(server: Server, keys: Keys, conversation_id: str, copy: Copy, *, name: str, anew: bool) -> Any:
    """Put a conversation that was staged by this name at an id that is free, as PLANT answers. `anew`: it begins now."""
    values = [copy.head.get(field, "") for field in NAMES]
    given = [conversation_id, name, len(copy.rows), "1" if anew else "", *values]
    return await server.ask(PLANT, [*keys.body, *keys.staged(name)], *given)


async def staged(server: Server, places: tuple[str, str], rows: Sequence[Scored], turns: Sequence[Scored]) -> None:
    """Put rows and turn ids aside, where they stay for ten minutes."""
    for part in _parts(rows):
        await server.run(STAGE, places, [len(part), *_flat(part)])
    for part in _parts(turns):
        await server.run(STAGE, places, [0, *_flat(part)])


def _parts(rows: Sequence[Scored]) -> Iterator[Sequence[Scored]]:
    part: list[Scored] = []
    size = 0
    for row in rows:
        if part and (len(part) == _PART or size + len(row[1]) > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[1])
    if part:
        yield part


def _flat(rows: Iterable[Scored]) -> list[str | bytes | int]:
    return [value for row in rows for value in row]
