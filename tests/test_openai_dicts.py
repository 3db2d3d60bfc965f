"""Messages and OpenAI's dicts: what the form carries survives both ways, and what it does not is told by its place."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisorchain.errors import InvalidInputError, MessageError
from advisorchain.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from advisorchain.openai_dicts import from_dicts, to_dicts

PNG = b"\x89PNG"


def test_texts_are_dicts_of_role_and_content() -> None:
    messages = [SystemMessage("Be kind."), UserMessage("hi", name="ada"), AssistantMessage("hello")]
    assert to_dicts(messages) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi", "name": "ada"},
        {"role": "assistant", "content": "hello"},
    ]


def test_a_tool_round_is_as_openai_writes_it() -> None:
    call = ToolCall("c1", "weather", '{"city": "Rome"}')
    dicts = to_dicts([AssistantMessage("", tool_calls=(call,)), ToolMessage("18C", tool_call_id="c1")])
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert dicts == [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "content": "18C", "tool_call_id": "c1"},
    ]
    assert from_dicts(dicts)[0].tool_calls == (call,)


def test_parts_are_as_openai_writes_them() -> None:
    message = UserMessage(
        (
            TextPart("look"),
            ImagePart("https://example.com/a.png", detail="low"),
            ImagePart(data=PNG, media_type="image/png"),
            AudioPart(data=b"RIFF", media_type="audio/wav"),
            FilePart(file_id="file-1"),
            FilePart(data=b"%PDF", name="a.pdf"),
        )
    )
    (made,) = to_dicts([message])
    assert made["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}},
        {"type": "input_audio", "input_audio": {"data": b64encode(b"RIFF").decode(), "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{b64encode(b'%PDF').decode()}", "filename": "a.pdf"},
        },
    ]


@pytest.mark.parametrize(
    ("given_type", "format_name", "read_type"),
    [
        ("audio/wav", "wav", "audio/wav"),
        ("audio/x-wav", "wav", "audio/wav"),
        ("audio/mpeg", "mp3", "audio/mpeg"),
        ("audio/mp3", "mp3", "audio/mpeg"),
        ("audio/ogg; codecs=opus", "ogg", "audio/ogg"),
    ],
)
def test_sound_is_named_by_its_format(given_type: str, format_name: str, read_type: str) -> None:
    dicts = to_dicts([UserMessage((AudioPart(data=b"x", media_type=given_type),))])
    assert dicts[0]["content"][0]["input_audio"]["format"] == format_name
    assert from_dicts(dicts) == (UserMessage((AudioPart(data=b"x", media_type=read_type),)),)


def test_data_urls_are_read_into_bytes() -> None:
    written = {"type": "image_url", "image_url": "data:image/svg+xml,%3Csvg%2F%3E"}
    (message,) = from_dicts([{"role": "user", "content": [written]}])
    assert message.content == (ImagePart(data=b"<svg/>", media_type="image/svg+xml"),)
    sound = UserMessage((AudioPart("data:audio/wav;base64,UklGRg=="),))
    assert from_dicts(to_dicts([sound])) == (UserMessage((AudioPart(data=b"RIFF", media_type="audio/wav"),)),)
    file = UserMessage((FilePart("data:text/plain;base64,aGk=", name="a.txt"),))
    assert from_dicts(to_dicts([file])) == (UserMessage((FilePart(data=b"hi", name="a.txt", media_type="text/plain"),)),)


def test_what_servers_and_sdks_add_is_no_obstacle() -> None:
    answer = {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": "hm",
    }
    assert from_dicts([answer]) == (AssistantMessage("", refusal="no", reasoning="hm"),)
    assert from_dicts([{"role": "developer", "content": "Be kind."}]) == (SystemMessage("Be kind."),)
    assert from_dicts([{"role": "assistant", "content": []}]) == (AssistantMessage(""),)
    assert from_dicts([]) == ()


def test_what_the_form_has_no_place_for_is_left_out() -> None:
    answer = AssistantMessage("a", reasoning="r", partial=True, metadata={"k": 1})
    result = ToolMessage("x", tool_call_id="c", structured={"a": 1}, is_error=True)
    assert from_dicts(to_dicts([answer, result])) == (AssistantMessage("a"), ToolMessage("x", tool_call_id="c"))


@pytest.mark.parametrize("part", [AudioPart("https://example.com/a.wav"), FilePart("https://example.com/a.pdf")])
def test_sound_and_files_by_url_are_refused(part: AudioPart | FilePart) -> None:
    with pytest.raises(MessageError, match=r"`messages\[1\]\.content\[0\]` is .* by URL"):
        to_dicts([UserMessage("hi"), UserMessage((part,))])


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"`messages\[0\]` is a dict"):
        to_dicts([{"role": "user", "content": "hi"}])


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("secret", "`messages[1]` is a str; give a dict"),
        ({"content": "secret"}, "`messages[1].role` is missing"),
        ({"role": "secret", "content": "x"}, "`messages[1].role` is none of `system`"),
        ({"role": ["secret"], "content": "x"}, "`messages[1].role` is none of `system`"),
        ({"role": "function", "name": "f", "content": "secret"}, "`messages[1].role` is `function`, of an old form"),
        ({"role": "user"}, "`messages[1].content` is missing"),
        ({"role": "user", "content": 7}, "`messages[1].content` is an int"),
        ({"role": "user", "content": []}, "`messages[1].content` is empty"),
        ({"role": "user", "content": "\ud800secret"}, "`messages[1].content`: the text holds a lone surrogate"),
        ({"role": "user", "content": "x", "name": 1}, "`messages[1].name` is an int"),
        ({"role": "user", "content": ["secret"]}, "`messages[1].content[0]` is a str; give a dict"),
        ({"role": "user", "content": [{"text": "secret"}]}, "`messages[1].content[0].type` is missing"),
        ({"role": "user", "content": [{"type": "video_url"}]}, "`messages[1].content[0].type` is none of `text`"),
        ({"role": "user", "content": [{"type": "text"}]}, "`messages[1].content[0].text` is missing"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "`messages[1].content[0].image_url` is missing"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "secret", "detail": "secret"}}]},
            "`messages[1].content[0].image_url.detail` is none of `auto`",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:secret"}}]},
            "`messages[1].content[0].image_url.url` is a `data:` URL without data",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:a/b;base64,secret!"}]},
            "`messages[1].content[0].image_url.url` is not base64",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "secret!", "format": "wav"}}]},
            "`messages[1].content[0].input_audio.data` is not base64",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"filename": "secret"}}]},
            "`messages[1].content[0].file.file_data` is missing",
        ),
        ({"role": "tool", "content": "secret"}, "`messages[1].tool_call_id` is missing"),
        ({"role": "tool", "content": "secret", "tool_call_id": ""}, "`messages[1].tool_call_id` is empty"),
        ({"role": "assistant", "function_call": {"name": "secret"}}, "`messages[1].function_call` cannot be carried"),
        ({"role": "assistant", "audio": {"id": "secret"}}, "`messages[1].audio` cannot be carried"),
        ({"role": "assistant", "tool_calls": "secret"}, "`messages[1].tool_calls` is a str"),
        ({"role": "assistant", "tool_calls": ["secret"]}, "`messages[1].tool_calls[0]` is a str"),
        ({"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}, "`messages[1].tool_calls[0].type` is none of"),
        ({"role": "assistant", "tool_calls": [{**CALL, "id": None}]}, "`messages[1].tool_calls[0].id` is missing"),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"secret": 1}}}]},
            "`messages[1].tool_calls[0].function.arguments` is a dict",
        ),
    ],
)
def test_what_cannot_be_read_is_told_by_its_place(item: Any, told: str) -> None:
    with pytest.raises(MessageError) as caught:
        from_dicts([{"role": "user", "content": "hi"}, item])
    assert str(caught.value).startswith(told)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", ["hi", b"hi", {"role": "user", "content": "hi"}, 7, None])
def test_what_is_no_list_of_dicts_is_refused(value: Any) -> None:
    with pytest.raises(MessageError, match="`messages` is"):
        from_dicts(value)


def of(kind: Any, *args: Any, **kwargs: Any) -> st.SearchStrategy[Any]:
    """As `st.builds`, which would guess at the arguments that are left out."""
    return st.builds(lambda *args, **kwargs: kind(*args, **kwargs), *args, **kwargs)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
word = text.filter(bool)
name = st.none() | text
media_type = st.sampled_from(["image/png", "image/svg+xml", "application/pdf", "text/plain;charset=utf-8"])
sound_type = st.sampled_from(["audio/wav", "audio/mpeg", "audio/flac"])
url = word.map(lambda rest: f"https://example.com/{rest}")
image = of(ImagePart, url, detail=st.sampled_from([None, "auto", "low", "high"])) | of(
    ImagePart, data=st.binary(max_size=9), media_type=media_type
)
audio = of(AudioPart, data=st.binary(max_size=9), media_type=sound_type)
file = of(FilePart, file_id=word, name=name) | of(FilePart, data=st.binary(max_size=9), name=name, media_type=media_type)
asked = text | st.lists(of(TextPart, text) | image | audio | file, min_size=1, max_size=3).map(tuple)
said = text | st.lists(of(TextPart, text) | of(RefusalPart, text), min_size=1, max_size=3).map(tuple)
calls = st.lists(of(ToolCall, word, text, text), max_size=2).map(tuple)
message = st.one_of(
    of(SystemMessage, said, name=name),
    of(UserMessage, asked, name=name),
    of(AssistantMessage, said, refusal=name, tool_calls=calls, name=name),
    of(ToolMessage, asked, tool_call_id=word, name=name),
)


@given(st.lists(message, max_size=4).map(tuple))
def test_what_the_form_carries_survives_both_ways(messages: tuple[Message, ...]) -> None:
    dicts = to_dicts(messages)
    assert from_dicts(dicts) == messages
    assert to_dicts(from_dicts(dicts)) == dicts
