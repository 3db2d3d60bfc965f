"""Conversations: a policy over a repository.

`ChatMemory` is what an application holds. Its policy (`MessageWindow`, `Unbounded`) says how much of a conversation a prompt
carries, its repository where conversations are kept; any policy goes with any repository. Its concurrency rule (`Append`,
`Serialize`, `Reject`, `Fork`) says what happens when a turn begins while another one of its conversation is under way.
"""

from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.concurrency import Append, ConcurrencyRule, Fork, Reject, Serialize
from advisorchain.memory.policies import MemoryPolicy, MessageWindow, Unbounded
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import ChatMemoryRepository, Conversation, Entry, Page, Recall, Retention
from advisorchain.memory.turns import LastTurn, Turn
from advisorchain.memory.urls import open_repository

__all__ = [
    "Append",
    "ChatMemory",
    "ChatMemoryRepository",
    "ConcurrencyRule",
    "Conversation",
    "Entry",
    "Fork",
    "InMemoryChatMemoryRepository",
    "LastTurn",
    "MemoryPolicy",
    "MessageWindow",
    "Page",
    "Recall",
    "Reject",
    "Retention",
    "Serialize",
    "SqliteChatMemoryRepository",
    "Turn",
    "Unbounded",
    "open_repository",
]
