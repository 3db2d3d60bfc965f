"""The name and the order of an advisor that sets none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

__all__ = ["Named"]


class _Default:
    """A value for advisors that set none. It is not there on the class, or a dataclass would take it for a default."""

    def __init__(self, made: Callable[[object], object]) -> None:
        self._made = made

    def __get__(self, advisor: object, kind: type) -> object:
        if advisor is None:
            raise AttributeError("set on each advisor, not on the class")
        return self._made(advisor)


class Named:
    """Has a `name`, that of its class unless it sets one, and an `order`, 0 unless it sets one."""

    if TYPE_CHECKING:
        name: str
        order: int
    else:
        name = _Default(lambda advisor: type(advisor).__name__)
        order = _Default(lambda advisor: 0)
