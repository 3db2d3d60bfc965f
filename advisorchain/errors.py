"""Every error of this library.

    AdvisorChainError
    ├── ConfigurationError (ValueError)        a chain, model or advisor that cannot work; refused when it is built
    │   ├── UnknownAdvisorError (LookupError)  no advisor of that name in the chain
    │   └── MissingExtraError (ImportError)    an optional package is not installed
    ├── InvalidInputError (ValueError)         a prompt, option or context that cannot be sent
    │   ├── MessageError                       a message that cannot be made, or loaded from JSON
    │   ├── ConversationIdError                no conversation id, or one that no store can keep
    │   └── ToolArgumentsError                 arguments of a tool call that are not one JSON object, or do not fit the tool
    ├── AdvisorContractError (TypeError)       a hook or an advisor gave back the wrong thing
    ├── StreamError (RuntimeError)             a stream used in a way that cannot work
    ├── CallTimeoutError (TimeoutError)        `timeout=` of a call or stream ran out
    ├── LimitExceededError (RuntimeError)      a limit that the application set is reached; `retry_after`
    ├── ToolError (RuntimeError)               a tool that a server runs failed, or the server did
    ├── ModelError (RuntimeError)              the model failed; `retryable`, `retry_after`, `status`
    │   ├── ContextLengthError (ValueError)    the prompt is longer than the model can read
    │   ├── ModelNotFoundError (LookupError)   no such model, or its file is not there
    │   ├── ModelResponseError                 the model answered nothing, or nonsense
    │   │   └── OutputValidationError (ValueError)  its answer is not of the type that was asked for; `response`, `problem`
    │   └── ModelTimeoutError (TimeoutError)   it did not answer in time
    └── ChatMemoryError (RuntimeError)
        ├── ConversationConflictError          the log has moved on since it was read; `expected`, `found`
        │   └── ConversationBusyError          another turn of it is under way, and the rule lets no second one begin
        ├── ConversationDeletedError (LookupError)  the conversation was deleted while a turn was under way
        ├── LeaseLostError (TimeoutError)      a lease went to another holder before its turn was stored
        └── StorageError (OSError)             the store cannot be opened, read or written
            └── StoreMissingError              its tables or indexes are not there yet, and were not to be made

Two warnings: `StreamTextWarning` and `AdvisorOrderWarning`.

Errors of your own advisors and functions pass through the chain with their own type; the chain adds a note
that names the advisor.
"""

import inspect
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisorchain.exchange import ChatResponse

__all__ = [
    "AdvisorChainError",
    "AdvisorContractError",
    "AdvisorOrderWarning",
    "CallTimeoutError",
    "ChatMemoryError",
    "ConfigurationError",
    "ContextLengthError",
    "ConversationBusyError",
    "ConversationConflictError",
    "ConversationDeletedError",
    "ConversationIdError",
    "InvalidInputError",
    "LeaseLostError",
    "LimitExceededError",
    "MessageError",
    "MissingExtraError",
    "ModelError",
    "ModelNotFoundError",
    "ModelResponseError",
    "ModelTimeoutError",
    "OutputValidationError",
    "StorageError",
    "StoreMissingError",
    "StreamError",
    "StreamTextWarning",
    "ToolArgumentsError",
    "ToolError",
    "UnknownAdvisorError",
]


class AdvisorChainError(Exception):
    """The root of this library's errors."""


class ConfigurationError(AdvisorChainError, ValueError):
    """A chain, model or advisor that cannot work. Raised when it is built."""


class UnknownAdvisorError(ConfigurationError, LookupError):
    """The chain has no advisor of that name."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional package is not installed; the message spells the pip command."""


class InvalidInputError(AdvisorChainError, ValueError):
    """A prompt, option or context that cannot be sent. Raised before the model is asked."""


class MessageError(InvalidInputError):
    """A message that cannot be made, or cannot be loaded from JSON."""


class ConversationIdError(InvalidInputError):
    """A conversation id is missing, or is one that not every store can keep."""


class ToolArgumentsError(InvalidInputError):
    """The arguments of a tool call are not one JSON object, or do not fit the tool."""


class AdvisorContractError(AdvisorChainError, TypeError):
    """A hook returned the wrong type, or an `around` ended without a response or went on after it."""


class StreamError(AdvisorChainError, RuntimeError):
    """A stream was used in a way that cannot work, such as iterating it outside `async with`."""


class CallTimeoutError(AdvisorChainError, TimeoutError):
    """The `timeout` of a call or stream ran out."""


class LimitExceededError(AdvisorChainError, RuntimeError):
    """A limit that the application set is reached: of tokens, calls, or a wait that would be too long.

    Attributes:
        retry_after: seconds until there is room again, or None: time alone does not help.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ToolError(AdvisorChainError, RuntimeError):
    """A tool that a server runs failed, or the server could not be reached. The tool loop tells the model."""


class ModelError(AdvisorChainError, RuntimeError):
    """The model failed.

    Attributes:
        retryable: whether the same request may succeed when it is sent again.
        retry_after: seconds that the provider asks to wait, or None when it did not say.
        status: the HTTP status of the provider's answer, or None: there was none.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status


class ContextLengthError(ModelError, ValueError):
    """The prompt, with the answer that it leaves room for, is longer than the model can read."""


class ModelResponseError(ModelError):
    """The model answered nothing, or something that is no answer."""


class ModelTimeoutError(ModelError, TimeoutError):
    """The model did not answer in time, or was silent for too long while it answered. Always `retryable`."""

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message, retryable=True, retry_after=retry_after, status=status)


class OutputValidationError(ModelResponseError, ValueError):
    """The answer is not of the type that was asked for, however often it was asked.

    Attributes:
        response: the last answer.
        problem: what is wrong with it, by field; it may hold parts of the answer, so the error's own text does not have it.
    """

    def __init__(self, message: str, *, response: "ChatResponse", problem: str) -> None:
        super().__init__(message)
        self.response = response
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), response=self.response, problem=self.problem), self.args, self.__dict__


class ModelNotFoundError(ModelError, LookupError):
    """There is no such model, or its file is not there."""


class ChatMemoryError(AdvisorChainError, RuntimeError):
    """A conversation could not be read or written."""


class ConversationConflictError(ChatMemoryError):
    """The conversation's log is not where the writer believed it to be, or another turn of it is under way, or an id is
    taken.

    Attributes:
        expected: the revision that the writer had read; None: it was about no revision.
        found: the revision that is there, or None.
    """

    def __init__(self, message: str, *, expected: int | None = None, found: int | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found

    def __reduce__(self) -> tuple[Any, ...]:  # else it could be pickled, but not back
        return partial(type(self), expected=self.expected, found=self.found), self.args, self.__dict__


class ConversationBusyError(ConversationConflictError):
    """Another turn of the conversation is under way, and `Reject` or `Serialize` lets no second one begin.

    Nothing was asked or stored; the same may succeed later.
    """


class ConversationDeletedError(ChatMemoryError, LookupError):
    """The conversation was deleted, or begun anew, after this turn had begun."""


class LeaseLostError(ChatMemoryError, TimeoutError):
    """The lease on a conversation was released, or went to another holder, before its turn was stored."""


class StorageError(ChatMemoryError, OSError):
    """The store cannot be opened, read or written."""


class StoreMissingError(StorageError):
    """There is a database, without tables or indexes of ours: nothing was ever kept there. With `create=True` it is made."""


class StreamTextWarning(UserWarning):
    """An `after` changed the text of a streamed answer, which the reader has already seen.

    Change text in `transform`, which is applied to the chunks and to the response alike.
    """


class AdvisorOrderWarning(UserWarning):
    """Two advisors of a chain stand in an order that does not do what they are there for. Told when it is built.

    The text begins with the name of a rule of `advisorchain.lint`, by which it can be filtered.
    """


class Note(str):
    """A note of this library's on an error: it names a part of the chain or a kind of error, and quotes nothing."""

    __slots__ = ()


def add_note(error: BaseException, text: str) -> None:
    """Put a `Note` on an error, once: one error object may be raised several times."""
    with suppress(Exception):  # a class of its own may refuse notes
        if text not in getattr(error, "__notes__", ()):
            error.add_note(Note(text))


def kind_of(value: object) -> str:
    """What a value is, as a message tells it without showing it: "None", "an int", "the class `A`"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def dropped(value: object) -> str:
    """As `kind_of`, of what nobody can use. A coroutine is closed: no "never awaited" warning beside the error."""
    if inspect.iscoroutine(value):
        value.close()
    return kind_of(value)
