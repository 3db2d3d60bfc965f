"""Messages that only the holder of a key can read: what stands in their place, and the way back."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from advisorchain.errors import ConfigurationError, MessageError, MissingExtraError, StorageError
from advisorchain.memory.repository import Entry
from advisorchain.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    dump_message,
    load_message,
)

try:
    from cryptography.fernet import Fernet, InvalidToken, MultiFernet
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise MissingExtraError('encryption needs its library: pip install "advisorchain[encryption]"') from error

_FIELD: Final = "encrypted"  # of the metadata
_SHOWN: Final = "(encrypted)"  # in place of the content
HASHED: Final = "hashed:"  # what each hashed conversation id begins with
_HASHED_ID: Final = re.compile(HASHED + "[0-9a-f]{8}:[0-9a-f]{64}")
_NO_KEYS: Final = "give a key that `cryptography.fernet.Fernet.generate_key()` made, or a list of them, the newest first"


class Sealed(NamedTuple):
    """What is hidden, beside the message, in an entry.

    Attributes:
        turn: the turn id.
        bound: what stands for it in the store.
        batch: what the entries that were written together have in common, and no others.
        place: the entry's among these, which grows.
        kind: the entry's.
    """

    turn: str
    bound: str
    batch: str
    place: int
    kind: str


class Cipher:
    """Encrypts with the first of its keys and decrypts with all of them.

    Fernet encrypts (AES-128 in CBC mode, signed by HMAC-SHA256). Names are replaced by an HMAC-SHA256 of them, with keys of
    their own that HKDF derives: for names that must be found again of `names_key`, by default the last one of `keys`, which
    stays when a new key is put in front; for system messages, which are only compared, of the first.

    Attributes:
        mark: what conversation ids that were hashed with this key of names begin with.

    Raises:
        ConfigurationError: `keys` or `names_key` are none.
    """

    def __init__(self, keys: object, names_key: object = None) -> None:
        given = checked_keys(keys)
        self._all = MultiFernet([Fernet(key) for key in given])
        self._first = Fernet(given[0])
        named = given[-1] if names_key is None else _checked_key("names_key", names_key)
        self._names = _derived(named, b"advisorchain names")
        self._systems = _derived(given[0], b"advisorchain system messages")
        self.mark = f"{HASHED}{self.name('key', '')[:8]}:"

    def hashed_id(self, conversation_id: str) -> str:
        """What stands for a conversation id, in which one can see that it does; of such a one, itself."""
        if _HASHED_ID.fullmatch(conversation_id):
            return conversation_id
        return self.mark + self.name("conversation", conversation_id)

    def name(self, kind: str, text: str) -> str:
        """What stands for a name of a kind, such as a turn id: 64 characters, the same ones each time."""
        return hmac.new(self._names, f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()

    def stand_in(self, content: object) -> str:
        """What stands for the content of a system message, so that equal ones are seen to be equal."""
        text = dump_message(SystemMessage(content))  # type: ignore[arg-type]
        return hmac.new(self._systems, text.encode(), hashlib.sha256).hexdigest()

    def seal(self, message: Message, sealed: Sealed, known: Mapping[object, str] | None = None) -> Message:
        """A message of the same role with nothing in it to read; `known` are stand-ins of system messages in the store."""
        text = json.dumps(sealed) + "\n" + dump_message(message)
        hidden = {_FIELD: self._first.encrypt(text.encode()).decode()}
        if isinstance(message, SystemMessage):
            return SystemMessage((known or {}).get(message.content) or self.stand_in(message.content), metadata=hidden)
        if isinstance(message, ToolMessage):
            return ToolMessage(_SHOWN, tool_call_id=_SHOWN, metadata=hidden)
        return (UserMessage if isinstance(message, UserMessage) else AssistantMessage)(_SHOWN, metadata=hidden)

    def is_of_first_key(self, entry: Entry) -> bool:
        """Whether an entry that can be opened was sealed with the first key."""
        try:
            self._first.decrypt(_token(entry))
        except InvalidToken:
            return False
        return True

    def open(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries as they were before `seal`, in the order in which they are given.

        Raises:
            StorageError: one of them is not what it was, or none of the keys fits; the text names its sequence.
        """
        given = list(entries)
        opened = [self._opened(entry) for entry in given]
        _check_places(opened)
        return [entry for entry, _ in opened]

    def check_key(self, entries: Iterable[Entry]) -> None:
        """Refuse entries of which none of the keys fits; those that are not encrypted are passed over.

        Raises:
            StorageError: the text names the sequence.
        """
        for entry in entries:
            if _FIELD in entry.message.metadata:
                self._decrypted(entry)

    def _opened(self, entry: Entry) -> tuple[Entry, Sealed]:
        head, _, text = self._decrypted(entry).partition("\n")
        sealed, message = _parsed(entry, head, text)
        if sealed.bound != entry.turn_id or sealed.kind != entry.kind or message.role != entry.role:
            raise _moved(entry)
        return replace(entry, turn_id=sealed.turn, message=message), sealed

    def _decrypted(self, entry: Entry) -> str:
        try:
            return self._all.decrypt(_token(entry)).decode()
        except InvalidToken:
            raise StorageError(
                f"entry {entry.sequence} cannot be decrypted: it was written with a key that is not among `keys`, or changed"
                " since. Give all keys that were ever used, the newest first"
            ) from None


def weight(message: Message) -> int:
    """About how many characters there are to encrypt or to decrypt."""
    token = message.metadata.get(_FIELD)
    if isinstance(token, str):
        return len(token)
    if isinstance(message.content, str):
        return len(message.content)
    return sum(len(getattr(part, "data", None) or b"") + len(getattr(part, "text", None) or "") for part in message.content)


def checked_keys(keys: object) -> list[bytes]:
    """Keys as bytes; ConfigurationError, which never shows one, when they are none."""
    given = [keys] if isinstance(keys, str | bytes) else list(keys) if isinstance(keys, Iterable) else []
    if not given:
        raise ConfigurationError(f"`keys` are missing; {_NO_KEYS}")
    return [_checked_key(f"keys[{place}]", key) for place, key in enumerate(given)]


def _checked_key(name: str, key: Any) -> bytes:
    try:
        Fernet(key)
    except (TypeError, ValueError):
        raise ConfigurationError(f"`{name}` is no key (32 bytes in URL-safe base64); {_NO_KEYS}") from None
    return key.encode() if isinstance(key, str) else bytes(key)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, purpose).derive(urlsafe_b64decode(key))


def _token(entry: Entry) -> bytes:
    token = entry.message.metadata.get(_FIELD)
    if not isinstance(token, str):
        raise StorageError(
            f"entry {entry.sequence} is not encrypted; read it without encryption, and write it anew with it"
            " (`snapshot` and `restore` of a ChatMemory)"
        )
    return token.encode()


def _parsed(entry: Entry, head: str, text: str) -> tuple[Sealed, Message]:
    try:
        return Sealed(*json.loads(head)), load_message(text)
    except (TypeError, ValueError, MessageError):  # their texts would show the content
        raise StorageError(
            f"entry {entry.sequence} was decrypted, but is no message that this version knows; update advisorchain"
        ) from None


def _check_places(opened: Sequence[tuple[Entry, Sealed]]) -> None:
    """Entries of one turn were written together, and stand in the order in which they were."""
    turns: dict[str, Sealed] = {}
    for entry, sealed in sorted(opened, key=lambda each: each[0].sequence):
        before = turns.get(sealed.bound)
        if before is not None and (before.batch != sealed.batch or before.place >= sealed.place):
            raise _moved(entry)
        turns[sealed.bound] = sealed


def _moved(entry: Entry) -> StorageError:
    return StorageError(
        f"entry {entry.sequence} is not the one that was written there: its turn, role, kind or place is another. The store"
        " was changed by something else than this library; put a backup in its place"
    )
