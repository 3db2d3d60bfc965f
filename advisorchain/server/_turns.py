"""One chat completion: the body is read, the chain asked, and what it says sent, while the client is there."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from anyio import CancelScope, CapacityLimiter, Event, create_task_group, to_thread
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from advisorchain.server._body import read_body
from advisorchain.server._completion_request import Asked, read_asked
from advisorchain.server._completion_response import Answer, Deltas
from advisorchain.server._refusals import Refusal, RefusedError, log_failure, refusal_of, refusal_of_request
from advisorchain.server._reply import Reply

__all__ = ["ChatCompletions", "Turns"]

_CONVERSATION: Final = "x-conversation-id"
_BUSY: Final = Refusal(429, "too many answers are under way; ask again", "too_many_streams", retry_after=1.0, again=True)
_CLOSING: Final = Refusal(503, "the server is shutting down", retry_after=1.0, again=True)
# 16 MB of base64 take 0.2 s to be read, 10 000 messages 0.1 s; a thread costs 0.1 ms.
_READ_AT_ONCE: Final = 50_000  # bytes
_READERS: Final = 2  # threads; each holds its body four times over


class Turn:
    """One request that is under way: first its body is read, then it takes one of the places, and is answered."""

    def __init__(self, turns: Turns) -> None:
        self._turns: Final = turns
        self.scope: Final = CancelScope()
        self.size = 0
        self.has_place = False

    def hold(self, size: int) -> None:
        """Count further bytes of the body, until the turn ends: the messages made of it are held so long.

        Raises:
            RefusedError: all bodies together would be too large.
        """
        if self._turns.bytes_held + size > self._turns.most_bytes:
            raise RefusedError(_BUSY)
        self._turns.bytes_held += size
        self.size += size

    def take_place(self) -> None:
        """Take a place.

        Raises:
            RefusedError: all are taken.
        """
        self._turns.check_room()
        self._turns.places_taken += 1
        self.has_place = True


class Turns:
    """The requests that are under way: `most` answered at once, and `most_bytes` in all bodies together."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most: Final = most
        self.most_bytes: Final = most_bytes
        self.places_taken = self.bytes_held = 0
        self._running: Final[set[Turn]] = set()
        self._ended: Event | None = None

    def begin(self) -> Turn:
        """One more, without a place yet."""
        turn = Turn(self)
        self._running.add(turn)
        return turn

    def check_room(self) -> None:
        """Refuse when all places are taken."""
        if self.places_taken >= self._most:
            raise RefusedError(_BUSY)

    def end(self, turn: Turn) -> None:
        """Give back what it took."""
        self._running.discard(turn)
        self.places_taken -= turn.has_place
        self.bytes_held -= turn.size
        if self._ended is not None:
            self._ended.set()

    def cancel(self) -> None:
        """Interrupt all of them: what their readers have seen is kept as if these had left."""
        for turn in list(self._running):
            turn.scope.cancel()

    async def all_ended(self) -> None:
        """Wait until none is under way."""
        while self._running:
            self._ended = Event()
            await self._ended.wait()


class ChatCompletions:
    """`POST /v1/chat/completions`.

    Args:
        chain: what is asked.
        forgetting: the same without memory, for a request that names no conversation.
    """

    def __init__(self, chain: Any, forgetting: Any, turns: Turns, *, model_name: str, max_body: int) -> None:
        self._chain = chain
        self._forgetting = forgetting
        self._turns = turns
        self._model_name = model_name
        self._max_body = max_body
        self._readers = CapacityLimiter(_READERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(scope, receive, send)
        turn = self._turns.begin()
        try:
            try:
                with turn.scope:
                    await self._turn(turn, Headers(scope=scope), receive, reply)
            finally:
                self._turns.end(turn)
            if turn.scope.cancelled_caught:
                await reply.refuse(_CLOSING)
        except ClientDisconnect:
            pass

    async def _turn(self, turn: Turn, headers: Headers, receive: Receive, reply: Reply) -> None:
        try:
            asked = await self._asked(turn, headers, receive)
        except ClientDisconnect:
            return
        except Exception as error:
            refusal = refusal_of_request(error)
            if refusal.status >= 500:
                log_failure(error, refusal)
            await reply.refuse(refusal)
            return
        failure = None
        async with create_task_group() as group:
            group.start_soon(_watch, receive, group.cancel_scope)
            if asked.stream:
                group.start_soon(_keep_alive, reply, group.cancel_scope)
            failure = await self._answered(asked, reply)
            group.cancel_scope.cancel()
        if failure is not None:
            await reply.refuse(failure)

    async def _asked(self, turn: Turn, headers: Headers, receive: Receive) -> Asked:
        """What is asked; then the turn has a place."""
        self._turns.check_room()  # else the body would be read in vain
        body = await read_body(headers, receive, self._max_body, turn.hold)
        raw_id = headers.get(_CONVERSATION)
        header_id = None if raw_id is None else raw_id.encode("latin-1")  # the bytes that came
        read = partial(read_asked, body, header_id=header_id, model_name=self._model_name)
        small = len(body) <= _READ_AT_ONCE
        asked = read() if small else await to_thread.run_sync(read, limiter=self._readers)
        turn.take_place()
        return asked

    async def _answered(self, asked: Asked, reply: Reply) -> Refusal | None:
        """Answer; what is returned is for the client to be told."""
        try:
            await (self._stream if asked.stream else self._call)(asked, reply)
        except ClientDisconnect:
            pass
        except Exception as error:
            refusal = refusal_of(error)
            log_failure(error, refusal, in_stream=reply.streams)
            return refusal
        return None

    async def _call(self, asked: Asked, reply: Reply) -> None:
        response = await self._for(asked).call(asked.messages, **_arguments(asked))
        await reply.json(Answer(self._model_name).whole(response))

    async def _stream(self, asked: Asked, reply: Reply) -> None:
        deltas = Deltas(Answer(self._model_name), held=asked.options.output is not None)
        begun = False
        async with self._for(asked).stream(asked.messages, **_arguments(asked)) as stream:
            async for chunk in stream:
                if not begun and chunk.shows:
                    await reply.event(deltas.first())
                    begun = True
                if (piece := deltas.of(chunk)) is not None:
                    await reply.event(piece)
        last = deltas.last(stream.response, include_usage=asked.include_usage)
        for piece in last if begun else [deltas.first(), *last]:
            await reply.event(piece)
        await reply.done()

    def _for(self, asked: Asked) -> Any:
        return self._forgetting if asked.conversation_id is None else self._chain


def _arguments(asked: Asked) -> dict[str, Any]:
    named = {} if asked.conversation_id is None else {"conversation_id": asked.conversation_id}
    return {"options": asked.options, **named}


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
