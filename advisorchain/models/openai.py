"""Models behind OpenAI's APIs, through its official SDK (extra `openai`): OpenAI's own, and any compatible server's.

OpenAIModel("gpt-5-mini")                                                  # the key is in OPENAI_API_KEY
OpenAIModel("gpt-5-mini", api="responses")
OpenAIModel("llama3.2", base_url="http://localhost:11434/v1", api_key="none")   # Ollama; likewise vLLM, llama.cpp, gateways
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Literal, TypeVar

from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ConfigurationError, MissingExtraError, ModelError, kind_of
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.models._connections import (
    Closable,
    LoopClients,
    check_key,
    check_name,
    end_stream,
    given_settings,
    read_rest,
)
from advisorchain.models._openai_chat import ChatReader, chat_body
from advisorchain.models._openai_options import check_extra
from advisorchain.models._openai_responses import ResponsesReader, responses_body
from advisorchain.models._provider import (
    NONSENSE,
    broken_off,
    checked,
    connection_error,
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

_DONE: Final = b"[DONE]"
_NEW_NAME: Final = ("openai.com", "azure.com")  # hosts that want `max_completion_tokens`; others may know `max_tokens` alone
_NO_KEY: Final = "there is no API key; set OPENAI_API_KEY or give `api_key` (any text, where a server wants none)"


class OpenAIModel(Closable):
    """A model behind OpenAI's chat completions or Responses API.

    It can be used from several event loops, also one after another: each has connections of its own, and closes them itself,
    by `aclose` or `async with`. `ChatOptions.extra` is sent as it is, beside or in place
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
        check_name(name)
        if api not in ("chat", "responses"):
            raise ConfigurationError('`api` is neither "chat" nor "responses"')
        if not isinstance(provider, str) or not provider.strip():
            raise ConfigurationError(f"`provider` is {'blank' if provider == '' else kind_of(provider)}; give a name")
        if not isinstance(native_output, bool):
            raise ConfigurationError(f"`native_output` is {kind_of(native_output)}; give True or False")
        if client is not None and not isinstance(client, AsyncOpenAI):
            raise ConfigurationError(f"`client` is {kind_of(client)}; give an openai.AsyncOpenAI")
        given = given_settings(client, base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)
        self._clients = LoopClients(partial(_made_client, given), client)
        self.name = name
        self.provider = provider
        self.native_output = native_output
        self._api = api
        self._resource(self._clients.first)  # its modules are loaded here, not in the event loop
        url = self._clients.first.base_url
        self._host = self.server_address = url.host
        self.server_port = url.port or (443 if url.scheme == "https" else 80)
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
        return self._read(request, lambda answer: fold_chunks(reader.whole(answer)), response.content)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The answer in chunks. Closing the stream closes the HTTP response.

        Raises as `call` does; a stream that ends before the answer does is a `retryable` ModelError.
        """
        body, reader = self._body(request), self._reader(request)
        async with aclosing(self._pieces(request, body)) as pieces:
            async for piece in pieces:
                chunk = self._read(request, lambda event: checked(reader.read(event)), piece)
                if chunk is not None:
                    yield chunk
        if not reader.finished:
            raise broken_off(self._asked(request))

    async def aclose(self) -> None:
        """Close the connections of this event loop. Closing twice is fine; a question after it is a ModelError.

        In another event loop the model goes on, with connections that are to be closed there. A given client stays open.
        """
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
        client, extra = await self._clients.here(self.name), dict(request.options.extra) or None
        try:
            answer = await self._resource(client).create(**body, **streaming, extra_body=extra)
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
                        await read_rest(content)
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
        except NONSENSE as error:
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

    async def close(self) -> None:
        await self._response.aclose()


def _made_client(given: dict[str, Any]) -> AsyncOpenAI:
    try:
        client = AsyncOpenAI(**given)
    except openai.OpenAIError as error:
        raise ConfigurationError(_NO_KEY) from error
    if not client.api_key:
        raise ConfigurationError(_NO_KEY)
    check_key(client.api_key)
    return client
