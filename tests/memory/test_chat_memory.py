"""ChatMemory over a real repository, and the rule by which a prompt and a log are joined."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import (
    ChatMemoryError,
    ConfigurationError,
    ConversationConflictError,
    ConversationDeletedError,
    ConversationIdError,
    InvalidInputError,
)
from advisorchain.memory import (
    ChatMemory,
    ChatMemoryRepository,
    EncryptedChatMemoryRepository,
    Entry,
    InMemoryChatMemoryRepository,
    MemoryPolicy,
    MessageWindow,
    Recall,
    Retention,
    Unbounded,
    open_repository,
)
from advisorchain.memory.recalling import recalled_once, without_newest
from advisorchain.memory.snapshots import ttl_of
from advisorchain.messages import AssistantMessage, ImagePart, Message, SystemMessage, ToolCall, ToolMessage, UserMessage

U, A, S = UserMessage, AssistantMessage, SystemMessage


def calls(*ids: str, partial: bool = False) -> AssistantMessage:
    return AssistantMessage(tool_calls=tuple(ToolCall(call, "find") for call in ids), partial=partial)


def result(call: str) -> ToolMessage:
    return ToolMessage(f"r{call}", tool_call_id=call, name="find")


def plain(texts: Iterable[str]) -> list[Message]:
    """Messages by their first letter: u is a user's, a an answer, s a system message."""
    return [{"u": U, "a": A, "s": S}[text[0]](text) for text in texts]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text or ",".join(call.id for call in getattr(message, "tool_calls", ())) for message in messages]


async def stored(memory: ChatMemory, conversation_id: str = "c") -> list[str]:
    return texts([entry.message for entry in (await memory.history(conversation_id)).items])


class Counting(InMemoryChatMemoryRepository):
    """Tells what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.recalls: list[int | None] = []
        self.closed = 0

    async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
        self.recalls.append(last)
        return await super().recall(conversation_id, last, before=before)

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()


# --- making one -------------------------------------------------------------------------------------------------------


async def test_each_memory_makes_its_own_store() -> None:
    one, other = ChatMemory(), ChatMemory()
    await one.add("c", U("hi"))
    assert await other.get("c") == ()
    assert one.policy == MessageWindow(20)


def test_parts_may_be_given_by_place_or_by_name() -> None:
    policy, repository = MessageWindow(3), InMemoryChatMemoryRepository()
    for memory in (ChatMemory(policy, repository), ChatMemory(repository=repository, policy=policy)):
        assert (memory.policy, memory.repository) == (policy, repository)
    assert repr(policy) in repr(ChatMemory(policy))


@pytest.mark.parametrize(
    ("given", "name"),
    [({"policy": 20}, "policy"), ({"repository": {}}, "repository"), ({"policy": MessageWindow}, "policy")],
)
def test_a_part_of_the_wrong_kind_is_refused(given: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{name}`"):
        ChatMemory(**given)


KEY = "0" * 43 + "="  # of Fernet


class Inherited(ChatMemoryRepository):
    async def append(self, *given: Any, **named: Any) -> int:
        return 1


class Part:
    append = recall = page = replace = delete = rename = fork = conversations = acquire = release = lambda self: None


class Blind(MemoryPolicy):
    last = 3


def test_a_part_that_lacks_methods_is_refused_with_their_names() -> None:
    for repository, needed in ((Part(), "`prune` and `aclose`"), (Inherited(), "`recall` and `page` and `replace` and")):
        for make in (lambda given: ChatMemory(repository=given), lambda given: EncryptedChatMemoryRepository(given, KEY)):
            with pytest.raises(ConfigurationError, match=f"`repository` is .*; give an object that has {needed}"):
                make(repository)
    with pytest.raises(ConfigurationError, match=r"`policy` is .*; give an object that has `view`"):
        ChatMemory(Blind())


async def test_only_a_store_that_was_made_here_is_closed() -> None:
    given = Counting()
    async with ChatMemory(repository=given) as memory:
        await memory.add("c", U("hi"))
    assert given.closed == 0
    async with ChatMemory() as own:
        own.repository = spy = Counting()  # what it made is closed, whatever it is
    assert spy.closed == 1


# --- get, add, clear --------------------------------------------------------------------------------------------------


async def test_win_003_several_messages_at_once() -> None:
    memory = ChatMemory()
    await memory.add("c", [A("positronic"), U("hi")])
    assert await memory.get("c") == (A("positronic"), U("hi"))
    assert await memory.clear("c")
    assert await memory.get("c") == ()
    assert not await memory.clear("c")


async def test_win_004_one_message_alone() -> None:
    memory = ChatMemory()
    await memory.add("c", U("hi"))
    assert await memory.get("c") == (U("hi"),)


async def test_win_015_an_unknown_conversation_is_empty() -> None:
    memory = ChatMemory()
    assert await memory.get("nobody") == ()
    assert await memory.count("nobody") == 0
    assert (await memory.history("nobody")).items == ()


@pytest.mark.parametrize("bad", [None, "", "  ", 7, "x" * 256, "a\0b"], ids=repr)
async def test_win_005_win_006_every_operation_names_a_bad_id(bad: str) -> None:
    memory = ChatMemory()
    empty = {"format": 1, "entries": []}
    for operation in (
        lambda: memory.add(bad, [U("hi")]),
        lambda: memory.add(bad, U("hi")),
        lambda: memory.get(bad),
        lambda: memory.clear(bad),
        lambda: memory.begin(bad, [U("hi")]),
        lambda: memory.count(bad),
        lambda: memory.history(bad),
        lambda: memory.snapshot(bad),
        lambda: memory.restore(bad, empty),
        lambda: memory.fork(bad, "new"),
        lambda: memory.rename(bad, "new"),
    ):
        with pytest.raises(ConversationIdError, match="`conversation_id`"):
            await operation()
    assert (await memory.conversations()).items == ()


@pytest.mark.parametrize("bad", ["hi", None, [None], [U("hi"), "x"], {"role": "user"}, 3], ids=repr)
async def test_what_is_no_message_is_refused_and_nothing_is_stored(bad: object) -> None:
    memory = ChatMemory()
    with pytest.raises(InvalidInputError, match="`messages"):
        await memory.add("c", bad)
    assert await memory.count("c") == 0


async def test_adding_nothing_does_nothing() -> None:
    memory = ChatMemory()
    await memory.add("c", [])
    assert (await memory.conversations()).items == ()


async def test_B187_the_same_system_message_is_stored_but_in_force_once() -> None:
    memory = ChatMemory()
    for turn in range(5):
        await memory.add("c", [S("Be brief."), U(f"u{turn}"), A(f"a{turn}")])
    assert texts(await memory.get("c")).count("Be brief.") == 1


# --- for the application ----------------------------------------------------------------------------------------------


async def test_count_and_history_tell_what_is_stored_whatever_the_policy() -> None:
    memory = ChatMemory(MessageWindow(2))
    await memory.add("c", plain(["s1", "u1", "a1"]))
    await memory.add("c", plain(["s2", "u2", "a2"]))
    assert texts(await memory.get("c")) == ["s2"]
    assert await memory.count("c") == 6
    first = await memory.history("c", limit=4)
    rest = await memory.history("c", limit=4, after=first.next)
    assert texts([entry.message for entry in (*first.items, *rest.items)]) == ["s1", "u1", "a1", "s2", "u2", "a2"]
    assert rest.next is None
    newest = await memory.history("c", limit=1, newest_first=True)
    assert newest.items[0].message == A("a2")
    assert len({entry.turn_id for entry in (*first.items, *rest.items)}) == 2


async def test_conversations_are_listed_by_prefix() -> None:
    memory = ChatMemory()
    for name in ("user:2", "user:1", "other"):
        await memory.add(name, U("hi"))
    page = await memory.conversations(prefix="user:", limit=1)
    assert [row.conversation_id for row in page.items] == ["user:1"]
    page = await memory.conversations(prefix="user:", after=page.next)
    assert [(row.conversation_id, row.count) for row in page.items] == [("user:2", 1)]


@pytest.mark.parametrize(("source", "target"), [("memory", "sqlite"), ("sqlite", "memory"), ("sqlite", "sqlite")])
async def test_a_snapshot_goes_through_json_and_restores_exactly_on_another_store(source: str, target: str) -> None:
    async with open_repository(f"{source}://") as here, open_repository(f"{target}://") as there:
        memory, other = ChatMemory(Unbounded(), here), ChatMemory(Unbounded(), there)
        image = ImagePart(data=b"\x00\xff", media_type="image/png")
        await memory.add("c", [S("one"), U((image,), metadata={"n": [1]}), A("x", reasoning="y", partial=True)])
        await memory.add("c", [S("two"), U("find"), calls("k"), result("k"), A("", refusal="no")])
        await memory.add("c", [S("two"), U("again")])
        taken = json.loads(json.dumps(await memory.snapshot("c")))
        await other.add("d", U("what it held before"))
        await other.restore("d", taken)
        old, new = await memory.history("c"), await other.history("d")
        kept = [(entry.turn_id, entry.message, entry.created, entry.kind) for entry in old.items]
        assert kept == [(entry.turn_id, entry.message, entry.created, entry.kind) for entry in new.items]
        assert await other.get("d") == await memory.get("c")


@pytest.mark.parametrize("url", ["memory://", "sqlite://"])
async def test_views_of_a_growing_log_are_the_same_on_every_store(url: str) -> None:
    """What a store recalls for a window of each size is what the window shows of the whole log."""
    batches = [
        [S("s1"), U("u1"), calls("1"), result("1"), A("a1")],
        [U("u2"), calls("2", "3"), result("3"), result("2"), A(" ")],
        [S("s2"), S("s3"), U("u3"), calls("4"), result("4"), calls("5"), result("5"), A("a3")],
        [S("s2"), U("u4")],
    ]
    async with open_repository(url) as repository:
        for batch in batches:
            await ChatMemory(repository=repository).add("c", batch)
            whole = await repository.recall("c", None)
            for size in range(1, 22):
                policy = MessageWindow(size)
                assert await ChatMemory(policy, repository).get("c") == policy.view(without_newest(whole, 0, policy.last))


async def test_a_long_conversation_is_snapshot_whole() -> None:
    memory = ChatMemory(Unbounded())
    await memory.add("c", [U(f"u{n}") for n in range(1203)])
    await memory.restore("d", await memory.snapshot("c"))
    assert await memory.get("d") == await memory.get("c")


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_snapshot_has_the_time_to_live(wrapped: bool) -> None:
    ttl = timedelta(days=3, microseconds=7)
    inner = InMemoryChatMemoryRepository()
    store = EncryptedChatMemoryRepository(inner, KEY, hash_ids=True) if wrapped else inner
    lasting, ending = ChatMemory(repository=store), ChatMemory(repository=store, retention=Retention(ttl))
    shorter = ChatMemory(repository=store, retention=Retention(timedelta(hours=1), max_messages=9))
    await ending.add("c", U("hi"))
    await lasting.add("d", U("hi"))
    taken, endless = json.loads(json.dumps(await lasting.snapshot("c"))), await lasting.snapshot("d")
    assert (taken["ttl"], endless["ttl"]) == (ttl.total_seconds(), None)
    await lasting.restore("e", taken)
    assert await ttl_of(store, "e") == ttl
    await shorter.restore("e", taken)  # its own wins
    assert await ttl_of(store, "e") == timedelta(hours=1)
    await lasting.restore("e", {name: value for name, value in taken.items() if name != "ttl"})  # of an earlier release
    assert await ttl_of(store, "e") == timedelta(hours=1)
    await lasting.restore("e", endless)
    assert await ttl_of(store, "e") is None
    for bad in (0, "1", True, float("nan")):
        with pytest.raises(InvalidInputError, match="`snapshot` cannot be restored: `ttl`"):
            await lasting.restore("e", {**taken, "ttl": bad})


async def test_a_snapshot_of_nothing_restores_to_nothing() -> None:
    memory = ChatMemory()
    await memory.add("c", U("hi"))
    await memory.restore("c", await memory.snapshot("nobody"))
    assert (await memory.conversations()).items == ()


async def test_a_snapshot_taken_while_others_write_is_of_one_moment() -> None:
    memory = ChatMemory(repository=(busy := Counting()))
    await memory.add("c", plain(["u1", "a1"]))
    page, writes = busy.page, iter([plain(["u2"]), plain(["a2"])])

    async def page_and_write(conversation_id: str, **how: object) -> object:
        found = await page(conversation_id, **how)
        if (batch := next(writes, None)) is not None:
            await busy.append(conversation_id, batch, turn_id=batch[0].text)
        return found

    busy.page = page_and_write
    snapshot = await memory.snapshot("c")
    assert [entry["message"]["content"] for entry in snapshot["entries"]] == ["u1", "a1", "u2", "a2"]


async def test_a_snapshot_has_the_time_to_live_of_the_entries_that_it_has() -> None:
    """A write between the two lookups, which brings another time to live, is either in it whole or not at all."""
    memory = ChatMemory(repository=(busy := Counting()), retention=Retention(timedelta(days=3)))
    await memory.add("c", U("u1"))
    conversations, left = busy.conversations, [True]

    async def write_and_list(**how: object) -> object:
        if left and left.pop():
            await busy.append("c", [U("u2")], turn_id="u2", retention=Retention(timedelta(hours=1)))
        return await conversations(**how)

    busy.conversations = write_and_list
    taken = await memory.snapshot("c")
    assert ([entry["message"]["content"] for entry in taken["entries"]], taken["ttl"]) == (["u1", "u2"], 3600)


async def test_a_snapshot_taken_while_it_is_deleted_and_begun_anew_is_of_one_life() -> None:
    """The new life may be at the revision that the old one had."""
    memory = ChatMemory(repository=(busy := Counting()))
    await memory.add("c", [U(f"u{number}") for number in range(501)])
    page, left = busy.page, [True]

    async def page_and_delete(conversation_id: str, **how: object) -> object:
        found = await page(conversation_id, **how)
        if left and left.pop():
            await busy.delete("c")
            await busy.append("c", [U("new")], turn_id="new")
        return found

    busy.page = page_and_delete
    assert [entry["message"]["content"] for entry in (await memory.snapshot("c"))["entries"]] == ["new"]


GOOD = {"sequence": 1, "turn_id": "t", "kind": "message", "covers": None, "created": "2024-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {},
        {"format": 2, "entries": []},
        {"format": 1, "entries": "x"},
        {"format": 1, "entries": [None]},
        {"format": 1, "entries": [{**GOOD}]},
        {"format": 1, "entries": [{**GOOD, "message": {"role": "nobody", "content": "secret"}}]},
        {"format": 1, "entries": [{**GOOD, "created": "today", "message": {"role": "user", "content": "secret"}}]},
    ],
    ids=lambda bad: str(bad)[:40],
)
async def test_a_snapshot_that_is_none_is_refused_and_nothing_is_lost(bad: object) -> None:
    memory = ChatMemory()
    await memory.add("c", U("hi"))
    with pytest.raises(InvalidInputError, match="`snapshot`") as raised:
        await memory.restore("c", bad)
    assert "secret" not in str(raised.value)
    assert await stored(memory) == ["hi"]


async def test_a_fork_goes_its_own_way() -> None:
    memory = ChatMemory()
    await memory.add("c", plain(["u1", "a1"]))
    await memory.add("c", plain(["u2", "a2"]))
    second = (await memory.history("c")).items[1]
    await memory.fork("c", "whole")
    await memory.fork("c", "early", at=second.sequence)
    await memory.add("early", U("other"))
    assert await stored(memory, "whole") == ["u1", "a1", "u2", "a2"]
    assert await stored(memory, "early") == ["u1", "a1", "other"]
    assert await stored(memory) == ["u1", "a1", "u2", "a2"]
    assert (await memory.history("early")).items[0].created == (await memory.history("c")).items[0].created


async def test_a_fork_never_overwrites_and_never_starts_from_nothing() -> None:
    memory = ChatMemory()
    await memory.add("c", U("hi"))
    await memory.add("d", U("there"))
    with pytest.raises(ConversationConflictError):
        await memory.fork("c", "d")
    with pytest.raises(InvalidInputError, match="`conversation_id`"):
        await memory.fork("nobody", "e")
    assert await stored(memory, "d") == ["there"]


async def test_a_conversation_is_renamed_with_all_that_was_said() -> None:
    memory = ChatMemory()
    await memory.add("c", plain(["u1", "a1"]))
    await memory.add("d", U("there"))
    turn = await memory.begin("c", [U("u2")])
    assert await memory.rename("c", "e")
    assert not await memory.rename("c", "f")
    with pytest.raises(ConversationConflictError):
        await memory.rename("e", "d")
    with pytest.raises(ConversationDeletedError):
        await turn.commit([A("a2")])
    assert await stored(memory, "e") == ["u1", "a1"]
    assert [row.conversation_id for row in (await memory.conversations()).items] == ["d", "e"]


async def test_all_conversations_of_a_prefix_are_deleted_and_no_others() -> None:
    memory = ChatMemory()
    names = [f"user:{number}" for number in range(1201)]
    for name in (*names, "user", "USER:1", "users:1", "v"):
        await memory.add(name, U("hi"))
    assert await memory.clear_all("user:") == 1201
    assert await memory.clear_all("user:") == 0
    assert [row.conversation_id for row in (await memory.conversations()).items] == ["USER:1", "user", "users:1", "v"]
    for nothing in ("", None):
        with pytest.raises(InvalidInputError, match="`prefix`"):
            await memory.clear_all(nothing)
    assert await memory.clear_all("", everything=True) == 4
    assert (await memory.conversations()).items == ()


async def test_old_and_expired_conversations_are_pruned() -> None:
    now = datetime.now(UTC).timestamp()
    repository = InMemoryChatMemoryRepository(clock=lambda: now)
    short = ChatMemory(repository=repository, retention=Retention(ttl=timedelta(hours=1)))
    memory = ChatMemory(repository=repository)
    await short.add("a:short", U("hi"))
    await memory.add("a:long", U("hi"))
    assert await memory.prune() == 0
    now += 3601
    assert await memory.prune(timedelta(days=1), prefix="b") == 0
    assert await memory.prune(timedelta(days=1)) == 1
    assert await memory.prune(timedelta.max) == 0
    assert await memory.count("a:long") == 1
    entry = (await memory.history("a:long")).items[0]
    await repository.replace("old", [replace(entry, created=entry.created - timedelta(days=40))])
    assert await memory.prune(timedelta(days=30)) == 0  # it was written to now
    for bad in (timedelta(0), timedelta(days=-1), 30):
        with pytest.raises(InvalidInputError, match="`older_than`"):
            await memory.prune(bad)


async def test_a_snapshot_of_an_earlier_release_is_restored() -> None:
    entry = {"sequence": 7, "turn_id": "t", "kind": "message", "covers": None, "created": "2024-01-01T00:00:00+00:00"}
    message = {"role": "assistant", "content": "hi", "tool_calls": [], "partial": True, "metadata": {"id": "x"}}
    memory = ChatMemory()
    await memory.restore("c", {"format": 1, "entries": [{**entry, "message": message}]})
    (restored,) = (await memory.history("c")).items
    assert restored.message == A("hi", partial=True, metadata={"id": "x"})
    assert (restored.turn_id, restored.created) == ("t", datetime(2024, 1, 1, tzinfo=UTC))


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_a_turn_is_stored_whole_and_once() -> None:
    memory = ChatMemory()
    turn = await memory.begin("c", [S("s"), U("u1"), U("u2")])
    assert (turn.history, turn.new) == ((), (U("u1"), U("u2")))
    assert await memory.count("c") == 0
    await turn.commit([A("a")])
    await turn.commit([A("a")])
    entries = (await memory.history("c")).items
    assert texts([entry.message for entry in entries]) == ["u1", "u2", "a"]
    assert {entry.turn_id for entry in entries} == {turn.turn_id}


async def test_an_abandoned_turn_stores_nothing() -> None:
    memory = ChatMemory()
    turn = await memory.begin("c", [U("u1")])
    await turn.abandon()
    with pytest.raises(ChatMemoryError, match="abandoned"):
        await turn.commit([A("a")])
    assert await memory.count("c") == 0


async def test_a_turn_without_messages_stores_nothing() -> None:
    memory = ChatMemory()
    turn = await memory.begin("c", [])
    await turn.commit()
    assert await memory.count("c") == 0


async def test_turns_at_the_same_time_are_whole_and_in_order_of_completion() -> None:
    memory = ChatMemory()
    first, second = await memory.begin("c", [U("u1")]), await memory.begin("c", [U("u2")])
    await second.commit([A("a2")])
    await first.commit([A("a1")])
    assert await stored(memory) == ["u2", "a2", "u1", "a1"]


async def test_a_conversation_deleted_meanwhile_stays_deleted() -> None:
    memory = ChatMemory()
    await memory.add("c", U("hi"))
    turn = await memory.begin("c", [U("u1")])
    await memory.clear("c")
    with pytest.raises(ConversationDeletedError):
        await turn.commit([A("a1")])
    assert await memory.count("c") == 0


async def test_a_turn_begins_with_one_bounded_trip_however_long_the_log_is() -> None:
    repository = Counting()
    memory = ChatMemory(MessageWindow(4), repository)
    await memory.add("c", [U(f"u{n}") for n in range(500)])
    turn = await memory.begin("c", [S("s"), U("new")])
    assert texts(turn.history) == ["u496", "u497", "u498", "u499"]
    assert repository.recalls == [5 + 2]


# --- what is recalled, and what is new --------------------------------------------------------------------------------


async def joined(log: Sequence[Message], prompt: Sequence[Message], window: int = 20) -> tuple[list[str], list[str]]:
    """The texts of the history and of what is new, when `prompt` is sent to a conversation that holds `log`."""
    memory = ChatMemory(MessageWindow(window))
    await memory.add("c", log)
    turn = await memory.begin("c", prompt)
    return texts(turn.history), texts(turn.new)


@pytest.mark.parametrize(
    ("log", "prompt", "history", "new"),
    [
        ([], ["u1"], [], ["u1"]),
        (["u1", "a1"], ["u2"], ["u1", "a1"], ["u2"]),
        (["u1", "a1"], ["s", "u2"], ["u1", "a1"], ["u2"]),
        (["u1", "a1"], ["u1", "a1", "u2"], [], ["u2"]),  # the whole conversation, sent each time
        (["u1", "a1", "u2", "a2"], ["u2", "a2", "u3"], ["u1", "a1"], ["u3"]),  # its newest part
        (["u1", "a1", "u2", "a2"], ["s", "u1", "a1", "u2", "a2", "u3"], [], ["u3"]),
        (["u1"], ["u1"], [], []),  # a question that was left without an answer, again
        (["u0", "a0", "u1"], ["u1"], ["u0", "a0"], []),
        (["u1", "a1"], ["u1"], ["u1", "a1"], ["u1"]),  # an answered question, asked again
        (["u1", "a1"], ["u1", "a1"], [], []),  # go on from here
        (["u1", "a1"], ["u0", "a0", "u1", "a1", "u2"], [], ["u2"]),  # older ones stand before the view
        (["u1", "a1"], ["u0", "u1", "a1", "u1", "a1", "u2"], [], ["u1", "a1", "u2"]),  # the first run counts
        (["u1"], ["u0", "u1"], [], []),
        (["u1", "a1"], ["a1", "u2"], ["u1"], ["u2"]),
    ],
)
async def test_joining(log: list[str], prompt: list[str], history: list[str], new: list[str]) -> None:
    assert await joined(plain(log), plain(prompt)) == (history, new)


async def test_mem_015_history_that_is_only_partly_in_the_prompt_is_recalled_in_full() -> None:
    assert await joined(plain(["u1", "a1"]), plain(["u1", "u2"])) == (["u1", "a1"], ["u1", "u2"])


async def test_mem_008_the_rounds_of_an_open_turn_are_not_added_twice() -> None:
    assert await joined([U("u"), calls("k")], [U("u"), calls("k"), result("k")]) == ([], ["rk"])


async def test_mem_009_a_turn_longer_than_the_window_is_recognised() -> None:
    log = [U("u"), calls("45"), result("45"), calls("46")]
    assert await joined(log, [*log, result("46")], window=3) == ([], ["r46"])


async def test_stored_system_messages_are_recalled_even_where_the_prompt_holds_the_rest() -> None:
    assert await joined(plain(["s", "u1", "a1"]), plain(["u1", "a1", "u2"])) == (["s"], ["u2"])
    assert await joined(plain(["s", "u1", "a1"]), plain(["u0", "u1", "a1", "u2"])) == (["s"], ["u2"])


async def test_a_partial_answer_is_known_again_by_its_text() -> None:
    log = [U("u1", metadata={"time": 1}), A("Hel", partial=True, reasoning="hm", metadata={"id": "x"})]
    assert await joined(log, [U("u1"), A("Hel"), U("u2")]) == ([], ["u2"])


async def test_calls_and_their_ids_are_compared() -> None:
    log = [U("u"), calls("1"), result("1")]
    assert (await joined(log, [U("u"), calls("2"), result("2")]))[1] == ["u", "2", "r2"]
    other = [U("u"), calls("1"), ToolMessage("r1", tool_call_id="2")]
    assert (await joined(log, other))[1] == ["u", "1", "r1"]


async def test_a_blank_answer_that_the_caller_dropped_does_not_double_the_question() -> None:
    assert await joined([U("u1"), A(" ")], plain(["u1", "u2"])) == ([], ["u2"])
    assert await joined([U("u1"), A(" ")], [U("u1"), A(" "), U("u2")]) == ([], ["u2"])
    assert await joined([U("u1"), A(" ")], plain(["u1"])) == (["u1"], ["u1"])  # said again: nothing is lost


async def test_history_before_a_known_end_is_the_policys_view_of_it() -> None:
    log = plain(["u1", "a1", "u2", "a2", "u3", "a3"])
    assert await joined(log, plain(["u3", "a3", "u4"]), window=2) == (["u2", "a2"], ["u4"])
    assert await joined(log, plain(["a3", "u4"]), window=3) == (["u2", "a2", "u3"], ["u4"])


async def test_a_turn_cut_by_a_known_end_keeps_its_question() -> None:
    log = [U("u"), calls("1"), result("1"), calls("2"), result("2"), calls("3")]
    assert await joined(log, [calls("3"), result("3")], window=3) == (["u", "2", "r2"], ["r3"])


async def test_B146_a_caller_that_sends_everything_and_one_that_sends_the_new_store_the_same() -> None:
    script = [("yes", "ok"), ("yes", "ok"), ("yes", "no"), ("no", "ok")]
    everything, only_new = ChatMemory(), ChatMemory()
    said: list[Message] = []
    for question, answer in script:
        whole = await everything.begin("c", [*said, U(question)])
        assert (*whole.history, *said, U(question)) == (*said, U(question))
        await whole.commit([A(answer)])
        new = await only_new.begin("c", [U(question)])
        assert list(new.history) == said
        await new.commit([A(answer)])
        said += [U(question), A(answer)]
    assert await stored(everything) == await stored(only_new) == [text for pair in script for text in pair]


PAIRS = st.lists(st.tuples(st.sampled_from(["yes", "no"]), st.sampled_from(["yes", "ok"])), max_size=6)


@given(PAIRS, st.integers(0, 12), st.integers(1, 8) | st.none())
def test_whatever_end_the_caller_repeats_only_the_question_is_new(
    pairs: list[tuple[str, str]], repeated: int, size: int | None
) -> None:
    log = [message for question, answer in pairs for message in (U(question), A(answer))]
    prompt = (*log[max(0, len(log) - repeated) :], U("yes"))
    policy = Unbounded() if size is None else MessageWindow(size)
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    entries = tuple(Entry(place, f"t{place}", message, moment) for place, message in enumerate(log, start=1))
    wanted = len(entries) if policy.last is None else policy.last + len(prompt)
    tail = entries[max(0, len(entries) - wanted) :]
    before = entries[: len(entries) - len(tail)]
    question = next((entry for entry in reversed(before) if entry.role == "user"), None)
    history, new = recalled_once(policy, Recall(1, 1, len(entries), tail, question=question), prompt)
    assert new == (U("yes"),)
    whole, sent = (*log, U("yes")), (*history, *prompt)
    assert sent == whole[len(whole) - len(sent) :]
    assert len(sent) == len(whole) if size is None else len(history) <= size
