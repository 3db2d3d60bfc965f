"""What every store of a log does in the same way: check its arguments, number entries, say which systems are in force."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple, NoReturn, TypeVar
from uuid import uuid4

from advisorchain._values import utf8
from advisorchain.errors import (
    ConversationConflictError,
    ConversationDeletedError,
    InvalidInputError,
    LeaseLostError,
    kind_of,
)
from advisorchain.exchange import MAX_ID_LENGTH
from advisorchain.memory.repository import Entry, checked_batch, in_force
from advisorchain.messages import Message, SystemMessage

_T = TypeVar("_T")

# A log is kept in lanes, so that reading the newest of one lane never walks over the others:
SPOKEN: Final = 0  # what a tail is made of
DECIDING: Final = 1  # the system messages of a batch that replaced those in force
REPEATED: Final = 2  # system messages that changed nothing
SUMMARY: Final = 3
LANES: Final = (SPOKEN, DECIDING, REPEATED, SUMMARY)

MOST: Final = 2**31 - 1  # of entries in an answer; every store can count that far
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


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


def systems_at(newest_first: Iterable[Entry]) -> tuple[Entry, ...]:
    """The systems in force where a log was cut; `newest_first` are the deciding entries before the cut.

    Only the newest two batches are looked at: the cut may have gone through the newest one, and what is left of it
    may repeat what the one before had said.
    """
    batches = (tuple(run)[::-1] for _, run in groupby(newest_first, key=_turn))
    newest = next(batches, ())
    before = next(batches, ())
    return newest if _deciding(before, newest) else before


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


def message_of(item: Message | Entry) -> Message:
    """The message itself, or that of an entry."""
    return item.message if isinstance(item, Entry) else item


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


def check_incarnation(begun: int | None, found: int) -> None:
    """Refuse a turn that was begun on another life of the conversation; ConversationDeletedError."""
    if begun and begun != found:
        raise ConversationDeletedError(
            "the conversation was deleted after this turn had begun (its `incarnation` is gone); nothing was stored"
        )


def checked_items(items: object) -> tuple[Message | Entry, ...]:
    """Messages and entries for `replace`; InvalidInputError when something else is among them."""
    if isinstance(items, str | bytes | dict) or not isinstance(items, Iterable):
        return checked_batch(items)  # says what is wrong
    taken = tuple(items)
    checked_batch([message_of(item) for item in taken])
    for place, item in enumerate(taken):
        if isinstance(item, Entry):
            _check_entry(item, f"messages[{place}]")
    return taken


def _check_entry(entry: Entry, name: str) -> None:
    checked_text(entry.turn_id, f"{name}.turn_id")
    if not isinstance(entry.created, datetime) or entry.created.utcoffset() is None:
        raise InvalidInputError(f"`{name}.created` is no time with a zone; give an aware datetime")
    try:
        entry.created.astimezone(UTC)
    except OverflowError:
        raise InvalidInputError(f"`{name}.created` lies outside the years 1 to 9999 in UTC") from None
    if entry.kind not in ("message", "summary"):
        raise InvalidInputError(f'`{name}.kind` is neither "message" nor "summary"')
    checked_number(entry.sequence, f"{name}.sequence", least=0)
    if entry.covers is not None:
        checked_number(entry.covers, f"{name}.covers", least=0)


def checked_text(value: object, name: str) -> str:
    """A turn id or an owner, under the rule of conversation ids; else InvalidInputError."""
    if not isinstance(value, str) or not value or value.isspace() or len(value) > MAX_ID_LENGTH or "\0" in value:
        raise InvalidInputError(f"`{name}` must be a text of 1 to {MAX_ID_LENGTH} characters, not blank and without U+0000")
    return _encodable(value, name)


def checked_prefix(value: object, name: str) -> str:
    """Any text that can be compared with ids; else InvalidInputError."""
    if not isinstance(value, str):
        raise InvalidInputError(f"`{name}` is {kind_of(value)}; give a text")
    return _encodable(value, name)


def _encodable(value: str, name: str) -> str:
    try:
        return utf8(value)
    except ValueError as error:
        raise InvalidInputError(f"`{name}`: {error}") from None


def checked_number(value: object, name: str, *, least: int, most: int = MOST) -> int:
    """A whole number from `least` on, brought down to `most`; else InvalidInputError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"`{name}` must be a whole number of at least {least}")
    return min(value, most)


def checked_seconds(value: object) -> float:
    """How long a lease shall last: a positive number; else InvalidInputError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise InvalidInputError("`seconds` must be a positive number, how long the lease lasts unless it is renewed")


def cursor(incarnation: int, sequence: int) -> str:
    """Where a page of entries ended."""
    return f"{incarnation}.{sequence}"


def position(after: object, incarnation: int) -> int | None:
    """The sequence that a cursor stands on; None when it belongs to a conversation that was deleted since.

    Raises:
        InvalidInputError: it is no cursor.
    """
    if not isinstance(after, str):
        _no_cursor()
    life, _, sequence = after.partition(".")
    if not (life.isascii() and life.isdigit() and sequence.isascii() and sequence.isdigit()) or len(after) > 40:
        _no_cursor()
    return min(int(sequence), 2**62) if int(life) == incarnation else None


def _no_cursor() -> NoReturn:
    raise InvalidInputError("`after` is no cursor of this list; give the `next` of the page before, or None")


def page_of(items: Sequence[_T], limit: int) -> tuple[tuple[_T, ...], bool]:
    """The first `limit` items, and whether there are more: a store reads one more than it gives."""
    return tuple(items[:limit]), len(items) > limit


def microseconds(moment: datetime) -> int:
    """An aware time as whole microseconds since 1970, UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(microseconds: int) -> datetime:
    """The aware time in UTC that `microseconds` was made of."""
    return _EPOCH + timedelta(0, 0, microseconds)


def now() -> datetime:
    """The time of a new entry."""
    return datetime.now(UTC)
