"""Conversations: a policy over a repository.

`ChatMemory` is what an application holds. Its policy (`MessageWindow`, `Unbounded`) says how much of a conversation a prompt
carries, its repository where conversations are kept; any policy goes with any repository. Its concurrency rule (`Append`,
`Serialize`, `Reject`, `Fork`) says what happens when a turn begins while another one of its conversation is under way.

Stores that need a package of their own are imported when they are first asked for, as `from advisorchain.memory import
SqlChatMemoryRepository` does; MissingExtraError tells what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from advisorchain._lazy import lazy
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.concurrency import Append, ConcurrencyRule, Fork, Reject, Serialize
from advisorchain.memory.policies import MemoryPolicy, MessageWindow, Unbounded
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import ChatMemoryRepository, Conversation, Entry, Page, Recall, Retention
from advisorchain.memory.turns import LastTurn, Turn
from advisorchain.memory.urls import open_repository

if TYPE_CHECKING:
    from advisorchain.memory.repositories.encrypted import EncryptedChatMemoryRepository
    from advisorchain.memory.repositories.mongodb import MongoChatMemoryRepository
    from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
    from advisorchain.memory.repositories.sql import SqlChatMemoryRepository

__all__ = [
    "Append",
    "ChatMemory",
    "ChatMemoryRepository",
    "ConcurrencyRule",
    "Conversation",
    "EncryptedChatMemoryRepository",
    "Entry",
    "Fork",
    "InMemoryChatMemoryRepository",
    "LastTurn",
    "MemoryPolicy",
    "MessageWindow",
    "MongoChatMemoryRepository",
    "Page",
    "Recall",
    "RedisChatMemoryRepository",
    "Reject",
    "Retention",
    "Serialize",
    "SqlChatMemoryRepository",
    "SqliteChatMemoryRepository",
    "Turn",
    "Unbounded",
    "open_repository",
]

_MODULES: Final = {
    "EncryptedChatMemoryRepository": "repositories.encrypted",
    "MongoChatMemoryRepository": "repositories.mongodb",
    "RedisChatMemoryRepository": "repositories.redis",
    "SqlChatMemoryRepository": "repositories.sql",
}

if not TYPE_CHECKING:  # a type checker shall find a misspelt name
    __getattr__, __dir__ = lazy(__name__, _MODULES)
