"""The question, twice: some models reason better over what they have read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from advisorchain.advisor import BaseAdvisor
from advisorchain.advisors._orders import RE_READING_ORDER
from advisorchain.exchange import ChatRequest
from advisorchain.messages import TextPart, UserMessage

__all__ = ["ReReadingAdvisor"]

_AGAIN: Final = "\nRead the question again: {question}"


class ReReadingAdvisor(BaseAdvisor):
    """Puts the user's newest question into the prompt twice.

    Xu et al., "Re-Reading Improves Reasoning in Large Language Models" (2023), found better answers of models that do not
    reason by themselves; it costs the question's tokens once more. Only the last user message that is new is changed, and
    of one with several parts only the text is repeated. Memory, which is further out, keeps the question as it was.

    Args:
        name: unique in the chain.
        order: inside memory and cache, outside the tool loop by default.
    """

    changes_prompt = "the question twice"  # so memory must stand further out

    def __init__(self, *, name: str = "re_reading", order: int = RE_READING_ORDER) -> None:
        self.name = name
        self.order = order

    def before(self, request: ChatRequest) -> ChatRequest:
        """Repeat the question."""
        question = next((message for message in reversed(request.new) if isinstance(message, UserMessage)), None)
        if question is None or not question.text.strip():
            return request
        messages = list(request.messages)
        place = max(place for place, message in enumerate(messages) if message is question)
        messages[place] = _twice(question)
        return request.replace(messages=tuple(messages))


def _twice(question: UserMessage) -> UserMessage:
    again = _AGAIN.format(question=question.text)
    if isinstance(question.content, str):
        return replace(question, content=question.content + again)
    return replace(question, content=(*question.content, TextPart(again)))
