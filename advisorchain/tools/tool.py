"""`@tool` makes a tool of a function.

    @tool
    async def weather(city: Annotated[str, Field(description="in English")], days: int = 1) -> dict[str, float]:
        "The weather in a city."

The decorated function can be called as before. As a method it is used through an object: `[shop.search, shop.order]`.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from math import inf
from types import FunctionType
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from anyio import current_effective_deadline

from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of
from advisorchain.model import is_async
from advisorchain.options import ToolDefinition
from advisorchain.tools._threads import run_in_thread
from advisorchain.tools.base import Approval, Tool, check_name
from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult, result_of
from advisorchain.tools.schema import Arguments

__all__ = ["FunctionTool", "Tool", "ToolSettings", "as_tool", "checked_tools", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class ToolSettings(TypedDict, total=False):
    """What is told of a function that becomes a tool; see `tool`."""

    name: str | None
    description: str | None
    sequential: bool
    timeout: float | None
    return_direct: bool
    needs_approval: Approval
    strict: bool | None


class FunctionTool(Tool, Generic[P, R]):
    """A tool that runs a function, made by `@tool`. It can be called as the function itself.

    An `async def` runs in the task of the loop. A plain function runs in a worker thread, with a copy of the caller's
    context variables; at most 40 in an event loop at the same time, apart from anyio's own. A thread cannot be stopped:
    cancelling waits until it ends, unless its time is limited, by the tool's `timeout` or whatever stands around it, such
    as the loop's; then it is left to itself, counts no more, and does not keep the process from ending. Of those there may
    be 200 in a process; then plain functions fail until some have ended. In long work call
    `anyio.from_thread.check_cancelled()` from time to time.

    Attributes:
        function: what is run.
    """

    def __init__(
        self,
        function: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        sequential: bool = False,
        timeout: float | None = None,
        return_direct: bool = False,
        needs_approval: Approval = False,
        strict: bool | None = None,
    ) -> None:
        within: Any = function.__func__ if isinstance(function, classmethod | staticmethod) else function
        name = check_name(_name_of(within) if name is None else name)
        _check_function(name, within)
        self._unbound: Any = function if _is_method(function) else None
        self.function: Callable[P, R] = within
        self._is_async: Final = is_async(_unfixed(within))
        self._arguments: Final = Arguments(name, within, method=self._unbound is not None, strict=strict is True)
        description = self._arguments.description if description is None else description
        try:
            definition = ToolDefinition(name, description, self._arguments.schema, strict)
        except InvalidInputError as error:
            raise ConfigurationError(f"tool `{name}` cannot be told to a model: {error}") from None
        super().__init__(
            definition,
            sequential=sequential,
            timeout=timeout,
            return_direct=return_direct,
            needs_approval=needs_approval,
        )
        functools.update_wrapper(self, within, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> FunctionTool[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The tool bound to an object, as Python does it with a method."""
        if self._unbound is None or (instance is None and not isinstance(self._unbound, classmethod)):
            return self
        bound = copy.copy(self)
        bound.function = bound.__wrapped__ = self._unbound.__get__(instance, owner)  # type: ignore[attr-defined]
        bound._unbound = None
        return bound

    def is_same(self, other: Tool) -> bool:
        """Whether `other` runs the same function with the same settings."""
        return isinstance(other, FunctionTool) and self._identity == other._identity

    @property
    def _identity(self) -> tuple[Any, ...]:
        settings = self.sequential, self.timeout, self.return_direct, self.needs_approval
        return (self.function, self.definition, *settings)

    def values(self, arguments: str) -> Mapping[str, Any]:
        """The value of each parameter but the tool's context."""
        return self._arguments.values(arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """Run the function."""
        if self._unbound is not None:
            raise _unbound(self.name)
        by_place, by_keyword = self._arguments.call_with(arguments, context)
        function: Callable[..., Any] = self.function
        if self._is_async:
            return result_of(self.name, await function(*by_place, **by_keyword))

        def run() -> ToolResult:
            return result_of(self.name, function(*by_place, **by_keyword))

        may_run_out = self.timeout is not None or current_effective_deadline() != inf
        return await run_in_thread(run, abandon=may_run_out)


@overload
def tool(function: Callable[P, R], /, **settings: Unpack[ToolSettings]) -> FunctionTool[P, R]: ...
@overload
def tool(**settings: Unpack[ToolSettings]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Any = None, /, **settings: Unpack[ToolSettings]) -> Any:
    """Make a tool of a function, async or not, of a method, a `functools.partial` or an object that can be called.

    Name, description and arguments are read from it; `advisorchain.tools.schema` has the rules, and
    `advisorchain.tools.results` those for what it returns.

    Args:
        function: what the decorator stands on: `@tool`, `@tool(timeout=5)`, or `tool(shop.search)`.
        name: what the model calls it: 1 to 64 of the letters A-Z and a-z, digits, `_` and `-`; None is the function's own.
        description: what the model is told of it; None is what the docstring says before its sections.
        sequential: whether no other tool of the same message may run at the same time.
        timeout: seconds that one run may take; None is no limit of its own.
        return_direct: whether the result is the answer, which the model does not see.
        needs_approval: whether a person has to say yes first, or a function of the validated arguments and the context.
        strict: whether the provider shall hold the model to the schema, where it can; the schema then asks for every
            argument, also for one with a default. None: the provider's own default.

    Raises:
        ConfigurationError: no function, a signature that no model can fill, or a name that providers refuse.
    """
    make = functools.partial(FunctionTool[Any, Any], **settings)
    return make if function is None else make(function)


def _shown() -> inspect.Signature:
    """What `help(tool)` tells: the settings one by one."""
    _, function, *settings = inspect.signature(FunctionTool.__init__).parameters.values()
    return inspect.Signature([function.replace(kind=Parameter.POSITIONAL_ONLY, default=None), *settings])


tool.__signature__ = _shown()  # type: ignore[attr-defined]


def as_tool(tool: Any) -> Tool:
    """A tool as it is; a function made one, by its own name and docstring.

    Raises:
        ConfigurationError: as `tool`; or a method that was decorated in its class and is not bound to an object.
    """
    if not isinstance(tool, Tool):
        return FunctionTool(tool)
    if isinstance(tool, FunctionTool) and tool._unbound is not None:
        raise _unbound(tool.name)
    return tool


def checked_tools(tools: Iterable[Any]) -> tuple[Tool, ...]:
    """Tools and functions as tools, each name once.

    Raises:
        ConfigurationError: no tools, or two of one name.
    """
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"`tools` is {kind_of(tools)}; give a list of functions and tools")
    made = tuple(as_tool(each) for each in tools)
    for name, times in Counter(each.name for each in made).items():
        if times > 1:
            raise ConfigurationError(f"two tools have the name `{name}`; give one another: @tool(name=…)")
    return made


def _check_function(name: str, function: object) -> None:
    if isinstance(function, type | Tool) or not callable(function):
        raise ConfigurationError(f"a tool is made of a function, not of {kind_of(function)}")
    plain = _unfixed(function)
    for kind in (plain, getattr(plain, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
            raise ConfigurationError(f"tool `{name}` yields; return a list, or one text")


def _name_of(function: object) -> str:
    function = _unfixed(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _unfixed(function: Any) -> Any:
    """What a `functools.partial` calls in the end, also where that was made a tool."""
    while isinstance(function, functools.partial | FunctionTool):
        function = function.func if isinstance(function, functools.partial) else function.function
    return function


def _is_method(function: object) -> bool:
    """Whether it stands in the body of a class, and its first parameter is for an object or a class to come."""
    if isinstance(function, classmethod):
        return True
    place, dot, _ = getattr(function, "__qualname__", "").rpartition(".")
    if not isinstance(function, FunctionType) or not dot or place.endswith("<locals>"):
        return False
    first = next(iter(function.__code__.co_varnames[: function.__code__.co_argcount]), None)
    return first is not None and (first == "self" or first not in function.__annotations__)


def _unbound(name: str) -> ConfigurationError:
    return ConfigurationError(f"tool `{name}` is a method; use it through an object of its class")
