"""Every case of the four files that are programs, on every store that can be had here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ._aggregate import AggregateProgram
from ._files import FOLDER, RUN, cases_in, why_not_run
from ._memory_advisor import MemoryAdvisorProgram
from ._program import Program
from ._repository import RepositoryProgram
from ._stores import EVERYWHERE, opened
from ._window import WindowProgram

PROGRAMS: dict[str, type[Program]] = {
    "window": WindowProgram,
    "memory_advisor": MemoryAdvisorProgram,
    "aggregate": AggregateProgram,
    "repository": RepositoryProgram,
}


def named(*files: str) -> list[Any]:
    return [pytest.param(name, case, id=str(case["id"])) for name in files for case in cases_in(FOLDER, name)]


async def run_case(name: str, case: dict[str, Any], store: str, folder: Path) -> None:
    if reason := why_not_run(case):
        pytest.skip(reason)
    place = opened(store, folder)
    try:
        await PROGRAMS[name](place).run(case)
    finally:
        await place.aclose()


def test_there_are_cases() -> None:
    assert named(*RUN), f"none of {', '.join(RUN)} (.json) is in the folder of cases"


@pytest.mark.parametrize("store", EVERYWHERE)
@pytest.mark.parametrize(("name", "case"), named("window", "memory_advisor", "repository"))
async def test_case(name: str, case: dict[str, Any], store: str, tmp_path: Path) -> None:
    await run_case(name, case, store, tmp_path)


@pytest.mark.parametrize(("name", "case"), named("aggregate"))
async def test_case_without_store(name: str, case: dict[str, Any], tmp_path: Path) -> None:
    await run_case(name, case, "memory", tmp_path)
