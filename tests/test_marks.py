"""What advisors say of themselves: each name is asked for, and ours say it as it is declared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

import advisorchain.advisors
from advisorchain import AroundAdvisor, BaseAdvisor
from advisorchain.marks import Judged, Keyed, Shown

GROUPS = (Shown, Judged, Keyed)
NAMES = {name for group in GROUPS for name in (*group.__annotations__, *vars(group)) if not name.startswith("_")}
PACKAGE = Path(advisorchain.__file__).parent


def test_each_is_asked_for() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name != "marks.py")
    assert not [name for name in NAMES if not re.search(rf'["\'.]{name}\b', sources)]


@pytest.mark.parametrize("name", advisorchain.advisors.__all__)
def test_ours_say_it_as_declared(name: str) -> None:
    kind: Any = getattr(advisorchain.advisors, name)
    if isinstance(kind, type) and issubclass(kind, BaseAdvisor | AroundAdvisor):
        for group in GROUPS:
            for mark, declared in get_type_hints(group).items():
                if mark in vars(kind):
                    TypeAdapter(declared).validate_python(vars(kind)[mark], strict=True)
