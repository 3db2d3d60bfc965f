"""Runs what the README and the examples show, and prints what lint has to say of the chains that they build."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path
from typing import Any

from advisorchain import AdvisorChain

ROOT = Path(__file__).parent.parent.parent
BUILT: list[AdvisorChain] = []
_init = AdvisorChain.__init__


def _recording(chain: AdvisorChain, *args: Any, **kwargs: Any) -> None:
    _init(chain, *args, **kwargs)
    BUILT.append(chain)


def main() -> None:
    """Those that cannot run here (a model, a server that is not installed) count as far as they come."""
    AdvisorChain.__init__ = _recording
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    programs = [lambda block=block: exec(compile(block, "README", "exec"), {"__name__": "__main__"}) for block in blocks]
    for path in sorted((ROOT / "examples").glob("*.py")):
        name = "served" if path.stem in ("fastapi_sse", "two_servers") else "__main__"
        programs.append(lambda path=path, name=name: runpy.run_path(str(path), run_name=name))
    for program in programs:
        with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stdout(io.StringIO()):
            program()
    found = [f"{chain!r} {finding}" for chain in BUILT for finding in chain.lint()]
    print(f"chains built: {len(BUILT)}", *found, sep="\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
