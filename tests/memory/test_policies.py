"""What a view shows of a log: pairs, size, order, and which end of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import ConfigurationError
from advisorchain.memory.policies import MemoryPolicy, MessageWindow, Unbounded
from advisorchain.memory.repository import Entry, Recall, in_force
from advisorchain.messages import AssistantMessage, Message, SystemMessage, TextPart, ToolCall, ToolMessage, UserMessage

U, A, S = UserMessage, AssistantMessage, SystemMessage


def calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(tool_calls=tuple(ToolCall(call, "find") for call in ids))


def result(id: str) -> ToolMessage:
    return ToolMessage(f"r{id}", tool_call_id=id, name="find")


def recall(last: int | None, *batches: Sequence[Message]) -> Recall:
    """What a repository answers when it holds these batches."""
    entries = [
        Entry(place, f"t{turn}", message, datetime(2024, 1, 1, tzinfo=UTC))
        for place, (turn, message) in enumerate([(t, m) for t, batch in enumerate(batches) for m in batch], start=1)
    ]
    systems: tuple[SystemMessage, ...] = ()
    for batch in batches:
        systems = in_force(systems, batch) or systems
    spoken = [entry for entry in entries if entry.role != "system"]
    start = 0 if last is None else max(0, len(spoken) - last)
    question = None
    if spoken[start:] and spoken[start].role != "user":
        question = next((entry for entry in reversed(spoken[:start]) if entry.role == "user"), None)
    return Recall(
        revision=len(batches),
        incarnation=1,
        count=len(entries),
        tail=tuple(spoken[start:]),
        systems=tuple(entry for entry in entries if any(entry.message is system for system in systems)),
        question=question,
    )


def view(policy: MemoryPolicy, *batches: Sequence[Message]) -> tuple[Message, ...]:
    return policy.view(recall(policy.last, *batches))


def texts(messages: Sequence[Message]) -> list[str]:
    return [m.text or ",".join(call.id for call in m.tool_calls) if isinstance(m, A) else m.text for m in messages]


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "3", None], ids=repr)
def test_win_001_win_002_a_window_that_holds_nothing_is_refused(size: object) -> None:
    with pytest.raises(ConfigurationError, match="`max_messages`"):
        MessageWindow(size)


def test_a_window_is_of_20_messages_and_a_value() -> None:
    assert MessageWindow() == MessageWindow(20)
    assert repr(MessageWindow(7)) == "MessageWindow(max_messages=7)"


def test_win_012_a_whole_old_turn_goes() -> None:
    assert texts(view(MessageWindow(2), [U("u1"), A("a1")], [U("u2"), A("a2")])) == ["u2", "a2"]


def test_win_014_one_slot_cannot_hold_an_answered_turn() -> None:
    batches = [S("s1"), S("s2"), U("u1"), A("a1")], [U("u2"), A("a2")]
    assert texts(view(MessageWindow(3), *batches)) == ["s1", "s2"]


def test_win_017_a_turn_with_several_answers_goes_as_a_whole() -> None:
    batch = [U("u1"), A("step1"), A("step2"), A("final"), U("u2"), A("a2")]
    assert texts(view(MessageWindow(4), batch)) == ["u2", "a2"]


def test_win_019_system_messages_may_fill_the_window() -> None:
    assert texts(view(MessageWindow(2), [S("s1"), S("s2")], [U("u1"), A("a1"), U("u2")])) == ["s1", "s2"]
    assert texts(view(MessageWindow(1), [S("s1"), S("s2"), U("u1")])) == ["s1", "s2"]


def test_win_020_a_new_system_message_replaces_all_earlier_ones() -> None:
    assert texts(view(MessageWindow(2), [S("s1"), S("s2")], [S("s3")])) == ["s3"]


def test_win_023_a_tool_turn_goes_as_a_unit() -> None:
    batch = [U("u1"), calls("k1"), result("k1"), A("a1"), U("u2"), A("a2")]
    assert texts(view(MessageWindow(5), batch)) == ["u2", "a2"]


def test_win_025_a_system_message_keeps_its_place() -> None:
    batch = [U("u1"), S("s"), A("a1"), U("u2"), A("a2")]
    assert texts(view(MessageWindow(3), batch)) == ["s", "u2", "a2"]
    assert texts(view(MessageWindow(5), batch)) == ["u1", "s", "a1", "u2", "a2"]
    assert texts(view(Unbounded(), batch)) == ["u1", "s", "a1", "u2", "a2"]


def test_win_026_system_messages_count() -> None:
    assert texts(view(MessageWindow(3), [S("s"), U("u1"), A("a1"), U("u2")])) == ["s", "u2"]


def test_win_027_win_028_system_messages_of_one_batch_stay_together() -> None:
    assert texts(view(MessageWindow(5), [S("old")], [S("n1"), S("n2"), U("u1")])) == ["n1", "n2", "u1"]
    assert texts(view(MessageWindow(5), [S("s1")], [S("s1"), S("s2")])) == ["s1", "s2"]


def test_B004_no_window_has_a_result_without_its_call() -> None:
    log = [U("u1"), calls("a"), result("a"), A("done1"), U("u2"), A("ok")]
    seen = [texts(view(MessageWindow(4), *([message] for message in log[:end]))) for end in range(1, 7)]
    assert seen == [["u1"], ["u1"], ["u1", "a", "ra"], ["u1", "a", "ra", "done1"], ["u2"], ["u2", "ok"]]


@pytest.mark.parametrize(("size", "kept"), [(3, ["u2", "a2", "u3"]), (2, ["u3"]), (1, ["u3"])])
def test_B005_the_window_opens_on_a_user_message(size: int, kept: list[str]) -> None:
    log = [U("u1"), A("a1"), U("u2"), A("a2"), U("u3")]
    assert texts(view(MessageWindow(size), *([message] for message in log))) == kept


def test_B006_parallel_calls_go_with_all_their_results() -> None:
    log = [U("u1"), calls("1", "2", "3"), result("1"), result("2"), result("3"), A("end"), U("u2")]
    assert texts(view(MessageWindow(6), log)) == ["u2"]
    assert texts(view(MessageWindow(7), log)) == texts(log)


@pytest.mark.parametrize("policy", [Unbounded(), MessageWindow(20)], ids=repr)
def test_B086_a_partly_answered_call_is_left_out_with_its_results(policy: MemoryPolicy) -> None:
    assert texts(view(policy, [U("go"), calls("a", "b"), result("a")])) == ["go"]
    assert texts(view(policy, [U("go"), calls("a", "b"), result("a")], [U("next"), A("ok")])) == ["go", "next", "ok"]


@pytest.mark.parametrize("policy", [Unbounded(), MessageWindow(20)], ids=repr)
def test_B101_blank_answers_are_left_out(policy: MemoryPolicy) -> None:
    log = [U("a"), A(""), U("b"), A("   "), U("c"), A((TextPart("\n"),)), A("", reasoning="hm")]
    assert texts(view(policy, log)) == ["a", "b", "c"]


def test_an_answer_that_is_a_refusal_or_has_parts_is_not_blank() -> None:
    log = [U("a"), A("", refusal="no"), U("b"), A((TextPart("hi"),))]
    assert view(Unbounded(), log) == tuple(log)


def test_results_that_nobody_asked_for_are_left_out() -> None:
    log = [result("x"), U("u1"), result("y"), calls("a"), result("a"), result("a"), result("z"), A("done")]
    assert texts(view(Unbounded(), log)) == ["u1", "a", "ra", "done"]


def test_a_result_that_does_not_follow_its_call_answers_nothing() -> None:
    assert texts(view(Unbounded(), [U("u1"), calls("a"), U("u2"), result("a"), A("ok")])) == ["u1", "u2", "ok"]


def test_results_in_another_order_stay_in_theirs() -> None:
    log = [U("u1"), calls("a", "b"), result("b"), result("a")]
    assert view(Unbounded(), log) == tuple(log)


def test_B127_B135_kept_messages_are_the_stored_ones() -> None:
    big = ToolMessage("x" * 10_000, tool_call_id="b", structured={"rows": [1, 2], "status": "ok"}, metadata={"n": 1})
    log = [U("u1"), A("a1"), U("u2"), A("a2"), U("u3"), calls("b"), big, A("a3")]
    kept = view(MessageWindow(5), log)
    assert len(kept) == 4
    assert all(mine is theirs for mine, theirs in zip(kept, log[4:], strict=True))


LONG_TURN = [U("u"), calls("1"), result("1"), calls("2"), result("2"), calls("3"), result("3")]


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        (8, ["u", "1", "r1", "2", "r2", "3", "r3", "end"]),
        (7, ["u", "2", "r2", "3", "r3", "end"]),
        (6, ["u", "2", "r2", "3", "r3", "end"]),
        (5, ["u", "3", "r3", "end"]),
        (4, ["u", "3", "r3", "end"]),
        (3, ["u", "end"]),
        (2, ["u", "end"]),
        (1, []),
    ],
)
def test_an_answered_turn_longer_than_the_room_loses_its_oldest_rounds(size: int, kept: list[str]) -> None:
    assert texts(view(MessageWindow(size), [U("old"), A("old")], [*LONG_TURN, A("end")])) == kept


@pytest.mark.parametrize(
    ("size", "kept"),
    [(6, ["u", "2", "r2", "3", "r3"]), (4, ["u", "3", "r3"]), (3, ["u", "3", "r3"]), (2, ["u"]), (1, ["u"])],
)
def test_a_turn_without_an_answer_keeps_its_question(size: int, kept: list[str]) -> None:
    assert texts(view(MessageWindow(size), [U("old"), A("old")], LONG_TURN)) == kept


def test_a_round_that_is_larger_than_the_room_goes_whole() -> None:
    log = [U("u"), calls("1"), result("1"), calls("2", "3", "4"), result("2"), result("3"), result("4"), A("end")]
    assert texts(view(MessageWindow(4), log)) == ["u", "end"]


def test_a_turn_of_plain_answers_keeps_the_newest() -> None:
    assert texts(view(MessageWindow(3), [U("u"), A("a1"), A("a2"), A("a3")])) == ["u", "a2", "a3"]


def test_a_log_without_any_question_is_shown_while_it_fits() -> None:
    assert texts(view(MessageWindow(3), [A("a1"), A("a2"), A("a3")])) == ["a1", "a2", "a3"]
    assert texts(view(MessageWindow(3), [A("a1"), A("a2"), A("a3"), A("a4")])) == []


def test_a_window_asks_for_one_message_more_than_fits() -> None:
    assert MessageWindow(5).last == 6
    assert Unbounded().last is None


@st.composite
def logs(draw: st.DrawFn) -> list[list[Message]]:
    """Batches of anything: turns, rounds that are whole or broken, blank answers, system messages."""
    ids = (f"k{n}" for n in range(1000))
    batches: list[list[Message]] = []
    for _ in range(draw(st.integers(0, 6))):
        batch: list[Message] = []
        for kind in draw(st.lists(st.sampled_from("uuaabsrrpo"), max_size=6)):
            batch += _piece(draw, kind, ids)
        batches.append(batch)
    return batches


def _piece(draw: st.DrawFn, kind: str, ids: Iterator[str]) -> list[Message]:
    text = f"{kind}{draw(st.integers(0, 3))}"
    if kind in "rp":
        own = [next(ids) for _ in range(draw(st.integers(1, 3)))]
        answered = own if kind == "r" else own[:-1]
        return [calls(*own), *(result(call) for call in draw(st.permutations(answered)))]
    plain = {"u": U(text), "a": A(text), "b": A(" "), "s": S(text), "o": result("nobody")}
    return [plain[kind]]


def check_pairs(messages: Sequence[Message]) -> None:
    waiting: list[str] = []
    for message in (m for m in messages if m.role != "system"):
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)  # a ValueError: nobody asked for it
            continue
        assert not waiting
        waiting = [call.id for call in message.tool_calls] if isinstance(message, A) else []
        assert not (isinstance(message, A) and message.is_blank)
    assert not waiting


@given(logs())
def test_an_unbounded_view_is_valid_and_ordered(batches: list[list[Message]]) -> None:
    shown = view(Unbounded(), *batches)
    check_pairs(shown)
    log = [message for batch in batches for message in batch]
    places = [next(place for place, other in enumerate(log) if other is message) for message in shown]
    assert places == sorted(set(places))
    assert {m.text for m in log if m.role == "user"} == {m.text for m in shown if m.role == "user"}


@given(logs(), st.integers(1, 9))
def test_a_window_is_valid_small_ordered_and_a_part_of_the_log(batches: list[list[Message]], size: int) -> None:
    policy = MessageWindow(size)
    seen = recall(policy.last, *batches)
    shown = policy.view(seen)
    check_pairs(shown)
    assert len(shown) <= max(size, len(seen.systems))
    assert [m for m in shown if m.role == "system"] == [entry.message for entry in seen.systems]
    log = [message for batch in batches for message in batch]
    places = [next(place for place, other in enumerate(log) if other is message) for message in shown]
    assert places == sorted(set(places))


@given(logs(), st.integers(1, 9))
def test_the_newest_question_is_shown_while_there_is_room(batches: list[list[Message]], size: int) -> None:
    seen = recall(None, *batches)
    whole = [m for m in view(Unbounded(), *batches) if m.role != "system"]
    questions = [place for place, m in enumerate(whole) if m.role == "user"]
    room = size - len(seen.systems)
    shown = view(MessageWindow(size), *batches)
    if questions:
        newest = seen.tail[-1].message
        answered = isinstance(newest, A) and not newest.tool_calls and not newest.is_blank
        assert any(m is whole[questions[-1]] for m in shown) == (room >= (2 if answered else 1))


@given(logs(), st.integers(1, 9))
def test_a_window_shows_a_closed_run_of_the_newest(batches: list[list[Message]], size: int) -> None:
    """Between its first message and the newest only rounds of the newest turn may be missing."""
    whole = [m for m in view(Unbounded(), *batches) if m.role != "system"]
    shown = [m for m in view(MessageWindow(size), *batches) if m.role != "system"]
    if shown and not all(mine is theirs for mine, theirs in zip(shown, whole[-len(shown) :], strict=True)):
        assert shown[0].role == "user"
        assert all(m.role != "user" for m in shown[1:])
        rest = shown[1:]
        assert all(mine is theirs for mine, theirs in zip(rest, whole[len(whole) - len(rest) :], strict=True))


@given(logs(), st.integers(1, 9))
def test_a_view_of_a_view_is_the_view(batches: list[list[Message]], size: int) -> None:
    shown = view(MessageWindow(size), *batches)
    assert view(MessageWindow(size), shown) == shown
    assert view(Unbounded(), view(Unbounded(), *batches)) == view(Unbounded(), *batches)


@given(logs(), st.integers(1, 9))
def test_a_view_depends_on_the_newest_only(batches: list[list[Message]], size: int) -> None:
    """However long the log is, what lies before the window (and system messages apart) changes nothing."""
    spoken = [[m for m in batch if m.role != "system"] for batch in batches]
    older = [[U(f"older{n}"), A(f"older{n}")] for n in range(size)]
    longer, longest = [*older, *spoken], [[U("first"), A("first")], *older, *spoken]
    assert view(MessageWindow(size), *longer) == view(MessageWindow(size), *longest)
