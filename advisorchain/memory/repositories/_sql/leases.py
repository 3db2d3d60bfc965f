"""Leases in a SQL store: at most one row for each conversation id, whose key is the fencing token and always grows."""

from __future__ import annotations

from advisorchain.memory.repositories import _times
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.statements import Statements

_LONGEST = 1e9  # seconds; longer leases are as good as endless, and their ends would not fit


def acquire(link: Link, statements: Statements, conversation_id: str, owner: str, seconds: float) -> int | None:
    """Take or renew the lease; its token, or None: another owner has it."""
    given = {"id": conversation_id, "owner": owner, "length": _times.ticks(min(seconds, _LONGEST))}
    seen = link.rows(statements.lease, given)
    if seen and seen[0][2] and seen[0][1] != owner:  # as most who ask again and again find it
        return None
    link.begin()
    held = link.rows(statements.locked_lease, given) if seen else ()
    if held and held[0][2]:
        token, holder, _ = held[0]
        if holder != owner:
            return None
        link.run(statements.renew, {**given, "held": token})
        return int(token)
    if held:
        link.run(statements.release, {**given, "token": held[0][0]})
    link.run(statements.take, given)  # who comes second at once is told by the database, and looks again
    return int(link.rows(statements.lease, given)[0][0])


def remove_dead(link: Link, statements: Statements, most: int) -> None:
    """Remove leases whose holders died. They are read first: a search that deletes would lock those of the living, too."""
    dead = [{"id": name, "token": token} for name, token in link.rows(statements.dead_leases, {"most": most})]
    link.many(statements.release, dead)


def release(link: Link, statements: Statements, conversation_id: str, token: int) -> None:
    """Give the lease back, if this token is that of it."""
    link.run(statements.release, {"id": conversation_id, "token": token})
