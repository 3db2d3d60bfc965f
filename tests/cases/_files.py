"""Where the cases are, and which of them are not run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("ADVISORCHAIN_CASES") or HERE)
RUN = ("window", "memory_advisor", "aggregate", "repository")
BY_HAND = ("chain", "tool_loop", "vector_memory", "reports")

BUILT = frozenset({"client", "tools"})  # values of a case's `needs` that are built by now


def cases_in(folder: Path, name: str) -> list[dict[str, Any]]:
    """The cases of one file; none where there is no such file."""
    path = folder / f"{name}.json"
    if not path.exists():
        return []
    cases = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(cases, list), f"{path.name} is no list of cases"
    return cases


def _reasons(name: str, key: str) -> dict[str, str]:
    return {row["id"]: row[key] for folder in {HERE, FOLDER} for row in cases_in(folder, name)}


LATER = _reasons("later", "needs")
NOT_APPLICABLE = _reasons("not_applicable", "reason")


def why_not_run(case: dict[str, Any]) -> str | None:
    """Why a case is skipped; None: it is run."""
    needs = case.get("needs")
    if needs is not None and needs not in BUILT:
        return f"needs {needs}"
    if case["id"] in LATER:
        return f"needs {LATER[case['id']]}"
    return NOT_APPLICABLE.get(case["id"])
