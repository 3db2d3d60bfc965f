"""Advisors around chat models: an ordered chain, the same in a call and in a stream.

Here: `AdvisorChain`, the kinds of advisors, messages, requests, responses and chunks. Elsewhere:

- `advisorchain.advisors`: advisors that are ready, such as `MessageChatMemoryAdvisor`
- `advisorchain.memory`: `ChatMemory`, policies, repositories, `open_repository`
- `advisorchain.models`: chat models, one provider a module
- `advisorchain.testing`: `ScriptedModel`, recorders, and the laws that advisors, models and repositories are checked by
- `advisorchain.errors`: every error
"""

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
from advisorchain.telemetry import Telemetry

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
    "ChatModel",
    "ChatOptions",
    "ChatRequest",
    "ChatResponse",
    "ChatStream",
    "FilePart",
    "ImagePart",
    "Message",
    "ModelLike",
    "Next",
    "Outcome",
    "RefusalPart",
    "StreamItem",
    "SystemMessage",
    "Telemetry",
    "TextPart",
    "TextTransform",
    "ToolCall",
    "ToolCallChunk",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "__version__",
    "dump_message",
    "load_message",
]
