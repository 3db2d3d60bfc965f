"""The statements of the SQL store, written once in SQLAlchemy's words and compiled once for each database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    Select,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Dialect

from advisorchain.memory.repositories._log_rules import DECIDING, GRACE, LANES, REPEATED, SPOKEN
from advisorchain.memory.repositories._sql.queries import Queries
from advisorchain.memory.repositories._sql.tables import Tables
from advisorchain.memory.repositories._sql.turn import WholeTurns
from advisorchain.memory.repositories._sql.words import COLUMNS, Compiled, fixed, number

WHOLE_TURNS: Final = ("postgresql",)  # by one statement that changes several tables


class Statements(Queries, WholeTurns):
    """All statements for one kind of database. With `clocked`, `now` is given instead of taken from the server's clock."""

    def __init__(self, dialect: Dialect, kind: str, tables: Tables, *, clocked: bool) -> None:
        super().__init__(dialect, kind, tables, clocked=clocked)
        self.locks_gaps = kind in ("mysql", "mariadb")  # a lock on a row that is not there keeps others from making it
        self.takes_whole_turns = kind in WHOLE_TURNS
        self.most_bytes: int | None = None  # of one statement, where the server has such a bound

    # --- conversations

    @Compiled
    def locked(self) -> Executable:
        """A conversation's row, which nobody else can change until the transaction ends."""
        return self._row().with_for_update().with_hint(self._logs, "WITH (UPDLOCK, ROWLOCK)", "mssql")

    @Compiled
    def found(self) -> Executable:
        """A conversation's row."""
        return self._row()

    def _row(self) -> Select[Any]:
        over = case((self._log.ends <= self._now, fixed(1)), else_=fixed(0))
        names = ("incarnation", "revision", "count", "spoken", "next_sequence", "systems", "question", "summary", "ttl")
        return select(*(self._log[name] for name in names), over).where(self._log.id == bindparam("id"))

    @Compiled
    def create(self) -> Executable:
        """A conversation without entries."""
        names = ("incarnation", "id", "revision", "count", "next_sequence", "systems", "question", "summary")
        given: dict[str, Any] = {name: bindparam(name) for name in (*names, "created", "updated", "spoken", "ttl")}
        return insert(self._logs).values(given | {"ends": self._now + number("ttl")})

    @Compiled
    def moved(self) -> Executable:
        """What a write changes in a conversation's row."""
        names = ("revision", "count", "next_sequence", "systems", "question", "summary", "updated", "spoken", "ttl")
        changes = {name: number(f"new_{name}") for name in names}
        return self._changed(changes | {"ends": self._now + number("new_ttl")})

    @Compiled
    def trimmed(self) -> Executable:
        """How many entries are left after older ones were removed."""
        return self._changed(
            {"count": self._log.count - number("removed"), "spoken": self._log.spoken - number("removed_spoken")}
        )

    @Compiled
    def rename(self) -> Executable:
        """Another id."""
        return self._changed({"id": bindparam("new_id")})

    def _changed(self, changes: Mapping[str, Any]) -> Executable:
        return update(self._logs).where(self._log.incarnation == bindparam("conversation")).values(changes)

    @Compiled
    def remove(self) -> Executable:
        """A conversation's row."""
        return delete(self._logs).where(self._log.incarnation == bindparam("conversation"))

    @Compiled
    def remove_old(self) -> Executable:
        """A conversation's row, if its time has run out or it was not written to since."""
        return delete(self._logs).where(self._log.incarnation == bindparam("conversation"), self._is_old())

    # --- entries and turns

    @Compiled
    def put(self) -> Executable:
        """An entry."""
        return insert(self._tables.entries)

    @Compiled
    def put_turn(self) -> Executable:
        """A turn id."""
        return insert(self._tables.turns)

    @Compiled
    def turns(self) -> Executable:
        """The turn ids of a conversation."""
        turns = self._tables.turns.c
        return select(turns.turn_id).where(turns.conversation == bindparam("conversation"))

    @Compiled
    def clear(self) -> Executable:
        """All entries of a conversation."""
        return delete(self._tables.entries).where(self._entry.conversation == bindparam("conversation"))

    @Compiled
    def clear_turns(self) -> Executable:
        """All turn ids of a conversation."""
        turns = self._tables.turns
        return delete(turns).where(turns.c.conversation == bindparam("conversation"))

    @Compiled
    def clear_lane(self) -> Executable:
        """The entries of a lane before a sequence."""
        mine = self._entry.conversation == bindparam("conversation"), self._entry.lane == bindparam("lane")
        return delete(self._tables.entries).where(*mine, self._entry.sequence < bindparam("highest"))

    @Compiled
    def spoken_at(self) -> Executable:
        """The sequence of the spoken entry that has so many before it."""
        found = self._lane(SPOKEN).with_only_columns(self._entry.sequence).order_by(self._entry.sequence)
        return found.limit(fixed(1)).offset(number("offset"))

    @Compiled
    def question_from(self) -> Executable:
        """The first user message from a sequence on."""
        asked = self._entry.sequence >= bindparam("lowest"), self._entry.question == self._entry.sequence
        found = self._lane(SPOKEN).with_only_columns(self._entry.sequence).where(*asked)
        return found.order_by(self._entry.sequence).limit(fixed(1))

    @Compiled
    def in_force(self) -> Executable:
        """The deciding entries from a sequence on."""
        return self._lane(DECIDING).where(self._entry.sequence >= bindparam("lowest")).order_by(self._entry.sequence)

    @Compiled
    def deciding(self) -> Executable:
        """The newest deciding entries before a sequence."""
        before = self._lane(DECIDING).where(self._entry.sequence < bindparam("before"))
        return before.order_by(self._entry.sequence.desc()).limit(number("most"))

    def _lane(self, lane: int) -> Select[Any]:
        mine = self._entry.conversation == bindparam("conversation"), self._entry.lane == fixed(lane)
        return select(*(self._entry[name] for name in COLUMNS)).where(*mine)

    # --- a copy

    @Compiled
    def copied(self) -> Executable:
        """Of each lane up to a sequence: how many entries, the last one, the newest question."""
        found = select(self._entry.lane, func.count(), func.max(self._entry.sequence), func.max(self._entry.question))
        return found.where(*self._up_to()).group_by(self._entry.lane)

    @Compiled
    def copy(self) -> Executable:
        """The entries up to a sequence, to another conversation."""
        names = [each.name for each in self._entry if each.name != "conversation"]
        source = select(cast(number("target"), BigInteger), *(self._entry[name] for name in names)).where(*self._up_to())
        return insert(self._tables.entries).from_select(["conversation", *names], source)

    @Compiled
    def copy_turns(self) -> Executable:
        """The turn ids of the entries up to a sequence."""
        source = select(cast(number("target"), BigInteger), self._entry.turn_id).where(*self._up_to()).distinct()
        return insert(self._tables.turns).from_select(["conversation", "turn_id"], source)

    @Compiled
    def repeated(self) -> Executable:
        """A deciding entry changes nothing any more."""
        which = self._entry.conversation == bindparam("target"), self._entry.lane == fixed(DECIDING)
        change = update(self._tables.entries).where(*which, self._entry.sequence == bindparam("place"))
        return change.values(lane=fixed(REPEATED))

    def _up_to(self) -> tuple[ColumnElement[bool], ...]:
        lanes = self._entry.lane.in_([fixed(lane) for lane in LANES])  # so that the key's order leads to the sequence
        return self._entry.conversation == bindparam("conversation"), lanes, self._entry.sequence <= number("at")

    # --- leases

    @Compiled
    def lease(self) -> Executable:
        """The lease on a conversation, and whether it still runs."""
        return self._lease()

    @Compiled
    def locked_lease(self) -> Executable:
        """The lease on a conversation, which nobody can take over or give back until the transaction ends."""
        return self._lease().with_for_update().with_hint(self._tables.leases, "WITH (UPDLOCK, ROWLOCK)", "mssql")

    def _lease(self) -> Select[Any]:
        leases = self._tables.leases.c
        runs = case((leases.expires > self._now, fixed(1)), else_=fixed(0))
        return select(leases.token, leases.owner, runs).where(leases.conversation_id == bindparam("id"))

    @Compiled
    def take(self) -> Executable:
        """A new lease."""
        until = self._now + number("length")
        new = insert(self._tables.leases).inline()  # the token is asked for where it is needed, on all databases alike
        return new.values(conversation_id=bindparam("id"), owner=bindparam("owner"), expires=until)

    @Compiled
    def renew(self) -> Executable:
        """A lease that runs on."""
        leases = self._tables.leases
        return update(leases).where(leases.c.token == bindparam("held")).values(expires=self._now + number("length"))

    @Compiled
    def dead_leases(self) -> Executable:
        """Leases that ended so long ago that no turn is held by them."""
        leases = self._tables.leases.c
        long_ago = leases.expires < self._now - fixed(GRACE)
        dead = select(leases.conversation_id, leases.token).where(long_ago)
        return dead.order_by(leases.conversation_id).limit(number("most"))  # SQL Server knows no limit without an order

    @Compiled
    def release(self) -> Executable:
        """No lease any more."""
        leases = self._tables.leases
        return delete(leases).where(leases.c.conversation_id == bindparam("id"), leases.c.token == bindparam("token"))
