"""Conversations as JSON: a snapshot of one, and each entry of a log by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from advisorchain.errors import InvalidInputError, MessageError
from advisorchain.memory.repositories._log import checked_items
from advisorchain.memory.repository import Entry
from advisorchain.messages import dump_message, load_message

__all__ = ["dump_entry", "dump_snapshot", "load_entry", "load_snapshot"]

_FORMAT: Final = 1


def dump_snapshot(entries: Iterable[Entry]) -> dict[str, Any]:
    """A whole log as a dict of JSON values."""
    return {"format": _FORMAT, "entries": [dump_entry(entry) for entry in entries]}


def load_snapshot(snapshot: object) -> list[Entry]:
    """The log that `dump_snapshot` made a dict of.

    Raises:
        InvalidInputError: it is none.
    """
    entries = snapshot.get("entries") if isinstance(snapshot, Mapping) and snapshot.get("format") == _FORMAT else None
    if not isinstance(entries, list):
        raise InvalidInputError(f"`snapshot` is not what `ChatMemory.snapshot` returned (a dict of format {_FORMAT})")
    loaded = []
    for place, data in enumerate(entries):
        try:
            loaded.append(load_entry(data))
        except InvalidInputError as error:
            raise InvalidInputError(f"`snapshot` cannot be restored: entry {place}: {error}") from None
    return loaded


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
