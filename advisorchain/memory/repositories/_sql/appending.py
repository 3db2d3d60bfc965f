"""Appending to a conversation: a whole turn in one statement where the database can, else a transaction of a few."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Engine

from advisorchain.memory.repositories import _log_rules, _times
from advisorchain.memory.repositories._arguments import LAST
from advisorchain.memory.repositories._sql.errors import is_duplicate
from advisorchain.memory.repositories._sql.link import Link
from advisorchain.memory.repositories._sql.reading import EntryReader
from advisorchain.memory.repositories._sql.rows import Log, first_of
from advisorchain.memory.repositories._sql.statements import Statements
from advisorchain.memory.repositories._sql.turn import Form
from advisorchain.memory.repositories._sql.work import Undo
from advisorchain.memory.repository import Retention
from advisorchain.messages import Message, dump_message

_WHOLE: Final = 16  # messages in one statement; each number of them is a text of its own


class Append(NamedTuple):
    """What shall be appended, and under which conditions."""

    conversation_id: str
    batch: tuple[Message, ...]
    turn_id: str
    expected: int | None
    incarnation: int | None
    token: int | None
    retention: Retention | None

    def run(self, link: Link, statements: Statements, known: EntryReader, engine: Engine) -> int:
        """The new revision, or the one that is there when the turn is."""
        if statements.takes_whole_turns and self._is_plain():
            revision = self._whole(link, statements, engine)
            if revision is not None:
                return revision
        return self._by_parts(link, statements, known, engine)

    # --- in one statement

    def _is_plain(self) -> bool:
        """Whether the turn goes behind what is there and changes nothing of it."""
        roles = [message.role for message in self.batch]
        given = (self.expected, self.incarnation, self.token)
        return (
            len(roles) <= _WHOLE
            and "system" not in roles
            and (roles[0] == "user" or "user" not in roles)
            and (self.retention is None or self.retention.max_messages is None)
            and all(each is None or (each.__class__ is int and 0 <= each < LAST) for each in given)
        )

    def _whole(self, link: Link, statements: Statements, engine: Engine) -> int | None:
        """The new revision; None: something is in the way, and what it is shows in a transaction."""
        places, asked = [], 0
        for place, message in enumerate(self.batch):
            asked = place if message.role == "user" else asked
            places.append(asked)
        keeps = self.retention is not None and self.retention.ttl is not None
        form = Form(
            len(self.batch),
            self.batch[0].role == "user",
            self.expected is not None,
            bool(self.incarnation),
            self.token is not None,
            keeps,
        )
        given: dict[str, Any] = {f"message{place}": dump_message(message) for place, message in enumerate(self.batch)}
        given |= {f"asked{place}": asked for place, asked in enumerate(places)}
        given |= {"id": self.conversation_id, "turn_id": self.turn_id, "updated": _times.microseconds(_times.now())}
        given |= {"asked": asked, "expected": self.expected, "begun": self.incarnation, "token": self.token}
        try:
            rows = link.rows(statements.turn(form), {**given, "ttl": _log_rules.kept_ttl(self.retention)})
        except Exception as error:
            if is_duplicate(engine, error):  # the turn is there
                return None
            raise
        return int(rows[0][0]) if rows else None

    # --- in a transaction

    def _by_parts(self, link: Link, statements: Statements, known: EntryReader, engine: Engine) -> int:
        log, lease = self._begun(link, statements, known)
        found, created = log.found, _times.now()
        ended = found.incarnation if found.is_over else 0
        _log_rules.check_incarnation(self.incarnation, found.incarnation if found.is_there else 0, ended)
        if found.is_there:
            self._put_turn(log, engine)
        _log_rules.check_writer(
            expected=self.expected, revision=found.revision if found.is_there else 0, lease=lease, token=self.token
        )
        if not found.is_there:
            log.create(created)
            log.put_turn(self.turn_id)
        speaks = any(message.role == "system" for message in self.batch)
        before = log.systems() if speaks else ()
        rows, systems = _log_rules.numbered(self.batch, log.found.next_sequence, self.turn_id, created, before)
        return log.add(rows, first_of(systems) if speaks else log.found.systems, created, self.retention)

    def _begun(self, link: Link, statements: Statements, known: EntryReader) -> tuple[Log, int | None]:
        """A transaction that holds the locks on the lease, if one is spoken of, and on the conversation."""
        log = Log(link, statements, known, self.conversation_id)
        link.begin()
        lease = self._lease(link, statements)
        if not log.lock().incarnation and statements.locks_gaps:
            link.undo()
            link.begin()
            lease = self._lease(link, statements)
        return log, lease

    def _lease(self, link: Link, statements: Statements) -> int | None:
        if self.token is None:
            return None
        rows = link.rows(statements.locked_lease, {"id": self.conversation_id})
        return rows[0][0] if rows else None

    def _put_turn(self, log: Log, engine: Engine) -> None:
        """Note the turn id; ends the unit of work when it is there."""
        try:
            log.put_turn(self.turn_id)
        except Exception as error:
            if is_duplicate(engine, error):
                raise Undo(log.found.revision) from None
            raise
