"""The advisors that ship, one a module."""

from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor

__all__ = ["MessageChatMemoryAdvisor"]
