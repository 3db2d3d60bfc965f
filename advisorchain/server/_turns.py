"""One chat completion: the body is read, the chain asked, and what it says sent, while the client is there."""

from __future__ import annotations

from typing import Any, Final

from anyio import CancelScope, Event, create_task_group
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from advisorchain.server._asked import Asked, read_asked
from advisorchain.server._refusals import Refusal, log_failure, refusal_of
from advisorchain.server._reply import Reply
from advisorchain.server._told import Answer, Deltas

__all__ = ["ChatCompletions", "Turns"]

_CONVERSATION: Final = "x-conversation-id"
_DIGITS: Final = 18  # of a length; more is no length at all
_BUSY: Final = Refusal(429, "too many answers are under way; ask again", "too_many_streams", retry_after=1.0, again=True)
_CLOSING: Final = Refusal(503, "the server is shutting down", retry_after=1.0, again=True)


class Turns:
    """The answers that are under way, `most` at once."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._running: Final[set[CancelScope]] = set()
        self._ended: Event | None = None

    def begin(self) -> CancelScope | None:
        """A place for one more; None: all are taken."""
        if len(self._running) >= self._most:
            return None
        scope = CancelScope()
        self._running.add(scope)
        return scope

    def end(self, scope: CancelScope) -> None:
        """Give the place back."""
        self._running.discard(scope)
        if self._ended is not None:
            self._ended.set()

    def cancel(self) -> None:
        """Interrupt all of them: what their readers have seen is kept as if these had left."""
        for scope in list(self._running):
            scope.cancel()

    async def all_ended(self) -> None:
        """Wait until none is under way."""
        while self._running:
            self._ended = Event()
            await self._ended.wait()


class ChatCompletions:
    """`POST /v1/chat/completions`. A place is taken before the body is read: what bodies take of the memory has a limit too.

    Args:
        chain: what is asked.
        forgetting: arguments for a request that names no conversation.
    """

    def __init__(self, chain: Any, turns: Turns, *, model_name: str, max_body: int, forgetting: dict[str, Any]) -> None:
        self._chain = chain
        self._turns = turns
        self._model_name = model_name
        self._max_body = max_body
        self._forgetting = forgetting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(scope, receive, send)
        turn = self._turns.begin()
        try:
            if turn is None:
                await reply.refuse(_BUSY)
                return
            try:
                with turn:
                    await self._turn(Headers(scope=scope), receive, reply)
            finally:
                self._turns.end(turn)
            if turn.cancelled_caught:
                await reply.refuse(_CLOSING)
        except ClientDisconnect:
            pass

    async def _turn(self, headers: Headers, receive: Receive, reply: Reply) -> None:
        try:
            body = await _read_body(headers, receive, self._max_body)
            raw_id = headers.get(_CONVERSATION)
            header_id = None if raw_id is None else raw_id.encode("latin-1")  # the bytes that came
            asked = read_asked(body, header_id=header_id, model_name=self._model_name)
        except ClientDisconnect:
            return
        except Exception as error:
            await reply.refuse(refusal_of(error))
            return
        del body
        refusal = None
        async with create_task_group() as group:
            group.start_soon(_watch, receive, group.cancel_scope)
            if asked.stream:
                group.start_soon(_keep_alive, reply, group.cancel_scope)
            refusal = await self._answered(asked, reply)
            group.cancel_scope.cancel()
        if refusal is not None:
            await reply.refuse(refusal)

    async def _answered(self, asked: Asked, reply: Reply) -> Refusal | None:
        """Answer; what is returned is for the client to be told."""
        try:
            await (self._stream if asked.stream else self._call)(asked, reply)
        except ClientDisconnect:
            pass
        except Exception as error:
            refusal = refusal_of(error)
            log_failure(error, refusal)
            return refusal
        return None

    async def _call(self, asked: Asked, reply: Reply) -> None:
        response = await self._chain.call(asked.messages, **self._arguments(asked))
        await reply.json(Answer(self._model_name).whole(response))

    async def _stream(self, asked: Asked, reply: Reply) -> None:
        deltas = Deltas(Answer(self._model_name), held=asked.options.output is not None)
        begun = False
        async with self._chain.stream(asked.messages, **self._arguments(asked)) as stream:
            async for chunk in stream:
                if not begun:
                    await reply.event(deltas.first())
                    begun = True
                if (piece := deltas.of(chunk)) is not None:
                    await reply.event(piece)
        last = deltas.last(stream.response, include_usage=asked.include_usage)
        for piece in last if begun else [deltas.first(), *last]:
            await reply.event(piece)
        await reply.done()

    def _arguments(self, asked: Asked) -> dict[str, Any]:
        if asked.conversation_id is None:
            return {"options": asked.options, **self._forgetting}
        return {"options": asked.options, "conversation_id": asked.conversation_id}


async def _read_body(headers: Headers, receive: Receive, most: int) -> bytes:
    """The body; not a byte more than `most` and one network read is held."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # a browser asks a server's leave before it sends this kind from another site's page, and not for a form's kinds
        raise HTTPException(415, "send JSON, with the header `Content-Type: application/json`")
    too_large = HTTPException(413, f"the body is larger than {most} bytes")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > _DIGITS or int(declared) > most):
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > most:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


async def _watch(receive: Receive, answering: CancelScope) -> None:
    """Interrupt the answer when the client leaves: the model stops, and memory keeps what was sent of it."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answering.cancel()


async def _keep_alive(reply: Reply, answering: CancelScope) -> None:
    try:
        await reply.keep_alive()
    except ClientDisconnect:
        answering.cancel()
