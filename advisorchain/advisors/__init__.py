"""The advisors that ship, one a module. Each is imported when it is first asked for: some need a package of their own.

Where they stand in a chain, unless they are told otherwise, is in `advisorchain.advisors._orders`, with the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from advisorchain._lazy import lazy

if TYPE_CHECKING:
    from advisorchain.advisors.cache import CacheAdvisor, CacheStore, InMemoryCache, SqliteCache
    from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
    from advisorchain.advisors.concurrency_limit import ConcurrencyLimitAdvisor
    from advisorchain.advisors.fallback import FallbackAdvisor
    from advisorchain.advisors.logger import LoggingAdvisor
    from advisorchain.advisors.rate_limit import RateLimitAdvisor
    from advisorchain.advisors.re_reading import ReReadingAdvisor
    from advisorchain.advisors.redact import RedactAdvisor
    from advisorchain.advisors.retry import RetryAdvisor
    from advisorchain.advisors.safe_guard import SafeGuardAdvisor
    from advisorchain.advisors.structured_output import StructuredOutputAdvisor
    from advisorchain.advisors.timeout import TimeoutAdvisor
    from advisorchain.advisors.tool_calling import ToolCallingAdvisor, ToolPause, offer_tools
    from advisorchain.advisors.toolsets import ToolsetAdvisor
    from advisorchain.advisors.usage_limit import UsageLimitAdvisor, Used

__all__ = [
    "CacheAdvisor",
    "CacheStore",
    "ConcurrencyLimitAdvisor",
    "FallbackAdvisor",
    "InMemoryCache",
    "LoggingAdvisor",
    "MessageChatMemoryAdvisor",
    "RateLimitAdvisor",
    "ReReadingAdvisor",
    "RedactAdvisor",
    "RetryAdvisor",
    "SafeGuardAdvisor",
    "SqliteCache",
    "StructuredOutputAdvisor",
    "TimeoutAdvisor",
    "ToolCallingAdvisor",
    "ToolPause",
    "ToolsetAdvisor",
    "UsageLimitAdvisor",
    "Used",
    "offer_tools",
]

_MODULES: Final = {
    "CacheAdvisor": "cache",
    "CacheStore": "cache",
    "ConcurrencyLimitAdvisor": "concurrency_limit",
    "FallbackAdvisor": "fallback",
    "InMemoryCache": "cache",
    "LoggingAdvisor": "logger",
    "MessageChatMemoryAdvisor": "chat_memory",
    "RateLimitAdvisor": "rate_limit",
    "ReReadingAdvisor": "re_reading",
    "RedactAdvisor": "redact",
    "RetryAdvisor": "retry",
    "SafeGuardAdvisor": "safe_guard",
    "SqliteCache": "cache",
    "StructuredOutputAdvisor": "structured_output",
    "TimeoutAdvisor": "timeout",
    "ToolCallingAdvisor": "tool_calling",
    "ToolPause": "tool_calling",
    "ToolsetAdvisor": "toolsets",
    "UsageLimitAdvisor": "usage_limit",
    "Used": "usage_limit",
    "offer_tools": "tool_calling",
}

if not TYPE_CHECKING:  # a type checker shall find a misspelt name
    __getattr__, __dir__ = lazy(__name__, _MODULES)
