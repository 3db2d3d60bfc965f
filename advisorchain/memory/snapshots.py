"""Conversations as JSON: a snapshot of one, and each entry of a log by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from advisorchain.errors import InvalidInputError, MessageError
from advisorchain.memory.repositories._arguments import checked_items
from advisorchain.memory.repository import ChatMemoryRepository, Entry
from advisorchain.messages import dump_message, load_message

__all__ = ["dump_entry", "dump_snapshot", "load_entry", "load_snapshot", "load_ttl", "ttl_of"]

_FORMAT: Final = 1


def dump_snapshot(entries: Iterable[Entry], ttl: timedelta | None) -> dict[str, Any]:
    """A whole log, and after what time it ends, as a dict of JSON values."""
    seconds = None if ttl is None else ttl.total_seconds()
    return {"format": _FORMAT, "ttl": seconds, "entries": [dump_entry(entry) for entry in entries]}


def load_snapshot(snapshot: object) -> tuple[list[Entry], timedelta | None]:
    """The log that `dump_snapshot` made a dict of, and its time to live (see `load_ttl`).

    Raises:
        InvalidInputError: it is none.
    """
    entries = snapshot.get("entries") if isinstance(snapshot, Mapping) and snapshot.get("format") == _FORMAT else None
    if not isinstance(entries, list):
        raise InvalidInputError(f"`snapshot` is not what `ChatMemory.snapshot` returned (a dict of format {_FORMAT})")
    assert isinstance(snapshot, Mapping)
    loaded = []
    for place, data in enumerate(entries):
        try:
            loaded.append(load_entry(data))
        except InvalidInputError as error:
            raise InvalidInputError(f"`snapshot` cannot be restored: entry {place}: {error}") from None
    try:
        return loaded, load_ttl(snapshot)
    except InvalidInputError as error:
        raise InvalidInputError(f"`snapshot` cannot be restored: {error}") from None


def load_ttl(data: Mapping[str, Any]) -> timedelta | None:
    """The `ttl` of a retention: what `ttl` says in seconds; `timedelta.max` where it is null: it had no end.

    None: there is none, since the dict was made before there were any; whatever is stored stays.

    Raises:
        InvalidInputError: it is no time above zero.
    """
    if "ttl" not in data:
        return None
    seconds = data["ttl"]
    if seconds is None:
        return timedelta.max
    try:
        ttl = timedelta(seconds=seconds) if not isinstance(seconds, bool) else timedelta(0)
    except (TypeError, ValueError, OverflowError):
        ttl = timedelta(0)
    if ttl <= timedelta(0):
        raise InvalidInputError("`ttl` must be a number of seconds above 0, or null")
    return ttl


async def ttl_of(repository: ChatMemoryRepository, conversation_id: str) -> timedelta | None:
    """For how long the store keeps a conversation after its last write; None: it has no end, or is not there."""
    if callable(stored_id := getattr(repository, "stored_id", None)):  # around another one, which may list other ids
        return await ttl_of(repository.repository, stored_id(conversation_id))  # type: ignore[attr-defined]
    found = await repository.conversations(prefix=conversation_id, limit=1)  # of all that begin so, the id itself is first
    for one in found.items:
        if one.conversation_id == conversation_id and one.expires is not None:
            return one.expires - one.updated
    return None


def dump_entry(entry: Entry) -> dict[str, Any]:
    """An entry as a dict of JSON values."""
    return {
        "sequence": entry.sequence,
        "turn_id": entry.turn_id,
        "kind": entry.kind,
        "covers": entry.covers,
        "created": entry.created.isoformat(),
        "message": json.loads(dump_message(entry.message)),
    }


def load_entry(data: Any) -> Entry:
    """The entry that `dump_entry` made a dict of; what else is in the dict does not matter.

    Raises:
        InvalidInputError: it is none, or one that no store can keep. The text shows nothing of what was said.
    """
    try:
        entry = Entry(
            sequence=data["sequence"],
            turn_id=data["turn_id"],
            message=load_message(data["message"]),
            created=datetime.fromisoformat(data["created"]),
            kind=data["kind"],
            covers=data["covers"],
        )
        checked_items((entry,))
    except KeyError as error:
        reason = f"`{error.args[0]}` is missing"
    except (MessageError, InvalidInputError) as error:
        reason = str(error).replace("messages[0].", "")
    except (TypeError, ValueError):  # whose texts would show what was there
        reason = "it is no entry, or `created` is no time"
    else:
        return entry
    raise InvalidInputError(reason)
