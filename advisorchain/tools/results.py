"""What a tool gives back, made ready for the model.

- A text is sent as it is, also an empty one.
- Parts (`TextPart`, `ImagePart`, …), one or a list of them with texts between, are sent as parts.
- Everything else is sent as its JSON text, and kept as JSON in `structured`. None is `null`. Models, dataclasses, dates,
  enums, sets and so on become JSON as pydantic makes it: bytes are base64 with the alphabet of URLs, a set is a list in the
  order in which Python gives it, a key that is no text becomes one (`1` is `"1"`, `(2, 3)` is `"2,3"`), an iterator inside
  a value is read to its end. Letters beyond ASCII stay what they are.
- A generator or another iterator is an error, as a tool that yields is: nobody knows how long it goes on.
- What has no JSON form is an error that names the tool: an object of a class of its own, NaN and infinity, what holds
  itself or is nested deeper than 100 levels, half a character (a lone surrogate); and so is a text of more than a million
  characters, which no model would read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic_core import to_jsonable_python

from advisorchain._values import frozen_json, utf8
from advisorchain.errors import AdvisorContractError, dropped
from advisorchain.messages import Part, TextPart

__all__ = ["MAX_CHARACTERS", "ToolResult", "result_of"]

MAX_CHARACTERS: Final = 1_000_000  # about 250,000 tokens at four characters each: more than most models read at all
_PARTS: Final[tuple[type, ...]] = get_args(get_args(Part)[0])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back. A tool may also return one: a text for the model beside data for the program.

    Attributes:
        content: what the model sees, a text or a tuple of parts.
        structured: the result as plain JSON, for programs; None where the tool gave a text or parts.
    """

    content: str | tuple[Part, ...]
    structured: Any = None


def result_of(name: str, value: object) -> ToolResult:
    """What the tool called `name` returned, as a result.

    Raises:
        AdvisorContractError: it cannot be sent to a model; the text names the tool and the place, never the value.
    """
    if isinstance(value, Iterator | AsyncIterator):
        raise AdvisorContractError(f"tool `{name}` yields; return a list, or one text")
    try:
        if isinstance(value, ToolResult):
            return ToolResult(_content(value.content), frozen_json(value.structured))
        if isinstance(value, (str, list, tuple, *_PARTS)) and (content := _content(value, whole=False)) is not None:
            return ToolResult(content)
        structured = frozen_json(to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants"))
        text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
        return ToolResult(_checked_text(text), structured)
    except (ValueError, RecursionError) as error:  # pydantic's own is a ValueError
        reason = "half of a character" if isinstance(error, UnicodeEncodeError) else error
        raise AdvisorContractError(
            f"tool `{name}` returned {dropped(value)} that cannot be sent to a model: {reason}; "
            "return a text, JSON values, a pydantic model, a dataclass, or parts"
        ) from None


def _content(value: object, whole: bool = True) -> Any:
    """`value` as content; None when it is none and, for all of it being `whole`, need not be."""
    if isinstance(value, str):
        return _checked_text(value)
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, list | tuple) and any(isinstance(each, _PARTS) for each in value):
        return _parts(value)
    if whole:
        raise ValueError(f"its `content` is {dropped(value)}, neither a text nor parts")
    return None


def _parts(values: Sequence[Any]) -> tuple[Any, ...]:
    for place, value in enumerate(values):
        if not isinstance(value, (str, *_PARTS)):
            raise ValueError(f"`{place}` is {dropped(value)}, beside parts only texts can stand")
    return tuple(TextPart(_checked_text(value)) if isinstance(value, str) else value for value in values)


def _checked_text(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters, the limit is {MAX_CHARACTERS}: give a part of it, or a summary")
    return utf8(text)
