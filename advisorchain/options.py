"""How a model shall answer."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from advisorchain._values import CONFIG, EMPTY, Metadata, Text, clear_errors
from advisorchain.errors import InvalidInputError, kind_of

__all__ = ["NO_OPTIONS", "ChatOptions", "OutputSchema", "ToolDefinition", "checked_options"]


@clear_errors(InvalidInputError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class ToolDefinition:
    """A tool, as the model is told of it.

    Attributes:
        name: what the model calls it.
        description: what it does, and when to use it.
        parameters: JSON Schema of its arguments, an object.
        strict: whether the provider shall hold the model to the schema, where it can; None: its own default.
    """

    name: Annotated[Text, Field(min_length=1)]
    description: Text = ""
    parameters: Metadata = EMPTY
    strict: bool | None = None


@clear_errors(InvalidInputError)
@dataclass(frozen=True, slots=True, repr=False, config=CONFIG)
class OutputSchema:
    """The form that the answer shall have.

    A model object with `native_output = True` is handed this, and does what its provider offers. For others the chain puts
    it into the prompt, as words.

    Attributes:
        schema: JSON Schema of an object.
        name: what a provider calls it: letters, digits, `_` and `-`.
        description: what it is for.
    """

    schema: Metadata
    name: Annotated[Text, Field(pattern="^[A-Za-z0-9_-]{1,64}$")] = "answer"
    description: Text | None = None


@clear_errors(InvalidInputError)
@dataclass(frozen=True, slots=True, kw_only=True, repr=False, config=CONFIG)
class ChatOptions:
    """How the model shall answer. None: the model's own default.

    Attributes:
        model: the model's name, where a provider has several.
        temperature, top_p, seed, presence_penalty, frequency_penalty: sampling, as providers define them.
        max_tokens: the most tokens that it may answer.
        stop: texts at which it stops.
        tools: what it may ask to have run.
        tool_choice: "auto", "none", "required", or the name of the tool that it has to use.
        output: the form that its answer shall have.
        extra: JSON that a provider's adapter sends as it is.
    """

    model: Text | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    stop: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    tools: Annotated[tuple[ToolDefinition, ...], Field(strict=False)] = ()
    tool_choice: Text | None = None
    output: OutputSchema | None = None
    extra: Metadata = EMPTY


def _no_options() -> ChatOptions:
    # made by hand: the first made in the ordinary way has pydantic build its checks, a tenth of the time of our import
    options = object.__new__(ChatOptions)
    for each in fields(ChatOptions):
        object.__setattr__(options, each.name, each.default)
    return options


NO_OPTIONS: Final = _no_options()


def checked_options(options: object) -> ChatOptions:
    """`options` themselves; InvalidInputError when they are none."""
    if isinstance(options, ChatOptions):
        return options
    raise InvalidInputError(f"`options` is {kind_of(options)}; give ChatOptions(...)")
