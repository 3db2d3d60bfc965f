"""How our values are checked and frozen: plain JSON inside them, pydantic's checks, and errors that name the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, PlainValidator, ValidationError

from advisorchain.errors import InvalidInputError, kind_of

_T = TypeVar("_T")

_MAX_BITS: Final = 13_000  # Python and pydantic read no number of more than 4300 digits
_MAX_DEPTH: Final = 100  # pydantic's JSON parser stops at 200 levels: what is made must also load


def _refuse_change(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    raise TypeError(f"`{type(self).__name__}` is part of a message and cannot be changed; make a new message")


class FrozenDict(dict[str, Any]):
    """A dict inside a message: equal to a plain one, and unchangeable."""

    __slots__ = ()
    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse_change

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class FrozenList(list[Any]):
    """A list inside a message: equal to a plain one, and unchangeable."""

    __slots__ = ()
    __setitem__ = __delitem__ = append = clear = extend = insert = pop = remove = _refuse_change
    reverse = sort = __iadd__ = __imul__ = _refuse_change

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)


EMPTY: Final = FrozenDict()


def utf8(text: str) -> str:
    """`text` itself; a ValueError when it holds a lone surrogate, which no store or provider can encode."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("the text holds a lone surrogate (half of a character); replace it first") from None
    return text


def frozen_json(value: object, depth: int = 0) -> Any:
    """`value` with its dicts and lists frozen; a ValueError naming the place when it is not plain JSON."""
    if value is None or value.__class__ is bool:
        return value
    if value.__class__ is int:
        if value.bit_length() > _MAX_BITS:
            raise ValueError("a number of about 4000 digits or more; give it as text")
        return value
    if value.__class__ is str:
        return utf8(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ValueError("NaN and infinity are not JSON")
    if depth >= _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return FrozenDict({_json_key(key): _json_item(key, item, depth) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList(_json_item(place, item, depth) for place, item in enumerate(value))
    raise ValueError(f"{kind_of(value)} is not JSON; give text, numbers, true, false, null, lists or dicts")


def _json_key(key: object) -> str:
    if key.__class__ is not str:
        raise ValueError(f"a key is {kind_of(key)}; JSON keys are text")
    return utf8(key)


def _json_item(place: object, item: object, depth: int) -> Any:
    try:
        return frozen_json(item, depth + 1)
    except ValueError as error:
        raise ValueError(f"`{place}`: {error}") from None


def frozen_mapping(value: object) -> FrozenDict:
    """A dict of JSON values, frozen; a ValueError when it is none."""
    if not value and isinstance(value, Mapping):
        return EMPTY
    if not isinstance(value, Mapping):
        raise ValueError(f"is {kind_of(value)}; give a dict of JSON values")
    frozen: FrozenDict = frozen_json(value)
    return frozen


Text: TypeAlias = Annotated[str, AfterValidator(utf8)]
Json: TypeAlias = Annotated[Any, PlainValidator(frozen_json)]
Metadata: TypeAlias = Annotated[Mapping[str, Any], PlainValidator(frozen_mapping)]

# strict: "1" is no int. forbid: a misspelt argument is an error; loading from JSON passes extra="ignore" instead.
CONFIG: Final = ConfigDict(
    extra="forbid",
    hide_input_in_errors=True,
    strict=True,
    allow_inf_nan=False,  # they are no JSON: no provider takes them
    ser_json_bytes="base64",
    val_json_bytes="base64",
    defer_build=True,  # a class is made ready when the first of it is made: importing takes a third less
)


# steps of a validation path that are no fields but branches of a union
_TAGS: Final = frozenset({"text", "parts", "system", "user", "assistant", "tool", "tuple"})


def explain(name: str, error: ValidationError, fields: tuple[str, ...] = ()) -> str:
    """One line a problem, by the field's path, never with the value."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        first, *rest = problem["loc"] or (name,)
        if isinstance(first, int) and first < len(fields):  # an argument that was given by its place
            first = fields[first]
        path = ".".join(_fields_of((first, *rest))) or name
        said = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "union_tag_invalid":  # its text would show the value
            said = f"its {problem['ctx']['discriminator']} is none of {problem['ctx']['expected_tags']}".replace("'", "`")
        lines.append(f"`{path}`: {said}")
    return f"`{name}` cannot be made: {'; '.join(dict.fromkeys(lines))}"


def _fields_of(path: tuple[int | str, ...]) -> list[str]:
    """The steps that are fields; `text` is one too, where it stands first or behind the branch of that name."""
    return [
        str(step)
        for place, step in enumerate(path)
        if step not in _TAGS or (step == "text" and (place == 0 or path[place - 1] == "text"))
    ]


def short_repr(self: Any) -> str:
    """A value by its constructor, with the fields that are set."""
    shown = []
    for each in fields(self):
        value = getattr(self, each.name)
        if each.repr and value is not None and value != each.default and (value or value is False or value == ""):
            shown.append(f"{each.name}={dict(value) if isinstance(value, Mapping) else value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"


def check_kinds(owner: object, kinds: Mapping[str, type]) -> None:
    """InvalidInputError when a field that is set is of another kind."""
    for name, kind in kinds.items():
        value = getattr(owner, name)
        if value is not None and not isinstance(value, kind):
            raise InvalidInputError(
                f"`{name}` of a {type(owner).__name__} is {kind_of(value)}; give {kind_of(kind).replace('the class ', 'a ')}"
            )


def clear_errors(raised: type[Exception]) -> Callable[[type[_T]], type[_T]]:
    """A class decorator: the constructor raises `raised`, naming the field, in place of pydantic's ValidationError.

    And the repr shows only what is set.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        construct: Callable[..., None] = cls.__init__
        fields = tuple(cls.__dataclass_fields__)  # type: ignore[attr-defined]

        @wraps(construct)
        def __init__(self: _T, *args: Any, **kwargs: Any) -> None:  # noqa: N807  it becomes the class's own
            try:
                construct(self, *args, **kwargs)
            except ValidationError as error:
                raise raised(explain(cls.__name__, error, fields)) from None
            finally:
                if cls.__init__ is not __init__:  # pydantic puts its own there when it makes a deferred class ready
                    cls.__init__ = __init__  # type: ignore[assignment]

        cls.__init__ = __init__  # type: ignore[assignment]
        cls.__repr__ = short_repr  # type: ignore[method-assign]
        return cls

    return decorate
