"""What the methods of every store are given, checked in the same way, and the pages that they give back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeVar

from advisorchain._checked import checked_seconds
from advisorchain._values import utf8
from advisorchain.errors import InvalidInputError, kind_of
from advisorchain.exchange import MAX_ID_LENGTH
from advisorchain.memory.repositories._times import microseconds
from advisorchain.memory.repository import Entry, Retention, checked_batch
from advisorchain.messages import Message

_T = TypeVar("_T")

MOST: Final = 2**31 - 1  # of entries in an answer; every store can count that far
LAST: Final = 2**62  # behind every sequence and incarnation


def message_of(item: Message | Entry) -> Message:
    """The message itself, or that of an entry."""
    return item.message if isinstance(item, Entry) else item


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


def checked_lease(seconds: object) -> float:
    """How long a lease shall last, a positive number of seconds; else InvalidInputError."""
    return checked_seconds("seconds", seconds, raised=InvalidInputError)


def checked_place(value: object, name: str) -> int | None:
    """A sequence to cut at, or None; else InvalidInputError."""
    return None if value is None else checked_number(value, name, least=0, most=LAST)


def checked_time(value: object, name: str) -> int | None:
    """An aware time in microseconds since 1970, or None; else InvalidInputError."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInputError(f"`{name}` is no time with a zone; give an aware datetime, or None")
    return microseconds(value)


def checked_retention(value: object) -> Retention | None:
    """What a write keeps, or None; else InvalidInputError."""
    if value is None or isinstance(value, Retention):
        return value
    raise InvalidInputError(f"`retention` is {kind_of(value)}; give a `Retention`, or None")


def behind(prefix: str) -> str | None:
    """The first text that is behind all that begin with `prefix`; None: there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no text


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
    return min(int(sequence), LAST) if int(life) == incarnation else None


def _no_cursor() -> NoReturn:
    raise InvalidInputError("`after` is no cursor of this list; give the `next` of the page before, or None")


def page_of(items: Sequence[_T], limit: int) -> tuple[tuple[_T, ...], bool]:
    """The first `limit` items, and whether there are more: a store reads one more than it gives."""
    return tuple(items[:limit]), len(items) > limit
