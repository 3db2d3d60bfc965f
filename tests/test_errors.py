"""What errors carry with them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from advisorchain.errors import ModelError, Note, add_note


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_note_of_ours_stays_one_in_a_copy(copied: Callable[[Any], Any]) -> None:
    error = ModelError("failed")
    error.add_note("theirs")
    add_note(error, "ours")
    notes = copied(error).__notes__
    assert [(note, type(note)) for note in notes] == [("theirs", str), ("ours", Note)]


def test_an_error_that_is_raised_again_has_a_note_once() -> None:
    error = ValueError("failed")
    for _ in range(2):
        add_note(error, "ours")
    assert error.__notes__ == ["ours"]
