"""Tools found by words: a full-text index in memory, SQLite's FTS5."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final

from advisorchain.errors import ConfigurationError
from advisorchain.options import ToolDefinition

__all__ = ["ToolIndex"]

_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_WORDS: Final = 50  # of a query
_TABLE: Final = "CREATE VIRTUAL TABLE tools USING fts5(name, told, arguments, tokenize = 'porter unicode61')"
# bm25's weights: a word of the name says more than one of the description, that more than one of an argument
_FIND: Final = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 4.0, 2.0, 1.0), rowid LIMIT ?"


class ToolIndex:
    """An index of tools by the words of names, descriptions and arguments. It may be asked by any thread.

    Args:
        definitions: the tools, as models are told of them.

    Raises:
        ConfigurationError: this Python's SQLite was built without FTS5.
    """

    def __init__(self, definitions: Sequence[ToolDefinition]) -> None:
        self.names: Final = tuple(definition.name for definition in definitions)
        self._lock = Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._database.execute(_TABLE)
        except sqlite3.OperationalError as error:
            raise ConfigurationError(
                f"tool search needs SQLite's FTS5, which this Python was built without: {error}"
            ) from None
        rows = [
            (place, _split(each.name), _split(each.description), _split(" ".join(_argument_words(each.parameters))))
            for place, each in enumerate(definitions)
        ]
        self._database.executemany("INSERT INTO tools(rowid, name, told, arguments) VALUES (?, ?, ?, ?)", rows)

    def find(self, query: str, limit: int) -> list[str]:
        """Names of the tools that have one or more words of `query`, the best first; a tool's whole name finds it first.

        Args:
            query: words. Their order, their endings and accents do not count.
            limit: how many at most.
        """
        words = _WORD.findall(_split(query))[:_MOST_WORDS]
        if not words:
            return []
        with self._lock:
            rows = self._database.execute(_FIND, (" OR ".join(f'"{word}"' for word in words), limit)).fetchall()
        found = [self.names[place] for (place,) in rows]
        if query.strip() in self.names:
            found = [query.strip(), *(name for name in found if name != query.strip())]
        return found[:limit]

    def __del__(self) -> None:
        self._database.close()


def _split(text: str) -> str:
    """`text` with `camelCase` as two words, as FTS5 reads `snake_case`; a letter and its accent as one character."""
    return _HUMP.sub(" ", unicodedata.normalize("NFC", text))


def _argument_words(schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema.get("properties")
    for name, told in properties.items() if isinstance(properties, Mapping) else ():
        yield name
        if isinstance(told, Mapping) and isinstance(told.get("description"), str):
            yield told["description"]
