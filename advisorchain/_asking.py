"""What a client is given: its parts checked, a call's prompt and options as the chain takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, TypeAlias, TypedDict

from advisorchain.advisor import AdvisorLike
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of
from advisorchain.exchange import ChatOptions
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.messages import MESSAGE_TYPES, Message, Prompt, SystemMessage, to_messages
from advisorchain.openai_dicts import from_dicts
from advisorchain.options import checked_options
from advisorchain.prompt_template import PromptTemplate

ClientPrompt: TypeAlias = Prompt | Mapping[str, Any] | Iterable[Mapping[str, Any]]
Values: TypeAlias = Mapping[str, str | float]
TurnKind: TypeAlias = Literal["new", "edit", "regenerate"]


class Asking(TypedDict, total=False):
    """What `call` and `stream` take beside the prompt and `output_type`; see `ChatClient.call`."""

    conversation_id: str | None
    values: Values | None
    options: ChatOptions | None
    context: Mapping[str, Any] | None
    advisors: Sequence[AdvisorLike]
    without: Sequence[str]
    timeout: float | None
    turn: TurnKind


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
    if isinstance(system, str) and system.strip():
        return SystemMessage(system)
    if system is None or isinstance(system, SystemMessage | PromptTemplate):
        return system
    found = "blank" if isinstance(system, str) else kind_of(system)
    raise ConfigurationError(f"`system` is {found}; give a text, a SystemMessage or a PromptTemplate")


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


def checked_list(advisors: object) -> list[Any]:
    """A client's advisors."""
    if isinstance(advisors, Iterable) and not isinstance(advisors, str):
        return list(advisors)
    raise ConfigurationError(f"`advisors` is {kind_of(advisors)}; give a list of advisors")
