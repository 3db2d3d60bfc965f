"""Images, sounds and files as bytes, `data:` URLs and names of types: how every form of a message reads and writes them."""

from __future__ import annotations

import binascii
import mimetypes
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import unquote, unquote_to_bytes

from advisorchain.errors import MessageError
from advisorchain.messages import AudioPart, FilePart, ImagePart, RefusalPart, TextPart

__all__ = ["audio_format", "audio_type", "data_url", "file_type", "from_base64", "plain_type", "with_bytes"]

_P = TypeVar("_P", bound=TextPart | ImagePart | AudioPart | FilePart | RefusalPart)

_SCHEME: Final = "data:"
_MARKER: Final = ";base64"
_UNTOLD: Final = "text/plain"  # what a `data:` URL holds that does not tell its type (RFC 2397)
_UNKNOWN_BYTES: Final = "application/octet-stream"
_AUDIO_FORMATS: Final = {"audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3"}  # others are named as their subtype


def with_bytes(part: _P, path: str | None = None) -> _P:
    """`part` with its bytes, where it has them as a `data:` URL; others as they are.

    Args:
        part: any.
        path: what an error names as the place of the URL; None: such as "image.url".

    Raises:
        MessageError: the URL cannot be read; the text never shows it.
    """
    if not isinstance(part, ImagePart | AudioPart | FilePart) or part.url is None:
        return part
    if part.url[: len(_SCHEME)].lower() != _SCHEME:
        return part
    data, told = _read(part.url, path or f"{part.type}.url")
    return replace(part, url=None, data=data, media_type=part.media_type or told or _UNTOLD)


def _read(url: str, path: str) -> tuple[bytes, str]:
    head, comma, payload = url[len(_SCHEME) :].partition(",")
    if not comma:
        raise MessageError(f"`{path}` is a `data:` URL without data")
    if head[-len(_MARKER) :].lower() != _MARKER:
        return unquote_to_bytes(payload), head
    return from_base64(unquote(payload), path), head[: -len(_MARKER)]


def from_base64(text: str, path: str) -> bytes:
    """The bytes.

    Raises:
        MessageError: `text` is not base64.
    """
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MessageError(f"`{path}` is not base64") from None


def data_url(data: bytes, media_type: str | None, name: str | None = None) -> str:
    """Bytes as a `data:` URL; a media type that is not told is guessed from the file's name."""
    return f"{_SCHEME}{file_type(media_type, name) or _UNKNOWN_BYTES}{_MARKER},{b64encode(data).decode()}"


def file_type(media_type: str | None, name: str | None) -> str | None:
    """The media type, or what the file's name lets one guess; None: nothing."""
    return media_type or mimetypes.guess_type(name or "")[0]


def plain_type(media_type: str | None) -> str:
    """A media type without its parameters, in small letters; "" when there is none."""
    return (media_type or "").partition(";")[0].strip().lower()


def audio_format(media_type: str | None) -> str:
    """What OpenAI calls a sound's media type: "wav" for "audio/wav", "mp3" for "audio/mpeg"."""
    kind = plain_type(media_type)
    return _AUDIO_FORMATS.get(kind) or kind.partition("/")[2]


def audio_type(name: str) -> str:
    """The media type of what OpenAI calls "wav", "mp3" and so on."""
    return "audio/mpeg" if name == "mp3" else f"audio/{name}"
