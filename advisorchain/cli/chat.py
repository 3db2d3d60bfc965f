"""`advisorchain chat`: answers as they come, a memory that lasts, and Ctrl-C that stops an answer and nothing else.

The event loop runs in a thread beside the main one. The main thread reads the keyboard and is the one that Python tells of
Ctrl-C: at the prompt it ends the chat, during an answer it cancels the answer's task, whose partial text memory keeps.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.console import Console
from rich.status import Status

from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.cli.parts import load_model, load_part, open_memory, plain
from advisorchain.cli.trace_view import TraceView
from advisorchain.errors import AdvisorChainError
from advisorchain.exchange import ChatChunk, checked_conversation_id
from advisorchain.memory import ChatMemory, MessageWindow
from advisorchain.telemetry import Telemetry

__all__ = ["Setting", "chat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the options of `advisorchain chat` say."""

    model: str
    advisors: tuple[str, ...]
    memory: str
    window: int
    conversation: str
    system: str | None
    timeout: float | None
    trace: bool


def chat(setting: Setting) -> None:
    """Chat until the input ends.

    Raises:
        AdvisorChainError: the chat cannot begin, or in a pipe: there is no answer.
        KeyboardInterrupt: in a pipe, Ctrl-C.
    """
    checked_conversation_id(setting.conversation)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_opened(setting)) as talk:
        if sys.stdin.isatty():
            _converse(portal, talk)
        else:
            _answer_input(portal, talk)


class Talk:
    """One conversation with a chain, as the main thread asks it and the event loop's thread answers."""

    def __init__(self, setting: Setting, chain: AdvisorChain, memory: ChatMemory, view: TraceView | None) -> None:
        self._setting = setting
        self._chain = chain
        self._memory = memory
        self._view = view
        self._scope: CancelScope | None = None
        self._terminal = sys.stdout.isatty()

    async def greeting(self) -> str:
        """What the chat is about, in one line."""
        count = await self._memory.count(self._setting.conversation)
        return f"{self._chain!r}, conversation `{self._setting.conversation}`, {count} messages kept"

    async def answer(self, prompt: str) -> bool:
        """Ask, and write the answer as it comes. False: it was stopped."""
        seen = False
        try:
            with CancelScope() as self._scope:
                async with self._chain.stream(
                    prompt,
                    conversation_id=self._setting.conversation,
                    system=self._setting.system,
                    timeout=self._setting.timeout,
                ) as stream:
                    async for chunk in stream:
                        seen = self._write(chunk) or seen
        finally:
            if seen:
                _write("\n")
            self._show_trace()
        if self._scope.cancelled_caught:
            _tell("stopped; what you see of the answer is kept" if seen else "stopped; nothing of this turn is kept")
        return not self._scope.cancelled_caught

    def stop(self) -> None:
        """Stop the answer that is under way."""
        if self._scope is not None:
            self._scope.cancel()

    def _write(self, chunk: ChatChunk) -> bool:
        text = ("\n" if chunk.boundary else "") + chunk.text + (chunk.refusal or "")
        if text:
            _write(plain(text) if self._terminal else text)
        return bool(text.strip())

    def _show_trace(self) -> None:
        for line in self._view.take() if self._view is not None else ():
            _tell(line)


@asynccontextmanager
async def _opened(setting: Setting) -> AsyncIterator[Talk]:
    model = load_model(setting.model, _LoadingNote())
    advisors = [load_part("--advisor", name) for name in setting.advisors]
    view = TraceView() if setting.trace else None
    telemetry = Telemetry() if view is None else view.telemetry
    async with open_memory(setting.memory, create=True) as repository:
        memory = ChatMemory(MessageWindow(setting.window), repository)
        advisors.append(MessageChatMemoryAdvisor(memory))
        async with AdvisorChain(model, advisors, name="chat", telemetry=telemetry) as chain:
            yield Talk(setting, chain, memory, view)


class _LoadingNote:
    """Says on a terminal that a model is being loaded, for as long as it is."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None

    def __call__(self, seconds: float | None) -> None:
        if self._status is not None:
            self._status.stop()
        elif self._console.is_terminal:
            self._status = self._console.status("Loading the model …")
            self._status.start()


def _converse(portal: BlockingPortal, talk: Talk) -> None:
    _tell(portal.call(talk.greeting))
    _tell("Ctrl-C stops an answer; Ctrl-D, or Ctrl-C here, ends the chat.")
    while (prompt := _read_line()) is not None:
        if not prompt.strip():
            continue
        try:
            _wait(portal, talk, portal.start_task_soon(talk.answer, prompt))
        except (BrokenPipeError, KeyboardInterrupt):
            raise
        except Exception as error:  # of a model or an advisor that is anybody's: the chat goes on
            _tell(f"advisorchain: {_one_line(error)}")


def _answer_input(portal: BlockingPortal, talk: Talk) -> None:
    try:
        prompt = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise AdvisorChainError(f"standard input is not {error.encoding}") from error
    try:
        whole = _wait(portal, talk, portal.start_task_soon(talk.answer, prompt.strip()))
    except (AdvisorChainError, BrokenPipeError):
        raise
    except Exception as error:
        raise AdvisorChainError(_one_line(error)) from error
    if not whole:
        raise KeyboardInterrupt


def _wait(portal: BlockingPortal, talk: Talk, answer: Future[bool]) -> bool:
    while True:
        try:
            while wait([answer], timeout=0.2).not_done:  # not for ever at once: on Windows that would not hear Ctrl-C
                pass
            return answer.result()
        except KeyboardInterrupt:
            portal.call(talk.stop)


def _read_line() -> str | None:
    """A line from the keyboard; None: the chat shall end."""
    try:
        if sys.stdout.isatty():
            return input("> ")
        _write_to(sys.stderr, "> ")
        return input()
    except (EOFError, KeyboardInterrupt):
        _tell("")
        return None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, AdvisorChainError) else f"{type(error).__name__}: {text}"


def _write(text: str) -> None:
    _write_to(sys.stdout, text)


def _write_to(file: object, text: str) -> None:
    print(text, end="", file=file, flush=True)  # type: ignore[call-overload]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
