"""What the writers write: every turn follows from the seed, so writer, killer and checker need not talk."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from advisorchain.memory.repository import Entry
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

WINDOW: Final = 20  # entries that a writer reads before it writes, as a prompt's window would be
_MARK: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)/(\d+)\|")


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """One turn: where it goes, what it says, and how it is written.

    Attributes:
        manner: "plain"; "expected" (with the revision that was read); "lease" (with a fencing token).
        repeated: whether it is appended once more after it was acknowledged, which must do nothing.
    """

    writer: int
    number: int
    conversation_id: str
    turn_id: str
    messages: tuple[Message, ...]
    manner: str
    repeated: bool

    @property
    def spoken(self) -> tuple[Message, ...]:
        """What of it a tail shows."""
        return tuple(message for message in self.messages if not isinstance(message, SystemMessage))


@dataclass(frozen=True, slots=True)
class Plan:
    """How many writers write how many turns each, over how many conversations."""

    writers: int
    turns: int
    conversations: int
    seed: int

    @property
    def total(self) -> int:
        """All turns of all writers."""
        return self.writers * self.turns

    def turn(self, writer: int, number: int) -> PlannedTurn:
        """The turn that a writer writes as its `number`-th, from 0 on."""
        return _turn(self, writer, number)

    def has(self, writer: int, number: int) -> bool:
        """Whether there is such a turn."""
        return 0 <= writer < self.writers and 0 <= number < self.turns


@lru_cache(maxsize=4096)
def _turn(plan: Plan, writer: int, number: int) -> PlannedTurn:
    chance = random.Random(f"{plan.seed}/{writer}/{number}")
    place = chance.randrange(plan.conversations)
    messages = _messages(chance, f"{writer}.{number}")
    manner = chance.choices(("plain", "expected", "lease"), (65, 25, 10))[0]
    return PlannedTurn(
        writer, number, f"talk-{place:03d}", f"turn {writer}.{number}", messages, manner, chance.random() < 0.02
    )


def _messages(chance: random.Random, name: str) -> tuple[Message, ...]:
    """Question and answer; in three of ten with a tool's traffic between, in one of twenty with instructions first."""
    instructed, with_tool = chance.random() < 0.05, chance.random() < 0.3
    parts = 2 + instructed + 2 * with_tool
    texts = [f"{name}.{part}/{parts}|{_filler(chance)}" for part in range(parts)]
    first = [SystemMessage(texts.pop(0))] if instructed else []
    if not with_tool:
        return (*first, UserMessage(texts[0], metadata={"at": name}), AssistantMessage(texts[1]))
    call = ToolCall(f"call {name}", "look", '{"where": "there"}')
    return (
        *first,
        UserMessage(texts[0]),
        AssistantMessage(texts[1], tool_calls=(call,)),
        ToolMessage(texts[2], tool_call_id=call.id),
        AssistantMessage(texts[3]),
    )


def _filler(chance: random.Random) -> str:
    """Mostly a few words, sometimes more than a page of a database, so that a write is many writes of the server's."""
    length = 20_000 if chance.random() < 0.01 else chance.randrange(20, 400)
    return "ä€😀 word"[chance.randrange(4) :] * (length // 8)


def mark_of(message: Message) -> tuple[int, int, int] | None:
    """Writer, number and part that a stored message says it is; None: no writer wrote this."""
    found = _MARK.match(message.text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def half_turns(plan: Plan, tail: Sequence[Entry]) -> list[str]:
    """The turn ids in a tail, which may cut into its oldest turn, that are not there as a whole and in order."""
    runs: list[tuple[str, list[Entry]]] = []
    for entry in tail:
        if not runs or runs[-1][0] != entry.turn_id:
            runs.append((entry.turn_id, []))
        runs[-1][1].append(entry)
    broken = []
    for place, (turn_id, run) in enumerate(runs):
        said, mark = [entry.message for entry in run], mark_of(run[0].message)
        if mark is None or not plan.has(*mark[:2]):
            broken.append(turn_id)
            continue
        whole = list(plan.turn(*mark[:2]).spoken)
        cut = place == 0 and len(tail) == WINDOW
        if said != (whole[-len(said) :] if cut else whole):
            broken.append(turn_id)
    return broken
