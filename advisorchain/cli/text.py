"""Text on its way to people and from the keyboard: nothing in it steers the terminal, and errors are one line."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Final, TextIO

from advisorchain._explain.rows import printable
from advisorchain.errors import AdvisorChainError

__all__ = ["explained", "one_line", "plain", "reconfigured", "tell", "tell_traceback", "typed", "write"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)(?:\[.|[0-?]*[ -/]*[@-~])"  # what arrow and function keys send
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links, device strings
    r"|\x1b[NO].|\x1b[ -/]*[0-~]"
)


def reconfigured(stream: TextIO, **settings: str) -> TextIO:
    """The stream, with another `encoding` or way with `errors`, where it is one that has them."""
    if reconfigure := getattr(stream, "reconfigure", None):
        reconfigure(**settings)
    return stream


def plain(text: str) -> str:
    """`text` with `�` for what steers the terminal or is not seen; line breaks and tabs stay, carriage returns go.

    Each character by itself: a sequence that comes in pieces is as harmless as a whole one.
    """
    return printable(text.replace("\r", ""), breaks=True)


def typed(line: str) -> str:
    """A line from the keyboard without escape sequences and control characters, which nobody meant to say."""
    return _CONTROL.sub("", _SEQUENCE.sub("", line))


def one_line(text: str) -> str:
    """`text` on one line of a table or a message."""
    return printable(text.replace("\r", ""))


def explained(error: BaseException, *, hint: bool) -> str:
    """What went wrong, in one line; of an error that is not ours, with its type, and with `hint`, how to see where."""
    text = " ".join(str(error).split())
    if isinstance(error, AdvisorChainError):
        return text
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind) + (" (--debug shows where)" if hint else "")


def write(text: str) -> None:
    """Write to standard output, now."""
    print(plain(text), end="", flush=True)


def tell(line: str, end: str = "\n") -> None:
    """Write a line to standard error, now."""
    print(plain(line), end=end, file=sys.stderr, flush=True)


def tell_traceback(error: BaseException) -> None:
    """Write to standard error where an error came from."""
    tell("".join(traceback.format_exception(error)), end="")
