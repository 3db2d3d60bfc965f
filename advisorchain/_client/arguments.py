"""What a client is given: its parts checked, a call's prompt and options as the chain takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from advisorchain.advisor import AdvisorLike, BaseAdvisor
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of
from advisorchain.exchange import ChatOptions, ChatRequest
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.messages import MESSAGE_TYPES, Message, Prompt, SystemMessage, to_messages, to_system
from advisorchain.openai_dicts import from_dicts
from advisorchain.options import checked_options
from advisorchain.prompt_template import PromptTemplate

if TYPE_CHECKING:
    from advisorchain.advisors.tool_calling import ToolCallingAdvisor
    from advisorchain.tools import Tool

__all__ = [
    "CallOptions",
    "ClientPrompt",
    "TurnKind",
    "Values",
    "as_advisor",
    "as_messages",
    "checked_mapping",
    "checked_system",
    "checked_values",
    "for_tools",
    "merged",
    "rendered",
    "taking",
]

_F = TypeVar("_F", bound=Callable[..., Any])
ClientPrompt: TypeAlias = Prompt | Mapping[str, Any] | Iterable[Mapping[str, Any]]
Values: TypeAlias = Mapping[str, str | float]
TurnKind: TypeAlias = Literal["new", "edit", "regenerate"]


class CallOptions(TypedDict, total=False):
    """What `call` and `stream` take beside the prompt and `output_type`; see `ChatClient.call`."""

    conversation_id: str | None
    values: Values | None
    options: ChatOptions | None
    context: Mapping[str, Any] | None
    advisors: Sequence[AdvisorLike]
    without: Sequence[str]
    tools: Sequence[Any]
    timeout: float | None
    turn: TurnKind


def taking(shown: Callable[..., Any]) -> Callable[[_F], _F]:
    """A decorator: `help()` tells the arguments of `shown`, to which this function hands its own."""

    def told(function: _F) -> _F:
        given = signature(function).return_annotation
        function.__signature__ = signature(shown).replace(return_annotation=given)  # type: ignore[attr-defined]
        return function

    return told


def as_messages(prompt: Any) -> tuple[Message, ...]:
    """A prompt as messages; dicts are messages as the OpenAI API has them."""
    if isinstance(prompt, Mapping):
        return from_dicts([prompt])
    if not isinstance(prompt, (str, *MESSAGE_TYPES)) and isinstance(prompt, Iterable):
        prompt = tuple(prompt)
        if any(isinstance(item, Mapping) for item in prompt):
            return from_dicts(prompt)
    return to_messages(prompt)


def rendered(template: PromptTemplate, own: Values, given: Values | None) -> SystemMessage:
    """The system message of a template; the `given` values go before the client's `own`."""
    text = template.render(**{**own, **(checked_mapping("values", given) or {})})
    if not text.strip():
        raise InvalidInputError("the system text is blank with these `values`")
    return SystemMessage(text)


def merged(own: ChatOptions | None, given: ChatOptions | None) -> ChatOptions | None:
    """The client's `own` options with the fields that are set in the `given` ones."""
    if given is None or own is None:
        return own if given is None else given
    checked_options(given)
    told = {each.name: getattr(given, each.name) for each in fields(ChatOptions)}
    return replace(own, **{each.name: told[each.name] for each in fields(ChatOptions) if told[each.name] != each.default})


def as_advisor(memory: object) -> MessageChatMemoryAdvisor:
    """What a client remembers by."""
    if isinstance(memory, MessageChatMemoryAdvisor):
        return memory
    if isinstance(memory, ChatMemory):
        return MessageChatMemoryAdvisor(memory)
    raise ConfigurationError(f"`memory` is {kind_of(memory)}; give a ChatMemory or a MessageChatMemoryAdvisor")


def checked_system(system: object) -> SystemMessage | PromptTemplate | None:
    """A client's system text as a message, or a template of one."""
    if system is None or isinstance(system, PromptTemplate):
        return system
    return to_system(system, raised=ConfigurationError)


def checked_values(system: object, values: object) -> Values:
    """A client's values, each of which has a slot in its system text."""
    given = checked_mapping("values", values) or {}
    if unknown := [name for name in given if not isinstance(system, PromptTemplate) or name not in system.names]:
        listed = ", ".join(f"`{name}`" for name in unknown)
        raise ConfigurationError(f"`values`: `system` has no slot {listed}; only a PromptTemplate has slots")
    return given


def checked_mapping(name: str, value: object) -> Mapping[str, Any] | None:
    """A dict, or None; InvalidInputError when `value` is neither."""
    if value is None or isinstance(value, Mapping):
        return value
    raise InvalidInputError(f"`{name}` is {kind_of(value)}; give a dict")


def for_tools(tools: Iterable[Any], advisors: Iterable[Any], name: str) -> list[Any]:
    """What has to stand beside these advisors so that these tools are run: a loop, or what offers them to the one there is.

    Args:
        tools: functions and tools.
        advisors: those of the client or call.
        name: of what offers them, behind the loop's.
    """
    if isinstance(tools, Sequence) and not tools:
        return []
    from advisorchain.advisors._orders import TOOLSETS_ORDER
    from advisorchain.advisors.tool_calling import ToolCallingAdvisor  # here: it needs an extra
    from advisorchain.advisors.toolsets import ToolsetAdvisor
    from advisorchain.tools import checked_tools
    from advisorchain.tools.toolset import Toolset

    given = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, str | Mapping) else tools
    sets = [each for each in given if isinstance(each, Toolset)] if isinstance(given, list) else []
    made = checked_tools([each for each in given if not isinstance(each, Toolset)] if sets else given)
    if not (made or sets):
        return []
    loop = next((advisor for advisor in advisors if isinstance(advisor, ToolCallingAdvisor)), None)
    beside: list[Any] = []
    if loop is None:
        loop = ToolCallingAdvisor(made)
        beside.append(loop)
    elif made:
        beside.append(_Offering(made, loop, name))
    if sets:
        order = min(TOOLSETS_ORDER, loop.order - 1)
        beside.append(ToolsetAdvisor(*sets, loop=loop.name, name=f"{loop.name}.{name}_sets", order=order))
    return beside


class _Offering(BaseAdvisor):
    """Gives a client's or a call's tools to the loop that the application has set up."""

    def __init__(self, tools: tuple[Tool, ...], loop: ToolCallingAdvisor, name: str) -> None:
        own = {tool.name: tool for tool in loop.tools}
        for tool in tools:
            if not own.get(tool.name, tool).is_same(tool):
                raise ConfigurationError(f"`tools`: `{tool.name}` is the name of another tool of advisor `{loop.name}`")
        self.name = f"{loop.name}.{name}"
        self.order = loop.order - 1
        self._tools = tools
        self._loop = loop.name

    def answers_depend_on(self) -> str:
        """These tools, for a cache's key."""
        from advisorchain.tools.base import digest_of

        return digest_of(self._tools)

    def before(self, request: ChatRequest) -> ChatRequest:
        """Offer them."""
        from advisorchain.advisors.tool_calling import offer_tools

        return offer_tools(request, *self._tools, loop=self._loop)
