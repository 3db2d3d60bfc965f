"""One table of images, sounds and files through the three forms in which messages are sent."""

from __future__ import annotations

from typing import Any

import pytest

from advisorchain.errors import InvalidInputError, MessageError
from advisorchain.exchange import ChatRequest
from advisorchain.messages import AudioPart, FilePart, ImagePart, Part, UserMessage
from advisorchain.models._anthropic_wire import request_parameters
from advisorchain.models._openai_chat import chat_body
from advisorchain.models._openai_responses import responses_body


def chat(part: Part) -> Any:
    body = chat_body(ChatRequest((UserMessage((part,)),)), model="m", max_tokens="max_tokens", host="h")
    return body["messages"][0]["content"][0]


def responses(part: Part) -> Any:
    return responses_body(ChatRequest((UserMessage((part,)),)), model="m", host="h")["input"][0]["content"][0]


def anthropic(part: Part) -> Any:
    request = ChatRequest((UserMessage((part,)),))
    sent = request_parameters(request, name="m", max_tokens=9, host="h", all_thinking=False)
    return sent["messages"][0]["content"][0]


FORMS = (chat, responses, anthropic)
PNG, PDF, WAV, TEXT = "iVBORw==", "JVBERi0=", "UklGRg==", "aGk="


def image(url: str) -> list[Any]:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    return [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "image", "source": source},
    ]


def file(url: str, source: dict[str, str], name: str | None = None) -> list[Any]:
    named, titled = ({"filename": name}, {"title": name}) if name else ({}, {})
    return [
        {"type": "file", "file": {"file_data": url, **named}},
        {"type": "input_file", "file_data": url, **named},
        {"type": "document", "source": source, **titled},
    ]


SOUND = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
DOCUMENT = {"type": "base64", "media_type": "application/pdf", "data": PDF}
PLAIN = {"type": "text", "media_type": "text/plain", "data": "hi"}
NO = "refused"
FAR = "https://example.com/a"


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (ImagePart(data=b"\x89PNG", media_type="image/png"), image(f"data:image/png;base64,{PNG}")),
        (ImagePart(f"data:image/png;base64,{PNG}"), image(f"data:image/png;base64,{PNG}")),
        (ImagePart(f"DATA:image/png;BASE64,{PNG}"), image(f"data:image/png;base64,{PNG}")),
        (ImagePart("data:image/png,%89PNG"), image(f"data:image/png;base64,{PNG}")),
        (ImagePart("data:image/png;base64,iVBORw%3D%3D"), image(f"data:image/png;base64,{PNG}")),
        (ImagePart(data=b"\x89PNG", media_type="Image/PNG"), image(f"data:Image/PNG;base64,{PNG}")),
        (
            ImagePart(FAR),
            [
                {"type": "image_url", "image_url": {"url": FAR}},
                {"type": "input_image", "image_url": FAR, "detail": "auto"},
                {"type": "image", "source": {"type": "url", "url": FAR}},
            ],
        ),
        (FilePart(data=b"%PDF-", name="a.pdf"), file(f"data:application/pdf;base64,{PDF}", DOCUMENT, "a.pdf")),
        (FilePart(f"data:application/pdf;base64,{PDF}"), file(f"data:application/pdf;base64,{PDF}", DOCUMENT)),
        (
            FilePart(f"Data:application/pdf;base64,{PDF}", name="a.pdf"),
            file(f"data:application/pdf;base64,{PDF}", DOCUMENT, "a.pdf"),
        ),
        (FilePart("data:text/plain,hi"), file(f"data:text/plain;base64,{TEXT}", PLAIN)),
        (FilePart("data:,hi"), file(f"data:text/plain;base64,{TEXT}", PLAIN)),
        (
            FilePart("data:TEXT/markdown;charset=utf-8,hi"),
            file(f"data:TEXT/markdown;charset=utf-8;base64,{TEXT}", PLAIN),
        ),
        (
            FilePart(FAR),
            [NO, {"type": "input_file", "file_url": FAR}, {"type": "document", "source": {"type": "url", "url": FAR}}],
        ),
        (
            FilePart(file_id="f1"),
            [
                {"type": "file", "file": {"file_id": "f1"}},
                {"type": "input_file", "file_id": "f1"},
                {"type": "document", "source": {"type": "file", "file_id": "f1"}},
            ],
        ),
        (AudioPart(data=b"RIFF", media_type="audio/wav"), [SOUND, SOUND, NO]),
        (AudioPart(f"data:audio/wav;base64,{WAV}"), [SOUND, SOUND, NO]),
        (AudioPart(f"DATA:audio/x-wav;base64,{WAV}"), [SOUND, SOUND, NO]),
        (AudioPart(FAR), [NO, NO, NO]),
        (ImagePart("data:secret"), [NO, NO, NO]),
        (ImagePart("data:image/png;base64,secret!"), [NO, NO, NO]),
        (FilePart("data:text/plain;base64,secret!"), [NO, NO, NO]),
        (AudioPart("data:audio/wav;base64,secret!"), [NO, NO, NO]),
    ],
)
def test_a_part_in_each_form(part: Part, sent: list[Any]) -> None:
    for form, expected in zip(FORMS, sent, strict=True):
        if expected != NO:
            assert form(part) == expected, form.__name__
            continue
        with pytest.raises(InvalidInputError) as caught:
            form(part)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_url_that_cannot_be_read_is_named(form: Any) -> None:
    with pytest.raises(MessageError, match=r"is not base64|without data"):
        form(ImagePart("data:image/png;base64,a!"))
