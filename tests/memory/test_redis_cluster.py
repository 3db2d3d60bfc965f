"""Chat memory in a cluster of three Redis nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import anyio
import pytest
from coredis import RedisCluster
from coredis.connection import TCPLocation

from advisorchain.errors import ConversationConflictError, StorageError
from advisorchain.memory.repositories._redis import copies as _redis_copies
from advisorchain.memory.repositories._redis.connections import TidyClusterPool
from advisorchain.memory.repositories.redis import RedisChatMemoryRepository
from advisorchain.memory.repository import Retention
from advisorchain.messages import SystemMessage

from ._kit import pair, texts
from ._redis_servers import check_laws, cluster, cluster_url, keys_of, repository

pytestmark = pytest.mark.slow


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[RedisChatMemoryRepository]:
    made = repository(cluster_url(), **options)
    try:
        yield made
    finally:
        await made.aclose()


async def test_the_laws() -> None:
    await check_laws(cluster_url(), *cluster())


async def test_conversations_lie_on_all_nodes_and_are_listed_in_order() -> None:
    names = [f"c{number:03}" for number in range(200)]
    async with opened() as store:
        for name in names:
            await store.append(name, pair(1), turn_id="t")
        shares = [len(await keys_of(node.url, f"{store._server.prefix}:*:c*:log")) for node in cluster()]
        assert sum(shares) == 200
        assert min(shares) > 30
        found: list[str] = []
        cursor = None
        while True:
            page = await store.conversations(after=cursor, limit=17)
            found += [row.conversation_id for row in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert found == names
        assert await store.prune(before=page.items[0].updated + timedelta(days=1)) == 200


@pytest.mark.parametrize("at", [None, 3])
async def test_fork_and_rename_between_slots(at: int | None, monkeypatch: Any) -> None:
    monkeypatch.setattr(_redis_copies, "_PART", 3)  # in many trips
    async with opened() as store:
        await store.append("a", [SystemMessage("s"), *pair(1)], turn_id="t1", retention=Retention(ttl=timedelta(hours=1)))
        await store.append("a", pair(2), turn_id="t2")
        said = ["s", "u1", "a1", "u2", "a2"][:at]
        others = [f"other{number}" for number in range(12)]
        for name in others:
            assert await store.fork("a", name, at=at)
            assert await texts(store, name) == said
            with pytest.raises(ConversationConflictError, match="`new_id`"):
                await store.fork("a", name, at=at)
            assert await store.rename(name, f"{name} new")
            assert not await store.rename(name, f"{name} newer")
            assert await texts(store, name) == []
            assert await texts(store, f"{name} new") == said
            with pytest.raises(ConversationConflictError, match="`new_id`"):
                await store.rename("a", f"{name} new")
            assert await store.append(f"{name} new", pair(2), turn_id="t2") == (1 if at is None else 2)
        rows = {row.conversation_id: row for row in (await store.conversations()).items}
        assert set(rows) == {"a", *(f"{name} new" for name in others)}
        assert {row.expires is not None and row.expires - row.updated for row in rows.values()} == {timedelta(hours=1)}
        assert not await store.fork("nobody", "somebody")
        for name in rows:
            assert await store.delete(name)
        left = [key for node in cluster() for key in await keys_of(node.url, f"{store._server.prefix}:*")]
        assert {key.rpartition(":")[2] for key in left} <= {"gone"}


async def test_nothing_is_lost_while_a_conversation_is_renamed() -> None:
    async with opened() as store:
        await store.append("a", pair(0), turn_id="t0")
        stored, stopped = 1, False

        async def write() -> None:
            nonlocal stored
            while not stopped:
                await store.append("a", pair(stored), turn_id=f"t{stored}")
                stored += 1
                await anyio.sleep(0.002 * (stored % 7))

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            for number in range(20):
                with suppress(ConversationConflictError):  # others were faster each time: told, and nothing moved
                    await store.rename("a", f"b{number}")
                await anyio.sleep(0.005)
            stopped = True
        found = [len(await texts(store, row.conversation_id)) for row in (await store.conversations()).items]
        assert sum(found) == 2 * stored
        assert len(found) > 1
        for row in (await store.conversations()).items:
            await store.delete(row.conversation_id)


async def test_a_client_of_a_cluster_that_is_given() -> None:
    nodes = [TCPLocation("127.0.0.1", node.port) for node in cluster()]
    async with RedisCluster(connection_pool=TidyClusterPool(startup_nodes=nodes)) as client:
        store: Any = repository(client)
        assert await store.append("c", pair(1), turn_id="t1") == 1
        assert await store.rename("c", "d")
        assert await store.delete("d")
        await store.aclose()


async def test_a_node_of_a_cluster_by_the_wrong_url_is_told() -> None:
    store = repository(cluster()[0].url)
    with pytest.raises(StorageError, match=r"node of a cluster; give its URL with `redis\+cluster://`"):
        for number in range(50):
            await store.append(f"c{number}", pair(1), turn_id="t")
    await store.aclose()


async def test_a_cluster_that_is_not_there_is_told() -> None:
    store = RedisChatMemoryRepository("redis+cluster://u:hush@127.0.0.1:1")
    with pytest.raises(StorageError, match="cluster that cannot be reached") as caught:
        await store.recall("c", 5)
    assert "hush" not in str(caught.value)
    await store.aclose()


async def test_a_rename_that_others_write_into_is_undone_and_begun_anew() -> None:
    async with opened() as store:
        others = [name for name in map(str, range(50)) if store._server.keys(name).ids != store._server.keys("a").ids]
        await store.append("a", pair(1), turn_id="t1")
        original, left = store._moves._gone, 2

        async def written_first(keys: Any, conversation_id: str, which: Any) -> bool:
            nonlocal left
            if conversation_id == "a" and left:
                left -= 1
                await store.append("a", pair(7 + left), turn_id=f"other{left}")
            return await original(keys, conversation_id, which)

        store._moves._gone = written_first
        assert await store.rename("a", others[0])
        assert await texts(store, "a") == []
        assert await texts(store, others[0]) == ["u1", "a1", "u8", "a8", "u7", "a7"]

        async def written_to_both(keys: Any, conversation_id: str, which: Any) -> bool:
            await store.append(conversation_id, pair(5), turn_id=f"both {conversation_id}")
            return await original(keys, conversation_id, which)

        store._moves._gone = written_to_both
        with pytest.raises(ConversationConflictError, match="written to by others"):
            await store.rename(
                others[0], others[1] if store._server.keys(others[1]).ids != store._server.keys(others[0]).ids else "a"
            )
        for row in (await store.conversations()).items:
            assert (await texts(store, row.conversation_id))[-2:] == ["u5", "a5"]  # nothing is thrown away
            await store.delete(row.conversation_id)


async def test_a_fork_between_slots_begins_anew_when_the_log_is_replaced_meanwhile() -> None:
    async with opened() as store:
        other = next(name for name in map(str, range(50)) if store._server.keys(name).ids != store._server.keys("a").ids)
        await store.append("a", [SystemMessage("s"), *pair(1)], turn_id="t1")
        original, cuts = store._moves._cut, []

        async def cut_then_replaced(*given: Any) -> Any:
            found = await original(*given)
            cuts.append(found)
            if len(cuts) == 1:
                await store.replace("a", pair(2))
            return found

        store._moves._cut = cut_then_replaced
        assert await store.fork("a", other, at=4)
        assert await texts(store, other) == ["u2"]
        assert len(cuts) == 2
        assert not await store.fork("a", f"{other} more", at=1)
        await store.delete("a")
        await store.delete(other)
