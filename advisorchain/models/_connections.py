"""What the adapters over HTTP do alike with the client of a vendor's library: its settings, its event loop, its end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from anyio import move_on_after
from anyio.lowlevel import EventLoopToken, current_token

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain._event_loops import has_ended
from advisorchain.errors import ConfigurationError, ModelError, kind_of

__all__ = ["Closable", "LoopClients", "SdkStream", "check_key", "check_name", "end_stream", "given_settings", "read_rest"]

_GRACE: Final = 5.0  # seconds for closing a connection
_REST: Final = 0.1  # seconds for what a server still sends when the answer is whole


class Closable(ABC):
    """`async with` for what has `aclose`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of what is held."""


class SdkClient(Protocol):
    """What the clients of OpenAI's and Anthropic's libraries have in common."""

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=SdkClient)


class LoopClients(Generic[C]):
    """One client for each event loop, since its connections belong to one; or the one that was given.

    Attributes:
        first: the one that was given, or the one for the first event loop that comes. It is made at once, so that a missing
            key is told at once.
    """

    def __init__(self, make: Callable[[], C], given: C | None = None) -> None:
        self.first = make() if given is None else given
        self._make = make
        self._given = given
        self._spare: C | None = self.first
        self._lock = threading.Lock()
        self._of_loops: dict[EventLoopToken, C | None] = {}  # None: it was closed there

    async def here(self, name: str) -> C:
        """The client for the running event loop.

        Raises:
            ModelError: it was closed. `name` is the model's.
        """
        if self._given is not None:
            return self._given
        loop, left = current_token(), []
        with self._lock:
            if loop not in self._of_loops:
                left = self._without_ended()
                self._of_loops[loop], self._spare = self._spare or self._make(), None
            client = self._of_loops[loop]
        for old in left:  # their connections went with their loops; one that is not closed would try it when it is freed
            with move_on_after(_GRACE), suppress(Exception):
                await old.close()
        if client is None:
            raise ModelError(f"`{name}` was closed in this event loop; make another model, or close it later")
        return client

    def _without_ended(self) -> list[C]:
        """Forget the loops that have ended; their clients."""
        ended = [loop for loop in self._of_loops if has_ended(loop)]
        return [client for client in map(self._of_loops.pop, ended) if client is not None]

    async def aclose(self) -> None:
        """Close the client of the running event loop, for good; one that was given stays open."""
        if self._given is not None:
            return
        loop = current_token()
        with self._lock:
            client, self._of_loops[loop] = self._of_loops.get(loop), None
        if client is not None:
            await client.close()


class SdkStream(Protocol):
    """What the streams of OpenAI's and Anthropic's libraries have in common."""

    async def __anext__(self) -> Any:
        """The next event."""
        ...

    async def close(self) -> None:
        """Close the HTTP response."""
        ...


async def read_rest(stream: SdkStream) -> None:
    """Wait a little for the end, when the answer is whole: a connection that was read to its end can be used again."""
    with move_on_after(_REST), suppress(Exception):
        await anext(stream)


async def end_stream(stream: SdkStream) -> None:
    """Close a stream's HTTP response, also when the task is cancelled, and run its generators to their end.

    Those of the SDKs and of httpx2 that are left behind half-way would be finalised some time later, with a warning on trio.
    Reading on after the close ends them all: at once, but for events that had come already.
    """
    with move_on_after(_GRACE, shield=True):
        await stream.close()
        try:
            while True:
                await anext(stream)
        except Exception:  # the end, or the closed connection
            return


# settings


def check_name(name: object) -> None:
    """ConfigurationError when the name of a model is no text, or blank."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"`name` is {'blank' if isinstance(name, str) else kind_of(name)}; give the model's name")


def given_settings(client: object, **settings: Any) -> dict[str, Any]:
    """Those settings of the SDK's client that are given.

    Args:
        client: the client that is given in place of them.
        settings: `base_url`, `api_key`, `timeout`, `max_retries`; None where one is not given.

    Raises:
        ConfigurationError: one makes no sense, or is given beside `client`.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if client is not None and given:
        raise ConfigurationError(f"`{min(given)}` is given beside `client`; set it on the client")
    for name, value in given.items():
        _CHECKS[name](name, value)
    return given


def _check_url(name: str, value: object) -> None:
    try:
        url = urlsplit(value) if isinstance(value, str) else None
        known = url is not None and url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        known = False
    if not known:
        raise ConfigurationError(f"`{name}` is no address; give one that begins with http:// or https://")


def _check_given_key(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"`{name}` is {'empty' if value == '' else kind_of(value)}; give a text")
    check_key(value)


def check_key(key: str) -> None:
    """ConfigurationError when a key is one that no header can carry."""
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise ConfigurationError("the API key has a blank, a line break or another character that no header can carry")


_CHECKS: Final[dict[str, Callable[[str, object], object]]] = {
    "base_url": _check_url,
    "api_key": _check_given_key,
    "timeout": checked_seconds,
    "max_retries": partial(checked_whole, least=0),
}
