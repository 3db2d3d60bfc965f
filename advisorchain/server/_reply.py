"""What goes back to a client: one JSON answer, or server-sent events."""

from __future__ import annotations

import json
from typing import Any, Final

from anyio import Lock, current_time, move_on_after, sleep
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from advisorchain.server._refusals import Refusal

__all__ = ["Reply"]

_QUIET_SECONDS: Final = 15.0  # what proxies allow a silent connection is 30 to 60 seconds
_STALLED_SECONDS: Final = 60.0  # a reader that takes nothing for so long has left
_EVENT_STREAM: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the pieces
]


class Reply:
    """The way back. Nothing is sent before the first event, so that an error before it has a status of its own.

    Its methods raise ClientDisconnect when the client has left.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._turn = Lock()  # of events and comments, which come from two tasks
        self._sent = current_time()
        self._streams = False
        self._over = False

    @property
    def streams(self) -> bool:
        """Whether the answer has begun, as a stream of status 200."""
        return self._streams

    async def json(self, body: dict[str, Any]) -> None:
        """Answer with JSON."""
        await self._respond(JSONResponse(body))

    async def event(self, data: dict[str, Any]) -> None:
        """Send an event."""
        # ASCII: some readers take U+2028 and the like, which may stand in JSON, for the end of a line
        await self._write(f"data: {json.dumps(data, separators=(',', ':'))}\n\n")

    async def done(self) -> None:
        """Send the event that ends a stream."""
        await self._write("data: [DONE]\n\n", more=False)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with an error; in a stream, end it with one and without `[DONE]`."""
        if self._over:
            return
        if self._streams:
            await self._write(f"data: {json.dumps(refusal.body)}\n\n", more=False)
        else:
            await self._respond(refusal.response())

    async def keep_alive(self) -> None:
        """For as long as it runs: a comment, which clients pass over, whenever nothing was sent for a while."""
        while True:
            await sleep(max(0.0, self._sent + _QUIET_SECONDS - current_time()))
            if current_time() - self._sent >= _QUIET_SECONDS:
                await self._write(": still thinking\n\n")

    async def _respond(self, response: Response) -> None:
        self._over = True
        await response(self._scope, self._receive, self._taken)

    async def _write(self, text: str, *, more: bool = True) -> None:
        async with self._turn:
            if not self._streams:
                self._streams = True
                await self._taken({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})
            self._over = not more
            self._sent = current_time()
            await self._taken({"type": "http.response.body", "body": text.encode(), "more_body": more})

    async def _taken(self, message: Message) -> None:
        try:
            with move_on_after(_STALLED_SECONDS) as scope:
                await self._send(message)
        except OSError:
            raise ClientDisconnect from None
        if scope.cancelled_caught:
            raise ClientDisconnect
