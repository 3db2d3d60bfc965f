"""A turn that waits for a person: what it is stored as, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from advisorchain._values import CONFIG, Text, clear_errors, explain, utf8
from advisorchain.advisor import HIGHEST_PRECEDENCE, AdvisorLike, BaseAdvisor
from advisorchain.advisors._tool_loop.failures import error_result
from advisorchain.errors import ConfigurationError, InvalidInputError, kind_of
from advisorchain.exchange import ChatOptions, ChatRequest
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, Usage
from advisorchain.tools.base import Tool, digest_of

__all__ = ["LoopStart", "Resumed", "ToolPause"]

_Answered: TypeAlias = Annotated[AssistantMessage | ToolMessage, Field(discriminator="role")]
_Said: TypeAlias = Annotated[Message, Field(discriminator="role")]
_Number: TypeAlias = Annotated[int, Field(ge=0)]


class Resumed(TypedDict):
    """What `ToolPause.resume` gives: arguments for `call` and `stream` of a chain or client."""

    prompt: tuple[Message, ...]
    conversation_id: str | None
    options: ChatOptions | None
    advisors: tuple[AdvisorLike, ...]


@clear_errors(InvalidInputError)
@dataclass(frozen=True, slots=True, kw_only=True, repr=False, config=CONFIG)
class ToolPause:
    """A turn that stopped where a tool needs a person's yes. `dump` makes JSON of it, `load` makes it again, anywhere.

    It holds what was said, as the model saw it, so keep it where conversations are kept. Not in it are the application's own
    objects in the request's context (give `context` again), what a typed answer is to be (`output_type` again), and tools
    that were added for this turn.

    Resuming it twice runs the tools twice, also when the first time failed, or its stream was left: that is an interrupted
    turn then, which memory keeps as such. A call whose tool needs a yes by now, and that nobody was asked about, pauses the
    turn once more. A conversation that was deleted meanwhile begins anew.

    A tool that asks a chain of its own, whose turn pauses, gets a response without text: it should look for `response.pause`
    there, and keep it or raise a `ToolError` that says so; the outer turn does not wait for it.

    Attributes:
        waiting: the ids of the calls that wait for a yes.
        message: the answer that asks for them, and maybe for others.
        results: of the calls of this answer that have been run.
        earlier: the turn's finished rounds before that.
        messages, recalled, conversation_id: as on the request that reached the loop, so with history and with what advisors
            further out made of it. The conversation may be a branch that memory has begun.
        options: what the chain was asked with.
        advisor: the name of the loop.
        round, usage, calls, failures, seconds: what the turn has taken so far, for its limits.
        prompt: what the chain was asked, before any advisor changed it.
        traceparent: the span in which it stopped, as W3C Trace Context has it: the trace of the turn that goes on has a link
            to it. None: nothing was recorded.
        format: of the JSON.
    """

    waiting: Annotated[tuple[Text, ...], Field(strict=False)]
    message: AssistantMessage
    results: Annotated[tuple[ToolMessage, ...], Field(strict=False)]
    earlier: Annotated[tuple[_Answered, ...], Field(strict=False)]
    messages: Annotated[tuple[_Said, ...], Field(strict=False)]
    recalled: _Number
    conversation_id: Text | None
    options: ChatOptions
    advisor: Text
    round: Annotated[int, Field(ge=1)]
    usage: Usage | None
    calls: dict[Text, _Number]
    failures: Annotated[tuple[tuple[Text, Text, Text, _Number], ...], Field(strict=False)]
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    prompt: Annotated[tuple[_Said, ...], Field(strict=False)] = ()
    traceparent: Text | None = None
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        run = {result.tool_call_id for result in self.results}
        open_calls = {call.id for call in self.message.tool_calls} - run
        if not self.waiting or not open_calls.issuperset(self.waiting):
            raise ValueError("`waiting` names no tool call, or one that `message` does not ask for, or that has its result")
        if len(set(self.waiting)) < len(self.waiting):
            raise ValueError("`waiting` names a tool call twice")
        if self.recalled > len(self.messages):
            raise ValueError("`recalled` counts more messages than there are in `messages`")

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a yes: ids, names and arguments, to be shown to a person."""
        return tuple(call for call in self.message.tool_calls if call.id in self.waiting)

    @property
    def turn(self) -> tuple[AssistantMessage | ToolMessage, ...]:
        """What the turn has made so far."""
        return (*self.earlier, self.message, *self.results)

    def dump(self) -> str:
        """The pause as JSON text."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    def load(data: str | bytes) -> ToolPause:
        """The pause in a JSON text.

        Raises:
            InvalidInputError: it is none; the text names the field, never its value.
        """
        try:
            return _ADAPTER.validate_json(data, extra="ignore")
        except ValidationError as error:
            raise InvalidInputError(explain("pause", error)) from None

    def resume(
        self,
        *,
        approve: Iterable[str] = (),
        deny: Mapping[str, str] | Iterable[str] = (),
        change: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Resumed:
        """Decide on every open call, and go on: `await chain.call(**pause.resume(approve=["call_1"]))`, or `chain.stream`.

        The chain is the same one, or one built alike in another process. The model sees what it saw before, then the
        results. Advisors further out than the loop see the question as they saw it first, and what they make of it this
        time does not reach the model; the conversation id they see as the loop saw it. Memory stores the whole turn once,
        when it ends. A stream begins with what it showed before, a chunk for each message; the results of the answer that
        waited come when all are there. A client's turn that takes the place of the last one goes on with `turn="edit"`.

        Args:
            approve: ids of calls to run.
            deny: ids of calls not to run, or such ids with the reasons that the model is told.
            change: by id, arguments to run a call with in place of the model's; the model sees its call with these.

        Raises:
            InvalidInputError: an open call without a decision, or with two; an id that waits for none; arguments that are no
                JSON object. From the chain, before anything runs: arguments of a call that is to run, changed ones or the
                model's, that do not fit their tool, or do not fit it any more.
        """
        reasons = dict(deny) if isinstance(deny, Mapping) else dict.fromkeys(_ids("deny", deny), "")
        changed = {} if change is None else _arguments(change)
        self._check_decided([*_ids("approve", approve), *reasons, *changed])
        calls = tuple(
            replace(call, arguments=changed[call.id]) if call.id in changed else call for call in self.message.tool_calls
        )
        decided = replace(self, message=replace(self.message, tool_calls=calls)) if changed else self
        denied = tuple(_denied(call, reasons[call.id]) for call in calls if call.id in reasons)
        return Resumed(
            prompt=self._asked(),
            conversation_id=self.conversation_id,
            options=None if self.options == ChatOptions() else self.options,
            advisors=(_Resuming(LoopStart(pause=decided, denied=denied, changed=frozenset(changed))),),
        )

    def _asked(self) -> tuple[Message, ...]:
        """What the chain is to be asked again. System messages are not: those that the model sees are kept."""
        if self.prompt:
            return _spoken(self.prompt) or self.prompt
        return _spoken(self.messages)[self.recalled :] or self.messages  # of a version that did not keep the prompt

    def _check_decided(self, decided: list[str]) -> None:
        for call_id in decided:
            if call_id not in self.waiting:
                raise InvalidInputError(f"call `{call_id}` does not wait for a yes; those that do: {_listed(self.waiting)}")
            if decided.count(call_id) > 1:
                raise InvalidInputError(f"there are two decisions on call `{call_id}`; approve, deny or change it")
        if missing := [call_id for call_id in self.waiting if call_id not in decided]:
            raise InvalidInputError(f"there is no decision on call {_listed(missing)}; approve, deny or change each of them")


_ADAPTER: Final = TypeAdapter(ToolPause)


def _spoken(messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(message for message in messages if not isinstance(message, SystemMessage))


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(f"`{call_id}`" for call_id in ids)


def _ids(name: str, ids: object) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInputError(f"`{name}` is {kind_of(ids)}; give a list of call ids")
    return list(ids)


def _arguments(change: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    changed = {}
    for call_id, arguments in change.items():
        if not isinstance(arguments, Mapping):
            raise InvalidInputError(f"`change` for call `{call_id}` is {kind_of(arguments)}; give a dict of arguments")
        try:
            changed[call_id] = utf8(json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"`change` for call `{call_id}` is not JSON: {error}") from None
    return changed


def _denied(call: ToolCall, reason: str) -> ToolMessage:
    told = f"a person did not allow this call of tool `{call.name}`, and it was not run"
    return error_result(call, f"{told}: {reason}" if reason else told)


@plain_dataclass(frozen=True, slots=True)
class LoopStart:
    """What a loop is given at the start of one turn, in the request's `local` under the loop's name.

    Attributes:
        tools: to be offered beside the loop's own.
        pause: the turn to go on with.
        denied: results of the calls that a person did not allow.
        changed: the ids of those that are to run with other arguments than the model's.
        narrowing: each may hide tools from the model in a round, by changing what is asked.
    """

    tools: tuple[Tool, ...] = ()
    pause: ToolPause | None = None
    denied: tuple[ToolMessage, ...] = ()
    changed: frozenset[str] = frozenset()
    narrowing: tuple[Callable[[ChatRequest], ChatRequest], ...] = ()

    @property
    def resumes(self) -> bool:
        """Whether a turn goes on that was paused."""
        return self.pause is not None

    def answers_depend_on(self) -> str:
        """The tools, for a cache's key."""
        return digest_of(self.tools)


class _Resuming(BaseAdvisor):
    """Outermost, for one call: hands the pause to its loop."""

    order = HIGHEST_PRECEDENCE

    def __init__(self, start: LoopStart) -> None:
        assert start.pause is not None
        self.name = f"{start.pause.advisor}.resuming"
        self.continues = start.pause.traceparent  # the chain's span has a link to it
        self._loop = start.pause.advisor
        self._start = start

    def misplaced(self, inner: tuple[Any, ...]) -> str | None:
        """Without its loop the question would be asked anew, and the approved tools would not run."""
        if not any(advisor.name == self._loop for advisor in inner):
            raise ConfigurationError(f"the chain has no advisor `{self._loop}`, whose turn is to go on")
        return None

    def before(self, request: ChatRequest) -> ChatRequest:
        """Hand it on."""
        return request.replace(local={**request.local, self._loop: self._start})
