"""A conversation's memory: a policy over a repository, and the turns that are read from it and written to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from advisorchain.errors import (
    ConfigurationError,
    ConversationConflictError,
    InvalidInputError,
    MessageError,
    kind_of,
)
from advisorchain.memory.policies import MemoryPolicy, MessageWindow
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import (
    ChatMemoryRepository,
    Conversation,
    Entry,
    Page,
    Recall,
    all_entries,
    checked_batch,
)
from advisorchain.memory.turns import LastTurn, ReplacingTurn, Turn
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage, dump_message, load_message

__all__ = ["ChatMemory", "recalled_once"]

_SNAPSHOT_TRIES: Final = 20
_FORMAT: Final = 1  # of a snapshot


class ChatMemory:
    """What is remembered of conversations, and how much of it a prompt carries.

    The policy chooses, the repository keeps; each ChatMemory makes its own where none is given: a window of 20 messages over
    a store in this process's memory. Only a repository that it made itself is closed by `aclose`.

    Every method that takes a conversation id raises ConversationIdError for one that is not valid, and StorageError when
    the store cannot be read or written.

    Raises:
        ConfigurationError: `policy` or `repository` is none.
    """

    def __init__(self, policy: MemoryPolicy | None = None, repository: ChatMemoryRepository | None = None) -> None:
        self.policy: MemoryPolicy = MessageWindow() if policy is None else policy
        self.repository: ChatMemoryRepository = InMemoryChatMemoryRepository() if repository is None else repository
        self._owned = repository is None
        _require("policy", self.policy, "last", "view")
        _require("repository", self.repository, "append", "recall")

    def __repr__(self) -> str:
        return f"ChatMemory({self.policy!r}, {self.repository!r})"

    async def get(self, conversation_id: str) -> tuple[Message, ...]:
        """The messages that a prompt would carry now, oldest first; an unknown conversation has none."""
        return self.policy.view(await self.repository.recall(conversation_id, self.policy.last))

    async def add(self, conversation_id: str, messages: Message | Iterable[Message]) -> None:
        """Store a message, or several as one batch: all or none.

        Raises:
            InvalidInputError: `messages` is neither.
        """
        batch = (messages,) if isinstance(messages, Message) else checked_batch(messages)
        await self.repository.append(conversation_id, batch, turn_id=uuid4().hex)

    async def clear(self, conversation_id: str) -> bool:
        """Delete the conversation; False when there was none."""
        return await self.repository.delete(conversation_id)

    async def begin(self, conversation_id: str, prompt: Iterable[Message], *, replacing: LastTurn | None = None) -> Turn:
        """Begin a turn with this prompt, in one trip to the store. Nothing is stored before `commit`.

        See `recalled_once` for what is recalled and what is new.

        Args:
            conversation_id: whose turn it is.
            prompt: the messages of the request.
            replacing: what `last_turn` found. History is then what was before it, the last message of the prompt is always
                new, and `commit` puts the turn in its place, if there is an answer.

        Raises:
            ConversationConflictError: others wrote to the conversation since `replacing` was looked up.
            ConversationDeletedError: it was deleted since.
        """
        prompt = checked_batch(prompt)
        last = self.policy.last
        most = last if last is None else last + len(prompt)
        if replacing is not None:
            return await self._begin_again(conversation_id, prompt, most, replacing)
        recall = await self.repository.recall(conversation_id, most)
        history, new = recalled_once(self.policy, recall, prompt)
        return Turn(self.repository, conversation_id, recall.incarnation, history, new)

    async def _begin_again(
        self, conversation_id: str, prompt: tuple[Message, ...], most: int | None, replacing: LastTurn
    ) -> Turn:
        if conversation_id != replacing.conversation_id:
            raise InvalidInputError(
                "`replacing` is a turn of another conversation: an advisor outside the memory changed `conversation_id`"
            )
        recall = await self.repository.recall(conversation_id, most, before=replacing.question.sequence)
        replacing.check_unchanged(recall)
        said = tuple(message for message in prompt if not isinstance(message, SystemMessage))
        history, new = recalled_once(self.policy, recall, said[:-1])  # asked twice in a row, the last is not the one before
        return ReplacingTurn(self.repository, replacing, history, (*new, *said[-1:]))

    async def last_turn(self, conversation_id: str) -> LastTurn | None:
        """The last turn, to be replaced by another (`begin`); None: nobody has asked anything yet."""
        recall = await self.repository.recall(conversation_id, 1)
        question = next((entry for entry in recall.tail if entry.role == "user"), recall.question)
        return None if question is None else LastTurn(conversation_id, question, recall.revision, recall.incarnation)

    async def count(self, conversation_id: str) -> int:
        """How many messages are stored, of any role; the policy plays no part."""
        return (await self.repository.recall(conversation_id, 0)).count

    async def history(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """What is stored, with times and turn ids, a page at a time; the policy plays no part.

        `after` is the `next` of the page before.
        """
        return await self.repository.page(conversation_id, after=after, limit=limit, newest_first=newest_first)

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        """The conversations whose ids begin with `prefix`, by id, a page at a time."""
        return await self.repository.conversations(prefix=prefix, after=after, limit=limit)

    async def snapshot(self, conversation_id: str) -> dict[str, Any]:
        """The whole conversation as a dict of JSON values, for `restore`, here or on another store.

        Raises:
            ConversationConflictError: others wrote to it all the while.
        """
        found = (await self.repository.recall(conversation_id, 0)).revision
        for _ in range(_SNAPSHOT_TRIES):
            revision = found
            entries = await self._log(conversation_id)
            found = (await self.repository.recall(conversation_id, 0)).revision
            if found == revision:  # nobody wrote between the pages
                return {"format": _FORMAT, "entries": [_dump_entry(entry) for entry in entries]}
        raise ConversationConflictError(
            "the conversation is being written to all the time; take the snapshot later", expected=revision, found=found
        )

    async def restore(self, conversation_id: str, snapshot: Mapping[str, Any]) -> None:
        """Put a snapshot in place of what this conversation holds. Messages keep their times and turn ids.

        Raises:
            InvalidInputError: `snapshot` is none.
        """
        await self.repository.replace(conversation_id, _load_entries(snapshot))

    async def fork(self, conversation_id: str, new_id: str, *, at: int | None = None) -> None:
        """Copy a conversation to a new id: all of it, or up to and with the entry whose sequence is `at`.

        Raises:
            InvalidInputError: there is nothing to copy.
            ConversationConflictError: `new_id` is a conversation already.
        """
        entries = [entry for entry in await self._log(conversation_id) if at is None or entry.sequence <= at]
        if not entries:
            raise InvalidInputError("`conversation_id` names no conversation, or `at` lies before its first entry")
        await self.repository.replace(new_id, entries, expected=0)

    async def _log(self, conversation_id: str) -> list[Entry]:
        return [entry async for entry in all_entries(self.repository, conversation_id)]

    async def aclose(self) -> None:
        """Close the repository, if it was made here. One that was given stays the giver's."""
        if self._owned:
            await self.repository.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


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


def _require(name: str, part: object, *attributes: str) -> None:
    if isinstance(part, type) or not all(hasattr(part, attribute) for attribute in attributes):
        found = kind_of(part)
        needed = " and ".join(f"`{attribute}`" for attribute in attributes)
        hint = ""
        if hasattr(part, "__aenter__"):  # what `open_repository` gives
            hint = "; enter it with `async with` first, or, where that cannot be, give a SqliteChatMemoryRepository(path)"
        raise ConfigurationError(f"`{name}` is {found}; give an object that has {needed}{hint}")


def _dump_entry(entry: Entry) -> dict[str, Any]:
    return {
        "sequence": entry.sequence,
        "turn_id": entry.turn_id,
        "kind": entry.kind,
        "covers": entry.covers,
        "created": entry.created.isoformat(),
        "message": json.loads(dump_message(entry.message)),
    }


def _load_entries(snapshot: object) -> list[Entry]:
    entries = snapshot.get("entries") if isinstance(snapshot, Mapping) and snapshot.get("format") == _FORMAT else None
    if not isinstance(entries, list):
        raise InvalidInputError(f"`snapshot` is not what `ChatMemory.snapshot` returned (a dict of format {_FORMAT})")
    return [_load_entry(place, data) for place, data in enumerate(entries)]


def _load_entry(place: int, data: Any) -> Entry:
    try:
        return Entry(
            sequence=data["sequence"],
            turn_id=data["turn_id"],
            message=load_message(data["message"]),
            created=datetime.fromisoformat(data["created"]),
            kind=data["kind"],
            covers=data["covers"],
        )
    except KeyError as error:
        reason = f"`{error.args[0]}` is missing"
    except MessageError as error:
        reason = str(error)
    except (TypeError, ValueError):  # whose texts would show what was there
        reason = "it is no entry, or `created` is no time"
    raise InvalidInputError(f"`snapshot` cannot be restored: entry {place}: {reason}")
