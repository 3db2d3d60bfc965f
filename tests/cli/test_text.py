"""What people type and read."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.cli.text import explained, one_line, plain, typed
from advisorchain.errors import ConfigurationError

CONTROLS = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))} - {"\n", "\t"}
texts = st.text(st.sampled_from("ab\n\t\r\x1b[]0;mA\x07\x9b\x9d\x9c\x7f\\é名"))


@given(texts)
def test_no_control_character_gets_through(text: str) -> None:
    assert not CONTROLS & set(plain(text) + typed(text))
    assert not {*CONTROLS, "\n", "\t"} & set(one_line(text))


def test_no_format_character_gets_through_but_what_joins_letters_and_what_is_seen() -> None:
    """Such as U+202E, which turns what follows it around."""
    seen = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}  # signs that span digits of Arabic
    joining = {0x200C, 0x200D}
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    told = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in kinds}
    assert {code for code in told if one_line(chr(code)) == chr(code)} == seen | joining
    assert {code for code in told if plain(chr(code)) == chr(code)} == seen | joining | {ord("\n"), ord("\t")}
    assert one_line("a\u202eb\nc\td") == "a�b�c�d"


@given(st.lists(texts))
def test_borders_of_chunks_make_no_difference(pieces: list[str]) -> None:
    assert "".join(map(plain, pieces)) == plain("".join(pieces))


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("ab\x1b[Dc\x1b[1;5Cd", "abcd"),
        ("\x1bOA\x1b[[Bhi\x1b[3~", "hi"),
        ("\x1b[200~two\nlines\x1b[201~", "two\nlines"),
        ("a\x1b]0;title\x07b\x1b]8;;x\x1b\\c\x9d0;t\x9cd", "abcd"),
        ("\x9b31mred\x00\x7f\x1b", "red"),
        ("\x1b]never ended", "never ended"),
        ("[A is typed\tso", "[A is typed\tso"),
    ],
)
def test_keys_that_nobody_meant_to_say(keys: str, line: str) -> None:
    assert typed(keys) == line


def test_an_error_is_one_line() -> None:
    assert explained(ConfigurationError("a\n b"), hint=True) == "a b"
    assert explained(KeyError("k"), hint=True) == "KeyError: 'k' (--debug shows where)"
    assert explained(TimeoutError(), hint=False) == "TimeoutError"
