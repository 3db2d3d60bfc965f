"""Names of a package that are imported when they are first asked for: they need a package of their own, or time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy"]


def lazy(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package.

    Args:
        package: its name.
        modules: of each such name, the module in the package that has it.
    """
    names = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:  # noqa: N807  it becomes the package's own
        if name not in modules:
            raise AttributeError(f"module `{package}` has no `{name}`")
        value = names[name] = getattr(import_module(f"{package}.{modules[name]}"), name)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*names, *modules})

    return __getattr__, __dir__
