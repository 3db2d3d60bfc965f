"""What stores keep of what they have read, and what they forget with a conversation."""

from __future__ import annotations

from advisorchain.memory.repositories._known import Known


def test_a_conversation_is_forgotten_alone() -> None:
    known: Known[int, str] = Known()
    known.keep("a", 1, "one", 3)
    known.keep("b", 1, "other", 5)
    known.forget("a")
    known.forget("never seen")
    assert (dict(known.of("a")), dict(known.of("b"))) == ({}, {1: "other"})
    known.clear()
    assert not known.of("b")


def test_what_is_large_is_not_kept_and_no_more_than_4096() -> None:
    known: Known[int, str] = Known()
    known.keep("a", 1, "one", 4097)
    assert not known.of("a")
    for number in range(4096):
        known.keep(number // 1000, number, "it", 4096)
        known.keep(number // 1000, number, "it", 4096)  # counted once
    assert [len(known.of(part)) for part in range(5)] == [1000, 1000, 1000, 1000, 96]
    known.keep("new", 1, "it", 1)
    assert [len(known.of(part)) for part in (*range(5), "new")] == [0, 1000, 1000, 1000, 96, 1]
