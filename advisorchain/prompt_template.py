"""A text with slots for values, such as a system text with a user's name or retrieved documents in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of

__all__ = ["PromptTemplate"]

_SLOT: Final = re.compile(r"\{([^\W\d]\w*)\}")


class PromptTemplate:
    """A text in which each `{name}` is a slot for a value.

        PromptTemplate("Use {context}. Reply as {schema}.").render(context=found, schema=form)

    A slot is an identifier between braces, nothing else; all other braces are text, so JSON needs no care. Values are put
    in once, as they are, and are not looked through for slots. A text that shall say `{name}` itself gets it as a value.

    Args:
        text: the text with its slots.

    Attributes:
        text: as it was given.
        names: the names of the slots, each once, in the order in which they come.

    Raises:
        ConfigurationError: `text` is no text, or blank.
    """

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError(f"`text` is {'blank' if isinstance(text, str) else kind_of(text)}; give a text")
        self.text: Final = text
        self._parts: Final = _SLOT.split(text)  # text and names in turn
        self.names: Final = tuple(dict.fromkeys(self._parts[1::2]))

    def __repr__(self) -> str:
        return f"PromptTemplate({self.text!r})"

    def render(self, /, **values: str | float) -> str:
        """The text with a value in each slot.

        Args:
            values: a text or a number for each name.

        Raises:
            InvalidInputError: a value is missing, has no slot, or is neither a text nor a number; it is named.
        """
        self._check_names(values)
        texts = {name: _as_text(name, value) for name, value in values.items()}
        return "".join(texts[part] if place % 2 else part for place, part in enumerate(self._parts))

    def _check_names(self, values: Iterable[str]) -> None:
        if missing := [name for name in self.names if name not in values]:
            raise InvalidInputError(f"the template has no value for {_listed(missing)}; give one for each slot")
        if unknown := [name for name in values if name not in self.names]:
            raise InvalidInputError(f"the template has no slot {_listed(unknown)}; its slots: {_listed(self.names)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidInputError(f"the value of slot `{name}` is {kind_of(value)}; give a text or a number")
