"""A person's yes or no to what tools are about to do, asked at the terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from advisorchain.cli.interrupts import Interrupts
from advisorchain.cli.text import one_line, tell, typed
from advisorchain.messages import ToolCall

if TYPE_CHECKING:  # it needs the extra `tools`, which a chat without any does not
    from advisorchain.advisors.tool_calling import ToolPause

__all__ = ["Decisions", "decide"]

_NOBODY: Final = "there is nobody at a terminal who could be asked"


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is decided on the calls that wait, by their ids; a denied one with the reason that the model is told."""

    approve: list[str] = field(default_factory=list)
    deny: dict[str, str] = field(default_factory=dict)


def decide(pause: ToolPause, interrupts: Interrupts) -> Decisions:
    """Ask for each call; without a terminal each is denied. For the main thread.

    Raises:
        KeyboardInterrupt: Ctrl-C, in place of a decision.
    """
    decisions = Decisions()
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    for call in pause.open_calls:
        reason = _reason_against(call, interrupts) if at_terminal else _NOBODY
        if not at_terminal:
            tell(one_line(f"`{call.name}` needs a person's yes, and there is no terminal to ask at: it was denied"))
        if reason is None:
            decisions.approve.append(call.id)
        else:
            decisions.deny[call.id] = reason
    return decisions


def _reason_against(call: ToolCall, interrupts: Interrupts) -> str | None:
    """Why a call is denied, an empty text for no reason; None: it is approved."""
    tell(one_line(f"`{call.name}` is to run with {_shown(call)}"))
    answer = _asked("Run it? [y/N] ", interrupts)
    if answer is not None and answer.lower() in ("y", "yes"):
        return None
    return "" if answer is None else _asked("Why not, for the model to know? (Enter: no reason) ", interrupts) or ""


def _shown(call: ToolCall) -> str:
    """All the arguments, as the tool will read them; what is invisible, or turns the text around, by its number."""
    text = json.dumps(call.parsed(), ensure_ascii=False)
    shown = (f"\\u{ord(sign):04x}" if unicodedata.category(sign) in ("Cf", "Zl", "Zp") else sign for sign in text)
    return "".join(shown)


def _asked(question: str, interrupts: Interrupts) -> str | None:
    """A line from the keyboard; None: the input ended."""
    try:
        with interrupts.raised():
            if sys.stdout.isatty():  # so that editing the line does not wipe the question
                return typed(input(question)).strip()
            tell(question, end="")
            return typed(input()).strip()
    except EOFError:
        tell("")
        return None
    except UnicodeDecodeError as error:
        tell(f"advisorchain: what you typed is not {error.encoding}")
        return ""
