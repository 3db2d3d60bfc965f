"""Who may ask: with a key, whoever sends it; without one, only this machine."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.server._refusals import Refusal

__all__ = ["Gate", "checked_key", "is_loopback"]

_NO_KEY: Final = Refusal(
    401, "the key is missing or wrong; send `Authorization: Bearer KEY`", headers=(("www-authenticate", "Bearer"),)
)
_NOT_LOCAL: Final = Refusal(
    403, "this server has no key, so it answers under its loopback name alone; give it a key", "not_local"
)


def is_loopback(host: str) -> bool:
    """Whether a host, as one is bound to or asked for, is this machine and nothing else."""
    name = host.removeprefix("[").removesuffix("]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def checked_key(key: object) -> str | None:
    """The key without what stands around it in files of secrets, such as a line end.

    Raises:
        ConfigurationError: it is one that no client can send; the text does not show it.
    """
    if key is None:
        return None
    if not isinstance(key, str) or not key.strip():
        found = "blank" if isinstance(key, str) else kind_of(key)
        raise ConfigurationError(f"`api_key` is {found}; give a text, or None for a server on loopback without one")
    if not key.strip().isprintable():
        raise ConfigurationError("`api_key` has a line end or another control character in it, which no client can send")
    return key.strip()


class Gate:
    """Refuses a request that does not bear the key. Its value is never told or logged.

    Without a key the request must name a loopback host: a web page that has its own name point to this machine (DNS
    rebinding) would otherwise reach the chain through its reader's browser.
    """

    def __init__(self, app: ASGIApp, *, api_key: str | None) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["type"] == "http" and (refusal := self._refusal(headers)) is not None:
            await refusal.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Refusal | None:
        if self._key is None:
            return None if is_loopback(_name(headers.get("host", ""))) else _NOT_LOCAL
        scheme, _, key = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(key.strip(" \t").encode("latin-1"), self._key)  # as the bytes that came
        return None if right and scheme.lower() == "bearer" else _NO_KEY


def _name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
