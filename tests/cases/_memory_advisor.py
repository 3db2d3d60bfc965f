"""`memory_advisor.json`: the memory advisor in a chain."""

from __future__ import annotations

from typing import Any

from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory, MessageWindow
from advisorchain.messages import AssistantMessage, Message, UserMessage
from advisorchain.testing.models import ScriptedModel
from advisorchain.tools import Tool, tool

from ._expecting import Result, check_messages
from ._program import Program
from ._reading import Fields, UnknownInCaseError, chunks_of, message_of, messages_of, number_of, the_only, usage_of


class MemoryAdvisorProgram(Program):
    """Operations on the advisor alone (`build`, `resolve_conversation_id`) and on a chain or a client with it."""

    operations = ("build", "resolve_conversation_id", "before", "after", "call", "stream")

    async def set_up(self, given: Fields) -> None:
        with Fields(given.take("tool_results", None) or {}, "`tool_results`") as results:
            self._tools = [_giving(name, results.take(name)) for name in given.take("tools", None) or ()]
        known = {"message_memory"}
        if unknown := set(given.take("advisors", known)) - known:
            raise UnknownInCaseError(f"unknown advisor: {unknown}")
        maximum = given.take("max_messages", None)
        self._memory = ChatMemory(MessageWindow() if maximum is None else MessageWindow(maximum), self.store.repository)
        self._settings = {key: number_of(given.take(key)) for key in ("order",) if key in given}
        if "name" in given:
            self._settings["name"] = given.take("name")
        self._chat_memory = self._memory
        if "chat_memory" in given:
            self._chat_memory = given.take("chat_memory")
        self._context = dict(given.take("context", None) or {})
        self._system = given.take("default_system", None)
        self._prompt = messages_of(given.take("prompt", None))
        self._response = given.take("response", None)
        self._aside: tuple[int, int] = (0, 0)  # messages at both ends of the log that are the runner's own
        self._used = self._context.get("conversation_id", given.take("conversation_id", "c1"))
        self._model = ScriptedModel(*[_reply(item) for item in given.take("model_script", ())])
        for batch in (given.take("memory", None), *given.take("memory_adds", ())):
            if batch:
                await self._memory.add(self._used, messages_of(batch))

    def _advisor(self) -> MessageChatMemoryAdvisor:
        return MessageChatMemoryAdvisor(self._chat_memory, **self._settings)

    async def do_build(self, step: Fields) -> Any:
        return self._advisor()

    async def do_resolve_conversation_id(self, step: Fields) -> Any:
        request = ChatRequest((UserMessage("hi"),), self._context.get("conversation_id"))
        return (await self._advisor().before(request)).conversation_id

    async def do_before(self, step: Fields) -> Any:
        """Upstream stores the question before the model is asked; we store the turn at its end, answered by us."""
        return await self._whole_turn(self._prompt, "an answer of the runner's", aside=(0, 1))

    async def do_after(self, step: Fields) -> Any:
        """The turn of `prompt`, or of a question of ours, with this response."""
        reply = _reply(step.take("response") if "response" in step else self._response)
        aside = (0, 0) if self._prompt else (1, 0)
        return await self._whole_turn(self._prompt or "a question of the runner's", reply, aside=aside)

    async def _whole_turn(self, prompt: Any, reply: Any, *, aside: tuple[int, int]) -> Any:
        self._model = ScriptedModel(reply, strict=False)  # the prompt is the case's, whatever it is
        context = dict(self._context)
        conversation_id = context.pop("conversation_id", None)
        response = await AdvisorChain(self._model, [self._advisor()]).call(prompt, conversation_id, context=context)
        self._aside = aside
        return response

    def _asked(self, step: Fields) -> dict[str, Any]:
        context = {**self._context, **(step.take("context", None) or {})}
        conversation_id = step.take("conversation_id", context.pop("conversation_id", None))
        self._used = conversation_id or self._used
        prompt = step.take("user", None) if "user" in step else messages_of(step.take("prompt", self._prompt))
        system = step.take("system", self._system)
        return {"prompt": prompt, "conversation_id": conversation_id, "system": system, "context": context}

    def _door(self, asked: dict[str, Any]) -> Any:
        """A chain; a client where the case gives a system text to all calls."""
        if self._system is None or asked["system"] != self._system:
            loop = [ToolCallingAdvisor(self._tools)] if self._tools else []
            return AdvisorChain(self._model, [self._advisor(), *loop])
        return ChatClient(self._model, system=asked.pop("system"), memory=self._advisor())

    async def do_call(self, step: Fields) -> Any:
        asked = self._asked(step)
        return await self._door(asked).call(**asked)

    async def do_stream(self, step: Fields) -> Any:
        asked = self._asked(step)
        async with self._door(asked).stream(**asked) as stream:
            streamed = "".join([chunk.text async for chunk in stream])
        assert stream.response.text == streamed
        return stream.response

    async def _log(self) -> list[Message]:
        page = await self._memory.history(self._used, limit=1000)
        before, behind = self._aside
        return [entry.message for entry in page.items[before : len(page.items) - behind]]

    async def check(self, result: Result, expect: Fields) -> None:
        compare = expect.take("compare", None)
        for key in ("order", "name"):
            if key in expect:
                assert getattr(result.value, key) == number_of(expect.take(key))
        if "conversation_id" in expect:
            assert result.value == expect.take("conversation_id")
        if "content" in expect:
            assert result.value.text == expect.take("content")
        if "response_context" in expect:
            assert result.value.context == expect.take("response_context")
        if "model_calls" in expect:
            assert len(self._model.requests) == expect.take("model_calls")
        for key in ("prompt", "model_prompt"):
            if key in expect:
                check_messages(self._model.prompts[-1], expect.take(key), compare)
        if "memory" in expect:
            check_messages(await self._log(), expect.take("memory"), compare)


def _giving(name: str, result: Any) -> Tool:
    async def run(city: str = "") -> Any:
        return result

    return tool(run, name=name, description=f"Gives {name}.")


def _reply(data: Any) -> Any:
    """An answer of the scripted model: a text, a message, or chunks."""
    if isinstance(data, str):
        return data
    if isinstance(data, list):
        return chunks_of(data)
    with Fields(data, "scripted answer") as fields:
        if "chunks" in fields:
            return chunks_of(fields.take("chunks"))
        if generations := fields.take("generations", None):
            if len(generations) > 1:
                return lambda request: the_only(generations)  # refused when the model is asked
            fields.put(the_only(generations))
        more = {"finish_reason": fields.take("finish_reason", None), "usage": usage_of(fields.take("usage", None))}
        keys = ("text", "content", "tool_calls", "reasoning", "refusal", "metadata", "name")
        rest = {key: fields.take(key) for key in keys if key in fields}
        message = message_of({"role": fields.take("role", "assistant"), **rest})
        assert isinstance(message, AssistantMessage)
        return ChatResponse(message, **more)
