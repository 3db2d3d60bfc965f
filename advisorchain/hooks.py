"""Advisors made of one function: `@before` on the way in, `@after` on the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, overload

from advisorchain.advisor import BaseAdvisor
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.exchange import ChatRequest, ChatResponse

__all__ = ["after", "before"]

BeforeFunction: TypeAlias = Callable[[ChatRequest], ChatRequest | ChatResponse | Awaitable[ChatRequest | ChatResponse]]
AfterFunction: TypeAlias = Callable[[ChatRequest, ChatResponse], ChatResponse | Awaitable[ChatResponse]]


class _FunctionAdvisor(BaseAdvisor):
    def __init__(self, function: Callable[..., Any], order: int, name: str | None) -> None:
        if isinstance(function, type) or not callable(function):
            raise ConfigurationError(f"a hook is made of a function, not of {kind_of(function)}")
        self.function: Final = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.order = order

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}@{self.order}>"


class FunctionBefore(_FunctionAdvisor):
    """What `@before` makes of a function. The function itself is its attribute `function`, and its hook `before`."""

    def __init__(self, function: BeforeFunction, order: int = 0, name: str | None = None) -> None:
        super().__init__(function, order, name)
        self.before = function  # type: ignore[assignment, method-assign]  # itself: the chain sees whether it is async


class FunctionAfter(_FunctionAdvisor):
    """What `@after` makes of a function. The function itself is its attribute `function`, and its hook `after`."""

    def __init__(self, function: AfterFunction, order: int = 0, name: str | None = None) -> None:
        super().__init__(function, order, name)
        self.after = function  # type: ignore[assignment, method-assign]


@overload
def before(function: BeforeFunction, /) -> FunctionBefore: ...
@overload
def before(*, order: int = 0, name: str | None = None) -> Callable[[BeforeFunction], FunctionBefore]: ...
def before(function: BeforeFunction | None = None, /, *, order: int = 0, name: str | None = None) -> Any:
    """Make an advisor of `def` or `async def function(request)`, called on the way in: `@before` or `@before(order=5)`.

    It returns the request, a changed copy, or a ChatResponse, which answers without the rest of the chain.

    Args:
        function: what the decorator stands on.
        order: the advisor's place; lower is further out.
        name: unique in a chain; that of the function.
    """
    if function is None:
        return lambda function: FunctionBefore(function, order, name)
    return FunctionBefore(function, order, name)


@overload
def after(function: AfterFunction, /) -> FunctionAfter: ...
@overload
def after(*, order: int = 0, name: str | None = None) -> Callable[[AfterFunction], FunctionAfter]: ...
def after(function: AfterFunction | None = None, /, *, order: int = 0, name: str | None = None) -> Any:
    """Make an advisor of `def` or `async def function(request, response)`, called on the way out, once, also in a stream.

    It returns the response or a changed copy. What a stream's reader has seen cannot be changed any more: change text in
    the `transform` of a BaseAdvisor.

    Args:
        function: what the decorator stands on.
        order: the advisor's place; lower is further out.
        name: unique in a chain; that of the function.
    """
    if function is None:
        return lambda function: FunctionAfter(function, order, name)
    return FunctionAfter(function, order, name)
