"""What a client is told when something goes wrong: OpenAI's error object, with nothing of content, paths, keys or code.

An error's own text is told only where it comes from reading the request, so that it is about what the client sent. One that
comes from inside the chain, of whatever class, may name what is the operator's: there the client is told what kind it is.

| status | code | when |
|---|---|---|
| 400 | invalid_request | the request cannot be read; InvalidInputError: the chain does not take it |
| 400 | context_length_exceeded | ContextLengthError |
| 401 | invalid_api_key | the key is missing or wrong |
| 403 | not_local | the server has no key, and was asked by another name than a loopback one |
| 404 | not_found | another path, or another model than the one there is |
| 405 | method_not_allowed | such as GET where POST is needed |
| 408 | timeout | the body did not come in time |
| 409 | conversation_busy | ConversationBusyError: another turn of it is under way |
| 409 | conversation_changed | ConversationConflictError, ConversationDeletedError, LeaseLostError |
| 413 | body_too_large | the body is too large, or holds too many values |
| 415 | unsupported_media_type | the body is not sent as JSON |
| 429 | too_many_streams | the server answers as many as it may |
| 429 | rate_limit_exceeded | LimitExceededError; ModelError of status 429 |
| 500 | internal_error | everything else: an advisor, a tool or a store failed |
| 502 | model_failed | ModelError that asking again will not mend |
| 503 | model_failed | ModelError that asking again may mend |
| 503 | unavailable | the server is shutting down |
| 504 | timeout | ModelTimeoutError, CallTimeoutError, TimeoutError |
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from advisorchain.errors import (
    AdvisorChainError,
    ChatMemoryError,
    ContextLengthError,
    ConversationBusyError,
    ConversationConflictError,
    ConversationDeletedError,
    ConversationIdError,
    InvalidInputError,
    LeaseLostError,
    LimitExceededError,
    ModelError,
    Note,
)

__all__ = ["Refusal", "RefusedError", "log_failure", "refusal_of", "refusal_of_request"]

_log: Final = logging.getLogger("advisorchain.server")
_CHANGED: Final = (ConversationConflictError, ConversationDeletedError, LeaseLostError)
_CODES: Final = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conversation_changed",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "rate_limit_exceeded",
    502: "model_failed",
    503: "unavailable",
    504: "timeout",
}
_NO_ID: Final = (
    "this chain needs a conversation id; name one in the header `X-Conversation-Id` or in `metadata.conversation_id`"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error.

    Attributes:
        retry_after: seconds that the client is asked to wait.
        again: whether OpenAI's clients shall send the request again by themselves; None: they decide by the status.
        headers: further ones.
    """

    status: int
    message: str
    code: str | None = None
    retry_after: float | None = None
    again: bool | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        code = self.code or _CODES.get(self.status)
        return {"error": {"message": self.message, "type": kind, "param": None, "code": code}}

    def response(self) -> JSONResponse:
        """The error as an HTTP response."""
        headers = dict(self.headers)
        if self.retry_after is not None and isfinite(self.retry_after):
            headers["retry-after"] = str(max(1, ceil(self.retry_after)))
        if self.again is not None:
            headers["x-should-retry"] = str(self.again).lower()
        return JSONResponse(self.body, self.status, headers)


class RefusedError(Exception):
    """A request is answered with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


_FAILED: Final = Refusal(500, "the server failed", "internal_error", again=False)


def refusal_of_request(error: Exception) -> Refusal:
    """What the client is told of an error that comes from reading its request."""
    if isinstance(error, RefusedError):
        return error.refusal
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, error.detail, headers=tuple((error.headers or {}).items()))
    if isinstance(error, InvalidInputError):
        return Refusal(400, str(error), "invalid_request")
    return _FAILED


def refusal_of(error: Exception) -> Refusal:
    """What the client is told of an error that comes from the chain."""
    if isinstance(error, ConversationIdError):
        return Refusal(400, _NO_ID, "invalid_request")
    if isinstance(error, InvalidInputError):
        return Refusal(400, "the chain does not take this request; the server's log tells why", "invalid_request")
    if isinstance(error, ContextLengthError):
        return Refusal(400, "the conversation is longer than the model can read", "context_length_exceeded")
    if isinstance(error, LimitExceededError):
        again = error.retry_after is not None
        return Refusal(429, "a limit of this server is reached", retry_after=error.retry_after, again=again)
    if isinstance(error, ChatMemoryError):
        return _of_memory(error)
    if isinstance(error, TimeoutError):
        return Refusal(504, "there was no answer in time", again=isinstance(error, ModelError))
    if isinstance(error, ModelError):
        return _of_model(error)
    return _FAILED


def _of_memory(error: ChatMemoryError) -> Refusal:
    if isinstance(error, ConversationBusyError):
        return Refusal(409, "another turn of this conversation is under way", "conversation_busy", again=False)
    if isinstance(error, _CHANGED):
        return Refusal(409, "the conversation has changed meanwhile; read it again", again=False)
    return Refusal(500, "the conversation could not be read or written", "internal_error", again=False)


def _of_model(error: ModelError) -> Refusal:
    if error.status == 429:
        return Refusal(429, "the model is asked too often", retry_after=error.retry_after, again=error.retryable)
    status = 503 if error.retryable else 502
    return Refusal(status, "the model failed", "model_failed", retry_after=error.retry_after, again=error.retryable)


def log_failure(error: Exception, refusal: Refusal, *, in_stream: bool = False) -> None:
    """Tell the operator what the client is not told. The text and notes of errors that are not ours may hold what was said.

    With `in_stream` the answer had begun, with status 200.
    """
    level = logging.ERROR if refusal.status >= 500 else logging.INFO
    if isinstance(error, InvalidInputError):
        level = logging.WARNING  # whoever built the chain can mend it, and nobody else
    if not _log.isEnabledFor(level):
        return
    told = f"{type(error).__name__}: {error}" if isinstance(error, AdvisorChainError) else type(error).__name__
    # a note may name what a model called a tool: such a name breaks no line of the log
    ours = [note for note in getattr(error, "__notes__", ()) if isinstance(note, Note) and note.isprintable()]
    answered = f"ended a stream with error {refusal.status}" if in_stream else f"answered {refusal.status}"
    traceback = error if _log.isEnabledFor(logging.DEBUG) else None
    _log.log(level, "%s: %s%s", answered, told, f" ({'; '.join(ours)})" if ours else "", exc_info=traceback)
