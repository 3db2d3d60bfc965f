"""Claude, and any server that speaks Anthropic's Messages API, through the official SDK (extra `anthropic`)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal, cast

from advisorchain.aggregate import fold_chunks
from advisorchain.errors import ConfigurationError, MissingExtraError, ModelError, kind_of
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

try:
    import httpx2
    from anthropic import (
        APIConnectionError,
        APIError,
        APIStatusError,
        APITimeoutError,
        AsyncAnthropic,
        AsyncStream,
        CredentialsError,
        Timeout,
    )
    from anthropic.types import Message, RawMessageStreamEvent
except ImportError as error:
    raise MissingExtraError('Claude needs the SDK of Anthropic: pip install "advisorchain[anthropic]"') from error

from advisorchain.models._anthropic_answer import AnswerReader
from advisorchain.models._anthropic_wire import request_parameters
from advisorchain.models._connections import (
    Closable,
    LoopClients,
    check_key,
    check_name,
    end_stream,
    given_settings,
    read_rest,
)
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

__all__ = ["AnthropicModel"]

_MAX_TOKENS: Final = 8192  # the most that the oldest models which are still served may answer without streaming
_CONNECT: Final = 5.0  # seconds, the SDK's own


class AnthropicModel(Closable):
    """A model behind Anthropic's Messages API.

    It can be used from several event loops, also one after another: each has connections of its own, and closes them itself,
    by `aclose` or `async with`.

    The options become the API's parameters; `extra` goes into the request's body as it is (`thinking`, `top_k`,
    `cache_control`, `metadata`; its `tools` and `output_config` are put together with ours). `seed` and the penalties are
    refused, since the API has none. `temperature` and `top_p` are sent, and the API's version of 2026-10-21, which the SDK
    asks for, refuses them with status 400: an older model takes them from a client of your own with
    `default_headers={"anthropic-version": "2023-06-01"}`.

    The form of an answer (`options.output`) is the API's own structured output; where that cannot hold the model to the
    schema (objects with keys of any name, references in a circle), it is put into the prompt, in words. What the model
    thinks is the message's `reasoning`. Its thinking blocks with their signatures are in the message's metadata and are
    sent back, unchanged, while its turn goes on, to the host that they came from and to no other. Those of earlier turns are
    left out: newer models refuse them once anything that stood before them has changed, which is what a memory with a window
    and a new system text do.

    Args:
        name: the model's, such as "claude-opus-5-5".
        max_tokens: the most that it may answer where the options do not say; thinking counts. The API asks for a number.
        base_url: of another server, without `/v1`; None: the SDK's, or the variable ANTHROPIC_BASE_URL.
        api_key: None: what the SDK finds, such as the variable ANTHROPIC_API_KEY. A server that wants no key needs any text.
        client: your own, in place of the four other arguments about the connection; `aclose` leaves it open.
        timeout: seconds to wait for an answer that is not streamed, or for the next piece of a stream; None: the SDK's 600.
        max_retries: how often the SDK asks again before an answer has begun; None: its own 2. 0, where a RetryAdvisor does.
        thinking: "turn", or "conversation" to send the thinking of earlier turns as well: for a memory that drops nothing
            and a system text that stays the same.

    Raises:
        ConfigurationError: there is no key, or an argument is wrong.
        MissingExtraError: the SDK is not installed.
    """

    provider = "anthropic"
    native_output = True

    def __init__(
        self,
        name: str,
        *,
        max_tokens: int = _MAX_TOKENS,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncAnthropic | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
        thinking: Literal["turn", "conversation"] = "turn",
    ) -> None:
        check_name(name)
        if type(max_tokens) is not int or max_tokens < 1:
            raise ConfigurationError(f"`max_tokens` is {max_tokens!r}; give a whole number of 1 or more")
        if thinking not in ("turn", "conversation"):
            raise ConfigurationError('`thinking` is neither "turn" nor "conversation"')
        if client is not None and not (hasattr(client, "messages") and inspect.iscoroutinefunction(client.close)):
            raise ConfigurationError(f"`client` is {kind_of(client)}; give an anthropic.AsyncAnthropic")
        given = given_settings(client, base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries)
        self.name = name
        self._max_tokens = max_tokens
        self._all_thinking = thinking == "conversation"
        self._clients = LoopClients(partial(_made_client, given), client)
        _check_keys(self._clients.first)
        url = self._clients.first.base_url
        self._host = self.server_address = url.host
        self.server_port = url.port or (443 if url.scheme == "https" else 80)

    def __repr__(self) -> str:
        return f"AnthropicModel({self.name!r})"

    async def call(self, request: ChatRequest) -> ChatResponse:
        """The whole answer, not streamed.

        Raises:
            InvalidInputError: the request has what the API does not take.
            ModelError: the API refused or failed, cannot be reached, or answered nonsense.
        """
        parameters, client = self._parameters(request), await self._clients.here(self.name)
        with _clear_errors(self.name, parameters):
            # told by us, since the SDK refuses many tokens with its own
            answer = await client.messages.create(**parameters, timeout=client.timeout)
            if not isinstance(answer, Message):
                raise no_answer(self.name)
            return fold_chunks(AnswerReader(self._host).read_whole(answer))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """The answer in chunks. Closing it closes the HTTP response.

        Raises:
            InvalidInputError: the request has what the API does not take.
            ModelError: the API refused or failed, cannot be reached, answered nonsense, or broke off.
        """
        parameters, client = self._parameters(request), await self._clients.here(self.name)
        with _clear_errors(self.name, parameters):
            answer = await client.messages.create(**parameters, stream=True)
            events = cast(AsyncStream[RawMessageStreamEvent], answer)
        reader = AnswerReader(self._host)
        try:
            while not reader.finished:
                with _clear_errors(self.name, parameters):
                    event = await anext(events, None)
                    if event is None:
                        raise broken_off(self.name)
                    chunk = checked(reader.read(event))
                if chunk is not None:
                    yield chunk
            await read_rest(events)
        finally:
            await end_stream(events)

    async def aclose(self) -> None:
        """Close the connections of this event loop. Closing twice is fine; a question after it is a ModelError.

        In another event loop the model goes on, with connections that are to be closed there. A given client stays open.
        """
        await self._clients.aclose()

    def _parameters(self, request: ChatRequest) -> dict[str, Any]:
        return request_parameters(
            request, name=self.name, max_tokens=self._max_tokens, host=self._host, all_thinking=self._all_thinking
        )


def _made_client(given: dict[str, Any]) -> AsyncAnthropic:
    if (timeout := given.get("timeout")) is not None:
        given = {**given, "timeout": Timeout(timeout, connect=min(timeout, _CONNECT))}
    # The chain traces the call itself: a second span would count its tokens twice, and could be told to hold content.
    try:
        return AsyncAnthropic(open_telemetry=False, **given)
    except (CredentialsError, ValueError) as error:
        raise ConfigurationError("the SDK's own profile of Anthropic cannot be read; mend it, or give `api_key`") from error


def _check_keys(client: AsyncAnthropic) -> None:
    if type(client) is not AsyncAnthropic:  # those for the clouds have keys of their own
        return
    if not client.api_key and not client.auth_token and client.credentials is None:
        raise ConfigurationError("there is no key for Anthropic; set the variable ANTHROPIC_API_KEY, or give `api_key`")
    check_key(client.api_key or client.auth_token or "")


@contextmanager
def _clear_errors(name: str, parameters: dict[str, Any]) -> Generator[None]:
    """Errors of the SDK, and of what it reads with, as ours."""
    try:
        yield
    except ModelError:
        raise
    except CredentialsError as error:
        raise _hiding(error, ModelError(f"`{name}` has no key; check the SDK's profile, or give `api_key`")) from error
    except (APITimeoutError, httpx2.TimeoutException) as error:
        raise _hiding(error, timeout_error(name)) from error
    except (APIConnectionError, httpx2.TransportError) as error:
        raise _hiding(error, connection_error(name)) from error
    except APIStatusError as error:
        raise _hiding(error, _refused(name, error, parameters)) from error
    except (APIError, httpx2.HTTPError, *NONSENSE) as error:
        raise _hiding(error, no_answer(name)) from error


def _hiding(error: Exception, ours: ModelError) -> ModelError:
    hide_texts(error)
    return ours


def _refused(name: str, error: APIStatusError, parameters: dict[str, Any]) -> ModelError:
    # an error in the middle of a stream comes with the status of the answer that had begun
    status = error.status_code if error.status_code >= 400 else None
    if status is None and error.type is None:
        return broken_off(name)
    told = str(error.api_message or "")
    return status_error(
        name,
        status=status,
        code=error.error_code,
        kind=error.type,
        param=_field(told, parameters),
        told=told,
        headers=error.response.headers if status else None,
    )


def _field(told: str, parameters: dict[str, Any]) -> str | None:
    """The field that a refusal is about: the API names it first ("temperature: ..."); only what we have sent is one."""
    path, colon, _ = told.partition(":")
    root = path.partition(".")[0]
    return path if colon and (root in parameters or root in parameters.get("extra_body", {})) else None
