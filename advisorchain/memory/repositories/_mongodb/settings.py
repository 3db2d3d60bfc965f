"""A MongoDB client and database as the arguments of the repository say, or what is wrong with these."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from advisorchain._checked import checked_seconds, checked_whole
from advisorchain.errors import ConfigurationError, kind_of
from advisorchain.memory.repositories._mongodb.driver import (
    CodecOptions,
    Database,
    Document,
    InvalidName,
    MongoClient,
    PyMongoError,
    ReadPreference,
    WriteConcern,
)
from advisorchain.memory.repositories._url import check_url


def client_of(url_or_client: object, max_connections: int, timeout: float) -> MongoClient[Document]:
    """A client that connects on first use; one that was given stays as it is. ConfigurationError: neither."""
    if isinstance(url_or_client, MongoClient):
        return url_or_client
    if not isinstance(url_or_client, str):
        raise ConfigurationError(
            f"`url_or_client` is {kind_of(url_or_client)}; give a URL such as `mongodb://127.0.0.1:27017`, or a"
            " `MongoClient` (not the asynchronous one, which knows asyncio only)"
        )
    if not url_or_client.startswith(("mongodb://", "mongodb+srv://")):
        raise ConfigurationError("`url_or_client` is no URL of MongoDB; it begins with `mongodb://` or `mongodb+srv://`")
    check_url(url_or_client)
    milliseconds = max(1, round(timeout * 1000))
    given = {name.lower() for name, _ in parse_qsl(url_or_client.rpartition("?")[2], keep_blank_values=True)}
    own = {"serverSelectionTimeoutMS": milliseconds, "socketTimeoutMS": milliseconds, "maxPoolSize": max_connections}
    options: dict[str, Any] = {name: value for name, value in own.items() if name.lower() not in given}
    try:
        return MongoClient(url_or_client, connect=False, **options)
    except (PyMongoError, ValueError) as error:  # their texts may show a part of the URL
        raise ConfigurationError(
            f"`url_or_client` cannot be used ({type(error).__name__}); check host, port, options, and that special"
            " characters in user and password are percent-encoded"
        ) from None


def database_of(client: MongoClient[Document], name: object) -> Database[Document]:
    """The database, read from the primary, and written to a majority unless the client says otherwise.

    Raises:
        ConfigurationError: it can be none, or the client would not hear of writes that fail.
    """
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigurationError("`database` is empty or no text; give a database's name, or None")
    concern = client.write_concern
    if not concern.acknowledged:
        raise ConfigurationError("`w=0` lets the server lose writes without telling; give another write concern, or none")
    if concern.is_server_default:
        concern = WriteConcern("majority")  # what was acknowledged survives a change of the primary
    try:
        chosen = name or client.get_default_database("advisorchain").name
        return client.get_database(chosen, CodecOptions(), ReadPreference.PRIMARY, concern)
    except (InvalidName, PyMongoError):
        raise ConfigurationError("`database` is no name that MongoDB takes; give letters, digits, `_` and `-`") from None


def checked_prefix(prefix: object) -> str:
    """What collections' names may begin with; else ConfigurationError."""
    if isinstance(prefix, str) and (not prefix or (prefix.isascii() and prefix.isidentifier())):
        return prefix
    raise ConfigurationError("`prefix` begins the collections' names; give ASCII letters, digits and `_`, or an empty text")


def check_numbers(max_connections: object, timeout: object) -> None:
    """Refuse numbers that cannot work; ConfigurationError."""
    checked_whole("max_connections", max_connections)
    checked_seconds("timeout", timeout)
