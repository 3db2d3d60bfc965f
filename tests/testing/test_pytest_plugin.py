"""The laws as a pytest plugin, in a project of somebody else's with a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from advisorchain.testing.repository_laws import REPOSITORY_LAWS

pytestmark = pytest.mark.slow  # each test is a run of pytest in a process of its own

LAWS = len(REPOSITORY_LAWS)
NEED_DISCONNECT = [law.name for law in REPOSITORY_LAWS if "disconnect" in law.needs]
NEED_REOPEN = [law.name for law in REPOSITORY_LAWS if "reopen" in law.needs]

STORE = """
from advisorchain.memory.repositories.in_memory import InMemoryChatMemoryRepository


class ShopRepository(InMemoryChatMemoryRepository):
    pass


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now

    async def wait(self, seconds):
        self.now += seconds
"""
TESTS = """
from shop import Clock, ShopRepository

pytest_plugins = ["advisorchain.testing.pytest_plugin"]


def test_shop(repository_law):
    clock = Clock()
    repository_law(lambda: ShopRepository(clock=clock), wait=clock.wait)
"""
BROKEN_STORE = STORE.replace(
    "    pass\n",
    """
    async def append(self, conversation_id, messages, **named):
        if isinstance(messages, list | tuple):
            messages = [message for message in messages if getattr(message, "role", "") != "tool"]
        return await super().append(conversation_id, messages, **named)
""",
)
FILE_TESTS = """
from advisorchain.memory.repositories.sqlite import SqliteChatMemoryRepository

pytest_plugins = ["advisorchain.testing.pytest_plugin"]


def test_file(repository_law, tmp_path):
    path = tmp_path / "shop.db"
    repository_law(lambda: SqliteChatMemoryRepository(path), reopen=lambda repository: SqliteChatMemoryRepository(path))
"""


def run(folder: Path, *arguments: str, **files: str) -> str:
    """What pytest says about a project, in a process of its own that treats warnings as errors."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-rsf", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=clean_environment())
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}


def test_each_law_is_a_test_on_each_backend_and_what_is_not_given_is_told(tmp_path: Path) -> None:
    told = run(tmp_path, shop=STORE, test_shop=TESTS)
    skipped = len(NEED_DISCONNECT) + len(NEED_REOPEN)
    assert f"{2 * (LAWS - skipped)} passed, {2 * skipped} skipped" in told
    for means, names in (("disconnect", NEED_DISCONNECT), ("reopen", NEED_REOPEN)):
        for name in names:
            assert f"law `{name}` was not checked: it needs `{means}=`" in told


def test_a_store_of_two_repositories_takes_a_line(tmp_path: Path) -> None:
    told = run(tmp_path, "-k", "two-repositories or outlives", test_file=FILE_TESTS)
    assert "10 passed" in told
    assert "skipped" not in told


def test_a_broken_store_fails_the_law_that_it_breaks(tmp_path: Path) -> None:
    told = run(tmp_path, "-k", "tool or text or fork-has", shop=BROKEN_STORE, test_shop=TESTS)
    assert "2 failed, 8 passed" in told
    for backend in ("asyncio", "trio"):
        assert f"FAILED test_shop.py::test_shop[tool-traffic-comes-back-{backend}]" in told
    assert "law `tool traffic comes back`: roles: expected ['user', 'assistant', 'tool'" in told


def test_a_store_that_lacks_methods_fails_one_law_and_what_needs_them_is_skipped(tmp_path: Path) -> None:
    lacking = STORE.replace("    pass\n", "    fork = prune = None\n")
    told = run(tmp_path, "-k", "method or fork or prune or batch or bad-id", shop=lacking, test_shop=TESTS)
    assert "2 failed" in told
    assert "law `every method is there`: `ShopRepository` has no `fork`, `prune`" in told
    assert "law `a fork has the same entries`: not checked, since the store has no `fork`, `prune`" in told
    assert "FAILED test_shop.py::test_shop[a-fork" not in told


def test_without_trio_its_half_is_skipped(tmp_path: Path) -> None:
    without = 'import sys\nsys.modules["trio"] = None\n'
    told = run(tmp_path, "-k", "batch", shop=STORE, test_shop=TESTS, conftest=without)
    assert "3 passed, 3 skipped" in told
    assert "law `a batch of fifty keeps its order` was not checked on trio, which is not installed" in told


def test_a_run_that_does_not_ask_for_it_does_not_load_it(tmp_path: Path) -> None:
    nothing = 'import sys\n\n\ndef test_nothing():\n    assert "advisorchain" not in sys.modules\n'
    assert "1 passed" in run(tmp_path, test_nothing=nothing)
    assert not [entry for entry in entry_points(group="pytest11") if entry.value.startswith("advisorchain")]


@pytest.mark.parametrize("where", ["conftest", "test_shop"])
def test_the_plugin_may_be_named_in_either_place_and_imported_before(tmp_path: Path, where: str) -> None:
    named = 'pytest_plugins = ["advisorchain.testing.pytest_plugin"]\n'
    imported = "from advisorchain.testing.pytest_plugin import LawTest\n"
    tests = imported + TESTS.replace(named, "" if where == "conftest" else named)
    told = run(
        tmp_path, "-k", "fifty", shop=STORE, test_shop=tests, conftest=imported + named if where == "conftest" else ""
    )
    assert "2 passed" in told
