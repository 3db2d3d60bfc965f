"""Nothing of the handed cases is lost: each is run, is a test by its name, or stands where it says what it waits for."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from .cases._files import BY_HAND, HERE, RUN, cases_in, why_not_run

TESTS = Path(__file__).parent
_ID = re.compile(r"(?<![A-Za-z0-9])(?:B\d{3}|[a-z]+_\d{3})(?!\d)")

HANDED = {name: cases_in(HERE, name) for name in (*RUN, *BY_HAND)}
IDS = {str(case["id"]) for cases in HANDED.values() for case in cases}


@cache
def ids_in_test_names() -> dict[str, str]:
    """Each id that stands in a test's name, with one of these names; `win_004` is `win-004`."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                own = _ID.findall(node.name.removeprefix("test_").replace("__", "_"))
                found.update({case_id.replace("_", "-"): f"{path.name}::{node.name}" for case_id in own})
    return found


def listed(name: str) -> list[str]:
    return [str(row["id"]) for row in cases_in(HERE, name)]


def waiting() -> set[str]:
    """The ids that wait for something not built yet, as `later.json` or the case itself says."""
    return {*listed("later"), *(case["id"] for cases in HANDED.values() for case in cases if case.get("needs"))}


def run_by_the_runner() -> set[str]:
    return {case["id"] for name in RUN for case in HANDED[name] if not why_not_run(case)}


def test_every_id_is_handed_once() -> None:
    handed = [case["id"] for cases in HANDED.values() for case in cases]
    assert len(handed) == len(IDS) > 0
    assert all(HANDED[name] for name in (*RUN, *BY_HAND))


def test_every_case_is_run_or_tested_or_listed() -> None:
    lost = IDS - run_by_the_runner() - ids_in_test_names().keys() - waiting() - set(listed("not_applicable"))
    assert not lost, f"neither run nor tested nor listed: {sorted(lost)}"


def test_what_is_listed_is_not_tested() -> None:
    tested = ids_in_test_names()
    both = {case_id: tested[case_id] for case_id in (*listed("later"), *listed("not_applicable")) if case_id in tested}
    assert not both, f"listed as later or not applicable, yet tested: {both}"


def test_what_is_listed_is_listed_once_with_its_reason() -> None:
    rows = [
        *((row, "needs") for row in cases_in(HERE, "later")),
        *((row, "reason") for row in cases_in(HERE, "not_applicable")),
    ]
    ids = [row["id"] for row, _ in rows]
    assert len(ids) == len(set(ids))
    assert set(ids) <= IDS, f"no such case: {sorted(set(ids) - IDS)}"
    for row, key in rows:
        assert row.keys() == {"id", key}
        assert isinstance(row[key], str)
        assert row[key].strip()


def test_no_test_carries_an_id_that_was_not_handed() -> None:
    of_cases = {case_id.partition("-")[0] for case_id in IDS if "-" in case_id}
    unknown = {
        case_id: test
        for case_id, test in ids_in_test_names().items()
        if case_id not in IDS and (case_id.startswith("B") or case_id.partition("-")[0] in of_cases)
    }
    assert not unknown
