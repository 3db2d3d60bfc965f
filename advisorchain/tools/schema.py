"""A function's signature as JSON Schema, and a model's arguments as what the function is called with, by pydantic.

- Each parameter needs an annotation: whatever pydantic can validate and describe. Default values, `Annotated[…, Field(…)]`
  and the docstring are told to the model. A Field's own description goes before the docstring's, and its `alias` is what
  the model calls the parameter.
- `*args` and `**kwargs` are refused, since a model cannot know what to give; positional-only parameters are fine.
- A parameter annotated `ToolContext` (also `ToolContext | None`) is filled in and not told. What a `functools.partial` has
  fixed is not told either, and a model cannot change it.
- Arguments are read in pydantic's lax mode, since models write "3" where 3 is meant. Unknown ones are an error. `null` and
  blank text are no arguments. bytes are base64. A pydantic model among the parameters keeps its own configuration.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from inspect import Parameter
from types import MethodType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from advisorchain._strict_schema import field_names, strict_schema
from advisorchain.errors import ConfigurationError, ToolArgumentsError
from advisorchain.tools._docstring import described
from advisorchain.tools.context import ToolContext

__all__ = ["Arguments"]

_PROVIDERS_TAKE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # Anthropic's rule for the names of arguments, the narrowest
_MAX_PROBLEMS: Final = 10  # a long list may be wrong in each item: the model is told of the first ones
_MAX_TOLD: Final = 300  # characters of one problem: a Literal of a thousand words is not listed
_CONFIG: Final = ConfigDict(
    extra="forbid",
    hide_input_in_errors=True,
    allow_inf_nan=False,
    val_json_bytes="base64",
    ser_json_bytes="base64",
)
_NO_SCHEMA: Final = (PydanticUserError, NameError, TypeError, AttributeError)


class _Schema(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  typed so in the base class

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # "City" beside `city` tells a model nothing


class Arguments:
    """The arguments that a tool takes.

    Args:
        name: the tool's name, for errors.
        function: what is called.
        method: whether its first parameter is filled when it is bound to an object or a class.
        strict: whether the schema keeps the rules of providers' strict modes: every argument is asked for.

    Attributes:
        description: what the docstring says of the function.
        schema: JSON Schema of an object.

    Raises:
        ConfigurationError: a signature that no model can fill; the text names the tool and the parameter.
    """

    def __init__(self, name: str, function: Callable[..., Any], *, method: bool = False, strict: bool = False) -> None:
        self._name: Final = name
        self.description, told = described(_docstring_of(function))
        self._parameters: Final = _resolved(name, function, _parameters(name, function)[1 if method else 0 :])
        self._fields: Final = {
            f"p{place}": each for place, each in enumerate(self._parameters) if not _is_context(each.annotation)
        }
        self._model, schema = _model(name, self._fields, told)
        self.schema: Final[dict[str, Any]] = strict_schema(schema)[0] if strict else schema
        self._known: Final = frozenset(field_names(schema))

    def call_with(self, arguments: str, context: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """What the function is called with: by place where it can be, else by keyword.

        Raises:
            ToolArgumentsError: as `values`.
        """
        values = self.values(arguments)
        by_place, by_keyword = [], {}
        for each in self._parameters:
            value = values.get(each.name, context)
            if each.kind is Parameter.KEYWORD_ONLY:
                by_keyword[each.name] = value
            else:
                by_place.append(value)
        return by_place, by_keyword

    def values(self, arguments: str) -> dict[str, Any]:
        """The validated value of each parameter but the tool's context.

        Raises:
            ToolArgumentsError: the arguments are no JSON object, or do not fit. The text tells the model what to change:
                the fields and what is wrong, never the values, at most about 3000 characters.
        """
        text = arguments.strip()
        try:
            read = self._model.model_validate_json("{}" if text in ("", "null") else text)
        except ValidationError as error:
            raise ToolArgumentsError(self._misfit(error)) from None
        return {each.name: getattr(read, field) for field, each in self._fields.items()}

    def _misfit(self, error: ValidationError) -> str:
        problems = error.errors(include_url=False, include_input=False)
        first = problems[0]
        if not first["loc"]:
            broken = first["type"] == "json_invalid"
            reason = first["msg"].removeprefix("Invalid JSON: ") if broken else "write one, with the arguments by name"
            return f"the arguments for `{self._name}` are not one JSON object: {reason}"
        told = dict.fromkeys(self._told(each)[:_MAX_TOLD] for each in problems[:_MAX_PROBLEMS])
        more = len(problems) - _MAX_PROBLEMS
        return f"the arguments for `{self._name}` do not fit: {'; '.join(told)}{f'; and {more} more' if more > 0 else ''}"

    def _told(self, problem: Any) -> str:
        steps = problem["loc"]
        # a step that is no field of ours is the model's own word, or pydantic's for a branch of a union
        path = ".".join(str(step) if isinstance(step, int) or step in self._known else "*" for step in steps)
        said = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden" and len(steps) == 1:
            names = ", ".join(f"`{name}`" for name in self.schema["properties"])
            return f"an unknown argument; it takes {names or 'none'}"
        if problem["type"] == "union_tag_invalid":  # its text would show the value
            said = f"its {problem['ctx']['discriminator']} is none of {problem['ctx']['expected_tags']}"
        return f"`{path}`: {said}"


def _model(name: str, fields: dict[str, Parameter], told: dict[str, str]) -> tuple[type[BaseModel], dict[str, Any]]:
    """A model of the parameters, and its JSON Schema. Its fields have names of ours: any other may be taken there."""
    definitions: dict[str, Any] = {field: _field(each, told.get(each.name)) for field, each in fields.items()}
    try:
        model = create_model("Arguments", __config__=_CONFIG, **definitions)
        schema = model.model_json_schema(schema_generator=_Schema)
    except _NO_SCHEMA as error:
        raise ConfigurationError(_without_schema(name, fields, error)) from None
    del schema["title"]
    properties = schema.setdefault("properties", {})
    if len(properties) < len(fields):
        raise ConfigurationError(f"two parameters of tool `{name}` have one alias; give each a name of its own")
    for argument in properties:
        if not _PROVIDERS_TAKE.fullmatch(argument):
            raise ConfigurationError(
                f"parameter `{argument}` of tool `{name}` has a name that providers refuse; use at most 64 of A-Z a-z 0-9 "
                "_ - ., or another name for the model: Annotated[…, Field(alias=…)]"
            )
    return model, schema


def _field(parameter: Parameter, told: str | None) -> tuple[Any, Any]:
    hint: Any = parameter.annotation
    metadata: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
    ours = Field(alias=parameter.name, description=told or None)  # in front: what the annotation itself says wins
    return Annotated[(hint, ours, *metadata)], ... if parameter.default is Parameter.empty else parameter.default


def _without_schema(name: str, fields: dict[str, Parameter], error: Exception) -> str:
    where = f"a parameter of tool `{name}`"
    for each in fields.values():
        try:
            TypeAdapter(each.annotation).json_schema()
        except _NO_SCHEMA as found:
            where, error = f"parameter `{each.name}` of tool `{name}`", found
            break
    reason = str(error).partition("\n")[0]
    return f"{where} has a type that a model cannot give: {reason} (the application's own objects: `ToolContext.context`)"


def _parameters(name: str, function: Callable[..., Any]) -> list[Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError, NameError) as error:
        raise ConfigurationError(f"tool `{name}` has no signature to be read: {error}; wrap it in a function") from None
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    for each in parameters:
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise ConfigurationError(f"tool `{name}` takes `{each}`: no model knows what to give; write the parameters out")
    return [each for each in parameters if each.name not in fixed]


def _resolved(name: str, function: Callable[..., Any], parameters: list[Parameter]) -> list[Parameter]:
    """The parameters with annotations that are types, not texts."""
    plain = _plain(function)
    names, here = getattr(plain, "__globals__", {}), _names_around(plain)

    def resolved(each: Parameter) -> Parameter:
        if each.annotation is Parameter.empty:
            raise ConfigurationError(f"parameter `{each.name}` of tool `{name}` has no annotation; say what it is")

        def holder() -> None: ...

        holder.__annotations__ = {each.name: each.annotation}
        try:
            return each.replace(annotation=get_type_hints(holder, names, here, include_extras=True)[each.name])
        except Exception as error:  # an annotation is any expression
            raise ConfigurationError(
                f"the annotation of parameter `{each.name}` of tool `{name}` cannot be resolved: {error}; define or import "
                "what it names above the function, not under TYPE_CHECKING"
            ) from None

    return [resolved(each) for each in parameters]


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation is ToolContext or ToolContext in get_args(annotation)


def _plain(function: Any) -> Any:
    """The function that was written with `def`: it has the docstring, and the names that annotations are made of."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not hasattr(function, "__wrapped__"):
        function = type(function).__call__
    function = inspect.unwrap(function)
    return function.__func__ if isinstance(function, MethodType) else function


def _docstring_of(function: Any) -> str | None:
    plain = _plain(function)
    while isinstance(function, functools.partial):
        function = function.func
    return plain.__doc__ or (None if inspect.isroutine(function) else type(function).__doc__)


def _names_around(function: Any) -> dict[str, Any]:
    """The local names of the functions and classes that `function` is defined in, as far as these are still running."""
    found: dict[str, Any] = {}
    code = getattr(function, "__code__", None)
    frame = sys._getframe()
    while frame is not None:
        if any(const is code for const in frame.f_code.co_consts):
            code, found = frame.f_code, {**frame.f_locals, **found}
        frame = frame.f_back  # type: ignore[assignment]
    return found
