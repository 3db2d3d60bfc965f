"""Reads everything that is stored and compares it with what the writers of `tests.faults` were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final

from advisorchain.memory.repository import ChatMemoryRepository, Conversation, Entry, Recall, all_entries, in_force
from advisorchain.messages import Message, SystemMessage

from ._plan import Plan, PlannedTurn, mark_of
from ._writer import Acknowledged

LOST: Final = "acknowledged turns lost"
HALF: Final = "half turns"
DUPLICATE: Final = "duplicate turns"
ORDER: Final = "order violations"
PIECES: Final = "turns in pieces"
DAMAGED: Final = "damaged or stray entries"
NUMBERS: Final = "count, revision or sequence wrong"
PAGES: Final = "pages and recall disagree"
FENCING: Final = "fencing violations"
SEEN_HALF: Final = "half turns seen by readers"
SEEN_STALE: Final = "acknowledged writes not seen"
LEFT: Final = "conversations or rows left over"
FAILED: Final = "writers that failed"
FAULTS: Final = (
    LOST, HALF, DUPLICATE, ORDER, PIECES, DAMAGED, NUMBERS, PAGES, FENCING, SEEN_HALF, SEEN_STALE, LEFT, FAILED,
)  # fmt: skip

Name = tuple[int, int]  # of a turn: writer, number


@dataclass
class Findings:
    """What was found: how many of each fault, with the first few in words, and how much was stored."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    conversations: int = 0
    turns: int = 0
    entries: int = 0

    def add(self, fault: str, example: str) -> None:
        """Count a fault; of each kind the first three are told."""
        self.counts[fault] += 1
        if self.counts[fault] <= 3:
            self.examples.append(f"{fault}: {example}")


async def check(plan: Plan, told: Sequence[Sequence[Acknowledged]], store: ChatMemoryRepository) -> Findings:
    """Read every conversation by page, both ways, and by recall.

    Args:
        plan: what was to be written.
        told: for each writer what it was told.
        store: what the writers wrote to; nobody does any more.
    """
    findings = Findings()
    lines = {(writer, line.number): line for writer, own in enumerate(told) for line in own}
    places: dict[str, list[PlannedTurn]] = {f"talk-{place:03d}": [] for place in range(plan.conversations)}
    for name in lines:
        turn = plan.turn(*name)
        places[turn.conversation_id].append(turn)
    for conversation_id, turns in places.items():
        await _check_conversation(plan, conversation_id, turns, lines, store, findings)
    await _check_list(places, store, findings)
    return findings


async def _check_conversation(
    plan: Plan,
    conversation_id: str,
    turns: list[PlannedTurn],
    lines: dict[Name, Acknowledged],
    store: ChatMemoryRepository,
    findings: Findings,
) -> None:
    entries = [entry async for entry in all_entries(store, conversation_id, 97)]
    log = _names(plan, conversation_id, entries, findings)
    order = list(dict.fromkeys(log))  # where each turn begins
    findings.conversations += bool(entries)
    findings.turns += len(order)
    findings.entries += len(entries)
    for turn in turns:
        if (turn.writer, turn.number) not in set(order):
            findings.add(LOST, f"{turn.turn_id} of {conversation_id}")
    _check_turns(plan, conversation_id, entries, log, findings)
    _check_order(conversation_id, order, findings)
    _check_numbers(conversation_id, entries, order, lines, await store.recall(conversation_id, None), findings)
    await _check_pages(conversation_id, entries, store, findings)


def _names(plan: Plan, conversation_id: str, entries: Sequence[Entry], findings: Findings) -> list[Name]:
    """Of each entry, which turn it is of; entries that are of no turn of this conversation are told, and left out."""
    names = []
    for entry in entries:
        mark = mark_of(entry.message)
        if mark is None or not plan.has(*mark[:2]) or plan.turn(*mark[:2]).conversation_id != conversation_id:
            findings.add(DAMAGED, f"sequence {entry.sequence} of {conversation_id} is no entry of this conversation")
        else:
            names.append(mark[:2])
    return names


def _check_turns(
    plan: Plan, conversation_id: str, entries: Sequence[Entry], log: Sequence[Name], findings: Findings
) -> None:
    """Each turn is there once, whole, in one piece, and as it was written."""
    runs = Counter(name for name, _ in groupby(log))
    stored: dict[Name, list[Entry]] = {}
    for entry in entries:
        mark = mark_of(entry.message)
        if mark is not None and mark[:2] in runs:
            stored.setdefault(mark[:2], []).append(entry)
    for name, found in stored.items():
        turn = plan.turn(*name)
        where = f"{turn.turn_id} of {conversation_id}"
        if runs[name] > 1:
            findings.add(PIECES, f"{where} is in {runs[name]} pieces")
        _check_turn(turn, [entry.message for entry in found], where, findings)
        if {entry.turn_id for entry in found} != {turn.turn_id}:
            findings.add(DAMAGED, f"{where} is stored under other turn ids")


def _check_turn(turn: PlannedTurn, said: list[Message], where: str, findings: Findings) -> None:
    parts = Counter(mark[2] for mark in map(mark_of, said) if mark)
    if max(parts.values()) > 1:
        findings.add(DUPLICATE, f"{where} has {len(said)} entries instead of {len(turn.messages)}")
    if len(parts) < len(turn.messages):
        findings.add(HALF, f"{where} has {len(parts)} parts of {len(turn.messages)}")
    elif sorted(parts.elements()) == list(range(len(turn.messages))) and said != list(turn.messages):
        findings.add(DAMAGED, f"{where} is not as it was written")


def _check_order(conversation_id: str, order: Sequence[Name], findings: Findings) -> None:
    """A writer's turns are in the order in which it wrote them."""
    newest: dict[int, int] = {}
    for writer, number in order:
        if number <= newest.get(writer, -1):
            findings.add(ORDER, f"{_text((writer, number))} of {conversation_id} stands behind {writer}.{newest[writer]}")
        newest[writer] = max(number, newest.get(writer, -1))


def _check_numbers(
    conversation_id: str,
    entries: Sequence[Entry],
    order: Sequence[Name],
    lines: dict[Name, Acknowledged],
    recall: Recall,
    findings: Findings,
) -> None:
    """Count, revision, sequences, systems in force, and what each writer was told fit the log."""
    if recall.count != len(entries):
        findings.add(NUMBERS, f"{conversation_id} counts {recall.count} entries and has {len(entries)}")
    if recall.revision != len(order):
        findings.add(NUMBERS, f"{conversation_id} is at revision {recall.revision} after {len(order)} turns")
    if any(later.sequence <= earlier.sequence for earlier, later in pairwise(entries)):
        findings.add(NUMBERS, f"the sequences of {conversation_id} do not grow")
    token = 0
    for place, name in enumerate(order):
        line = lines.get(name)
        if line is None or not line.fresh:  # of a turn that was begun before, the revision may be that of a later one
            continue
        if line.revision != place + 1:
            findings.add(NUMBERS, f"{_text(name)} is number {place + 1} of {conversation_id}, told was {line.revision}")
        if line.token and line.token <= token:
            findings.add(FENCING, f"{_text(name)} of {conversation_id} has token {line.token} behind {token}")
        token = max(token, line.token)
    systems: tuple[SystemMessage, ...] = ()
    for _, run in groupby(entries, key=lambda entry: entry.turn_id):
        found = in_force(systems, [entry.message for entry in run])
        systems = systems if found is None else found
    if tuple(entry.message for entry in recall.systems) != systems:
        findings.add(PAGES, f"the system messages in force of {conversation_id} are not those of its log")
    if list(recall.tail) != [entry for entry in entries if entry.role != "system"]:
        findings.add(PAGES, f"the tail of {conversation_id} is not what its pages say")


async def _check_pages(
    conversation_id: str, entries: Sequence[Entry], store: ChatMemoryRepository, findings: Findings
) -> None:
    """The pages from the end on are the same log."""
    backwards: list[Entry] = []
    page = await store.page(conversation_id, limit=101, newest_first=True)
    while True:
        backwards.extend(page.items)
        if page.next is None:
            break
        page = await store.page(conversation_id, after=page.next, limit=101, newest_first=True)
    if backwards[::-1] != list(entries):
        findings.add(PAGES, f"the pages of {conversation_id} from its end on are another log")


async def _check_list(places: dict[str, list[PlannedTurn]], store: ChatMemoryRepository, findings: Findings) -> None:
    """The list of conversations has those that were written to, each with its count, and no other."""
    listed: list[Conversation] = []
    page = await store.conversations(limit=7)
    while True:
        listed.extend(page.items)
        if page.next is None:
            break
        page = await store.conversations(after=page.next, limit=7)
    used = sorted(conversation_id for conversation_id, turns in places.items() if turns)
    if [conversation.conversation_id for conversation in listed] != used:
        findings.add(LEFT, f"{len(listed)} conversations are listed, {len(used)} were written to")
    if sum(conversation.count for conversation in listed) != findings.entries:
        findings.add(NUMBERS, "the counts of the listed conversations are not those of their entries")


def _text(name: Name) -> str:
    return f"turn {name[0]}.{name[1]}"
