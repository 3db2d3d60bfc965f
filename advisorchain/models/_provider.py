"""What the adapters of all providers over HTTP do alike with answers: errors at the border, and characters cut in two.

Nothing here knows a vendor's library. The text of a vendor's error is read to find out what it means, and never shown:
it may hold a part of the prompt, or a key.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from inspect import currentframe
from traceback import walk_tb
from types import FrameType
from typing import Final

from advisorchain.errors import (
    ContextLengthError,
    ModelError,
    ModelNotFoundError,
    ModelResponseError,
    ModelTimeoutError,
)
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.messages import AssistantMessage, ToolCall

__all__ = [
    "NONSENSE",
    "SurrogateJoiner",
    "broken_off",
    "checked",
    "connection_error",
    "hide_texts",
    "no_answer",
    "retry_after",
    "status_error",
    "timeout_error",
]

# what reading an answer that is none raises; what our own values refuse is a ValueError, too
NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_TOO_LONG: Final = re.compile(
    r"context[ _]?(length|window|size)|maximum context|(prompt|input)( is)? too long|input length|too many (input )?tokens",
    re.IGNORECASE,
)
_TOO_LONG_CODES: Final = (
    "context_length_exceeded",
    "exceed_context_size_error",
    "request_too_large",
    "string_above_max_length",
)
_UNPAID: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_error", "billing_not_active")
_NOT_FOUND: Final = ("model_not_found", "not_found_error")
_KEY_CODES: Final = ("invalid_api_key", "authentication_error", "permission_error")
# told in an answer that had begun with status 200, so there is nothing but the code to go by
_PASSING: Final = (
    "api_error",
    "internal_error",
    "internal_server_error",
    "overloaded_error",
    "rate_limit_error",
    "rate_limit_exceeded",
    "server_error",
    "service_unavailable",
    "slow_down",
    "timeout_error",
    "vector_store_timeout",
)
_LATER: Final = (HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_LATE: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT)
_KEY: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_MAY_BE_TOO_LONG: Final = (
    None,
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_LABEL: Final = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_.\[\]-]{1,64}")


def status_error(
    name: str,
    *,
    status: int | None = None,
    code: str | None = None,
    kind: str | None = None,
    param: str | None = None,
    told: str = "",
    headers: Mapping[str, str] | None = None,
) -> ModelError:
    """What a provider's answer with an error means.

    Args:
        name: of the model, as our messages have it.
        status: of HTTP; None: the error came in the middle of a stream.
        code: the provider's word for the error, such as "rate_limit_exceeded".
        kind: its word for the kind of error, such as "invalid_request_error".
        param: the field of the request that it names.
        told: the provider's message, which is read for a sign that the prompt is too long, and not shown.
        headers: of the answer, with lower-case names or any mapping that does not care.
    """
    headers = headers or {}
    words = _text(code), _text(kind)
    about = _about(status, words, _text(param))
    wait = retry_after(headers)
    if _is_too_long(status, words, told):
        return ContextLengthError(
            f"the prompt is longer than `{name}` can read{about}; let memory recall fewer messages", status=status
        )
    if any(word in _UNPAID for word in words):
        return ModelError(f"the account of `{name}` has no credit left{about}; check plan and billing", status=status)
    if status in _KEY or any(word in _KEY_CODES for word in words):
        return ModelError(f"`{name}` refused the key{about}; check the API key and what it may do", status=status)
    if status == HTTPStatus.NOT_FOUND or any(word in _NOT_FOUND for word in words):
        return ModelNotFoundError(f"there is no `{name}`{about}; check the model's name and `base_url`", status=status)
    if status in _LATE:
        return ModelTimeoutError(f"`{name}` took too long{about}; ask again", retry_after=wait, status=status)
    if _passes(status, words, headers):
        limited = status == HTTPStatus.TOO_MANY_REQUESTS or any((word or "").startswith("rate_limit") for word in words)
        said = "is asked too often" if limited else "failed"
        return ModelError(f"`{name}` {said}{about}; ask again later", retryable=True, retry_after=wait, status=status)
    return ModelError(f"`{name}` refused the request{about}; check messages and options", status=status)


def timeout_error(name: str) -> ModelError:
    """The client's own patience ran out."""
    return ModelTimeoutError(f"`{name}` did not answer in time; give a longer `timeout`, or ask again")


def connection_error(name: str) -> ModelError:
    """There was no connection, or it was lost before the whole answer had come."""
    return ModelError(
        f"`{name}` cannot be reached, or the connection was lost; check `base_url`, or ask again", retryable=True
    )


def broken_off(name: str) -> ModelError:
    """A stream ended where an answer does not."""
    return ModelResponseError(f"`{name}` broke off its answer; ask again", retryable=True)


def no_answer(name: str) -> ModelError:
    """What came is not what the provider's API promises."""
    return ModelResponseError(f"`{name}` sent something that is no answer; check `base_url`, or ask again", retryable=True)


def checked(chunk: ChatChunk | None) -> ChatChunk | None:
    """`chunk` itself, when our values take what it holds; else they would refuse it where nobody knows who has sent it.

    Raises:
        InvalidInputError: they do not. For an adapter that is an answer that is none.
    """
    if chunk is None or chunk.plain:
        return chunk
    for piece in chunk.tool_calls:
        ToolCall(piece.id or "none yet", piece.name or "", piece.arguments or "")
    told = chunk.metadata or {}
    extras = told.get("message", {})
    message = AssistantMessage(chunk.text, reasoning=chunk.reasoning, refusal=chunk.refusal, metadata=extras)
    ChatResponse(message, model=told.get("model"), id=told.get("id"))
    return chunk


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a provider asks to wait (`retry-after-ms`, `retry-after`: seconds or a date); None: it does not."""
    milliseconds, told = _number(headers.get("retry-after-ms")), headers.get("retry-after")
    if milliseconds is not None:
        return milliseconds / 1000
    if told is None:
        return None
    if (seconds := _number(told)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def hide_texts(error: BaseException) -> None:
    """Take the texts out of an error and of what it came from, but those of the operating system.

    They are printed with a traceback, and may hold what the provider's answer quotes: a part of the prompt, or a key. Their
    other attributes, such as the SDK's `body`, stay. An error that a caller is dealing with while it asks, such as that of
    another model before, is its context too; that one is left alone.
    """
    at_work = set(_running_frames())
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if cause is not error and any(frame in at_work for frame, _ in walk_tb(cause.__traceback__)):
            return
        seen.add(id(cause))
        if not isinstance(cause, OSError):
            cause.args = ("text hidden: it may hold content, or a key",)
        cause = cause.__cause__ or cause.__context__


def _running_frames() -> Iterator[FrameType]:
    frame = currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


class SurrogateJoiner:
    """Joins characters whose halves came in two pieces of one text.

    JSON may write a character beyond U+FFFF as two escapes, and some servers cut a text between them. A half that stays
    alone becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """The next piece; what of it is whole."""
        if text.isascii() and not self._half:
            return text
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return _whole(text.removesuffix(self._half))

    def flush(self) -> str:
        """What stands for the half that still waits, when nothing more comes."""
        half, self._half = self._half, ""
        return _whole(half)


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None  # whatever a server sent


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _about(status: int | None, words: tuple[str | None, str | None], param: str | None) -> str:
    """What may be shown of an error: its status, and what has the form of a name."""
    code = next((word for word in words if word and _LABEL.fullmatch(word)), None)
    shown = [f"status {status}"] if status else []
    shown += [f"`{code}`"] if code else []
    shown += [f"about `{param}`"] if param and _LABEL.fullmatch(param) else []
    return f" ({', '.join(shown)})" if shown else ""


def _is_too_long(status: int | None, words: tuple[str | None, str | None], told: str) -> bool:
    if any(word in _TOO_LONG_CODES for word in words):
        return True
    if status is None and _passes(status, words, {}):  # such as too many tokens a minute
        return False
    return status in _MAY_BE_TOO_LONG and _TOO_LONG.search(told) is not None


def _passes(status: int | None, words: tuple[str | None, str | None], headers: Mapping[str, str]) -> bool:
    """Whether the same request may succeed later. OpenAI and Anthropic say so themselves in `x-should-retry`."""
    said = headers.get("x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    if status is None:
        return any(word in _PASSING for word in words)
    return status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR
