"""The server as one repository sees it: its keys, its clock, what it may be asked with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from advisorchain.errors import ConfigurationError, ConversationConflictError, kind_of
from advisorchain.exchange import checked_conversation_id
from advisorchain.memory.repositories import _log_rules, _times
from advisorchain.memory.repositories._arguments import LAST, checked_number, checked_retention
from advisorchain.memory.repositories._redis.clients import Clients, Value
from advisorchain.memory.repositories._redis.entries import EntryReader
from advisorchain.memory.repositories._redis.lua import DELETED, LANE, LEASE_LOST, OCCUPIED, Script
from advisorchain.memory.repositories._redis.rows import Keys, keys_of

__all__ = ["LAST_IN_LANE", "Server", "kept", "life", "says", "whole", "written"]

LAST_IN_LANE: Final = LANE - 1  # behind every sequence


class Server:
    """What the methods of a repository have in common.

    Attributes:
        clients: run scripts.
        entries: makes entries of rows.
        shown: the address, without a password.
    """

    def __init__(self, clients: Clients, shown: str, prefix: str, clock: Callable[[], float] | None) -> None:
        if not isinstance(prefix, str) or not prefix.strip() or {"{", "}", "\0"} & set(prefix):
            found = kind_of(prefix) if not isinstance(prefix, str) else "blank, or has a brace or U+0000"
            raise ConfigurationError(f"`prefix` is {found}; give a text that keys may begin with, such as `advisorchain`")
        self.clients = clients
        self.entries = EntryReader(shown)
        self.prefix = prefix
        self.shown = shown
        self._clock = clock
        self.run = clients.run

    def keys(self, conversation_id: str) -> Keys:
        """The keys of a conversation; ConversationIdError when the id is none."""
        return keys_of(self.prefix, checked_conversation_id(conversation_id))

    def now(self) -> str:
        """What the clock that was given tells, in microseconds; empty for the server's own."""
        return "" if self._clock is None else str(_times.ticks(self._clock()))

    async def ask(self, script: Script, keys: Sequence[str], *given: Value) -> Any:
        """What a script answers that wants the time first."""
        return await self.clients.run(script, keys, [self.now(), *given])

    def unsettled(self) -> ConversationConflictError:
        """The error where a conversation is written to again and again while this writer is at work."""
        return ConversationConflictError(
            f"a conversation on `{self.shown}` was written to by others each time it was read; nothing was stored. Try again"
        )


def written(answer: Any, *, expected: int | None = None, token: int | None = None) -> int:
    """What a script that writes answered; else the error that it means."""
    if isinstance(answer, int):
        return answer
    code = answer[0]
    if code == DELETED:
        _log_rules.check_incarnation(1, 0)
    if code == OCCUPIED:
        _log_rules.check_target(True)
    lease, found = (None, expected) if code == LEASE_LOST else (token, answer[-1])
    _log_rules.check_writer(expected=expected, revision=found or 0, lease=lease, token=token)
    raise AssertionError(f"a script answered {answer}")


def says(answer: Any, code: int) -> bool:
    """Whether a script refused with this code."""
    return not isinstance(answer, int) and bool(answer[0] == code)


def life(incarnation: object) -> str:
    """An incarnation to compare with; empty: any will do. InvalidInputError when it is none."""
    number = 0 if incarnation is None else checked_number(incarnation, "incarnation", least=0, most=LAST)
    return str(number) if number else ""


def whole(value: object, name: str, least: int) -> str:
    """A number to compare with; empty: any will do. InvalidInputError when it is none."""
    return "" if value is None else str(checked_number(value, name, least=least, most=LAST))


def kept(retention: object) -> tuple[str, str]:
    """As scripts take them: the time to live in microseconds (empty: as it is; "0": none), `max_messages` (empty: any)."""
    given = checked_retention(retention)
    if given is None:
        return "", ""
    ttl = "" if given.ttl is None else str(_log_rules.kept_ttl(given) or 0)
    return ttl, "" if given.max_messages is None else str(given.max_messages)
