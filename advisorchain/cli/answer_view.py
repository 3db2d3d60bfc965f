"""An answer as it comes: its text on standard output, what its tools do on standard error, a line each."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from advisorchain.aggregate import Fold
from advisorchain.cli.text import plain, tell, write
from advisorchain.errors import ModelResponseError, ToolArgumentsError
from advisorchain.exchange import ChatChunk
from advisorchain.messages import ToolCall, ToolMessage

if TYPE_CHECKING:  # it needs the extra `tools`, which a chat without any does not
    from advisorchain.advisors.tool_calling import ToolPause

__all__ = ["AnswerView"]


class AnswerView:
    """Shows the chunks of one stream.

    Args:
        pause: of the turn that the stream goes on with; what it had shown before is not shown again.

    Attributes:
        seen: whether there was any text.
    """

    def __init__(self, pause: ToolPause | None = None) -> None:
        self.seen = False
        self._in_line = False
        self._calls = Fold()  # of the message that comes in
        self._told: set[int] = set()
        answers = () if pause is None else (*pause.earlier, pause.message)
        self._old_answers = sum(message.role == "assistant" for message in answers)  # of the model, which are still to come
        self._old_results = [result.tool_call_id for result in (() if pause is None else pause.results)]

    def show(self, chunk: ChatChunk) -> None:
        """Show a chunk, now."""
        text = chunk.text + (chunk.refusal or "")
        self.seen = self.seen or bool(text.strip())
        if self._is_old(chunk):
            return
        if chunk.boundary is not None:
            self._begin_message()
        if text:
            write(text)
            self._in_line = not text.endswith("\n")
        if chunk.tool_calls:
            self._calls.add(ChatChunk(tool_calls=chunk.tool_calls))
        if chunk.finish_reason is not None or chunk.tool_result is not None:
            self._tell_calls()
        elif any((piece.arguments or "").rstrip().endswith("}") for piece in chunk.tool_calls):
            self._tell_calls(only_whole=True)
        if chunk.tool_result is not None:
            self._tell_result(chunk.tool_result)

    def end(self) -> None:
        """The stream has ended, one way or another."""
        if self._in_line:
            write("\n")
            self._in_line = False

    def _is_old(self, chunk: ChatChunk) -> bool:
        """Whether a stream that goes on repeats what was shown: up to the last answer, and of that one those results."""
        if chunk.boundary == "round":
            self._old_answers = max(0, self._old_answers - 1)
        if chunk.tool_result is None or self._old_answers > 1:
            return self._old_answers > 0
        self._old_answers = 0
        if chunk.tool_result.tool_call_id not in self._old_results:
            return False
        self._old_results.remove(chunk.tool_result.tool_call_id)  # another round may call by the same ids
        return True

    def _begin_message(self) -> None:
        self.end()
        self._calls = Fold()
        self._told.clear()

    def _tell_calls(self, *, only_whole: bool = False) -> None:
        if self._calls.empty:
            return
        try:
            calls = self._calls.response().message.tool_calls
        except ModelResponseError:  # one without a name, which the stream itself ends with
            return
        for place, call in enumerate(calls):
            if place not in self._told and (_is_whole(call) or not only_whole):
                self._told.add(place)
                self._tell_line(f"-> {call.name} {call.arguments}")

    def _tell_result(self, result: ToolMessage) -> None:
        mark = " (error)" if result.is_error else ""
        self._tell_line(f"<- {result.name}{mark}: {result.text or '(no text)'}")

    def _tell_line(self, line: str) -> None:
        self.end()
        width = shutil.get_terminal_size(fallback=(80, 24)).columns
        line = plain(" ".join(line[: 10 * width].split()))
        tell(line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…")


def _is_whole(call: ToolCall) -> bool:
    """Whether there are arguments, and no piece of them can follow."""
    try:
        return bool(call.parsed())  # none may be those that are still to come
    except ToolArgumentsError:
        return False
