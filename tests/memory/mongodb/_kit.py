"""What the tests of MongoDB share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def closing(repository: Any) -> AsyncIterator[Any]:
    try:
        yield repository
    finally:
        await repository.aclose()


def prefix_of(repository: Any) -> str:
    return str(repository._hop.store.meta.name.removesuffix("meta"))


def check_no_remains(repository: Any) -> None:
    """What is no conversation's any more is gone."""
    store = repository._hop.store
    logs = {found["log"] for found in store.conversations.find({})}
    assert {found["log"] for found in store.entries.find({})} <= logs
    assert not list(store.garbage.find({"at": {"$lt": store.ticks() - 3_600_000_000}}))
