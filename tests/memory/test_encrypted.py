"""Encryption at rest: the laws over it, what can be read in the store, and what happens when somebody changes that."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextlib import closing as closing_
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import (
    ConfigurationError,
    ConversationBusyError,
    ConversationConflictError,
    InvalidInputError,
    StorageError,
)
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.concurrency import Reject, Serialize
from advisorchain.memory.policies import MessageWindow
from advisorchain.memory.repositories._encryption import Cipher, Sealed
from advisorchain.memory.repositories.encrypted import EncryptedChatMemoryRepository
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository
from advisorchain.memory.repository import Conversation, Entry, Page
from advisorchain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from advisorchain.testing.repository_laws import REPOSITORY_LAWS, Means, RepositoryLaw

from ._kit import pair

KEY, OTHER, THIRD = (Fernet.generate_key() for _ in range(3))


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.slow)])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    number = iter(range(1_000_000))

    def made(**options: Any) -> Any:
        if request.param == "memory":
            return InMemoryChatMemoryRepository(**options)
        return SqliteChatMemoryRepository(tmp_path / f"{next(number)}.db", **options)

    return made


def means(inner: Callable[..., Any], kind: Any = EncryptedChatMemoryRepository, **options: Any) -> Means:
    now = [1000.0]

    async def wait(seconds: float) -> None:
        now[0] += seconds

    def reopen(repository: Any) -> Any:
        path = repository.repository._file.path
        store = SqliteChatMemoryRepository(path, clock=lambda: now[0])
        return kind(store, KEY, **options)

    on_disk = isinstance(inner(), SqliteChatMemoryRepository)
    return Means(
        lambda: kind(inner(clock=lambda: now[0]), KEY, **options),
        wait,
        reopen if on_disk else None,
    )


EITHER = pytest.mark.parametrize(  # both stores on both loops would say the same twice
    ("anyio_backend", "inner"), [("asyncio", "memory"), ("trio", "sqlite")], indirect=["inner"]
)


WHY_NOT = {
    "reopen": "law of what a store has when it is opened again: one in memory is gone then",
    "disconnect": "law of a connection that is lost: a store in this process has none",
}


@asynccontextmanager
async def closing(repository: Any) -> AsyncIterator[Any]:
    try:
        yield repository
    finally:
        await repository.aclose()


@pytest.mark.parametrize("law", REPOSITORY_LAWS, ids=lambda law: law.name)
@EITHER
async def test_law(law: RepositoryLaw, inner: Callable[..., Any]) -> None:
    given = means(inner)
    if missing := law.missing(given):
        pytest.skip(WHY_NOT[missing[0]])
    await law.run(given)


LISTS = {  # laws of what a list of ids is, which hashes are not
    "ids hold every character",
    "conversations are found by prefix",
    "lists go on while others write",
    "prune keeps to prefix and limit",
}


class Known(EncryptedChatMemoryRepository):
    """With hashed ids, and a list of those that it was given: so that laws that look into the list can be tried."""

    ids: ClassVar[dict[str, str]] = {}

    def stored_id(self, conversation_id: str) -> str:
        stored = super().stored_id(conversation_id)
        assert stored != conversation_id
        return self.ids.setdefault(stored, conversation_id) and stored

    async def conversations(self, *, prefix: str = "", after: str | None = None, limit: int = 100) -> Page[Conversation]:
        await super().conversations(limit=limit)  # refuses what is no limit
        assert after is None
        assert isinstance(prefix, str) or not await super().conversations(prefix=prefix)
        rows, cursor = [], None
        while True:
            page = await super().conversations(after=cursor, limit=3)
            rows += [replace(row, conversation_id=self.ids[row.conversation_id]) for row in page.items]
            cursor = page.next
            if cursor is None:
                found = sorted(rows, key=lambda row: row.conversation_id)
                return Page(tuple(row for row in found if row.conversation_id.startswith(prefix)))


@pytest.mark.slow
@pytest.mark.parametrize("law", [law for law in REPOSITORY_LAWS if law.name not in LISTS], ids=lambda law: law.name)
@EITHER
async def test_law_with_hashed_ids(law: RepositoryLaw, inner: Callable[..., Any]) -> None:
    given = means(inner, Known, hash_ids=True)
    if missing := law.missing(given):
        pytest.skip(WHY_NOT[missing[0]])
    await law.run(given)


# -- what stands in the store

CANARY = "canary"
SAID: list[Message] = [
    SystemMessage(f"{CANARY} system", name=f"{CANARY}", metadata={CANARY: CANARY}),
    UserMessage((TextPart(f"{CANARY} text"), ImagePart(data=CANARY.encode(), media_type=f"image/{CANARY}"))),
    AssistantMessage(
        f"{CANARY} answer",
        reasoning=f"{CANARY} reasoning",
        refusal=f"{CANARY} refusal",
        tool_calls=(ToolCall(f"{CANARY}-id", f"{CANARY}_tool", f'{{"{CANARY}": 1}}'),),
    ),
    ToolMessage(f"{CANARY} result", tool_call_id=f"{CANARY}-id", name=f"{CANARY}_tool", structured={CANARY: [CANARY]}),
]


async def _write_everything(repository: Any) -> None:
    await repository.append(f"{CANARY} id", SAID, turn_id=f"{CANARY} turn")
    token = await repository.acquire(f"{CANARY} id", f"{CANARY} owner", 60)
    await repository.append(f"{CANARY} id", pair(1), turn_id=f"{CANARY} second", token=token)
    entries = (await repository.page(f"{CANARY} id")).items
    summary = Entry(99, f"{CANARY} sum", AssistantMessage(f"{CANARY} so far"), entries[0].created, "summary", covers=2)
    await repository.replace(f"{CANARY} id", [*entries, summary, UserMessage(f"{CANARY} new")])
    await repository.fork(f"{CANARY} id", f"{CANARY} fork")
    await repository.rename(f"{CANARY} fork", f"{CANARY} renamed")


def _bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("hash_ids", [False, True])
async def test_nothing_can_be_read_in_the_file(tmp_path: Path, hash_ids: bool) -> None:
    encoded = [CANARY, CANARY.encode().hex(), b64encode(CANARY.encode()).decode()]
    for folder, wrapped in (("plain", False), ("hidden", True)):
        (tmp_path / folder).mkdir()
        store: Any = SqliteChatMemoryRepository(tmp_path / folder / "c.db")
        repository = EncryptedChatMemoryRepository(store, KEY, hash_ids=hash_ids) if wrapped else store
        async with closing(repository):
            await _write_everything(repository)
            files = _bytes_in(tmp_path / folder)
            assert "c.db-wal" in files
        for data in (*files.values(), *_bytes_in(tmp_path / folder).values()):
            if wrapped and not hash_ids:
                data = re.sub(rb"canary (id|fork|renamed)", b"", data)  # ids are not hidden
            found = any(text.encode() in data for text in encoded)
            assert not (wrapped and found)
            if not wrapped and data is files["c.db-wal"]:
                assert found


async def test_the_store_sees_roles_kinds_times_and_sequences() -> None:
    store = InMemoryChatMemoryRepository()
    repository = EncryptedChatMemoryRepository(store, KEY)
    await _write_everything(repository)
    hidden, shown = (await store.page(f"{CANARY} id")).items, (await repository.page(f"{CANARY} id")).items
    for one, other in zip(hidden, shown, strict=True):
        assert (one.role, one.kind, one.created, one.sequence) == (other.role, other.kind, other.created, other.sequence)
        assert CANARY not in repr(one)
    assert [entry.message for entry in shown[:4]] == SAID
    assert [entry.turn_id for entry in shown[:6]] == [f"{CANARY} turn"] * 4 + [f"{CANARY} second"] * 2


# -- keys


async def _filled(store: Any, keys: Any = KEY, **options: Any) -> EncryptedChatMemoryRepository:
    repository = EncryptedChatMemoryRepository(store, keys, **options)
    await repository.append("c", [SystemMessage("secret A"), SystemMessage("secret B"), *pair(1)], turn_id="t1")
    await repository.append("c", pair(2), turn_id="t2")
    return repository


async def test_a_wrong_key_is_an_error_that_names_the_entry_and_no_content(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner())) as repository:
        snapshot = await ChatMemory(repository=repository).snapshot("c")
        wrong = EncryptedChatMemoryRepository(repository.repository, OTHER)
        for call in (
            lambda: wrong.recall("c", 1),
            lambda: wrong.page("c", limit=1),
            lambda: wrong.replace("c", pair(3)),
            lambda: wrong.rotate("c"),
            lambda: wrong.append("c", [SystemMessage("x")], turn_id="t3"),
            lambda: wrong.append("c", pair(3), turn_id="t3"),
            lambda: ChatMemory(repository=wrong).add("c", pair(3)),
            lambda: ChatMemory(repository=wrong).begin("c", pair(3)),
            lambda: ChatMemory(repository=wrong).restore("c", snapshot),
        ):
            with pytest.raises(StorageError, match=r"entry \d+ cannot be decrypted.*`keys`") as caught:
                await call()
            assert not any(text in str(caught.value) for text in ("secret", "u1", "a2", KEY.decode(), OTHER.decode()))
            assert caught.value.__cause__ is None
        assert (await repository.recall("c", None)).revision == 2


async def test_keys_rotate(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner())) as old:
        store = old.repository
        before = (await old.page("c")).items
        both = EncryptedChatMemoryRepository(store, [OTHER, KEY])
        await both.append("c", pair(3), turn_id="t3")
        with pytest.raises(StorageError, match="cannot be decrypted"):
            await old.page("c")
        assert await both.rotate("c")
        assert not await both.rotate("c")
        assert not await both.rotate("nobody")
        new = EncryptedChatMemoryRepository(store, OTHER)
        after = (await new.page("c")).items
        assert [(entry.message, entry.turn_id, entry.created) for entry in after[:6]] == [
            (entry.message, entry.turn_id, entry.created) for entry in before
        ]
        assert [entry.message.text for entry in after[6:]] == ["u3", "a3"]
        assert [entry.message.text for entry in (await new.recall("c", 1)).systems] == ["secret A", "secret B"]


async def test_a_deleted_conversation_does_not_come_back_by_a_change_of_keys(inner: Callable[..., Any]) -> None:
    """What came in its place may be at the revision that it had."""
    async with closing(await _filled(inner())) as old:
        store, both = old.repository, EncryptedChatMemoryRepository(old.repository, [OTHER, KEY])
        turns, replace_ = (await store.recall("c", 0)).revision, store.replace

        async def deleted_before(*args: Any, **named: Any) -> Any:
            store.replace = replace_
            await store.delete("c")
            for number in range(turns):
                await both.append("c", pair(7 + number), turn_id=f"new {number}")
            return await replace_(*args, **named)

        store.replace = deleted_before
        assert not await both.rotate("c")
        assert [entry.message.text for entry in (await both.page("c")).items[:2]] == ["u7", "a7"]


async def test_two_may_change_the_keys_of_a_long_conversation_at_once(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner())) as old:
        store = old.repository
        one, other = (EncryptedChatMemoryRepository(store, [OTHER, KEY]) for _ in range(2))
        await one.append("c", [UserMessage(str(number)) for number in range(600)], turn_id="long")
        page = store.page

        async def rotated_meanwhile(*args: Any, **named: Any) -> Any:
            found = await page(*args, **named)
            store.page = page
            assert await other.rotate("c")
            return found

        store.page = rotated_meanwhile
        assert not await one.rotate("c")
        assert (await EncryptedChatMemoryRepository(store, OTHER).recall("c", 1)).count == 606


async def test_a_system_message_is_known_again_after_a_change_of_keys(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner())) as old:
        for keys in ([OTHER, KEY], [THIRD, OTHER, KEY]):
            both = EncryptedChatMemoryRepository(old.repository, keys)
            await both.append("c", [SystemMessage("secret A"), *pair(4)], turn_id=f"n{len(keys)}")
            systems = (await both.recall("c", 1)).systems
            assert [entry.message.text for entry in systems] == ["secret A", "secret B"]
        await both.append("c", [SystemMessage("secret A"), SystemMessage("secret C")], turn_id="last")
        assert [e.message.text for e in (await both.recall("c", 1)).systems] == ["secret A", "secret C"]


async def test_a_repeated_turn_is_known_again_while_the_last_key_stays(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner(), hash_ids=True)) as old:
        both = EncryptedChatMemoryRepository(old.repository, [OTHER, KEY], hash_ids=True)
        assert await both.append("c", pair(2), turn_id="t2") == 2
        assert (await both.recall("c", 1)).count == 6
        assert await both.rotate("c")
        assert await both.append("c", pair(2), turn_id="t2") == 3


def test_keys_that_are_none_are_refused_and_not_shown() -> None:
    store: Any = InMemoryChatMemoryRepository()
    for keys, named in (
        (None, "`keys`"),
        ([], "`keys`"),
        ("", r"`keys\[0\]`"),
        ("s3cret", r"`keys\[0\]`"),
        ([KEY, 7], r"`keys\[1\]`"),
    ):
        with pytest.raises(ConfigurationError, match=named) as caught:
            EncryptedChatMemoryRepository(store, keys)
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="`names_key` is no key") as caught:
        EncryptedChatMemoryRepository(store, KEY, names_key="s3cret")
    assert "s3cret" not in str(caught.value)
    for key in (KEY, KEY.decode(), [KEY.decode(), OTHER]):
        assert KEY.decode() not in repr(EncryptedChatMemoryRepository(store, key))
    with pytest.raises(ConfigurationError, match="`repository`"):
        EncryptedChatMemoryRepository(InMemoryChatMemoryRepository, KEY)


def test_a_missing_package_is_an_error_that_spells_the_command() -> None:
    code = """
import sys
sys.modules["cryptography"] = None
from advisorchain.errors import MissingExtraError
try:
    import advisorchain.memory.repositories.encrypted
except MissingExtraError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "advisorchain[encryption]"' in ran.stdout


# -- somebody else writes to the store


async def _changed(store: Any, change: Callable[[list[Entry]], list[Entry]]) -> None:
    entries = list((await store.page("c")).items)
    await store.replace("c", change(entries))


def _swapped(first: int, second: int) -> Callable[[list[Entry]], list[Entry]]:
    def change(entries: list[Entry]) -> list[Entry]:
        one, other = entries[first], entries[second]
        entries[first] = replace(one, message=other.message)
        entries[second] = replace(other, message=one.message)
        return entries

    return change


def _token_changed(entries: list[Entry]) -> list[Entry]:
    token = entries[2].message.metadata["encrypted"]
    message = replace(
        entries[2].message, metadata={"encrypted": token[:40] + ("A" if token[40] != "A" else "B") + token[41:]}
    )
    return [*entries[:2], replace(entries[2], message=message), *entries[3:]]


def _as_role(entries: list[Entry]) -> list[Entry]:
    message = AssistantMessage("(encrypted)", metadata=entries[2].message.metadata)
    return [*entries[:2], replace(entries[2], message=message), *entries[3:]]


CHANGES: dict[str, tuple[Callable[[list[Entry]], list[Entry]], str]] = {
    "changed": (_token_changed, "cannot be decrypted"),
    "swapped between turns": (_swapped(2, 4), "not the one that was written there"),
    "swapped in a turn": (lambda entries: [entries[1], entries[0], *entries[2:]], "not the one that was written there"),
    "another role": (_as_role, "not the one that was written there"),
    "another kind": (
        lambda entries: [*entries[:3], replace(entries[3], kind="summary", covers=1), *entries[4:]],
        "not the one that was written there",
    ),
    "written twice": (lambda entries: [*entries, entries[-1]], "not the one that was written there"),
    "in the turn of another": (
        lambda entries: [*entries[:4], replace(entries[4], turn_id=entries[3].turn_id), *entries[5:]],
        "not the one that was written there",
    ),
    "not encrypted": (lambda entries: [*entries, replace(entries[-1], message=UserMessage("plain"))], "is not encrypted"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_an_entry_that_was_changed_is_an_error(inner: Callable[..., Any], change: str) -> None:
    function, problem = CHANGES[change]
    async with closing(await _filled(inner())) as repository:
        await _changed(repository.repository, function)
        for read in (lambda: repository.page("c"), lambda: repository.page("c", newest_first=True)):
            with pytest.raises(StorageError, match=rf"entry \d+ .*{problem}") as caught:
                await read()
            assert not any(text in str(caught.value) for text in ("secret", "u1", "a1", "u2", "plain"))
        with pytest.raises(StorageError, match=problem):
            await repository.recall("c", None)


async def test_an_entry_from_another_conversation_is_an_error(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner())) as repository:
        await repository.append("d", [SystemMessage("secret A"), SystemMessage("secret B"), *pair(7)], turn_id="t1")
        other = (await repository.repository.page("d")).items
        await _changed(
            repository.repository,
            lambda entries: [*entries[:2], replace(entries[2], message=other[2].message), *entries[3:]],
        )
        with pytest.raises(StorageError, match="not the one that was written there"):
            await repository.recall("c", 4)


async def test_what_a_newer_version_wrote_is_an_error_without_the_content() -> None:
    store: Any = InMemoryChatMemoryRepository()
    for text in ('["t"]\nsecret', '["t", "b", "w", 0, "message"]\n{"role":"secret"}', "secret"):
        token = Fernet(KEY).encrypt(text.encode()).decode()
        await store.replace("c", [UserMessage("", metadata={"encrypted": token})])
        with pytest.raises(StorageError, match=r"entry \d+ was decrypted, but") as caught:
            await EncryptedChatMemoryRepository(store, KEY).recall("c", 1)
        assert "secret" not in str(caught.value)


async def test_a_row_changed_in_the_file_is_an_error(tmp_path: Path) -> None:
    async with closing(await _filled(SqliteChatMemoryRepository(tmp_path / "c.db"))) as repository:
        pass
    with closing_(sqlite3.connect(tmp_path / "c.db")) as database:
        rows = database.execute("SELECT sequence, message FROM entries WHERE lane = 0 ORDER BY sequence").fetchall()
        database.execute("UPDATE entries SET message = ? WHERE sequence = ?", (rows[0][1], rows[2][0]))
        database.commit()
    async with closing(EncryptedChatMemoryRepository(SqliteChatMemoryRepository(tmp_path / "c.db"), KEY)) as repository:
        with pytest.raises(StorageError, match=f"entry {rows[2][0]} is not the one that was written there"):
            await repository.recall("c", 10)


# -- together with the rest


async def test_policies_and_summaries_work_as_without(inner: Callable[..., Any]) -> None:
    plain: Any = InMemoryChatMemoryRepository()
    async with closing(EncryptedChatMemoryRepository(inner(), KEY)) as hidden:
        for repository in (plain, hidden):
            memory = ChatMemory(MessageWindow(5), repository)
            await memory.add("c", [SystemMessage("be brief"), *pair(0)])
            for number in range(1, 9):
                turn = await memory.begin("c", [UserMessage(f"u{number}")])
                await turn.commit([AssistantMessage(f"a{number}")])
            entries = (await repository.page("c")).items
            summary = Entry(99, "s", AssistantMessage("so far"), entries[0].created, "summary", covers=entries[4].sequence)
            await repository.replace("c", [*entries, summary])
        views = [await ChatMemory(MessageWindow(5), repository).get("c") for repository in (plain, hidden)]
        assert views[0] == views[1]
        assert len(views[0]) == 5
        recalls = [await repository.recall("c", 3) for repository in (plain, hidden)]
        found = [(recall.summary and (recall.summary.message, recall.summary.covers), recall.count) for recall in recalls]
        assert found[0] == found[1]


async def test_a_plain_conversation_moves_by_snapshot(inner: Callable[..., Any]) -> None:
    plain: Any = InMemoryChatMemoryRepository()
    await ChatMemory(repository=plain).add("c", SAID)
    async with closing(EncryptedChatMemoryRepository(inner(), KEY)) as hidden:
        await ChatMemory(repository=hidden).restore("c", await ChatMemory(repository=plain).snapshot("c"))
        entries, before = (await hidden.page("c")).items, (await plain.page("c")).items
        assert [(e.message, e.turn_id, e.created) for e in entries] == [(e.message, e.turn_id, e.created) for e in before]


async def test_a_plain_conversation_is_encrypted_where_it_is(inner: Callable[..., Any]) -> None:
    async with closing(EncryptedChatMemoryRepository(inner(), KEY)) as hidden:
        plain = ChatMemory(repository=hidden.repository)
        await plain.add("c", SAID)
        with pytest.raises(StorageError, match="is not encrypted"):
            await hidden.append("c", pair(1), turn_id="t")
        await ChatMemory(repository=hidden).restore("c", await plain.snapshot("c"))
        assert [entry.message for entry in (await hidden.page("c")).items] == SAID
        assert CANARY not in repr((await plain.history("c")).items)


async def test_hashed_ids_are_listed_as_hashes(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner(), hash_ids=True)) as repository:
        await repository.append("d", pair(1), turn_id="t")
        rows = (await repository.conversations()).items
        assert {row.conversation_id for row in rows} == {repository.stored_id("c"), repository.stored_id("d")}
        assert [row.conversation_id for row in rows] == sorted(row.conversation_id for row in rows)
        assert {row.count for row in rows} == {6, 2}
        for call in (repository.conversations, repository.prune):
            with pytest.raises(InvalidInputError, match="`prefix`"):
                await call(prefix="c")
        plain = EncryptedChatMemoryRepository(repository.repository, KEY)
        assert plain.stored_id("c") == "c"
        await plain.append("not hashed", pair(1), turn_id="t")
        assert (await repository.conversations()).items == rows
        assert await repository.delete("c")


async def test_the_hashes_that_are_listed_are_ids_to_every_method(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner(), hash_ids=True)) as repository:
        memory = ChatMemory(repository=repository, concurrency=Serialize())
        await memory.add("d", pair(1))
        for row in (await memory.conversations()).items:
            hashed = row.conversation_id
            assert repository.stored_id(hashed) == hashed
            assert await memory.count(hashed) == len((await memory.history(hashed)).items) == row.count
        hashed = repository.stored_id("c")
        turn = await memory.begin(hashed, pair(3))
        with pytest.raises(ConversationBusyError):
            await ChatMemory(repository=repository, concurrency=Reject()).begin("c", [])
        await turn.commit()
        assert (await memory.get("c"))[-2:] == tuple(pair(3))
        await memory.restore("e", await memory.snapshot(hashed))
        await memory.fork(hashed, "f")
        assert await memory.rename(repository.stored_id("f"), "g")
        assert await memory.clear(hashed)
        assert not await memory.clear("c")
        assert await memory.count("e") == await memory.count("g") == 8
        assert await memory.clear_all("", everything=True) == 3
        assert not (await memory.conversations()).items


@pytest.mark.parametrize(
    ("keys", "names_key"),
    [(OTHER, None), ([KEY, OTHER], None), (KEY, OTHER)],
    ids=["another", "another put last", "another for names"],
)
async def test_a_wrong_key_of_names_is_an_error_and_no_empty_conversation(
    inner: Callable[..., Any], keys: Any, names_key: Any
) -> None:
    async with closing(await _filled(inner(), hash_ids=True)) as repository:
        wrong = EncryptedChatMemoryRepository(repository.repository, keys, hash_ids=True, names_key=names_key)
        for call in (
            lambda: wrong.recall("c", 1),
            lambda: wrong.page("c"),
            lambda: wrong.append("c", pair(3), turn_id="t3"),
            lambda: wrong.replace("c", pair(3)),
            lambda: wrong.rotate("c"),
            lambda: wrong.delete("c"),
            lambda: wrong.rename("c", "d"),
            lambda: wrong.fork("c", "d"),
            lambda: wrong.acquire("c", "owner", 60),
            lambda: ChatMemory(repository=wrong).get("c"),
            lambda: ChatMemory(repository=wrong).clear_all("", everything=True),
        ):
            with pytest.raises(StorageError, match=r"another key.*`names_key`"):
                await call()
        rows = (await repository.repository.conversations()).items
        assert [(row.conversation_id, row.count) for row in rows] == [(repository.stored_id("c"), 6)]


async def test_a_wrong_key_is_an_error_where_the_key_of_names_is_right(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner(), hash_ids=True)) as repository:
        wrong = EncryptedChatMemoryRepository(repository.repository, OTHER, hash_ids=True, names_key=KEY)
        for call in (lambda: wrong.recall("c", 1), lambda: wrong.append("c", pair(3), turn_id="t3")):
            with pytest.raises(StorageError, match=r"entry \d+ cannot be decrypted"):
                await call()
        assert (await repository.recall("c", 1)).count == 6


async def test_the_key_of_names_is_compared_once(inner: Callable[..., Any]) -> None:
    async with closing(EncryptedChatMemoryRepository(inner(), KEY, hash_ids=True)) as repository:
        store, listed, asked = repository.repository, repository.repository.conversations, 0

        async def counted(**named: Any) -> Any:
            nonlocal asked
            asked += 1
            return await listed(**named)

        store.conversations = counted
        await repository.append("c", pair(1), turn_id="t1")
        assert asked == 1  # there is nothing to compare it with
        for _ in range(5):
            await repository.recall("c", 1)
        assert asked == 2


async def test_who_shares_a_store_with_another_key_of_names_has_it_compared_with_its_own(inner: Callable[..., Any]) -> None:
    """Two that began on one empty store: whose ids come first is chance."""
    async with closing(inner()) as store:
        both = [EncryptedChatMemoryRepository(store, key, hash_ids=True) for key in (KEY, OTHER)]
        for repository in both:
            repository._named = True
            await repository.append("c", pair(1), turn_id="t")
        for key in (KEY, OTHER):
            assert (await EncryptedChatMemoryRepository(store, key, hash_ids=True).recall("c", 1)).count == 2
        with pytest.raises(StorageError, match="another key"):
            await EncryptedChatMemoryRepository(store, THIRD, hash_ids=True).recall("c", 1)


@pytest.mark.parametrize("hash_ids", [False, True])
async def test_keys_change_while_several_processes_run(inner: Callable[..., Any], hash_ids: bool) -> None:
    """Each step may be given to one process before the other has it, and both read and write."""
    steps: list[Any] = [KEY, [KEY, OTHER], [OTHER, KEY], OTHER]
    async with closing(EncryptedChatMemoryRepository(inner(), KEY)) as outer:
        processes = [
            EncryptedChatMemoryRepository(outer.repository, keys, hash_ids=hash_ids, names_key=None if keys == KEY else KEY)
            for keys in steps
        ]
        turns = 0
        for before, behind in pairwise(processes):
            if behind is processes[-1]:
                assert await before.rotate("c")
            for process in (before, behind, before):
                turns += 1
                for again in (process, before, behind):  # a turn that is stored again is known
                    await again.append("c", pair(turns), turn_id=f"t{turns}")
                for reader in (before, behind):
                    assert (await reader.recall("c", None)).count == 2 * turns
                assert len({reader.stored_id("c") for reader in processes}) == 1


async def test_a_replacement_is_tried_again_when_others_write(inner: Callable[..., Any]) -> None:
    async with closing(await _filled(inner())) as repository:
        store, recall, forestalled = repository.repository, repository.repository.recall, 0

        async def slow(*args: Any, **named: Any) -> Any:
            nonlocal forestalled
            found = await recall(*args, **named)
            if forestalled < 3:
                forestalled += 1
                hidden = EncryptedChatMemoryRepository(InMemoryChatMemoryRepository(), KEY)
                await hidden.append("x", pair(9), turn_id=f"x{forestalled}")
                await store.append("c", [], turn_id="x")
                entries = (await hidden.repository.page("x")).items
                await store.append("c", [entry.message for entry in entries], turn_id=entries[0].turn_id)
            return found

        store.recall = slow
        assert await repository.replace("c", [SystemMessage("secret A"), UserMessage("new")]) == 6
        first, second = (await repository.page("c")).items
        assert (first.turn_id, second.message.text) == ("t1", "new")
        forestalled = -100
        with pytest.raises(ConversationConflictError):
            await repository.replace("c", pair(1))
        with pytest.raises(ConversationConflictError):
            await repository.rotate("c") or await EncryptedChatMemoryRepository(store, [OTHER, KEY]).rotate("c")


async def test_large_messages_are_encrypted_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    seal, unseal = Cipher.seal, Cipher.open

    def sealing(*given: Any) -> Any:
        threads.add(threading.get_ident())
        return seal(*given)

    def opening(*given: Any) -> Any:
        threads.add(threading.get_ident())
        return unseal(*given)

    monkeypatch.setattr(Cipher, "seal", sealing)
    monkeypatch.setattr(Cipher, "open", opening)
    repository = EncryptedChatMemoryRepository(InMemoryChatMemoryRepository(), KEY)
    image = ImagePart(data=b"x" * 300_000, media_type="image/png")
    await repository.append("c", [UserMessage((image,))], turn_id="t1")
    assert (await repository.recall("c", 1)).tail[0].message == UserMessage((image,))
    assert threading.get_ident() not in threads
    threads.clear()
    await repository.append("d", pair(1), turn_id="t1")
    await repository.recall("d", 1)
    assert threads == {threading.get_ident()}


CONTENT = st.one_of(st.text(max_size=5), st.lists(st.text(max_size=3).map(TextPart), min_size=1, max_size=2).map(tuple))


@given(one=CONTENT, other=CONTENT)
def test_equal_system_messages_and_only_these_are_seen_to_be_equal(one: Any, other: Any) -> None:
    cipher = Cipher(KEY)
    first, second = (cipher.seal(SystemMessage(each), Sealed("t", "b", "w", 0, "message")) for each in (one, other))
    assert (first.content == second.content) == (one == other)
    assert first.metadata != second.metadata
