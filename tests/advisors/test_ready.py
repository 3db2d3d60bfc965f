"""The ready advisors by their names, and the order in which they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from advisorchain import CHAT_MEMORY_ORDER, TOOL_CALLING_ORDER, advisors
from advisorchain.advisors import _orders

FOLDER = Path(advisors.__file__).parent


def test_each_name_is_there_and_each_module_has_one() -> None:
    assert list(advisors.__all__) == sorted(advisors.__all__)
    found = [getattr(advisors, name) for name in advisors.__all__]
    modules = {path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_")}
    assert modules <= {kind.__module__.rpartition(".")[2] for kind in found} | {"cache"}
    assert set(advisors.__all__) <= set(dir(advisors))
    with pytest.raises(AttributeError, match="`NoSuchAdvisor`"):
        advisors.NoSuchAdvisor  # noqa: B018


def test_one_is_imported_without_the_packages_of_the_others() -> None:
    code = """
import sys
sys.modules.update(tenacity=None)
from advisorchain.advisors import MessageChatMemoryAdvisor, TimeoutAdvisor
try:
    from advisorchain.advisors import RetryAdvisor
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "advisorchain[retry]"' in ran.stdout


def test_they_stand_in_the_order_that_their_table_tells() -> None:
    orders = [
        _orders.TOTAL_TIMEOUT_ORDER,
        CHAT_MEMORY_ORDER,
        _orders.TOOLSETS_ORDER,
        _orders.CACHE_ORDER,
        _orders.GUARD_ORDER,
        _orders.RE_READING_ORDER,
        TOOL_CALLING_ORDER,
        0,
        _orders.REDACT_ORDER,
        _orders.STRUCTURED_OUTPUT_ORDER,
        _orders.USAGE_LIMIT_ORDER,
        _orders.FALLBACK_ORDER,
        _orders.RETRY_ORDER,
        _orders.RATE_LIMIT_ORDER,
        _orders.CONCURRENCY_LIMIT_ORDER,
        _orders.TIMEOUT_ORDER,
    ]
    assert orders == sorted(set(orders))
