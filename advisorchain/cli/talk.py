"""One conversation with a chain: what `advisorchain chat` does on the event loop's thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import CancelScope
from rich.console import Console
from rich.status import Status

from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.cli.parts import load_model, load_part, open_memory
from advisorchain.cli.text import tell, write
from advisorchain.cli.trace_view import TraceView
from advisorchain.exchange import ChatChunk
from advisorchain.memory import ChatMemory, MessageWindow
from advisorchain.telemetry import Telemetry

__all__ = ["Setting", "Stop", "Talk", "open_talk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the command line of `advisorchain chat` says."""

    prompt: str | None
    model: str
    advisors: tuple[str, ...]
    memory: str | None
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

    async def answer(self, prompt: str, stop: Stop) -> bool:
        """Ask, and write the answer as it comes. False: it was stopped."""
        seen = False
        try:
            with CancelScope() as scope:
                stop.holds(scope)
                async with self._chain.stream(
                    prompt,
                    conversation_id=self._setting.conversation,
                    system=self._setting.system,
                    timeout=self._setting.timeout,
                ) as stream:
                    async for chunk in stream:
                        seen = _written(chunk) or seen
        finally:
            if seen:
                write("\n")
            self._show_trace()
        if scope.cancelled_caught:
            tell("stopped; what you see of the answer is kept" if seen else "stopped; nothing of this turn is kept")
        return not scope.cancelled_caught

    def _show_trace(self) -> None:
        for line in self._view.take() if self._view is not None else ():
            tell(line)


def _written(chunk: ChatChunk) -> bool:
    text = ("\n" if chunk.boundary else "") + chunk.text + (chunk.refusal or "")
    if text:
        write(text)
    return bool(text.strip())


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
