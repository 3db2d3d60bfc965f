"""What the laws are run and written with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from advisorchain.memory.repository import ChatMemoryRepository, Entry, all_entries
from advisorchain.messages import AssistantMessage, Message, UserMessage


async def check_law(name: str, law: Callable[[], Awaitable[None]]) -> None:
    """Try a law; AssertionError with its name when it is broken, or when anything else is raised."""
    try:
        await law()
    except AssertionError as error:
        raise AssertionError(f"law `{name}`: {error}") from None
    except Exception as error:
        raise AssertionError(f"law `{name}`: raised {type(error).__name__}: {error}") from error


def turn(number: int) -> list[Message]:
    """A question and its answer."""
    return [UserMessage(f"u{number}"), AssistantMessage(f"a{number}")]


async def fill(repository: ChatMemoryRepository, conversation_id: str, turns: int) -> None:
    """Append that many turns."""
    for number in range(1, turns + 1):
        await repository.append(conversation_id, turn(number), turn_id=f"t{number}")


async def stored(repository: ChatMemoryRepository, conversation_id: str) -> tuple[Entry, ...]:
    """All entries, read in small parts."""
    return tuple([entry async for entry in all_entries(repository, conversation_id, limit=7)])


def texts(entries: Iterable[Entry]) -> list[str]:
    """The text of each entry."""
    return [entry.message.text for entry in entries]


def check_same(found: object, expected: object, what: str) -> None:
    """Raise AssertionError when the two differ."""
    assert found == expected, f"{what}: expected {expected!r}, found {found!r}"


async def check_refused(
    error: type[Exception], what: str, call: Callable[..., Awaitable[object]], *given: Any, **named: Any
) -> Exception:
    """The error that the call raises; AssertionError when it raises none, or another."""
    try:
        await call(*given, **named)
    except error as raised:
        return raised
    except Exception as raised:
        raise AssertionError(f"{what}: expected {error.__name__}, found {type(raised).__name__}") from raised
    raise AssertionError(f"{what} was not refused with {error.__name__}")
