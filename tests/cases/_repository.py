"""`repository.json`: a repository by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread

from advisorchain.memory import Entry, Retention
from advisorchain.messages import Message, UserMessage

from ._expecting import Result, check_messages, check_metadata
from ._program import Program
from ._reading import Fields, message_of, messages_of

_PLACES = {"first": 0, "second": 1, "third": 2, "last": -1}


class RepositoryProgram(Program):
    """Operations on a repository. Where upstream saves all messages anew, this is `replace`."""

    operations = (
        "save_all", "save_all_generated", "resave_loaded_plus", "append", "append_one", "append_each", "concurrent_append",
        "find", "find_ids", "delete", "count_rows",
        "configure",
    )  # fmt: skip

    async def set_up(self, given: Fields) -> None:
        given.take("backend", "any")  # where upstream had the case: it holds everywhere
        self._reads: list[tuple[Entry, ...]] = []
        self._saved: list[Message] = []
        self._writers: tuple[int, int] = (0, 0)
        self._retention: Retention | None = None

    async def _save(self, conversation_id: Any, messages: Any) -> None:
        await self.store.repository.replace(conversation_id, messages)
        self._saved = list(messages)

    async def _append(self, conversation_id: Any, messages: Any) -> None:
        await self.store.repository.append(conversation_id, messages, turn_id=uuid4().hex, retention=self._retention)
        self._saved += messages

    async def _log(self, conversation_id: Any) -> tuple[Entry, ...]:
        page = await self.store.repository.page(conversation_id, limit=10)
        entries = list(page.items)
        while page.next is not None:
            page = await self.store.repository.page(conversation_id, after=page.next, limit=10)
            entries += page.items
        return tuple(entries)

    async def do_configure(self, step: Fields) -> None:
        self._retention = Retention(ttl=timedelta(seconds=step.take("ttl_seconds")))

    async def do_save_all(self, step: Fields) -> None:
        await self._save(step.take("conversation_id"), messages_of(step.take("messages")))

    async def do_save_all_generated(self, step: Fields) -> None:
        """`count` messages from a template; {i} counts from 0."""
        role, template = step.take("role", "user"), step.take("template")
        texts = [template.replace("{i}", str(place)) for place in range(step.take("count"))]
        messages = messages_of([{"role": role, "text": text} for text in texts])
        await self._save(step.take("conversation_id"), messages)

    async def do_resave_loaded_plus(self, step: Fields) -> None:
        """As an application does that knows nothing of entries: the messages it read, and more."""
        conversation_id = step.take("conversation_id")
        loaded = [entry.message for entry in await self._log(conversation_id)]
        await self._save(conversation_id, [*loaded, *messages_of(step.take("messages"))])

    async def do_append(self, step: Fields) -> None:
        await self._append(step.take("conversation_id"), messages_of(step.take("messages")))

    async def do_append_one(self, step: Fields) -> None:
        await self._append(step.take("conversation_id"), [message_of(step.take("message"))])

    async def do_append_each(self, step: Fields) -> None:
        conversation_id = step.take("conversation_id")
        for message in messages_of(step.take("messages")):
            await self._append(conversation_id, [message])

    async def do_concurrent_append(self, step: Fields) -> None:
        """Real threads, each with an event loop of its own."""
        conversation_id = step.take("conversation_id")
        threads, each = self._writers = step.take("threads"), step.take("messages_each")

        async def write(thread: int) -> None:
            for place in range(each):
                message = UserMessage(f"{thread}:{place}")
                await self.store.repository.append(conversation_id, [message], turn_id=uuid4().hex)

        async with anyio.create_task_group() as group:
            for thread in range(threads):
                group.start_soon(anyio.to_thread.run_sync, anyio.run, write, thread)

    async def do_find(self, step: Fields) -> tuple[Entry, ...]:
        self._reads.append(await self._log(step.take("conversation_id")))
        return self._reads[-1]

    async def do_find_ids(self, step: Fields) -> list[str]:
        page = await self.store.repository.conversations(limit=10)
        found = list(page.items)
        while page.next is not None:
            page = await self.store.repository.conversations(after=page.next, limit=10)
            found += page.items
        return [conversation.conversation_id for conversation in found]

    async def do_delete(self, step: Fields) -> bool:
        return await self.store.repository.delete(step.take("conversation_id"))

    async def do_count_rows(self, step: Fields) -> int:
        return await self.store.rows(step.take("conversation_id"))

    async def check(self, result: Result, expect: Fields) -> None:
        value, compare = result.value, expect.take("compare", None)
        if "count" in expect:
            assert (value if isinstance(value, int) else len(value)) == expect.take("count")
        if "set" in expect:
            assert sorted(value) == sorted(expect.take("set"))  # a list: an id that is listed twice would show
        if "set_excludes" in expect:
            assert not {*value} & {*expect.take("set_excludes")}
        if "messages" in expect:
            check_messages(_messages(value), expect.take("messages"), compare)
        if "metadata" in expect:
            check_metadata(_messages(value), expect.take("metadata"), compare)
        if "each" in expect:
            wanted = expect.take("each")
            for one in value:
                check_messages(_messages(one), wanted, compare)
        if "texts_template" in expect:
            template = expect.take("texts_template")
            assert [m.text for m in _messages(value)] == [template.replace("{i}", str(n)) for n in range(len(value))]
        self._check_times(value, expect)
        self._check_media(value, expect)
        self._check_writers(value, expect)

    def _check_times(self, value: Any, expect: Fields) -> None:
        for match, name in expect.take_matching(rf"({'|'.join(_PLACES)})_timestamp_equals"):
            place = _PLACES[match[1]]
            assert value[place].created == self.captured[name][place].created
        for match, wanted in expect.take_matching(rf"({'|'.join(_PLACES)})_has_timestamp"):
            created = value[_PLACES[match[1]]].created
            assert (created is not None and created.tzinfo is not None) is wanted

    def _check_media(self, value: Any, expect: Fields) -> None:
        if "media_count" in expect:
            assert len(_media(_messages(value))) == expect.take("media_count")
        if "media_equal" in expect:
            assert (_media(_messages(value)) == _media(self._saved)) is expect.take("media_equal")

    def _check_writers(self, value: Any, expect: Fields) -> None:
        threads, each = self._writers
        if "every_thread_present" in expect:
            present = {message.text.partition(":")[0] for message in _messages(value)}
            assert (present == {str(thread) for thread in range(threads)}) is expect.take("every_thread_present")
        if "two_reads_equal" in expect:
            assert (self._reads[-1] == self._reads[-2]) is expect.take("two_reads_equal")
        if "strict_count" in expect:
            assert len(value) == expect.take("strict_count")
            for thread in range(threads):
                own = [m.text for m in _messages(value) if m.text.startswith(f"{thread}:")]
                assert own == [f"{thread}:{place}" for place in range(each)]


def _messages(entries: Sequence[Entry]) -> list[Message]:
    return [entry.message for entry in entries]


def _media(messages: Sequence[Message]) -> list[Any]:
    contents = [message.content for message in messages if not isinstance(message.content, str)]
    return [part for content in contents for part in content if part.type != "text"]
