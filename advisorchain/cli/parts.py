"""What the command's options name: models, advisors and stores."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import platformdirs

from advisorchain.errors import ConfigurationError, StorageError
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.memory.urls import open_repository

__all__ = ["default_memory", "load_model", "load_part", "open_memory", "plain"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def default_memory() -> str:
    """The SQLite file in the user's data folder."""
    return str(platformdirs.user_data_path("advisorchain") / "conversations.db")


def open_memory(place: str, *, create: bool) -> AbstractAsyncContextManager[ChatMemoryRepository]:
    """The store at a path or URL; on leaving it is closed.

    Args:
        place: a URL when it holds "://", else the path of a SQLite file.
        create: make a file that is not there, and for the default place its folder.

    Raises:
        StorageError: `create` is false and there is no such file, or the folder cannot be made.
        ConfigurationError: no such kind of URL.
    """
    if "://" in place:
        return open_repository(place)
    path = Path(place).expanduser()
    if create and place == default_memory():
        _make_folder(path.parent)
    elif not create and not path.exists():
        raise StorageError(f"`{path}` is not there; nothing was remembered yet, or give another --memory")
    return open_repository(f"sqlite:///{path}")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder `{folder}` cannot be made: {error.strerror}; give another --memory") from error


def load_model(name: str, on_load: Callable[[float | None], None]) -> Any:
    """The model that `--model` names.

    Raises:
        ConfigurationError: it names none.
        ModelNotFoundError: there is no such file.
    """
    kind, separator, file = name.partition(":")
    if kind != "gguf":
        return load_part("--model", name, "gguf, gguf:FILE or module:attr")
    if separator and not file:
        raise ConfigurationError("`--model` is `gguf:` without a file; give gguf:FILE, or gguf for the small model")
    from advisorchain.models.llama_cpp import LlamaCppModel  # needs the extra `local`, which other models do not

    return LlamaCppModel(file or None, on_load=on_load)


def load_part(option: str, name: str, forms: str = "module:attr") -> Any:
    """The object at `module:attr`; of a class, an instance.

    Raises:
        ConfigurationError: there is none, or its module cannot be imported.
    """
    module_name, separator, path = name.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(f"`{option}` is `{name}`; give {forms}")
    part = _import(option, module_name)
    for step in path.split("."):
        try:
            part = getattr(part, step)
        except AttributeError:
            raise ConfigurationError(f"`{option}` is `{name}`, but `{module_name}` has no `{path}`") from None
    return _made(option, name, part) if isinstance(part, type) else part


def _made(option: str, name: str, kind: type) -> Any:
    try:
        return kind()
    except Exception as error:
        raise ConfigurationError(f"`{option}` `{name}` cannot be made: {type(error).__name__}: {error}") from error


def _import(option: str, module_name: str) -> Any:
    if (here := os.getcwd()) not in sys.path:  # where `python -m` would look too
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigurationError(f"`{option}` names the module `{module_name}`, which is not there") from None
        raise ConfigurationError(f"`{module_name}` cannot be imported: {type(error).__name__}: {error}") from error


def plain(text: str) -> str:
    """`text` without control characters but tabs and line breaks: what a model says must not steer the terminal."""
    return _CONTROL.sub("�", text)
