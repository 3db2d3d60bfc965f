"""Arguments that many parts take, checked in one way when a part is made or asked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of

__all__ = ["checked_list", "checked_one_of", "checked_seconds", "checked_timeout", "checked_whole"]

_W = TypeVar("_W", bound=str)


def checked_seconds(name: str, value: object, *, zero: bool = False, raised: type[ValueError] = ConfigurationError) -> float:
    """`value` itself, a time in seconds.

    Raises:
        ConfigurationError: it is no finite number above 0 (or 0, where `zero` is allowed); or `raised` in its place.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        raise raised(f"`{name}` is {_shown(value)}; give seconds, {'0 or more' if zero else 'more than 0'}")
    return float(value)  # type: ignore[arg-type]


def checked_whole(name: str, value: object, *, least: int = 1) -> int:
    """`value` itself, a whole number from `least` on.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"`{name}` is {_shown(value)}; give a whole number, {least} or more")
    return value


def checked_timeout(value: object) -> float | None:
    """The `timeout` of a call or stream, in seconds; None: there is none.

    Raises:
        InvalidInputError: it is neither.
    """
    return None if value is None else checked_seconds("timeout", value, zero=True, raised=InvalidInputError)


def checked_list(name: str, value: object, of: str, raised: type[ValueError] = InvalidInputError) -> tuple[Any, ...]:
    """What is in `value`, where several things are to be given.

    Raises:
        InvalidInputError: it is one thing, a text for example; or `raised` in its place.
    """
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(value)
    raise raised(f"`{name}` is {kind_of(value)}; give a list of {of}")


def checked_one_of(name: str, value: object, words: tuple[_W, ...]) -> _W:
    """`value` itself, one of these words.

    Raises:
        ConfigurationError: it is none of them.
    """
    for word in words:
        if value == word:
            return word
    raise ConfigurationError(f"`{name}` is {_shown(value)}; give {' or '.join(repr(word) for word in words)}")


def _shown(value: object) -> str:
    """Numbers and short words as they are; of anything else the kind: it may be long, or a secret in the wrong place."""
    return repr(value) if value is None or isinstance(value, int | float) or _is_word(value) else kind_of(value)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 40
