"""What the stores of conversations cost, held to bounds: ratios within one run, by CPU time where nothing else is said.

`python tests/benchmarks/stores.py` prints them; names of sections (local, sql, redis, mongodb) behind it choose some.
`--check` measures a section that misses a bound up to three times, and ends with status 1 when it misses it each time. A
store whose server cannot be had is left out, and told; with ADVISORCHAIN_REQUIRE_SERVERS=1 that fails.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from advisorchain.memory import ChatMemoryRepository, InMemoryChatMemoryRepository, SqliteChatMemoryRepository

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "memory")]

MARGIN = 1.1  # CPU time in a shared machine is no finer than that
TRIES = 3

Bounds = Iterator[tuple[str, float, float]]
Left = (pytest.skip.Exception, ImportError)  # as the tests' finders of servers tell that there is none


def local(kind: str) -> Callable[[], Bounds]:
    """The stores in this process, whose CPU time is all that they do."""

    def bounds() -> Bounds:
        from _turns import LONG, by_length

        with tempfile.TemporaryDirectory() as folder:
            short, long = anyio.run(by_length, open_local(kind, Path(folder)))
        yield f"{kind}: a turn at {LONG} messages / at 20, CPU ({long.cpu:.0f} us)", 1.3, long.cpu / short.cpu

    return bounds


def open_local(kind: str, folder: Path) -> ChatMemoryRepository:
    return InMemoryChatMemoryRepository() if kind == "memory" else SqliteChatMemoryRepository(folder / "chat.db")


def sql(kind: str) -> Callable[[], Bounds]:
    def bounds() -> Bounds:
        from _sql_floor import bounds

        yield from bounds(kind)

    return bounds


def redis(kind: str) -> Callable[[], Bounds]:
    def bounds() -> Bounds:
        from _redis_floor import LONG, measure
        from _redis_servers import server

        costs = anyio.run(measure, server(kind).url)
        yield f"{kind}: a turn / the bare client's ({costs.short:.0f} us beside {costs.floor:.0f})", 1.6, costs.over_floor
        yield f"{kind}: a turn at {LONG} messages / at 20, CPU ({costs.long:.0f} us)", 1.3, costs.growth
        told = f"{costs.served_long:.0f} us"
        yield f"{kind}: a turn at {LONG} messages / at 20, in the server ({told})", 1.3, costs.growth_in_server

    return bounds


def mongodb() -> Bounds:
    from _mongodb_floor import LONG, measure
    from _mongodb_server import mongodb_url

    with mongodb_url() as url:
        costs = anyio.run(measure, url)
    yield f"mongodb: a turn at {LONG} messages / at 20, CPU ({costs.long.cpu:.0f} us)", 1.3, costs.growth
    told = f"{costs.long.wall:.0f} us"
    yield f"mongodb: a turn at {LONG} messages / at 20, with the server ({told})", 1.3, costs.growth_with_server


SECTIONS: dict[str, list[Callable[[], Bounds]]] = {
    "local": [local("memory"), local("sqlite")],
    "sql": [sql("postgresql"), sql("mariadb"), sql("sqlite-file")],
    "redis": [redis("redis"), redis("valkey")],
    "mongodb": [mongodb],
}


def measured(bounds: Callable[[], Bounds], tries: int) -> int:
    """Print a section, the best of its tries; how many bounds it misses."""
    best: dict[str, tuple[str, float, float]] = {}
    for _ in range(tries):
        for name, limit, found in bounds():
            key = name.partition("(")[0]
            if key not in best or found < best[key][2]:
                best[key] = name, limit, found
        if all(found <= limit * MARGIN for _, limit, found in best.values()):
            break
    for name, limit, found in best.values():
        verdict = "" if found <= limit else "  over" if found <= limit * MARGIN else "  MISSED"
        print(f"{found:5.2f}  (at most {limit}){verdict:8s} {name}", flush=True)
    return sum(found > limit * MARGIN for _, limit, found in best.values())


def main() -> int:
    check = "--check" in sys.argv[1:]
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")] or list(SECTIONS)
    missed = 0
    for name in wanted:
        for bounds in SECTIONS[name]:
            try:
                missed += measured(bounds, TRIES if check else 1)
            except Left as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                missed += os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") == "1"
    return 1 if check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
