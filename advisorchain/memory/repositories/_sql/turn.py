"""A whole turn in one statement, where the database changes several tables by one (PostgreSQL)."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Executable, bindparam, exists, insert, select, update, values
from sqlalchemy.sql.expression import column

from advisorchain.memory.repositories._log_rules import SPOKEN
from advisorchain.memory.repositories._sql.words import ALWAYS, Statement, Words, fixed, number


class Form(NamedTuple):
    """What of an append changes the text of its statement."""

    size: int
    asks: bool  # its first message is a user message
    expects: bool
    begun: bool
    holds: bool  # a lease
    keeps: bool  # a time to live of its own


class WholeTurns(Words):
    """The statement that appends a turn: it updates the conversation's row, and puts what depends on its new numbers."""

    def turn(self, form: Form) -> Statement:
        """Append a turn to a conversation that is there; gives the new revision, or nothing where the turn does not fit."""
        return self._once(form, lambda: self._turn(form))

    def _turn(self, form: Form) -> Executable:
        log = self._moved_by(form)
        turn_id = bindparam("turn_id", type_=self._entry.turn_id.type)
        turn = insert(self._tables.turns).from_select(["conversation", "turn_id"], select(log.c.incarnation, turn_id))
        batch = self._batch(form.size)
        entry = {
            "conversation": log.c.incarnation,
            "lane": fixed(SPOKEN),
            "sequence": log.c.first + batch.c.place,
            "turn_id": turn_id,
            "created": number("updated"),
            "question": log.c.first + batch.c.asked if form.asks else log.c.question,
            "message": batch.c.message,
        }
        source = select(*entry.values()).select_from(log.join(batch, ALWAYS))
        put = insert(self._tables.entries).from_select(list(entry), source)
        return select(log.c.revision).add_cte(turn.cte("turn"), put.cte("put"))

    def _moved_by(self, form: Form) -> Any:
        """The update of the conversation's row, which waits for its lock and then looks at the row as it is."""
        log, ttl = self._log, number("ttl") if form.keeps else self._log.ttl
        growth = ("revision", 1), ("count", form.size), ("spoken", form.size), ("next_sequence", form.size)
        changes: dict[str, Any] = {name: log[name] + fixed(size) for name, size in growth}
        changes |= {"updated": number("updated"), "ttl": ttl, "ends": self._now + ttl}
        if form.asks:
            changes["question"] = log.next_sequence + number("asked")
        first = (log.next_sequence - fixed(form.size)).label("first")
        moved = update(self._logs).where(*self._fits(form)).values(changes)
        return moved.returning(log.incarnation, log.revision, log.question, first).cte("log")

    def _fits(self, form: Form) -> list[ColumnElement[bool]]:
        which = [self._log.id == bindparam("id"), self._is_there()]
        if form.expects:
            which.append(self._log.revision == number("expected"))
        if form.begun:
            which.append(self._log.incarnation == number("begun"))
        if form.holds:
            leases = self._tables.leases.c
            held = select(leases.token).where(leases.conversation_id == bindparam("id"), leases.token == number("token"))
            which.append(exists(select(held.with_for_update().cte("lease").c.token)))
        return which

    def _batch(self, size: int) -> Any:
        rows: list[Any] = [(fixed(place), number(f"asked{place}"), bindparam(f"message{place}")) for place in range(size)]
        message = column("message", self._entry.message.type)
        return values(column("place", BigInteger), column("asked", BigInteger), message, name="batch").data(rows)
