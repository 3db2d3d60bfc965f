"""What is collected is the same in each process, or pytest-xdist runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COLLECT = ("-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", "slow or not slow", "-p", "no:cacheprovider")


@pytest.mark.slow  # collects all tests, twice
def test_ids_are_the_same_in_each_process() -> None:
    """They hold no clock, no address, and nothing in a set's order."""
    one, other = (
        subprocess.Popen(
            [sys.executable, *COLLECT],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in "12"
    )
    ids = [[line for line in ran.communicate()[0].splitlines() if "::" in line] for ran in (one, other)]
    assert one.returncode == other.returncode == 0
    assert len(ids[0]) > 10_000
    assert ids[0] == ids[1]
