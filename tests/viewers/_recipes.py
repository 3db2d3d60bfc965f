"""The README's one-line recipes, run as they stand there, with other addresses and an example in place of `app.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from ._servers import command

ROOT: Final = Path(__file__).parent.parent.parent
SPANS: Final = 8
"""How many spans `examples/tools.py` makes."""


def run_recipe(tool: str, *, app: str = "examples/tools.py", more: Mapping[str, str] | None = None, **changes: str) -> str:
    """Run a line of the README and give what it prints.

    Args:
        tool: the first word of the line's comment.
        app: what runs in place of `app.py`, relative to the checkout.
        more: environment variables beside those of the line.
        changes: what stands in place of an environment variable's value.
    """
    command("bash")
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if re.search(rf"opentelemetry-instrument python app\.py.*# {tool}\b", line))
    (exported,) = (line for line in lines if line.startswith("export OTEL_"))
    line = line.replace("python app.py", f"{sys.executable} {app}")
    for name, value in changes.items():
        line, changed = re.subn(rf"\b{name}=\S+", f"{name}={value}", line)
        assert changed == 1, f"`{name}` is not in the recipe"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {exported}; {line}"],
        cwd=ROOT,
        env={**_clean_environment(), **(more or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if (
        done.stderr and "advisorchain trace" not in line
    ):  # it tells of lines that are not spans: those that the example prints
        pytest.fail(done.stderr)
    return done.stdout


def _clean_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ADVISORCHAIN_"))}
    own = Path(sys.executable).parent
    return {**kept, "PATH": f"{own}{os.pathsep}{kept.get('PATH', os.defpath)}", "NO_COLOR": "1", "COLUMNS": "120"}
