"""What the laws are run and written with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from anyio.lowlevel import checkpoint

from advisorchain.memory.repository import ChatMemoryRepository, Entry, Page
from advisorchain.messages import AssistantMessage, Message, UserMessage

_T = TypeVar("_T")
_PARTS: Final = 1_000  # no list of a law has so many


class LacksMethodsError(AssertionError):
    """A law was not kept by a store that lacks methods, which another law tells: it may well be for that alone."""


async def check_law(name: str, law: Callable[[], Awaitable[None]]) -> None:
    """Try a law; AssertionError with its name when it is broken, or when anything else is raised."""
    __tracebackhide__ = True  # pytest shows the law itself
    try:
        await law()
    except Exception as error:
        first = _first(error)
        if isinstance(first, LacksMethodsError):
            raise LacksMethodsError(f"law `{name}`: {first}") from error
        if isinstance(first, AssertionError):
            raise AssertionError(f"law `{name}`: {first}") from error
        raise AssertionError(f"law `{name}`: raised {type(first).__name__}: {first}") from error


def _first(error: Exception) -> Exception:
    """What a task group wraps: the first broken law among its errors, else the first error."""
    if not isinstance(error, ExceptionGroup):
        return error
    found = [_first(inner) for inner in error.exceptions]
    return next((inner for inner in found if isinstance(inner, AssertionError)), found[0])


def turn(number: int) -> list[Message]:
    """A question and its answer."""
    return [UserMessage(f"u{number}"), AssistantMessage(f"a{number}")]


def said(first: int, last: int) -> list[str]:
    """The texts of the turns from `first` to `last`."""
    return [text for number in range(first, last + 1) for text in (f"u{number}", f"a{number}")]


async def fill(repository: ChatMemoryRepository, conversation_id: str, turns: int) -> None:
    """Append that many turns."""
    for number in range(1, turns + 1):
        await repository.append(conversation_id, turn(number), turn_id=f"t{number}")


async def stored(repository: ChatMemoryRepository, conversation_id: str, limit: int = 7) -> tuple[Entry, ...]:
    """All entries, read in small parts."""
    return tuple(await all_of(lambda cursor: repository.page(conversation_id, after=cursor, limit=limit), limit))


async def all_of(part: Callable[[str | None], Awaitable[Page[_T]]], limit: int, cursor: str | None = None) -> list[_T]:
    """What a list has in its parts of `limit`, from `cursor` on; AssertionError when it does not end."""
    found: list[_T] = []
    for _ in range(_PARTS):
        page = await part(cursor)
        assert len(page.items) <= limit, f"a page of {limit} has {len(page.items)} items"
        found += page.items
        cursor = page.next
        if cursor is None:
            return found
        await checkpoint()
    raise AssertionError(f"a list has not come to its end after {_PARTS} pages")


async def ids_in(repository: ChatMemoryRepository, prefix: str = "") -> list[str]:
    """The ids of all conversations that begin with `prefix`."""
    page = await repository.conversations(prefix=prefix, limit=10_000)
    return [row.conversation_id for row in page.items]


async def life_of(repository: ChatMemoryRepository, conversation_id: str) -> int:
    """Its incarnation."""
    return (await repository.recall(conversation_id, 0)).incarnation


def texts(entries: Iterable[Entry]) -> list[str]:
    """The text of each entry."""
    return [entry.message.text for entry in entries]


def check_numbered(entries: Sequence[Entry], what: str) -> None:
    """The first has the sequence 1, and they grow; there may be gaps."""
    numbers = [entry.sequence for entry in entries]
    assert numbers[:1] == [1], f"{what}: the first sequence is 1, found {_short(numbers)}"
    check_same(numbers, sorted(set(numbers)), f"{what}: sequences, which must grow")


def check_same(found: object, expected: object, what: str) -> None:
    """Raise AssertionError when the two differ."""
    assert found == expected, f"{what}: expected {_short(expected)}, found {_short(found)}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 600 else f"{shown[:400]} … {shown[-150:]}"


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
