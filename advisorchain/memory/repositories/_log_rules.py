"""What every store of a log does in the same way: number entries, say which systems are in force, refuse, trim, copy.

**Time to live.** A store keeps `ttl` (whole microseconds, or nothing) and `ends` (the same, by its clock) beside each
conversation. On every write that is stored (not on an empty append, nor on a repeated turn) `ttl = kept_ttl(retention, ttl
that was there)` and `ends = end_of(ttl, clock_now)`; a conversation `is_over(ends, clock_now)` is not there, and what begins
anew under its id has no ttl of before. `expires_of(updated, ttl)` is what a list shows. `check_incarnation(begun, found,
ended)`: `found` is 0 and `ended` the incarnation of what is there when that has run out (append only; replace is strict).

**Trim.** Let n be how many entries are in lane SPOKEN after the write; `excess_of(n, retention)` of them are too many. The
cut is the sequence of the first user entry that has at least so many spoken ones before it, else that of the newest user
entry; without a user entry nothing goes. `trim_ends` says before which sequence each lane loses its entries. The pointers
stay as they are (none of them can be removed), the revision grows by the write's one step, and all turn ids stay known: a
turn that is repeated after it was trimmed away is not stored again.

**Fork.** Source not there, or no entry up to `at`: False; then `check_target`. The copy has the entries with a sequence of
at most `at`, in their lanes, the turn ids of these entries and no others, `next_sequence` = its last sequence + 1, revision
1, `created` and `updated` now, the ttl of the source and `ends` from now on. Its pointers: `question` is the newest user
entry, `summary` the newest of its lane; `systems_cut` gives the systems in force, and the entries that move from lane
DECIDING to REPEATED because the cut went through their batch. Rename asks the same two questions and changes only the id.

**Removal.** A write to an id whose time has run out removes what was there; `prune` removes all of them. What else a store
removes in passing ended at least GRACE ago: a turn that is under way when its conversation ends still finds it. `prune` also
removes the leases that ended so long ago: a lease that ran out counts until another takes it, but no turn lasts that long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple
from uuid import uuid4

from advisorchain.errors import ConversationConflictError, ConversationDeletedError, LeaseLostError
from advisorchain.memory.repositories._arguments import LAST, checked_number, message_of
from advisorchain.memory.repository import Entry, Retention, in_force
from advisorchain.messages import Message, SystemMessage

# A log is kept in lanes, so that reading the newest of one lane never walks over the others:
SPOKEN: Final = 0  # what a tail is made of
DECIDING: Final = 1  # the system messages of a batch that replaced those in force
REPEATED: Final = 2  # system messages that changed nothing
SUMMARY: Final = 3
LANES: Final = (SPOKEN, DECIDING, REPEATED, SUMMARY)
GRACE: Final = 3_600_000_000  # microseconds; longer than a turn takes
_NO_END: Final = timedelta(days=36_525)  # a ttl of 100 years ends never; times stay below 2**53, which every store can count


class Laned(NamedTuple):
    """An entry and the lane that it belongs to."""

    entry: Entry
    lane: int


def numbered(
    messages: Iterable[Message], first: int, turn_id: str, created: datetime, systems: Sequence[Entry]
) -> tuple[list[Laned], tuple[Entry, ...]]:
    """A batch as entries from the sequence `first` on, and the systems in force after it."""
    entries = [Entry(first + place, turn_id, message, created) for place, message in enumerate(messages)]
    return laned(entries, systems)


def laned(entries: Iterable[Entry], systems: Sequence[Entry] = ()) -> tuple[list[Laned], tuple[Entry, ...]]:
    """Entries with their lanes, and the systems in force after them; `systems` are those in force before."""
    rows: list[Laned] = []
    in_charge = tuple(systems)
    for _, run in groupby(entries, key=_turn):
        batch = tuple(run)
        deciding = _deciding(in_charge, batch)
        in_charge = deciding or in_charge
        rows += [Laned(entry, _lane(entry, deciding)) for entry in batch]
    return rows, in_charge


class Moved(NamedTuple):
    """Where a log stands after a batch; sequences, 0: none.

    Attributes:
        questions: for each entry of the batch, the newest user message up to it.
        question, summary: the newest ones of the log.
        spoken: how many entries of that lane came.
    """

    questions: list[int]
    question: int
    summary: int
    spoken: int


def moved(rows: Iterable[Laned], question: int = 0, summary: int = 0) -> Moved:
    """What a batch of entries does to a log whose newest question and summary these were."""
    questions, spoken = list[int](), 0
    for entry, lane in rows:
        if lane == SPOKEN:
            spoken += 1
            question = entry.sequence if entry.role == "user" else question
        elif lane == SUMMARY:
            summary = entry.sequence
        questions.append(question)
    return Moved(questions, question, summary, spoken)


def systems_at(newest_first: Iterable[Entry]) -> tuple[Entry, ...]:
    """The systems in force where a log was cut; `newest_first` are the deciding entries before the cut.

    Only the newest two batches are looked at: the cut may have gone through the newest one, and what is left of it
    may repeat what the one before had said.
    """
    return systems_cut(newest_first).in_force


class SystemsCut(NamedTuple):
    """The systems in force where a log was cut, and the deciding entries behind them that change nothing any more."""

    in_force: tuple[Entry, ...] = ()
    repeated: tuple[Entry, ...] = ()


def systems_cut(newest_first: Iterable[Entry]) -> SystemsCut:
    """As `systems_at`, for a copy of the log up to the cut, in which `repeated` belong to lane REPEATED."""
    batches = (tuple(run)[::-1] for _, run in groupby(newest_first, key=_turn))
    newest = next(batches, ())
    before = next(batches, ())
    return SystemsCut(newest) if _deciding(before, newest) else SystemsCut(before, newest)


def _turn(entry: Entry) -> str:
    return entry.turn_id


def _deciding(before: Sequence[Entry], batch: Sequence[Entry]) -> tuple[Entry, ...]:
    if all(entry.message.role != "system" for entry in batch):  # nearly always
        return ()
    known = tuple(entry.message for entry in before if isinstance(entry.message, SystemMessage))
    said = [entry for entry in batch if entry.kind == "message"]
    own = in_force(known, [entry.message for entry in said])
    if own is None:
        return ()
    places = [next(place for place, entry in enumerate(said) if entry.message is message) for message in own]
    return tuple(said[place] for place in places)


def _lane(entry: Entry, deciding: Sequence[Entry]) -> int:
    if entry.kind == "summary":
        return SUMMARY
    if entry.message.role != "system":
        return SPOKEN
    return DECIDING if any(entry is other for other in deciding) else REPEATED


def replacement(stored: Sequence[Entry], items: Sequence[Message | Entry], first: int, now: datetime) -> list[Entry]:
    """The entries that take the place of `stored`, numbered from `first` on.

    An Entry keeps its time, turn id and kind, and so does a stored one that the leading messages repeat; the rest is one
    new turn. What a summary covers is told in the new numbers.
    """
    kept: list[Entry | Message] = []
    leading = True
    for place, item in enumerate(items):
        leading = leading and place < len(stored) and stored[place].message == message_of(item)
        kept.append(stored[place] if leading and not isinstance(item, Entry) else item)
    turn_id = uuid4().hex
    moved = {item.sequence: first + place for place, item in enumerate(kept) if isinstance(item, Entry)}
    return [
        Entry(first + place, item.turn_id, item.message, item.created.astimezone(UTC), item.kind, _moved(item.covers, moved))
        if isinstance(item, Entry)
        else Entry(first + place, turn_id, item, now)
        for place, item in enumerate(kept)
    ]


def _moved(covers: int | None, moved: dict[int, int]) -> int | None:
    if covers is None:
        return None
    return max((new for old, new in moved.items() if old <= covers), default=0)


def check_writer(*, expected: int | None, revision: int, lease: int | None, token: int | None) -> None:
    """Refuse a writer with a stale token, or one that read another revision.

    Raises:
        InvalidInputError: one of them is no number.
        LeaseLostError: `token` is not that of the lease.
        ConversationConflictError: `revision` is not what was expected.
    """
    if token is not None and checked_number(token, "token", least=1) != lease:
        raise LeaseLostError(
            f"the lease with `token` {token} was released, or went to another owner; nothing was stored. Acquire it anew"
        )
    if expected is not None and checked_number(expected, "expected", least=0) != revision:
        raise ConversationConflictError(
            f"the conversation is at revision {revision}, `expected` was {expected}; nothing was stored. Read it again",
            expected=expected,
            found=revision,
        )


def check_incarnation(begun: int | None, found: int, ended: int = 0) -> None:
    """Refuse a turn that was begun on another life of the conversation.

    Args:
        begun: the life that the turn was begun in; None or 0 is not checked.
        found: the life that is there; 0: none.
        ended: the life whose time has run out and that was not removed yet: its turns may begin the next one.

    Raises:
        InvalidInputError: `begun` is no number.
        ConversationDeletedError: it is another life.
    """
    life = 0 if begun is None else checked_number(begun, "incarnation", least=0, most=LAST)
    if life and life not in (found, ended):
        raise ConversationDeletedError(
            "the conversation was deleted after this turn had begun (its `incarnation` is gone); nothing was stored"
        )


def check_target(is_there: bool) -> None:
    """Refuse to rename or fork onto a conversation that is there; ConversationConflictError."""
    if is_there:
        raise ConversationConflictError("there is a conversation `new_id`; nothing was changed. Give another, or delete it")


def kept_ttl(retention: Retention | None, stored: int | None = None) -> int | None:
    """The time to live after a write, in microseconds; `stored` is the one before. None: it never ends."""
    if retention is None or retention.ttl is None:
        return stored
    return None if retention.ttl >= _NO_END else retention.ttl // timedelta(microseconds=1)


def end_of(ttl: int | None, now: int) -> int | None:
    """When a conversation that is written to at `now` ends, in microseconds by the same clock; None: never."""
    return None if ttl is None else now + ttl


def is_over(ends: int | None, now: int) -> bool:
    """Whether its time has run out."""
    return ends is not None and ends <= now


def expires_of(updated: datetime, ttl: int | None) -> datetime | None:
    """When a conversation ends, as a list shows it: by the time of its last write."""
    return None if ttl is None else updated + timedelta(0, 0, ttl)


def excess_of(spoken: int, retention: Retention | None) -> int:
    """How many of the `spoken` entries are more than may be kept."""
    most = None if retention is None else retention.max_messages
    return 0 if most is None else max(0, spoken - most)


def trim_ends(cut: int, systems: int, summary: int) -> tuple[int, int, int, int]:
    """For each of LANES the sequence before which its entries go when a log is cut before `cut`.

    `systems` is the first sequence of the system messages in force, `summary` that of the newest summary; 0: none.
    """
    return cut, min(cut, systems or cut), cut, min(cut, summary or cut)
