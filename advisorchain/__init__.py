"""Advisors around chat models: an ordered chain, the same in a call and in a stream.

Here: `AdvisorChain`, `ChatClient` and `SyncChatClient`, the kinds of advisors, messages, requests, responses and chunks.
Elsewhere:

- `advisorchain.advisors`: advisors that are ready, such as `MessageChatMemoryAdvisor`
- `advisorchain.memory`: `ChatMemory`, policies, repositories, `open_repository`
- `advisorchain.models`: chat models, one provider a module
- `advisorchain.tools`: `@tool`, toolsets, MCP servers, tool search
- `advisorchain.server`: a chain behind an OpenAI-compatible endpoint
- `advisorchain.explain`, `advisorchain.lint`: the order to look at, and what may be wrong with it
- `advisorchain.marks`: what an advisor may say of itself, to these two, to traces and to caches
- `advisorchain.testing`: `ScriptedModel`, recorders, and the laws that advisors, models and repositories are checked by
- `advisorchain.errors`: every error
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from advisorchain._lazy import lazy
from advisorchain._version import __version__
from advisorchain.advisor import (
    CHAT_MEMORY_ORDER,
    HIGHEST_PRECEDENCE,
    LOWEST_PRECEDENCE,
    TOOL_CALLING_ORDER,
    Advisor,
    AdvisorLike,
    AroundAdvisor,
    BaseAdvisor,
    Next,
    Outcome,
    StreamItem,
    TextTransform,
)
from advisorchain.chain import AdvisorChain, AdvisorRow, ChatStream
from advisorchain.errors import AdvisorChainError
from advisorchain.exchange import ChatChunk, ChatOptions, ChatRequest, ChatResponse, ToolCallChunk
from advisorchain.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    dump_message,
    load_message,
)
from advisorchain.model import ChatModel, ModelLike
from advisorchain.telemetry import Telemetry, set_telemetry

if TYPE_CHECKING:
    from advisorchain.client import ChatClient, ClientStream, TypedResponse, TypedStream
    from advisorchain.hooks import after, before
    from advisorchain.prompt_template import PromptTemplate
    from advisorchain.sync_client import SyncChatClient

__all__ = [
    "CHAT_MEMORY_ORDER",
    "HIGHEST_PRECEDENCE",
    "LOWEST_PRECEDENCE",
    "TOOL_CALLING_ORDER",
    "Advisor",
    "AdvisorChain",
    "AdvisorChainError",
    "AdvisorLike",
    "AdvisorRow",
    "AroundAdvisor",
    "AssistantMessage",
    "AudioPart",
    "BaseAdvisor",
    "ChatChunk",
    "ChatClient",
    "ChatModel",
    "ChatOptions",
    "ChatRequest",
    "ChatResponse",
    "ChatStream",
    "ClientStream",
    "FilePart",
    "ImagePart",
    "Message",
    "ModelLike",
    "Next",
    "Outcome",
    "PromptTemplate",
    "RefusalPart",
    "StreamItem",
    "SyncChatClient",
    "SystemMessage",
    "Telemetry",
    "TextPart",
    "TextTransform",
    "ToolCall",
    "ToolCallChunk",
    "ToolMessage",
    "TypedResponse",
    "TypedStream",
    "Usage",
    "UserMessage",
    "__version__",
    "after",
    "before",
    "dump_message",
    "load_message",
    "set_telemetry",
]

# Loaded when they are first asked for: a program that builds its chains itself needs no client, nor what a client imports.
_LATER: Final = {
    "ChatClient": "client",
    "ClientStream": "client",
    "PromptTemplate": "prompt_template",
    "SyncChatClient": "sync_client",
    "TypedResponse": "client",
    "TypedStream": "client",
    "after": "hooks",
    "before": "hooks",
}

if not TYPE_CHECKING:  # a type checker shall find a misspelt name
    __getattr__, __dir__ = lazy(__name__, _LATER)
