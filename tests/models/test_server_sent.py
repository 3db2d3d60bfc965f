"""Server-sent events: the same, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.models._server_sent import EventReader


@pytest.mark.parametrize(
    ("sent", "data"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]),
        (b": hello\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data:  a \n\n", [" a "]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        ("data: \u2028\x0b\x85é\n\n".encode(), ["\u2028\x0b\x85é"]),  # line breaks elsewhere, but not here
        (b"data\n\ndata:\n\nevent: x\n\n", []),
        (b"data: never ended\n", []),
        (b"", []),
    ],
)
def test_the_data_of_events(sent: bytes, data: list[str]) -> None:
    assert [found.decode() for found in EventReader().feed(sent)] == data


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=6)


@given(st.lists(st.tuples(text, st.sampled_from(["\n", "\r\n", "\r"])), max_size=5), st.data())
def test_where_the_bytes_are_cut_does_not_matter(events: list[tuple[str, str]], data: st.DataObject) -> None:
    sent = "".join(f"data: {said}{end}{end}" for said, end in events).encode()
    borders = [0, *sorted(data.draw(st.sets(st.integers(0, len(sent))))), len(sent)]
    reader = EventReader()
    found = [event for begin, end in pairwise(borders) for event in reader.feed(sent[begin:end])]
    assert [each.decode() for each in found] == [said for said, _ in events]
