"""`window.json`: a ChatMemory with a window."""

from __future__ import annotations

from typing import Any

from advisorchain.memory import ChatMemory, MessageWindow
from advisorchain.messages import Message

from ._expecting import Result, check_messages
from ._program import Program
from ._reading import Fields, message_of, messages_of


class WindowProgram(Program):
    """Operations on a memory that is built when it is first needed."""

    operations = ("build", "add", "add_one", "get", "clear")

    async def set_up(self, given: Fields) -> None:
        self._built: ChatMemory | None = None
        self._max_messages = given.take("max_messages", None)
        self._used = given.take("conversation_id", "c1")
        for batch in (given.take("memory", None), *given.take("memory_adds", ())):
            if batch:
                await self._memory().add(self._used, messages_of(batch))

    def _memory(self) -> ChatMemory:
        if self._built is None:
            policy = MessageWindow() if self._max_messages is None else MessageWindow(self._max_messages)
            self._built = ChatMemory(policy, self.store.repository)
        return self._built

    def _id(self, step: Fields) -> Any:
        self._used = step.take("conversation_id")
        return self._used

    async def do_build(self, step: Fields) -> None:
        self._memory()

    async def do_add(self, step: Fields) -> None:
        conversation_id, messages = self._id(step), messages_of(step.take("messages"))
        await self._memory().add(conversation_id, messages)

    async def do_add_one(self, step: Fields) -> None:
        conversation_id, message = self._id(step), message_of(step.take("message"))
        await self._memory().add(conversation_id, message)

    async def do_get(self, step: Fields) -> tuple[Message, ...]:
        return await self._memory().get(self._id(step))

    async def do_clear(self, step: Fields) -> bool:
        return await self._memory().clear(self._id(step))

    async def check(self, result: Result, expect: Fields) -> None:
        if "messages" not in expect and "count" not in expect:
            return
        found = result.value if isinstance(result.value, tuple) else await self._memory().get(self._used)
        if "count" in expect:
            assert len(found) == expect.take("count")
        if "messages" in expect:
            check_messages(found, expect.take("messages"), expect.take("compare", None))
