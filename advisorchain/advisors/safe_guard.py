"""A guard that refuses: on the way in what the user asks, on the way out what the model answers."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Final, get_args

from advisorchain._telemetry.log import log_event
from advisorchain.advisor import AroundAdvisor, Next, StreamItem
from advisorchain.advisors._guard_rules import Hold, Judge, Reason, Rules
from advisorchain.advisors._guard_stream import GuardedAnswer
from advisorchain.advisors._orders import GUARD_ORDER
from advisorchain.advisors._stream_search import checked_pattern
from advisorchain.aggregate import as_chunk
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, Message, SystemMessage, UserMessage

__all__ = ["SafeGuardAdvisor"]

_REFUSAL: Final = "I cannot help with that. Please ask me something else."


class SafeGuardAdvisor(AroundAdvisor):
    """Answers with a refusal where the question, or the answer, has what it must not have.

    The question is what is asked now: the text of the user messages in `request.new`, not the history that a memory has
    recalled and not system messages. When it is refused, nothing further in is asked. A client that sends its whole history
    with each question, and no conversation id, asks only what follows its last answer; of what it had asked before, each
    message that would be refused is left out of the prompt, with all that follows it up to the next user message. So a page
    is not refused for ever, and nobody can bring in a question behind an answer that was never given. Earlier answers
    themselves, as a client tells them, are not judged. With a conversation id, under which a memory would keep all of it,
    all of `request.new` is asked now: send only what is new.

    Of the answer, each message is judged by itself: its text, its reasoning, the model's own refusal, and the arguments of
    its tool calls; not what tools give back. Nothing is shown before it has been judged. For words and patterns text flows
    on, and only what could still become a match is held back; for a judge, as `hold` says; tool calls wait for the end of
    their message. If something harmless had been shown when the rest was refused, it is withdrawn: a chunk with boundary
    "attempt" brings the refusal, and a reader of a stream must then take the last `chunk.withdraws` messages, the one that
    it is in the middle of being the last, off the screen. One that cannot, such as a loop that prints, wants `hold="all"`,
    with words and patterns too: of a message nothing is shown then before all of it is judged.

    An answer of a wanted type (`options.output`) is JSON, which may spell any letter as an escape. So it is held as with
    `hold="all"`, whatever `hold` says, and the partial objects of a stream come at the end; where it has escapes, it is
    judged a second time with these read.

    A refusal has the finish reason "content_filter", so that a memory further out keeps neither question nor answer. Its
    `metadata["guard"]` tells the advisor's `name`, what it `checked` ("input" or "output"), and the `reason`: "words",
    "patterns", "judge", or what the judge said. It is logged (`advisorchain.guard.refused`, at level info), without what a
    judge said and without content. The rest of the answer is waited for, unseen, so that context and usage of a stream are
    those of a call. A guard outside of a tool loop does not keep tools from running; one further in than the loop judges
    each answer before its tools run.

    Args:
        words: refused wherever they stand, also within other words, in any letter case. For whole words give a pattern
            that begins and ends with a word boundary. Both normal forms of Unicode (composed, decomposed) are found.
        patterns: regular expressions (as text, or compiled, with flags). One that takes exponential time stops the program
            while it runs, as everywhere in Python: leave out nested repeats such as `(a+)+`.
        judge: a function of the text, sync or async: True, or a text that says why, refuses; False, None or "" does not.
            An error that it raises fails the turn: nothing passes unjudged. Of a history that a client sends it is asked
            about each user message each time.
        check_input: whether the question is checked.
        check_output: whether the answer is checked.
        refusal: the answer in place of what is refused.
        hold: how much of an answer is held back until it is judged, and is what the judge gets at once: "all" of a message's
            text (the default with a judge), each "paragraph" (up to a blank line), or each "sentence"; or only what could
            be part of a "match" (the default without a judge, who needs more).
        name: unique in the chain.
        order: inside memory and cache, outside the tool loop by default.

    Raises:
        ConfigurationError: there is nothing to look for, or an argument that cannot work.
    """

    span_kind = "GUARDRAIL"
    to_stream = ("hold back", "cut short")

    def __init__(
        self,
        words: Iterable[str] = (),
        *,
        patterns: Iterable[str | re.Pattern[str]] = (),
        judge: Judge | None = None,
        check_input: bool = True,
        check_output: bool = True,
        refusal: str = _REFUSAL,
        hold: Hold | None = None,
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
        hold = hold or ("match" if judge is None else "all")
        if hold not in get_args(Hold) or (hold == "match" and judge is not None):
            raise ConfigurationError('`hold` is "all", "paragraph" or "sentence"; or, without a `judge`, "match"')
        self.name = name
        self.order = order
        self.answers_at_once: Final = bool(check_input)
        self.refuses_answers: Final = bool(check_output)  # so what keeps answers must stand further out
        self._rules: Final = Rules(listed, compiled, judge, hold)
        self._typed_rules: Final = Rules(listed, compiled, judge, "all")
        self._check_input: Final = check_input
        self._check_output: Final = check_output
        self._refusal: Final = refusal

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Judge the question, then the answer as it comes."""
        if self._check_input:
            begin = _asked_from(request)
            if (reason := await self._question(request.new[begin:])) is not None:
                self._log("input", reason)
                refused = self._refused(request.reply(self._refusal), "input", reason)
                yield as_chunk(refused)
                yield refused
                return
            request = await self._without_refused_turns(request, begin) if begin else request
        items = next(request)
        if self._check_output:
            typed = request.options.output is not None
            items = self._judged(items, GuardedAnswer(self._typed_rules if typed else self._rules, typed=typed))
        async with aclosing(items):
            async for item in items:
                yield item

    async def _question(self, asked: Iterable[Message]) -> Reason | None:
        for message in asked:
            if isinstance(message, UserMessage) and (reason := await self._rules.reason(message.text)) is not None:
                return reason
        return None

    async def _without_refused_turns(self, request: ChatRequest, begin: int) -> ChatRequest:
        """The request without the turns, of the first `begin` messages of `request.new`, whose question is refused."""
        kept: list[Message] = []
        place, leaving_out = -request.recalled, False
        for message in request.messages:
            if isinstance(message, SystemMessage):
                kept.append(message)
                continue
            if isinstance(message, UserMessage):
                leaving_out = 0 <= place < begin and await self._question([message]) is not None
            if not leaving_out:
                kept.append(message)
            place += 1
        if len(kept) == len(request.messages):
            return request
        log_event("info", "advisorchain.guard.left_out", advisor=self.name, messages=len(request.messages) - len(kept))
        return request.replace(messages=tuple(kept))

    async def _judged(
        self, items: AsyncGenerator[StreamItem, None], answer: GuardedAnswer
    ) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(items):
            async for item in items:
                if answer.reason is None:
                    for chunk in await (answer.take(item) if isinstance(item, ChatChunk) else answer.end(item)):
                        yield chunk
                    if answer.reason is not None:
                        self._log("output", answer.reason)
                        yield answer.withdrawn(self._refusal)
                if isinstance(item, ChatResponse):
                    yield item if answer.reason is None else self._refused(item, "output", answer.reason)

    def _log(self, checked: str, reason: Reason) -> None:
        log_event("info", "advisorchain.guard.refused", advisor=self.name, checked=checked, reason=reason.by)

    def _refused(self, response: ChatResponse, checked: str, reason: Reason) -> ChatResponse:
        """`response` with nothing of what was said."""
        return response.replace(
            message=AssistantMessage(self._refusal),
            finish_reason="content_filter",
            earlier=(),
            metadata={"guard": {"name": self.name, "checked": checked, "reason": reason.told}},
        )


def _asked_from(request: ChatRequest) -> int:
    """Where in `request.new` what is asked now begins: behind the answer in front of the last question."""
    new = request.new
    users = [place for place, message in enumerate(new) if isinstance(message, UserMessage)]
    if request.conversation_id is not None or not users:
        return 0
    answers = (place for place in range(users[-1], 0, -1) if isinstance(new[place - 1], AssistantMessage))
    return next(answers, 0)


def _listed(name: str, values: object) -> list[Any]:
    if isinstance(values, str | bytes | re.Pattern) or not isinstance(values, Iterable):
        raise ConfigurationError(f"`{name}` is {kind_of(values)}; give a list, also of one")
    return list(values)


def _checked_word(place: int, word: object) -> str:
    if isinstance(word, str) and word.strip():
        return word
    found = "blank" if isinstance(word, str) else kind_of(word)
    raise ConfigurationError(f"`words[{place}]` is {found}; give a text with something in it")
