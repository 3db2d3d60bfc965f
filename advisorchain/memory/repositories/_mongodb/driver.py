"""What we use of MongoDB's official driver: one place that says how to install it."""

from __future__ import annotations

from typing import Any, TypeAlias

from advisorchain.errors import MissingExtraError

try:
    from bson import ObjectId
    from bson.codec_options import CodecOptions
    from bson.errors import BSONError
    from pymongo import MongoClient, ReadPreference, ReturnDocument, WriteConcern
    from pymongo.collection import Collection
    from pymongo.database import Database
    from pymongo.errors import (
        BulkWriteError,
        ConfigurationError,
        ConnectionFailure,
        DuplicateKeyError,
        InvalidName,
        OperationFailure,
        PyMongoError,
        ServerSelectionTimeoutError,
    )
except ImportError as error:
    raise MissingExtraError('conversations in MongoDB need its driver: pip install "advisorchain[mongodb]"') from error

__all__ = [
    "BSONError",
    "BulkWriteError",
    "CodecOptions",
    "ConfigurationError",
    "ConnectionFailure",
    "Database",
    "Document",
    "DuplicateKeyError",
    "InvalidName",
    "MongoClient",
    "ObjectId",
    "OperationFailure",
    "PyMongoError",
    "ReadPreference",
    "ReturnDocument",
    "ServerSelectionTimeoutError",
    "Table",
    "WriteConcern",
]

Document: TypeAlias = dict[str, Any]
Table: TypeAlias = Collection[Document]
