"""The fold: chunks become one response, however providers cut them and whatever they leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.aggregate import Fold, as_chunk, carrying, fold_chunks, merged_context
from advisorchain.errors import InvalidInputError, MessageError, ModelResponseError
from advisorchain.exchange import ChatChunk, ChatResponse, ToolCallChunk
from advisorchain.messages import AssistantMessage, ImagePart, TextPart, ToolCall, ToolMessage, Usage

Pieces = Sequence[tuple[Any, ...]]


def calls_of(*pieces: tuple[Any, ...]) -> tuple[ToolCall, ...]:
    """The calls of pieces (index, id, name, arguments), one a chunk."""
    return fold_chunks(ChatChunk(tool_calls=(ToolCallChunk(*piece),)) for piece in pieces).message.tool_calls


def shapes(calls: Sequence[ToolCall]) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in calls]


# --- text, reasoning, refusal -----------------------------------------------------------------------------------------


def test_text_reasoning_and_refusal_are_kept_apart() -> None:
    response = fold_chunks(
        [
            ChatChunk(reasoning="hm"),
            ChatChunk("4", reasoning="m "),
            ChatChunk("2", refusal="I "),
            ChatChunk(refusal="won't"),
            ChatChunk(reasoning="still"),
        ]
    )
    assert response.message == AssistantMessage("42", reasoning="hmm still", refusal="I won't")


@pytest.mark.parametrize("empty", [None, ""])
def test_what_never_came_is_none(empty: str | None) -> None:
    response = fold_chunks([ChatChunk("hi", reasoning=empty, refusal=empty, finish_reason=empty)])
    assert response.message == AssistantMessage("hi")
    assert response.finish_reason is None


def test_plain_text_may_be_added_to_the_list() -> None:
    fold = Fold()
    assert fold.empty
    fold.text.append("hel")
    fold.add(ChatChunk("lo"))
    fold.text.append("!")
    assert not fold.empty
    assert fold.response().text == "hello!"


def test_a_chunk_with_nothing_is_a_chunk_all_the_same() -> None:
    fold = Fold()
    fold.add(ChatChunk())
    assert not fold.empty
    assert fold.response() == ChatResponse(AssistantMessage(""))


# --- finish reason and what a provider tells beside the answer --------------------------------------------------------


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([None, "stop"], "stop"),
        (["stop", None], "stop"),  # in the chunk before a trailing one without a choice
        (["stop", ""], "stop"),
        (["tool_calls", "stop"], "stop"),
        (["STOP"], "STOP"),
    ],
    ids=str,
)
def test_the_last_finish_reason_that_was_told_is_kept(reasons: list[str | None], expected: str | None) -> None:
    chunks = [ChatChunk("a"), *(ChatChunk(finish_reason=reason) for reason in reasons)]
    assert fold_chunks(chunks).finish_reason == expected


def test_B082_what_belongs_to_a_message_is_on_the_message_that_a_stream_makes() -> None:
    signed = {"message": {"signature": "a1"}, "id": "r-1"}
    first = [ChatChunk("one", metadata=signed), ChatChunk(metadata={"message": {"more": [1]}})]
    response = fold_chunks(
        [*first, ChatChunk("two", boundary="round"), ChatChunk(metadata={"message": {"signature": "b2"}})]
    )
    assert [dict(message.metadata) for message in response.turn] == [{"signature": "a1", "more": [1]}, {"signature": "b2"}]
    assert (response.id, response.metadata) == ("r-1", {})


def test_B082_what_belongs_to_a_message_passes_on_in_one_chunk() -> None:
    response = ChatResponse(AssistantMessage("hi", metadata={"signature": "a1"}))
    assert fold_chunks([as_chunk(response)]).message == response.message


def test_what_belongs_to_a_message_is_a_dict_of_json() -> None:
    with pytest.raises(InvalidInputError, match="message"):
        ChatChunk(metadata={"message": "text"})
    with pytest.raises(MessageError, match="metadata"):
        fold_chunks([ChatChunk("x", metadata={"message": {"key": object()}})])


def test_what_the_response_tells_of_a_message_goes_with_it_when_it_is_withdrawn() -> None:
    told: Any = [{"id": "r-0", "a": 0}, {"id": "r-1", "model": "m", "a": 1, "b": 1}, {"id": "r-2"}]
    first, withdrawn, last = (ChatChunk("x", metadata=metadata) for metadata in told)
    again = ChatChunk(boundary="attempt", withdraws=1)
    fold = Fold()
    for chunk in (first, ChatChunk(boundary="round"), withdrawn, again, ChatChunk("y")):
        fold.add(chunk)
    partial = fold.partial()
    assert partial is not None
    assert (partial.id, partial.model, partial.metadata) == ("r-0", None, {"a": 0})
    fold.add(last)
    assert (fold.response().id, fold.response().metadata) == ("r-2", {"a": 0})


def test_metadata_is_merged_and_null_erases_nothing() -> None:
    told: list[dict[str, Any]] = [{"id": "r1", "model": None, "a": 1, "limit": None}, {"a": 2, "limit": {"left": 9}}]
    told.append({"model": "m", "id": None, "limit": None})
    response = fold_chunks(ChatChunk(metadata=metadata) for metadata in told)
    assert (response.id, response.model) == ("r1", "m")
    assert response.metadata == {"a": 2, "limit": {"left": 9}}
    assert told[0] == {"id": "r1", "model": None, "a": 1, "limit": None}


# --- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([None, None], None),
        ([Usage(10, 4), None], Usage(10, 4)),
        ([None, Usage(10, 4)], Usage(10, 4)),
        ([Usage(10, 4), Usage(10, 4)], Usage(10, 4)),
        ([Usage(10, 1), Usage(10, 2), Usage(10, 3)], Usage(10, 3)),
        ([Usage(10, 4), Usage(0, 0, 0)], Usage(10, 4)),
        ([Usage(10, 4), Usage()], Usage(10, 4)),
        ([Usage(10), Usage(None, 4)], Usage(10, 4, 14)),
        ([Usage(10, 1), Usage(None, 50)], Usage(10, 50, 60)),  # the start tells both, the end what was added
        ([Usage(10, 1, 20), Usage(None, 50)], Usage(10, 50, 20)),  # a total that is no sum stays the provider's
        ([Usage(10, 4, cached_tokens=8), Usage(10, 5)], Usage(10, 5, cached_tokens=8)),
        ([Usage(5, 1, 6), Usage(0, 4, 0), Usage(0, 0, 9)], Usage(5, 4, 9)),
    ],
    ids=str,
)
def test_usage_is_never_doubled_and_never_erased(reports: list[Usage | None], expected: Usage | None) -> None:
    chunks = [ChatChunk("a"), *(ChatChunk(usage=usage) for usage in reports), ChatChunk(finish_reason="stop")]
    assert fold_chunks(chunks).usage == expected


# --- tool calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([(0, "a", "f", '{"x"'), (0, None, None, ":1}")], [("a", "f", '{"x":1}')]),
        ([(0, "a", "f", '{"x"'), (0, "a", "f", ":1}")], [("a", "f", '{"x":1}')]),
        ([(0, None, "f", "{"), (0, "a", None, "}")], [("a", "f", "{}")]),  # the id comes late
        ([(0, "a", None, "{"), (0, None, "f", "}")], [("a", "f", "{}")]),  # the name comes late
        ([(0, "a", "f", None), (1, "b", "g", None)], [("a", "f", "{}"), ("b", "g", "{}")]),
        ([(1, "b", "g", "{"), (0, "a", "f", "{"), (1, "", "", "}"), (0, "", "", "}")], [("b", "g", "{}"), ("a", "f", "{}")]),
        ([(None, "a", "f", "{}"), (None, "b", "f", "{}")], [("a", "f", "{}"), ("b", "f", "{}")]),
        ([(None, "a", "f", "{"), (None, "b", "g", "{"), (None, "a", None, "}"), (None, "b", None, "}")],
         [("a", "f", "{}"), ("b", "g", "{}")]),
        ([(0, "a", "f", "{}"), (0, "b", "f", "{}")], [("a", "f", "{}"), ("b", "f", "{}")]),  # parallel calls, one index
        ([(0, "a", "f", "{"), (0, "b", "g", "{"), (0, "a", None, "}"), (0, "b", None, "}")],
         [("a", "f", "{}"), ("b", "g", "{}")]),
        ([(0, "a", "f", "{}"), (None, None, None, " ")], [("a", "f", "{} ")]),
        ([(None, "a", "f", "{}"), (None, None, "f", "")], [("a", "f", "{}")]),
        ([(0, "", "", ""), (0, None, None, None), (0, "a", "f", "{}")], [("a", "f", "{}")]),
        ([(0, "a", "f", '{"p":1}{"p":2}')], [("a", "f", '{"p":1}{"p":2}')]),  # as it came
    ],
    ids=str,
)  # fmt: skip
def test_pieces_find_their_call(pieces: Pieces, expected: list[tuple[str, str, str]]) -> None:
    assert calls_of(*pieces) == tuple(ToolCall(*call) for call in expected)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([(None, None, "f", '{"n":1}'), (None, None, "f", '{"n":2}')], [("f", '{"n":1}'), ("f", '{"n":2}')]),
        ([(0, "", "f", '{"n":1}'), (0, "", "f", '{"n":2}')], [("f", '{"n":1}'), ("f", '{"n":2}')]),
        ([(0, None, "f", ""), (0, None, "g", "")], [("f", "{}"), ("g", "{}")]),
        ([(None, None, "f", None), (None, None, "g", None)], [("f", "{}"), ("g", "{}")]),
        ([(0, None, "f", '{"n"'), (0, None, "f", ":1"), (0, None, "f", "}"), (0, None, "f", "")], [("f", '{"n":1}')]),
        ([(0, None, "f", ""), (0, None, None, "{}"), (0, None, "f", ""), (0, None, None, "{}")], [("f", "{}"), ("f", "{}")]),
        ([(0, None, "f", '{"n":{"m":1}'), (0, None, "f", "}"), (0, None, "f", "\n")], [("f", '{"n":{"m":1}}\n')]),
        ([(0, None, "f", '{"n":' + "[" * 2000 + "}"), (0, None, "f", "x")], [("f", '{"n":' + "[" * 2000 + "}x")]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_calls_without_ids_are_told_apart_and_get_unique_ids(pieces: Pieces, expected: list[tuple[str, str]]) -> None:
    calls = calls_of(*pieces)
    assert shapes(calls) == expected
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id for call in calls)


def test_B165_two_calls_of_one_tool_without_ids_both_stay() -> None:
    for nothing in ("", None):
        pieces = tuple(ToolCallChunk(None, nothing, "f", f'{{"n":{n}}}') for n in (1, 2))
        one, other = fold_chunks([ChatChunk(tool_calls=pieces)]).message.tool_calls
        assert one.id != other.id
        assert (one.parsed(), other.parsed()) == ({"n": 1}, {"n": 2})


def test_one_id_for_two_calls_is_made_two() -> None:
    calls = calls_of((0, "call", "f", "{}"), (1, "call", "g", "{}"))
    assert shapes(calls) == [("f", "{}"), ("g", "{}")]
    assert calls[0].id == "call" != calls[1].id


def test_a_made_id_stays_the_same_and_gives_way_to_one_that_comes_late() -> None:
    fold = Fold()
    fold.add(ChatChunk(tool_calls=(ToolCallChunk(0, None, "f", "{"),)))
    assert fold.response() == fold.response()
    fold.add(ChatChunk(tool_calls=(ToolCallChunk(0, "late", None, "}"),)))
    assert fold.response().message.tool_calls == (ToolCall("late", "f", "{}"),)


def test_a_tool_without_a_name_is_an_error_without_its_arguments() -> None:
    with pytest.raises(ModelResponseError, match="`k`") as caught:
        calls_of((0, "k", None, '{"canary":1}'))
    assert "canary" not in str(caught.value)


# --- several messages -------------------------------------------------------------------------------------------------


def a_round() -> list[ChatChunk]:
    return [
        ChatChunk("First. ", tool_calls=(ToolCallChunk(0, "k", "f", "{}"),), usage=Usage(1, 2)),
        ChatChunk(finish_reason="tool_calls"),
        ChatChunk(tool_result=ToolMessage("r", tool_call_id="k")),
    ]


def test_a_round_becomes_part_of_earlier() -> None:
    fold = Fold()
    for chunk in [*a_round(), ChatChunk("Sec", boundary="round"), ChatChunk("ond.", usage=Usage(10, 20))]:
        fold.add(chunk)
    response = fold.response()
    first = AssistantMessage("First. ", tool_calls=(ToolCall("k", "f"),))
    assert response.turn == (first, ToolMessage("r", tool_call_id="k"), AssistantMessage("Second."))
    assert (response.finish_reason, response.usage) == (None, Usage(11, 22, 33))
    assert fold.texts() == ["First. ", "Second."]


@pytest.mark.parametrize(("withdraws", "left"), [(0, ["a", "b", "c"]), (1, ["a", "c"]), (2, ["c"]), (9, ["c"])])
def test_an_attempt_takes_the_place_of_what_no_longer_counts(withdraws: int, left: list[str]) -> None:
    fold = Fold()
    for chunk in [
        ChatChunk("a"),
        ChatChunk("b", boundary="round"),
        ChatChunk("c", boundary="attempt", withdraws=withdraws),
    ]:
        fold.add(chunk)
    assert fold.texts() == left


def test_a_partial_is_marked_and_has_no_open_calls() -> None:
    fold = Fold()
    assert fold.partial() is None
    fold.add(ChatChunk(tool_calls=(ToolCallChunk(0, "k", "f", '{"ha'),)))
    assert fold.partial() is None  # nothing was to be seen
    fold.add(ChatChunk("Hel", reasoning="hm", usage=Usage(1, 2)))
    partial = fold.partial()
    assert partial is not None
    assert partial.message == AssistantMessage("Hel", reasoning="hm", partial=True)
    assert partial.usage == Usage(1, 2)
    changed = fold.partial(["HEL"])
    assert changed is not None
    assert changed.text == "HEL"


def test_a_partial_between_rounds_has_the_finished_round_and_nothing_after_it() -> None:
    fold = Fold()
    for chunk in a_round():
        fold.add(chunk)
    partial = fold.partial()
    assert partial is not None
    first = AssistantMessage("First. ", tool_calls=(ToolCall("k", "f"),))
    assert partial.turn == (first, ToolMessage("r", tool_call_id="k"), AssistantMessage(partial=True))


def test_texts_are_carried_from_the_end() -> None:
    image = ImagePart("http://x.test/i.png")
    message = AssistantMessage((TextPart("a"), image, TextPart("b")), reasoning="hm")
    response = ChatResponse(message, earlier=(AssistantMessage("one"), ToolMessage("r", tool_call_id="k")))
    assert carrying(response, ["one", "ab"]) is response
    assert carrying(response, []) is response
    carried = carrying(response, ["zero", "ONE", "AB"])
    assert carried.message == AssistantMessage((TextPart("AB"), image), reasoning="hm")
    assert carried.earlier == (AssistantMessage("ONE"), ToolMessage("r", tool_call_id="k"))
    assert carrying(response, ["AB"]).earlier == response.earlier


def test_the_requests_context_lies_under_the_responses() -> None:
    response = ChatResponse("a", context={"k": 2})
    assert merged_context({"k": 1, "j": 1}, response).context == {"k": 2, "j": 1}
    assert merged_context({}, response) is response
    assert merged_context({"j": 1}, ChatResponse("a")).context == {"j": 1}


# --- the fold does not depend on how the same content is cut ----------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
json_text = st.sampled_from(
    ["{}", '{"a":1}', '{"city": "Zürich 🌧", "n": [1, {"b": null}]}', '{"s":"}{"}', '{"cut', "", "[1]"]
)


@dataclass(frozen=True)
class Style:
    """How a provider streams a call: which of index, id and name are on the pieces after the first."""

    index: bool
    id_again: bool
    name_again: bool
    blank: str | None  # in place of an id or name that is not told again


styles = st.builds(Style, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, ""]))


@dataclass(frozen=True)
class Content:
    """What an answer says, however it is cut."""

    text: str
    reasoning: str
    refusal: str
    calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Usage | None

    def response(self) -> ChatResponse:
        message = AssistantMessage(
            self.text,
            reasoning=self.reasoning or None,
            refusal=self.refusal or None,
            tool_calls=tuple(ToolCall(call.id, call.name, call.arguments or "{}") for call in self.calls),
        )
        return ChatResponse(message, finish_reason=self.finish_reason, usage=self.usage)


@st.composite
def contents(draw: st.DrawFn) -> Content:
    names = draw(st.lists(st.sampled_from(["f", "g"]), max_size=3))
    calls = tuple(ToolCall(f"k{place}", name, draw(json_text)) for place, name in enumerate(names))
    text, reasoning, refusal = [draw(words | st.just("")) for _ in range(3)]
    usage = draw(st.none() | st.builds(Usage, st.integers(1, 9), st.integers(1, 9)))
    return Content(text, reasoning, refusal, calls, draw(st.none() | st.just("stop")), usage)


def cut(draw: Any, text: str) -> list[str]:
    """`text` in pieces, cut at any borders; some pieces may be empty."""
    borders = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *borders], [*borders, len(text)], strict=True)]


def call_pieces(draw: st.DrawFn, place: int, call: ToolCall, style: Style) -> list[ChatChunk]:
    first, *others = cut(draw, call.arguments)
    index = place if style.index else None
    again = (call.id if style.id_again else style.blank, call.name if style.name_again else style.blank)
    pieces = [ToolCallChunk(index, call.id, call.name, first), *(ToolCallChunk(index, *again, other) for other in others)]
    return [ChatChunk(tool_calls=(piece,)) for piece in pieces]


def interleaved(draw: st.DrawFn, lanes: list[list[ChatChunk]]) -> list[ChatChunk]:
    """All chunks, each lane in its order."""
    turns = [place for place, lane in enumerate(lanes) for _ in lane]
    waiting = [iter(lane) for lane in lanes]
    return [next(waiting[place]) for place in draw(st.permutations(turns))]


@st.composite
def cuts(draw: st.DrawFn, content: Content) -> list[ChatChunk]:
    """The content as some provider might stream it."""
    style = draw(styles)
    lanes = [
        [ChatChunk(piece) for piece in cut(draw, content.text)],
        [ChatChunk(reasoning=piece) for piece in cut(draw, content.reasoning)],
        [ChatChunk(refusal=piece) for piece in cut(draw, content.refusal)],
    ]
    calls = [call_pieces(draw, place, call, style) for place, call in enumerate(content.calls)]
    if style.index or style.id_again:  # parallel calls; their first pieces come in their order
        heads, tails = [lane[0] for lane in calls], [lane[1:] for lane in calls]
        lanes.append([*heads, *interleaved(draw, tails)])
    else:
        lanes.append([chunk for lane in calls for chunk in lane])
    chunks = interleaved(draw, lanes)
    if content.finish_reason:
        chunks.append(ChatChunk(finish_reason=content.finish_reason))
    if content.usage:  # in one chunk, in each after it, or in a trailing one
        chunks += [ChatChunk(usage=content.usage)] * draw(st.integers(1, 2))
    return chunks


@settings(deadline=None)
@given(st.data())
def test_the_fold_does_not_depend_on_how_the_content_is_cut(data: st.DataObject) -> None:
    content = data.draw(contents())
    chunks = data.draw(cuts(content))
    assert fold_chunks(chunks) == content.response()


@settings(deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([None, 0]), st.sampled_from([None, ""]))
def test_calls_without_ids_do_not_depend_on_how_they_are_cut(
    data: st.DataObject, name_again: bool, index: int | None, blank: str | None
) -> None:
    wanted = data.draw(
        st.lists(st.tuples(st.sampled_from(["f", "g"]), st.sampled_from(["{}", '{"s":"}{"}', '{"n": {"m": 1}}'])))
    )
    pieces: list[tuple[Any, ...]] = []
    for name, arguments in wanted:
        first, *others = cut(data.draw, arguments)
        pieces.append((index, blank, name, first))
        pieces += [(index, blank, name if name_again else blank, other) for other in others if other or not name_again]
    assert shapes(calls_of(*pieces)) == wanted


@settings(deadline=None)
@given(st.data())
def test_adjacent_chunks_may_be_merged(data: st.DataObject) -> None:
    chunks = data.draw(cuts(data.draw(contents())))
    merged = [chunks[0]]
    for chunk in chunks[1:]:
        last = merged[-1]
        if chunk.plain and last.plain and data.draw(st.booleans()):
            merged[-1] = ChatChunk(last.text + chunk.text)
        elif chunk.tool_calls and not last.usage and not last.finish_reason and data.draw(st.booleans()):
            merged[-1] = ChatChunk(
                last.text, last.reasoning, last.refusal, (*last.tool_calls, *chunk.tool_calls), metadata=last.metadata
            )
        else:
            merged.append(chunk)
    assert fold_chunks(merged) == fold_chunks(chunks)


@settings(deadline=None)
@given(contents())
def test_a_response_as_one_chunk_is_the_same_response(content: Content) -> None:
    response = content.response()
    assert fold_chunks([as_chunk(response)]) == response


@settings(deadline=None)
@given(st.data())
def test_every_partial_is_the_beginning_of_the_whole(data: st.DataObject) -> None:
    content = data.draw(contents())
    chunks = data.draw(cuts(content))
    fold, seen = Fold(), ""
    for chunk in chunks:
        fold.add(chunk)
        seen += chunk.text
        partial = fold.partial()
        if partial is None:
            assert not seen.strip()
            continue
        assert partial.message.partial
        assert partial.message.tool_calls == ()
        assert partial.text == seen
        assert content.reasoning.startswith(partial.message.reasoning or "")
    assert fold.response() == content.response()
