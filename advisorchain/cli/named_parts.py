"""What the command's options name: models, advisors and stores."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, redirect_stdout
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import platformdirs

from advisorchain.errors import ConfigurationError, MissingExtraError, StorageError
from advisorchain.memory.repository import ChatMemoryRepository
from advisorchain.memory.urls import SCHEMES, open_repository

__all__ = ["default_memory", "load_model", "load_part", "open_chain", "open_memory", "users_code"]

_NOTHING: Final = object()
_SQLITE: Final = "sqlite:///"
_LOGIN: Final = re.compile(
    r"(?![/.~]|[a-z]:[\\/]).*:.*@", re.IGNORECASE | re.DOTALL
)  # in no path, unless it begins like one
_ARGUMENT: Final = re.compile(r"`(?:url(?:_or_client|_or_engine)?|source)`")
_MAKE_TABLES: Final = "call `await repository.create_tables()` once"
_MONGODB_MS: Final = (
    10_000  # to wait for a server, at a terminal; the store's own 30 seconds outlast the election of a primary
)
_PROVIDERS: Final = {"openai": "openai:gpt-5-mini", "anthropic": "anthropic:claude-haiku-5-5"}
_KEYS: Final = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_NOT_THEIRS: Final = (
    "<frozen ",
    str(Path(__file__).parent.parent) + os.sep,
    *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)


def default_memory() -> str:
    """The SQLite file in the user's data folder."""
    return str(platformdirs.user_data_path("advisorchain") / "conversations.db")


def open_memory(place: str | None, *, create: bool) -> AbstractAsyncContextManager[ChatMemoryRepository]:
    """The store at a path or URL; on leaving it is closed.

    Args:
        place: a URL when it holds "://", else the path of a SQLite file; None: the default place.
        create: make a file or tables that are not there, and for the default place its folder. Otherwise the default place,
            while there is nothing, is an empty store.

    Raises:
        StorageError: `create` is false and there is no such file, or the folder cannot be made.
        ConfigurationError: neither a path nor a URL that can be used. What was given is not shown: it may hold a password.
        MissingExtraError: what this kind of store needs is not installed.
    """
    if place is not None:
        _check_place(place)
    path = _file(default_memory() if place is None else place)
    if path is None:
        return _opened(place or "", create)
    if create and str(path) == default_memory():
        _make_folder(path.parent)
    elif not create and not path.exists():
        if place is None:
            return open_repository("memory://")  # nothing was ever said
        raise StorageError(f"`{path}` is not there; check --memory, or ADVISORCHAIN_MEMORY")
    return open_repository(f"{_SQLITE}{path}")


@asynccontextmanager
async def _opened(url: str, create: bool) -> AsyncIterator[ChatMemoryRepository]:
    """As `open_repository`; its errors name options of the command, not arguments of Python."""
    async with AsyncExitStack() as stack:
        try:
            repository = await stack.enter_async_context(open_repository(_impatient(url), create=create))
        except MissingExtraError:
            raise
        except ConfigurationError as error:
            raise ConfigurationError(_ARGUMENT.sub("`--memory`", str(error))) from error
        try:
            yield repository
        except StorageError as error:
            if _MAKE_TABLES not in str(error):
                raise
            raise type(error)(str(error).replace(_MAKE_TABLES, "`chat` or `import` with this --memory does it")) from error


def _impatient(url: str) -> str:
    """The URL, of MongoDB with a bound that somebody at a terminal waits for, unless it has its own."""
    place, asked, options = url.partition("?")
    if not place.lower().startswith("mongodb") or "serverselectiontimeoutms" in options.lower():
        return url
    path = "" if asked or "/" in place.partition("://")[2] else "/"
    return f"{url}{path}{'&' if options else '' if asked else '?'}serverSelectionTimeoutMS={_MONGODB_MS}"


def _check_place(place: str) -> None:
    if not place.strip():
        raise ConfigurationError("`--memory` is empty; give the path of a SQLite file, or a URL")
    scheme = place.partition(":")[0].partition("+")[0].lower()
    if "://" not in place and ((":" in place and scheme in SCHEMES) or _LOGIN.match(place)):
        raise ConfigurationError(
            "`--memory` is no URL, and looks too much like one to be a path: a URL has `://` behind its scheme, as in"
            " `postgresql://USER:PASSWORD@HOST/DATABASE`; put `./` before a path"
        )


def _file(place: str) -> Path | None:
    if "://" not in place:
        return Path(place).expanduser()
    scheme, path = place[: len(_SQLITE)].lower(), place[len(_SQLITE) :]
    return Path(path) if scheme == _SQLITE and path.strip() and path != ":memory:" else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder `{folder}` cannot be made: {error.strerror}; give another --memory") from error


def load_model(name: str, on_load: Callable[[float | None], None]) -> Any:
    """The model that `--model` names.

    Raises:
        ConfigurationError: it names none, or a provider's key is missing.
        ModelNotFoundError: there is no such file.
    """
    kind, separator, rest = name.partition(":")
    if kind in _PROVIDERS:
        return _provider_model(kind, rest.strip())
    if kind != "gguf":
        return load_part("--model", name, "gguf, gguf:FILE, openai:NAME, anthropic:NAME or module:attr")
    if separator and not rest:
        raise ConfigurationError("`--model` is `gguf:` without a file; give gguf:FILE, or gguf for the small model")
    from advisorchain.models.llama_cpp import LlamaCppModel  # needs the extra `local`, which other models do not

    return LlamaCppModel(rest or None, on_load=on_load)


def _provider_model(kind: str, name: str) -> Any:
    """A provider's model. Its key, and where its server is, are in the environment, as its SDK has it."""
    if not name:
        raise ConfigurationError(f"`--model` is `{kind}:` without a name; give {kind}:NAME, such as {_PROVIDERS[kind]}")
    make = _provider_class(kind)
    try:
        return make(name)
    except ConfigurationError as error:
        if os.environ.get(_KEYS[kind]):
            raise
        any_text = " (any text, where OPENAI_BASE_URL names a server that wants none)" if kind == "openai" else ""
        raise ConfigurationError(f"`--model` is `{kind}:{name}`, which needs a key; set {_KEYS[kind]}{any_text}") from error


def _provider_class(kind: str) -> type[Any]:
    if kind == "openai":
        from advisorchain.models.openai import OpenAIModel  # each needs the extra of its name

        return OpenAIModel
    from advisorchain.models.anthropic import AnthropicModel

    return AnthropicModel


def load_part(option: str, name: str, forms: str = "module:attr") -> Any:
    """The object at `module:attr`; of a class, an instance.

    Raises:
        ConfigurationError: there is none, or its module cannot be imported.
    """
    module_name, separator, path = name.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(f"`{option}` is `{name}`; give {forms}")
    module = _import(option, module_name)
    with users_code(f"`{option}` `{name}` cannot be made"):
        try:
            part = attrgetter(path)(module)
        except AttributeError:
            part = _NOTHING
        else:
            part = part() if isinstance(part, type) else part
    if part is _NOTHING:
        raise ConfigurationError(f"`{option}` is `{name}`, but `{module_name}` has no `{path}`")
    return part


@asynccontextmanager
async def open_chain(option: str, name: str) -> AsyncIterator[Any]:
    """What `module:attr` names: a chain or client; what a function gives, plain or async; what an async context manager
    does, which is left at the end.

    Raises:
        ConfigurationError: there is none, or the function needs arguments, or fails.
    """
    chain = load_part(option, name)
    async with AsyncExitStack() as stack:
        with users_code(f"`{option}` `{name}` cannot be made"):
            if not hasattr(chain, "stream") and callable(chain):
                chain = chain()
                if inspect.isawaitable(chain):
                    chain = await chain
            if isinstance(chain, AbstractAsyncContextManager) and not hasattr(chain, "stream"):
                chain = await stack.enter_async_context(chain)
        yield chain


@contextmanager
def users_code(fault: str) -> Iterator[None]:
    """Within it runs code of the user's: what it prints is no part of our output, and what it raises is one line.

    Raises:
        ConfigurationError: it raised something, also what would end the process.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{fault}: {_told(error)}") from error


def _import(option: str, module_name: str) -> Any:
    if (here := os.getcwd()) not in sys.path:  # where `python -m` would look too
        sys.path.insert(0, here)
    with users_code(f"`{module_name}` cannot be imported"):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not error.name or not f"{module_name}.".startswith(f"{error.name}."):
                raise
    raise ConfigurationError(f"`{option}` names the module `{module_name}`, which is not there")


def _told(error: BaseException) -> str:
    """Type, message and place of an error: the last line of the user's own code, else the last one."""
    if isinstance(error, SyntaxError):  # whose message would tell the place too, but the file without its folder
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)]
    place = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in (theirs or frames)[-1:])
    return f"{type(error).__name__}: {error}{place}"
