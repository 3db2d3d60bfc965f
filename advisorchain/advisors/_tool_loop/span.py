"""The span of one tool's run."""

from __future__ import annotations

from typing import Any

from advisorchain import conventions as names
from advisorchain._telemetry.clock import Clock
from advisorchain._telemetry.operation import Operation
from advisorchain.messages import ToolCall, ToolMessage
from advisorchain.options import ToolDefinition

__all__ = ["ToolSpan"]


class ToolSpan(Operation):
    """Says which tool, for which call, and how that ended; arguments and result where content is wanted."""

    __slots__ = ("_call",)

    def __init__(self, call: ToolCall, tool: ToolDefinition | None = None) -> None:
        self._call = call
        told: dict[str, Any] = {names.TOOL_NAME: call.name, names.TOOL_TYPE: "function"}
        if call.id:
            told[names.TOOL_CALL_ID] = call.id
        if tool is not None and tool.description:
            told[names.TOOL_DESCRIPTION] = tool.description
        super().__init__(names.EXECUTE_TOOL, call.name, told)

    def __enter__(self) -> ToolSpan:
        super().__enter__()
        if self.recording is not None:
            self.recording.tool_calls += 1
        if (capture := self._capture()) is not None:
            self._told[names.TOOL_ARGUMENTS] = capture.cut(self._call.arguments)
        return self

    def gave(self, result: ToolMessage) -> ToolMessage:
        """What the model is told; gives it back."""
        if (capture := self._capture()) is not None:
            try:
                self._told[names.TOOL_RESULT] = capture.tool_result(result)
            except Exception as error:
                assert self.recording is not None
                self.recording.recorder.failed("content", error)
        return result

    def _capture(self) -> Any:
        recording = self.recording
        return recording.capture if recording is not None and recording.recorder.settings.content_on_spans else None

    def measure(self, clock: Clock, seconds: float, failed: dict[str, str]) -> None:
        """The tool's duration."""
        assert self.recording is not None
        recorder = self.recording.recorder
        assert recorder.instruments is not None
        told = {names.TOOL_NAME: self._call.name, names.TOOL_TYPE: "function", **failed}
        if recorder.settings.agent_name is not None:
            told[names.AGENT_NAME] = recorder.settings.agent_name
        recorder.measure(recorder.instruments.tool, seconds, told, clock)
