"""How spans make trees, and whose time it was."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import TraceTree, trees

from ._span_trees import TRACE, advisor, own_ms, shape, span, tree


def test_children_are_in_the_order_in_which_they_began() -> None:
    found = tree(span("c", "a", 5, 6), span("b", "a", 1, 9), span("a", None, 0, 10))
    assert shape(found.roots) == [("a", [("b", []), ("c", [])])]
    assert found.complete
    assert found.seconds == 0.01


def test_spans_whose_parent_is_missing_are_together_under_its_place() -> None:
    found = tree(span("b", "gone", 1, 2), span("c", "gone", 3, 4), span("d", "b", 1, 2))
    assert shape(found.roots) == [(None, [("b", [("d", [])]), ("c", [])])]
    assert not found.complete


def test_a_parent_in_another_process_is_not_missing() -> None:
    remote = dataclasses.replace(span("a", "elsewhere", 0, 1), remote_parent=True)
    found = tree(remote, span("b", "a", 0, 1))
    assert shape(found.roots) == [("a", [("b", [])])]
    assert found.complete


def test_a_span_that_came_twice_is_there_once() -> None:
    assert shape(tree(span("a", None, 0, 1), span("a", None, 0, 1)).roots) == [("a", [])]


def test_traces_are_told_apart_and_in_time() -> None:
    other = dataclasses.replace(span("a", None, 5, 6), trace_id="f" * 32)
    assert [trace.id for trace in trees([other, span("a", None, 1, 9)])] == [TRACE, "f" * 32]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_every_span_is_drawn_once_whoever_it_says_its_parent_is(parents: list[int]) -> None:
    spans = [span(str(place), str(parent), place, place + 5) for place, parent in enumerate(parents)]
    seen = [node.span.span_id for node in tree(*spans).walk() if node.span is not None]
    assert sorted(seen) == sorted(str(place) for place in range(len(parents)))


def test_a_deep_trace_is_no_recursion() -> None:
    deep = TraceTree(TRACE, [span(str(place), str(place - 1) if place else None, 0, 1) for place in range(5000)])
    assert sum(1 for _ in deep.walk()) == 5000


def test_own_time_is_what_no_child_covers_even_where_they_overlap() -> None:
    found = tree(span("a", None, 0, 100), span("b", "a", 10, 40), span("c", "a", 30, 60), span("d", "a", 90, 120))
    assert own_ms(found)["a"] == 40


def test_an_advisor_says_its_own_time_itself() -> None:
    found = tree(advisor("outer", None, 0, 100, 30, 0), advisor("inner", "outer", 0, 100, 5, 1))
    assert own_ms(found) == {"outer": 30, "inner": 5}


def test_a_tools_time_is_the_tools_and_not_that_of_the_advisor_which_ran_it() -> None:
    found = tree(
        advisor("tools", None, 0, 100, 80, 0, length=1),
        span("model", "tools", 0, 20, gen_ai__operation__name="chat"),
        span("tool", "tools", 20, 95, gen_ai__operation__name="execute_tool"),
    )
    assert own_ms(found) == {"tools": 5, "model": 20, "tool": 75}


def test_a_call_of_another_librarys_in_an_advisor_is_not_the_advisors() -> None:
    found = tree(
        advisor("outer", None, 0, 100, 60, 0), span("http", "outer", 0, 55), advisor("inner", "outer", 60, 100, 40, 1)
    )
    assert own_ms(found) == {"outer": 5, "http": 55, "inner": 40}


def test_a_span_that_an_advisor_opened_around_the_rest_covers_only_its_own_part() -> None:
    found = tree(
        advisor("outer", None, 0, 100, 30, 0), span("work", "outer", 10, 90), advisor("inner", "work", 20, 90, 70, 1)
    )
    assert own_ms(found) == {"outer": 20, "work": 10, "inner": 70}


def test_a_model_call_that_only_its_sdk_tells_of_is_not_taken_from_the_innermost_advisor() -> None:
    found = tree(advisor("inner", None, 0, 100, 10, 0, length=1), span("http", "inner", 10, 100))
    assert own_ms(found) == {"inner": 10, "http": 90}


def test_clocks_that_disagree_make_no_time() -> None:
    found = tree(span("a", None, 10, 5), span("b", "a", 20, 1))
    assert own_ms(found) == {"a": 0, "b": 0}
    assert found.seconds == 0


def _read_slowly(parent: str | None = None) -> list[SpanData]:
    """A stream of 100 ms: its reader had chunks in hand for 70 of them, the model was awaited for 25."""
    return [
        span("chain", parent, 0, 100, advisorchain__kind="chain", advisorchain__stream__reader_duration=0.07),
        advisor("only", "chain", 0, 100, 5, 0, length=1),
        span("chat", "only", 0, 100, gen_ai__operation__name="chat", advisorchain__stream__awaited_duration=0.025),
    ]


def test_a_model_is_not_blamed_for_a_slow_reader() -> None:
    found = tree(*_read_slowly())
    assert own_ms(found) == {"chain": 0, "only": 5, "chat": 25}
    assert found.reader == 0.07


def test_what_ran_in_a_model_call_is_not_the_models() -> None:
    found = tree(*_read_slowly(), span("http", "chat", 0, 10))
    assert own_ms(found) == {"chain": 0, "only": 5, "chat": 15, "http": 10}


def test_a_reader_outside_of_all_chains_is_the_reader_whatever_span_it_holds_open() -> None:
    found = tree(span("request", None, 0, 120), *_read_slowly("request"))
    assert own_ms(found) == {"request": 20, "chain": 0, "only": 5, "chat": 25}
    assert found.reader == 0.07


def test_who_reads_a_chain_within_another_one_works_meanwhile() -> None:
    """The tool took 10 ms beside the inner stream, and 70 ms between its chunks."""
    found = tree(
        span("outer", None, 0, 200, advisorchain__kind="chain", advisorchain__stream__reader_duration=0.05),
        advisor("tools", "outer", 0, 200, 115, 0, length=1),
        span("tool", "tools", 0, 110, gen_ai__operation__name="execute_tool"),
        *_read_slowly("tool"),
    )
    assert own_ms(found) == {"outer": 0, "tools": 5, "tool": 80, "chain": 0, "only": 5, "chat": 25}
    assert found.reader == 0.05


def test_an_advisor_that_reads_another_chain_keeps_its_own_time() -> None:
    found = tree(
        span("outer", None, 0, 110, advisorchain__kind="chain"),
        advisor("judge", "outer", 0, 110, 110, 0, length=1),
        *_read_slowly("judge"),
    )
    assert own_ms(found)["judge"] == 80


@pytest.mark.parametrize("told", [float("nan"), float("inf"), -1.0, "0.5", True, 1e300])
def test_times_that_a_stranger_tells_are_never_longer_than_the_span(told: object) -> None:
    for name in ("advisor__self_duration", "stream__awaited_duration", "stream__reader_duration"):
        found = tree(span("a", None, 0, 10, **{f"advisorchain__{name}": told}))
        assert 0 <= own_ms(found)["a"] <= 10
        assert 0 <= found.reader <= 0.01
