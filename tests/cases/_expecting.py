"""What came of a step, held against what the case expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisorchain.errors import AdvisorChainError
from advisorchain.messages import AssistantMessage, ToolMessage

from ._reading import Fields, UnknownInCaseError, messages_of


@dataclass(slots=True)
class Result:
    """What a step gave, or the error that it raised."""

    value: Any = None
    error: BaseException | None = None


def expected_error(expect: Any) -> Any:
    """The `error` that an expectation asks for; None when it asks for none."""
    return expect.get("error") if isinstance(expect, Mapping) else None


def check_error(expected: Any, result: Result) -> None:
    with Fields(expected, "error") as fields:
        kind, about = fields.take("kind", None), fields.take("about", None)
    error = result.error
    assert error is not None, f"expected an error about `{about}`; the step went well"
    assert isinstance(error, AdvisorChainError), f"{type(error).__name__} is none of our errors: {error}"
    if kind == "invalid_argument":
        assert isinstance(error, ValueError | TypeError)
    if about is not None:
        assert f"`{about}" in str(error), f"the error does not name `{about}`: {error}"


def check_messages(found: Sequence[Any], expected: Any, compare: str | None = None) -> None:
    """Equal, in order. Metadata is compared where the case tells it; `compare: contains` asks for a part of it."""
    assert isinstance(expected, list), "expected messages are a list"
    wanted = messages_of(expected)
    told = _metadata_told(expected)
    assert len(told) == len(wanted)
    shown = [_comparable(message, other, compare, tell) for message, other, tell in zip(found, wanted, told, strict=False)]
    assert [*shown, *found[len(shown) :]] == wanted


def _metadata_told(expected: list[Any]) -> list[bool]:
    return [
        isinstance(item, Mapping) and item.get("metadata") is not None
        for item in expected
        for _ in (item["responses"] if isinstance(item, Mapping) and "responses" in item else [None])
    ]


def _comparable(message: Any, wanted: Any, compare: str | None, told: bool) -> Any:
    if compare not in (None, "equal", "contains"):
        raise UnknownInCaseError(f"unknown `compare`: {compare}")
    metadata = message.metadata
    if compare == "contains":
        metadata = {key: value for key, value in metadata.items() if key in wanted.metadata}
    elif compare is None and not told:
        metadata = {}
    if isinstance(message, ToolMessage) and isinstance(wanted, ToolMessage) and wanted.name is None:
        message = replace(message, name=None)
    return replace(message, metadata=metadata)


def check_metadata(found: Sequence[Any], expected: Sequence[Mapping[str, Any]], compare: str | None) -> None:
    assert len(found) == len(expected)
    for message, wanted in zip(found, expected, strict=True):
        if compare == "contains":
            assert wanted.items() <= dict(message.metadata).items()
        else:
            assert message.metadata == wanted


def check_tool_calls(found: AssistantMessage, expected: Sequence[Any]) -> None:
    """By id alone, or by the parts that are told; `arguments` as raw text or as the object that it holds."""
    assert len(found.tool_calls) == len(expected)
    for call, wanted in zip(found.tool_calls, expected, strict=True):
        if isinstance(wanted, str):
            assert call.id == wanted
            continue
        with Fields(wanted, "expected tool call") as fields:
            for key in ("id", "name"):
                assert getattr(call, key) == fields.take(key, getattr(call, key))
            arguments = fields.take("arguments", call.arguments)
            assert (call.arguments if isinstance(arguments, str) else call.parsed()) == arguments
