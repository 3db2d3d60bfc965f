"""The names of keys, and how an entry is written in one row: `sequence question created kind covers size turn_id json`.

The first three are the server's to know. `question` is the user message that the entry follows, or is; 0: none. `kind` is
`u` for a user message, `o` for another that is spoken, `m` for a summary, `s` and a digest of its content for a system one.
"""

from __future__ import annotations

import secrets
from binascii import crc_hqx
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from typing import Final, NamedTuple
from urllib.parse import quote
from zlib import crc32

from advisorchain.errors import StorageError
from advisorchain.memory.repositories._log_rules import Laned, moved
from advisorchain.memory.repositories._redis.lua import LANE
from advisorchain.memory.repositories._times import microseconds
from advisorchain.memory.repository import Entry
from advisorchain.messages import Message, SystemMessage, dump_message

__all__ = [
    "MOST_BYTES", "Keys", "Planned", "Slot", "all_slots", "digest", "keys_of", "new_life", "new_name", "payload", "planned",
    "same_slot", "systems_text",
]  # fmt: skip

MOST_BYTES: Final = 512 * 1024 * 1024 - 1024  # of a row; a server takes and gives no longer text
_SLOTS: Final = 64  # in which all conversations lie; a cluster spreads these over its nodes
_CLUSTER_SLOTS: Final = 16_384
_LONGEST: Final = 200  # characters of an id in a key; of a longer one its digest is taken


def _tags() -> tuple[str, ...]:
    """A number for each of our slots, so that they lie at equal distances among those of a cluster."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < _SLOTS:
        tag = str(number)
        found.setdefault(crc_hqx(tag.encode(), 0) % _CLUSTER_SLOTS * _SLOTS // _CLUSTER_SLOTS, tag)
        number += 1
    return tuple(found[place] for place in range(_SLOTS))


_TAGS: Final = _tags()


class Slot(NamedTuple):
    """The keys that the conversations of one slot have in common."""

    ids: str
    ends: str
    tokens: str


class Keys(NamedTuple):
    """The keys of one conversation; all lie in one slot of a cluster, with what they have in common with others."""

    head: str
    log: str
    turns: str
    ids: str
    ends: str
    lease: str
    gone: str
    tokens: str

    @property
    def body(self) -> tuple[str, ...]:
        """What most scripts need."""
        return self[:5]

    def staged(self, name: str) -> tuple[str, str]:
        """Where a log and its turns are put together before they take their place."""
        return f"{self.head}:new:{name}:log", f"{self.head}:new:{name}:turns"


def all_slots(prefix: str) -> list[Slot]:
    """What there is in each slot."""
    return [_slot(prefix, tag) for tag in _TAGS]


def _slot(prefix: str, tag: str) -> Slot:
    stem = f"{prefix}:{{{tag}}}::"
    return Slot(f"{stem}ids", f"{stem}ends", f"{stem}tokens")


def keys_of(prefix: str, conversation_id: str) -> Keys:
    """The keys of a conversation. The id cannot break out of its place: `:`, `{`, `}` and `%` are written as escapes."""
    tag = _TAGS[crc32(conversation_id.encode()) % _SLOTS]
    name = quote(conversation_id, safe="@")
    if len(name) > _LONGEST:
        name = f"%%{sha256(conversation_id.encode()).hexdigest()}"
    head = f"{prefix}:{{{tag}}}:{name}"
    ids, ends, tokens = _slot(prefix, tag)
    return Keys(head, f"{head}:log", f"{head}:turns", ids, ends, f"{head}:lease", f"{head}:gone", tokens)


def same_slot(one: Keys, other: Keys) -> bool:
    """Whether two conversations lie in one slot of a cluster."""
    return one.ids == other.ids


def new_life() -> int:
    """An incarnation that was never there; a double holds it."""
    return secrets.randbelow(2**53 - 1) + 1


def new_name() -> str:
    """The name of one call, by which a script knows it again."""
    return secrets.token_hex(8)


def digest(message: SystemMessage) -> str:
    """Of its content: equal for equal contents."""
    return blake2b(dump_message(SystemMessage(message.content)).encode(), digest_size=16).hexdigest()


def payload(message: Message, turn_id: str, kind: str = "message", covers: int | None = None) -> str:
    """The row of an entry without what only the server knows.

    Raises:
        StorageError: it is longer than Redis can keep.
    """
    text = dump_message(message)
    size = len(turn_id) if turn_id.isascii() else len(turn_id.encode())
    row = f"{_kind(message, kind)} {'-' if covers is None else covers} {size} {turn_id}{text}"
    if len(row) > MOST_BYTES // 4 and len(row.encode()) > MOST_BYTES:
        raise StorageError(
            f"a {message.role} message has more than {MOST_BYTES} bytes as JSON, the most that Redis can keep in one piece;"
            " nothing was stored. Put large content elsewhere and store its address"
        )
    return row


def _kind(message: Message, kind: str) -> str:
    if kind == "summary":
        return "m"
    if isinstance(message, SystemMessage):
        return f"s{digest(message)}"
    return "u" if message.role == "user" else "o"


class Planned(NamedTuple):
    """A whole log as it shall stand: rows and turn ids with their scores, and what the head says of them."""

    rows: list[tuple[int, str | bytes]]
    turns: dict[str | bytes, int]
    spoken: int
    systems: str
    question: int
    summary: int
    next_sequence: int


def planned(laned: Sequence[Laned], systems: Iterable[Entry]) -> Planned:
    """Entries with their lanes as rows."""
    rows: list[tuple[int, str | bytes]] = []
    turns: dict[str | bytes, int] = {}
    log = moved(laned)
    for (entry, lane), question in zip(laned, log.questions, strict=True):
        turns.setdefault(entry.turn_id, entry.sequence)
        rest = payload(entry.message, entry.turn_id, entry.kind, entry.covers)
        rows.append((lane * LANE + entry.sequence, f"{entry.sequence} {question} {microseconds(entry.created)} {rest}"))
    following = laned[-1].entry.sequence + 1
    return Planned(rows, turns, log.spoken, systems_text(systems), log.question, log.summary, following)


def systems_text(systems: Iterable[Entry]) -> str:
    """The systems in force as a head keeps them: sequences and digests."""
    return "".join(
        f"{entry.sequence}:{digest(entry.message)} " for entry in systems if isinstance(entry.message, SystemMessage)
    )
