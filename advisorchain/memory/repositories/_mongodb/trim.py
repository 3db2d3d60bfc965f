"""Which entries of a log in MongoDB are too many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from advisorchain.memory.repositories._arguments import LAST
from advisorchain.memory.repositories._log_rules import SPOKEN, excess_of, trim_ends
from advisorchain.memory.repositories._mongodb.client import MongoStore
from advisorchain.memory.repositories._mongodb.driver import Document
from advisorchain.memory.repositories._mongodb.entries import between, newest, used_lanes
from advisorchain.memory.repositories._mongodb.head import Head
from advisorchain.memory.repository import Retention


def trimmed(store: MongoStore, before: Head, after: Head, retention: Retention | None) -> Head:
    """`after`, a log behind a write, without the turns that are too many. Costs what they cost.

    `before` is the log in the store; what was written stands in `after.pending`.
    """
    excess = excess_of(after.next_place - after.first_place, retention)
    cut = _cut(store, before, after, excess) if excess else None
    if cut is None:
        return after
    ends = trim_ends(cut["sequence"], after.systems, after.summary)
    starts = tuple(max(old, new) for old, new in zip(after.starts, ends, strict=True))
    gone = cut["place"] - after.first_place
    for lane in used_lanes(after):
        if lane != SPOKEN:
            gone += sum(1 for _ in between(store, before, lane, 0, starts[lane]))
            gone += sum(1 for document in after.pending if document["lane"] == lane and document["sequence"] < starts[lane])
    kept = tuple(document for document in after.pending if document["sequence"] >= starts[document["lane"]])
    return after._replace(starts=starts, first_place=cut["place"], size=after.size - gone, pending=kept)


def _cut(store: MongoStore, before: Head, after: Head, excess: int) -> Document | None:
    """The question before which all goes: the first that has enough before it, else the newest; None: there is none."""
    fresh = [document for document in after.pending if document["lane"] == SPOKEN]
    for document in chain(_old(store, before, excess), fresh):
        if document["place"] >= after.first_place + excess and document["question"] == document["sequence"]:
            return document
    if not after.question:
        return None
    written = [document for document in fresh if document["sequence"] == after.question]
    return written[0] if written else next(newest(store, before, SPOKEN, after.question + 1, 1), None)


def _old(store: MongoStore, before: Head, skip: int) -> Iterator[Document]:
    """Spoken entries in the store, without so many; a few at a time, since the first ones will do."""
    start, most = 0, 8
    while True:
        found = list(between(store, before, SPOKEN, start, LAST, most, skip))
        yield from found
        if len(found) < most:
            return
        start, skip, most = found[-1]["sequence"] + 1, 0, 2 * most
