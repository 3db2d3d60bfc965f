"""Warnings that point at the first line which is not of this package."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Final

__all__ = ["warned"]

_OURS: Final = os.path.dirname(__file__) + os.sep


def warned(text: str, category: type[Warning]) -> None:
    """Warn, at the caller whose code is not ours, however deep it lies: recorded or not, in a call or a stream."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
