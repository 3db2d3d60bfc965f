"""Repositories that are wrong about what they append, replace, keep of a message or an id, or read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from advisorchain.errors import LeaseLostError
from advisorchain.memory.repository import Entry, Page
from advisorchain.messages import ToolMessage, UserMessage

from ._sound import Sound, breaks, rewrite


def message_of(item: Any) -> Any:
    return item.message if isinstance(item, Entry) else item


def each(items: Any, change: Any) -> Any:
    """Messages, or entries with messages, changed; what is neither stays as it is."""
    if not isinstance(items, list | tuple):
        return items
    return [
        replace(item, message=change(item.message))
        if isinstance(item, Entry)
        else change(item)
        if hasattr(item, "role")
        else item
        for item in items
    ]


@breaks("every method is there", "a closed repository refuses")
class NeverCloses(Sound):
    aclose = None


@breaks("batches are appended in order")
class CountsToTwentyFive(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        return min(25, await super().append(conversation_id, messages, **named))


@breaks("a batch of fifty keeps its order")
class RecallsForty(Sound):
    async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
        return await super().recall(conversation_id, 40 if last is None else last, **named)


@breaks("a batch of thousands is whole")
class TakesSoManyArguments(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        some = messages[:7_999] if isinstance(messages, list) else messages
        return await super().append(conversation_id, some, **named)


@breaks("a repeated turn is stored once")
class ForgetsReplacedTurns(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        log = self.log(conversation_id)
        log.turns = {entry.turn_id for entry in log.entries}
        return await super().append(conversation_id, messages, turn_id=turn_id, **named)


@breaks("an empty append does nothing")
class UsesUpTheTurn(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        if messages == []:
            self.log(conversation_id).turns.add(turn_id)
        return await super().append(conversation_id, messages, turn_id=turn_id, **named)


@breaks("a writer that read another revision is refused", "one of many writers at a revision is stored")
class ReplacesWhateverIsThere(Sound):
    async def replace(self, conversation_id: Any, messages: Any, *, expected: Any = None, **named: Any) -> Any:
        return await super().replace(conversation_id, messages, **named)


@breaks(
    "a turn of a deleted life is refused",
    "two repositories see one log",
    "a turn under an old id is refused",
    "prune removes what ended",
    "a deletion stands against turns under way",
)
class ForgetsDeletion(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, incarnation: Any = None, **named: Any) -> Any:
        there = conversation_id in self.store._logs
        return await super().append(conversation_id, messages, incarnation=incarnation if there else None, **named)


@breaks("refusals come in their order")
class LooksAtTheTokenFirst(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, token: Any = None, **named: Any) -> Any:
        lease = self.store._leases.get(conversation_id)
        if token is not None and (lease is None or lease.token != token):
            raise LeaseLostError("stale")
        return await super().append(conversation_id, messages, token=token, **named)


@breaks("delete leaves nothing")
class DeletesAgain(Sound):
    async def delete(self, conversation_id: Any) -> Any:
        has_ended = isinstance(conversation_id, str) and self.has_ended(conversation_id)
        return await super().delete(conversation_id) or not has_ended


@breaks("replace keeps what stays")
class StampsAnew(Sound):
    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        if isinstance(messages, list | tuple):
            now = datetime.now(UTC)
            messages = [Entry(0, "anew", item, now) if hasattr(item, "content") else item for item in messages]
        return await super().replace(conversation_id, messages, **named)


@breaks("replace by nothing is delete")
class LeavesAnEmptyOne(Sound):
    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        if messages == [] and conversation_id in self.store._logs and not named.get("incarnation"):
            return await super().replace(conversation_id, messages, **named)
        if messages == [] and conversation_id in self.store._logs:
            await super().replace(conversation_id, [UserMessage("gone")], **named)
            self.log(conversation_id).clear()
            return 0
        return await super().replace(conversation_id, messages, **named)


@breaks(
    "a replacement of a deleted life is refused",
    "refusals come in their order",
    "a turn under an old id is refused",
    "a late turn begins a new life",
)
class ReplacesInAnyLife(Sound):
    async def replace(self, conversation_id: Any, messages: Any, *, incarnation: Any = None, **named: Any) -> Any:
        return await super().replace(conversation_id, messages, **named)


@breaks("a summary covers what it covered")
class ForgetsWhatIsCovered(Sound):
    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        revision = await super().replace(conversation_id, messages, **named)
        rewrite(self.log(conversation_id), lambda entry: replace(entry, covers=None))
        return revision


@breaks("times keep their microseconds")
class TimesAsFloats(Sound):
    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        revision = await super().replace(conversation_id, messages, **named)
        for log in self.store._logs.values():
            rewrite(log, lambda entry: replace(entry, created=self.rounded(entry.created)))
        return revision

    def rounded(self, created: datetime) -> datetime:
        return created.replace(microsecond=0) if created.year > 2255 else created


class ChangesMessages(Sound):
    def changed(self, message: Any) -> Any:
        return message

    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        return await super().append(conversation_id, each(messages, self.changed), **named)

    async def replace(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        return await super().replace(conversation_id, each(messages, self.changed), **named)


@breaks("texts come back")
class LosesNul(ChangesMessages):
    def changed(self, message: Any) -> Any:
        is_text = isinstance(message, UserMessage) and isinstance(message.content, str)
        return replace(message, content=message.content.replace("\0", "")) if is_text else message


@breaks("long texts come back")
class KeepsSoManyBytes(ChangesMessages):
    def changed(self, message: Any) -> Any:
        return replace(message, content=message.text[:65_535]) if len(message.text) > 65_535 else message


@breaks("tool traffic comes back")
class LosesStructuredResults(ChangesMessages):
    def changed(self, message: Any) -> Any:
        return replace(message, structured=None) if isinstance(message, ToolMessage) else message


@breaks("images and files come back")
class KeepsTextOnly(ChangesMessages):
    def changed(self, message: Any) -> Any:
        return message if isinstance(message.content, str) else replace(message, content=message.text)


@breaks("metadata comes back")
class WholeFloatsBecomeInts(ChangesMessages):
    def changed(self, message: Any) -> Any:
        if not message.metadata:
            return message
        kept = {key: int(value) if value == 1.0 else value for key, value in message.metadata.items()}
        return replace(message, metadata=kept)


@breaks("ids are exact")
class PadsIds(Sound):
    async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
        return await super().recall(
            conversation_id.rstrip(" ") or conversation_id if isinstance(conversation_id, str) else conversation_id,
            last,
            **named,
        )


@breaks("ids hold every character")
class LosesNonCharacters(Sound):
    async def append(self, conversation_id: Any, messages: Any, **named: Any) -> Any:
        name = conversation_id.replace("\ufffe", "?") if isinstance(conversation_id, str) else conversation_id
        return await super().append(name, messages, **named)


@breaks("turn ids are exact")
class IndexesSoManyCharacters(Sound):
    async def append(self, conversation_id: Any, messages: Any, *, turn_id: Any, **named: Any) -> Any:
        short = turn_id[:254] if isinstance(turn_id, str) and len(turn_id) == 255 else turn_id
        return await super().append(conversation_id, messages, turn_id=short, **named)


@breaks("conversations are found by prefix")
class PrefixIsAPattern(Sound):
    async def conversations(self, *, prefix: Any = "", after: Any = None, limit: Any = 100) -> Any:
        if not isinstance(prefix, str) or "*" not in prefix:
            return await super().conversations(prefix=prefix, after=after, limit=limit)
        whole = (await super().conversations(limit=10_000)).items
        return Page(tuple(row for row in whole if fnmatchcase(row.conversation_id, prefix + "*")))


@breaks("a list tells count and times")
class BeganWithTheLastWrite(Sound):
    async def conversations(self, **named: Any) -> Any:
        page = await super().conversations(**named)
        return replace(page, items=tuple(replace(row, created=row.updated) for row in page.items))


@breaks("lists go on while others write")
class ListsByOffset(Sound):
    async def conversations(self, *, prefix: Any = "", after: Any = None, limit: Any = 100) -> Any:
        await super().conversations(prefix=prefix, limit=limit)  # refuses what is bad
        whole = (await super().conversations(prefix=prefix, limit=10_000)).items
        start = int(after or 0)
        return Page(whole[start : start + limit], str(start + limit) if start + limit < len(whole) else None)


@breaks("recall gives the newest")
class NothingIsEverything(Sound):
    async def recall(self, conversation_id: Any, last: Any, **named: Any) -> Any:
        return await super().recall(conversation_id, None if last == 0 and not named else last, **named)


@breaks("recall ends before an entry")
class CountsWhatIsBefore(Sound):
    async def recall(self, conversation_id: Any, last: Any, *, before: Any = None) -> Any:
        found = await super().recall(conversation_id, last, before=before)
        entries = self.log(conversation_id).entries
        return found if before is None else replace(found, count=len([e for e in entries if e.sequence < before]))


@breaks("recall knows the systems in force")
class SystemsOfNow(Sound):
    async def recall(self, conversation_id: Any, last: Any, *, before: Any = None) -> Any:
        found = await super().recall(conversation_id, last, before=before)
        return found if before is None else replace(found, systems=self.log(conversation_id).systems)


@breaks("pages give every entry once")
class EndsWithAFullPage(Sound):
    async def page(self, conversation_id: Any, *, limit: Any = 100, **named: Any) -> Any:
        page = await super().page(conversation_id, limit=limit, **named)
        left = self.log(conversation_id).entries[-1:]
        return replace(page, items=page.items[:-1]) if limit == 12 and left and page.next is None else page


@breaks("pages stay the same while others write")
class PagesByOffset(Sound):
    async def page(self, conversation_id: Any, *, after: Any = None, limit: Any = 100, newest_first: bool = False) -> Any:
        if not newest_first or not isinstance(after, str | None):
            return await super().page(conversation_id, after=after, limit=limit, newest_first=newest_first)
        whole = (await super().page(conversation_id, limit=100_000, newest_first=newest_first)).items
        life, start = str(self.log(conversation_id).incarnation), 0
        if after is not None:
            of, _, place = after.partition(".")
            if of != life:
                return Page(())
            start = int(place)
        more = start + limit < len(whole)
        return Page(whole[start : start + limit], f"{life}.{start + limit}" if more else None)


@breaks("a cursor ends with its conversation")
class CursorsOfAnyLife(Sound):
    async def page(self, conversation_id: Any, *, after: Any = None, **named: Any) -> Any:
        if isinstance(after, str) and "." in after:
            after = f"{self.log(conversation_id).incarnation}.{after.partition('.')[2]}"
        return await super().page(conversation_id, after=after, **named)
