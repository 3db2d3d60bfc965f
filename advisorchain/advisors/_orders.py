"""Where the ready advisors stand, unless they are given another `order`. The README has the same as a table.

Outside the tool loop (once a turn), the outermost first:

    total timeout < memory < toolsets < cache < guard < re-reading < tool loop

A total timeout bounds everything. The cache is inside memory, so that its key has the history and a cached answer is
remembered, and inside the toolsets, whose tools are in its key too; the guard inside them, so that neither keeps what it
refuses.

Inside the loop (once a model call), behind advisors of the default order 0:

    redaction < typed answers < usage limit < fallback < retry < rate limit < concurrency limit < timeout < model

Redaction is outside everything that may ask another model. An answer of the wrong type is asked for again with all of
what follows; another model is tried when the retries of the first are used up; each attempt waits for its own permit,
and waiting does not count as the model's time.
"""

from typing import Final

from advisorchain.advisor import CHAT_MEMORY_ORDER, HIGHEST_PRECEDENCE, TOOL_CALLING_ORDER

__all__ = [
    "CACHE_ORDER",
    "CONCURRENCY_LIMIT_ORDER",
    "FALLBACK_ORDER",
    "GUARD_ORDER",
    "RATE_LIMIT_ORDER",
    "REDACT_ORDER",
    "RETRY_ORDER",
    "RE_READING_ORDER",
    "STRUCTURED_OUTPUT_ORDER",
    "TIMEOUT_ORDER",
    "TOOLSETS_ORDER",
    "TOTAL_TIMEOUT_ORDER",
    "USAGE_LIMIT_ORDER",
]

TOTAL_TIMEOUT_ORDER: Final = HIGHEST_PRECEDENCE + 100
TOOLSETS_ORDER: Final = CHAT_MEMORY_ORDER + 10
CACHE_ORDER: Final = CHAT_MEMORY_ORDER + 20
GUARD_ORDER: Final = CHAT_MEMORY_ORDER + 40
RE_READING_ORDER: Final = TOOL_CALLING_ORDER - 20

REDACT_ORDER: Final = 1000
STRUCTURED_OUTPUT_ORDER: Final = 2000
USAGE_LIMIT_ORDER: Final = 3000
FALLBACK_ORDER: Final = 4000
RETRY_ORDER: Final = 5000
RATE_LIMIT_ORDER: Final = 6000
CONCURRENCY_LIMIT_ORDER: Final = 7000
TIMEOUT_ORDER: Final = 8000
