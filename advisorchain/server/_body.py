"""A request's body, as it comes in: not too large, not too slow, and of the right kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anyio import move_on_after
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive

__all__ = ["read_body"]

_DIGITS: Final = 18  # of a length; more is no length at all
_SECONDS: Final = 60.0  # for the whole body: the largest one of the default size needs a line of 1.3 Mbit/s


async def read_body(headers: Headers, receive: Receive, most: int, hold: Callable[[int], None]) -> bytes:
    """The body; not a byte more than `most` and one network read is held.

    `hold` is told of each piece's size before it is kept, and may refuse it.

    Raises:
        HTTPException: 408, 413 or 415.
        ClientDisconnect: the client left.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # a browser asks a server's leave before it sends this kind from another site's page, and not for a form's kinds
        raise HTTPException(415, "send JSON, with the header `Content-Type: application/json`")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > _DIGITS or int(declared) > most):
        raise _too_large(most)
    body = bytearray()
    with move_on_after(_SECONDS):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            if len(body) + len(piece) > most:
                raise _too_large(most)
            hold(len(piece))
            body += piece
            if not message.get("more_body", False):
                return bytes(body)
    raise HTTPException(408, "the body did not come in time", {"connection": "close"})


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most} bytes")
