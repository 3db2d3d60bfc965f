"""A search in pieces finds what `re` finds in the whole text, wherever they end, and holds back no more than it must."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from time import process_time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisorchain.advisors._stream_search import HeldSearch, Searched, checked_pattern
from advisorchain.errors import ConfigurationError

FLAGS = [0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.ASCII, re.IGNORECASE | re.MULTILINE]
LETTERS = "aabbabAB1 \n"
UNICODE = "ßsSẞİiıIe\u0301éſK\u212a "  # folding, combining and look-alikes
ATOMS = [
    *(
        "a",
        "b",
        "ab",
        "ba",
        "aab",
        "1",
        " ",
        ".",
        r"\n",
        "[ab]",
        "[^a]",
        "[a-b1]",
        r"\w",
        r"\W",
        r"\s",
        r"\d",
        "ß",
        "İ",
        "é",
    ),
    *(r"\b", r"\B", "^", "$", r"\A", r"\Z"),
]
AROUND = ["(?:{})", "({})", "(?={})", "(?!{})", "(?<={})", "(?<!{})", "(?>{})", "(?i:{})", "(?-i:{})", "(?s:{})", "(?m:{})"]
REPEATS = [
    *("*", "+", "?", "*?", "+?", "??", "*+", "++", "?+"),
    *("{2}", "{1,2}", "{0,2}", "{2,}", "{1,2}?", "{2,}?", "{0,2}+"),
]


def patterns() -> st.SearchStrategy[str]:
    def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda several: f"(?:{'|'.join(several)})"),
            st.tuples(inner, st.sampled_from(REPEATS)).map(lambda both: f"(?:{both[0]}){both[1]}"),
            st.tuples(st.sampled_from(AROUND), inner).map(lambda both: both[0].format(both[1])),
            inner.map(lambda one: rf"({one})b?\1"),
            inner.map(lambda one: f"({one})?(?(1)b|a)"),
        )

    return st.recursive(st.sampled_from(ATOMS), wider, max_leaves=8)


def whole(compiled: Sequence[re.Pattern[str]], text: str) -> list[tuple[int, int, int]]:
    """What is to be found: the first match, of the first pattern where several begin; a match of nothing is none."""
    found, place = [], 0
    while place < len(text):
        here = []
        for which, pattern in enumerate(compiled):
            starts = (pattern.search(text, at) for at in range(place, len(text)))
            match = next((match for match in starts if match and match.end() > match.start()), None)
            here += [(match.start(), which, match.end())] if match else []
        if not here:
            break
        start, which, place = min(here)
        found.append((which, start, place))
    return found


def in_pieces(searched: Searched, text: str, cuts: Sequence[int]) -> list[tuple[int, int, int]]:
    search = HeldSearch(searched)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        before = search.decided
        found += search.feed(text[start:end])
        assert before <= search.decided <= end
        assert search.part(before, search.decided) == text[before : search.decided]
    found += search.feed("", last=True)
    assert search.decided == len(text)
    return [tuple(one) for one in found]


def compiled(pattern: str, flags: int) -> re.Pattern[str] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern, flags)
    except re.error:  # a look behind without a fixed width, a group that is not there yet
        return None


def check_any_pieces(pattern: str, flags: int, text: str, data: Any) -> None:
    one = compiled(pattern, flags)
    if one is None:
        return
    cuts = range(1, len(text)) if data is None else sorted(data.draw(st.sets(st.integers(0, len(text)))))
    wanted = whole([one], text)
    assert in_pieces(Searched([one]), text, list(cuts)) == wanted
    assert list(Searched([one]).each(text)) == wanted


ANY_PIECES = (patterns(), st.sampled_from(FLAGS), st.text(LETTERS, max_size=12) | st.text(UNICODE, max_size=8), st.data())


@settings(max_examples=200, deadline=None)
@given(*ANY_PIECES)
@example(r"cat\B", 0, "cats", None)
@example(r"foo$", 0, "foo\nbar", None)
@example(r"foo$", 0, "foo\n", None)
@example(r"a(?!b)", 0, "abac", None)
@example(r"(?:(?:b)+?)+", 0, "abbb", None)
@example(r"a|ab", 0, "ab", None)
@example(r"ab|a", 0, "aab", None)
@example(r"(a+)b?\1", 0, "aabaa", None)
@example(r"(?<=\b)b", 0, "ab b", None)
@example(r"(?<=a(?=bb))b", 0, "abab abb", None)
@example(r"(?<=^ab)c", 0, "abcabc", None)
@example(r"(?<=(?<=a)b)c|(?<=\Ac)c", 0, "ababcccabc", None)
@example(r"(?<!a)b+", re.MULTILINE, "ab\nbb abb", None)
@example(r"(?m:^)a", 0, "aa\na\n\naa", None)
def test_any_pieces_give_what_re_finds_in_the_whole(pattern: str, flags: int, text: str, data: Any) -> None:
    check_any_pieces(pattern, flags, text, data)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(*ANY_PIECES)
def test_any_pieces_of_many_texts_give_what_re_finds(pattern: str, flags: int, text: str, data: Any) -> None:
    check_any_pieces(pattern, flags, text, data)


@settings(max_examples=100, deadline=None)
@given(st.lists(patterns(), min_size=2, max_size=3), st.text(LETTERS, max_size=12), st.data())
def test_of_several_patterns_the_first_to_begin_counts(several: list[str], text: str, data: Any) -> None:
    usable = [one for one in (compiled(pattern, 0) for pattern in several) if one is not None]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    assert in_pieces(Searched(usable), text, cuts) == whole(usable, text) == list(Searched(usable).each(text))


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        ("secret", "a sec", "a "),
        ("secret", "a sector", "a sector"),
        (r"\bcat\b", "the cat", "the "),
        (r"\bcat\b", "the cats", "the cats"),
        (r"[\w.]+@[\w.]+", "hello wor", "hello "),
        (r".{0,5}pin", "0123456789", "01234"),
        (r'"[^"]*"', 'so "it', "so "),
        (r"(['\"])pin\1", "'pin", ""),
        (r"(['\"])pin\1", "'pine", "'pine"),
        (r"pin$", "pin code", "pin code"),
        (r"(?<!\w)pin", "a pie", "a pie"),  # a look behind holds nothing
    ],
)
def test_only_what_may_become_a_match_is_held(pattern: str, text: str, shown: str) -> None:
    search = HeldSearch(Searched([re.compile(pattern)]))
    for letter in text:
        assert not search.feed(letter)
    assert text[: search.decided] == shown


def test_a_match_that_is_not_valid_is_passed_over_but_not_what_begins_within_it() -> None:
    searched = Searched([re.compile(r"\d(?: ?\d){2}")], [lambda text: text.endswith("7")])
    assert in_pieces(searched, "1 2 3 4 7 8", list(range(1, 11))) == [(0, 4, 9)]


def test_a_pattern_with_many_repeats_is_read_roughly_and_still_right() -> None:
    one = re.compile(r"(?:a{1,60}b{1,60}){1,60}c")
    text = "ab" * 20 + "c ab"
    assert in_pieces(Searched([one]), text, list(range(1, len(text)))) == [(0, 0, 41)]


@pytest.mark.parametrize("pattern", ["", "a*", "bad|", r"\b", "(?=a)", "a{0,3}", "(", b"a", None, 3], ids=repr)
def test_a_pattern_that_cannot_work_is_refused(pattern: Any) -> None:
    with pytest.raises(ConfigurationError, match="`p`"):
        checked_pattern("`p`", pattern)


def test_a_compiled_pattern_keeps_its_flags() -> None:
    assert checked_pattern("`p`", re.compile("a", re.IGNORECASE)).search("A")


# --- what it costs ----------------------------------------------------------------------------------------------------

LONG = "lorem ipsum dolor sit amet, " * 40


def seconds(pieces: int, pattern: str, piece: str) -> float:
    search = HeldSearch(Searched([re.compile(pattern)]))
    begun = process_time()
    for _ in range(pieces):
        search.feed(piece)
    search.feed("", last=True)
    return process_time() - begun


@pytest.mark.parametrize(
    ("pattern", "piece", "pieces"),
    [(r"\bbomb\b", LONG, 2000), (r"\d\d", "2" * 1000 + " ", 40), ("<[^>]*>", "<" + LONG[:200], 100)],
    ids=["none", "many", "all held"],
)
def test_R14_a_piece_of_a_long_stream_costs_no_more_than_of_a_short_one(pattern: str, piece: str, pieces: int) -> None:
    short = min(seconds(pieces, pattern, piece) for _ in range(3))
    long = min(seconds(4 * pieces, pattern, piece) for _ in range(2))
    assert long < 9 * short  # 4 where each piece costs the same, 16 where each costs as much as what came before it


def test_R14_nothing_is_kept_of_what_is_decided() -> None:
    search = HeldSearch(Searched([re.compile(r"(?<=ab)cd")]))
    for _ in range(1000):
        search.feed(LONG)
    assert len(search._window) <= 2 * len(LONG)


def test_R13_a_whole_text_needs_no_automaton() -> None:
    searched = Searched([re.compile(r"\d{3,9}x"), re.compile(r"\w+@")])
    assert [found.which for found in searched.each("1 me@ 1234x you@")] == [1, 0, 1]
    assert HeldSearch(searched).feed("1 me@", last=True) == [(1, 2, 5)]
    assert "start" not in vars(searched)


def test_R13_each_of_several_patterns_reads_a_whole_text_once() -> None:
    def spent(pairs: int) -> float:
        searched = Searched([re.compile("a"), re.compile("b"), *(re.compile(f"no{number}") for number in range(8))])
        begun = process_time()
        assert len(list(searched.each("a, " * pairs))) == pairs
        return process_time() - begun

    assert min(spent(8000) for _ in range(2)) < 9 * min(spent(2000) for _ in range(3))
