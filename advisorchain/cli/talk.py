"""One conversation with a chain: what `advisorchain chat` does on the event loop's thread."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from anyio import CancelScope
from rich.console import Console
from rich.status import Status

from advisorchain._client.arguments import for_tools
from advisorchain.advisor import Outcome
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor, recorded_once
from advisorchain.chain import AdvisorChain
from advisorchain.cli.answer_view import AnswerView
from advisorchain.cli.approval import Decisions
from advisorchain.cli.named_parts import load_model, load_part, open_memory
from advisorchain.cli.text import tell
from advisorchain.cli.trace_view import TraceView
from advisorchain.errors import ConfigurationError, MissingExtraError
from advisorchain.exchange import ChatResponse
from advisorchain.memory import ChatMemory, MessageWindow, Retention
from advisorchain.messages import SystemMessage
from advisorchain.telemetry import Telemetry

if TYPE_CHECKING:  # it needs the extra `tools`, which a chat without any does not
    from advisorchain.advisors.tool_calling import ToolPause

__all__ = ["Ended", "Setting", "Stop", "Talk", "open_talk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the command line of `advisorchain chat` says."""

    prompt: str | None
    model: str
    advisors: tuple[str, ...]
    tools: tuple[str, ...]
    mcp: tuple[str, ...]
    yes: bool
    memory: str | None
    ttl: timedelta | None
    window: int
    conversation: str
    system: str | None
    timeout: float | None
    trace: bool
    debug: bool


class Stop:
    """Stops one answer, whether it has begun or not."""

    def __init__(self) -> None:
        self._wanted = False
        self._scope: CancelScope | None = None

    def __call__(self) -> None:
        """Stop it, on the event loop's thread."""
        self._wanted = True
        if self._scope is not None:
            self._scope.cancel()

    def holds(self, scope: CancelScope) -> None:
        """The scope that the answer runs in."""
        self._scope = scope
        if self._wanted:
            scope.cancel()


@dataclass(frozen=True, slots=True)
class Ended:
    """How an answer ended.

    Attributes:
        stopped: whether Ctrl-C did it.
        pause: what the turn goes on with, when tools wait for a person's yes.
    """

    stopped: bool
    pause: ToolPause | None = None


class Talk:
    """One conversation with a chain."""

    def __init__(self, setting: Setting, chain: AdvisorChain, memory: ChatMemory, view: TraceView | None) -> None:
        self._setting = setting
        self._chain = chain
        self._memory = memory
        self._view = view

    async def greeting(self) -> str:
        """What the chat is about, in one line."""
        count = await self._memory.count(self._setting.conversation)
        return f"{self._chain!r}, conversation `{self._setting.conversation}`, {count} messages kept"

    async def answer(self, prompt: str, stop: Stop) -> Ended:
        """Ask, and show the answer as it comes."""
        asked = {"prompt": prompt, "conversation_id": self._setting.conversation}
        return await self._show(asked, stop, AnswerView())

    async def go_on(self, pause: ToolPause, decisions: Decisions, stop: Stop) -> Ended:
        """Go on with a turn that waited, and show the rest of its answer."""
        asked = pause.resume(approve=decisions.approve, deny=decisions.deny)
        return await self._show(asked, stop, AnswerView(pause))

    async def leave(self, pause: ToolPause) -> None:
        """Keep of a turn that waited for a yes what was seen of it, as of any that Ctrl-C stops."""
        seen = ChatResponse(pause.message, earlier=pause.earlier)
        answer = recorded_once(Outcome("closed", seen), "partial", "answer", in_loop=False)
        question = (message for message in pause.prompt if not isinstance(message, SystemMessage))
        if answer is not None:
            await self._memory.add(self._setting.conversation, [*question, *answer])
        _tell_stopped(kept=answer is not None)

    async def _show(self, asked: Mapping[str, Any], stop: Stop, view: AnswerView) -> Ended:
        setting = self._setting
        try:
            with CancelScope() as scope:
                stop.holds(scope)
                async with self._chain.stream(**asked, system=setting.system, timeout=setting.timeout) as stream:
                    async for chunk in stream:
                        view.show(chunk)
                pause = stream.response.pause
        finally:
            view.end()
            self._show_trace()
        if scope.cancelled_caught:
            _tell_stopped(kept=view.seen)
            return Ended(stopped=True)
        return Ended(stopped=False, pause=pause)

    def _show_trace(self) -> None:
        for line in self._view.take() if self._view is not None else ():
            tell(line)


def _tell_stopped(*, kept: bool) -> None:
    tell("stopped; what you see of the answer is kept" if kept else "stopped; nothing of this turn is kept")


@asynccontextmanager
async def open_talk(setting: Setting) -> AsyncIterator[Talk]:
    """The conversation that the command line describes; on leaving everything of it is closed.

    Raises:
        AdvisorChainError: a model, an advisor or a store that cannot be had.
    """
    model = load_model(setting.model, _LoadingNote())
    advisors = [load_part("--advisor", name) for name in setting.advisors]
    view = TraceView() if setting.trace else None
    telemetry = Telemetry() if view is None else view.telemetry
    async with open_memory(setting.memory, create=True) as repository:
        retention = None if setting.ttl is None else Retention(setting.ttl)
        memory = ChatMemory(MessageWindow(setting.window), repository, retention=retention)
        advisors.append(MessageChatMemoryAdvisor(memory))
        advisors += _loop_of(setting, advisors)
        async with AdvisorChain(model, advisors, name="chat", telemetry=telemetry) as chain:
            yield Talk(setting, chain, memory, view)


def _loop_of(setting: Setting, advisors: Sequence[Any]) -> list[Any]:
    """What runs the tools that `--tools` and `--mcp` name."""
    tools: list[Any] = []
    for name in setting.tools:
        part = load_part("--tools", name)
        tools += part if isinstance(part, list | tuple) else [part]
    try:
        return for_tools([*tools, *_servers(setting)], advisors, "of_command")
    except MissingExtraError:
        raise
    except ConfigurationError as error:
        raise ConfigurationError(f"`{'--tools' if setting.tools else '--mcp'}`: {error}") from error


def _servers(setting: Setting) -> list[Any]:
    if not setting.mcp:
        return []
    from advisorchain.tools.mcp import McpToolset  # needs the extra `mcp`, which other tools do not

    if not setting.debug:  # what its SDK logs of a server that prints more than messages would stand amid the answer
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return [McpToolset(server, needs_approval=not setting.yes) for server in setting.mcp]


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
