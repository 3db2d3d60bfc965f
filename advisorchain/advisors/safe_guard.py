"""A guard that refuses: on the way in what the user asks, on the way out what the model answers."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Final, get_args

from advisorchain.advisor import AroundAdvisor, Next, StreamItem
from advisorchain.advisors._guarded import GuardedAnswer, Hold, Judge, Rules
from advisorchain.advisors._held import checked_pattern
from advisorchain.advisors._orders import GUARD_ORDER
from advisorchain.aggregate import as_chunk
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import Boundary, ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, UserMessage

__all__ = ["SafeGuardAdvisor"]

_REFUSAL: Final = "I cannot help with that. Please ask me something else."


class SafeGuardAdvisor(AroundAdvisor):
    """Answers with a refusal where the question, or the answer, has what it must not have.

    The question is what is asked now: the text of the user messages in `request.new`, not the history and not system
    messages. When it is refused, nothing further in is asked.

    Of the answer, each message is judged by itself: its text, its reasoning, the model's own refusal, and the arguments of
    its tool calls; not what tools give back. Nothing is shown before it has been judged. For words and patterns text flows
    on, and only what could still become a match is held back; for a judge, as `hold` says; tool calls wait for the end of
    their message. If something harmless had been shown when the rest was refused, it is withdrawn: a chunk with boundary
    "attempt" brings the refusal.

    A refusal has the finish reason "content_filter", so that a memory further out keeps neither question nor answer. Its
    `metadata["guard"]` tells the advisor's `name`, what it `checked` ("input" or "output"), and the `reason`: "words",
    "patterns", "judge", or what the judge said. The rest of the answer is waited for, unseen, so that context and usage
    of a stream are those of a call. A guard outside of a tool loop does not keep tools from running; one further in than
    the loop judges each answer before its tools run.

    Args:
        words: refused wherever they stand, also within other words, in any letter case. For whole words give a pattern
            that begins and ends with a word boundary. Both normal forms of Unicode (composed, decomposed) are found.
        patterns: regular expressions (as text, or compiled, with flags). One that takes exponential time stops the program
            while it runs, as everywhere in Python: leave out nested repeats such as `(a+)+`.
        judge: a function of the text, sync or async: True, or a text that says why, refuses; False, None or "" does not.
            An error that it raises fails the turn: nothing passes unjudged.
        check_input: whether the question is checked.
        check_output: whether the answer is checked.
        refusal: the answer in place of what is refused.
        hold: how much of an answer the judge gets at once, and is held back until then: "all" of a message's text, each
            "paragraph" (up to a blank line), or each "sentence".
        name: unique in the chain.
        order: inside memory and cache, outside the tool loop by default.

    Raises:
        ConfigurationError: there is nothing to look for, or an argument that cannot work.
    """

    def __init__(
        self,
        words: Iterable[str] = (),
        *,
        patterns: Iterable[str | re.Pattern[str]] = (),
        judge: Judge | None = None,
        check_input: bool = True,
        check_output: bool = True,
        refusal: str = _REFUSAL,
        hold: Hold = "all",
        name: str = "guard",
        order: int = GUARD_ORDER,
    ) -> None:
        listed = [_checked_word(place, word) for place, word in enumerate(_listed("words", words))]
        compiled = [checked_pattern(f"`patterns[{at}]`", given) for at, given in enumerate(_listed("patterns", patterns))]
        if judge is not None and not callable(judge):
            raise ConfigurationError(f"`judge` is {kind_of(judge)}; give a function of a text")
        if not (listed or compiled or judge):
            raise ConfigurationError("`words` is empty, and there are no `patterns` and no `judge`: give one of the three")
        if check_input is not True and check_output is not True:
            raise ConfigurationError("`check_input` and `check_output` are both off; set one of them to True")
        if not isinstance(refusal, str) or not refusal.strip():
            raise ConfigurationError("`refusal` is no text, or blank; give what is answered in place of what is refused")
        if hold not in get_args(Hold) or (hold != "all" and judge is None):
            raise ConfigurationError('`hold` is "all", "paragraph" or "sentence", the latter two for a `judge` only')
        self.name = name
        self.order = order
        self._rules: Final = Rules(listed, compiled, judge, hold)
        self._check_input: Final = check_input
        self._check_output: Final = check_output
        self._refusal: Final = refusal

    def misplaced(self, inner: tuple[Any, ...]) -> str | None:
        """Tells of a memory or cache further in: it has kept an answer by the time that this advisor refuses it."""
        keeping = [advisor for advisor in inner if getattr(advisor, "keeps_answers", False)]
        if not keeping or not self._check_output:
            return None
        names = ", ".join(f"`{advisor.name}`" for advisor in keeping)
        return f"what it refuses has been kept by then: {names} stands further in; give the guard a higher order"

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Judge the question, then the answer as it comes."""
        if self._check_input and (reason := await self._question(request)) is not None:
            refused = self._refused(request.reply(self._refusal), "input", reason)
            yield as_chunk(refused)
            yield refused
            return
        answer = next(request)
        async with aclosing(self._judged(answer) if self._check_output else answer) as items:
            async for item in items:
                yield item

    async def _question(self, request: ChatRequest) -> str | None:
        for message in request.new:
            if isinstance(message, UserMessage) and (reason := await self._rules.reason(message.text)) is not None:
                return reason
        return None

    async def _judged(self, items: AsyncGenerator[StreamItem, None]) -> AsyncGenerator[StreamItem, None]:
        answer = GuardedAnswer(self._rules)
        async with aclosing(items):
            async for item in items:
                if answer.reason is None:
                    for chunk in await (answer.take(item) if isinstance(item, ChatChunk) else answer.end(item)):
                        yield chunk
                    if answer.reason is not None:
                        yield self._in_place_of(answer.shown)
                if isinstance(item, ChatResponse):
                    yield item if answer.reason is None else self._refused(item, "output", answer.reason)

    def _in_place_of(self, shown: int) -> ChatChunk:
        boundary: Boundary | None = "attempt" if shown else None
        return ChatChunk(self._refusal, finish_reason="content_filter", boundary=boundary, withdraws=shown)

    def _refused(self, response: ChatResponse, checked: str, reason: str) -> ChatResponse:
        """`response` with nothing of what was said."""
        return response.replace(
            message=AssistantMessage(self._refusal),
            finish_reason="content_filter",
            earlier=(),
            metadata={"guard": {"name": self.name, "checked": checked, "reason": reason}},
        )


def _listed(name: str, values: object) -> list[Any]:
    if isinstance(values, str | bytes | re.Pattern) or not isinstance(values, Iterable):
        raise ConfigurationError(f"`{name}` is {kind_of(values)}; give a list, also of one")
    return list(values)


def _checked_word(place: int, word: object) -> str:
    if isinstance(word, str) and word.strip():
        return word
    found = "blank" if isinstance(word, str) else kind_of(word)
    raise ConfigurationError(f"`words[{place}]` is {found}; give a text with something in it")
