"""Leases in MongoDB, with fencing tokens that grow.

A lease's document is taken first and numbered then: so its number is greater than any that was given while another had the
document. `acquire` ends by marking the conversation with the token. A writer reads the conversation first, then the lease,
and its write asks for a mark that is not above its own token: either it sees the newer lease, or its write fails.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from advisorchain.memory.repositories._log_rules import GRACE
from advisorchain.memory.repositories._mongodb.client import MongoStore
from advisorchain.memory.repositories._mongodb.driver import Document, DuplicateKeyError, ReturnDocument


def token_of(store: MongoStore, conversation_id: str) -> int | None:
    """The token of the lease on a conversation."""
    found = store.leases.find_one({"_id": conversation_id}, {"token": 1})
    return found["token"] if found else None


def acquire(store: MongoStore, conversation_id: str, owner: str, seconds: float) -> int | None:
    """Take or renew the lease; None: another owner has it."""
    for _ in store.tries():
        now = store.seconds()
        lease = store.leases.find_one({"_id": conversation_id})
        if lease is not None and lease["expires"] > now and lease["owner"] != owner:
            return None
        if lease is not None and lease["expires"] > now and lease["token"]:
            token = lease["token"] if _change(store, lease, {"expires": now + seconds}) else None
        else:
            token = _taken(store, conversation_id, lease, owner, now + seconds)
        if token is not None:
            store.conversations.update_one(
                {"conversation": {"$eq": conversation_id}, "fence": {"$lt": token}}, {"$set": {"fence": token}}
            )
            return int(token)
    return None  # not reached: the tries end with an error


def release(store: MongoStore, conversation_id: str, token: int) -> None:
    """Give the lease back, if it is still the one with this token."""
    if token:
        store.leases.delete_one({"_id": conversation_id, "token": {"$eq": token}})


def remove_dead(store: MongoStore) -> None:
    """Remove the leases of holders that died: no turn is held by what ended so long ago."""
    store.leases.delete_many({"expires": {"$lt": store.seconds() - GRACE / 1_000_000}})


def _taken(store: MongoStore, conversation_id: str, lease: Document | None, owner: str, expires: float) -> int | None:
    """The number of a new lease; None: another was faster."""
    hold = {"owner": owner, "token": 0, "expires": expires, "hold": uuid4().hex}
    if lease is not None:
        if not _change(store, lease, hold):
            return None
    elif not _inserted(store, {"_id": conversation_id, **hold}):
        return None
    token = _next_token(store)
    return token if _change(store, {"_id": conversation_id, **hold}, {"token": token}) else None


def _next_token(store: MongoStore) -> int:
    while True:
        try:
            found: Any = store.meta.find_one_and_update(
                {"_id": "token"}, {"$inc": {"value": 1}}, upsert=True, return_document=ReturnDocument.AFTER
            )
            return int(found["value"])
        except DuplicateKeyError:  # two began to count at once
            continue


def _inserted(store: MongoStore, lease: Document) -> bool:
    try:
        store.leases.insert_one(lease)
    except DuplicateKeyError:
        return False
    return True


def _change(store: MongoStore, lease: Document, values: Document) -> bool:
    """Change a lease that is still held as it was read."""
    still = {"_id": lease["_id"], "hold": {"$eq": lease["hold"]}}
    return bool(store.leases.update_one(still, {"$set": values}).matched_count)
