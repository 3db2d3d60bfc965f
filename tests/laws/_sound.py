"""A repository in memory that keeps all laws, to be broken in one place by a subclass."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from advisorchain.errors import StorageError
from advisorchain.memory.repositories._memory_log import MemoryLog
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import Entry
from advisorchain.testing.repository_laws import Means


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def wait(self, seconds: float) -> None:
        self.now += seconds


class Sound:
    """One of any number of repositories on a store, with a connection of its own that may break."""

    append: Callable[..., Coroutine[Any, Any, Any]]
    recall: Callable[..., Coroutine[Any, Any, Any]]
    page: Callable[..., Coroutine[Any, Any, Any]]
    replace: Callable[..., Coroutine[Any, Any, Any]]
    delete: Callable[..., Coroutine[Any, Any, Any]]
    rename: Callable[..., Coroutine[Any, Any, Any]]
    fork: Callable[..., Coroutine[Any, Any, Any]]
    prune: Callable[..., Coroutine[Any, Any, Any]]
    conversations: Callable[..., Coroutine[Any, Any, Any]]
    acquire: Callable[..., Coroutine[Any, Any, Any]]
    release: Callable[..., Coroutine[Any, Any, Any]]

    def __init__(self, store: InMemoryChatMemoryRepository, *, is_another: bool = False) -> None:
        self.store = store
        self.is_another = is_another
        self.is_cut_off = self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True

    def check_connected(self) -> None:
        if self.is_closed:
            raise StorageError("the repository is closed")
        if self.is_cut_off:
            self.is_cut_off = False
            raise StorageError("the connection was lost")

    def log(self, conversation_id: str) -> MemoryLog:
        """What the store has; one that is not there is empty."""
        return self.store._logs.get(conversation_id) or MemoryLog()

    def has_ended(self, conversation_id: str) -> bool:
        return conversation_id in self.store._logs and self.store._has_ended(self.store._logs[conversation_id])


def _passed_on(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def method(self: Sound, *given: Any, **named: Any) -> Any:
        self.check_connected()
        return await getattr(self.store, name)(*given, **named)

    return method


for _name in (
    "append", "recall", "page", "replace", "delete", "rename", "fork", "prune", "conversations", "acquire", "release",
):  # fmt: skip
    setattr(Sound, _name, _passed_on(_name))


def rewrite(log: MemoryLog, change: Callable[[Entry], Entry | None]) -> None:
    """Change the entries of a log, or leave some out, where they stand."""
    changed = {id(entry): change(entry) for entry in log.entries}

    def new(entries: Any) -> list[Entry]:
        return [found for entry in entries if (found := changed[id(entry)]) is not None]

    log.lanes = tuple(new(lane) for lane in log.lanes)
    log.users, log.systems, log.entries = new(log.users), tuple(new(log.systems)), new(log.entries)


@dataclass(frozen=True)
class Broken:
    """A repository that breaks a law, and which others notice it as well."""

    make: type[Sound]
    also: tuple[str, ...]

    laws: ClassVar[dict[str, Broken]] = {}


_Class = TypeVar("_Class", bound=type[Sound])


def breaks(law: str, *also: str) -> Callable[[_Class], _Class]:
    """The law that a class is there for; `also` are those that what it does wrong cannot but break too."""

    def register(broken: _Class) -> _Class:
        assert law not in Broken.laws, f"two stores break {law!r}"
        Broken.laws[law] = Broken(broken, also)
        return broken

    return register


def means_for(make: type[Sound]) -> Means:
    """All means, over a store that the repositories share, with a clock that is moved by hand."""
    clock = Clock()

    async def disconnect(repository: Any) -> None:
        repository.is_cut_off = True

    def reopen(repository: Any) -> Any:
        return make(repository.store, is_another=True)

    return Means(lambda: make(InMemoryChatMemoryRepository(clock=clock)), clock.wait, reopen, disconnect)
