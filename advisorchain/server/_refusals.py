"""What a client is told when something goes wrong: OpenAI's error object, with nothing of content, paths, keys or code.

| error | status |
|---|---|
| InvalidInputError, ContextLengthError | 400 |
| ConversationConflictError, ConversationDeletedError, LeaseLostError | 409 |
| LimitExceededError, a ModelError of status 429 | 429 |
| another ModelError | 503 when the same request may succeed later, else 502 |
| ModelTimeoutError, CallTimeoutError, TimeoutError | 504 |
| everything else | 500 |
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from advisorchain.errors import (
    AdvisorChainError,
    ChatMemoryError,
    ContextLengthError,
    ConversationConflictError,
    ConversationDeletedError,
    InvalidInputError,
    LeaseLostError,
    LimitExceededError,
    ModelError,
)

__all__ = ["Refusal", "log_failure", "refusal_of"]

_log: Final = logging.getLogger("advisorchain.server")
_CHANGED: Final = (ConversationConflictError, ConversationDeletedError, LeaseLostError)
_CODES: Final = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    409: "conversation_changed",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "rate_limit_exceeded",
    502: "model_failed",
    503: "unavailable",
    504: "timeout",
}


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
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, ceil(self.retry_after)))
        if self.again is not None:
            headers["x-should-retry"] = str(self.again).lower()
        return JSONResponse(self.body, self.status, headers)


def refusal_of(error: Exception) -> Refusal:
    """What the client is told of `error`."""
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, error.detail, headers=tuple((error.headers or {}).items()))
    if isinstance(error, InvalidInputError):
        return Refusal(400, str(error), "invalid_request")
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
    return Refusal(500, "the server failed", "internal_error", again=False)


def _of_memory(error: ChatMemoryError) -> Refusal:
    if isinstance(error, _CHANGED):
        return Refusal(409, "the conversation has changed meanwhile; read it again", again=False)
    return Refusal(500, "the conversation could not be read or written", "internal_error", again=False)


def _of_model(error: ModelError) -> Refusal:
    if error.status == 429:
        return Refusal(429, "the model is asked too often", retry_after=error.retry_after, again=error.retryable)
    status = 503 if error.retryable else 502
    return Refusal(status, "the model failed", "model_failed", retry_after=error.retry_after, again=error.retryable)


def log_failure(error: Exception, refusal: Refusal) -> None:
    """Tell the operator of what is the server's fault. The text of errors that are not ours may hold what was said."""
    if refusal.status >= 500:
        told = f"{type(error).__name__}: {error}" if isinstance(error, AdvisorChainError) else type(error).__name__
        notes = "; ".join(getattr(error, "__notes__", ()))
        traceback = error if _log.isEnabledFor(logging.DEBUG) else None
        _log.error("answered %d: %s%s", refusal.status, told, f" ({notes})" if notes else "", exc_info=traceback)
