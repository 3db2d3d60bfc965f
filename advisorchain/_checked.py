"""Arguments of the ready advisors, checked when an advisor is made."""

from __future__ import annotations

import math

from advisorchain.errors import ConfigurationError

__all__ = ["at_least_one", "checked_seconds"]


def checked_seconds(name: str, value: object, *, zero: bool = False) -> float:
    """`value` itself, a time in seconds.

    Raises:
        ConfigurationError: it is no finite number above 0 (or 0, where `zero` is allowed).
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        raise ConfigurationError(f"`{name}` is {value!r}; give seconds, {'0 or more' if zero else 'more than 0'}")
    return float(value)  # type: ignore[arg-type]


def at_least_one(name: str, value: object) -> int:
    """`value` itself, a whole number above 0.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"`{name}` is {value!r}; give a whole number, 1 or more")
    return value
