"""What of a conversation fits into a prompt.

A policy is a pure view of the log: it stores nothing and removes nothing, so another policy may show more tomorrow.
Every policy leaves out what a provider would refuse (see `sendable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from advisorchain.errors import ConfigurationError, ToolArgumentsError
from advisorchain.memory.repository import Entry, Recall
from advisorchain.messages import AssistantMessage, Message, ToolCall, ToolMessage

__all__ = ["MemoryPolicy", "MessageWindow", "Unbounded", "sendable"]


class MemoryPolicy(Protocol):
    """Chooses the messages of a conversation that a prompt shall carry. One object serves all conversations."""

    @property
    def last(self) -> int | None:
        """How many of the newest messages that are no system messages `view` needs to know; None: all."""
        ...

    def view(self, recall: Recall) -> tuple[Message, ...]:
        """The messages to send, oldest first: a part of those in `recall`, the same objects. Changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Everything that was stored. Reading it costs what the whole conversation costs."""

    @property
    def last(self) -> int | None:
        """All."""
        return None

    def view(self, recall: Recall) -> tuple[Message, ...]:
        """The whole conversation, with the system messages in force."""
        return _in_order(recall.systems, sendable(recall.tail))


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """The newest turns, of together `max_messages` messages at most. A turn is a user message and what follows it.

    - System messages in force are never left out; they count, and may fill the window.
    - While the conversation fits, all of it is shown as it is. Otherwise the window opens on a user message.
    - A tool result is never without its call, nor a call without all its results.
    - A newest turn that is longer than the room loses its oldest tool rounds, and keeps its question. If question and answer
      still do not fit, the turn goes; an unanswered question stays while there is room for one message.

    Only the newest `max_messages + 1` messages and the question of their first turn are read, at any length of the log.

    Raises:
        ConfigurationError: `max_messages` is not a whole number of at least 1.
    """

    max_messages: int = 20

    def __post_init__(self) -> None:
        if self.max_messages.__class__ is not int or self.max_messages < 1:
            raise ConfigurationError(f"`max_messages` is {self.max_messages!r}; give a whole number of at least 1")

    @property
    def last(self) -> int:
        """One more than fits: whether there is one decides whether the window cuts."""
        return self.max_messages + 1

    def view(self, recall: Recall) -> tuple[Message, ...]:
        """The system messages in force and the newest turns that fit beside them."""
        return _in_order(recall.systems, self._fitting(recall, self.max_messages - len(recall.systems)))

    def _fitting(self, recall: Recall, room: int) -> Sequence[Entry]:
        if room < 1:
            return ()
        entries = sendable(recall.tail)
        if len(entries) <= room and len(recall.tail) < self.last:
            return entries  # all that there is
        for place in range(max(0, len(entries) - room), len(entries)):
            if entries[place].role == "user":
                return entries[place:]
        kept = _shortened_turn(entries, recall.question, room)
        answered = _is_answer(recall.tail[-1].message)
        return () if answered and len(kept) < 2 else kept


def sendable(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` without blank answers, and without tool calls and results that are not paired.

    A call is paired when each call of its message is answered right after it. If one is not, the message goes with the
    results that are there; and so it does when the arguments of a call are no JSON object, which providers refuse.
    """
    shown = [entry for entry in entries if not (isinstance(entry.message, AssistantMessage) and entry.message.is_blank)]
    kept: list[Entry] = []
    place = 0
    while place < len(shown):
        end = place + 1
        while end < len(shown) and isinstance(shown[end].message, ToolMessage):
            end += 1
        kept += _paired(shown[place:end])
        place = end
    return kept


def _paired(group: list[Entry]) -> list[Entry]:
    """A message and the tool results right after it: of these the ones that it asked for; without it when one is missing."""
    first = group[0].message
    if isinstance(first, ToolMessage):
        return []
    calls = first.tool_calls if isinstance(first, AssistantMessage) else ()
    if not all(_is_readable(call) for call in calls):
        return []
    open_calls = [call.id for call in calls]
    kept = group[:1]
    for entry in group[1:]:
        if isinstance(entry.message, ToolMessage) and entry.message.tool_call_id in open_calls:
            open_calls.remove(entry.message.tool_call_id)
            kept.append(entry)
    return [] if open_calls else kept


def _is_readable(call: ToolCall) -> bool:
    try:
        call.parsed()
    except ToolArgumentsError:
        return False
    return True


def _shortened_turn(entries: list[Entry], question: Entry | None, room: int) -> list[Entry]:
    """The newest turn, which is longer than the room: its question and as many of its newest rounds as fit."""
    start = 0
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].role == "user":
            question, start = entries[place], place + 1
            break
    if question is None:
        return []
    kept: list[Entry] = []
    for round_ in reversed(_rounds(entries[start:])):
        if 1 + len(round_) + len(kept) > room:
            break
        kept = round_ + kept
    return [question, *kept]


def _rounds(entries: list[Entry]) -> list[list[Entry]]:
    """An answer alone, or tool calls with their results."""
    rounds: list[list[Entry]] = []
    for entry in entries:
        if entry.role == "tool" and rounds:
            rounds[-1].append(entry)
        else:
            rounds.append([entry])
    return rounds


def _is_answer(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.tool_calls and not message.is_blank


def _in_order(systems: Iterable[Entry], entries: Iterable[Entry]) -> tuple[Message, ...]:
    return tuple(entry.message for entry in sorted((*systems, *entries), key=lambda entry: entry.sequence))
