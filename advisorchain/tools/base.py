"""What every tool is, whatever runs it."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

from pydantic_core import to_jsonable_python

from advisorchain._checked import checked_seconds
from advisorchain.errors import AdvisorContractError, ConfigurationError, ToolArgumentsError, dropped, kind_of
from advisorchain.messages import ToolCall
from advisorchain.model import is_async
from advisorchain.options import ToolDefinition
from advisorchain.tools.context import ToolContext
from advisorchain.tools.results import ToolResult

__all__ = ["Approval", "Tool", "arguments_in", "check_name", "digest_of", "sendable_name"]

Approval: TypeAlias = bool | Callable[[Mapping[str, Any], ToolContext], bool]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what OpenAI takes; the others take at least that
_REFUSED: Final = re.compile(r"[^A-Za-z0-9_-]")


class Tool(ABC):
    """Something that a model may ask to have run. `@tool` makes one of a function; subclass it for other kinds.

    Args:
        definition: what the model is told.
        sequential: whether no other tool of the same message may run at the same time.
        timeout: seconds that one run may take, to which the loop holds it; None is no limit of its own.
        return_direct: whether the result is the answer, which the model does not see.
        needs_approval: whether a person has to say yes first, or a function of the validated arguments, by parameter, and
            the context that tells it.

    Raises:
        ConfigurationError: a name that providers refuse, or a setting that cannot be.
    """

    def __init__(
        self,
        definition: ToolDefinition,
        *,
        sequential: bool = False,
        timeout: float | None = None,
        return_direct: bool = False,
        needs_approval: Approval = False,
    ) -> None:
        self.definition: Final = definition
        self.sequential: Final = sequential
        self.timeout: Final = timeout
        self.return_direct: Final = return_direct
        self.needs_approval: Final = needs_approval
        check_name(self.name)
        if timeout is not None:
            checked_seconds(f"timeout` of tool `{self.name}", timeout)
        if not isinstance(needs_approval, bool) and (not callable(needs_approval) or is_async(needs_approval)):
            raise ConfigurationError(f"`needs_approval` of tool `{self.name}` is to be a bool, or a plain function")

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.definition.name

    def is_same(self, other: Tool) -> bool:
        """Whether `other` is this very tool, so that one of them is enough where both are offered."""
        return self is other

    def asks_approval(self, arguments: str, context: ToolContext) -> bool:
        """Whether this very call needs a person's yes.

        Raises:
            ToolArgumentsError: the arguments do not fit, so that there is nothing to say yes to.
            AdvisorContractError: the function `needs_approval` returned something else than a bool.
        """
        if self.needs_approval is False:
            return False
        values = self.values(arguments)
        asked = self.needs_approval if self.needs_approval is True else self.needs_approval(values, context)
        if not isinstance(asked, bool):
            raise AdvisorContractError(f"`needs_approval` of tool `{self.name}` returned {dropped(asked)}; return a bool")
        return asked

    @abstractmethod
    def values(self, arguments: str) -> Mapping[str, Any]:
        """The arguments of a call, validated as far as this kind of tool can.

        Raises:
            ToolArgumentsError: they do not fit.
        """

    @abstractmethod
    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """Run it, without a limit of time.

        Args:
            arguments: the JSON text that the model wrote, whatever it is.
            context: what a tool may ask of the call.

        Raises:
            ToolArgumentsError: they do not fit; the text is for the model.
            AdvisorContractError: the result cannot be sent to a model.
            Exception: the tool's own, as it is.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def check_name(name: object) -> str:
    """`name` itself; ConfigurationError when a provider would refuse it."""
    if not isinstance(name, str):
        raise ConfigurationError(f"`name` of a tool is {kind_of(name)}; give a text")
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"`{name[:80]}` is a tool's name that providers refuse; use 1 to 64 of A-Z a-z 0-9 _ -: @tool(name=…)"
        )
    return name


def sendable_name(name: str) -> str:
    """A name as providers take it: what they refuse becomes `_`, and more than 64 characters are cut off."""
    return name if _NAME.fullmatch(name) else _REFUSED.sub("_", name)[:64] or "_"


def arguments_in(text: str, name: str) -> dict[str, Any]:
    """The JSON object that a model wrote as the arguments for the tool `name`.

    Raises:
        ToolArgumentsError: it is none.
    """
    try:
        return ToolCall("-", name, text).parsed()
    except ToolArgumentsError:
        raise ToolArgumentsError(f"the arguments for `{name}` are not one JSON object") from None


def digest_of(tools: Iterable[Tool]) -> str:
    """A text that differs when the model is told of other tools; without tools it is empty."""
    told = [to_jsonable_python(tool.definition) for tool in tools]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest() if told else ""
