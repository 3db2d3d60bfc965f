"""Models behind OpenAI's APIs, through its official SDK (extra `openai`): OpenAI's own, and any compatible server's.

OpenAIModel("gpt-5-mini")                                                  # the key is in OPENAI_API_KEY
OpenAIModel("gpt-5-mini", api="responses")
OpenAIModel("llama3.2", base_url="http://localhost:11434/v1", api_key="none")   # Ollama; likewise vLLM, llama.cpp, gateways
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, Literal, TypeVar

from anyio import move_on_after
from anyio.lowlevel import EventLoopToken, current_token

from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ConfigurationError, MissingExtraError, ModelError, kind_of
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.models._openai_chat import ChatReader, chat_body
from advisorchain.models._openai_options import check_extra
from advisorchain.models._openai_responses import ResponsesReader, responses_body
from advisorchain.models._provider import (
    broken_off,
    connection_error,
    end_stream,
    hide_texts,
    no_answer,
    status_error,
    timeout_error,
)
from advisorchain.models._server_sent import EventReader

try:
    import openai
    from openai import AsyncOpenAI
except ImportError as error:
    raise MissingExtraError('models of OpenAI need its SDK: pip install "advisorchain[openai]"') from error

__all__ = ["OpenAIModel"]

_T = TypeVar("_T")

_LOOPS: Final = 4  # event loops whose connections are kept; the client of the one not used longest is dropped
_DONE: Final = b"[DONE]"
_REST: Final = 0.1  # seconds for what a server still sends after that
_NEW_NAME: Final = ("openai.com", "azure.com")  # hosts that want `max_completion_tokens`; others may know `max_tokens` alone


class OpenAIModel:
    """A model behind OpenAI's chat completions or Responses API.

    It can be used from several event loops, also one after another. `ChatOptions.extra` is sent as it is, beside or in place
    of what is said here. `ChatOptions.max_tokens` is sent to OpenAI and Azure as `max_completion_tokens`, and elsewhere as
    `max_tokens`, since others may not know the newer name.

    The Responses API is told to store nothing, and gets the whole history each time, with what it wants back of its own
    answers, such as encrypted reasoning; that goes to the host that it came from, and to no other. It knows no `stop`, no
    `seed` and no penalties.

    An error shows nothing that the server said, which may quote the prompt; programs find it in `error.__cause__.body`.

    Args:
        name: the model's name there.
        api: "chat", which compatible servers have too, or "responses".
        base_url: where the server is; None: what OPENAI_BASE_URL says, or OpenAI's own.
        api_key: None: what OPENAI_API_KEY says. A server that wants none takes any text.
        client: an SDK client to use in place of one made here; it stays open in `aclose()`.
        timeout: seconds to wait for each thing: a connection, the next piece of the answer. None: the SDK's own, 600, and 5
            for the connection (openai 3.57).
        max_retries: how often the SDK itself asks again before an answer has begun; None: its own number, 2 (3.57). Use 0
            beside a `RetryAdvisor`.
        provider: as traces name it.
        native_output: whether the server can hold an answer to a JSON Schema; False: the chain puts it into the prompt.

    Raises:
        MissingExtraError: the SDK is not installed.
        ConfigurationError: there is no key, or an argument is wrong.
    """

    def __init__(
        self,
        name: str,
        *,
        api: Literal["chat", "responses"] = "chat",
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
        provider: str = "openai",
        native_output: bool = True,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError("`name` is no text, or blank; give the name of a model")
        if api not in ("chat", "responses"):
            raise ConfigurationError('`api` is neither "chat" nor "responses"')
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(f"`timeout` is {timeout!r}; give seconds, more than 0")
        if max_retries is not None and max_retries < 0:
            raise ConfigurationError(f"`max_retries` is {max_retries!r}; give a number of 0 or more")
        made_with = {"base_url": base_url, "api_key": api_key, "timeout": timeout, "max_retries": max_retries}
        self._clients = _Clients(client, {key: value for key, value in made_with.items() if value is not None})
        self.name = name
        self.provider = provider
        self.native_output = native_output
        self._api = api
        first = self._clients.first()
        self._resource(first)  # its modules are loaded here, not in the event loop
        self._host = first.base_url.host
        self._max_tokens = "max_completion_tokens" if self._host.endswith(_NEW_NAME) else "max_tokens"

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, api={self._api!r})"

    async def call(self, request: ChatRequest) -> ChatResponse:
        """The whole answer.

        Raises:
            InvalidInputError: the API has no place for an option or a message.
            ModelError: the server refused, failed, or could not be reached; it is `retryable` or not.
        """
        body, reader = self._body(request), self._reader(request)
        response = await self._ask(request, body)
        return fold_chunks(self._read(request, reader.whole, response.content))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The answer in chunks. Closing the stream closes the HTTP response.

        Raises as `call` does; a stream that ends before the answer does is a `retryable` ModelError.
        """
        body, reader = self._body(request), self._reader(request)
        async with aclosing(self._pieces(request, body)) as pieces:
            async for piece in pieces:
                chunk = self._read(request, reader.read, piece)
                if chunk is not None:
                    yield chunk
        if not reader.finished:
            raise broken_off(self._asked(request))

    async def aclose(self) -> None:
        """Close the connections of this event loop, but not those of a given client. A question after it opens new ones."""
        await self._clients.aclose()

    def _asked(self, request: ChatRequest) -> str:
        return request.options.model or self.name

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        check_extra(request.options.extra)
        if self._api == "chat":
            return chat_body(request, model=self.name, max_tokens=self._max_tokens, host=self._host)
        return responses_body(request, model=self.name, host=self._host)

    def _reader(self, request: ChatRequest) -> ChatReader | ResponsesReader:
        return (ChatReader if self._api == "chat" else ResponsesReader)(self._asked(request), self._host)

    def _resource(self, client: AsyncOpenAI) -> Any:
        return (client.chat.completions if self._api == "chat" else client.responses).with_raw_response

    async def _ask(self, request: ChatRequest, body: dict[str, Any], **streaming: Any) -> Any:
        """The HTTP response; when streaming, its body is still to come."""
        resource, extra = self._resource(self._clients.here()), dict(request.options.extra) or None
        try:
            answer = await resource.create(**body, **streaming, extra_body=extra)
        except openai.OpenAIError as error:
            meaning = _meaning(self._asked(request), error)
            hide_texts(error)
            raise meaning from error
        return answer.http_response

    async def _pieces(self, request: ChatRequest, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """The data of the events of a stream."""
        usage = {"stream_options": {"include_usage": True}} if self._api == "chat" else {}
        content, events = _Content(await self._ask(request, body, stream=True, **usage)), EventReader()
        try:
            while (piece := await self._next(request, content)) is not None:
                for data in events.feed(piece):
                    if data == _DONE:
                        await content.rest()
                        return
                    yield data
        finally:
            await end_stream(content)

    async def _next(self, request: ChatRequest, content: _Content) -> bytes | None:
        try:
            return await anext(content, None)
        except Exception as error:  # of httpx2; or of httpx, where the client was given such a one
            hide_texts(error)
            late = isinstance(error, TimeoutError) or "Timeout" in type(error).__name__
            raise (timeout_error if late else connection_error)(self._asked(request)) from error

    def _read(self, request: ChatRequest, read: Callable[[Mapping[str, Any]], _T], data: bytes) -> _T:
        """What a reader makes of JSON; an error of ours, whatever the server sent."""
        try:
            return read(json.loads(data))
        except ModelError:
            raise
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            hide_texts(error)
            raise no_answer(self._asked(request)) from error


def _meaning(name: str, error: Exception) -> ModelError:
    if isinstance(error, openai.APITimeoutError):
        return timeout_error(name)
    if isinstance(error, openai.APIConnectionError):
        return connection_error(name)
    if isinstance(error, openai.APIStatusError):
        return status_error(
            name,
            status=error.status_code,
            code=error.code,
            kind=error.type,
            param=error.param,
            told=error.message,
            headers=error.response.headers,
        )
    return ModelError(f"`{name}` was not asked, since the SDK failed ({type(error).__name__}); check the client's settings")


class _Content:
    """The body of an HTTP response as it comes in."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._pieces = response.aiter_bytes()

    async def __anext__(self) -> bytes:
        piece: bytes = await anext(self._pieces)
        return piece

    async def rest(self) -> None:
        """Wait a little for the end, when the answer is whole: a connection that was read to its end can be used again."""
        with move_on_after(_REST), suppress(Exception):
            await anext(self._pieces)

    async def close(self) -> None:
        await self._response.aclose()


class _Clients:
    """One SDK client for each event loop, since its connections belong to one; or the one that was given."""

    def __init__(self, given: AsyncOpenAI | None, made_with: dict[str, Any]) -> None:
        if given is not None and not isinstance(given, AsyncOpenAI):
            raise ConfigurationError(f"`client` is {kind_of(given)}; give an openai.AsyncOpenAI")
        if given is not None and made_with:
            raise ConfigurationError(f"`{min(made_with)}` is given beside `client`; set it on the client")
        self._given = given
        self._made_with = made_with
        self._lock = threading.Lock()
        self._spare = [given or self._made()]  # made now, so that a missing key is told now
        self._of_loops: OrderedDict[EventLoopToken, AsyncOpenAI] = OrderedDict()

    def first(self) -> AsyncOpenAI:
        """The one for the first event loop that comes."""
        return self._spare[0]

    def here(self) -> AsyncOpenAI:
        """The client for the running event loop."""
        if self._given is not None:
            return self._given
        loop = current_token()
        with self._lock:
            if loop not in self._of_loops:
                self._of_loops[loop] = self._spare.pop() if self._spare else self._made()
            self._of_loops.move_to_end(loop)
            while len(self._of_loops) > _LOOPS:
                self._of_loops.popitem(last=False)
            return self._of_loops[loop]

    async def aclose(self) -> None:
        """Close the one of the running event loop."""
        with self._lock:
            client = self._of_loops.pop(current_token(), None)
        if client is not None:
            await client.close()

    def _made(self) -> AsyncOpenAI:
        try:
            client = AsyncOpenAI(**self._made_with)
        except openai.OpenAIError as error:
            raise ConfigurationError(
                "there is no API key; set OPENAI_API_KEY or give `api_key` (any text, where a server wants none)"
            ) from error
        key = client.api_key or ""
        if not (key.isascii() and key.isprintable()) or key != key.strip():
            raise ConfigurationError("the API key has a blank, a line break or another character that no header can carry")
        return client
