"""The form of an answer, in words: for models that have no mode of their own for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from advisorchain.exchange import ChatRequest
from advisorchain.messages import Message, SystemMessage, TextPart
from advisorchain.options import OutputSchema

__all__ = ["in_words"]

_ASK: Final = (
    "Answer with one JSON value that this JSON Schema describes, and nothing else: no explanation, no code fence.\n{schema}"
)


def in_words(request: ChatRequest) -> ChatRequest:
    """`request` with the form of its answer in the last of its leading system messages, and no longer in its options."""
    output = request.options.output
    if output is None:
        return request
    messages = with_instruction(request.messages, _instruction(output))
    return request.replace(messages=messages, options=replace(request.options, output=None))


def with_instruction(messages: tuple[Message, ...], instruction: str) -> tuple[Message, ...]:
    """`messages` with one more thing that the model is told: some chat templates take no second system message."""
    leading = 0
    while leading < len(messages) and isinstance(messages[leading], SystemMessage):
        leading += 1
    if not leading:
        return (SystemMessage(instruction), *messages)
    last = messages[leading - 1]
    if isinstance(last.content, str):
        told: Message = replace(last, content=f"{last.content}\n\n{instruction}")
    else:
        told = replace(last, content=(*last.content, TextPart(f"\n\n{instruction}")))
    return (*messages[: leading - 1], told, *messages[leading:])


def _instruction(output: OutputSchema) -> str:
    about = f"{output.description}\n" if output.description else ""
    return about + _ASK.format(schema=json.dumps(output.schema, ensure_ascii=False))
