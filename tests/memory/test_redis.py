"""Chat memory in Redis and Valkey: the laws, the handed cases, and what is in the keys."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import anyio
import pytest
from coredis import Redis
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import (
    ConfigurationError,
    ConversationConflictError,
    ConversationDeletedError,
    InvalidInputError,
    LeaseLostError,
    StorageError,
)
from advisorchain.memory import ChatMemory, MessageWindow
from advisorchain.memory.repositories import redis
from advisorchain.memory.repositories._redis import rows as _redis_rows
from advisorchain.memory.repositories._redis.entries import EntryReader
from advisorchain.memory.repositories._redis.rows import all_slots, new_life, payload
from advisorchain.memory.repositories._redis.rows import keys_of as names_of
from advisorchain.memory.repositories._redis.scripts import APPEND
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

from ._kit import everything, pair, texts
from ._redis_servers import KINDS, Clock, check_laws, keys_of, repository, server

pytestmark = pytest.mark.slow  # asks a server
HOUR = 3_600_000  # milliseconds that keys outlive their conversation


@pytest.fixture(scope="session", params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    return server(request.param).url


@pytest.fixture
def opened(url: str) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened_(**options: Any) -> AsyncIterator[RedisChatMemoryRepository]:
        made = repository(url, **options)
        try:
            yield made
        finally:
            await made.aclose()

    return opened_


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid4().hex}"


async def fill(store: Any, turns: int, conversation_id: str = "c", **options: Any) -> None:
    for number in range(1, turns + 1):
        await store.append(conversation_id, pair(number), turn_id=f"t{number}", **options)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_laws(kind: str) -> None:
    await check_laws(server(kind).url, server(kind))


@pytest.mark.long
@pytest.mark.slow  # waits for half a minute
@pytest.mark.only_on("asyncio")  # what the server's clock does, it does on both
@pytest.mark.parametrize("kind", KINDS)
async def test_the_laws_by_the_clock_of_the_server(kind: str) -> None:
    await check_laws(server(kind).url, server(kind), wait=True)


# --- the handed cases


async def test_B047_each_write_path_begins_the_time_to_live_anew(opened: Any, url: str, prefix: str) -> None:
    clock = Clock()
    async with opened(clock=clock, prefix=prefix) as store:

        async def left() -> timedelta:
            row = (await store.conversations()).items[0]
            keys = await keys_of(url, f"{prefix}:*")
            own = {key: ms for key, ms in keys.items() if key.endswith((":c", ":c:log", ":c:turns"))}
            assert len(own) == 3
            assert all(59_000 + HOUR < ms <= 60_000 + HOUR for ms in own.values()), own
            assert row.expires is not None
            return row.expires - row.updated

        await store.append("c", pair(1), turn_id="t1", retention=Retention(ttl=timedelta(seconds=60)))
        assert await left() == timedelta(seconds=60)
        clock.seconds += 30
        async with Redis.from_url(url) as client:  # as if half a minute had gone by in the server, too
            for key in await keys_of(url, f"{prefix}:*:c*"):
                await client.pexpire(key, 30_000 + HOUR)
        await store.append("c", pair(2), turn_id="t2")
        assert await left() == timedelta(seconds=60)
        clock.seconds += 59
        await store.replace("c", [*pair(1), *pair(3)])
        assert await left() == timedelta(seconds=60)
        clock.seconds += 59
        await store.append("c", pair(4), turn_id="t4", retention=Retention(max_messages=2))  # trims
        assert await left() == timedelta(seconds=60)
        assert await texts(store) == ["u4", "a4"]
        clock.seconds += 59
        assert await store.append("c", pair(4), turn_id="t4") == 4  # repeated: nothing is written
        clock.seconds += 1
        assert await texts(store) == []
        assert (await store.conversations()).items == ()
        assert await store.prune() == 1
        assert set(await keys_of(url, f"{prefix}:*:c*")) <= {
            key for key in await keys_of(url, f"{prefix}:*") if key.endswith(":gone")
        }


async def test_B047_a_time_to_live_can_be_taken_away(opened: Any, url: str, prefix: str) -> None:
    async with opened(prefix=prefix) as store:
        await store.append("c", pair(1), turn_id="t1", retention=Retention(ttl=timedelta(seconds=60)))
        await store.append("c", pair(2), turn_id="t2", retention=Retention(ttl=timedelta.max))
        assert set((await keys_of(url, f"{prefix}:*")).values()) == {-1}
        assert (await store.conversations()).items[0].expires is None
        await store.delete("c")


@pytest.mark.parametrize("most", [1, 2, 4, 10])
async def test_B049_a_policy_says_the_same_on_redis_as_in_memory(opened: Any, url: str, most: int, prefix: str) -> None:
    said: list[Message] = [
        SystemMessage("be brief"),
        *pair(1),
        *pair(2),
        ToolMessage("r", tool_call_id="k"),
        *pair(3),
        *pair(4),
    ]
    async with opened(prefix=prefix) as store:
        views = []
        for place in (InMemoryChatMemoryRepository(), store):
            memory = ChatMemory(policy=MessageWindow(most), repository=place)
            for message in said:
                await memory.add("c", [message])
            views.append(await memory.get("c"))
        assert views[0] == views[1]
        for number in range(50):
            await store.append("c", pair(number), turn_id=f"n{number}", retention=Retention(max_messages=most))
        async with Redis.from_url(url) as client:
            (log,) = [key for key in await keys_of(url, f"{prefix}:*") if key.endswith(":c:log")]
            assert await client.zcard(log) <= max(most, 2) + 1  # and the system message in force
        await store.delete("c")


async def test_B172_ids_with_dashes_spaces_braces_stars_colons_and_quotes(opened: Any) -> None:
    ids = ["0a1b2c3d-1111-4222-8333-444455556666", "a b", "x{1}", "u*", "u?", "a:b", "o'brien", "@tag", "u1", "u2"]
    ids += ["{", "}", "{}", "{a}{b}", "}{", "%7B", "a:b:log", "c:log", "c", ":", "::ids", "log"]
    async with opened() as store:
        for name in ids:
            await store.append(name, [UserMessage(f"for {name}")], turn_id="t")
        for name in ids:
            assert await texts(store, name) == [f"for {name}"]
        assert [row.conversation_id for row in (await store.conversations()).items] == sorted(ids)
        assert await store.delete("u*")
        left = [row.conversation_id for row in (await store.conversations()).items]
        assert left == sorted(set(ids) - {"u*"})
        assert await texts(store, "u1") == ["for u1"]


# --- keys


@given(
    st.lists(st.text(min_size=1, max_size=255).filter(lambda name: "\0" not in name), min_size=2, max_size=2, unique=True)
)
def test_no_id_breaks_out_of_its_place(ids: list[str]) -> None:
    one, other = (names_of("advisorchain", name) for name in ids)
    assert not {one.head, one.log, one.turns, one.lease, one.gone} & {
        other.head,
        other.log,
        other.turns,
        other.lease,
        other.gone,
    }
    for keys in (one, other):
        tags = {key[key.index("{") + 1 : key.index("}")] for key in (*keys, *keys.staged("n"))}
        assert len(tags) == 1
        assert all(key.count("{") == key.count("}") == 1 for key in keys)
        assert all(len(key) < 300 for key in keys)


def test_slots_lie_at_equal_distances() -> None:
    places = [
        crc_hqx(slot.ids[slot.ids.index("{") + 1 : slot.ids.index("}")].encode(), 0) % 16_384 for slot in all_slots("p")
    ]
    assert [place // 256 for place in places] == list(range(64))


async def test_prefixes_do_not_know_each_other(opened: Any) -> None:
    async with opened(prefix="one") as one, opened(prefix="one:two") as two:
        await one.append("c", pair(1), turn_id="t")
        assert await texts(two) == []
        assert (await two.conversations()).items == ()
        assert await one.delete("c")


@pytest.mark.parametrize("prefix", ["", " ", "a{b", "a}b", "a\0b", 7, None])
def test_a_prefix_that_would_break_keys_is_refused(prefix: Any) -> None:
    with pytest.raises(ConfigurationError, match="`prefix`"):
        RedisChatMemoryRepository("redis://localhost", prefix=prefix)


async def test_nothing_is_left_behind(opened: Any, url: str, prefix: str) -> None:
    async with opened(prefix=prefix) as store:
        await fill(store, 3)
        await store.fork("c", "d", at=3)
        await store.replace("c", [*pair(1), UserMessage("x")], retention=Retention(ttl=timedelta(days=1)))
        await store.rename("c", "e")
        token = await store.acquire("e", "one", 5)
        await store.release("e", token)
        assert await store.delete("d")
        assert await store.delete("e")
        left = await keys_of(url, f"{prefix}:*")
        assert {key.rpartition(":")[2] for key in left} == {"gone", "tokens"}
        assert all(0 < ms <= 60_000 for key, ms in left.items() if key.endswith("gone"))


async def test_a_conversation_that_was_evicted_in_part_is_not_there(opened: Any, url: str, prefix: str) -> None:
    async with opened(prefix=prefix) as store, Redis.from_url(url) as client:
        for name, what in (("a", "log"), ("b", "turns"), ("c", "")):
            await fill(store, 3, name)
            await client.delete([key for key in await keys_of(url, f"{prefix}:*:{name}*") if key.endswith(what or ":c")])
        assert [row.conversation_id for row in (await store.conversations()).items] == ["b"]
        for name in ("a", "c"):
            assert await texts(store, name) == []
            await fill(store, 1, name)
            assert await texts(store, name) == ["u1", "a1"]
        assert await store.rename("b", "d")
        assert await texts(store, "d") == ["u1", "a1", "u2", "a2", "u3", "a3"]
        for name in ("a", "c", "d"):
            assert await store.delete(name)


# --- one trip


async def test_a_turn_is_two_trips_and_the_same_at_any_length(opened: Any, url: str) -> None:
    async with opened() as store, Redis.from_url(url) as client:
        await fill(store, 2)
        await store.append("long", [message for number in range(2000) for message in pair(number)], turn_id="t")

        async def trips(conversation_id: str) -> dict[str, int]:
            before = await client.info("commandstats")
            await store.recall(conversation_id, 20)
            await store.append(conversation_id, pair(1), turn_id="new")
            after = await client.info("commandstats")
            names = [name for name in after if "evalsha" in name or name in ("cmdstat_zadd", "cmdstat_zrange")]
            return {name: _calls(after, name) - _calls(before, name) for name in names}

        short = await trips("c")
        assert short["cmdstat_evalsha"] == short["cmdstat_evalsha_ro"] == 1
        assert await trips("long") == short


def _calls(stats: Any, name: str) -> int:
    found = stats.get(name, {})
    return int(
        found["calls"]
        if isinstance(found, dict)
        else dict(part.split("=") for part in found.split(","))["calls"]
        if found
        else 0
    )


# --- contract beside the laws


async def test_a_turn_that_was_begun_before_the_end_is_stored_in_a_new_life(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        await fill(store, 2, retention=Retention(ttl=timedelta(seconds=10)))
        first = (await store.recall("c", 1)).incarnation
        clock.seconds += 11
        assert (await store.recall("c", 1)).incarnation == 0
        assert await store.append("c", pair(3), turn_id="t3", incarnation=first, expected=0) == 1
        assert await store.append("c", pair(3), turn_id="t3", incarnation=first) == 1  # its answer was lost
        with pytest.raises(ConversationDeletedError):
            await store.append("c", pair(4), turn_id="t4", incarnation=first)
        assert await texts(store) == ["u3", "a3"]
        assert (await everything(store))[0].sequence == 1
        assert (await store.conversations()).items[0].expires is None


async def test_ids_whose_keys_are_gone_leave_the_list(opened: Any, url: str, prefix: str) -> None:
    async with opened(prefix=prefix) as store, Redis.from_url(url) as client:
        slot = names_of(prefix, "new").ids
        near = [name for name in map(str, range(2000)) if names_of(prefix, name).ids == slot][:3]
        for name in near:
            await fill(store, 1, name, retention=Retention(ttl=timedelta(seconds=1)))
        for name in near:
            keys = names_of(prefix, name)
            await client.delete([keys.head, keys.log, keys.turns])  # as their expiry does
            await client.zadd(keys.ends, {name: 1})
        assert (await store.conversations()).items == ()
        assert await client.zcard(slot) == 3
        await fill(store, 1, "new")
        assert await client.zcard(slot) == 2  # two went, one came
        assert await store.prune() == 1
        assert await client.zcard(slot) == 1
        await store.delete("new")


async def test_prune_goes_on_where_it_stopped(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        for number in range(30):
            short = number % 3 == 0
            await fill(store, 1, f"c{number:02}", retention=Retention(ttl=timedelta(seconds=5 if short else 500)))
        clock.seconds += 6
        assert [await store.prune(limit=4) for _ in range(4)] == [4, 4, 2, 0]
        assert len((await store.conversations()).items) == 20
        assert (
            await store.prune(prefix="c1", before=(await store.conversations()).items[-1].updated + timedelta(days=1)) == 7
        )
        assert await store.prune(prefix="c1") == 0
        assert len((await store.conversations()).items) == 13


async def test_prune_that_went_on_and_found_nothing_looks_at_what_lies_before(opened: Any) -> None:
    clock = Clock()
    async with opened(clock=clock) as store:
        for name, seconds in (("a", 50), ("b", 5), ("c", 500)):
            await fill(store, 1, name, retention=Retention(ttl=timedelta(seconds=seconds)))
        clock.seconds += 6
        assert await store.prune(limit=1) == 1
        clock.seconds += 50
        assert await store.prune(limit=1) == 1
        assert [row.conversation_id for row in (await store.conversations()).items] == ["c"]
        assert await store.prune(limit=1) == 0


async def test_a_list_of_many_comes_in_order_and_in_parts(opened: Any) -> None:
    names = sorted({f"{number * 7919 % 997:03}{'x' * (number % 5)}" for number in range(400)})
    async with opened() as store:
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(fill, store, 1, name)
        for limit in (1, 7, 100, 1000):
            found: list[str] = []
            cursor = None
            while True:
                page = await store.conversations(after=cursor, limit=limit, prefix="" if limit > 1 else "99")
                found += [row.conversation_id for row in page.items]
                cursor = page.next
                if cursor is None:
                    break
            assert found == (names if limit > 1 else [name for name in names if name.startswith("99")])


async def test_turn_ids_without_entries_do_not_grow_for_ever(opened: Any, url: str, monkeypatch: Any, prefix: str) -> None:
    async with opened(prefix=prefix) as store, Redis.from_url(url) as client:
        for number in range(1100):
            await store.append("c", [UserMessage("u")], turn_id=f"t{number}", retention=Retention(max_messages=1))
        assert await client.zcard(names_of(prefix, "c").turns) == 1001
        assert await store.append("c", [UserMessage("u")], turn_id="t100") == 1100  # still known
        assert await store.append("c", [UserMessage("u")], turn_id="t5") == 1101
        await store.delete("c")


async def test_a_lease_is_kept_for_its_token_and_goes_in_the_end(opened: Any, url: str, prefix: str) -> None:
    clock = Clock()
    async with opened(clock=clock, prefix=prefix) as store:
        token = await store.acquire("c", "one", 1e300)
        assert await store.acquire("c", "two", 5) is None
        await store.release("c", token)
        token = await store.acquire("c", "two", 5)
        clock.seconds += 60
        assert await store.append("c", pair(1), turn_id="t1", token=token) == 1
        assert await store.acquire("c", "three", 5) > token
        with pytest.raises(LeaseLostError, match="`token`"):
            await store.append("c", pair(2), turn_id="t2", token=token)
        (ms,) = [ms for key, ms in (await keys_of(url, f"{prefix}:*")).items() if key.endswith(":lease")]
        assert 86_400_000 < ms <= 86_405_000
        await store.delete("c")


async def test_what_is_no_number_is_refused_before_anything_is_sent() -> None:
    store: Any = RedisChatMemoryRepository("redis://127.0.0.1:1")
    for wrong in ({"incarnation": "1"}, {"expected": -1}, {"token": 0}, {"token": "x"}, {"retention": 5}):
        with pytest.raises(InvalidInputError):
            await store.append("c", pair(1), turn_id="t", **wrong)
    with pytest.raises(InvalidInputError, match="`at`"):
        await store.fork("c", "d", at=-1)
    with pytest.raises(InvalidInputError, match="`before`"):
        await store.prune(before="yesterday")


# --- when another writes meanwhile


def interrupted(store: Any, method: str, times: int) -> None:
    """Lets another append a turn after each of the next calls of this method."""
    original = getattr(store._moves, method)
    left = times

    async def then_another(*given: Any, **named: Any) -> Any:
        nonlocal left
        found = await original(*given, **named)
        if left:
            left -= 1
            await store.append("c", pair(90 + left), turn_id=f"other{left}")
        return found

    setattr(store._moves, method, then_another)


async def test_replace_begins_anew_when_another_writes_meanwhile(opened: Any, url: str, prefix: str) -> None:
    async with opened(prefix=prefix) as store:
        await fill(store, 2)
        interrupted(store, "_leading", 3)
        assert await store.replace("c", [*pair(1), UserMessage("x")]) == 6
        assert await texts(store) == ["u1", "a1", "x"]
        assert [entry.turn_id for entry in await everything(store)][:2] == ["t1", "t1"]
        assert not [key for key in await keys_of(url, f"{prefix}:*") if ":new:" in key]
        interrupted(store, "_leading", 100)
        with pytest.raises(ConversationConflictError, match=r"written to by others each time.*nothing was stored"):
            await store.replace("c", pair(1))
        assert not [key for key in await keys_of(url, f"{prefix}:*") if ":new:" in key]
        await store.delete("c")


async def test_fork_begins_anew_when_the_log_is_replaced_meanwhile(opened: Any) -> None:
    async with opened() as store:
        await store.append("c", [SystemMessage("s"), SystemMessage("t"), *pair(1)], turn_id="t1")
        original, cuts = store._moves._cut, []

        async def cut_then_trimmed(*given: Any) -> Any:
            found = await original(*given)
            cuts.append(found)
            if len(cuts) == 1:
                await store.append("c", pair(2), turn_id="t2", retention=Retention(max_messages=2))
            return found

        store._moves._cut = cut_then_trimmed
        assert await store.fork("c", "d", at=5)
        assert await texts(store, "d") == ["s", "t", "u2"]
        assert len(cuts) == 2
        assert await store.fork("c", "e", at=1)
        assert await texts(store, "e") == ["s"]


async def test_a_log_that_changes_while_it_is_read_is_read_again(opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("advisorchain.memory.repositories._redis.moves._PART", 2)
    async with opened() as store:
        await fill(store, 4)
        original, asked = store._server.ask, 0

        async def ask(script: Any, *given: Any) -> Any:
            nonlocal asked
            answer = await original(script, *given)
            asked += 1
            if asked == 2:  # between two parts
                await original(
                    APPEND, store._server.keys("c").body, "t9", "", "", "", "", "", "c", 7, payload(pair(9)[0], "t9")
                )
            return answer

        monkeypatch.setattr(store._server, "ask", ask)
        assert await store.replace("c", [*pair(1), *pair(2), *pair(3), UserMessage("x")]) == 6
        monkeypatch.undo()
        assert await texts(store) == ["u1", "a1", "u2", "a2", "u3", "a3", "x"]
        assert [entry.turn_id for entry in await everything(store)][:6] == ["t1", "t1", "t2", "t2", "t3", "t3"]


# --- size


async def test_what_redis_cannot_keep_is_refused_before_it_is_sent(monkeypatch: Any) -> None:
    store = RedisChatMemoryRepository("redis://127.0.0.1:1")
    monkeypatch.setattr(_redis_rows, "MOST_BYTES", 1000)
    with pytest.raises(StorageError, match="a user message has more than 1000 bytes as JSON"):
        await store.append("c", [UserMessage("ü" * 600)], turn_id="t")
    monkeypatch.setattr(redis, "_BATCH_BYTES", 1000)
    with pytest.raises(StorageError, match="in several batches"):
        await store.append("c", [UserMessage("x" * 400)] * 3, turn_id="t")


async def test_replace_puts_together_what_is_more_than_one_trip(opened: Any, monkeypatch: Any) -> None:
    many: list[Message] = [message for number in range(1300) for message in pair(number)]
    async with opened() as store:
        await store.append("c", many, turn_id="t")
        assert await store.replace("c", [SystemMessage("s"), *many[1:], UserMessage("x" * 9_000_000)]) == 2
        found = await everything(store)
        assert [entry.message for entry in found[1:-1]] == many[1:]
        assert [entry.sequence for entry in found] == list(range(2601, 5202))
        assert await store.append("c", many, turn_id="t") == 2


@pytest.mark.slow
async def test_text_of_any_size(opened: Any) -> None:
    batch = [UserMessage("x" * 100_000_000), AssistantMessage("ü" * 20_000_000)]
    async with opened(timeout=120) as store:
        await store.append("c", batch, turn_id="t")
        found = await store.recall("c", 20)
        assert [len(entry.message.text) for entry in found.tail] == [100_000_000, 20_000_000]
        assert [entry.message for entry in found.tail] == batch
        await store.delete("c")


# --- entries


def test_an_entry_is_parsed_once() -> None:
    reader = EntryReader("redis://here")
    row = b"1 1 1790000000000000 u - 1 t" + b'{"role":"user","content":"hi"}'
    (entry,) = reader.entries("c", [row])
    assert reader.entries("c", [row])[0] is entry
    other = row.replace(b"hi", b"ho")  # what a failover made of the same sequence
    assert reader.entries("c", [other])[0].message == UserMessage("ho")
    (entry,) = reader.entries("c", [row])
    reader.forget("d")
    assert reader.entries("c", [row])[0] is entry
    reader.forget("c")
    assert reader.entries("c", [row])[0] is not entry


def test_an_entry_that_cannot_be_read_names_the_server() -> None:
    with pytest.raises(StorageError, match=r"entry 7 on `redis://here` cannot be read") as caught:
        EntryReader("redis://here").entries("c", [b'7 7 1790000000000000 u - 1 t{"role":"pirate","content":"secret"}'])
    assert "secret" not in str(caught.value)


def test_lives_are_never_zero() -> None:
    assert all(0 < new_life() < 2**53 for _ in range(1000))
