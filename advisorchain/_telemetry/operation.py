"""The span of something that runs inside of an advisor: a tool, a memory's trip to its store."""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Any, Final, Self

from anyio import current_effective_deadline

from advisorchain import conventions as names
from advisorchain._chain.run import status_of
from advisorchain._telemetry.clock import Clock, current_context
from advisorchain._telemetry.recorder import Recording, carrying, error_type, recording_in

__all__ = ["MemorySpan", "Operation"]

# by which viewers that know no memory operations choose a picture; tools they know
_KINDS: Final = {names.SEARCH_MEMORY: "RETRIEVER", names.CREATE_MEMORY: "CHAIN", names.UPDATE_MEMORY: "CHAIN"}


class Operation:
    """Current while something runs, beneath the advisor that runs it. Where nobody records it is nothing.

    It is entered and left in one task. What is asked of another chain meanwhile is recorded by that chain's own telemetry,
    or not at all.

    Args:
        operation: in the words of the GenAI conventions, which also begin the span's name.
        of: what it is done to; part of the name.
        attributes: what is known when it begins.
        client: whether it asks another process.
    """

    __slots__ = ("_attributes", "_client", "_clock", "_error", "_name", "_told", "recording")

    def __init__(
        self, operation: str, of: str | None = None, attributes: dict[str, Any] | None = None, *, client: bool = False
    ) -> None:
        self._name = operation if of is None else f"{operation} {of}"
        self._attributes = {names.OPERATION: operation, **(attributes or {})}
        self._client = client
        self._clock: Clock | None = None
        self._error: BaseException | None = None
        self._told: dict[str, Any] = {}
        self.recording: Recording | None = None

    def __enter__(self) -> Self:
        parent = current_context()
        self.recording = recording = recording_in(parent)
        if recording is not None:
            recorder = recording.recorder
            if recording.conversation_id is not None:
                self._attributes.setdefault(names.CONVERSATION_ID, recording.conversation_id)
            if recorder.settings.agent_name is not None:
                self._attributes[names.AGENT_NAME] = recorder.settings.agent_name
            if recorder.settings.openinference and (kind := _KINDS.get(self._attributes[names.OPERATION])):
                self._attributes[names.SPAN_KIND] = kind
            clock = recorder.start(self._name, carrying(parent, None), self._attributes, client=self._client)
            self._clock = clock
            clock.__enter__()
        return self

    def fail(self, error: BaseException) -> None:
        """It failed, though nothing is raised: the model is told in a result, say."""
        self._error = error

    def measure(self, clock: Clock, seconds: float, failed: dict[str, str]) -> None:
        """Record metrics of it; a subclass has some."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        clock, recording = self._clock, self.recording
        if clock is None or recording is None:
            return
        clock.__exit__(kind, error, trace)
        status = "ok" if self._error is None else "error"
        if error is not None:
            self._error, status = error, status_of(error, "cancelled")
            if status == "cancelled" and not isinstance(error, GeneratorExit) and current_effective_deadline() != -inf:
                status = "error"  # not we were cancelled, but what was waited for
        failure = self._error if status == "error" else None
        self._error = None  # its frames hold this
        if recording.recorder.instruments is not None:
            failed = {} if failure is None else {names.ERROR_TYPE: error_type(failure)}
            self.measure(clock, clock.age, failed)
        recording.recorder.end(clock, {**self._told, names.OUTCOME: status}, failure)
        if recording.recorder.settings.record_exceptions:
            recording.told = failure or recording.told


class MemorySpan(Operation):
    """A trip to the store of a conversation's memory.

    Args:
        operation: "search_memory", "create_memory" or "update_memory".
        store: named by its class; one that is asked over a network says so by `remote = True`.
        conversation_id: as the store knows it.
        waited: seconds before the trip until it was known who has the conversation's lease; None: none was asked for.
    """

    __slots__ = ()

    def __init__(self, operation: str, store: object, conversation_id: str, *, waited: float | None = None) -> None:
        told: dict[str, Any] = {names.MEMORY_STORE_ID: type(store).__name__, names.CONVERSATION_ID: conversation_id}
        if waited is not None:
            told[names.MEMORY_WAIT_DURATION] = waited
        super().__init__(operation, None, told, client=getattr(store, "remote", False) is True)

    def tell_count(self, messages: int) -> None:
        """How many messages were read or written."""
        self._told[names.MEMORY_RECORD_COUNT] = messages
