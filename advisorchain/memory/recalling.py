"""How a prompt and a log are joined: what is recalled before the prompt, and what of the prompt is new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from advisorchain.memory.policies import MemoryPolicy
from advisorchain.memory.repository import Recall
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage

__all__ = ["recalled_once", "without_newest"]


def recalled_once(
    policy: MemoryPolicy, recall: Recall, prompt: Sequence[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What to put before a prompt, and what of the prompt is new: so that nothing is sent or stored twice.

    - The longest end of the log with which the prompt begins is there already: recalled is the policy's view of the log
      before it, new is the prompt after it. So a caller may send the new messages only, or the whole conversation each time,
      or a question again that was left without an answer.
    - If instead the view itself stands as one run in the prompt, nothing but system messages is recalled. New is what comes
      after the run; what stands before it (older messages, examples) is sent, not stored.
    - Otherwise all of the prompt is new.

    System messages of the prompt are never new. Compared are role, content, tool calls and call id: what an application
    that keeps its own list of messages still has.

    Args:
        policy: what makes a view.
        recall: of at least `policy.last` entries and one more for each message of the prompt.
        prompt: the messages of the request.

    Returns:
        The history and the new messages.
    """
    said = tuple(message for message in prompt if not isinstance(message, SystemMessage))
    newest = recall.tail[max(0, len(recall.tail) - len(said)) :]
    known = _overlap(_keys(entry.message for entry in newest), _keys(said))
    view = _view(policy, without_newest(recall, known, policy.last), said[known:])
    shown = [message for message in view if not isinstance(message, SystemMessage)]
    run_end = 0 if known else _end_of_run(_keys(shown), _keys(said))
    if run_end:
        return tuple(message for message in view if isinstance(message, SystemMessage)), said[run_end:]
    return view, said[known:]


def _view(policy: MemoryPolicy, recall: Recall, new: Sequence[Message]) -> tuple[Message, ...]:
    """The policy's view; calls that wait for the tool results with which the new messages begin count as answered."""
    results = tuple(takewhile(lambda message: isinstance(message, ToolMessage), new))
    if not results or not recall.tail:
        return policy.view(recall)
    newest = recall.tail[-1]
    brought = (replace(newest, sequence=newest.sequence + 1 + place, message=one) for place, one in enumerate(results))
    view = policy.view(replace(recall, tail=(*recall.tail, *brought)))
    return tuple(message for message in view if not any(message is one for one in results))


def _keys(messages: Iterable[Message]) -> list[tuple[object, ...]]:
    """Of each message, what two of them must have in common to be the same one."""
    return [
        (
            message.role,
            message.content,
            message.tool_calls if isinstance(message, AssistantMessage) else (),
            message.tool_call_id if isinstance(message, ToolMessage) else None,
        )
        for message in messages
    ]


def _overlap(log: list[tuple[object, ...]], prompt: list[tuple[object, ...]]) -> int:
    """How long the longest end of `log` is that `prompt` begins with."""
    for length in range(len(log), 0, -1):
        if log[-length] == prompt[0] and log[-length:] == prompt[:length]:
            return length
    return 0


def _end_of_run(run: list[tuple[object, ...]], prompt: list[tuple[object, ...]]) -> int:
    """Where the first occurrence of `run` in `prompt` ends; 0: there is none.

    A prompt that is the run and nothing else does not count: it is the same said again, not a conversation that goes on.
    """
    for start in range(len(prompt) - len(run) + 1 if run else 0):
        if prompt[start] == run[0] and prompt[start : start + len(run)] == run:
            return 0 if len(run) == len(prompt) else start + len(run)
    return 0


def without_newest(recall: Recall, cut: int, last: int | None) -> Recall:
    """`recall` as it would be if its newest `cut` entries were not there yet, with `last` entries at most."""
    entries = recall.tail[: len(recall.tail) - cut]
    start = 0 if last is None else max(0, len(entries) - last)
    tail = entries[start:]
    question = None
    if tail and tail[0].role != "user":
        question = next((entry for entry in reversed(entries[:start]) if entry.role == "user"), recall.question)
    return replace(recall, count=recall.count - cut, tail=tail, question=question)
