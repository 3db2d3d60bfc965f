"""Typed answers: a Python type as the form of an answer, and answers as values of that type.

    person = OutputType(Person)
    options = ChatOptions(output=person.schema)      what the model is told
    person.parse(response)                           a Person, or an OutputValidationError
    person.partial()                                 plain data that grows while the answer is streamed

`StructuredOutputAdvisor` does this in a chain, and asks again when an answer does not fit.
"""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast, overload

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from advisorchain._strict_schema import field_names, strict_schema
from advisorchain.errors import ConfigurationError, InvalidInputError, OutputValidationError, kind_of
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.options import OutputSchema

__all__ = ["OutputType", "PartialOutput", "is_unfinished"]

T = TypeVar("T")

_THOUGHT: Final = re.compile(r"<think>.*?(</think>\s*|\Z)", re.DOTALL)
_FENCE: Final = re.compile(r"```[\w-]*(\s|\Z)")
_OPEN_NUMBER: Final = re.compile(r"(?<=[\s:,\[])[-+.\deE]+\Z")
_MAX_PROBLEMS: Final = 10  # a long list may be wrong in each item: the model is told of the first ones
_BEHIND: Final = 64  # see PartialOutput
_UNFINISHED: Final = {  # by finish reason
    "paused": "the turn waits for a person's yes; go on with `response.pause`",
    "return_direct": "the results of tools are the answer",
    "tool_limit": "tools were called too often",
}


class _Schema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # "Name" beside `name` tells a model nothing


class OutputType(Generic[T]):
    """A type that answers are made of.

    A model's answer is a JSON object. A type that is none (a list, a union, a text, a number, a Literal) is asked for as
    the property `value` of one, and given back without it.

    Every field is asked for, also one with a default: providers' strict modes want it so. An answer without it is valid.

    Args:
        type_: a pydantic model, a dataclass, a TypedDict, or whatever else pydantic can validate.
        name: what a provider calls it, letters, digits, `_` and `-`; that of the class, or "answer".

    Attributes:
        type: the type.
        schema: what the model is told, for `ChatOptions(output=…)`.

    Raises:
        ConfigurationError: a type without a JSON Schema, or a name that providers refuse.
    """

    @overload
    def __init__(self, type_: type[T], *, name: str | None = None) -> None: ...
    @overload
    def __init__(self: OutputType[Any], type_: Any, *, name: str | None = None) -> None: ...
    def __init__(self, type_: Any, *, name: str | None = None) -> None:
        self.type: Final = type_
        shown = type_.__name__ if isinstance(type_, type) else "answer"
        self._shown: Final[str] = shown if isinstance(type_, type) else _spelled(type_)
        if type_ is None or inspect.isroutine(type_):
            raise ConfigurationError(f"`type_` is {kind_of(type_)}; give the type that an answer shall have")
        schema, self._wrapped = strict_schema(self._schema_of(type_))
        self._fields: Final = frozenset(field_names(schema))
        self._adapter: Final[TypeAdapter[Any]] = TypeAdapter(_wrapper(type_) if self._wrapped else type_)
        try:
            self.schema: Final = OutputSchema(schema, name=name or re.sub(r"[^A-Za-z0-9_-]", "_", shown)[:64])
        except InvalidInputError as error:
            raise ConfigurationError(f"`{self._shown}` cannot be asked for: {error}") from None

    def __repr__(self) -> str:
        return f"OutputType({self._shown})"

    def __reduce__(self) -> tuple[Any, ...]:  # pydantic's parts cannot be pickled
        return partial(type(self), name=self.schema.name), (self.type,)

    def _schema_of(self, type_: Any) -> dict[str, Any]:
        try:
            return TypeAdapter(type_).json_schema(schema_generator=_Schema)
        except (PydanticUserError, NameError, TypeError, AttributeError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigurationError(f"`type_` is {kind_of(type_)} without a JSON Schema: {reason}") from None

    def parse(self, response: ChatResponse) -> T:
        """The answer as a value of the type. Blanks, a code fence and a leading <think> block around it are forgiven.

        Raises:
            OutputValidationError: it is none. The message names the fields, `problem` says what is wrong, for the model.
        """
        try:
            value = self._adapter.validate_json(_json_of(response.text))
        except ValidationError as error:
            raise self._invalid(response, error) from None
        return cast("T", value.value if self._wrapped else value)

    def parse_partial(self, text: str) -> Any | None:
        """What is there of an answer that is still coming in, as plain data; None: nothing yet.

        Not validated, since most types are not valid before their last field is there: dicts, lists, texts and numbers
        as JSON has them. While the text grows, so does the value: texts get longer, lists and dicts get more, numbers and
        words are there when they are complete. Reads the whole text; for each chunk of a long one use `partial`.
        """
        try:
            value = from_json(_OPEN_NUMBER.sub("", _json_of(text)), allow_partial="trailing-strings", allow_inf_nan=False)
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        return value.get("value") if self._wrapped else value

    def partial(self) -> PartialOutput:
        """What takes the chunks of one stream, and gives the answer as it grows."""
        return PartialOutput(self)

    def _invalid(self, response: ChatResponse, error: ValidationError) -> OutputValidationError:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
        problem = "\n".join(_told(one["loc"], one["msg"], one["type"]) for one in wrong[:_MAX_PROBLEMS])
        fields = dict.fromkeys(self._path(one["loc"]) for one in wrong[:_MAX_PROBLEMS] if one["loc"])
        where = f" at {', '.join(f'`{field}`' for field in fields)}" if fields else ": it is no JSON object of that form"
        if response.finish_reason in _UNFINISHED:
            said = problem = _UNFINISHED[response.finish_reason]
        elif response.message.refusal or response.finish_reason == "content_filter":
            said, problem = "the model refused to answer", "the model refused to answer"
        elif response.finish_reason == "length":
            said = "the answer was cut off at the limit of tokens; raise `max_tokens`, or ask for less"
        elif response.message.tool_calls:
            said = problem = "the answer asks for tools"
        elif not response.text.strip():
            said, problem = "the answer is empty", "the answer is empty"
        else:
            said = f"the answer does not fit{where}"
        return OutputValidationError(f"no `{self._shown}`: {said}", response=response, problem=problem)

    def _path(self, steps: tuple[int | str, ...]) -> str:
        """A field's path; a step that is no field of ours is the answer's own word, and not to be shown."""
        return ".".join(str(step) if isinstance(step, int) or step in self._fields else "*" for step in steps)


class PartialOutput:
    """Takes the chunks of a stream and gives the answer as it grows, as `OutputType.parse_partial` does.

    The text is read anew when it has grown by a 64th, and when the message ends. So all readings together cost at most what
    reading 65 such texts costs, at any length, and what is shown is never more than 1.6 % behind.
    """

    def __init__(self, output_type: OutputType[Any]) -> None:
        self._type: Final = output_type
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[str] = []
        self._length = self._read = 0
        self._value: Any = None

    def add(self, chunk: ChatChunk) -> Any | None:
        """Take the next chunk. The answer so far, when there is more of it; else None. A boundary begins anew."""
        if chunk.boundary is not None:
            self._begin()
        self._pieces.append(chunk.text)
        self._length += len(chunk.text)
        grown = self._length - self._read
        if not grown or (grown * _BEHIND < self._read and chunk.finish_reason is None):
            return None
        self._read = self._length
        value = self._type.parse_partial("".join(self._pieces))
        if value is None or value == self._value:
            return None
        self._value = value
        return value


def is_unfinished(response: ChatResponse) -> bool:
    """Whether it is no last answer of the model, which alone is of a type: it asks for tools, or a tool loop ended it."""
    return bool(response.message.tool_calls) or response.finish_reason in _UNFINISHED


def _wrapper(type_: Any) -> type[BaseModel]:
    return create_model("answer", value=(type_, ...))


def _spelled(type_: Any) -> str:
    return str(type_).replace("typing.", "")


def _json_of(text: str) -> str:
    """`text` without what is forgiven around it."""
    text = text.strip()
    if text.startswith("<think>"):
        text = _THOUGHT.sub("", text, count=1)
    if fence := _FENCE.match(text):
        text = text[fence.end() :].removesuffix("```")
    return text


def _told(steps: tuple[int | str, ...], problem: str, kind: str) -> str:
    if kind == "json_invalid":
        return problem
    return f"`{'.'.join(map(str, steps))}`: {problem}" if steps else problem
