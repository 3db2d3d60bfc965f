"""The runner itself: it holds what a case says, fails on what it does not know, and takes other folders of cases."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ._files import HERE, RUN, cases_in, why_not_run
from ._reading import UnknownInCaseError
from ._stores import STORES
from .test_cases import PROGRAMS

CASES = [(name, case) for name in RUN for case in cases_in(HERE, name) if not why_not_run(case)]
FREE = ("metadata", "rate_limit", "context")  # objects with any keys
HINTS = ("kind", "compare")

Path_ = tuple[Any, ...]


def run(name: str, case: dict[str, Any]) -> None:
    anyio.run(PROGRAMS[name](STORES["memory"](Path())).run, case)


def verdict(name: str, case: Any) -> str:
    try:
        run(name, case)
    except UnknownInCaseError:
        return "unknown"
    except Exception:
        return "fails"
    return "holds"


def walk(data: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from walk(value, (*path, key))


def changed(case: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    case = copy.deepcopy(case)
    target: Any = case
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return case


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return f"{value}x"


def expectations(case: dict[str, Any]) -> Iterator[tuple[Path_, Any]]:
    """Every single value that a case expects, wherever it stands."""
    for path, value in walk(case):
        if isinstance(value, dict | list) or path[-1] in HINTS or "set_excludes" in path or value == "ok":
            continue
        if any(str(key).startswith("expect") for key in path):
            yield path, value


@pytest.mark.parametrize(("name", "case"), CASES, ids=[case["id"] for _, case in CASES])
def test_a_case_with_another_expectation_does_not_hold(name: str, case: dict[str, Any]) -> None:
    tried = 0
    for path, value in expectations(case):
        altered = changed(case, path, other(value))
        assert verdict(name, altered) in ("fails", "unknown"), f"nobody looks at {path}"
        tried += 1
    for path, value in walk(case):
        if isinstance(value, list) and path[-1] in ("messages", "set", "expect", "prompt", "memory") and "expect" in path:
            assert verdict(name, changed(case, path, [*value, "one more"])) == "fails", f"nobody counts {path}"
            tried += 1
    assert tried


@pytest.mark.parametrize(("name", "case"), CASES, ids=[case["id"] for _, case in CASES])
def test_a_key_that_nobody_knows_fails_the_case(name: str, case: dict[str, Any]) -> None:
    for path, value in walk(case):
        if isinstance(value, dict) and not any(key in FREE for key in path):
            altered = changed({"case": case}, ("case", *path, "surprise"), 1)["case"]
            assert verdict(name, altered) == "unknown", f"a key in {path} was passed over"


@pytest.mark.parametrize("name", RUN)
def test_an_operation_that_nobody_knows_fails_the_case(name: str) -> None:
    with pytest.raises(UnknownInCaseError, match="unknown `op`: surprise"):
        run(name, {"id": "x", "do": {"op": "surprise"}})


def test_a_step_that_fails_without_being_expected_to_fails_the_case() -> None:
    step = {"op": "append", "conversation_id": "", "messages": ["u1"]}
    assert verdict("repository", {"id": "x", "do": [step, {"op": "find_ids"}], "expect": {"set": []}}) == "fails"
    wanted = {"error": {"kind": "invalid_argument", "about": "conversation_id"}}
    assert verdict("repository", {"id": "x", "do": [{**step, "expect": wanted}]}) == "holds"
    assert verdict("repository", {"id": "x", "do": [step], "expect": wanted}) == "holds"
    assert verdict("repository", {"id": "x", "do": [step, {"op": "find_ids"}], "expect": wanted}) == "fails"


def test_several_generations_are_refused_by_the_library() -> None:
    wanted = {"error": {"kind": "invalid_argument", "about": "message"}}
    two = [{"text": "a"}, {"text": "b"}]
    aggregate = {"id": "x", "given": {"chunks": [{"generations": two}]}, "do": {"op": "aggregate"}}
    after = {
        "id": "x",
        "given": {"context": {"conversation_id": "c1"}},
        "do": {"op": "after", "response": {"generations": two}},
    }
    for name, case in (("aggregate", aggregate), ("memory_advisor", after)):
        assert verdict(name, {**case, "expect": wanted}) == "holds"
        assert verdict(name, case) == "fails"


def test_an_answer_is_stored_after_its_question() -> None:
    after = {"op": "after", "response": {"text": "hello", "metadata": {"k": 1}}}
    given: dict[str, Any] = {"context": {"conversation_id": "c1"}, "memory": ["u0", "a0"]}
    answer = {"role": "assistant", "text": "hello", "metadata": {"k": 1}}

    def held(given: dict[str, Any], *memory: Any) -> str:
        return verdict("memory_advisor", {"id": "x", "given": given, "do": after, "expect": {"memory": [*memory]}})

    assert held({**given, "prompt": ["u1"]}, "u0", "a0", "u1", answer) == "holds"
    assert held({**given, "prompt": ["u1"]}, "u0", "a0", answer) == "fails"
    assert held({"context": given["context"]}, answer) == "holds"  # the question is the runner's own


def test_a_default_order_is_arithmetic() -> None:
    for order, expected in (
        ("HIGHEST_PRECEDENCE+200", "holds"),
        ("HIGHEST_PRECEDENCE + 199", "fails"),
        ("SURPRISE", "unknown"),
    ):
        assert verdict("memory_advisor", {"id": "x", "do": {"op": "build"}, "expect": {"order": order}}) == expected


def test_repeat_steps_are_held_to_their_expectations() -> None:
    append = {"op": "append", "conversation_id": "c", "messages": ["u1", "a1"]}
    find = {"op": "find", "conversation_id": "c", "expect_count": 2}
    assert verdict("repository", {"id": "x", "do": [{"op": "repeat", "times": 1, "steps": [append, find]}]}) == "holds"
    assert verdict("repository", {"id": "x", "do": [{"op": "repeat", "times": 2, "steps": [append, find]}]}) == "fails"


def pytest_in(folder: Path, *selected: str) -> str:
    environment = {**os.environ, "ADVISORCHAIN_CASES": str(folder)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(HERE / "test_cases.py"),
        "-n0",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        *selected,
    ]
    done = subprocess.run(command, env=environment, cwd=HERE.parent.parent, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_another_folder_of_cases_is_run_without_touching_code(tmp_path: Path) -> None:
    holds = {"id": "win-900", "given": {"max_messages": 2, "memory": ["u1", "a1"]},
             "do": {"op": "get", "conversation_id": "c1"}, "expect": {"messages": ["u1", "a1"]}}  # fmt: skip
    wrong = {**holds, "id": "win-901", "expect": {"messages": ["u1"]}}
    unknown = {**holds, "id": "win-902", "expect": {"surprise": 1}}
    waits = {**holds, "id": "win-903", "needs": "vector memory", "do": {"op": "not built yet"}}
    (tmp_path / "window.json").write_text(json.dumps([holds, wrong, unknown, waits]))
    (tmp_path / "chain.json").write_text("not for the runner")
    out = pytest_in(tmp_path, "-k", "asyncio or there_are_cases")
    stores = len(STORES)
    assert f"{2 * stores} failed, {stores + 1} passed" in out, out
    for place in STORES:
        for number, word in ((900, "PASSED"), (901, "FAILED"), (902, "FAILED")):
            assert any(line.startswith(word) and f"win-{number}" in line and place in line for line in out.splitlines()), out
    assert "unknown `surprise`" in out
    assert "needs vector memory" in out


@pytest.mark.slow
def test_a_folder_without_cases_is_told(tmp_path: Path) -> None:
    assert "is in the folder of cases" in pytest_in(tmp_path)
