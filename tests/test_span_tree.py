"""How spans make trees, and whose time it was."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain._span_data.data import SpanData
from advisorchain._span_data.own_time import in_hooks
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


def _of_a_stream(one: SpanData) -> SpanData:
    return dataclasses.replace(one, attributes={**one.attributes, "advisorchain.stream": True})


def _worked(trace: TraceTree) -> dict[str, float]:
    return {node.span.span_id: round(node.worked * 1000, 3) for node in trace.walk() if node.span is not None}


def test_a_child_of_a_stream_did_not_work_while_its_parent_or_the_reader_did() -> None:
    """As drawn in `own_time`."""
    chain = {"kind": "chain", "stream": True, "stream.reader_duration": 0.03}
    found = tree(
        span("chain", None, 0, 100, **{f"advisorchain.{name}": value for name, value in chain.items()}),
        _of_a_stream(advisor("outer", "chain", 0, 100, 40, 0)),
        _of_a_stream(advisor("inner", "outer", 38, 100, 20, 1)),
        span("GET", "inner", 40, 55),
        span("chat", "inner", 55, 95, gen_ai__operation__name="chat", advisorchain__stream__awaited_duration=0.01),
    )
    assert own_ms(found) == {"chain": 0, "outer": 40, "inner": 5, "GET": 15, "chat": 10}
    assert _worked(found) == {"chain": 70, "outer": 70, "inner": 30, "GET": 15, "chat": 10}
    assert found.reader == 0.03


def test_a_call_worked_all_the_time() -> None:
    found = tree(advisor("outer", None, 0, 100, 30, 0), advisor("inner", "outer", 10, 90, 5, 1))
    assert _worked(found) == {"outer": 100, "inner": 80}


def test_what_ran_at_once_in_a_stream_is_not_more_than_all_of_it() -> None:
    outer = _of_a_stream(advisor("outer", None, 0, 100, 30, 0))
    found = tree(outer, *(_of_a_stream(advisor(f"try {n}", "outer", 10, 90, 60, 1)) for n in range(3)))
    assert _worked(found)["outer"] == 100


def test_an_advisor_whose_model_has_no_span_is_not_taken_to_have_waited_for_nobody() -> None:
    found = tree(_of_a_stream(advisor("inner", None, 0, 100, 10, 0, length=1)), span("http", "inner", 10, 20))
    assert _worked(found) == {"inner": 100, "http": 10}
    answering = _of_a_stream(advisor("cache", None, 0, 100, 10, 0))
    answering = dataclasses.replace(answering, attributes={**answering.attributes, "advisorchain.advisor.next_calls": 0})
    assert _worked(tree(answering)) == {"cache": 10}


@pytest.mark.parametrize(("http", "hooks"), [(0, {"before": 60, "after": 20}), (50, {"before": 10}), (70, {})])
def test_of_an_advisors_own_time_only_what_was_certainly_a_hooks_is_that_hooks(http: int, hooks: dict[str, float]) -> None:
    one = advisor("a", None, 0, 100, 80, 0)
    durations = {"advisorchain.advisor.before_duration": 0.06, "advisorchain.advisor.after_duration": 0.02}
    found = tree(dataclasses.replace(one, attributes={**one.attributes, **durations}), span("http", "a", 0, http))
    assert {hook: round(part * 1000, 3) for hook, part in in_hooks(found.roots[0]).items()} == hooks


def test_how_spans_are_nested_is_not_found_out_for_traces_that_nobody_looks_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of thousands of traces, three of which are shown."""
    found = [TraceTree(str(number), [span("a", None, number, 9)]) for number in range(9)]
    monkeypatch.setattr("advisorchain._span_data.tree._nested", lambda _: pytest.fail("nobody asked"))
    assert [(one.seconds > 0, one.has_chain) for one in found] == [(True, False)] * 9


@pytest.mark.parametrize("told", [float("nan"), float("inf"), -1.0, "0.5", True, 1e300])
def test_times_that_a_stranger_tells_are_never_longer_than_the_span(told: object) -> None:
    for name in ("advisor__self_duration", "stream__awaited_duration", "stream__reader_duration"):
        found = tree(span("a", None, 0, 10, **{f"advisorchain__{name}": told}))
        assert 0 <= own_ms(found)["a"] <= 10
        assert 0 <= found.reader <= 0.01
