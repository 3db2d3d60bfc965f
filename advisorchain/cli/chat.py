"""`advisorchain chat`: answers as they come, a memory that lasts, and Ctrl-C that stops an answer and nothing else.

The event loop runs in a thread beside the main one. The main thread reads the keyboard and is the one that Python tells of
Ctrl-C: at the prompt it ends the chat, during an answer it cancels the answer's task, whose partial text memory keeps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from advisorchain.cli.approval import decide
from advisorchain.cli.interrupts import Interrupts
from advisorchain.cli.talk import Ended, Setting, Stop, Talk, open_talk
from advisorchain.cli.text import explained, tell, tell_traceback, typed
from advisorchain.errors import AdvisorChainError, InvalidInputError
from advisorchain.exchange import checked_conversation_id

__all__ = ["Setting", "chat"]


def chat(setting: Setting) -> None:
    """Answer the prompt, or what stands in the pipe; at a terminal, chat until the input ends.

    Raises:
        AdvisorChainError: the chat cannot begin; without a chat: there is no answer.
        KeyboardInterrupt: Ctrl-C, but at the prompt of a chat and for an answer of a chat.
    """
    try:
        _chat(setting)
    except BrokenPipeError:
        raise
    except Exception as error:
        if setting.debug:
            tell_traceback(error)
        if isinstance(error, AdvisorChainError):
            raise
        raise AdvisorChainError(explained(error, hint=not setting.debug)) from error


def _chat(setting: Setting) -> None:
    checked_conversation_id(setting.conversation)
    with Interrupts() as interrupts:
        single = _single_prompt(setting, interrupts)  # first: nothing is loaded for nothing
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(open_talk(setting)) as talk:
            session = _Session(portal, talk, interrupts)
            if single is None:
                _converse(session, setting)
            elif not session.answer(single):
                raise KeyboardInterrupt
        if interrupts.forget():
            raise KeyboardInterrupt  # while all was closed


def _single_prompt(setting: Setting, interrupts: Interrupts) -> str | None:
    """The only prompt there will be; None at a terminal, where a chat begins."""
    if setting.prompt is not None:
        return _checked(setting.prompt, "the prompt")
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    try:
        with interrupts.raised():
            text = sys.stdin.read() if sys.stdin is not None else ""
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"standard input is not {error.encoding}") from error
    return _checked(text, "standard input")


def _checked(text: str, source: str) -> str:
    if not text.strip():
        raise InvalidInputError(f"{source} is empty; give a question")
    return text.strip()


class _Session:
    """What the main thread asks of the event loop's thread."""

    def __init__(self, portal: BlockingPortal, talk: Talk, interrupts: Interrupts) -> None:
        self._portal = portal
        self._talk = talk
        self.interrupts = interrupts

    def greeting(self) -> str:
        return self._portal.call(self._talk.greeting)

    def answer(self, prompt: str) -> bool:
        """Show the answer, and ask for a yes where a tool needs one; False: Ctrl-C stopped it."""
        ended = self._run(partial(self._talk.answer, prompt))
        while ended.pause is not None:
            try:
                decisions = decide(ended.pause, self.interrupts)
            except KeyboardInterrupt:
                tell("")
                self._portal.call(self._talk.leave, ended.pause)
                return False
            ended = self._run(partial(self._talk.go_on, ended.pause, decisions))
        return not ended.stopped

    def _run(self, answer: Callable[[Stop], Coroutine[Any, Any, Ended]]) -> Ended:
        stop = Stop()
        work: Future[Ended] = self._portal.start_task_soon(answer, stop)
        return self.interrupts.wait(work, lambda: self._portal.call(stop))


def _converse(session: _Session, setting: Setting) -> None:
    _edit_lines()
    tell(session.greeting())
    if sys.stderr.isatty():
        tell("What is said is remembered; --conversation NAME begins another conversation.")
    tell("Ctrl-C stops an answer; Ctrl-D, or Ctrl-C here, ends the chat.")
    while (prompt := _read_line(session.interrupts)) is not None:
        if not prompt.strip():
            continue
        try:
            session.answer(prompt)
        except BrokenPipeError:
            raise
        except Exception as error:  # of a model or an advisor that is anybody's: the chat goes on
            if setting.debug:
                tell_traceback(error)
            tell(f"advisorchain: {explained(error, hint=not setting.debug)}")
        session.interrupts.forget()  # one that came as the answer ended was meant for it


def _edit_lines() -> None:
    """Arrow keys and a history at the prompt; it is `input` that uses the module, once it is there."""
    if sys.stdout.isatty():  # else `input` would not use it, and importing it may write to a pipe
        with suppress(ImportError):  # not on every system
            import_module("readline")


def _read_line(interrupts: Interrupts) -> str | None:
    """A line from the keyboard; None: the chat shall end."""
    try:
        with interrupts.raised():
            if sys.stdout.isatty():
                return typed(input("> "))
            tell("> ", end="")
            return typed(input())
    except (EOFError, KeyboardInterrupt):
        tell("")
        return None
    except UnicodeDecodeError as error:
        tell(f"advisorchain: what you typed is not {error.encoding}")
        return ""
