"""The document of a conversation: what its log is, and the one place where a write takes effect.

A write is one atomic update of this document, which must still be at the revision that the writer read. It carries the
whole batch (`pending`), so a turn is there with its revision or not at all, on a standalone server as well as on a replica
set: no transaction is needed. The next write first copies that batch to documents of its own, which can be done any number
of times.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

from advisorchain.memory.repositories._arguments import LAST
from advisorchain.memory.repositories._log_rules import GRACE, LANES, is_over
from advisorchain.memory.repositories._mongodb.client import MongoStore
from advisorchain.memory.repositories._mongodb.driver import Document, DuplicateKeyError, ObjectId

_NEVER: Final = LAST  # as `ends`: so that one comparison tells whether a conversation is over


class Head(NamedTuple):
    """What is known about a log as a whole. Without `incarnation` there is none.

    Attributes:
        key: the document's own id, which stays when the conversation is renamed; None: there is no document.
        log: the number that its entries have in common; another one after each replace.
        size: how many entries there are.
        flushed: entries before this sequence are documents of their own, the others are in `pending`.
        starts: for each lane the sequence before which entries are gone.
        first_place, next_place: entries of the lane SPOKEN are counted; these are of the first, and of the next one.
        systems, in_force: the first of the system messages in force, and how many these are.
        question, summary: sequences of the newest; 0: none.
        ends: when its time is over, in microseconds.
    """

    key: Any = None
    incarnation: int = 0
    log: int = 0
    revision: int = 0
    size: int = 0
    next_sequence: int = 1
    flushed: int = 1
    starts: tuple[int, ...] = (0,) * len(LANES)
    first_place: int = 0
    next_place: int = 0
    systems: int = 0
    in_force: int = 0
    question: int = 0
    summary: int = 0
    ttl: int | None = None
    ends: int = _NEVER
    created: int = 0
    updated: int = 0
    pending: tuple[Document, ...] = ()

    def begun(self, created: int) -> Head:
        """The same, with an incarnation and a log of its own when it has none."""
        if self.incarnation:
            return self
        return self._replace(incarnation=new_number(), log=new_number(), created=created)


_FIELDS: Final = Head._fields[1:]


class Found(NamedTuple):
    """What stands under a conversation id.

    Attributes:
        document: as it stands; a conversation whose time has run out, or one that is not there yet, too.
        log: the conversation; without an incarnation when there is none.
        ended: the incarnation of one whose time has run out.
    """

    document: Head = Head()
    log: Head = Head()
    ended: int = 0


def new_number() -> int:
    """An incarnation, or the number of a log; below 2**53, which every program can count."""
    return secrets.randbelow(2**53 - 1) + 1


def find(store: MongoStore, conversation_id: str) -> Found:
    """What stands under the id, now."""
    document = store.conversations.find_one({"conversation": {"$eq": conversation_id}})
    if document is None:
        return Found()
    head = head_of(document)
    if not head.incarnation:
        return Found(head)
    if is_over(head.ends, store.ticks()):
        return Found(head, ended=head.incarnation)
    return Found(head, head)


def head_of(document: Document) -> Head:
    """A document as it was written by `commit`."""
    found = {name: document[name] for name in _FIELDS}
    found["starts"], found["pending"] = tuple(found["starts"]), tuple(found["pending"])
    return Head(document["_id"], **found)


def is_as_it_was(store: MongoStore, head: Head) -> bool:
    """Whether no entry of this log was removed since its head was read."""
    found = store.conversations.find_one({"_id": head.key}, {"log": 1, "starts": 1})
    return found is not None and found["log"] == head.log and tuple(found["starts"]) == head.starts


def commit(store: MongoStore, conversation_id: str, before: Head, after: Head, token: int | None = None) -> bool:
    """Put `after` in place of `before`; False when something else is there by now, or the lease went to another.

    `before` without a key is no document; one with `token` is then only prepared, for `acquire` to mark: also False.
    """
    if before.key is None:
        made = after if token is None else Head(ends=store.ticks() + GRACE)
        return _insert(store, conversation_id, made) and token is None
    still = {**_same(before), "conversation": {"$eq": conversation_id}}
    if token is not None:
        still["fence"] = {"$lte": token}
    return bool(store.conversations.update_one(still, {"$set": _values(after)}).matched_count)


def _insert(store: MongoStore, conversation_id: str, head: Head) -> bool:
    key = head.key or ObjectId()
    try:
        store.conversations.insert_one({"_id": key, "conversation": conversation_id, "fence": 0, **_values(head)})
    except DuplicateKeyError:
        return False
    return True


def remove(store: MongoStore, head: Head) -> bool:
    """Remove a document that nobody has written to since it was read; False when somebody has."""
    return bool(store.conversations.delete_one(_same(head)).deleted_count)


def move(store: MongoStore, conversation_id: str, head: Head, new_id: str) -> bool:
    """Give a document another conversation id; False when it has gone, or there is one with that id."""
    still = {"_id": head.key, "conversation": {"$eq": conversation_id}, "incarnation": {"$eq": head.incarnation}}
    try:  # a lease stays with its id, so its mark goes
        found = store.conversations.update_one(still, {"$set": {"conversation": new_id, "fence": 0}})
    except DuplicateKeyError:
        return False
    return bool(found.matched_count)


def _same(head: Head) -> Document:
    return {"_id": head.key, "incarnation": {"$eq": head.incarnation}, "revision": {"$eq": head.revision}}


def _values(head: Head) -> Document:
    values = {name: getattr(head, name) for name in _FIELDS}
    values["starts"], values["pending"] = list(head.starts), list(head.pending)
    return values
