"""Typed answers: one that is not of the wanted type is asked for again, with what is wrong with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from advisorchain._checked import checked_whole
from advisorchain._telemetry.log import log_event
from advisorchain.advisor import AroundAdvisor, Next, StreamItem
from advisorchain.advisors._attempts import ShownMessages
from advisorchain.advisors._orders import STRUCTURED_OUTPUT_ORDER
from advisorchain.errors import OutputValidationError
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.messages import Message, Usage, UserMessage
from advisorchain.output import OutputType

__all__ = ["StructuredOutputAdvisor"]

_CORRECTION: Final = "That does not fit what was asked for:\n{problem}\nAnswer again, with nothing but the whole JSON value."
_CUT_OFF: Final = "length"


class StructuredOutputAdvisor(AroundAdvisor):
    """Tells the model the type of its answer, and asks again while the answer is not of that type.

    A further attempt is asked with the messages of the first one, the newest bad answer (unless that is blank) and what is
    wrong with it; of earlier failures there is nothing in it. In a stream a chunk with `boundary="attempt"` tells that the
    answer which was shown no longer counts. The text of an answer is not changed: `OutputType.parse` gives the value.

    The response's usage is the sum of all attempts. What was asked and answered in between leaves this advisor in no way,
    so memory, which is further out, keeps only the question and the answer that fits.

    Not looked at: answers that ask for tools, refusals, and those with finish reason "content_filter" or "paused". One that
    was cut off by the limit of tokens (finish reason "length") and does not fit is not asked for again: it would be cut off
    again. Each attempt is logged as `advisorchain.output.attempt`, without the answer: debug when it fits, else info.

    Args:
        output_type: an OutputType, or a type to make one of.
        max_attempts: how often the model is asked at most, the first time included. Spring AI asks four times, too.
        name: unique in the chain.
        order: inside the tool loop by default; around usage limits, retries and fallbacks, which each attempt passes.

    Raises:
        ConfigurationError: an argument that cannot work.
        OutputValidationError: no attempt gave an answer that fits; with the last one, and what is wrong with it.
    """

    judges_answers = True  # so a fallback around it would pass by it
    repeats = "attempt"
    to_stream = "change"

    def __init__(
        self,
        output_type: Any,
        *,
        max_attempts: int = 4,
        name: str = "structured_output",
        order: int = STRUCTURED_OUTPUT_ORDER,
    ) -> None:
        self.output_type: OutputType[Any] = output_type if isinstance(output_type, OutputType) else OutputType(output_type)
        self.max_attempts = checked_whole("max_attempts", max_attempts)
        self.name = name
        self.order = order

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        """Ask until the answer fits."""
        request = request.replace(options=replace(request.options, output=self.output_type.schema))
        asked, usage = request, None
        for attempt in range(1, self.max_attempts + 1):
            shown = ShownMessages()  # of this attempt: a loop further in shows more than one
            async with aclosing(next(asked)) as items:
                async for item in items:
                    if isinstance(item, ChatResponse):
                        response = item
                    else:
                        shown.add(item)
                        yield item
            usage = _sum(usage, response.usage)
            response = response.replace(usage=usage)
            error = self._judged(response, attempt)
            if error is None:
                yield response
                return
            if attempt == self.max_attempts or response.finish_reason == _CUT_OFF:
                raise error
            yield shown.withdrawal()  # now, not with the next answer: nobody shall keep this one
            asked = _corrected(request, response, error.problem)

    def _judged(self, response: ChatResponse, attempt: int) -> OutputValidationError | None:
        """What is wrong with an answer; None: it fits, or is not to be looked at."""
        if _is_no_answer(response):
            return None
        error: OutputValidationError | None = None
        try:
            self.output_type.parse(response)
        except OutputValidationError as invalid:
            message = f"{invalid} (attempt {attempt} of {self.max_attempts})"
            error = OutputValidationError(message, response=response, problem=invalid.problem)
        told: dict[str, Any] = {"advisor": self.name, "attempt": attempt, "fits": error is None}
        if error is not None:
            told["reason"] = str(error)
        log_event("debug" if error is None else "info", "advisorchain.output.attempt", **told)
        return error


def _is_no_answer(response: ChatResponse) -> bool:
    message = response.message
    return bool(message.tool_calls or message.refusal) or response.finish_reason in ("content_filter", "paused")


def _corrected(request: ChatRequest, response: ChatResponse, problem: str) -> ChatRequest:
    """The first request again, with this answer and what is wrong with it."""
    said: tuple[Message, ...] = () if response.message.is_blank else (response.message,)
    added = (*said, UserMessage(_CORRECTION.format(problem=problem)))
    return request.replace(messages=(*request.messages, *added), made=request.made + len(added))


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return other if one is None else one if other is None else one + other
