"""The ASGI application: `POST /v1/chat/completions`, `GET /v1/models` and `GET /healthz` in front of a chain."""

from __future__ import annotations

import time
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from typing import Any, Final, Protocol

from anyio import move_on_after
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from advisorchain._checked import checked_whole
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorOrderWarning, ConfigurationError, kind_of
from advisorchain.exchange import ChatOptions, ChatResponse
from advisorchain.messages import Message
from advisorchain.server._gate import Gate, checked_key
from advisorchain.server._refusals import refusal_of_request
from advisorchain.server._turns import ChatCompletions, Turns

__all__ = ["CLOSING_SECONDS", "MAX_BODY", "MAX_STREAMS", "Answering", "create_app"]

MAX_BODY: Final = 10_000_000  # two photographs, in base64
MAX_STREAMS: Final = 256
CLOSING_SECONDS: Final = 10  # what an interrupted answer may take to be stored and told: twice a chain's own grace
_HELD: Final = 64_000_000  # of memory for bodies; a chat page sends some kilobytes


class Answering(Protocol):
    """What can be served: an AdvisorChain, a ChatClient, or another object with their `call` and `stream`."""

    async def call(
        self, prompt: tuple[Message, ...], *, conversation_id: str | None = ..., options: ChatOptions | None = ...
    ) -> ChatResponse:
        """The whole answer."""
        ...

    def stream(
        self, prompt: tuple[Message, ...], *, conversation_id: str | None = ..., options: ChatOptions | None = ...
    ) -> AbstractAsyncContextManager[Any]:
        """The answer in chunks, as `AdvisorChain.stream` gives them."""
        ...


def create_app(
    chain: Answering,
    *,
    api_key: str | None = None,
    model_name: str | None = None,
    max_body: int = MAX_BODY,
    max_streams: int = MAX_STREAMS,
    allow_origins: Sequence[str] = (),
) -> Starlette:
    """An application that any OpenAI client or chat page can talk to.

    The conversation is the one that the header `X-Conversation-Id` names, or else the request's
    `metadata.conversation_id`. A request that names none is answered from the messages that it carries, as OpenAI's own
    server would, and nothing of it is remembered: a `MessageChatMemoryAdvisor` of a chain or client is left out. So a chat
    page that sends the whole history each time just works; where it names a conversation too, nothing is told to the model
    twice.

    All who have the key can read and go on with every conversation whose id they know. Where users shall not, derive the id
    from who they are, in an endpoint of your own or in a proxy that sets the header.

    What OpenAI's form cannot say, and what is done instead, stands in `advisorchain/server/_completion_response.py`: rounds
    of tools, pauses, withdrawn attempts. What of a request is not supported is refused with status 400. The text of an error
    inside the chain is logged and not told. When the client leaves, the chain is interrupted, and what it has sent is kept
    as a partial answer.

    A `response_format` with a JSON Schema goes to the chain as `options.output`: the model is asked for such an answer, and
    a provider's native mode holds it to that. The server itself does not check the answer against the schema.

    The application opens and closes what the chain's parts own, unless you have opened the chain, and interrupts the answers
    that are under way when it ends. Mounted in another application it does neither.

    Args:
        chain: an AdvisorChain, a ChatClient, or another object with their `call` and `stream`.
        api_key: what a client has to send as `Authorization: Bearer KEY`, except to `/healthz`. Blanks and line ends around
            it, as files of secrets have them, do not count. Without one only requests to a loopback name are answered.
        model_name: what the chain is called in `/v1/models`; by default its `name`. A request for another one is refused.
        max_body: the most bytes of a request. All that are under way have 64 MB together, or four times this if that is
            more; further ones get status 429. One that holds more than 300 000 values is refused whatever its size.
        max_streams: the most answers under way at once, streamed or not; further requests get status 429.
        allow_origins: web pages that may ask from a browser, such as "https://chat.example.org"; "*" is all.

    Raises:
        ConfigurationError: an argument that cannot work.
    """
    _check(chain, model_name, max_body, max_streams)
    key = checked_key(api_key)
    origins = _checked_origins(allow_origins, key)
    inner = getattr(chain, "chain", chain)  # of a ChatClient
    name = model_name if model_name is not None else str(getattr(inner, "name", "chain"))
    turns = Turns(max_streams, max(_HELD, 4 * max_body))
    completions = ChatCompletions(chain, _forgetting(chain), turns, model_name=name, max_body=max_body)
    routes = [Route("/chat/completions", completions, methods=["POST"]), *_model_routes(name)]
    gate = Middleware(Gate, api_key=key)
    app = Starlette(
        routes=[Mount("/v1", routes=routes, middleware=[gate]), Route("/healthz", _healthz)],
        middleware=[_cors(origins)] if origins else [],
        exception_handlers={404: _refused, 405: _refused},
        lifespan=_lifespan(chain, inner, turns),
    )
    app.state.turns = turns
    return app


def _check(chain: object, model_name: object, max_body: object, max_streams: object) -> None:
    if not callable(getattr(chain, "call", None)) or not callable(getattr(chain, "stream", None)) or isinstance(chain, type):
        raise ConfigurationError(f"`chain` is {kind_of(chain)}; give an AdvisorChain or a ChatClient")
    if model_name is not None and (not isinstance(model_name, str) or not model_name.strip()):
        found = "blank" if isinstance(model_name, str) else kind_of(model_name)
        raise ConfigurationError(f"`model_name` is {found}; give a text, or None for the chain's own")
    checked_whole("max_body", max_body)
    checked_whole("max_streams", max_streams)


def _checked_origins(origins: Sequence[str], key: str | None) -> list[str]:
    if isinstance(origins, str) or not isinstance(origins, Sequence) or not all(isinstance(one, str) for one in origins):
        found = kind_of(origins) if isinstance(origins, str) or not isinstance(origins, Sequence) else "not of texts"
        raise ConfigurationError(f"`allow_origins` is {found}; give a list of origins")
    if key is None and "*" in origins:
        raise ConfigurationError(
            '`allow_origins` is "*", so that any page could ask; give `api_key` too, or name the origins'
        )
    return list(origins)


def _forgetting(chain: Any) -> Any:
    """The same chain or client without its memory, built once; itself, if it has none."""
    inner = chain.chain if isinstance(chain, ChatClient) else chain
    if not isinstance(inner, AdvisorChain):
        return chain
    names = [advisor.name for advisor in inner.advisors if isinstance(advisor, MessageChatMemoryAdvisor)]
    if not names:
        return chain
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdvisorOrderWarning)  # told when the chain was built
        inner = inner.without(*names)
    if not isinstance(chain, ChatClient):
        return inner
    twin: Any = copy(chain)
    twin.chain = inner
    return twin


def _cors(origins: Sequence[str]) -> Middleware:
    exposed = ["Retry-After", "X-Should-Retry"]
    return Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=exposed
    )


def _lifespan(chain: Any, inner: Any, turns: Turns) -> Any:
    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        theirs = getattr(inner, "is_open", False)  # whoever opened it closes it
        async with nullcontext() if theirs or not hasattr(type(chain), "__aenter__") else chain:
            try:
                yield
            finally:
                turns.cancel()  # the server has waited for as long as it wanted to
                with move_on_after(CLOSING_SECONDS, shield=True):  # else what they store would be closed under them
                    await turns.all_ended()

    return lifespan


def _model_routes(name: str) -> list[Route]:
    model = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "advisorchain"}

    async def models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one(request: Request) -> Response:
        if request.path_params["name"] != name:
            raise HTTPException(404, f"there is no such model; the only one is `{name}`")
        return JSONResponse(model)

    return [Route("/models", models), Route("/models/{name:path}", one)]


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _refused(_request: Request, error: Exception) -> Response:
    return refusal_of_request(error).response()
