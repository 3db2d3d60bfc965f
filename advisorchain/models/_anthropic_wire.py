"""What Anthropic's Messages API is asked: our request as its parameters.

A system message that leads goes into `system`. The API takes a later one as a message too (from Claude Opus 4.8 on), but
only behind a user's turn and before the model's, so it is sent at the end of the user's turn that it stands in or before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from advisorchain._output_prompt import in_words
from advisorchain.errors import InvalidInputError, ToolArgumentsError
from advisorchain.exchange import ChatOptions, ChatRequest
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from advisorchain.models._anthropic_blocks import Block, answer_blocks, content_blocks
from advisorchain.models._anthropic_schema import held_schema
from advisorchain.options import ToolDefinition

__all__ = ["request_parameters"]

Turn: TypeAlias = dict[str, Any]

_UNSUPPORTED: Final = ("seed", "presence_penalty", "frequency_penalty")
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


def request_parameters(request: ChatRequest, *, name: str, max_tokens: int, host: str, all_thinking: bool) -> dict[str, Any]:
    """The arguments of the SDK's `messages.create`.

    Args:
        request: what is asked.
        name: the model, where the options name none.
        max_tokens: the most that it may answer, where the options do not say.
        host: the server's.
        all_thinking: whether the thinking of earlier turns is sent, too.

    Raises:
        InvalidInputError: the request has what the API does not take.
    """
    request, output_format = _with_output(request)
    options = request.options
    for field in _UNSUPPORTED:
        if getattr(options, field) is not None:
            raise InvalidInputError(f"Anthropic's API has no `{field}`; leave it out of the options")
    if "stream" in options.extra:
        raise InvalidInputError("`options.extra` has `stream`; leave it out, and use `call` or `stream`")
    leading = next((at for at, each in enumerate(request.messages) if not isinstance(each, SystemMessage)), None)
    if leading is None:
        raise InvalidInputError("`messages` are system messages only; Anthropic needs a user's message")
    system = [block for message in request.messages[:leading] for block in content_blocks(message)]
    given = {
        "model": options.model or name,
        "max_tokens": options.max_tokens or max_tokens,
        "system": system,
        "messages": _turns(request.messages[leading:], host, all_thinking=all_thinking),
        "stop_sequences": list(options.stop),
        "tools": [_tool(tool) for tool in options.tools],
        "tool_choice": _tool_choice(options),
        "output_config": output_format,
        "extra_body": _extra(options),
    }
    return _with_extra({key: value for key, value in given.items() if value})


def _turns(messages: Sequence[Message], host: str, *, all_thinking: bool) -> list[Turn]:
    """Turns that alternate: what one side says in several messages is one turn, and so are the results of tools."""
    asked = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    turns: list[Turn] = []
    told: list[Block] = []  # by the system, and not yet placed
    for at, message in enumerate(messages):
        if isinstance(message, SystemMessage):
            told += content_blocks(message)
            continue
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, host, thinking=all_thinking or at > asked)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
            continue
        if role == "assistant":
            told = _place(told, turns)
        turns.append({"role": role, "content": blocks})
    if not turns:
        raise InvalidInputError("`messages` hold no text and nothing else that could be sent")
    if _place(told, turns):
        raise InvalidInputError("`messages` end with a system message behind an answer; put a user's message after it")
    _check_pairs(turns)
    return turns


def _place(told: list[Block], turns: list[Turn]) -> list[Block]:
    if told and turns and turns[-1]["role"] == "user":
        turns.append({"role": "system", "content": told})
        return []
    return told


def _blocks(message: Message, host: str, *, thinking: bool) -> list[Block]:
    if isinstance(message, AssistantMessage):
        calls = [_tool_use(call) for call in message.tool_calls]
        return answer_blocks(message, calls, host=host, thinking=thinking)
    if isinstance(message, ToolMessage):
        return [_tool_result(message)]
    return content_blocks(message)


def _check_pairs(turns: list[Turn]) -> None:
    """The API's rule: the turn behind a call has its results, and there are no others. They stand first in it."""
    open_calls: list[str] = []
    for turn in turns:
        if turn["role"] == "assistant":
            open_calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        elif turn["role"] == "user":
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
            results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
            for orphan in [result for result in results if result not in open_calls]:
                raise InvalidInputError(f"a tool's result (`{orphan}`) answers no call of the message before it")
            open_calls = [call for call in open_calls if call not in results]
            _check_answered(open_calls)
    _check_answered(open_calls)


def _check_answered(open_calls: list[str]) -> None:
    for call in open_calls:
        raise InvalidInputError(f"the tool call `{call}` has no result; put a ToolMessage behind it")


def _call_id(call_id: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)  # other providers' ids may have what this API refuses


def _tool_use(call: ToolCall) -> Block:
    try:
        arguments = call.parsed()
    except ToolArgumentsError:  # the form that Anthropic's guide to tool streaming names for what is no JSON
        arguments = {"INVALID_JSON": call.arguments}
    return {"type": "tool_use", "id": _call_id(call.id), "name": call.name, "input": arguments}


def _tool_result(message: ToolMessage) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": _call_id(message.tool_call_id)}
    if content := content_blocks(message):
        result["content"] = content
    return {**result, "is_error": True} if message.is_error else result


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameters}
    held = held_schema(schema) if tool.strict else None
    given = {
        "name": tool.name,
        "description": tool.description or None,
        "input_schema": held or schema,
        "strict": held is not None if tool.strict else tool.strict,
    }
    return {key: value for key, value in given.items() if value is not None}


def _tool_choice(options: ChatOptions) -> dict[str, str] | None:
    choice = options.tool_choice
    if choice is None or (choice in ("auto", "none") and not (options.tools or "tools" in options.extra)):
        return None  # without tools there is nothing to choose, and the API refuses it
    return {"type": _CHOICES[choice]} if choice in _CHOICES else {"type": "tool", "name": choice}


def _with_output(request: ChatRequest) -> tuple[ChatRequest, dict[str, Any] | None]:
    """The form of the answer as the API's own mode takes it, or in words where it cannot hold the model to it."""
    output = request.options.output
    if output is None:
        return request, None
    schema = held_schema(output.schema)
    if schema is None:
        return in_words(request), None
    return request, {"format": {"type": "json_schema", "schema": schema}}


def _extra(options: ChatOptions) -> dict[str, Any]:
    # The SDK has no arguments for these two; the API's version of 2026-10-21 refuses them, older ones and others do not.
    sampling = {"temperature": options.temperature, "top_p": options.top_p}
    return {**{key: value for key, value in sampling.items() if value is not None}, **options.extra}


def _with_extra(parameters: dict[str, Any]) -> dict[str, Any]:
    """The extra's `tools` and `output_config` beside ours, in place of instead of them."""
    extra = parameters.get("extra_body", {})
    if "tools" in extra and "tools" in parameters:
        extra["tools"] = [*parameters["tools"], *extra["tools"]]
    if "output_config" in extra and "output_config" in parameters:
        extra["output_config"] = {**extra["output_config"], **parameters["output_config"]}
    return parameters
