"""A store that reads all of its log misses the bounds on how a turn's cost grows with it, of `benchmarks/stores.py`."""

from __future__ import annotations

import sys
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from advisorchain.memory.repositories import redis
from advisorchain.memory.repositories._redis.lua import Script
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository
from advisorchain.memory.repository import Recall

from ._redis_servers import server

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import _redis_floor
from _turns import by_length

MISSED = 1.3 * 1.1  # the bound and its margin


@pytest.mark.slow
async def test_a_store_that_walks_through_the_log_is_seen() -> None:
    class Walking(InMemoryChatMemoryRepository):
        async def recall(self, conversation_id: str, last: int | None, *, before: int | None = None) -> Recall:
            for _ in (await self.page(conversation_id, limit=1_000_000)).items:
                pass
            return await super().recall(conversation_id, last, before=before)

    short, long = await by_length(Walking(), rounds=3, long=5000)
    assert long.cpu / short.cpu > MISSED


@pytest.mark.slow
async def test_a_script_that_walks_through_the_log_is_seen_in_redis(monkeypatch: Any) -> None:
    walking = Script("")
    walking.text = redis.APPEND.text.replace("local k, lease", "call('ZRANGE', KEYS[2], 0, -1)\nlocal k, lease")  # type: ignore[misc]
    walking.sha = sha1(walking.text.encode(), usedforsecurity=False).hexdigest()  # type: ignore[misc]
    assert walking.text != redis.APPEND.text
    monkeypatch.setattr(redis, "APPEND", walking)
    costs = await _redis_floor.measure(server("redis").url, rounds=3, turns=40)
    assert costs.growth_in_server > MISSED
