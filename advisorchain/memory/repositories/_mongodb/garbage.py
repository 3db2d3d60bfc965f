"""Logs that nobody needs any more, and how they go, whatever process dies meanwhile.

The number of a log is noted before the write that makes it needless, or before a log is made that may never be needed. Its
entries are removed right after that write. A writer that was slow may have put back a few of them; what was noted an hour
ago is therefore removed once more, in passing and on `prune`.
"""

from __future__ import annotations

from typing import Any, Final

from advisorchain.memory.repositories._log_rules import GRACE
from advisorchain.memory.repositories._mongodb.client import MongoStore
from advisorchain.memory.repositories._mongodb.driver import DuplicateKeyError

_SWEPT: Final = 4  # notes that are looked at in passing


def doomed(store: MongoStore, key: Any, log: int) -> None:
    """Note that a log of the conversation whose document has this key is needless, or will be."""
    note = {"key": key, "at": store.ticks()}
    try:
        store.garbage.update_one({"_id": log}, {"$set": note}, upsert=True)
    except DuplicateKeyError:
        pass  # another process noted it at the same moment


def spare(store: MongoStore, log: int) -> None:
    """It is needed after all."""
    store.garbage.delete_one({"_id": log})


def drop(store: MongoStore, log: int) -> None:
    """Remove the entries of a log that was noted before."""
    store.entries.delete_many({"log": {"$eq": log}})
    sweep(store, _SWEPT)


def sweep(store: MongoStore, most: int) -> None:
    """Remove once more what was noted an hour ago or before, if it is not a conversation's log now."""
    for note in list(store.garbage.find({"at": {"$lt": store.ticks() - GRACE}}).limit(most)):
        found = store.conversations.find_one({"_id": note["key"]}, {"log": 1})
        if found is None or found["log"] != note["_id"]:
            store.entries.delete_many({"log": {"$eq": note["_id"]}})
        store.garbage.delete_one({"_id": note["_id"], "at": {"$eq": note["at"]}})
