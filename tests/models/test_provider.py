"""What all providers' errors mean, what of them is shown, and characters that came in two pieces."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import ContextLengthError, ModelError, ModelNotFoundError, ModelTimeoutError
from advisorchain.models._provider import SurrogateJoiner, hide_texts, retry_after, status_error


@pytest.mark.parametrize(
    ("told", "kind", "retryable"),
    [
        ({"status": 400}, ModelError, False),
        ({"status": 400, "code": "context_length_exceeded"}, ContextLengthError, False),
        ({"status": 400, "told": "This model's maximum context length is 8192 tokens."}, ContextLengthError, False),
        ({"status": 400, "told": "prompt is too long: 210000 tokens > 200000 maximum"}, ContextLengthError, False),
        ({"status": 413, "kind": "request_too_large"}, ContextLengthError, False),
        ({"status": 500, "told": "maximum context length"}, ModelError, True),
        ({"status": 401}, ModelError, False),
        ({"status": 403}, ModelError, False),
        ({"status": 404}, ModelNotFoundError, False),
        ({"status": 400, "code": "model_not_found"}, ModelNotFoundError, False),
        ({"status": 408}, ModelTimeoutError, True),
        ({"status": 504}, ModelTimeoutError, True),
        ({"status": 409}, ModelError, True),
        ({"status": 422}, ModelError, False),
        ({"status": 429}, ModelError, True),
        ({"status": 429, "code": "insufficient_quota"}, ModelError, False),
        ({"status": 500}, ModelError, True),
        ({"status": 500, "headers": {"x-should-retry": "false"}}, ModelError, False),
        ({"status": 400, "headers": {"x-should-retry": "true"}}, ModelError, True),
        ({"status": 529, "kind": "overloaded_error"}, ModelError, True),
        ({"kind": "overloaded_error"}, ModelError, True),
        ({"code": "rate_limit_exceeded", "told": "too many tokens in this minute"}, ModelError, True),
        ({"told": "the maximum context length is 8192 tokens"}, ContextLengthError, False),
        ({"code": "invalid_prompt"}, ModelError, False),
        ({}, ModelError, False),
    ],
)
def test_an_answer_with_an_error_has_a_meaning(told: dict[str, object], kind: type[ModelError], retryable: bool) -> None:
    error = status_error("gpt-x", **told)
    assert type(error) is kind
    assert (error.retryable, error.status) == (retryable, told.get("status"))
    assert "`gpt-x`" in str(error)


def test_only_what_looks_like_a_name_is_shown() -> None:
    shown = status_error("gpt-x", status=400, code="bad_value", kind="x", param="messages[0].role", told="my secret")
    assert "(status 400, `bad_value`, about `messages[0].role`)" in str(shown)
    hidden = status_error("gpt-x", status=400, code="my secret", param="my secret", told="my secret")
    assert "secret" not in str(hidden)
    assert "(status 400)" in str(status_error("gpt-x", status=400, code="400"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_the_wait_that_is_asked_for_is_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    assert status_error("x", status=429, headers=headers).retry_after == seconds


def test_the_wait_may_be_told_as_a_date() -> None:
    wait = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)})
    assert wait is not None
    assert 3500 < wait <= 3600


def fail_as_libraries_do() -> None:
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as system:
            raise ValueError("Bearer secret") from system
    except ValueError:
        raise RuntimeError("your prompt: secret")  # noqa: B904  this is how


def printed(error: BaseException) -> str:
    """As a traceback has it, without the lines of source."""
    return "".join(line for line in "".join(traceback.format_exception(error)).splitlines() if not line.startswith("    "))


def test_no_text_of_a_cause_is_printed_but_the_systems() -> None:
    with pytest.raises(RuntimeError) as caught:
        fail_as_libraries_do()
    hide_texts(caught.value)
    for shown in ("RuntimeError", "ValueError", "Connection refused"):
        assert shown in printed(caught.value)
    assert "secret" not in printed(caught.value)


def test_what_the_caller_was_dealing_with_keeps_its_text() -> None:
    mine, caught = KeyError("mine"), None
    try:
        raise mine
    except KeyError:
        try:
            fail_as_libraries_do()
        except RuntimeError as error:
            caught = error
            hide_texts(error)
    assert caught is not None
    assert "secret" not in printed(caught)
    assert mine.args == ("mine",)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.data())
def test_characters_cut_in_two_are_joined(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le")
    halves = [units[place : place + 2].decode("utf-16-le", "surrogatepass") for place in range(0, len(units), 2)]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(halves)))))
    borders = [0, *cuts, len(halves)]
    joiner = SurrogateJoiner()
    pieces = [joiner.feed("".join(halves[begin:end])) for begin, end in pairwise(borders)]
    assert all(piece.encode() is not None for piece in pieces)
    assert "".join(pieces) + joiner.flush() == text


@given(st.lists(st.text(max_size=3) | st.sampled_from(["\ud83d", "\ude00", "a\ud83d"]), max_size=8))
def test_what_comes_out_can_always_be_encoded(pieces: list[str]) -> None:
    joiner = SurrogateJoiner()
    whole = "".join([*(joiner.feed(piece) for piece in pieces), joiner.flush()])
    assert whole == "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
