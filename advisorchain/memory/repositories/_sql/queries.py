"""The statements that read: each gives rows from one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import CTE, ColumnElement, Executable, Select, Subquery, bindparam, case, func, or_, select, union_all

from advisorchain.memory.repositories._log_rules import DECIDING, LANES, SPOKEN, SUMMARY
from advisorchain.memory.repositories._sql.words import ALWAYS, COLUMNS, Compiled, Statement, Words, fixed, number


class Queries(Words):
    """Lists of conversations; and of one, rows of its numbers, a part, and an entry or nothing."""

    def old(self, *, bounded: bool) -> Statement:
        """The conversations of a prefix whose time has run out, or that were not written to since."""
        columns = [self._log.incarnation]
        return self._once(("old", bounded), lambda: self._list(columns, self._is_old(), bounded, behind=False))

    def listed(self, *, bounded: bool, behind: bool) -> Statement:
        """The conversations of a prefix, by id; `bounded`: the prefix has an end; `behind`: those after an id."""
        columns = [self._log[name] for name in ("id", "count", "created", "updated", "ttl")]
        return self._once(("list", bounded, behind), lambda: self._list(columns, self._is_there(), bounded, behind))

    def _list(self, columns: Sequence[Any], which: ColumnElement[bool], bounded: bool, behind: bool) -> Executable:
        # one bound at each end, so that the index gives just these rows
        start = self._log.id > bindparam("lowest") if behind else self._log.id >= bindparam("lowest")
        end = [self._log.id < bindparam("highest")] if bounded else []
        return select(*columns).where(start, *end, which).order_by(self._log.id).limit(number("most"))

    @Compiled
    def recall(self) -> Executable:
        """What a policy needs. The parts are the tail, the question before it, the systems in force, the newest summary."""
        log, entry = self._one_log(), self._tables.entries.alias("e").c
        before, newest = entry.sequence < number("before"), entry.sequence.desc()
        tail = self._part(entry, 0, log, SPOKEN).where(before).order_by(newest).limit(number("last"))
        cut = self._part(entry, 0, log, SPOKEN).with_only_columns(entry.sequence, entry.question).where(before)
        cut_off = cut.order_by(newest).limit(number("last")).subquery("cut").c
        asked, first = func.min(cut_off.question), func.min(cut_off.sequence)
        outside = select(case((asked < first, asked), else_=fixed(0))).scalar_subquery()
        question = self._part(entry, 1, log, SPOKEN).where(entry.sequence == outside)
        in_force = entry.sequence >= select(log.c.systems).scalar_subquery()
        systems = self._part(entry, 2, log, DECIDING).where(in_force)
        summary = self._part(entry, 3, log, SUMMARY).where(before).order_by(newest).limit(fixed(1))
        return self._beside(log, self._all([tail, question, systems, summary]))

    @Compiled
    def page(self) -> Executable:
        """Entries behind a sequence."""
        return self._page(newest_first=False)

    @Compiled
    def page_back(self) -> Executable:
        """Entries before a sequence, the newest first."""
        return self._page(newest_first=True)

    def _page(self, *, newest_first: bool) -> Executable:
        """At most a part of each lane is read."""
        log, entry = self._one_log(), self._tables.entries.alias("e").c
        which = entry.sequence < number("place") if newest_first else entry.sequence > number("place")
        order = entry.sequence.desc() if newest_first else entry.sequence.asc()
        parts = [self._part(entry, lane, log, lane).where(which).order_by(order) for lane in LANES]
        together = self._all([part.limit(number("most")) for part in parts])
        by = together.c.sequence.desc() if newest_first else together.c.sequence.asc()
        return self._beside(log, select(together).order_by(by).limit(number("most")).subquery("found"))

    def _one_log(self) -> CTE:
        log = self._logs.alias("c")
        there = or_(log.c.ends.is_(None), log.c.ends > self._now)
        found = select(log.c.revision, log.c.incarnation, log.c.count, log.c.systems).where(
            log.c.id == bindparam("id"), there
        )
        # SQL Server sees one moment only while nobody can change the row
        return found.with_hint(log, "WITH (REPEATABLEREAD)", "mssql").cte("log")

    def _part(self, entry: Any, part: int, log: CTE, lane: int) -> Select[Any]:
        mine = entry.conversation == select(log.c.incarnation).scalar_subquery(), entry.lane == fixed(lane)
        return select(fixed(part).label("part"), *(entry[name] for name in COLUMNS)).where(*mine)

    def _all(self, parts: Sequence[Select[Any]]) -> Subquery:
        each = [part.subquery(f"p{place}") for place, part in enumerate(parts)]  # some databases bound no bare part
        return union_all(*(select(part) for part in each)).subquery("parts")

    def _beside(self, log: CTE, found: Subquery) -> Executable:
        columns = log.c.revision, log.c.incarnation, log.c.count, *found.c
        return select(*columns).select_from(log.outerjoin(found, ALWAYS))
