"""`advisorchain trace`: what is drawn of which spans."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from advisorchain._span_data.data import SpanData
from advisorchain._span_data.tree import TraceTree
from advisorchain.cli.trace import TraceSetting, trace
from advisorchain.cli.trace_live import Arrivals
from advisorchain.cli.trace_slowest import SpentSoFar, slowest
from advisorchain.cli.trace_table import drawn, plain_symbols
from advisorchain.errors import ConfigurationError, InvalidInputError, StorageError

from .._span_trees import TRACE, advisor, span, tree

Tell = Callable[..., "tuple[str, str]"]


def told(**attributes: Any) -> dict[str, Any]:
    return {f"advisorchain__{name}": value for name, value in attributes.items()}


def with_told(one: SpanData, more: dict[str, Any]) -> SpanData:
    return dataclasses.replace(one, attributes={**one.attributes, **span("", None, 0, 0, **more).attributes})


def streamed(one: SpanData) -> SpanData:
    return with_told(one, told(stream=True))


def slow_chain() -> TraceTree:
    return tree(
        span("root", None, 0, 1000, "advisor_chain zoo", **told(kind="chain", outcome="ok", stream__chunks_out=5)),
        advisor("a", "root", 0, 1000, 1, 0),
        advisor("slow", "a", 0, 1000, 800, 1),
        span(
            "model",
            "slow",
            800,
            1000,
            "chat model",
            gen_ai__operation__name="chat",
            gen_ai__usage__input_tokens=12,
            gen_ai__usage__output_tokens=5,
            gen_ai__response__time_to_first_chunk=0.1234,
            **told(outcome="ok", stream__chunks_in=9, stream__chunks_out=5),
        ),
    )


def text(found: TraceTree, width: int = 100) -> list[str]:
    return [line.plain for line in drawn(found, width)]


def test_a_trace_is_a_tree_with_times() -> None:
    assert text(slow_chain(), 114) == [
        "span               order  0                        1.00 s      time        self     first  chunks  tokens  outcome",
        "advisor_chain zoo         ───────────────────────────────    1.00 s    0.0 ms                   5          ok",
        "└ advisor a            0  ───────────────────────────────    1.00 s    1.0 ms                              ok",
        "  └ advisor slow       1  █████████████████████████──────    1.00 s  800.0 ms ◀                            ok",
        "    └ chat model                                  ███████  200.0 ms  200.0 ms    123.4 ms     9→5    12→5  ok",
    ]


def test_the_slowest_is_said_in_words() -> None:
    assert slowest([slow_chain()]) == (
        "slowest: `advisor slow`, 800.0 ms of 1.00 s its own (80%); then `chat model`, 200.0 ms (20%)"
    )
    assert slowest([slow_chain(), slow_chain()]).startswith("slowest in 2 traces: `advisor slow`, 1.60 s of 2.00 s its own")
    thrice = tree(span("r", None, 0, 300), *(span(f"s{n}", "r", 100 * n, 100 * n + 100, "again") for n in range(3)))
    assert slowest([thrice]) == "slowest: `again`, 300.0 ms of 300.0 ms its own (100%, 3 times)"
    each_once = [tree(span("r", None, 0, 100, "again")) for _ in range(3)]
    assert slowest(each_once) == "slowest in 3 traces: `again`, 300.0 ms of 300.0 ms its own (100%, 3 times)"
    at_once = tree(advisor("a", None, 0, 100, 99, 0), *(span(f"s{n}", "a", 0, 90, "tool") for n in range(2)))
    assert slowest([at_once]) == "slowest: `tool` in `advisor a`, 180.0 ms of 100.0 ms its own (2 times)"
    assert slowest([tree(span("r", None, 0, 0))]) == ""
    assert slowest([]) == ""


def test_the_time_of_a_slow_reader_is_told_beside_the_slowest() -> None:
    told = {"advisorchain__kind": "chain", "advisorchain__stream__reader_duration": 0.5}
    awaited = {"gen_ai__operation__name": "chat", "advisorchain__stream__awaited_duration": 0.2}
    read = tree(span("c", None, 0, 800, "chain", **told), span("m", "c", 0, 800, "chat m", **awaited))
    assert slowest([read]) == "slowest: `chat m`, 200.0 ms of 800.0 ms its own (25%); the reader: 500.0 ms (62%)"
    alone = tree(span("c", None, 0, 510, "chain", **told), span("m", "c", 0, 510, "chat m", **awaited))
    assert slowest([read, alone]).endswith("; the reader: 1.00 s (76%)")
    quick = tree(span("c", None, 0, 6000, "chain", **told))
    assert "reader" not in slowest([quick])
    none = {**awaited, "advisorchain__stream__awaited_duration": 0.0}
    only = tree(span("c", None, 0, 500, "chain", **told), span("m", "c", 0, 500, "chat m", **none))
    assert slowest([only]) == "the reader: 500.0 ms (100%)"


def test_each_long_entry_of_the_slowest_is_marked_and_no_other() -> None:
    found = tree(
        span("r", None, 0, 1000),
        *(span(f"s{n}", "r", begin, end, "work") for n, (begin, end) in enumerate([(0, 400), (400, 410), (410, 700)])),
        span("other", "r", 700, 800),
    )
    assert ["◀" in line for line in text(found)[1:]] == [False, True, False, True, False]


@pytest.mark.parametrize("width", [140, 100, 80, 60, 40, 20])
def test_columns_go_before_the_tree_does(width: int) -> None:
    lines = text(slow_chain(), width)
    assert [line for line in lines if cell_len(line) > max(width, 34)] == []
    assert all("advisor slow"[:6] in line for line in lines if "slow" in line)
    assert "self" in lines[0]
    assert ("chunks" in lines[0]) == (width >= 100)
    assert ("█" in lines[3]) == (width >= 60)


def test_a_bar_is_where_the_span_lay() -> None:
    found = tree(span("r", None, 0, 100), span("a", "r", 0, 1), span("b", "r", 99, 100), span("c", "r", 99.9999, 100))
    heading, root, *bars = text(found, 80)
    place = heading.index("0")
    bars = [line[place : place + 40] for line in bars]
    assert [(bar.count("█"), bar.index("█")) for bar in bars] == [(1, 0), (1, 39), (1, 39)]
    assert root[place + 1 : place + 39] == "█" * 38


def test_a_streams_advisor_that_waited_for_its_reader_is_not_drawn_as_busy() -> None:
    lines = text(tree(advisor("a", None, 0, 100, 1, 0, length=1)))
    assert "█" not in lines[1]
    assert "─" in lines[1]


@pytest.mark.parametrize(("own", "cells"), [(0, 0), (1, 0), (25, 10), (50, 20), (100, 40)])
def test_what_an_advisor_did_while_the_model_waited_is_thick_in_proportion(own: int, cells: int) -> None:
    model = span("m", "a", 0, 100, "chat m", gen_ai__operation__name="chat", advisorchain__stream__awaited_duration=0.0)
    lines = text(tree(advisor("a", None, 0, 100, own, 0, length=1), model))
    assert lines[1].count("█") == cells
    if cells == 10:
        assert "───█───█" in lines[1]  # spread, since nobody knows when it was


def test_what_was_its_own_beside_what_ran_in_it_is_thick_first() -> None:
    model = span("m", "a", 50, 100, "chat m", gen_ai__operation__name="chat", advisorchain__stream__awaited_duration=0.0)
    line = text(tree(advisor("a", None, 0, 100, 75, 0, length=1), model))[1]
    assert line.count("█" * 20) == 1
    assert (line.count("█"), line.count("─")) == (30, 10)


def test_what_an_outer_advisor_does_with_each_chunk_is_no_time_of_what_is_in_it() -> None:
    awaited = {"gen_ai__operation__name": "chat", "advisorchain__stream__awaited_duration": 0.01}
    lines = text(
        tree(
            span("c", None, 0, 100, "chain", **told(kind="chain", stream=True, stream__reader_duration=0.03)),
            streamed(advisor("outer", "c", 0, 100, 40, 0)),
            streamed(advisor("inner", "outer", 0, 100, 20, 1)),
            span("m", "inner", 0, 100, "chat m", **awaited),
        ),
    )
    assert [re.findall(r"(\S+) ms", line) for line in lines[1:]] == [
        ["70.0", "0.0"],
        ["70.0", "40.0"],
        ["30.0", "20.0"],
        ["10.0", "10.0"],
    ]


def test_the_hook_that_had_most_of_the_slowest_advisors_time_is_named() -> None:
    hooks = told(advisor__before_duration=0.05, advisor__transform_duration=0.02, advisor__done_duration=0.001)
    slow = with_told(advisor("a", None, 0, 100, 71, 0, length=1), hooks)
    assert slowest([tree(slow)]) == "slowest: `advisor a`, 71.0 ms of 100.0 ms its own (71%), 50.0 ms in `before`"
    assert slowest([tree(slow), tree(slow)]).endswith("142.0 ms of 200.0 ms its own (71%, 2 times), 100.0 ms in `before`")
    alike = with_told(slow, told(advisor__self_duration=0.1, advisor__done_duration=0.03))
    assert slowest([tree(alike)]).endswith("its own (100%)")


def test_the_hook_that_failed_is_told() -> None:
    failed = told(advisor__outcome="error", advisor__failed_hook="after\x1b[2J") | {"error__type": "ValueError"}
    assert text(tree(with_told(advisor("a", None, 0, 9, 9, 0), failed)), 120)[1].endswith("error ValueError in after�[2J")


def test_rounds_attempts_short_circuits_and_errors_are_told() -> None:
    found = tree(
        span("a", None, 0, 9, **told(round=2, advisor__attempt=3, advisor__outcome="ok", advisor__next_calls=0)),
        span("b", "a", 0, 9, **told(outcome="error"), error__type="httpx.ReadTimeout"),
        dataclasses.replace(span("c", "b", 0, 9), status="error"),
        span("d", "b", 0, 9, **told(advisor__outcome="cancelled")),
    )
    lines = text(found, 120)
    assert "a (round 2, attempt 3)" in lines[1]
    assert [re.split(r"ms  |◀", line)[-1].strip() for line in lines[1:]] == [
        "ok, short circuit",
        "error httpx.ReadTimeout",
        "error",
        "cancelled",
    ]
    styles = [[str(part.style) for part in line.spans] for line in drawn(found, 120)]
    assert ["bold red" in found for found in styles[1:]] == [False, True, True, False]


def test_a_parent_that_is_missing_has_a_place() -> None:
    lines = text(tree(span("a", "gone", 0, 9), span("b", "gone", 0, 9)))
    assert [line.split("  ")[0].strip() for line in lines[1:]] == ["(a span that is not among these)", "├ a", "└ b"]
    assert text(tree()) == []


HOSTILE = "x\x1b[2J\x07\r\n\t\x9b1m名" + "y" * 300


def test_nothing_of_a_span_steers_the_terminal_or_breaks_the_columns() -> None:
    found = tree(
        span(
            "a",
            None,
            0,
            9,
            HOSTILE,
            error__type=HOSTILE,
            gen_ai__usage__input_tokens=HOSTILE,
            gen_ai__response__time_to_first_chunk=HOSTILE,
            **told(advisor__order=HOSTILE, outcome=HOSTILE, round=[HOSTILE] * 9, stream__chunks_out={"a": HOSTILE}),
        ),
        *(span(f"d{n}", f"d{n - 1}" if n else "a", 0, 9, f"deep {n}") for n in range(100)),
    )
    lines = text(found, 100)
    assert [line for line in lines if cell_len(line) > 100] == []
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(lines))
    assert [n for n in range(100) if f"deep {n}" not in lines[n + 2]] == []
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", slowest([found]))


def test_symbols_have_plain_ones() -> None:
    assert all(plain_symbols(line).isascii() for line in text(slow_chain(), 114))


# -- files


def line(*spans: SpanData) -> str:
    """As OTLP JSON."""

    def value(of: Any) -> dict[str, Any]:
        return {"intValue": str(of)} if type(of) is int else {"doubleValue" if type(of) is float else "stringValue": of}

    found = [
        {
            "traceId": one.trace_id,
            "spanId": one.span_id.rjust(16, "0").encode().hex()[-16:],
            "parentSpanId": (one.parent_id or "").rjust(16, "0").encode().hex()[-16:] if one.parent_id else "",
            "name": one.name,
            "startTimeUnixNano": str(one.start),
            "endTimeUnixNano": str(one.end),
            "attributes": [{"key": key, "value": value(of)} for key, of in one.attributes.items()],
        }
        for one in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}) + "\n"


def numbered(number: int, milliseconds: float, chain: bool = True) -> SpanData:
    """A trace of one span, the later the higher its number."""
    start = 1_700_000_000_000 + number * 1000
    kind = {"advisorchain__kind": "chain"} if chain else {}
    one = span("root", None, start, start + milliseconds, f"run {number}", **kind)
    return dataclasses.replace(one, trace_id=f"{number:032x}")


@pytest.fixture
def tell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Run the command over a file of this text; what it wrote to its two outputs."""
    monkeypatch.setenv("COLUMNS", "100")

    def tell(content: str, **setting: Any) -> tuple[str, str]:
        (tmp_path / "spans.jsonl").write_text(content, encoding="utf-8")
        trace(TraceSetting(source=str(tmp_path / "spans.jsonl"), **setting))
        out, err = capsys.readouterr()
        return out, err

    return tell


def runs(out: str) -> list[int]:
    return [int(number) for number in re.findall(r"^run (\d+)", out, re.MULTILINE)]


def test_the_newest_traces_are_shown_the_newest_last(tell: Tell) -> None:
    content = "".join(line(numbered(number, number % 4)) for number in (5, 1, 3, 2, 4))
    out, err = tell(content)
    assert (runs(out), err) == ([3, 4, 5], "")
    assert "the newest 3 of 5 traces; --last N shows the newest N, --slowest N the slowest" in out
    assert "\x1b" not in out
    assert runs(tell(content, last=1)[0]) == [5]
    every, _ = tell(content, last=9)
    assert (runs(every), "of 5 traces" in every) == ([1, 2, 3, 4, 5], False)
    slow, _ = tell(content, slowest=2)
    assert (runs(slow), "the slowest 2 of 5" in slow) == ([3, 2], True)
    assert runs(tell(content, id=f"{4:032x}")[0]) == [4]
    assert runs(tell(content, id="0000")[0]) == [1, 2, 3, 4, 5]


def test_traces_without_a_chain_are_left_out_where_there_are_some_with_one(tell: Tell) -> None:
    content = line(numbered(1, 1)) + "".join(line(numbered(number, 1, chain=False)) for number in (2, 3))
    assert runs(tell(content)[0]) == [1]
    assert runs(tell(content, all=True)[0]) == [1, 2, 3]
    assert runs(tell("".join(content.splitlines(keepends=True)[1:]))[0]) == [2, 3]


def test_a_trace_is_named_by_what_is_known_of_it(tell: Tell, capsys: pytest.CaptureFixture[str]) -> None:
    one = numbered(1, 5)
    told = {**one.attributes, "gen_ai.conversation.id": "c\x1b1", "advisorchain.cost": 9.0}
    cost = dataclasses.replace(span("m", "root", 0, 1, advisorchain__cost=0.0123), trace_id=one.trace_id, start=one.start)
    out, _ = tell(line(dataclasses.replace(one, attributes=told), dataclasses.replace(cost, end=one.end)))
    title = out.splitlines()[0]
    assert title.startswith(f"trace {one.trace_id}  2023-11-1")
    assert title.endswith("2 spans  conversation c�1  $0.0123")


def test_lines_that_are_no_spans_are_told_and_the_rest_is_shown(tell: Tell) -> None:
    out, err = tell("{}\n" + line(numbered(1, 1)) + '{"resource')
    assert runs(out) == [1]
    assert err == "advisorchain: what begins in line 1 holds no spans that can be read, and 1 more\n"


@pytest.mark.parametrize("content", ["", "hello\n", '{"resourceMetrics": []}\n'])
def test_a_file_without_spans_says_what_is_expected(tell: Tell, content: str) -> None:
    with pytest.raises(InvalidInputError, match=r"holds no spans; give OTLP JSON, .* FileSpanExporter"):
        tell(content)


def test_no_such_trace(tell: Tell) -> None:
    with pytest.raises(InvalidInputError, match=f"no trace `ff`; the newest is `{1:032x}`"):
        tell(line(numbered(1, 1)), id="ff")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "directory")):
        with pytest.raises(StorageError, match=f"cannot be read: .*{why}"):
            trace(TraceSetting(source=str(path)))


@pytest.mark.parametrize("place", ["localhost:4318", "127.0.0.1:4318/v1/traces", "[::1]:4318"])
def test_a_place_without_a_scheme_is_told_how_to_listen_there(place: str) -> None:
    with pytest.raises(
        InvalidInputError, match=re.escape(f"`{place}` is no file; to listen there, give the URL `http://{place}`")
    ):
        trace(TraceSetting(source=place))


def test_a_file_whose_name_looks_like_a_place_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run:1").write_text(line(numbered(1, 1)))
    trace(TraceSetting(source="run:1"))
    assert runs(capsys.readouterr().out) == [1]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raw = line(numbered(7, 1)).encode() + b"\xff\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="ascii"))
    trace(TraceSetting(source="-"))
    assert runs(capsys.readouterr().out) == [7]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InvalidInputError, match="no standard input"):
        trace(TraceSetting(source="-"))


@pytest.mark.slow  # starts the command
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_an_output_that_has_not_all_symbols(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    (tmp_path / "spans").write_text(line(dataclasses.replace(numbered(1, 1), name="nämé 名")), encoding="utf-8")
    command = [sys.executable, "-m", "advisorchain.cli", "trace", "spans"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    row = ran.stdout.decode(encoding).splitlines()[2]
    assert row.startswith("nämé ?" if encoding != "ascii" else "n?m? ?")
    assert "####" in row
    assert ran.stderr == b""


# -- a receiver


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:4318", "http://", "ftp://x", "http://127.0.0.1:4318/other", "http://127.0.0.1:99999", "http://[::1"],
)
def test_a_url_to_listen_at_is_http_and_no_more(url: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape("http://127.0.0.1:4318")):
        trace(TraceSetting(source=url))


def test_a_host_that_others_can_reach_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"`0.0.0.0` is not an address of this machine alone"):
        trace(TraceSetting(source="http://0.0.0.0:4318/v1/traces"))


def test_a_receiver_has_no_newest_or_slowest() -> None:
    with pytest.raises(InvalidInputError, match="choose from a FILE"):
        trace(TraceSetting(source="http://127.0.0.1:4318", last=2))


def ids(taken: list[TraceTree]) -> list[str]:
    return [one.id for one in taken]


def test_a_trace_has_come_when_its_root_has_and_it_is_quiet() -> None:
    arrivals = Arrivals()
    arrivals.add([span("b", "a", 1, 2)], now=0)
    assert arrivals.take(now=5) == []
    assert ids(arrivals.running()) == [TRACE]
    arrivals.add([span("a", None, 0, 3)], now=6)
    assert arrivals.take(now=6.1) == []
    assert ids(arrivals.take(now=6.4)) == [TRACE]
    assert arrivals.take(now=99) == arrivals.running() == []
    arrivals.add([span("c", "a", 2, 3)], now=100)  # one more: it is shown again, whole
    (again,) = arrivals.take(now=101)
    assert len(again.spans) == 3


def test_a_trace_whose_root_never_comes_is_shown_in_the_end() -> None:
    arrivals = Arrivals()
    arrivals.add([span("b", "a", 1, 2)], now=0)
    assert ids(arrivals.take(now=59)) == []
    assert ids(arrivals.take(now=61)) == [TRACE]
    arrivals.add([span("b", "a", 1, 2)], now=62)
    assert ids(arrivals.take(now=62, whole=False)) == [TRACE]


def test_the_total_counts_each_trace_once_as_it_was_in_the_end() -> None:
    spent = SpentSoFar()
    for number in range(300):  # more than are remembered one by one
        spent.add(TraceTree(f"{number}", [span("r", None, 0, 100, "work")]))
    spent.add(TraceTree("299", [span("r", None, 0, 100, "work"), span("s", "r", 0, 100, "work")]))
    total = spent.total()
    assert (total.traces, round(total.seconds, 3)) == (300, 30.0)
    assert total.slowest() == "slowest in 300 traces: `work`, 30.00 s of 30.00 s its own (100%, 301 times)"


def test_only_wanted_traces_are_taken() -> None:
    arrivals = Arrivals("000000000000000000000000000000FE", every=False)
    arrivals.add([numbered(0xFE, 1), numbered(3, 1)], now=0)
    assert ids(arrivals.take(now=1)) == [f"{0xFE:032x}"]
    arrivals = Arrivals(every=False)
    arrivals.add([numbered(1, 1), numbered(2, 1, chain=False)], now=0)
    assert ids(arrivals.take(now=1)) == [f"{1:032x}"]


def test_of_many_traces_the_oldest_are_forgotten_once_they_were_shown() -> None:
    arrivals = Arrivals()
    for number in range(500):
        arrivals.add([dataclasses.replace(numbered(number, 1), parent_id="f" * 16)], now=0)
    first = arrivals.take(now=0.1)  # too many to wait for
    assert len(first) == 300
    assert len(arrivals.running()) == 200
    assert len(arrivals.take(now=0.1, whole=False)) == 200


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.text(max_size=40), st.integers(0, 90), st.integers(0, 99)), max_size=14),
    st.integers(1, 160),
)
def test_no_trace_is_wider_than_the_terminal(told: list[tuple[int, str, int, int]], width: int) -> None:
    found = tree(*(span(str(n), str(parent), start, end, name) for n, (parent, name, start, end) in enumerate(told)))
    lines = text(found, width)
    assert [one for one in lines if cell_len(one) > max(width, 46)] == []
    assert len(lines) >= len(told)
